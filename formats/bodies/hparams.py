"""Hyper-parameters in whole-context files before July 2024: the struct of the build, as in memory.

Nearly every release changed the struct without changing the version of the file. It is what says
how large the rows of the cache are, which is stored nowhere else.

Source: ggerganov/llama.cpp at the builds named, llama.cpp `struct llama_hparams`, laid out as on
x86-64 and arm64. Seen in files: b2440, b3305.
"""

from __future__ import annotations

from typing import Any

from construct import Container

from formats.bodies.attention import N_LAYER
from formats.scalars import F32, I32, LLAMA_TOKEN, U8, U16, U32
from formats.spans import Record, Values

_PADDING = "alignment"

_FIELDS: dict[str, Any] = {
    "vocab_only": U8 * "whether only the vocabulary was loaded",
    "rope_finetuned": U8 * "whether the model was fine-tuned for a longer context",
    "pad_1": U8 * _PADDING,
    "pad_2": U16 * _PADDING,
    "n_vocab": U32 * "tokens of the vocabulary",
    "n_ctx": U32 * "positions of the context",
    "n_ctx_train": U32 * "positions that the model was trained on",
    "n_embd": U32 * "elements of an embedding",
    "n_mult": U32 * "multiple that the feed-forward width is rounded up to",
    "n_head": U32 * "query heads",
    "n_head_kv": U32 * "key and value heads",
    "n_layer": U32 * "layers of the model",
    "n_rot": U32 * "elements of a head that RoPE rotates",
    "n_swa": U32 * "positions of the sliding window",
    "n_embd_head_k": U32 * "elements of a key head",
    "n_embd_head_v": U32 * "elements of a value head",
    "n_ff": U32 * "elements of the feed-forward layer",
    "n_expert": U32 * "experts",
    "n_expert_used": U32 * "experts used for a token",
    "n_vocab_type": U32 * "token types, of BERT models",
    "n_rel_attn_bkts": U32 * "buckets of relative positions, of T5 models",
    "n_layer_dense_lead": U32 * "layers without experts at the beginning",
    "n_lora_q": U32 * "rank of the queries, of MLA models",
    "n_lora_kv": U32 * "rank of keys and values, of MLA models",
    "n_ff_exp": U32 * "elements of an expert's feed-forward layer",
    "n_ff_shexp": U32 * "elements of the shared experts' feed-forward layer",
    "n_expert_shared": U32 * "shared experts",
    "expert_weights_scale": F32 * "factor of the experts' weights",
    "f_ffn_mult": F32 * "factor of the feed-forward width",
    "f_norm_eps": F32 * "epsilon of layer norms",
    "f_norm_rms_eps": F32 * "epsilon of RMS norms",
    "f_rms_norm_eps": F32 * "epsilon of RMS norms",
    "f_attn_logit_softcapping": F32 * "cap of attention scores",
    "f_final_logit_softcapping": F32 * "cap of logits",
    "rope_attn_factor": F32 * "factor of attention scores under RoPE scaling",
    "rope_freq_base": F32 * "base of RoPE frequencies",
    "rope_freq_scale": F32 * "factor of RoPE frequencies",
    "rope_freq_base_train": F32 * "base of RoPE frequencies in training",
    "rope_freq_scale_train": F32 * "factor of RoPE frequencies in training",
    "n_yarn_orig_ctx": U32 * "positions before YaRN; n_ctx_orig_yarn in later builds",
    "rope_yarn_log_mul": F32 * "factor of YaRN's attention scaling",
    "rope_bits": U8 * "rope_scaling_type_train in three bits, rope_finetuned in the fourth",
    "pad_3": U8 * _PADDING,
    "pad_4": U16 * _PADDING,
    "ssm_d_conv": U32 * "width of the convolution, of Mamba models",
    "ssm_d_inner": U32 * "inner channels, of Mamba models",
    "ssm_d_state": U32 * "states of a channel, of Mamba models",
    "ssm_dt_rank": U32 * "rank of the time step, of Mamba models",
    "f_clamp_kqv": F32 * "clamp of queries, keys and values",
    "f_max_alibi_bias": F32 * "largest ALiBi bias",
    "f_logit_scale": F32 * "factor of logits",
    "causal_attn": U8 * "whether attention is causal",
    "pooling_layer": U8 * "whether embeddings are pooled",
    "need_kq_pos": U8 * "whether ALiBi needs positions; use_alibi in later builds",
    "use_alibi": U8 * "whether ALiBi is used",
    "attn_soft_cap": U8 * "whether attention scores are capped",
    "pad_5": U8 * _PADDING,
    "pad_6": U16 * _PADDING,
    "dec_start_token_id": LLAMA_TOKEN * "first token of the decoder, of T5 models",
    "pooling_type": I32 * "pooling of embeddings",
    "rope_type": I32 * "which elements of a head RoPE pairs",
    "rope_scaling_type_train": I32 * "RoPE scaling in training",
    "ftype": I32 * "quantization of the model",
}


def _changed(struct: str, **members: str) -> str:
    """The members of a struct, with some replaced by others."""
    return " ".join(members.get(name, name) for name in struct.split())


_B451 = "n_vocab n_ctx n_embd n_mult n_head n_layer n_rot ftype"
_B843 = _changed(_B451, n_rot="n_rot rope_freq_base rope_freq_scale")
_B888 = _changed(_B843, n_head="n_head n_head_kv", n_rot="n_rot f_ffn_mult")
_B899 = _changed(_B888, f_ffn_mult="f_ffn_mult f_rms_norm_eps")
_B1012 = """
    n_vocab n_ctx_train n_ctx n_embd n_head n_head_kv n_layer n_rot n_ff
    f_norm_rms_eps rope_freq_base rope_freq_scale
"""
_B1041 = _changed(_B1012, f_norm_rms_eps="f_norm_eps f_norm_rms_eps")
_B1289 = """
    vocab_only pad_1 pad_2 n_vocab n_ctx_train n_embd n_head n_head_kv n_layer n_rot n_ff
    f_norm_eps f_norm_rms_eps rope_freq_base_train rope_freq_scale_train
"""
_B1359 = f"{_B1289} f_clamp_kqv f_max_alibi_bias"
_B1462 = _changed(
    _B1359, rope_freq_scale_train="rope_freq_scale_train n_yarn_orig_ctx rope_bits pad_3 pad_4"
)
_B1629 = _changed(_B1462, n_ff="n_ff n_expert n_expert_used")
_B1748 = _changed(_B1629, n_rot="n_rot n_embd_head_k n_embd_head_v")
_B2127 = _changed(
    _B1748,
    n_expert_used="n_expert_used n_vocab_type",
    f_max_alibi_bias="f_max_alibi_bias causal_attn pooling_layer pad_6",
)
_B2158 = _changed(_B2127, pooling_layer="pad_5", pad_6="pad_6 pooling_type")
_B2264 = _changed(
    _B2158,
    pad_1="rope_finetuned",
    rope_bits="",
    pad_3="",
    pad_4="",
    pad_5="need_kq_pos",
    pooling_type="pooling_type rope_type rope_scaling_type_train",
)
_B2366 = _changed(
    _B2264, n_yarn_orig_ctx="n_yarn_orig_ctx ssm_d_conv ssm_d_inner ssm_d_state ssm_dt_rank"
)
_B2440 = _changed(_B2366, f_max_alibi_bias="f_max_alibi_bias f_logit_scale")
_B2961 = _changed(
    _B2440,
    rope_freq_base_train="rope_attn_factor rope_freq_base_train",
    need_kq_pos="use_alibi",
)
_B3023 = _changed(
    _B2961,
    n_vocab_type="""
        n_vocab_type n_layer_dense_lead n_lora_q n_lora_kv n_ff_exp n_expert_shared
        expert_weights_scale
    """,
    n_yarn_orig_ctx="n_yarn_orig_ctx rope_yarn_log_mul",
)
_B3173 = _changed(_B3023, n_ff_exp="n_ff_exp n_ff_shexp")
_B3266 = _changed(
    _B3173,
    f_norm_rms_eps="f_norm_rms_eps f_attn_logit_softcapping f_final_logit_softcapping",
    pad_6="attn_soft_cap pad_5",
)
_B3274 = _changed(_B3266, n_rot="n_rot n_swa")
_B3295 = _changed(
    _B3274,
    n_vocab_type="n_vocab_type n_rel_attn_bkts",
    pooling_type="dec_start_token_id pooling_type",
)
_B3305 = _changed(
    _B3295,
    n_head="",
    n_head_kv="",
    n_ff="",
    n_rel_attn_bkts="n_rel_attn_bkts n_head_arr n_head_kv_arr n_ff_arr",
)


def _record(struct: str, max_layers: int = 256) -> Record:
    """The struct with these members; arrays have an element for each of LLAMA_MAX_LAYERS."""
    per_layer = Values(max_layers, U32, at_most=N_LAYER)
    arrays = {
        "n_head_arr": per_layer * "query heads of each layer",
        "n_head_kv_arr": per_layer * "key and value heads of each layer",
        "n_ff_arr": per_layer * "elements of each layer's feed-forward layer",
    }
    fields = _FIELDS | arrays
    return Record(*(name / fields[name] for name in struct.split()))


HPARAMS: dict[str, Record] = {
    "b451": _record(_B451),
    "b843": _record(_B843),
    "b888": _record(_B888),
    "b899": _record(_B899),
    "b1012": _record(_B1012),
    "b1041": _record(_B1041),
    "b1289": _record(_B1289),
    "b1359": _record(_B1359),
    "b1462": _record(_B1462),
    "b1629": _record(_B1629),
    "b1748": _record(_B1748),
    "b2127": _record(_B2127),
    "b2158": _record(_B2158),
    "b2264": _record(_B2264),
    "b2366": _record(_B2366),
    "b2440": _record(_B2440),
    "b2961": _record(_B2961),
    "b3023": _record(_B3023),
    "b3173": _record(_B3173),
    "b3266": _record(_B3266),
    "b3274": _record(_B3274),
    "b3295": _record(_B3295),
    "b3305": _record(_B3305),
    "b3421": _record(_B3305, max_layers=512),
}
"""The struct of each build that changed it."""


def row_widths(hparams: Container) -> tuple[tuple[int, int], ...]:
    """Elements of a key row and of a value row of every layer; empty for an impossible n_layer.

    Source: `llama_hparams::n_embd_k_gqa`, `n_embd_k_s` and their counterparts for values.
    """
    if hparams.n_layer > N_LAYER:
        return ()
    if "n_head_kv_arr" in hparams:
        n_head_kv = hparams.n_head_kv_arr[: hparams.n_layer]
    else:
        n_head_kv = (hparams.get("n_head_kv", hparams.n_head),) * hparams.n_layer
    if "n_embd_head_k" in hparams:
        k, v = hparams.n_embd_head_k, hparams.n_embd_head_v
    else:
        k = v = hparams.n_embd // max(1, hparams.n_head)
    inner = hparams.get("ssm_d_inner", 0)
    convolution = max(0, hparams.get("ssm_d_conv", 0) - 1) * inner
    state = hparams.get("ssm_d_state", 0) * inner
    return tuple((n * k + convolution, n * v + state) for n in n_head_kv)
