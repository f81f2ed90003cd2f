"""A state taken apart: its parts from a report, or from a blob in a checkpoint."""

from __future__ import annotations

import numpy as np

from formats.bodies.compositions import MEMORY
from inspector.identify import Verdict
from inspector.node import Kind, Node
from inspector.repair.ik import ik_parts
from inspector.repair.segments import Content, Keep
from inspector.repair.state import (
    IK_MEMORY,
    OPAQUE,
    Cache,
    Cells,
    Numbers,
    Part,
    Recurrent,
    Refused,
    State,
    Tensor,
    TokenList,
)
from inspector.report import Report
from inspector.sections import Block, Section
from inspector.source import Source
from inspector.span import Span


def state_of(report: Report) -> State:
    """The parts of a state.

    Raises:
        Refused: if it is of a kind that cannot be taken apart, or not even its tokens are whole.
    """
    reading = report.identification.reading
    if reading is None:
        raise Refused("it is no state of a known layout")
    layout, memory = reading.layout, reading.layout.memory
    if not memory or report.tokens is None:
        untyped = layout.format == "ggsn" and 0 < (layout.version or 0) < _TYPED
        why = "; nothing in it says what types its rows have" if untyped else ""
        raise Refused(f"it cannot be taken apart: {layout.title}{why}")
    session = layout.format == "ggsn" and (layout.version or 0) >= _TYPED and memory != IK_MEMORY
    if report.container is not None or not (layout.format == "ggsq" or session):
        raise Refused(f"it is no slot file: {layout.title}")
    if memory in OPAQUE:
        like = f"{memory} memory, which is not taken apart"
        if report.identification.verdict is Verdict.DAMAGED:
            raise Refused(f"it is damaged, and what can be read of it looks like {like}")
        raise Refused(f"{memory} memory is not taken apart")
    if len(report.tokens.ids) != report.tokens.count:
        raise Refused("its token list is not whole")
    if memory == IK_MEMORY:
        return State(report.source, memory, _tokens(report), ik_parts(report))
    stops = [stop for stop in reading.decoding.stops if not stop.path.startswith("appendix")]
    sections = report.sections
    if stops and sections and stops[0].path.startswith(f"{sections[-1].path}"):
        sections = sections[:-1]
    members = [member for member, _, _ in MEMORY[memory][1]]
    whole = {section.path for section in sections}
    missing = tuple(member for member in members if member not in whole) if stops else ()
    for section in sections if session else ():
        if len(np.unique(_sequences(section))) > 1:
            raise Refused(
                f"{section.path} holds several sequences, and a copy can have one: repair does not "
                "choose between them"
            )
    parts = parts_of(report.source, sections)
    head: Content = ()
    if session and sections:
        start, stop = report.tokens.span.stop, sections[0].span.start
        head = (Keep(report.source, Span(start, stop)),)
    return State(report.source, memory, _tokens(report), parts, missing, head=head)


_TYPED = 8
"""First version of whole-context files whose tensors carry their types."""


def parts_of(source: Source, sections: tuple[Section, ...]) -> tuple[Part, ...]:
    """The parts of a payload: of a file, or of a blob in a checkpoint.

    Raises:
        Refused: if several cell arrays of a section hold cells, or a section is of no known kind.
    """
    return tuple(_part(source, section) for section in sections)


def _part(source: Source, section: Section) -> Part:
    member = section.path.rpartition(".")[2]
    if section.kind == "recurrent":
        return _recurrent(source, member, section)
    if section.kind not in ("attention", "swa", "indexer"):
        raise Refused(f"{section.kind} memory is not taken apart")
    if len(section.streams) > 1:
        streams = ", ".join(map(str, section.streams))
        raise Refused(f"several cell arrays of {section.path} hold cells: {streams}")
    stream = section.streams[0] if section.streams else 0
    body = _body(section, stream)
    rotation = None
    if section.node.facts.get("rotation"):
        rotation = body.number("n_rot_k"), body.number("n_rot_v")
    return Cache(
        member,
        section.kind,
        _cells(section),
        section.n_stream,
        stream,
        _v_trans(section),
        section.n_layer if section.n_layer is not None else len(section.k),
        rotation,
        tuple(_tensor(source, block) for block in section.k),
        tuple(_tensor(source, block) for block in section.v),
    )


def _v_trans(section: Section) -> int:
    """The word, or what the sizes of values say in files that have none."""
    if section.v_trans is not None:
        return section.v_trans
    return int(any(block.element_bytes for block in section.v))


def _body(section: Section, stream: int) -> Node:
    streams = section.node.get("streams")
    return streams.children[stream] if streams is not None and streams.children else section.node


def _cells(section: Section) -> Cells:
    if not section.tables:
        return Cells(np.zeros(0, np.int64))
    rows = section.tables[0]
    names = [name for name, _ in rows.fields]
    extension = {name: rows.column(name) for name in names if name in ("x", "y", "tok")}
    return Cells(section.pos, extension, _seq_id(section))


def _seq_id(section: Section) -> int:
    """The sequence that most cells name; 0 if they name none. Who loads one sequence, names it."""
    ids, counts = np.unique(_sequences(section), return_counts=True)
    return int(ids[counts.argmax()]) if len(ids) else 0


def _sequences(section: Section) -> Numbers:
    """The sequences that the cells name."""
    if not section.tables:
        return np.zeros(0, np.int64)
    rows = section.tables[0]
    named = any(name == "seq_id" for name, _ in rows.fields)
    return rows.column("seq_id") if named and not rows.ragged else rows.items()


def _tensor(source: Source, block: Block) -> Tensor:
    if block.data is None:
        raise Refused(f"{block.path} is not there")
    kind = block.readings[0] if block.readings else None
    return Tensor(
        block.type_id,
        block.row_bytes,
        block.n_cells,
        (Keep(source, block.data),),
        block.element_bytes,
        kind,
    )


def _recurrent(source: Source, member: str, section: Section) -> Recurrent:
    blocks = section.node.get("blocks")
    return Recurrent(
        member,
        section.pos,
        section.n_layer or 0,
        tuple(_tensor(source, block) for block in section.r),
        tuple(_tensor(source, block) for block in section.s),
        Keep(source, blocks.span) if blocks is not None else None,
        seq_id=_seq_id(section),
    )


_WORD = 4
"""Bytes; a packed token field ends with less padding."""


def _tokens(report: Report) -> TokenList:
    tokens = report.tokens
    assert tokens is not None  # a state has a token list, perhaps an empty one
    packed = tokens.packing == "packed"
    reading = report.identification.reading
    node = reading.decoding.root.get("tokens") if reading is not None else None
    padding = node.get("padding") if node is not None else None
    cut = node is not None and any(child.kind is Kind.GAP for child in node.children)
    if cut or (padding is not None and len(padding.span) >= _WORD):
        raise Refused("its token field is not whole")
    if not packed or not tokens.media or node is None:
        return TokenList(tokens.ids, packed)
    starts, chunks = node.rows("media_start"), node.get("media")
    if starts is None or chunks is None:
        raise Refused("its media chunks are not there")
    data = report.source.read_at(chunks.span.start, len(chunks.span))
    return TokenList(tokens.ids, packed, tuple(starts.column("value").tolist()), data)
