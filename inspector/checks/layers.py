"""Stored blocks: types, row sizes, flags, and layers against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats.ggml_types import TURBOQUANT, UPSTREAM, known
from formats.spans import StopReason
from inspector.checks.subject import Subject
from inspector.facts import Fact
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.node import find
from inspector.peers import by_choice, contradict, lopsided, series
from inspector.sections import Block, Section
from inspector.span import Span

if TYPE_CHECKING:
    from inspector.mend import Mend

_KV = "llama.cpp b10587, src/llama-kv-cache.cpp llama_kv_cache::state_read_data"

register(
    Code(
        "layers.type-unknown",
        Severity.ERROR,
        "A block has a type that no known program gives a meaning",
        'the loader refuses the file ("mismatched key type"), after it has emptied the slot',
        RemedyKind.NONE,
        "if the other layers of the section agree on a type, that is the right one",
        _KV,
    ),
    Code(
        "layers.row-not-whole",
        Severity.ERROR,
        "A row is not a whole number of blocks of its type",
        "the loader refuses the file (type or row size do not match), after it has emptied "
        "the slot",
        RemedyKind.NONE,
        "if the other layers of the section agree on type and row size, those are the right ones",
        _KV,
    ),
    Code(
        "layers.types-disagree",
        Severity.ERROR,
        "One cache stores its layers in different types",
        "upstream caches have one type; layers of ik_llama.cpp may have types of their own, but "
        "none with which their rows are of another width: the loader refuses the odd layer, with "
        "the rows of earlier layers already overwritten",
        RemedyKind.EXACT,
        "write the type of the other layers, if their row sizes agree too",
        _KV,
    ),
    Code(
        "recurrent.layer-count",
        Severity.ERROR,
        "A recurrent model has another number of layers than of states",
        'the loader refuses the file ("mismatched layer count"), after it has emptied the slot',
        RemedyKind.EXACT,
        "write the number of layers that have a state",
        "llama.cpp b10809, restore of such a file",
    ),
    Code(
        "layers.types-differ",
        Severity.NOTE,
        "Layers have types of their own",
        "nothing: this program lets layers differ",
        RemedyKind.NONE,
        "not needed",
        "ik_llama.cpp type_k_first/type_k_last; TheTom/llama-cpp-turboquant layer adaptation",
    ),
    Code(
        "layout.flag",
        Severity.ERROR,
        "A flag or a count has a value that no writer writes",
        "the loader refuses the file, or misreads what follows",
        RemedyKind.NONE,
        "if one other value makes the file whole, it is named; if several do, repair needs the "
        "model (--model)",
        _KV,
    ),
    Code(
        "rotation.unrecorded",
        Severity.NOTE,
        "Quantized rows that may be rotated, and no word that says so",
        "llama.cpp from b8619 on rotates quantized caches of head sizes divisible by 64, older "
        "builds do not, ik_llama.cpp does if it is told to (-khad, -vhad): restored across that "
        "line the file is accepted and answers turn to garbage",
        RemedyKind.NONE,
        "keep it with builds of the same side of b8619 (ik_llama.cpp: with the same options), or "
        "compare its keys with the model",
        "llama.cpp b8619 (PR #21038), restores of b8156 files on b8672 and back",
    ),
)


def check_layers(subject: Subject) -> Iterator[Finding]:
    """Facts that fail, then layers against each other."""
    for section in subject.sections:
        yield from _unreadable(section)
        for name, blocks in series(section).items():
            yield from _uniform(section, name, blocks)
        yield from _narrow(section)
    yield from _across(subject)
    yield from _every_layer(subject)
    counted, word = _counted(subject), subject.identification.undecided
    for fact in subject.reading.failed:
        parent, _, name = fact.path.rpartition(".")
        told = word is not None and fact.path == word.path
        if _is_flag(fact) and not told and not (name in _COUNTS and parent in counted):
            yield _flag(subject, fact)
    if word is not None:
        yield _undecided(word)
    yield from _rotation(subject)


def _every_layer(subject: Subject) -> Iterator[Finding]:
    """A model with nothing but recurrent layers has a state for each of them.

    Blobs are left out: those of hybrid models hold nothing else either.
    """
    section, layout = subject.section("recurrent"), subject.reading.layout
    if layout.memory != "recurrent" or layout.format == "blob" or section is None or not section.r:
        return
    node = section.node.get("n_layer")
    if node is not None and section.n_layer != len(section.r):
        yield Finding(
            "recurrent.layer-count",
            f"{section.path}.n_layer",
            node.span,
            f"n_layer is {section.n_layer}, the section holds states of {len(section.r)} layers",
            str(len(section.r)),
            str(section.n_layer),
        )


def _across(subject: Subject) -> Iterator[Finding]:
    """The full and the windowed cache of a context have the same types."""
    caches = [part for part in subject.sections if part.kind in ("attention", "swa")]
    if subject.identification.writer not in (UPSTREAM, None) or len(caches) < 2:
        return
    for name in ("k", "v"):
        firsts = [blocks[0] for part in caches if (blocks := getattr(part, name))]
        odd = next((block for block in firsts[1:] if block.type_id != firsts[0].type_id), None)
        if odd is not None:
            yield Finding(
                "layers.types-disagree",
                odd.path,
                _head(odd),
                f"the {name} blocks of {caches[0].path} are {firsts[0].type_name}, those of "
                f"{caches[1].path} {odd.type_name}",
                firsts[0].type_name,
                odd.type_name,
            )


def _unreadable(section: Section) -> Iterator[Finding]:
    """Blocks whose type is unknown, or whose rows it does not divide: one finding for each kind."""
    n_blocks = len(section.blocks)
    unknown = [block for block in section.blocks if not known(block.type_id)]
    if unknown:
        first = unknown[0]
        yield Finding(
            "layers.type-unknown",
            first.path,
            _head(first),
            f"{first.path} has type {first.type_id}; {len(unknown):,} of {n_blocks:,} blocks are "
            "of no known type",
            "a ggml type id",
            str(first.type_id),
        )
    broken = [
        block
        for block in section.blocks
        if known(block.type_id)
        and (not block.readings if block.row_bytes else section.marks_absent)
    ]
    if broken:
        first = broken[0]
        yield Finding(
            "layers.row-not-whole",
            first.path,
            _head(first),
            f"{first.path} has rows of {first.row_bytes:,} bytes of type {first.type_id}; "
            f"{len(broken):,} of {n_blocks:,} blocks have rows like that",
            "a multiple of the type's block size",
            f"{first.row_bytes:,} bytes",
        )


def _head(block: Block) -> Span:
    """The type and the row size."""
    return Span(block.span.start, min(block.span.start + 12, block.span.stop))


def _uniform(section: Section, name: str, blocks: tuple[Block, ...]) -> Iterator[Finding]:
    types = Counter(block.type_id for block in blocks if block.readings)
    if len(types) < 2 or section.kind == "dsv4":
        return
    common, _ = types.most_common(1)[0]
    odd = [block for block in blocks if block.type_id != common]
    wanted = by_choice(section, blocks) and not contradict(blocks)
    names = ", ".join(f"{count} {block_name}" for block_name, count in _type_names(blocks))
    yield Finding(
        "layers.types-differ" if wanted else "layers.types-disagree",
        odd[0].path,
        Span(odd[0].span.start, odd[0].span.start + 4),
        f"the {name} blocks of {section.path} are {names}",
        next(block.type_name for block in blocks if block.type_id == common),
        odd[0].type_name,
    )


def _narrow(section: Section) -> Iterator[Finding]:
    """A layer whose keys and values cannot both have the types that they are said to have."""
    odd = lopsided(section)
    if odd is None or contradict(section.k) or contradict(section.v):
        return
    block, type_id = odd
    types = [other.type_name for other in section.blocks if other.type_id == type_id]
    yield Finding(
        "layers.types-disagree",
        block.path,
        Span(block.span.start, block.span.start + 4),
        f"keys and values of one layer of {section.path} are not as wide, one by the other, as in "
        "all other layers",
        types[0] if types else "another type of its keys or of its values",
        block.type_name,
    )


def _type_names(blocks: tuple[Block, ...]) -> list[tuple[str, int]]:
    return Counter(block.type_name for block in blocks).most_common()


_COUNTS = ("n_layer", "n_stream")


def _undecided(word: Mend) -> Finding:
    return Finding(
        "layout.flag",
        word.path,
        word.span,
        f"{word.path} is {word.stored}; several values explain every byte of the file: "
        f"{word.choice}",
        "the value that belongs to its model",
        str(word.stored),
    )


def _is_flag(fact: Fact) -> bool:
    last = fact.path.rpartition(".")[2]
    return not fact.path.startswith(("magic", "version")) and (
        last
        in (
            "v_trans",
            "v_state",
            "n_rot_k",
            "n_rot_v",
            "n_layer",
            "n_stream",
            "qnext_state",
            "dsa_indexer_state",
        )
        or last in ("marker", "padding", "present", "has_index", "magic", "version", "size_t_size")
    )


def _counted(subject: Subject) -> set[str]:
    """The parts in which a count was too large, which has a finding of its own."""
    reasons = (StopReason.COUNT_EXCEEDS_FILE, StopReason.LIMIT)
    stops = subject.reading.decoding.stops
    return {stop.path.rpartition(".")[0] for stop in stops if stop.reason in reasons}


def _flag(subject: Subject, fact: Fact) -> Finding:
    node = find(subject.root, fact.path)
    span = node.span if node is not None else Span(fact.offset, fact.offset + 4)
    return Finding(
        "layout.flag", fact.path, span, f"{fact.path} is {fact.actual}", fact.says, fact.actual
    )


def _rotation(subject: Subject) -> Iterator[Finding]:
    layout = subject.reading.layout
    if layout.format not in ("ggsq", "ggsn", "blob") or not subject.is_state:
        return
    for section in subject.sections:
        if section.kind == "recurrent" or section.node.facts.get("rotation"):
            continue
        quantized = [
            b
            for b in section.k + section.v
            if b.readings
            and b.readings[0].block_elements > 1
            and b.readings[0].writer != TURBOQUANT
        ]
        divisible = [b for b in quantized if (b.readings[0].elements(b.row_bytes) or 0) % 64 == 0]
        if divisible:
            yield Finding(
                "rotation.unrecorded",
                section.path,
                section.span,
                f"{len(divisible):,} blocks of {divisible[0].type_name}, and no word on whether "
                "they are rotated",
                "rotation words, as version 4 has them",
                f"version {layout.version}",
            )
            return
