"""States of ik_llama.cpp in the form of llama.cpp: caches apart, absent layers left out.

Source: restores on b10229 and b11549 of states of ik_llama.cpp 2026-02 to 2026-08, of llama, qwen2,
qwen2vl, gemma3, gemma4, gpt-oss, qwen35, qwen3next and deepseek2.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np

from formats.bodies.compositions import MEMORY
from formats.ggml_types import IK, TYPES, GgmlType
from inspector.arrays.numbers import dequantize
from inspector.arrays.order import DELTA_NETS
from inspector.arrays.rotation import rotate
from inspector.checks.ik import complete_cells
from inspector.identify import identify
from inspector.model.geometry import Keys, MemoryExpectation
from inspector.model.identity import judge
from inspector.model.layer0.attention import LATENT_FIRST, ROPE_FIRST
from inspector.model.section import SectionExpectation
from inspector.render.page import counted
from inspector.repair.actions.trim import without_end
from inspector.repair.compose import Form, slot_file
from inspector.repair.draft import Draft, Step
from inspector.repair.ik import Q8_KV, IkCache, IkState, attention_of, is_ik, rotation_of
from inspector.repair.lists import Record
from inspector.repair.segments import Composed, Content, Keep, Rows, Segment, joined
from inspector.repair.state import Cache, Hopeless, Numbers, Part, Recurrent, Refused, Tensor
from inspector.sections import sections
from inspector.server.restore import own_caches
from inspector.server.servers import uncertain
from inspector.server.target import Target
from inspector.span import Span
from inspector.tokens import tokens_of

ACTION = "from-ik"
LATENT = frozenset({"deepseek2", "mistral4"})
"""Architectures with latent keys whose rows both programs are known to share."""
UNEQUAL = {
    "llama4": "the two programs compute other keys for Llama 4",
    "openpangu": "its state is of another kind in each of the programs",
    "deepseek4": "its state is of another kind in each of the programs",
    "glm-dsa": "the programs keep indexer keys of other layers, and nobody has shown that a "
    "converted state continues as it should",
    "bailingmoe3": "how the programs' recurrent states correspond is not known",
}
"""Architectures whose states cannot become those of the other program, and why."""
_F32 = next(kind for kind in TYPES if kind.name == "f32")
_NAMES = {"k": "keys", "v": "values"}


def from_ik(draft: Draft) -> None:
    """One cell list of all layers becomes the caches of the target.

    Raises:
        Hopeless: if it cannot.
    """
    if is_ik(draft.state) and (draft.target is None or draft.for_ik):
        _without_short_keys(draft)
    elif draft.target is not None and is_ik(draft.state):
        try:
            _converted(draft, draft.target)
        except Refused as reason:
            raise Hopeless(str(reason)) from reason


def _converted(draft: Draft, target: Target) -> None:
    memory = target.memory
    if memory is None:
        raise Refused(
            "which layers have a window, a state, latent keys or several positions is not in the "
            "file: name the model with --model"
        )
    attention = attention_of(draft.state)
    check_convertible(draft, memory, transposed=attention.v_trans == 1)
    own = own_caches(draft.report, target, [])
    if own is None or isinstance(own, str):
        raise Refused(str(own))
    check_layers(attention, memory)
    _check_latent(draft, target, memory)
    changes = [*version_word(draft), "what stands around the rows, as this build has it"]
    if any(tensor.kind is not None and tensor.kind.name == Q8_KV for tensor in attention.k):
        changes.append(f"{Q8_KV} keys as plain numbers")
    attention, short = _numbers(draft, target, attention, memory)
    parts: list[Part] = []
    for section in own.sections:
        if section.kind == "recurrent":
            parts.append(_split(draft, draft.state.recurrent, section))
        else:
            parts.append(_cache(draft, attention, section, memory, v_trans=own.v_trans))
    if len(own.sections) > 1 and memory.recurrent is None:
        changes.append("windowed layers in a section of their own")
    if memory.recurrent is not None:
        changes.append("recurrent rows apart into R and S")
    if memory.mla:
        changes.append("the two parts of every latent key change places")
    records = tuple(_records(draft, own.sections))
    draft.take(
        Step(
            ACTION,
            f"{target.build.label} has another layout: it refuses the file, or takes a number in "
            "it for another",
            "; ".join(changes),
            proven="b10229, b11549",
        )
    )
    form = replace(draft.wanted, packed=False)
    tokens = draft.state.tokens
    if short is not None:
        tokens = replace(tokens, ids=tokens.ids[:short])
        draft.take(_cut(draft, short))
    draft.state = replace(
        draft.state, memory=memory.memory, tokens=tokens, parts=tuple(parts), missing=()
    )
    draft.records, draft.own, draft.form, draft.stored = records, own, form, form


def _without_short_keys(draft: Draft) -> None:
    """Fewer tokens where keys of the last cells are missing: the server computes those anew."""
    source = draft.report.source
    attention = next(part for part in draft.report.sections if part.path == "attn")
    whole = min((complete_cells(source, block) for block in attention.k), default=0)
    if not whole < min(len(attention_of(draft.state).cells), len(draft.state.tokens.ids)):
        return
    if not np.array_equal(attention.pos, np.arange(len(attention.pos))):
        raise Refused("q8_KV keys of several heads were saved short, and where is not known")
    step = _cut(draft, whole)
    draft.take(replace(step, changes=step.changes.replace("tokens and their cells", "tokens")))
    ids = draft.state.tokens.ids[:whole]
    draft.state = replace(draft.state, tokens=replace(draft.state.tokens, ids=ids))
    draft.records = tuple(record for record in draft.records if record.n_tokens <= whole)


def version_word(draft: Draft) -> tuple[str, ...]:
    """What becomes of it, in words; nothing if it stays."""
    before, after = draft.stored.version, draft.wanted.version
    return (f"the version word: {before} becomes {after}",) if before != after else ()


def check_convertible(draft: Draft, memory: MemoryExpectation, *, transposed: bool) -> None:
    """Whether states of this model can become those of the other program at all.

    Raises:
        Refused: if they cannot.
    """
    architecture = memory.architecture
    if architecture in UNEQUAL:
        raise Refused(UNEQUAL[architecture])
    if architecture == "gemma4" and transposed:
        raise Refused(f"without flash attention {IK} computes something else for Gemma 4")
    if memory.memory not in MEMORY or memory.memory.startswith(("dsa", "msa", "hybrid-i")):
        raise Refused(f"how {architecture} is stored by both programs is not known")
    if memory.recurrent is not None and architecture not in DELTA_NETS:
        raise Refused(f"{IK} does not store the state of a {architecture}")
    if bool((draft.state.tokens.ids == -1).any()) or draft.state.tokens.media_start:
        raise Refused(
            "it holds media: the one program keeps their chunks behind the tokens, the other in "
            ".tokens.json, and their positions in the cells are not those of the other"
        )


def check_layers(attention: IkCache, memory: MemoryExpectation) -> None:
    """Whether the file has the layers of the model.

    Raises:
        Refused: if it has not.
    """
    held = {layer for cache in memory.caches for layer in cache.layers}
    if set(attention.layers) != held:
        other = sorted(held ^ set(attention.layers))
        raise Refused(
            f"it is not of this model: layer {other[0]} has a cache in one of them alone, and the "
            f"file has {counted(attention.n_layer, 'layer')}"
        )


def _check_latent(draft: Draft, target: Target, memory: MemoryExpectation) -> None:
    """Whether keys are latent exactly if the target's are; their sizes may be the same.

    Raises:
        Refused: if they are not, or that cannot be told.
    """
    if memory.architecture not in LATENT or target.model is None or draft.check is None:
        return
    keys = Keys(target.model.architecture, target.model.metadata)
    latent = keys.number("attention.kv_lora_rank") + keys.number("rope.dimension_count")
    width = memory.caches[0].k[0]
    order = draft.check.identity.order
    if order in (LATENT_FIRST, ROPE_FIRST):
        stored: bool | None = True
    elif order:
        stored = False
    else:
        stored = None if width == latent and not memory.mla else memory.mla
    if stored is None:
        raise Refused("whether its keys are latent (-mla) is neither in the file nor in its rows")
    if stored and not memory.mla:
        raise Refused(
            "its keys are latent (-mla), and upstream keeps those of this model head by head: a "
            "model file with keys for MLA, or a save with -mla 0, is needed"
        )
    if memory.mla and not stored:
        raise Refused(
            "its keys were saved head by head (-mla 0), and upstream keeps latent ones of this "
            "model"
        )


def _numbers(
    draft: Draft, target: Target, attention: IkCache, memory: MemoryExpectation
) -> tuple[IkCache, int | None]:
    """The cache with what turned its rows, which is not recorded, and q8_KV keys as f32.

    Returns:
        It; and how many of its cells are complete, if not all are.

    Raises:
        Refused: if it cannot be told what turned them, or they are not of this model.
    """
    identity = draft.check.identity if draft.check is not None else None
    if not any(tensor.kind is not None and tensor.kind.name == Q8_KV for tensor in attention.k):
        return replace(attention, rotation=rotation_of(identity, attention)), None
    widths = {
        layer: (cache.k[at], cache.head_k[at])
        for cache in memory.caches
        for at, layer in enumerate(cache.layers)
    }
    made = []
    for layer, tensor in zip(attention.layers, attention.k, strict=True):
        width, head = widths[layer]
        if tensor.kind is None or tensor.kind.name != Q8_KV:
            made.append(tensor)
        elif tensor.row_bytes != width + tensor.kind.row_prefix_bytes:
            raise Refused(f"keys of layer {layer} are not those of this model")
        else:
            made.append(_as_f32(tensor, tensor.kind, width, head))
    whole = min(tensor.n_cells for tensor in made)
    if whole == len(attention.cells):
        found = replace(attention, rotation=rotation_of(identity, attention))
        return replace(found, k=tuple(made)), None
    if not np.array_equal(attention.cells.pos, np.arange(len(attention.cells))):
        raise Refused("q8_KV keys of several heads were saved short, and where is not known")
    index = np.arange(whole)
    k, v = (tuple(t.taken(index, ACTION) for t in side) for side in (made, attention.v))
    cells = attention.cells.taken(index)
    cut = replace(attention, cells=cells, k=k, v=v)
    _, of_values = rotation_of(identity, replace(attention, k=()))
    matrices = (0, *((head,) if head & (head - 1) == 0 else (64, 128, 256, 512)))
    told = next((size for size in matrices if _is_turned(draft, target, cut, size)), None)
    if told is None:
        raise Refused(
            "whether its q8_KV keys are rotated (-khad) is not recorded, and the comparison with "
            "the model does not tell"
        )
    return replace(cut, rotation=(told, of_values)), whole


def _is_turned(draft: Draft, target: Target, cache: IkCache, size: int) -> bool:
    """Whether the keys of the first layer are the model's, once a matrix is undone.

    Args:
        draft: the repair.
        target: whose model it is.
        cache: with keys as f32.
        size: elements of the matrix, 0 for none.
    """
    first, *others = cache.k
    n_elements = first.row_bytes // _F32.block_bytes
    if size and n_elements % size:
        return False

    def undone(data: bytes) -> bytes:
        return rotate(dequantize(data, _F32, n_elements), size).tobytes()

    row = first.row_bytes
    rows = Rows(first.content, (row, row), first.n_cells, undone, ACTION)
    keys = (replace(first, content=(rows,)), *others)
    part = Cache(
        "attn", "attention", cache.cells, 1, 0, cache.v_trans, len(keys), None, keys, cache.v
    )
    tokens = replace(draft.state.tokens, ids=draft.state.tokens.ids[: len(cache.cells)])
    state = replace(draft.state, memory="kv", tokens=tokens, parts=(part,))
    source = Composed(joined(slot_file(state, Form(_PLAIN), ACTION)), "")
    reading = identify(source, memory="kv").reading
    if reading is None:
        return False
    root = reading.decoding.root
    side = judge(source, sections(root), tokens_of(root), target.model).side("k")
    return side is not None and side.agrees and not side.blind


_PLAIN = 2
"""A version of slot files that needs no rotation words."""


def _as_f32(tensor: Tensor, kind: GgmlType, width: int, head: int) -> Tensor:
    """q8_KV rows, one behind the other without gaps, as numbers."""
    row = width // head * (head + kind.row_prefix_bytes)
    n_cells = tensor.row_bytes * tensor.n_cells // row

    def numbers(data: bytes) -> bytes:
        return dequantize(data, kind, head).tobytes()

    new = width * _F32.block_bytes
    rows = Rows(tensor.content, (row, new), n_cells, numbers, ACTION)
    return Tensor(_F32.id, new, n_cells, (rows,), 0, _F32)


def _cut(draft: Draft, whole: int) -> Step:
    count = len(draft.state.tokens.ids)
    changes, loss = without_end(count - whole, count)
    return Step(
        "trim",
        f"{IK} saves q8_KV keys of several heads short: those of the last cells are missing",
        changes,
        loss,
        proven="b10229, b11549",
        confirm=not draft.options.asks_for("trim"),
    )


def _cache(
    draft: Draft,
    attention: IkCache,
    section: SectionExpectation,
    memory: MemoryExpectation,
    *,
    v_trans: bool,
) -> Cache:
    """The layers of one section."""
    assert draft.target is not None
    assert attention.rotation is not None  # it was settled
    k = dict(zip(attention.layers, attention.k, strict=True))
    v = dict(zip(attention.value_layers, attention.v, strict=True))
    if section.v and not attention.v:
        raise Refused("it holds no values: it was saved with -mla, and this model has none here")
    keys = [k[layer] for layer in section.layers]
    values = [v[layer] for layer in section.layers] if section.v else []
    expected = next(cache for cache in memory.caches if cache.member == section.member)
    for name, tensors, widths in (("k", keys, expected.k), ("v", values, expected.v)):
        each = zip(section.layers, tensors, widths, strict=True) if tensors else ()
        for layer, tensor, width in each:
            if tensor.kind is None or tensor.kind.elements(tensor.row_bytes) != width:
                raise Refused(
                    f"{_NAMES[name]} of layer {layer} are not those of this model"
                    + (": latent rows of -mla 0 are of another kind" if memory.mla else "")
                )
    if memory.mla or memory.architecture in LATENT:
        keys = [_reordered(draft, tensor, memory, attention.rotation) for tensor in keys]
    rotation = attention.rotation if values else (attention.rotation[0], 0)
    cache = Cache(
        section.member,
        section.kind,
        attention.cells,
        1,
        0,
        attention.v_trans if values else int(v_trans),
        section.n_layer,
        rotation,
        tuple(keys),
        tuple(values),
    )
    if section.kind != "swa" or not keys:
        return cache
    return cache.taken(computed_cells(attention.cells.pos, keys[0]), ACTION)


def computed_cells(pos: Numbers, keys: Tensor) -> Numbers:
    """Cells of a windowed layer that a server computed; those in front may hold zeros instead.

    A state of llama.cpp that became one of ik_llama.cpp has such, and so has a window anchor.

    Args:
        pos: positions of the cells.
        keys: keys of the layer, in rows.

    Returns:
        Indices of cells, ascending.
    """
    reader, size = keys.reader(), keys.row_bytes
    order = np.argsort(pos, kind="stable")

    def computed(rank: int) -> bool:
        return bool(reader.read_at(int(order[rank]) * size, size).strip(b"\0"))

    first = bisect_left(range(len(order)), True, key=computed)
    return np.sort(order[first:])


def _reordered(
    draft: Draft, tensor: Tensor, memory: MemoryExpectation, rotation: tuple[int, int] | None
) -> Tensor:
    """A latent key as the target has it: ik_llama.cpp's begins with the rope part.

    Raises:
        Refused: if the target has it otherwise, or its parts are no whole blocks.
    """
    assert draft.target is not None  # which has it otherwise
    build, model = draft.target.build, draft.target.model
    assert model is not None  # whose memory is known
    if not build.has("mla-latent-first") or (memory.mla and not build.has("mla-without-values")):
        raise Refused(f"{build.label} stores latent keys otherwise than builds from b7832 on")
    if not memory.mla:
        return tensor
    rope = Keys(model.architecture, model.metadata).number("rope.dimension_count")
    return swapped(tensor, rope, (rotation or (0, 0))[0], ACTION)


def swapped(tensor: Tensor, first: int, rotation: int, why: str) -> Tensor:
    """Rows whose first elements have become their last.

    Args:
        tensor: the rows.
        first: how many elements.
        rotation: elements of the matrix that turned them, 0 for none.
        why: the action.

    Raises:
        Refused: if they are not whole blocks.
    """
    kind, row = tensor.kind, tensor.row_bytes
    if kind is None or first % kind.block_elements or (rotation and first % rotation):
        raise Refused("the parts of a latent key are no whole blocks of its type")
    at = first // kind.block_elements * kind.block_bytes

    def moved(data: bytes) -> bytes:
        rows = np.frombuffer(data, np.uint8).reshape(-1, row)
        return np.concatenate((rows[:, at:], rows[:, :at]), axis=1).tobytes()

    rows = Rows(tensor.content, (row, row), tensor.n_cells, moved, why)
    return replace(tensor, content=(rows,))


def _split(draft: Draft, joined: Recurrent | None, section: SectionExpectation) -> Recurrent:
    """Recurrent rows as R and S.

    Raises:
        Refused: if they are not those of the model, or the order of the target is not known.
    """
    target = draft.target
    assert target is not None  # whose section it is
    if not isinstance(joined, IkState):
        raise Refused("it holds no state of the recurrent layers, which this model has")
    if joined.layers != section.layers:
        raise Refused("it is not of this model: other layers are recurrent")
    if uncertain(target.build, "delta-net-transposed"):
        raise Refused(f"the order of delta nets in {target.build.label} is not known")
    r, s = [], []
    sizes = zip(joined.layers, joined.s, section.k, section.v, strict=True)
    for layer, tensor, r_bytes, s_bytes in sizes:
        if tensor.row_bytes != r_bytes + s_bytes:
            raise Refused(f"the state of layer {layer} is not that of this model")
        head, tail = (
            Tensor(_F32.id, size, 1, sliced(tensor.content, start, start + size), 0, _F32)
            for start, size in ((0, r_bytes), (r_bytes, s_bytes))
        )
        r.append(head)
        turned = target.build.has("delta-net-transposed")
        s.append(turned_blocks(draft, tail, ACTION) if turned else tail)
    if not any(_any_bits(tensor) for tensor in joined.s):
        raise Refused(
            "the state of its recurrent layers is all zeros: ik_llama.cpp did not save that of "
            "this sequence; only its tokens are of use"
        )
    return Recurrent(section.member, joined.pos, section.n_layer, tuple(r), tuple(s))


def turned_blocks(draft: Draft, tensor: Tensor, why: str) -> Tensor:
    """S rows with the square block of every head transposed."""
    model = draft.target.model if draft.target is not None else None
    assert model is not None  # whose state it is
    keys = Keys(model.architecture, model.metadata)
    head = keys.number("ssm.inner_size") // max(1, keys.number("ssm.time_step_rank"))
    size = _F32.block_bytes * head * head
    if not size or tensor.row_bytes % size:
        raise Refused("its recurrent rows are no square blocks")

    def turned(data: bytes) -> bytes:
        blocks = np.frombuffer(data, "<u4").reshape(-1, head, head)
        return blocks.transpose(0, 2, 1).tobytes()

    n = tensor.row_bytes * tensor.n_cells // size
    return replace(tensor, content=(Rows(tensor.content, (size, size), n, turned, why),))


def sliced(content: Content, start: int, stop: int) -> Content:
    """Some of the bytes of a tensor."""
    only: Segment | None = content[0] if len(content) == 1 else None
    if isinstance(only, Keep):
        at = only.span.start
        return (Keep(only.source, Span(at + start, at + stop)),)
    return (Keep(Composed(content, ""), Span(start, stop)),)


def _any_bits(tensor: Tensor) -> bool:
    reader, step = tensor.reader(), 1 << 20
    return any(reader.read_at(at, step).strip(b"\0") for at in range(0, reader.size, step))


def _records(draft: Draft, sections: tuple[SectionExpectation, ...]) -> list[Record]:
    """Checkpoints that hold recurrent states, as the target keeps them."""
    section = next((one for one in sections if one.kind == "recurrent"), None)
    found: list[Record] = []
    for record in draft.records:
        own = next((p for p in record.parts or () if isinstance(p, IkState)), None)
        if section is None or own is None:
            continue
        try:
            part = _split(draft, own, section)
        except Refused:
            continue
        found.append(replace(record, parts=(part,), tgt=(), prefixed=False))
    return found


def positions(cells: Numbers, stored: Numbers) -> Numbers:
    """The place of every position among others that are stored; -1 where it is not."""
    order = np.argsort(stored, kind="stable")
    at = np.searchsorted(stored[order], cells)
    at = np.minimum(at, max(0, len(stored) - 1))
    if not len(stored):
        return np.full(len(cells), -1, np.int64)
    return np.where(stored[order][at] == cells, order[at], -1)
