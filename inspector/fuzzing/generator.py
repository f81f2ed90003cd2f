"""Small valid files of every layout, over all that options change in their bytes."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from formats.layout import Layout
from formats.layouts import by_id
from inspector.fuzzing.case import OPTIONS, OWN_WINDOW, TYPE_BY_NAME, Case, Row, Shape
from inspector.fuzzing.policy import Server
from inspector.fuzzing.writer import Field, write
from inspector.server.target import cache_type

if TYPE_CHECKING:
    from inspector.model.expectation import StateExpectation
    from inspector.model.section import SectionExpectation

TWINS: dict[str, tuple[str, str]] = {
    "ggsn1.hparams-b1041": (
        "ggsn1.hparams-b1289",
        "structs of equal size, with layers, heads and widths at the same places",
    ),
    "ggsn1.hparams-b899": (
        "ggsn1.hparams-b1289",
        "structs of equal size, with layers, heads and widths at the same places",
    ),
    "ggsn1.hparams-b888": (
        "ggsn1.hparams-b1012",
        "structs of equal size, with layers, heads and widths at the same places",
    ),
}
"""Layout -> another that its files are recognised as, since no byte tells them apart; and why."""

BESIDE: tuple[tuple[str, str, str], ...] = (
    ("pkcl1", ".ckpt", "ggsq2.hybrid"),
    ("pkcl2", ".ckpt", "ggsq2.hybrid"),
    ("llcp1", ".checkpoints", "ggsq2.hybrid"),
    ("llcp2", ".checkpoints", "ggsq2.hybrid"),
    ("lsckpt2", ".ckpt", "ggsq2.hybrid"),
    ("stck2", ".ckpt", "ggsq2.hybrid"),
    ("bkcp1", ".ckpt", "ggsq3.hybrid"),
    ("slck1", ".ckpt", "ggsq2.hybrid"),
    ("ik-checkpoints3", ".checkpoints", "ik3"),
    ("ik-checkpoints4", ".checkpoints", "ik4"),
)
"""Family of a sidecar, what its name adds to that of the state, the layout of the state."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A valid file, and what its writer put beside it.

    Attributes:
        name: of the file.
        case: what it was to be.
        data: its bytes.
        fields: where each field lies.
        companions: what the name adds -> the bytes of a companion.
    """

    name: str
    case: Case
    data: bytes
    fields: tuple[Field, ...]
    companions: Mapping[str, bytes] = field(default_factory=dict)


def generated(case: Case, name: str = "") -> Generated:
    """The file of a case; the same case gives the same bytes."""
    written = write(case.layout, Server(case))
    return Generated(name, case, written.data, written.fields)


def with_sidecar(case: Case, family: str, suffix: str, name: str = "") -> Generated:
    """The same with a checkpoint sidecar of that family beside it."""
    state = generated(case, name)
    layout = by_id(family)
    assert layout is not None
    server = Server(case)
    companion = replace(case, layout=layout, ids=server.ids, options={"records": 2})
    data = write(layout, Server(companion, beside=state.data, owner=case.layout)).data
    companions = {suffix: data}
    if family == "stck2" and (marker := by_id("stck-gen")) is not None:
        companions[".gen"] = write(marker, Server(replace(companion, layout=marker))).data
    if family.startswith("ik-"):
        companions[".tokens.json"] = _tokens_of_ik(server.ids)
    return replace(state, companions=companions)


def _tokens_of_ik(ids: Sequence[int]) -> bytes:
    document = {
        "has_mtmd": False,
        "map_idx_to_media": [],
        "tokens": list(ids),
        "magic": 1819112310,
        "version": 1,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def asked(layout: Layout) -> dict[str, tuple[object, ...]]:
    """The options that files of this layout differ by, with all their values."""
    seen: dict[str, None] = {}
    for options in ({}, {"tokens": "packed", "records": 1, "suffix": "recurrent"}):
        server = Server(Case(layout, options=options))
        write(layout, server)
        seen |= server.asked
    found = {name: values for name, values in OPTIONS.items() if name in seen}
    if (layout.version == 4 and layout.format == "ggsq") or "records" not in found:
        return found
    return found | {"records": tuple(n for n in OPTIONS["records"] if n is not None)}


def cases(layout: Layout, seed: int = 0) -> Iterator[Case]:
    """Cases of a layout, the smallest first: every pair of values of two options occurs in one."""
    values = asked(layout)
    smallest = {name: _SMALLEST.get(name, of[0]) for name, of in values.items()}
    if None not in values.get("records", (None,)):
        smallest["records"] = 0
    yield _case(layout, seed, 0, smallest)
    seen: list[dict[str, object]] = []
    for options in _pairwise(values):
        chosen = consistent(options)
        if chosen not in seen:
            seen.append(chosen)
            yield _case(layout, seed, len(seen), chosen)


_SMALLEST: dict[str, object] = {
    "types": "q4_0/f16",
    "n_tokens": 7,
    "n_layer": 1,
    "outputs": 0,
    "records": None,
    "v_state": 2,
}
"""Values that make a file small."""


def _case(layout: Layout, seed: int, index: int, options: dict[str, object]) -> Case:
    return Case(layout, zlib.crc32(f"{seed}/{layout.id}/{index}".encode()), consistent(options))


def consistent(options: Mapping[str, object]) -> dict[str, object]:
    """The same with what no server does left out: transposed values are never quantized."""
    k, _, v = str(options.get("types", "")).partition("/")
    transposed = options.get("v_trans") or options.get("v_state") == 1
    if transposed and v and TYPE_BY_NAME[v].block_elements > 1:
        return {**options, "types": f"{k}/f16"}
    return dict(options)


def _pairwise(values: Mapping[str, tuple[object, ...]]) -> Iterator[dict[str, object]]:
    """Choices in which every two values of two options meet at least once."""
    names = list(values)
    if len(names) < 2:
        yield from ({name: value} for name in names for value in values[name])
        return
    open_pairs = {
        (one, a, other, b): None
        for one, other in combinations(names, 2)
        for a, b in product(values[one], values[other])
    }
    while open_pairs:
        one, a, other, b = next(iter(open_pairs))
        chosen: dict[str, object] = {one: a, other: b}
        for name in names:
            if name not in chosen:
                chosen[name] = max(
                    values[name],
                    key=lambda value, name=name: sum(  # type: ignore[misc]
                        pair in open_pairs for pair in _pairs({**chosen, name: value}, names)
                    ),
                )
        for pair in _pairs(chosen, names):
            open_pairs.pop(pair, None)
        yield {name: chosen[name] for name in names}


def _pairs(
    chosen: Mapping[str, object], names: Sequence[str]
) -> Iterator[tuple[str, object, str, object]]:
    for one, other in combinations([name for name in names if name in chosen], 2):
        yield one, chosen[one], other, chosen[other]


def corpus(layouts: Sequence[Layout], seed: int = 0) -> Iterator[Generated]:
    """Files of these layouts: the smallest of each, states with sidecars, then all in turn."""
    queues = [(layout, cases(layout, seed)) for layout in layouts]
    for own, queue in queues:
        yield generated(next(queue), _name(own, 0))
    ids = [layout.id for layout in layouts]
    for family, suffix, state in _beside(ids):
        layout = by_id(state)
        assert layout is not None
        case = Case(layout, zlib.crc32(f"{seed}/{family}".encode()), _BESIDE_OPTIONS)
        yield with_sidecar(case, family, suffix, f"{state}--with-{family}.slot")
    index = 0
    while queues:
        index += 1
        left = []
        for own, queue in queues:
            if (another := next(queue, None)) is not None:
                yield generated(another, _name(own, index))
                left.append((own, queue))
        queues = left


def n_files(layouts: Sequence[Layout], seed: int = 0) -> int:
    """How many files `corpus` makes."""
    beside = _beside([layout.id for layout in layouts])
    return sum(1 for layout in layouts for _ in cases(layout, seed)) + len(beside)


def _beside(ids: Sequence[str]) -> list[tuple[str, str, str]]:
    return [one for one in BESIDE if one[0] in ids or one[2] in ids]


_BESIDE_OPTIONS: dict[str, object] = {"suffix": "recurrent"}


def _name(layout: Layout, index: int) -> str:
    suffix = ".gguf" if layout.format == "gguf" else ".slot"
    return f"{layout.id}--{index:03}{suffix}"


def case_for(
    expected: StateExpectation, ids: Sequence[int], seed: int = 0, **options: object
) -> Case:
    """The case of a slot file that this server takes: its layout, and the shapes of its model.

    Args:
        expected: what slot files of the server look like
            (`inspector.model.expectation.expected_state`).
        ids: tokens; ids of the model's vocabulary.
        seed: of everything else.
        options: further options; `v_trans` where the expectation leaves it open.

    Raises:
        LookupError: if no layout is that of this server.
    """
    if expected.build.server == IK:
        return _case_for_ik(expected, ids, seed)
    suffix = {0: "", 8: ".xy", 12: ".xyt"}[expected.cell_ext]
    layout = by_id(f"ggsq{expected.version}.{expected.memory.memory}{suffix}")
    if layout is None:
        raise LookupError(f"no layout of version {expected.version} for {expected.memory.memory}")
    given = {"v_trans": expected.v_trans, "n_stream": expected.n_stream}
    known = {name: int(value) for name, value in given.items() if value is not None}
    shapes = {section.member: _shape_of(section, expected) for section in expected.sections}
    n_swa = expected.memory.n_swa or OWN_WINDOW
    return Case(layout, seed, {**options, **known}, n_swa, shapes, tuple(ids))


def _case_for_ik(expected: StateExpectation, ids: Sequence[int], seed: int) -> Case:
    layout = by_id(f"ik{expected.version}")
    if layout is None:
        raise LookupError(f"no layout of version {expected.version} of ik_llama.cpp")
    held = {section.kind: section for section in expected.sections if any(section.k)}
    attention = held["attention"]
    options: dict[str, object] = {"v_state": int(bool(expected.v_trans)) if attention.v else 2}
    options["suffix"] = next((kind for kind in ("recurrent", "indexer") if kind in held), "")
    members = {"attention": "attn", "recurrent": "recr", "indexer": "indexer"}
    shapes = {members[kind]: _shape_of(section, expected) for kind, section in held.items()}
    return Case(layout, seed, options, shapes=shapes, ids=tuple(ids))


def _shape_of(section: SectionExpectation, expected: StateExpectation) -> Shape:
    k, v = (
        tuple(Row(_type_id(name, expected), size) for size in sizes)
        for name, sizes in ((section.type_k, section.k), (section.type_v or "f16", section.v))
    )
    return Shape(k, v, section.n_layer, (section.n_rot_k, section.n_rot_v))


def _type_id(name: str, expected: StateExpectation) -> int:
    kind = cache_type(name, expected.build)
    if kind is None:
        raise LookupError(f"{expected.build.label} has no caches of type {name}")
    return kind.id


def fitting(expected: StateExpectation, seed: int = 0) -> Iterator[Generated]:
    """Files that a server takes, over all that its model and its options leave open.

    Args:
        expected: what slot files of the server look like.
        seed: of tokens and numbers.

    Raises:
        LookupError: if no layout is that of this server.
    """
    packings = ("plain", "packed") if expected.packed else ("plain",)
    records = (None, 1, 2) if expected.version == 4 and expected.build.server != IK else (None,)
    choices = product((12, 1, 7, 33), packings, records)
    for index, (n_tokens, tokens, n_records) in enumerate(choices):
        if n_records and n_tokens < 3:
            continue
        dice = random.Random(f"{seed}/{index}")
        most = max(4, expected.memory.n_vocab)
        ids = [dice.randrange(3, most) for _ in range(n_tokens)]
        case = case_for(expected, ids, seed, tokens=tokens, records=n_records)
        yield generated(case, f"{case.layout.id}--fits-{index:03}.slot")
