"""States in the form of ik_llama.cpp: one cell list, every layer, and the companion with tokens.

Source: loads and saves by ik_llama.cpp 0.1.5 (ggsq 3) of states of llama.cpp b10229 and b11549.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from formats.ggml_types import IK
from inspector.arrays.order import What, orders
from inspector.bundle import Role
from inspector.model.geometry import CacheExpectation, Keys, MemoryExpectation, memory_of
from inspector.model.section import SectionExpectation
from inspector.render.page import counted
from inspector.repair.actions.from_ik import (
    check_convertible,
    computed_cells,
    positions,
    swapped,
    turned_blocks,
    version_word,
)
from inspector.repair.actions.values import in_channels, in_rows
from inspector.repair.compose_ik import tokens_json
from inspector.repair.draft import Draft, Step
from inspector.repair.ik import IkCache, IkState, attention_of, is_ik, rotation_of
from inspector.repair.lists import Record
from inspector.repair.segments import Composed, Content, Keep, Make, Segment, Write
from inspector.repair.state import (
    IK_MEMORY,
    Cache,
    Hopeless,
    Numbers,
    Part,
    Recurrent,
    Refused,
    Tensor,
)
from inspector.server.restore import own_caches
from inspector.server.servers import NEWEST_BUILD, Build, build_named
from inspector.server.target import Target
from inspector.span import Span

TO_IK, WRITE_TOKENS = "to-ik", "write-tokens"
TOKENS = ".tokens.json"
_PIECE = 1 << 20


def without_values(draft: Draft) -> None:
    """Latent keys alone where the server keeps no values; how those are stored says nothing."""
    if not draft.for_ik or draft.own is None:
        return
    wanted, v_trans = draft.expects("attn"), int(draft.own.v_trans)
    if wanted is not None and not wanted.v and is_ik(draft.state):
        _drop_values(draft, attention_of(draft.state), wanted)
    draft.convert(lambda cache: cache if cache.v else replace(cache, v_trans=v_trans))


def restamp_ik(draft: Draft) -> None:
    """Another version of ik_llama.cpp's own form: zero words at the end, or none."""
    if not is_ik(draft.state) or not draft.for_ik:
        return
    before, after = draft.stored.version, draft.wanted.version
    attention = attention_of(draft.state)
    if before == after:
        return
    assert draft.target is not None  # whose version is wanted
    _check_indexer(draft)
    if after < _STATES and (draft.state.recurrent is not None or _absent(attention)):
        raise Refused(f"version {after} has no place for layers without a cache")
    words = after - before
    ends = f"{abs(words)} zero word{'s' if abs(words) > 1 else ''} at the end"
    draft.form = replace(draft.form, version=after)
    draft.state = replace(draft.state, memory=_memory_in(after, attention))
    draft.take(
        Step(
            "relayout",
            f"{draft.target.build.label} reads slot files of version {after} alone",
            f"the version word: {before} becomes {after}; {'adds' if words > 0 else 'cuts'} {ends}",
            proven="ik_llama.cpp 2026-02-15, 0.1.5, 8337e4cd3",
        )
    )


_STATES = 3
"""The version from which on layers may have no cache, or a recurrent state."""


def _memory_in(version: int, attention: IkCache) -> str:
    """The memory type of a version; with values, version 2 is upstream's of its day."""
    return "kv" if version < _STATES and attention.values else IK_MEMORY


def _absent(attention: IkCache) -> bool:
    return len(attention.layers) < attention.n_layer


def _check_indexer(draft: Draft) -> None:
    """Whether the indexer section is there exactly if the server wants it."""
    wanted = draft.expects("dsa")
    held = any(cache.member == "indexer" for cache in draft.state.caches)
    if wanted is not None and bool(wanted.k) != held:
        raise Refused(
            "the server keeps keys of an indexer, and the file has none"
            if wanted.k
            else "the file has keys of an indexer, and the server keeps none"
        )


def _drop_values(draft: Draft, attention: IkCache, wanted: SectionExpectation) -> None:
    if max(attention.layers, default=-1) >= len(wanted.k):
        raise Refused(
            f"the file has keys of layer {attention.layers[-1]:,}, and the model has "
            f"{len(wanted.k):,} layers"
        )
    rows = [wanted.k[layer] for layer in attention.layers]
    if not attention.values or rows != [tensor.row_bytes for tensor in attention.k]:
        return
    draft.take(
        Step(
            "drop-values",
            "with these -mla and -fa the server keeps latent keys alone",
            "the word v_state, and no values: they are the latent part of the keys once more",
            proven="ik_llama.cpp 0.1.5",
        )
    )
    changed = replace(attention, v=(), value_layers=(), values=False)
    draft.state = draft.state.part(attention.member, changed)


def to_ik(draft: Draft) -> None:
    """The caches of upstream become one cell list of all layers.

    Raises:
        Hopeless: if they cannot.
    """
    if draft.target is not None and draft.for_ik and not is_ik(draft.state):
        try:
            _converted(draft, draft.target)
        except Refused as reason:
            raise Hopeless(str(reason)) from reason


def _converted(draft: Draft, target: Target) -> None:
    memory = target.memory
    if draft.state.missing:
        raise Refused(f"{', '.join(draft.state.missing)} is not whole")
    if memory is None or target.model is None:
        raise Refused(
            "which layers of the model are stored where is not in the file: name the model with "
            "--model"
        )
    plain = draft.state.memory == "kv" and not (draft.stored.streams or draft.stored.seq_id)
    if plain and draft.wanted.version == draft.stored.version:
        return  # the two programs had one form
    base = next((cache for cache in draft.state.caches if cache.kind == "attention"), None)
    check_convertible(draft, memory, transposed=base is not None and base.v_trans == 1)
    if base is None:
        raise Refused(f"{IK} does not store the state of a {memory.architecture}")
    if not len(base.cells):
        raise Refused("it holds no cells, and a state without cells kills ik_llama.cpp")
    recurrent, version = draft.state.recurrent, draft.wanted.version
    if version < _STATES and recurrent is not None:
        raise Refused(f"version {version} has no place for recurrent layers")
    own = own_caches(draft.report, target, [])
    if own is None or isinstance(own, str):
        raise Refused(str(own))
    sections = {section.member: section for section in own.sections}
    source = _memory(draft)
    attention, zeros = _joined(draft, base, source, sections["attn"])
    missing = len(zeros)
    least = int(zeros.max()) + source.n_swa if missing else 0
    if least > len(draft.state.tokens.ids):
        raise Refused("its windowed section does not hold all that the next token sees")
    parts: list[Part] = [attention]
    if recurrent is not None:
        parts.append(_rows(draft, recurrent, source, sections.get("qnext")))
    elif any(sections["qnext"].k if "qnext" in sections else ()):
        raise Refused("it holds no state of the recurrent layers, which this model has")
    if version < _STATES and _absent(attention):
        raise Refused(f"version {version} has no place for layers without a cache")
    records = tuple(_records(draft, attention, source, sections.get("qnext")))
    dropped = len(draft.records) - len(records)
    changes = [*version_word(draft), "what stands around the rows, as ik_llama.cpp has it"]
    if recurrent is not None:
        changes.append("R and S of every recurrent layer in one row")
    if memory.mla:
        changes.append("the two parts of every latent key change places")
    if missing:
        changes.append(
            f"zeros for {missing:,} cell{'s' if missing > 1 else ''} in front of the window of "
            "windowed layers"
        )
    if dropped:
        changes.append(
            f"no checkpoints: of {dropped:,} for windowed layers it has use for the rows alone"
        )
    draft.take(
        Step(
            TO_IK,
            f"{target.build.label} has another layout: it refuses the file, and empties the slot",
            "; ".join(changes),
            "rows of windowed layers that neither the file nor a checkpoint holds: what goes on "
            "from the end never sees them, but a prompt that shares fewer than "
            f"{counted(least, 'token')} with it is answered wrongly, and no server says so"
            if missing
            else None,
            proven="ik_llama.cpp 0.1.5",
            confirm=bool(missing) and not draft.options.asks_for(TO_IK),
        )
    )
    tokens = replace(draft.state.tokens, packed=False)
    memory_type = _memory_in(version, attention)
    draft.state = replace(draft.state, memory=memory_type, tokens=tokens, parts=tuple(parts))
    draft.form = draft.stored = draft.wanted
    draft.records = records


def _memory(draft: Draft) -> MemoryExpectation:
    """What the build that wrote the file stores of the model.

    Raises:
        Refused: if no build stores it as the file is.
    """
    target = draft.target
    assert target is not None
    assert target.model is not None  # to_ik asks for it
    builds = draft.report.identification.builds
    labels = [label for label in (builds.until, builds.since) if label]
    written: list[Build] = [NEWEST_BUILD]
    written += [build for label in labels if isinstance(build := build_named(label), Build)]
    found = (memory_of(target.model, build) for build in written)
    fits = (memory for memory in found if memory and memory.memory == draft.state.memory)
    memory = next(fits, None)
    if memory is None:
        raise Refused(f"it is not of this model, whose memory is no {draft.state.memory}")
    return memory


def _joined(
    draft: Draft, base: Cache, source: MemoryExpectation, wanted: SectionExpectation
) -> tuple[IkCache, Numbers]:
    """All caches as one, and the positions that windowed layers have zeros for."""
    layers = {cache.member: cache for cache in source.caches}
    k: dict[int, Tensor] = {}
    v: dict[int, Tensor] = {}
    zeros: Numbers = np.zeros(0, np.int64)
    for cache in draft.state.caches:
        expected = layers.get(cache.member)
        if cache.kind == "indexer" or expected is None:
            raise Refused(f"{IK} has no place for {cache.member}")
        _check_sides(draft, cache, expected, wanted)
        at = None
        if cache is not base:
            cache = _with_rows_of_checkpoints(draft, cache, base.cells.pos)
            at = positions(base.cells.pos, cache.cells.pos)
            if not np.isin(cache.cells.pos, base.cells.pos).all():
                raise Refused("windowed layers hold cells that the others do not")
            zeros = base.cells.pos[at < 0]
        keys = cache.k
        if source.mla:
            keys = tuple(_rope_first(draft, tensor, cache) for tensor in keys)
        for layer, tensor in zip(expected.layers, keys, strict=True):
            k[layer] = tensor if at is None else _scattered(tensor, at)
        for layer, tensor in zip(expected.layers if cache.v else (), cache.v, strict=True):
            v[layer] = tensor if at is None else _scattered(tensor, at)
    if not wanted.v:
        v = {}
    elif not v:
        raise Refused("the server keeps values, and the file has none: -mla 3 keeps keys alone")
    for name, tensors, rows in (("keys", k, wanted.k), ("values", v, wanted.v)):
        for layer, row in enumerate(rows):
            if (tensors[layer].row_bytes if layer in tensors else 0) != row:
                raise Refused(f"{name} of layer {layer} are not those of this server")
    return (
        IkCache(
            "attn",
            "attention",
            replace(base.cells, extension={}, seq_id=0),
            1,
            0,
            base.v_trans,
            wanted.n_layer,
            (wanted.n_rot_k, wanted.n_rot_v),
            tuple(k[layer] for layer in sorted(k)),
            tuple(v[layer] for layer in sorted(v)),
            tuple(sorted(k)),
            tuple(sorted(v)),
            bool(wanted.v),
        ),
        zeros,
    )


def _with_rows_of_checkpoints(draft: Draft, cache: Cache, wanted: Numbers) -> Cache:
    """A windowed cache with cells in front of its window, as far as checkpoints hold them.

    Args:
        draft: the repair.
        cache: the cache.
        wanted: positions of which it is to have cells.
    """
    if cache.k and len(cache.cells):
        cache = cache.taken(computed_cells(cache.cells.pos, cache.k[0]), TO_IK)
    for record in sorted(draft.records, key=lambda record: record.n_tokens, reverse=True):
        for part in record.parts or ():
            if isinstance(part, Cache) and part.member == cache.member and _alike(part, cache):
                lacking = np.isin(part.cells.pos, wanted) & ~np.isin(
                    part.cells.pos, cache.cells.pos
                )
                cache = _merged(part.taken(np.flatnonzero(lacking), TO_IK), cache)
    return cache


def _alike(some: Cache, other: Cache) -> bool:
    """Whether rows of two caches are of the same kind."""

    def kind(cache: Cache) -> object:
        rows = [(tensor.type_id, tensor.row_bytes) for tensor in cache.k + cache.v]
        return rows, cache.rotation, cache.v_trans

    return kind(some) == kind(other)


def _merged(some: Cache, other: Cache) -> Cache:
    """The cells of two caches."""

    def both(first: Tensor, second: Tensor) -> Tensor:
        rows = in_rows(first), in_rows(second)
        n_cells = first.n_cells + second.n_cells
        found = replace(rows[0], n_cells=n_cells, content=(*rows[0].content, *rows[1].content))
        return in_channels(found) if first.element_bytes else found

    pos = np.concatenate((some.cells.pos, other.cells.pos))
    k, v = (tuple(map(both, getattr(some, side), getattr(other, side))) for side in ("k", "v"))
    return replace(other, cells=replace(other.cells, pos=pos, extension={}), k=k, v=v)


def _check_sides(
    draft: Draft, cache: Cache, expected: CacheExpectation, wanted: SectionExpectation
) -> None:
    """Whether the rows are of the server's type, and turned as it turns them.

    Raises:
        Refused: if they are not.
    """
    if len(expected.layers) != len(cache.k) or len(cache.v) not in (0, len(cache.k)):
        raise Refused(
            f"it is not of this model: {cache.member} has {counted(len(cache.k), 'layer')}"
        )
    identity = draft.check.identity if draft.check is not None else None
    turned = cache.rotation if cache.rotation is not None else rotation_of(identity, cache)
    own = wanted.n_rot_k, wanted.n_rot_v if cache.v else 0
    if turned != own:
        raise Refused(
            f"rows of {cache.member} are turned by {turned[0]} and {turned[1]}, the server's by "
            f"{own[0]} and {own[1]} (-khad, -vhad)"
        )


def _rope_first(draft: Draft, tensor: Tensor, cache: Cache) -> Tensor:
    target = draft.target
    assert target is not None
    assert target.model is not None  # to_ik asks for it
    if not _newer(draft, What.KEYS):
        return tensor
    keys = Keys(target.model.architecture, target.model.metadata)
    latent = keys.number("attention.kv_lora_rank")
    return swapped(tensor, latent, cache.rotation[0] if cache.rotation else 0, TO_IK)


def _newer(draft: Draft, what: What) -> bool:
    """Whether numbers are ordered as newer builds order them.

    Raises:
        Refused: if that is not known.
    """
    assert draft.check is not None
    assert draft.target is not None  # to_ik looked
    newest = replace(draft.target, build=NEWEST_BUILD)
    found = orders(draft.report, newest, draft.check.identity)
    stored = next((one.stored for one in found if one.what is what), None)
    if stored is None:
        raise Refused(
            "which order its numbers have is not known: the file was written by "
            f"{draft.report.identification.builds}"
        )
    return stored


def _scattered(tensor: Tensor, at: Numbers) -> Tensor:
    """Rows for more cells, zeros where there are none.

    Args:
        tensor: the rows that there are.
        at: which of them belongs to each cell, -1 for none, shape `(n_cells,)`.
    """
    if tensor.element_bytes:
        size = tensor.row_bytes * len(at)
        made = Make(size, lambda: _scattered_columns(tensor, at), TO_IK)
        return replace(tensor, n_cells=len(at), content=(made,))
    return replace(tensor, n_cells=len(at), content=tuple(_scattered_rows(tensor, at)))


def _scattered_rows(tensor: Tensor, at: Numbers) -> Iterator[Segment]:
    row = tensor.row_bytes
    held = at >= 0
    goes_on = np.where(held[1:], held[:-1] & (np.diff(at) == 1), ~held[:-1])
    breaks = np.flatnonzero(~goes_on) + 1
    for first, last in zip((0, *breaks), (*breaks, len(at)), strict=True):
        size = int(last - first) * row
        if at[first] < 0:
            yield Make(size, partial(_zeros, size), TO_IK)
            continue
        start = int(at[first]) * row
        only = tensor.content[0] if len(tensor.content) == 1 else None
        if isinstance(only, Keep):
            begin = only.span.start + start
            yield Keep(only.source, Span(begin, begin + size))
        else:
            yield Keep(tensor.reader(), Span(start, start + size))


def _zeros(size: int) -> Iterator[bytes]:
    for at in range(0, size, _PIECE):
        yield bytes(min(_PIECE, size - at))


def _scattered_columns(tensor: Tensor, at: Numbers) -> Iterator[bytes]:
    reader, element = tensor.reader(), tensor.element_bytes
    held = at >= 0
    for channel in range(tensor.row_bytes // element):
        stored = reader.read_at(channel * element * tensor.n_cells, element * tensor.n_cells)
        line = np.zeros(len(at), f"u{element}")
        line[held] = np.frombuffer(stored, f"<u{element}")[at[held]]
        yield line.tobytes()


def _rows(
    draft: Draft,
    recurrent: Recurrent,
    source: MemoryExpectation,
    wanted: SectionExpectation | None,
) -> IkState:
    """R and S in one row.

    Raises:
        Refused: if they are not those of the model.
    """
    state = source.recurrent
    if wanted is None or state is None or not any(wanted.k):
        raise Refused("the server keeps no recurrent state")
    if len(recurrent.pos) != 1 or not len(state.layers) == len(recurrent.r) == len(recurrent.s):
        raise Refused("its recurrent section is not that of one sequence of this model")
    turn = _newer(draft, What.STATES)
    rows = []
    for layer, r, s in zip(state.layers, recurrent.r, recurrent.s, strict=True):
        if r.row_bytes + s.row_bytes != wanted.k[layer]:
            raise Refused(f"the state of layer {layer} is not that of this model")
        tail = turned_blocks(draft, s, TO_IK) if turn else s
        content: Content = (*r.content, *tail.content)
        rows.append(Tensor(r.type_id, wanted.k[layer], 1, content, 0, r.kind))
    return IkState("recr", recurrent.pos, wanted.n_layer, (), tuple(rows), None, state.layers)


def _records(
    draft: Draft,
    attention: IkCache,
    source: MemoryExpectation,
    wanted: SectionExpectation | None,
) -> Iterator[Record]:
    """Checkpoints of recurrent layers, each with the cells up to its end."""
    for record in draft.records:
        own = next((part for part in record.parts or () if isinstance(part, Recurrent)), None)
        if own is None or draft.wanted.version < _STATES:
            continue
        index = np.flatnonzero(attention.cells.pos <= record.pos_max)
        cells = replace(
            attention, cells=attention.cells.taken(index), k=(), v=(), layers=(), value_layers=()
        )
        parts = (cells, _rows(draft, own, source, wanted))
        yield replace(record, parts=parts, tgt=(), dft=(), spec=(), pos_min=record.pos_max)


def write_tokens(draft: Draft) -> None:
    """The token list that ik_llama.cpp gives to a restored slot."""
    there = any(other.companion.role is Role.TOKENS for other in draft.report.beside)
    reads = there if draft.target is None else draft.target.build.has("ik-companions")
    if not reads or not is_ik_form(draft) or _listed(draft) is not None:
        return
    ids = draft.state.tokens.ids
    if bool((ids == -1).any()):
        raise Refused("what media stand in the list is only in the .tokens.json that is missing")
    draft.take(
        Step(
            WRITE_TOKENS,
            "the server takes the list in .tokens.json for what its slot holds, and this one is "
            "not that of the state: it reuses nothing, or dies"
            if there
            else "without .tokens.json zeros follow the tokens, up to the size of the context: "
            "what goes on from the end is taken for something else, and evaluated again",
            f"writes {counted(len(ids), 'token')} beside it ({TOKENS})",
            proven="ik_llama.cpp 8337e4cd3",
        )
    )


def is_ik_form(draft: Draft) -> bool:
    """Whether what is written is a state of ik_llama.cpp."""
    two = draft.form.version == 2 and not (draft.form.streams or draft.form.seq_id)
    return is_ik(draft.state) or (two and draft.for_ik)


def _listed(draft: Draft) -> Composed | None:
    """The `.tokens.json` that lies beside the file, if it is whole and names these tokens."""
    for other in draft.report.beside:
        found = other.container
        if other.companion.role is not Role.TOKENS or found is None or found.tokens is None:
            continue
        if not found.problems and np.array_equal(found.tokens, draft.state.tokens.ids):
            return Composed((Keep(other.source, other.source.whole()),), "")
    return None


def token_companion(draft: Draft) -> Composed | None:
    """What lies beside the copy as `.tokens.json`; None for nothing."""
    if not is_ik_form(draft) or TOKENS in draft.companions:
        return None
    held = _listed(draft)
    if held is not None:
        return held
    if any(step.action == WRITE_TOKENS for step in draft.steps):
        return Composed((Write(tokens_json(draft.state.tokens.ids), WRITE_TOKENS),), "")
    return None
