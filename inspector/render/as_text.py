"""A report as text for people: what the file is, a map, what it holds, what is wrong with it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from inspector.findings import Finding, Severity
from inspector.identify import Verdict
from inspector.render.byte_map import ByteMap
from inspector.render.page import (
    QUIET,
    STRONG,
    STYLES,
    TIMES,
    columns,
    counted,
    labelled,
    shortened,
    text,
)
from inspector.report import Report
from inspector.sections import Block, Section
from inspector.tokens import Tokens

if TYPE_CHECKING:
    from inspector.lists import Checkpoint

_LABEL = 8
"""Columns of labels: the longest is `expected`."""
_MOST_ALIKE = 3
"""Findings of one code that are shown in full."""
_MOST_CHECKPOINTS = 12
_MOST_STREAMS = 8
_MOST_FACTS = 12
_BARS = 40
"""Bars of one line."""
_HEIGHTS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "!"
_SHORTEST_NAME = 20
_LONGEST_VALUE = 80
_NAMES = {
    "ik-tokens": "token list of ik_llama.cpp",
    "jan": "settings of Jan",
    "llama-cpp-python": "pickled state of llama-cpp-python",
    "diskcache": "prompt cache of llama-cpp-python",
}
_EXTENSIONS = {8: "x and y in every cell", 12: "x, y and tok in every cell"}


def page(report: Report, name: str, width: int, *, show_tokens: bool) -> Iterator[RenderableType]:
    """Everything about one file.

    Args:
        report: what was found.
        name: of the file, as the user gave it.
        width: columns of the terminal.
        show_tokens: whether token ids may be shown.
    """
    yield from identity(report, name, width)
    root = report.identification.root
    if root is not None and root.children and report.container is None:
        yield Text()
        yield ByteMap(root)
    for part in (
        _model(report),
        _tokens(report.tokens, show_tokens=show_tokens),
        _sections(report.sections),
        _facts(report),
        _checkpoints(report),
        _companions(report),
        _seal(report),
        _statistics(report),
        findings_part(report.findings),
    ):
        shown = list(part)
        if shown:
            yield Text()
            yield from shown


def identity(report: Report, name: str, width: int) -> Iterator[RenderableType]:
    """What it is, when it can have been written, how sure that is and how well it is."""
    identification = report.identification
    verdict, reading, builds = identification.verdict, identification.reading, identification.builds
    what, details = "unknown", ["no known layout explains it"]
    if reading is not None:
        writer, layout = identification.writer, reading.layout
        what = layout.title.partition(":")[0]
        what = f"{writer} {what}" if writer and writer not in what else what
        by = "by " if builds.since and builds.until else ""
        known = builds.since or builds.until
        details = [f"written {by}{builds}" if known else "builds not known", f"layout {layout.id}"]
    if report.container is not None:
        what, details = _NAMES[report.container.format], details if reading is not None else []
    damaged = "damaged " if verdict is Verdict.DAMAGED else ""
    kinds = " + ".join(dict.fromkeys(section.kind for section in report.sections))
    room = width - len(f": {damaged}{what}")
    if kinds and len(f"{name} ({kinds})") <= room:
        what += f" ({kinds})"
    name = name if len(name) <= room else report.name
    name = shortened(name, max(_SHORTEST_NAME, room))
    yield text((name, STRONG), ": ", (damaged, STYLES["damaged"]), what)
    yield text(" · ".join([*details, counted(report.size, "byte")]))
    others = [other.layout.id for other in identification.competing]
    words = f"{verdict}: could be {', '.join(others)} as well" if others else str(verdict)
    yield text((words, STYLES[verdict]), " · ", *tally(report.findings))


def tally(findings: Sequence[Finding]) -> Iterator[str | tuple[str, str]]:
    """How many there are of each severity, in words."""
    numbers = dict.fromkeys(Severity, 0)
    for finding in findings:
        numbers[finding.severity] += 1
    found = [(counted(n, severity), STYLES[severity]) for severity, n in numbers.items() if n]
    if not found:
        yield ("sound, no findings", STYLES["recognised"])
    elif not numbers[Severity.ERROR]:
        yield "no errors, "
    for index, part in enumerate(found):
        yield ", " if index else ""
        yield part


def _model(report: Report) -> Iterator[RenderableType]:
    """What a model file says of itself."""
    root = report.identification.root
    if root is None or root.role != "model":
        return
    from inspector.model.summary import summary
    from inspector.render.model import model_part

    if (model := summary(report)) is not None:
        yield from model_part(model)


def _tokens(tokens: Tokens | None, *, show_tokens: bool) -> Iterator[RenderableType]:
    if tokens is None or tokens.packing == "none":
        return
    line = counted(tokens.count, "token")
    if tokens.packing == "packed":
        line += f", packed into {counted(tokens.words, 'word')}"
        line += f" with {counted(tokens.media, 'media chunk')}" if tokens.media else ""
    if not len(tokens.ids):
        line += "" if not tokens.count else ", none of which could be read"
    else:
        line += f", xxh3 {tokens.digest}"
    yield text(("tokens   ", STRONG), line)
    if show_tokens and len(tokens.ids):
        yield text(" ".join(map(str, tokens.ids.tolist())))


def _sections(sections: Sequence[Section]) -> Iterator[RenderableType]:
    if not sections:
        return
    headings = ("section", "bytes at", "cells", "positions", "rows of a cell")
    table = columns(*headings, numbers=["cells"], fixed=["bytes at", "positions"])
    for section in sections:
        names = [text((section.path, STRONG)), text((section.kind, QUIET))]
        name = Text("\n").join(names if section.kind != section.path else names[:1])
        table.add_row(
            name, str(section.span), _cells(section), _positions(section), _stored(section)
        )
    yield table


def _cells(section: Section) -> str:
    """How many there are; of how many, where the file says more than it holds."""
    if section.node.get("streams") is None and section.node.get("cells") is None:
        return f"{section.declared_cells:,}" if section.kind != "dsv4" else ""
    promised = section.declared_cells
    return f"{section.cells:,}" + (f" of {promised:,}" if promised > section.cells else "")


def _positions(section: Section) -> str:
    import numpy as np

    if section.pos_min is None or section.pos_min == section.pos_max:
        return "" if section.pos_min is None else str(section.pos_min)
    gaps = int(np.count_nonzero(np.diff(section.ordered) > 1))
    span = f"{section.pos_min}..{section.pos_max}"
    return f"{span}\n{counted(gaps, 'gap')}" if gaps else span


def _stored(section: Section) -> Text:
    """The rows of a section, a line for each kind of row; and what is special about its cells."""
    lines: list[str] = []
    for letter in "kvrs":
        label = f"{letter.upper()} " if section.kind != "dsv4" else ""
        lines += _rows(label, getattr(section, letter))
    if section.v_trans == 1 and section.v:
        lines.append("V transposed (flash attention off)")
    if section.n_stream > 1:
        lines.append(_streams(section))
    if section.cell_ext in _EXTENSIONS:
        lines.append(_EXTENSIONS[section.cell_ext])
    return Text("\n").join(text(line) for line in lines)


def _streams(section: Section) -> str:
    """Which streams have cells, if there are few."""
    if section.n_stream > _MOST_STREAMS:
        return f"in {len(section.tables)} of {counted(section.n_stream, 'stream')}"
    cells = dict(zip(section.streams, map(len, section.tables), strict=True))
    of_each = (f"{cells.get(stream, 0):,}" for stream in range(section.n_stream))
    return f"{section.n_stream} streams, cells {', '.join(of_each)}"


def _rows(label: str, blocks: Sequence[Block]) -> Iterator[str]:
    """One line if all layers are alike, else one for each kind with its layers."""
    kinds: dict[tuple[str, int], list[int]] = {}
    for index, block in enumerate(blocks):
        kinds.setdefault((block.type_name, block.row_bytes), []).append(index)
    for (kind, size), places in kinds.items():
        which = f" at {_ranges(places)}" if len(kinds) > 1 else ""
        yield f"{label}{len(places)} {TIMES} {kind}, {counted(size, 'byte')}{which}"
    if blocks and blocks[-1].data is None:
        yield f"{label.rstrip()}[{len(blocks) - 1}] cut"


def _ranges(places: Sequence[int], most: int = 4) -> str:
    """`[0..3], [7]`: runs of indices."""
    runs = [
        [place for _, place in group]
        for _, group in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    ]
    words = [f"[{run[0]}..{run[-1]}]" if len(run) > 1 else f"[{run[0]}]" for run in runs]
    return ", ".join([*words[:most], *(["…"] if len(words) > most else [])])


def _facts(report: Report) -> Iterator[RenderableType]:
    """What a container says."""
    if report.container is None or not report.container.facts:
        return
    table = columns("member", "value")
    for fact in report.container.facts[:_MOST_FACTS]:
        table.add_row(text(fact.path), text(shortened(str(fact.value), _LONGEST_VALUE)))
    yield table
    if len(report.container.facts) > _MOST_FACTS:
        yield text((f"… {len(report.container.facts) - _MOST_FACTS:,} more", QUIET))


def _checkpoints(report: Report) -> Iterator[RenderableType]:
    for carrier, group in groupby(report.checkpoints, key=lambda one: one.record.carrier):
        found = list(group)
        record = found[0].record
        where = "in this file" if carrier == report.name else f"in {carrier}"
        version = "" if record.version is None else f" {record.version}"
        yield text(("checkpoints", STRONG), f" {where} ({record.format}{version})")
        yield _records(found)


def _records(found: Sequence[Checkpoint]) -> Table:
    extra = [
        (name, field)
        for name, field in (("draft", "n_dft"), ("third blob", "n_spec"))
        if any(getattr(one.record, field) for one in found)
    ]
    names = ("", "returns to", "positions", "bytes", *(name for name, _ in extra))
    table = columns(*names, "memory", "usable", numbers=names[:1] + names[3:], fixed=["positions"])
    head = found[: _MOST_CHECKPOINTS // 2] if len(found) > _MOST_CHECKPOINTS else found
    tail = found[-_MOST_CHECKPOINTS // 2 :] if len(found) > _MOST_CHECKPOINTS else ()
    for one in head:
        table.add_row(*_record(one, [field for _, field in extra]))
    if tail:
        table.add_row("", text((f"… {len(found) - len(head) - len(tail):,} more", QUIET)))
    for one in tail:
        table.add_row(*_record(one, [field for _, field in extra]))
    return table


def _record(one: Checkpoint, extra: Sequence[str]) -> Iterator[RenderableType]:
    record = one.record
    yield f"[{record.index}]"
    yield "" if record.n_tokens is None else counted(record.n_tokens, "token")
    ends = dict.fromkeys(pos for pos in (record.pos_min, record.pos_max) if pos is not None)
    yield "..".join(map(str, ends))
    for field in ("n_tgt", *extra):
        size = getattr(record, field)
        yield "" if size is None else f"{size:,}"
    yield text(record.blob.layout if record.blob is not None else "not understood")
    cut = "" if record.complete else ", cut"
    yield text(("yes", "green") if one.usable else (f"no{cut}", STYLES["error"]))


def _companions(report: Report) -> Iterator[RenderableType]:
    """The files that belong to it by their names, and whether they do by their contents."""
    around = report.bundle
    if around.companions:
        table = columns("companion", "bytes", "what it is", "belongs to it", numbers=["bytes"])
        for companion in around.companions:
            name = companion.file.name
            codes = {
                finding.code
                for finding in report.findings
                if finding.carrier == name and finding.severity is not Severity.NOTE
            }
            inside = next((other for other in report.beside if other.companion == companion), None)
            identified = inside.identification if inside is not None else None
            what = str(companion.role)
            if identified is not None and identified.reading is not None:
                what = identified.reading.layout.title
            verdict = ("not looked into", QUIET) if inside is None else ("yes", "green")
            verdict = ("see " + ", ".join(sorted(codes)), STYLES["warning"]) if codes else verdict
            table.add_row(text(name), f"{companion.file.size:,}", text(what), text(verdict))
        yield table
    if around.role is not None and not report.sections:
        state = around.state
        where = f"{state.name}, beside it" if state is not None else "not beside it"
        yield text(("state    ", STRONG), where)


def _seal(report: Report) -> Iterator[RenderableType]:
    """How it compares with its seal, if there is one."""
    sealed = report.sealed
    if sealed is None:
        return
    what = counted(len(sealed.seal.tiles), "section")
    if sealed.companions:
        what += f" and {counted(len(sealed.companions), 'companion')}"
    words, style = "does not hold", STYLES["error"]
    if sealed.holds:
        words, style = f"holds: {what} as sealed", STYLES["recognised"]
        if not sealed.complete:
            words = "holds as to length and tokens; --deep reads the rest"
    yield text(("seal     ", STRONG), (words, style))


def _statistics(report: Report) -> Iterator[RenderableType]:
    """What the stored numbers are like, for reports that have read them."""
    if not report.statistics:
        return
    yield from _norms(report)
    yield Text()
    names = ("numbers of", "type", "root mean square", "zero rows", "not finite")
    table = columns(*names, numbers=names[2:])
    for one in report.statistics:
        table.add_row(
            text(one.block.path),
            one.type.name,
            f"{one.rms:.4g}",
            f"{one.zero_rows:,}",
            f"{one.non_finite:,}",
        )
    yield table


def _norms(report: Report) -> Iterator[RenderableType]:
    """A row of bars for each kind of block: root mean square by layer, to the largest of them."""
    rms = {one.block.path: one.rms for one in report.statistics}
    rows: dict[str, list[float]] = {}
    for section in report.sections:
        for block in section.blocks:
            if block.path in rms:
                rows.setdefault(row_name(section, block), []).append(rms[block.path])
    room = max(map(len, rows)) + 2
    yield text(("norms by layer, to the largest of each row", QUIET))
    for label, norms in rows.items():
        most = max(filter(math.isfinite, norms), default=0.0)
        bars = "".join(_bar(norm, most) for norm in norms)
        for at in range(0, len(bars), _BARS):
            line = bars[at : at + _BARS]
            scale = f"  up to {most:.4g}" if at + _BARS >= len(bars) and most else ""
            head = "" if at else label
            yield text((head.ljust(room), STRONG), line, (scale, QUIET))


def row_name(section: Section, block: Block) -> str:
    """What the bars of a kind of block are called: `attn K`, of several streams `attn 1 K`."""
    if section.kind == "dsv4":
        return f"{section.path} {block.path.rpartition('.')[2]}"
    letter = next(one for one in "kvrs" if block in getattr(section, one))
    stream = re.search(r"streams\[(\d+)\]", block.path) if len(section.tables) > 1 else None
    return " ".join([section.path, *(stream.groups() if stream else ()), letter.upper()])


def _bar(rms: float, most: float) -> str:
    """An eighth of the height for every eighth of the largest; the lowest for zero."""
    if not math.isfinite(rms):
        return _NOT_FINITE
    steps = len(_HEIGHTS) - 1
    return _HEIGHTS[min(steps, round(rms / most * steps))] if most else _HEIGHTS[0]


def findings_part(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """Findings in full, those of one code shortened; nothing where there are none."""
    if not findings:
        return
    table = labelled(_LABEL)
    seen: dict[str, int] = {}
    for finding in findings:
        seen[finding.code] = seen.get(finding.code, 0) + 1
        if seen[finding.code] <= _MOST_ALIKE:
            for label, words in _finding(finding):
                table.add_row(label, words)
            table.add_row("")
    for code, n in seen.items():
        if n > _MOST_ALIKE:
            table.add_row("", text((f"{n - _MOST_ALIKE:,} more of {code}", QUIET)))
            table.add_row("")
    yield table
    yield text(("slotscope explain CODE says more about a finding", QUIET))


def _finding(finding: Finding) -> Iterator[tuple[Text, Text]]:
    """A finding as labelled lines; a note is short."""
    about, severity = finding.about, finding.severity
    where = ": ".join(part for part in (finding.carrier, finding.path) if part)
    where = f"{where}  {finding.span}" if where else str(finding.span)
    yield (
        text((severity, f"not dim {STYLES[severity]}")),
        text((finding.code, STRONG), "  ", (where, QUIET)),
    )
    yield Text(), text(finding.message)
    harmless = about.consequence.startswith(("nothing", "none"))
    if severity is not Severity.NOTE:
        yield text("expected"), text(finding.expected)
        yield text("actual"), text(finding.actual)
        for line in finding.evidence:
            yield text("because"), text(line)
    if severity is not Severity.NOTE or not harmless:
        yield text("effect"), text(about.consequence)
    if severity is not Severity.NOTE:
        yield text("remedy"), text(f"{about.remedy}: {about.advice}")
