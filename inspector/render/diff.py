"""What is different about two files, as text for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from inspector.diff.diff import CheckpointDiff, Diff, SectionDiff
from inspector.diff.numbers import Layer
from inspector.node import Node, Rows
from inspector.render.nodes import value_of
from inspector.render.page import (
    QUIET,
    STRONG,
    STYLES,
    TIMES,
    columns,
    counted,
    shortened,
    text,
)
from inspector.report import Report
from inspector.sections import Section

if TYPE_CHECKING:
    from inspector.diff.cells import Match, Numbers
    from inspector.diff.structure import FieldDiff, TokensDiff
    from inspector.lists import Checkpoint

_MOST_FIELDS = 12
_MOST_LAYERS = 96
_MOST_CHECKPOINTS = 12
_MOST_RUNS = 4
_LONGEST_VALUE = 24
_HEIGHTS = "▁▂▃▄▅▆▇█"
_NOTHING, _NOT_FINITE = "·", "!"
_GIGABYTE = 1e9


def page(
    diff: Diff, names: tuple[str, str], width: int, tolerance: float | None, *, show_tokens: bool
) -> Iterator[RenderableType]:
    """Everything about two files.

    Args:
        diff: what is different.
        names: of the files, as the user gave them.
        width: columns of the terminal.
        tolerance: error that was asked about; None if nobody asked.
        show_tokens: whether token ids may be shown.
    """
    for label, name, report in zip("AB", names, (diff.a, diff.b), strict=True):
        what = _what(report)
        room = max(20, width - len(f"A  : {what}"))
        yield text((label, STRONG), f"  {shortened(name, room)}: ", (what, QUIET))
    yield from _verdict(diff, tolerance)
    parts: tuple[Iterable[RenderableType], ...] = ()
    if not diff.same_bytes:
        parts = (
            _facts(diff),
            _tokens(diff.tokens, show_tokens=show_tokens),
            _sections(diff.sections),
            _numbers(diff.sections),
            _fields(diff.fields, show_tokens=show_tokens),
        )
    for part in (*parts, _checkpoints(diff.checkpoints), _companions(diff)):
        shown = list(part)
        if shown:
            yield Text()
            yield from shown


def speed(n_bytes: int, seconds: float) -> Iterator[RenderableType]:
    """How fast it went."""
    rate = n_bytes / _GIGABYTE / max(seconds, 1e-9)
    yield Text()
    yield text((f"read {n_bytes / _GIGABYTE:.1f} GB in {seconds:.1f} s: {rate:.1f} GB/s", QUIET))


def _what(report: Report) -> str:
    reading = report.identification.reading
    if report.container is not None:
        return report.container.format
    return reading.layout.title.partition(":")[0] if reading is not None else "unknown"


def _verdict(diff: Diff, tolerance: float | None) -> Iterator[Text]:
    """How they differ, in one line, and where their bytes begin to."""
    if diff.same_bytes:
        words = f"identical, byte for byte: {counted(diff.a.size, 'byte')}"
        words += "" if diff.identical else "; what lies beside them differs"
        yield text((words, STYLES["recognised" if diff.identical else "warning"]))
        return
    if diff.same_content():
        what = "every token, cell and number" if diff.sections else "every checkpoint"
        words = f"same content in another form: {what} is equal{_alone(diff)}"
        yield text((words, STYLES["recognised"]))
    elif tolerance is not None and diff.same_content(tolerance):
        words = f"same content: no error above {tolerance:g} of the largest number of its layer"
        yield text((words + _alone(diff), STYLES["recognised"]))
    elif side := diff.beginning:
        other = "B" if side == "A" else "A"
        what = "tokens, cells and numbers" if diff.deep else "tokens and cells"
        words = f"{side} is the beginning of {other}: all its {what} are in {other}"
        yield text((words, STYLES["recognised"]))
    else:
        yield text((f"they differ: {', '.join(_areas(diff))}", STYLES["warning"]))
    if diff.first is None:
        shorter, longer = sorted((diff.a, diff.b), key=lambda report: report.size)
        more = counted(longer.size - shorter.size, "byte")
        label = "A" if longer is diff.a else "B"
        other = "B" if longer is diff.a else "A"
        yield text(f"{label} begins with all bytes of {other}; {more} more follow")
        return
    places = dict.fromkeys(one for one in diff.owners if one)
    where = f", in {' | '.join(places)}" if places else ""
    yield text(f"bytes differ from 0x{diff.first:x} on{where}")


def _alone(diff: Diff) -> str:
    """Which of them has checkpoints that the other has not."""
    sides = {"A" if one.b is None else "B" for one in diff.checkpoints if not (one.a and one.b)}
    return "".join(f"; checkpoints only in {side}" for side in sides)


def _areas(diff: Diff) -> Iterator[str]:
    """What there are differences in."""
    found = False
    for name, differs in (
        ("layout", _layout(diff.a) != _layout(diff.b)),
        ("tokens", diff.tokens is not None and not diff.tokens.equal),
        ("memory", any(one.a is None or one.b is None for one in diff.sections)),
        ("cells", any(one.match and not one.match.complete for one in diff.sections)),
        ("order of cells", any(one.match and one.match.reordered for one in diff.sections)),
        ("numbers", any(_differ(layer) for one in diff.sections for layer in one.layers)),
        ("fields", bool(diff.fields)),
        ("checkpoints", any(not one.equal for one in diff.checkpoints)),
        ("companions", any(not one.equal for one in diff.companions)),
    ):
        if differs:
            found = True
            yield name
    if not found:
        more = not diff.deep and any(one.a and one.b for one in diff.sections)
        yield "bytes alone" + ("; --deep compares the numbers" if more else "")


def _differ(layer: Layer) -> bool:
    return bool(layer.differ or layer.why)


def _layout(report: Report) -> str:
    reading = report.identification.reading
    return reading.layout.id if reading is not None else ""


def _facts(diff: Diff) -> Iterator[RenderableType]:
    """What the files are, where that differs."""
    table = columns("file", "A", "B")
    for label, says in (
        ("bytes", lambda report: f"{report.size:,}"),
        ("layout", _layout),
        ("written", lambda report: str(report.identification.builds)),
        ("verdict", lambda report: str(report.identification.verdict)),
        ("findings", _codes),
    ):
        a, b = says(diff.a), says(diff.b)
        if a != b:
            table.add_row(text((label, STRONG)), text(a), text(b))
    if table.row_count:
        yield table


def _codes(report: Report) -> str:
    """Errors and warnings."""
    codes = (one.code for one in report.findings if one.severity != "note")
    return ", ".join(dict.fromkeys(codes)) or "none"


def _tokens(tokens: TokensDiff | None, *, show_tokens: bool) -> Iterator[Text]:
    if tokens is None:
        return
    a, b, label = tokens.a, tokens.b, ("tokens   ", STRONG)
    packing = "" if a.packing == b.packing else f", {a.packing} in A and {b.packing} in B"
    if not tokens.whole:
        read = " and ".join(f"{len(one.ids):,} of {one.count:,}" for one in (a, b))
        yield text(label, f"only {read} can be read; {_common(tokens)}")
    elif tokens.equal:
        yield text(label, f"the same {counted(a.count, 'token')}{packing}")
        return
    else:
        numbers = f"{a.count:,} and {b.count:,}{packing}"
        yield text(label, f"{numbers}; {_common(tokens)}")
    if tokens.divergent:
        ids = ""
        if show_tokens:
            ids = f": {int(a.ids[tokens.common])} in A, {int(b.ids[tokens.common])} in B"
        yield text("         ", f"they part at token {tokens.common:,}{ids}")
    elif tokens.whole:
        more, label_more = (a, "A") if a.count > b.count else (b, "B")
        other = "B" if label_more == "A" else "A"
        yield text(
            f"         {label_more} goes on with {more.count - tokens.common:,} more where "
            f"{other} ends"
        )


def _common(tokens: TokensDiff) -> str:
    first = {0: "not even the first is", 1: "the first is"}
    return first.get(tokens.common, f"the first {tokens.common:,} are") + " equal"


def _sections(sections: Sequence[SectionDiff]) -> Iterator[RenderableType]:
    if not sections:
        return
    table = columns("section", "A", "B")
    for one in sections:
        name = text((one.path, STRONG))
        for a, b in _lines(one.a, one.b):
            table.add_row(name, text(a), text((b, QUIET) if b == _SAME else b))
            name = Text()
    yield table
    for one in sections:
        for line in _matched(one.match):
            yield text((f"{one.path}: ", STRONG), line)


_SAME = "the same"


def _lines(a: Section | None, b: Section | None) -> Iterator[tuple[str, str]]:
    if a is None or b is None:
        only = a or b
        words = "; ".join(_of(only).values()) if only is not None else ""
        yield (words, "not there") if b is None else ("not there", words)
        return
    own, other = _of(a), _of(b)
    for label in dict.fromkeys((*own, *other)):
        one, two = own.get(label, ""), other.get(label, "")
        yield one or "-", (_SAME if one == two else two or "-")


def _of(section: Section) -> dict[str, str]:
    """What a section is like."""
    cells = counted(section.cells or section.declared_cells, "cell")
    if section.pos_min is not None:
        cells += f", {_range(section.pos_min, section.pos_max or 0)}"
    found = {"cells": cells}
    for letter in "kvrs":
        kinds = Counter(
            f"{block.type_name}, {counted(block.row_bytes, 'byte')}"
            for block in getattr(section, letter)
        )
        arrays = max(1, len(section.tables))
        rows = "; ".join(f"{-(-n // arrays)} {TIMES} {kind}" for kind, n in kinds.items())
        if rows:
            found[letter] = f"{letter.upper()} {rows}"
    if section.v:
        channels = any(block.element_bytes for block in section.v)
        found["order"] = "V by channel" if channels else "V in rows"
    if section.n_stream > 1 or len(section.tables) > 1:
        found["streams"] = counted(section.n_stream, "stream")
    if section.cell_ext:
        found["extension"] = f"{section.cell_ext} bytes more in every cell"
    return found


def _matched(match: Match | None) -> Iterator[str]:
    """What is different about the cells."""
    if match is None:
        return
    if match.why:
        yield match.why
    for label, pos in (("A", match.only_a), ("B", match.only_b)):
        if len(pos):
            yield f"{counted(len(pos), 'cell')} only in {label}, at {_runs(pos)}"
    if match.others:
        yield f"sequence {', '.join(map(str, match.others))} only in one of them"
    if match.seq_a and match.seq_b and match.seq_a != match.seq_b:
        a, b = (", ".join(map(str, one)) for one in (match.seq_a, match.seq_b))
        yield f"saved from sequence {a} in A, {b} in B"
    if match.reordered:
        yield "the cells stand in another order"
    for name, n in match.extension:
        yield f"{name} differs in {counted(n, 'cell')}"


def _range(low: int, high: int) -> str:
    return f"{low}..{high}" if low != high else str(low)


def _runs(pos: Numbers) -> str:
    """`240..299, 310`."""
    import numpy as np

    cuts = np.flatnonzero(np.diff(pos) > 1) + 1
    starts, ends = pos[[0, *cuts]].tolist(), pos[[*(cuts - 1), -1]].tolist()
    words = [_range(low, high) for low, high in zip(starts, ends, strict=True)]
    return ", ".join([*words[:_MOST_RUNS], *(["…"] if len(words) > _MOST_RUNS else [])])


def _numbers(sections: Iterable[SectionDiff], prefix: str = "") -> Iterator[RenderableType]:
    """The numbers by layer, those that are equal in one line."""
    table = columns(
        "tensor", "max error", "of max", "RMS", "worst at", "first at", "by position",
        numbers=("max error", "of max", "RMS", "worst at", "first at"), fixed=["by position"],
    )  # fmt: skip
    remarks: list[str] = []
    left = 0
    for one in sections:
        remarks += _remarks(one)
        for layer in one.layers:
            if layer.differ and not layer.why:
                left += table.row_count >= _MOST_LAYERS
                if table.row_count < _MOST_LAYERS:
                    table.add_row(*_row(f"{prefix}{one.path} {layer.name}", layer))
    if table.row_count:
        yield table
        if left:
            yield text((f"… {left:,} more", QUIET))
        yield text(
            (
                "max error: largest |A - B|; of max: that by the largest |A|; RMS: that of A - B "
                "by that of A",
                QUIET,
            )
        )
    for remark in remarks:
        yield text(remark)


def _remarks(one: SectionDiff) -> Iterator[str]:
    """What there is to say of a section besides its errors."""
    layers = one.layers
    for note in one.numbers.notes if one.numbers is not None else ():
        yield f"{one.path} {note}"
    equal = sum(not _differ(layer) for layer in layers)
    if equal:
        n_cells = counted(max(layer.n_cells for layer in layers), "cell")
        yield f"{one.path}: {equal:,} of {counted(len(layers), 'tensor')} equal in {n_cells}"
    elif one.numbers and one.match and not (len(one.match.a) or one.match.why):
        yield f"{one.path}: no cell in both, nothing to compare"
    for why, group in groupby(
        sorted((layer for layer in layers if layer.why), key=lambda layer: layer.why),
        key=lambda layer: layer.why,
    ):
        found = list(group)
        names = found[0].name + (f" and {len(found) - 1:,} more" if len(found) > 1 else "")
        bytes_of = f"; bytes differ in {counted(found[0].differ, 'cell')} of {found[0].name}"
        more = bytes_of if found[0].n_cells else ""
        yield f"{one.path} {names}: not compared as numbers: {why}{more}"
    bad = [layer for layer in layers if layer.non_finite != (0, 0)]
    for layer in bad[:1]:
        a, b = layer.non_finite
        more = f", and in {len(bad) - 1:,} more tensors" if len(bad) > 1 else ""
        yield f"{one.path} {layer.name}: not finite: {a:,} numbers of A, {b:,} of B{more}"


def _row(name: str, layer: Layer) -> Iterator[RenderableType]:
    yield text(name)
    yield f"{layer.max_error:.3g}"
    yield _percent(layer.relative)
    yield _percent(layer.rms)
    yield "" if layer.worst is None else str(layer.worst)
    yield "" if layer.first is None else str(layer.first)
    most = max((error for error in layer.strip if math.isfinite(error)), default=0.0)
    yield text("".join(_bar(error, most) for error in layer.strip))


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "-"
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:,.0f} %"


def _bar(error: float, most: float) -> str:
    """An eighth of the height for every eighth of the largest error; a dot for none."""
    if math.isnan(error):
        return " "
    if not math.isfinite(error):
        return _NOT_FINITE
    if not error:
        return _NOTHING
    return _HEIGHTS[min(len(_HEIGHTS) - 1, int(error / most * len(_HEIGHTS)))]


def _fields(fields: Sequence[FieldDiff], *, show_tokens: bool) -> Iterator[RenderableType]:
    """Fields that differ, those that do so alike in all layers once."""
    alike: dict[tuple[str, str, str], list[FieldDiff]] = {}
    for one in fields:
        a, b = (_value(one.path, node, show_tokens=show_tokens) for node in (one.a, one.b))
        alike.setdefault((one.pattern, a, b), []).append(one)
    if not alike:
        return
    table = columns("field", "A", "B", "")
    for (_, a, b), group in list(alike.items())[:_MOST_FIELDS]:
        more = f"+ {len(group) - 1:,} alike" if len(group) > 1 else ""
        table.add_row(text(group[0].path or "file"), text(a), text(b), text((more, QUIET)))
    yield table
    if len(alike) > _MOST_FIELDS:
        left = sum(len(group) for group in list(alike.values())[_MOST_FIELDS:])
        yield text((f"+ {left:,} more; --json lists all", QUIET))


def _value(path: str, node: Node | None, *, show_tokens: bool) -> str:
    if node is None:
        return "not there"
    words = "" if isinstance(node.value, Rows) else value_of(path, node, show_tokens=show_tokens)
    return shortened(words, _LONGEST_VALUE) or counted(len(node.span), "byte")


def _checkpoints(found: Sequence[CheckpointDiff]) -> Iterator[RenderableType]:
    if not found:
        return
    names = ("checkpoint", "positions", "A", "B", "blobs")
    table = columns(*names, fixed=["positions"])
    for one in found[:_MOST_CHECKPOINTS]:
        point = one.a or one.b
        assert point is not None  # one of them has it
        record = point.record
        ends = dict.fromkeys(pos for pos in (record.pos_min, record.pos_max) if pos is not None)
        table.add_row(
            text("" if record.n_tokens is None else counted(record.n_tokens, "token")),
            "..".join(map(str, ends)),
            text(_place(one.a)),
            text(_place(one.b)),
            text(_blobs(one)),
        )
    yield table
    if len(found) > _MOST_CHECKPOINTS:
        yield text((f"+ {len(found) - _MOST_CHECKPOINTS:,} more; --json lists all", QUIET))
    for one in found[:_MOST_CHECKPOINTS]:
        if any(layer.differ for part in one.parts for layer in part.layers) and one.a is not None:
            yield Text()
            yield from _numbers(one.parts, f"[{one.a.record.index}] ")


def _place(point: Checkpoint | None) -> str:
    if point is None:
        return "-"
    record = point.record
    return f"{record.format} [{record.index}]" + ("" if point.usable else ", unusable")


def _blobs(one: CheckpointDiff) -> str:
    if one.a is None or one.b is None:
        return f"only in {'A' if one.b is None else 'B'}"
    if one.equal:
        return "equal"
    if one.within(0):
        return "same content in another form"
    return "differ"


def _companions(diff: Diff) -> Iterator[RenderableType]:
    if not diff.companions:
        return
    table = columns("companion", "A", "B", "")
    for one in diff.companions:
        sizes = (f"{side.file.size:,} bytes" if side else "not there" for side in (one.a, one.b))
        verdict = {True: "equal", False: "differ", None: "cannot be read"}[one.equal]
        if one.a is None or one.b is None:
            verdict = f"only beside {'A' if one.b is None else 'B'}"
        table.add_row(text(one.suffix), *sizes, verdict)
    yield table
