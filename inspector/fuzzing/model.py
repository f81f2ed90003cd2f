"""The metadata and the tensors of a generated model header."""

from __future__ import annotations

from typing import NamedTuple

from formats.gguf import ARRAY, BOOL, STRING, UINT32

_FLOAT32 = 6


class Entry(NamedTuple):
    """One entry: its key, the type of its value, the value, the type of an array's elements."""

    key: str
    type: int
    value: int | float | str | tuple[int, ...]
    element: int = 0


ENTRIES = (
    Entry("general.architecture", STRING, "llama"),
    Entry("general.name", STRING, "generated"),
    Entry("general.alignment", UINT32, 32),
    Entry("llama.block_count", UINT32, 2),
    Entry("llama.context_length", UINT32, 512),
    Entry("llama.embedding_length", UINT32, 64),
    Entry("llama.attention.head_count", UINT32, 4),
    Entry("llama.attention.head_count_kv", UINT32, 2),
    Entry("llama.rope.freq_base", _FLOAT32, 10000.0),
    Entry("tokenizer.ggml.add_bos_token", BOOL, 1),
    Entry("tokenizer.ggml.token_type", ARRAY, (1, 1, 3), UINT32),
    Entry("tokenizer.ggml.tokens", ARRAY, (0, 0, 0), STRING),
)
TENSORS = ("token_embd.weight", "blk.0.attn_k.weight", "blk.1.attn_k.weight")
TENSOR_BYTES = 64
"""Bytes of each: eight rows of two F32."""
