"""A file -> what the slot of a server holds after it restored it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from inspector.builds import build_number
from inspector.bundle import Role
from inspector.checkpoints import CheckpointList, CheckpointRecord, checkpoint_list
from inspector.checks.checkpoints.readers import READERS
from inspector.model.geometry import WindowType
from inspector.sections import Section
from inspector.server.servers import SCKP, Carrier, carriers, uncertain
from inspector.server.slot import NOWHERE, Blob, Cells, Checkpoint, Media, Memory, Slot, Window
from inspector.server.target import Target

if TYPE_CHECKING:
    from inspector.report import Report

_PAD = 256
_MROPE = 1
_SPOILT = ("blob-geometry", "blob-rotation")
"""Ends of codes for blobs that are whole but not of this state."""
_MISLEADING = ("blob-cells", "identity.checkpoint-differs")
"""Ends of codes for blobs that load, and from which no answer is right."""
_NO_TIP = (1 << 31) - 1
"""A recurrent cell there counts as none: restores on b10229, b10809 and b11549."""
_NEW_WRITER = 9473
"""Saves of older builds hold masked cells too. Source: ggml-org/llama.cpp PR #23981."""


def restored(report: Report, target: Target) -> Slot | str:
    """What a slot holds after a restore that succeeds.

    Args:
        report: of the file.
        target: the server.

    Returns:
        The slot; or why nothing can be said of it, in words.
    """
    import numpy as np

    reading = report.identification.reading
    if reading is None or reading.layout.format != "ggsq" or report.tokens is None:
        return "it is no slot file"
    parts = {section.kind: section for section in reversed(report.sections)}
    memory = _memory(parts)
    if memory is None:
        return "it holds no memory"
    window, assumed = _window(report, target, parts.get("swa"))
    slot = Slot(
        memory=memory,
        n_tokens=report.tokens.count,
        tip=_tip(memory, parts),
        window=window,
        mrope=any(section.cell_ext for section in report.sections)
        or bool(target.memory and target.memory.mrope),
        media=tuple(_media(report)),
        n_possible=_n_possible(report, target),
        assumed=assumed,
    )
    base = parts.get("attention")
    if base is not None and memory not in (Memory.RECURRENT, Memory.COMPRESSED):
        slot = replace(slot, lowest=_or_nowhere(base.pos_min), highest=_or_nowhere(base.pos_max))
        held = np.unique(base.pos)
        if len(held) <= slot.highest and slot.lowest >= 0 and not slot.mrope:
            slot = replace(slot, scattered=held)
    if target.build.server == IK:
        return _in_ik(slot, report, target)
    if report.tokens.packing == "packed" and not target.build.has("packed-tokens"):
        alien = "servers before b10388 take the words of packed tokens for tokens; the first is -1"
        slot = replace(slot, n_tokens=report.tokens.words, media=(), alien=alien)
    if memory.windowed:
        positions = parts["swa"].pos
        if NOWHERE in positions:  # empty, and the lowest: as if there were none
            positions = positions[:0]
        cells = Cells.restored(max(len(positions), capacity(window, target)), positions)
        slot = replace(slot, cells=cells)
    return _with_checkpoints(slot, report, target)


def capacity(window: Window | None, target: Target) -> int:
    """Cells of a windowed cache.

    Source: ggml-org/llama.cpp b10587, src/llama-kv-cache-iswa.cpp.
    """
    n_ctx = target.n_ctx_slot
    needed = target.n_ubatch
    if window is not None:
        needed += window.n_swa * (target.n_parallel if target.kv_unified else 1)
    if n_ctx is not None:
        needed = n_ctx if target.swa_full else min(n_ctx, needed)
    return -(-needed // _PAD) * _PAD


def _memory(parts: dict[str, Section]) -> Memory | None:
    if "dsv4" in parts:
        return Memory.COMPRESSED
    if "recurrent" in parts:
        if "attention" not in parts:
            return Memory.RECURRENT
        return Memory.HYBRID_WINDOWED if "swa" in parts else Memory.HYBRID
    if "swa" in parts:
        return Memory.WINDOWED
    return Memory.UNIFIED if "attention" in parts else None


def _or_nowhere(pos: int | None) -> int:
    return NOWHERE if pos is None else pos


def _tip(memory: Memory, parts: dict[str, Section]) -> int:
    """The one position that a part of the memory knows."""
    if not memory.at_tip:
        return NOWHERE
    kinds = ("attention", "swa") if memory is Memory.COMPRESSED else ("recurrent",)
    tip = max((_or_nowhere(parts[kind].pos_max) for kind in kinds if kind in parts), default=-1)
    return NOWHERE if kinds == ("recurrent",) and tip == _NO_TIP else tip


def _window(
    report: Report, target: Target, swa: Section | None
) -> tuple[Window | None, tuple[str, ...]]:
    """The window, by the model or else by the file; and what was guessed."""
    if target.memory is not None and target.memory.n_swa:
        chunked = target.memory.swa_type is WindowType.CHUNKED
        return Window(target.memory.n_swa, chunked), ()
    if swa is not None and any(f.code == "cells.window-anchor" for f in report.findings):
        n_swa = swa.cells - 1
        return Window(n_swa), (
            f"a sliding window of {n_swa} tokens, by the cells behind the anchor",
        )
    since, base = report.identification.builds.since, next(iter(report.sections), None)
    only_window = since is not None and build_number(since) >= _NEW_WRITER
    if swa is None or base is None or not only_window or not 0 < swa.cells < base.cells:
        return None, ()
    return Window(swa.cells), (f"a sliding window of {swa.cells} tokens, by the cells stored",)


def _n_possible(report: Report, target: Target) -> int | None:
    """Tokens in front of the first that is no id of the vocabulary, and no medium either."""
    assert report.tokens is not None
    ids, n_vocab = report.tokens.ids, target.memory.n_vocab if target.memory is not None else 0
    bad = ids < (-1 if report.tokens.media else 0)
    if n_vocab:
        bad |= ids >= n_vocab
    return int(bad.argmax()) if bad.any() else None


def _media(report: Report) -> Iterator[Media]:
    """The images and pieces of audio of a packed token list."""
    reading, tokens = report.identification.reading, report.tokens
    if reading is None or tokens is None or not tokens.media:
        return
    node = reading.decoding.root.get("tokens")
    starts, chunks = (node.rows("media_start"), node.get("media")) if node else (None, None)
    if starts is None or chunks is None:
        return
    begin = starts.column("value").tolist()
    for item, start, end in zip(chunks.children, begin, [*begin[1:], tokens.count], strict=False):
        run = tokens.ids[start:end] == -1
        n_tokens = len(run) if run.all() else int(run.argmin())
        image = chunk.get("image") if (chunk := item.get("chunk")) is not None else None
        n_pos = n_tokens
        if image is not None and image.number("pos_type") == _MROPE:
            n_pos = max(image.number("nx"), image.number("ny"))
        yield Media(start, n_tokens, n_pos)


def _in_ik(slot: Slot, report: Report, target: Target) -> Slot | str:
    """The slot of ik_llama.cpp, whose token list comes from a companion."""
    beside = (other.container for other in report.beside if other.companion.role is Role.TOKENS)
    listed = next((found for found in beside if found is not None), None)
    tokens = None
    if listed is not None and not any(p.path in ("magic", "version") for p in listed.problems):
        tokens = listed.tokens
    n_tokens = slot.n_tokens if tokens is None else len(tokens)
    tip = slot.highest if slot.memory.at_tip else NOWHERE
    slot = replace(slot, n_tokens=n_tokens, tip=tip)
    if tokens is not None:
        slot = replace(slot, n_possible=None)
    if target.build.has("ik-companions") and tokens is None:
        n_ctx = target.n_ctx_slot
        assumed = "without .tokens.json zeros follow the tokens, up to the size of the context"
        slot = replace(
            slot,
            n_tokens=max(slot.n_tokens, n_ctx or slot.n_tokens + 1),
            assumed=(*slot.assumed, assumed),
        )
    return _with_checkpoints(slot, report, target)


@dataclass(frozen=True)
class _Found:
    """A list that the server reads, and whether it takes it."""

    carrier: Carrier
    listing: CheckpointList
    taken: bool


def takes_list(report: Report, target: Target) -> bool:
    """Whether a server takes a checkpoint list of the file or of its companions."""
    found = next(_lists(report, target), None)
    return found is not None and found.taken


def _with_checkpoints(slot: Slot, report: Report, target: Target) -> Slot | str:
    """The slot with the checkpoints that the server reads, or makes of the restored end."""
    build, limit = target.build, target.n_ctx_checkpoints
    if limit <= 0 or slot.n_tokens == 0:
        return slot
    found = next(_lists(report, target), None)
    if found is not None and found.taken:
        records = [
            replace(_checkpoint(record, slot), blob=_blob(record, report, found.carrier, target))
            for record in found.listing.whole
        ]
        if found.carrier == SCKP:
            records = records[-limit:]
        slot = replace(slot, checkpoints=tuple(records))
        if records and uncertain(build, "sckp") and found.carrier == SCKP:
            slot = replace(slot, unsure=f"whether {build.label} reads checkpoints is not known")
        if found.carrier.format == "bkcp":
            slot = replace(slot, unsure="the restore leaves the memory at the last checkpoint")
        return slot
    if build.has("tip-fallback-crashes"):
        return "it does not survive a restore without checkpoints"
    if build.has("tip-fallback") and slot.pos_min != NOWHERE:
        window = None if slot.cells is None else slot.cells.saved(_unmasked(slot, target))
        tip = slot.tip if slot.memory.at_tip else None
        made = Checkpoint(slot.n_tokens, slot.pos_min, slot.pos_max, window, tip)
        return replace(slot, checkpoints=(made,))
    return slot


def _unmasked(slot: Slot, target: Target) -> Window | None:
    return slot.window if target.build.has("masked-cells-left-out") else None


def _lists(report: Report, target: Target) -> Iterator[_Found]:
    """The lists beside and behind the state that the server would open."""
    for carrier in carriers(target.build):
        listing = _listing(report, carrier)
        if listing is not None:
            yield _Found(carrier, listing, _taken(listing, carrier))


def _listing(report: Report, carrier: Carrier) -> CheckpointList | None:
    if carrier.suffix:
        name = report.name + carrier.suffix
        beside = (o.listing for o in report.beside if o.companion.file.name == name)
        return next((found for found in beside if found is not None), None)
    reading = report.identification.reading
    if reading is None or reading.decoding.root.get("appendix") is None:
        return None
    return checkpoint_list(
        reading.decoding.root, report.name, carrier.format, carrier.version, decoded=True
    )


def _taken(listing: CheckpointList, carrier: Carrier) -> bool:
    """Whether the server takes a list, or drops it as a whole."""
    version = listing.node.get("version")
    if listing.format != carrier.format or (
        version is not None and carrier.version not in (None, version.value)
    ):
        return False
    reader = READERS.get((listing.format, carrier.version))
    if reader is None:
        return False
    if listing.cut and not reader.keeps_whole and listing.format != "ik-checkpoints":
        return False
    if reader.insists_on_end and listing.rest is not None:
        return False
    if reader.count_limit is not None and len(listing.records) > reader.count_limit:
        return False
    sizes = [r.n_tgt or 0 for r in listing.whole]
    if reader.length_limit is not None and max(sizes, default=0) > reader.length_limit:
        return False
    return carrier != SCKP or all(sizes)


def _checkpoint(record: CheckpointRecord, slot: Slot) -> Checkpoint:
    sections = {part.kind: part for part in record.blob.sections} if record.blob else {}
    cells = sections.get("swa") or sections.get("attention")  # of one cache, they look alike
    state = sections.get("recurrent") or cells
    tip: int | None = None
    if slot.memory.at_tip:
        tip = record.pos_max if state is None or state.pos_max is None else state.pos_max
    return Checkpoint(
        n_tokens=record.n_tokens or 0,
        pos_min=_or_nowhere(record.pos_min),
        pos_max=_or_nowhere(record.pos_max),
        window=cells.pos if slot.memory.windowed and cells is not None else None,
        tip=tip,
        index=record.index,
    )


def _blob(record: CheckpointRecord, report: Report, carrier: Carrier, target: Target) -> Blob:
    """What loading the blob leads to: it must have its prefix, and be consumed to its end."""
    blob, build = record.blob, target.build
    fits = blob is not None and blob.sound and blob.rest is None
    prefixed = blob is not None and blob.prefixed
    beside = record.carrier if carrier.suffix else ""
    found = [
        finding.code
        for finding in report.findings
        if finding.carrier == beside and finding.path.startswith(record.path)
    ]
    spoilt = any(code.endswith(_SPOILT) for code in found)
    if fits and prefixed == build.has("blob-prefix") and not spoilt:
        misleads = any(code.endswith(_MISLEADING) for code in found)
        return Blob.MISLEADS if misleads else Blob.LOADS
    if carrier == SCKP or build.server == IK or not build.has("unloadable-checkpoint-aborts"):
        return Blob.FAILS
    return Blob.ABORTS
