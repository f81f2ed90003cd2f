"""The byte map: a file to scale, what its parts are made of, and all of it without the numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from inspector.node import Kind, Node, walk
from inspector.render.byte_map import FIELDS, GAP, Part, parts_of
from inspector.render.html.findings import Shown
from inspector.render.html.markup import Html, aside, element, inside, percent, table
from inspector.render.page import counted
from inspector.span import Span, gaps

_NARROWEST = 1 / 1000
"""Share of the whole below which parts are drawn together: about a pixel."""
_UPPER, _LOWER = 38, 28
"""Heights of the two rows, pixels."""
_CHARACTER, _AROUND = 7.2, 12.0
"""Pixels that a character of a label takes, and that lie around it."""
_ROOM = ((260.0, "l0"), (550.0, "l1"), (870.0, "l2"))
"""Pixels that a bar has at least, and the class of what is shown from there on."""
_MOST_ROWS = 120
_LANE = 5.0
"""Percent between two marks of one lane."""
_LANES = 4
_ROLES = ("attention", "swa", "recurrent", "indexer", "dsv4", "checkpoints")
_MEANINGS = {
    "attention": "attention",
    "swa": "windowed attention",
    "recurrent": "recurrent state",
    "indexer": "indexer",
    "dsv4": "compressed attention",
    "checkpoints": "checkpoints",
    "tokens": "tokens",
    GAP: "explained by nothing",
    "other": "everything else",
}


@dataclass(frozen=True)
class Map:
    """A file that has a map.

    Attributes:
        carrier: its name as findings have it; empty for the file itself.
        title: what it is called.
        root: its tree.
        size: its bytes.
    """

    carrier: str
    title: str
    root: Node
    size: int

    def marks(self, shown: Sequence[Shown]) -> list[Shown]:
        """Those findings that have bytes on it, rather than all of them."""
        return [
            one
            for one in shown
            if one.finding.carrier == self.carrier
            and self.size
            and one.finding.span.start <= self.size
            and not (one.finding.span.start == 0 and one.finding.span.stop >= self.size)
        ]


def byte_map(of: Map, shown: Sequence[Shown]) -> Html:
    """A file as one picture, with the findings on it, and as a table.

    Args:
        of: the file.
        shown: the findings; those elsewhere are left out.
    """
    parts, marks = _parts(of.root), of.marks(shown)
    whole = Span(0, of.size)
    return element(
        "div",
        element(
            "figure",
            element(
                "figcaption",
                element("b", of.title),
                f" {counted(of.size, 'byte')}, to scale",
                "; a number marks the bytes of a finding" if marks else "",
            ),
            _marks(marks, of.size),
            _picture(of.title, parts, marks, whole),
            _ruler([part.span.start for part in parts], of.size),
        ),
        _without_numbers(of, marks),
        _key(of, parts),
        aside("the parts as a table", _table(parts, of.size)),
        class_="map",
    )


def _parts(root: Node) -> list[Part]:
    """The parts of a file; those of a list are its records."""
    if not root.children:
        return [Part("", root.span, GAP)]
    role = root.role if root.role in _ROLES else ""
    return [replace(part, role=part.role or role) for part in parts_of(root)]


def patterns() -> Html:
    """What gaps are filled with; once a page."""
    return element(
        "svg",
        element(
            "defs",
            element(
                "pattern",
                element("rect", width=8, height=8, class_="hatch-ground"),
                element("line", x1=0, y1=0, x2=0, y2=8, class_="hatch-line"),
                id="hatch",
                width=8,
                height=8,
                patternUnits="userSpaceOnUse",
                patternTransform="rotate(45)",
            ),
        ),
        width=0,
        height=0,
        style="position:absolute;width:0",
        aria_hidden="true",
    )


def _marks(marks: Sequence[Shown], size: int) -> Html:
    """The findings above the picture, in as many rows as they need."""
    ends, found = [-_LANE] * _LANES, []
    for one in sorted(marks, key=lambda one: _centre(one, size)):
        at = _centre(one, size)
        free = [lane for lane, end in enumerate(ends) if at - end >= _LANE]
        lane = free[0] if free else _LANES - 1
        ends[lane] = at
        found.append((one, at, lane))
    if not found:
        return Html("")
    used = max(lane for _, _, lane in found) + 1
    links = (
        element(
            "a",
            str(one.number),
            id=one.mark,
            href=f"#{one.card}",
            class_=one.tone,
            style=f"--at:{min(98.5, max(1.5, at)):.2f}%;--lane:{lane}",
            data_of=one.card,
            aria_label=f"finding {one.number}, {one.finding.code}, at {one.finding.span}",
        )
        for one, at, lane in found
    )
    return element("div", *links, class_="marks", style=f"height:{1.75 * used + 0.1:.2f}rem")


def _centre(one: Shown, size: int) -> float:
    span = one.finding.span
    return 50 * (span.start + min(span.stop, size)) / size


def _ends(one: Shown) -> tuple[int, int]:
    return one.finding.span.start, one.finding.span.stop


def _picture(title: str, parts: Sequence[Part], marks: Sequence[Shown], whole: Span) -> Html:
    height = _UPPER + _LOWER
    upper = (_drawn(part, whole, 0, _UPPER) for part in _merged(parts, len(whole)))
    lower = (_drawn(part, whole, _UPPER, _LOWER) for part in _merged(_inner(parts), len(whole)))
    names = ", ".join(f"{_name(part)} {part.span}" for part in parts[:20])
    return element(
        "svg",
        element("title", f"map of {title}"),
        *upper,
        element("g", *lower, class_="inner"),
        *(_band(one, *_ends(one), len(whole), height) for one in marks),
        role="img",
        aria_label=f"map of {title}: {names}",
        height=height,
    )


def _inner(parts: Iterable[Part]) -> Iterator[Part]:
    """What the parts are made of, each as what it is a part of."""
    for part in parts:
        inner = [
            replace(small, role=part.role if small.role in ("", FIELDS) else small.role)
            for small in part.within
        ]
        between = gaps([small.span for small in inner], part.span)
        inner += [Part("", gap, part.role) for gap in between]
        yield from sorted(inner, key=lambda small: small.span)


def _merged(parts: Iterable[Part], total: int) -> Iterator[Part]:
    """Parts, those together that are too narrow to be seen and follow one another."""
    least = total * _NARROWEST
    at = None
    for part in parts:
        narrow = len(part.span) < least
        if at is not None and narrow and len(at.span) < least and at.role == part.role:
            at = Part("", Span(at.span.start, part.span.stop), part.role)
            continue
        if at is not None:
            yield at
        at = part
    if at is not None:
        yield at


def _drawn(part: Part, whole: Span, y: int, height: int) -> Html:
    """A part with its name in it, where there is room."""
    width = len(part.span) / max(1, len(whole))
    return element(
        "svg",
        element("title", f"{_name(part)} {part.span}, {counted(len(part.span), 'byte')}"),
        element("rect", width="100%", height="100%", class_=_class(part)),
        element("line", x1=0, y1=0, x2=0, y2="100%", class_="edge"),
        element("line", x1=0, y1="100%", x2="100%", y2="100%", class_="edge"),
        _label(part.label, width, height),
        x=percent(part.span.start - whole.start, len(whole)),
        y=y,
        width=percent(len(part.span), len(whole)),
        height=height,
    )


def _label(words: str, width: float, height: int) -> Html:
    """A name, whole or its end, shown from the width of the window on that has room for it."""
    short = words[words.rfind("[") :] if "[" in words else ""
    for label in filter(None, (words, short)):
        needed = _CHARACTER * len(label) + _AROUND
        for room, class_ in _ROOM:
            if width * room >= needed:
                return element("text", label, x=6, y=height // 2 + 4, class_=class_)
    return Html("")


def _name(part: Part) -> str:
    return part.label or ("explained by nothing" if part.role == GAP else "fields")


def _class(part: Part) -> str:
    if part.role in (*_ROLES, GAP):
        return part.role
    return "tokens" if part.label == "tokens" else "other"


def _band(one: Shown, start: int, stop: int, whole: int, height: int) -> Html:
    """The bytes of a finding on the picture."""
    start, stop = min(start, whole), min(stop, whole)
    return element(
        "rect",
        x=percent(start, whole),
        y=1,
        width=percent(max(0, stop - start), whole),
        height=height - 2,
        class_=f"band {one.tone}",
        data_of=one.card,
    )


def _ruler(starts: Sequence[int], size: int) -> Html:
    """Where the parts begin, as far as there is room."""
    longest = _CHARACTER * len(f"0x{size:x}") + _AROUND
    taken: list[float] = []
    labels = {}
    for room, class_ in _ROOM[:2]:
        apart = 100 * longest / room
        for start in starts:
            at = 100 * start / max(1, size)
            free = at <= 100 - 2 * apart and all(abs(at - other) >= apart for other in taken)
            if start not in labels and free:
                labels[start] = (at, class_)
                taken.append(at)
    return element(
        "div",
        *(
            element("span", f"0x{start:x}", class_=class_, style=f"left:{at:.2f}%")
            for start, (at, class_) in sorted(labels.items())
        ),
        element("span", f"0x{size:x}"),
        class_="ruler hex",
        aria_hidden="true",
    )


def _key(of: Map, parts: Sequence[Part]) -> Html:
    """What the colours mean."""
    used = dict.fromkeys(_class(part) for part in parts)
    return element(
        "ul",
        *(
            element("li", element("i", class_=role, aria_hidden="true"), _MEANINGS[role])
            for role in _MEANINGS
            if role in used
        ),
        class_="key",
        aria_label=f"colours of the map of {of.title}",
    )


def _table(parts: Sequence[Part], size: int) -> Html:
    rows: list[Sequence[str]] = []
    for part in parts:
        rows.append(_row(part, _name(part), size))
        rows += [
            _row(small, f"\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}{_name(small)}", size)
            for small in part.within
        ]
    more = len(rows) - _MOST_ROWS
    shown = table(("part", "from", "to", "bytes", "share", "what"), rows[:_MOST_ROWS], (1, 2, 3, 4))
    return inside(shown, element("p", f"{more:,} more", class_="quiet") if more > 0 else "")


def _row(part: Part, name: str, size: int) -> Sequence[str]:
    span = part.span
    share = f"{100 * len(span) / max(1, size):.1f} %"
    what = _MEANINGS[_class(part)] if _class(part) != "other" else ""
    return name, f"0x{span.start:x}", f"0x{span.stop:x}", f"{len(span):,}", share, what


# The same without tensors


@dataclass(frozen=True)
class _Run:
    """Bytes of headers that belong together, as they follow one another without tensors."""

    label: str
    role: str
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.spans))


def _without_numbers(of: Map, marks: Sequence[Shown]) -> Html:
    """Headers, tokens and cells alone: beside the tensors they are too small to be seen."""
    runs = list(_runs(of.root))
    total = sum(run.size for run in runs)
    if not total or total > of.size / 2 or len(runs) < 2:
        return Html("")
    starts = [0, *accumulate(run.size for run in runs)]
    parts = (
        Part(run.label, Span(start, start + run.size), run.role)
        for run, start in zip(runs, starts, strict=False)
    )
    shapes = (_drawn(part, Span(0, total), 0, _UPPER) for part in _merged(parts, total))
    spans = [span for run in runs for span in run.spans]
    offsets = [0, *accumulate(map(len, spans))]
    firsts = [span.start for span in spans]

    def place(offset: int) -> int:
        index = max(0, bisect_right(firsts, offset) - 1)
        return offsets[index] + min(max(0, offset - firsts[index]), len(spans[index]))

    bands = (
        _band(one, place(one.finding.span.start), place(one.finding.span.stop), total, _UPPER)
        for one in marks
    )
    what = "headers, tokens and cells"
    names = ", ".join(f"{run.label} {counted(run.size, 'byte')}" for run in runs[:20])
    return element(
        "figure",
        element(
            "figcaption",
            element("b", what),
            f" {counted(total, 'byte')} of the same, without tensors in between",
        ),
        element("svg", *shapes, *bands, role="img", aria_label=f"{what}: {names}", height=_UPPER),
    )


def _runs(root: Node) -> Iterator[_Run]:
    """Leaves without tensors, those of one series or record together."""
    leaves = (
        (path, node)
        for path, node in walk(root)
        if not node.children and node.kind not in (Kind.PAYLOAD, Kind.GAP) and len(node.span)
    )
    roles = {child.name: child.role for child in root.children}
    for key, group in groupby(leaves, key=lambda pair: _key_of(*pair)):
        role = roles.get(key.partition(".")[0]) or root.role
        yield _Run(
            _short(key), role if role in _ROLES else FIELDS, tuple(node.span for _, node in group)
        )


def _key_of(path: str, node: Node) -> str:
    """What a leaf belongs to: its table, or the record or series that it is a field of."""
    plain = re.sub(r"\[\d+\]", "", path)
    if node.kind is not Kind.FIELD:
        return plain
    owner = plain.rpartition(".")[0]
    return owner or "head"


def _short(key: str) -> str:
    first, *others = key.split(".")
    return " ".join([first, *others[-1:]])
