"""What a server stores of a model, as text for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from formats.bodies.compositions import described
from inspector.model.expectation import StateExpectation
from inspector.model.section import SectionExpectation
from inspector.render.page import QUIET, STRONG, TIMES, columns, counted, labelled, text
from inspector.server.target import Target

SCHEMA = "slotscope.geometry/1"


def page(
    target: Target, state: StateExpectation, tokens: Sequence[int]
) -> Iterator[RenderableType]:
    """What a slot file of the target looks like, and how long it is.

    Args:
        target: a server with its model.
        state: what is expected of it.
        tokens: numbers of text tokens to give the size for.
    """
    memory = state.memory
    n_nextn = memory.n_layer_nextn
    nextn = f", {counted(n_nextn, 'next-token layer')} besides" if n_nextn else ""
    window = f", {memory.swa_type} window of {memory.n_swa:,} tokens" if memory.n_swa else ""
    yield text(
        (target.model_name or "", STRONG),
        f": {memory.architecture}, {counted(memory.n_layer, 'layer')}{nextn}{window}",
    )
    label = state.build.label
    server = label if "@" in label else f"{state.build.server} {label}"
    yield text(f"{server} · {described(memory.memory)}")
    yield text(" · ".join(_traits(state)))
    yield Text()
    yield _sections(state)
    yield Text()
    yield _sizes(state, tokens)
    yield from _remarks(target)


def _traits(state: StateExpectation) -> Iterator[str]:
    yield f"ggsq version {state.version}"
    yield "packed tokens" if state.packed else "plain tokens"
    if any(section.kind != "recurrent" for section in state.sections):
        if state.n_stream is not None:
            yield f"n_stream {state.n_stream}"
        yield f"{state.cell_bytes}-byte cells"
        how = {True: "transposed", False: "in rows", None: "in rows if flash attention is on"}
        if any(section.v and section.kind != "recurrent" for section in state.sections):
            yield f"values {how[state.v_trans]}"


def _sections(state: StateExpectation) -> Table:
    numbers = ("n_layer", "capacity")
    table = columns("section", "n_layer", "rows", "rotated", "capacity", "layers", numbers=numbers)
    for section in state.sections:
        capacity = f"{section.capacity:,}" if section.capacity else "?"
        first = section.member, f"{section.n_layer:,}", _rotation(section), capacity
        for index, rows in enumerate(_rows(section) or ["none"]):
            cells = ("",) * len(first) if index else first
            member, n_layer, rotated, room = cells
            layers = "" if index else ranges(section.layers)
            table.add_row(*map(text, (member, n_layer, rows, rotated, room, layers)))
    return table


def _rows(section: SectionExpectation) -> list[str]:
    """Rows of a cell, those of one size together: `k q8_0 3 × 272`."""
    sides = (("k", section.type_k, section.k), ("v", section.type_v, section.v))
    if section.kind == "recurrent":
        sides = (("r", section.type_k, section.k), ("s", section.type_v, section.v))
    return [
        f"{side} {kind} {rows.count(size)} {TIMES} {size:,}"
        for side, kind, rows in sides
        for size in dict.fromkeys(rows)
    ]


def _rotation(section: SectionExpectation) -> str:
    sides = (("k", section.n_rot_k), ("v", section.n_rot_v))
    return ", ".join(f"{side} by {n}" for side, n in sides if n) or "no"


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in few words: `0-4, 6, 8-11`, or `3, 7, 11, … 63` for even steps."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if (
        step > 1
        and len(numbers) > _FEW
        and list(numbers) == list(range(numbers[0], numbers[-1] + 1, step))
    ):
        return f"{numbers[0]}, {numbers[1]}, {numbers[2]}, … {numbers[-1]}"
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


_FEW = 4


def _sizes(state: StateExpectation, tokens: Sequence[int]) -> Table:
    headings = ("tokens", "file", "token field", *(section.member for section in state.sections))
    table = columns(*headings, numbers=headings)
    for n in tokens:
        total = state.file_bytes(n)
        parts = [_section_bytes(state, section, n) for section in state.sections]
        shown = [total, state.token_bytes(n), *parts]
        table.add_row(text(f"{n:,}"), *(text("?" if b is None else f"{b:,}") for b in shown))
    return table


def _section_bytes(state: StateExpectation, section: SectionExpectation, n: int) -> int | None:
    cells = state.cells(section, n)
    return None if cells is None else state.section_bytes(section, cells)


def _remarks(target: Target) -> Iterator[RenderableType]:
    remarks = labelled()
    for label, lines in (("assumed", target.assumed), ("note", _notes(target))):
        for index, line in enumerate(lines):
            remarks.add_row("" if index else label, text((line, QUIET)))
    if remarks.row_count:
        yield Text()
        yield remarks


def _notes(target: Target) -> list[str]:
    cut = target.model.cut if target.model is not None else None
    return [*target.notes, *([f"{cut}: no server starts with it"] if cut is not None else [])]


def to_dict(target: Target, state: StateExpectation, tokens: Sequence[int]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema": SCHEMA,
        "target": {
            "server": state.build.server,
            "build": state.build.label,
            "model": target.model_name,
            "assumed": list(target.assumed),
            "notes": _notes(target),
        },
        "architecture": state.memory.architecture,
        "memory": state.memory.memory,
        "version": state.version,
        "packed": state.packed,
        "n_stream": state.n_stream,
        "cell_bytes": state.cell_bytes,
        "cell_ext": state.cell_ext,
        "v_trans": state.v_trans,
        "n_swa": state.memory.n_swa,
        "sections": [_section(state, section) for section in state.sections],
        "sizes": [
            {
                "tokens": n,
                "bytes": state.file_bytes(n),
                "payload": state.payload_bytes(n),
                "sections": [_section_bytes(state, section, n) for section in state.sections],
            }
            for n in tokens
        ],
    }


def _section(state: StateExpectation, section: SectionExpectation) -> dict[str, Any]:
    k, v = ("r", "s") if section.kind == "recurrent" else ("k", "v")
    stored = state.rotation_words and section.kind != "recurrent"
    return {
        "member": section.member,
        "kind": section.kind,
        "layers": list(section.layers),
        "n_layer": section.n_layer,
        k: [{"type": section.type_k, "row_bytes": size} for size in section.k],
        v: [{"type": section.type_v, "row_bytes": size} for size in section.v],
        "n_rot_k": section.n_rot_k,
        "n_rot_v": section.n_rot_v,
        "rotation_stored": stored,
        "capacity": section.capacity,
    }
