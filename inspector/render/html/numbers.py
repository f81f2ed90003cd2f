"""The stored numbers as heat strips: layers from the top down, cells from the left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from inspector.render.as_text import row_name
from inspector.render.html.figures import drawing, figure, path, plot, rectangle
from inspector.render.html.markup import Html, aside, element, inside, table
from inspector.render.page import counted

if TYPE_CHECKING:
    from inspector.checks.strips import Strip
    from inspector.report import Report

STEPS = 9
"""Colours of the scale."""
_FACTOR = 1.6
"""What one step is less than the next."""
_MOST_LAYERS = 96
_MOST_STRIPS = 16
_MOST_ROWS = 400
_THICK = 14
"""Pixels of a layer where there are few."""
_TALLEST = 480


def heat(report: Report, strips: Sequence[Strip]) -> Html:
    """A strip for each kind of block, and a legend; nothing where no numbers were read."""
    groups: dict[str, list[Strip]] = {}
    names = {
        block.path: row_name(section, block)
        for section in report.sections
        for block in section.blocks
    }
    for strip in strips:
        groups.setdefault(names[strip.of.block.path], []).append(strip)
    if not groups:
        return Html("")
    figures = [_strip(name, of) for name, of in list(groups.items())[:_MOST_STRIPS]]
    more = len(groups) - _MOST_STRIPS
    return inside(
        element(
            "p",
            "Root mean square of the stored numbers: layers from the top down, cells from the "
            f"left. Each step of colour is {_FACTOR} times the one before, up to the most of "
            "each drawing.",
            class_="quiet",
        ),
        element("div", *figures, class_="grid heat"),
        element("p", f"{more:,} more kinds of blocks", class_="quiet") if more > 0 else "",
        _legend(),
        aside(
            "the blocks as a table",
            table(
                ("numbers of", "type", "root mean square", "zero rows", "not finite"),
                (_row(strip) for strip in strips[:_MOST_ROWS]),
                (2, 3, 4),
            ),
            element("p", f"{len(strips) - _MOST_ROWS:,} more", class_="quiet")
            if len(strips) > _MOST_ROWS
            else "",
        ),
    )


def _row(strip: Strip) -> Sequence[str]:
    one = strip.of
    rms = f"{one.rms:.4g}"
    return one.block.path, one.type.name, rms, f"{one.zero_rows:,}", f"{one.non_finite:,}"


def _strip(name: str, strips: Sequence[Strip]) -> Html:
    bands = list(_bands(strips))
    bins = max(len(rms) for rms, _ in bands)
    finite = [value for rms, _ in bands for value in rms if math.isfinite(value)]
    most = max(finite, default=0.0)
    steps: list[list[str]] = [[] for _ in range(STEPS)]
    zero, bad, crosses = list[str](), list[str](), list[str]()
    for row, (rms, non_finite) in enumerate(bands):
        width = bins / len(rms)
        for start, stop, kind in _runs(
            [_step(v, n, most) for v, n in zip(rms, non_finite, strict=True)]
        ):
            shape = rectangle(start * width, row, (stop - start) * width, 1)
            (bad if kind == _BAD else zero if kind == _ZERO else steps[kind]).append(shape)
        for at, n in enumerate(non_finite):
            if n:
                crosses.append(f"M{at * width:.3g} {row}l{width:.3g} 1m0-1l{-width:.3g} 1")
    n_bad = sum(strip.of.non_finite for strip in strips)
    says = f"{counted(len(strips), 'layer')}, up to {most:.4g}"
    says += f", {n_bad:,} not finite" if n_bad else ", all finite"
    shapes = [path(f"h{step}", "".join(found)) for step, found in enumerate(steps) if found]
    shapes += [
        path(kind, "".join(found))
        for kind, found in (("zero", zero), ("nan", bad), ("cross", crosses))
        if found
    ]
    picture = drawing(f"numbers of {name}", *shapes, width=bins, height=len(bands), says=says)
    height = min(_TALLEST, max(2 * _THICK, _THICK * len(bands)))
    cells = strips[0].edges[-1]
    left = ("layer 0", f"{len(strips) - 1:,}") if len(strips) > 1 else ("layer 0",)
    below = ("cell 0", f"{cells - 1:,}") if cells > 1 else ("cell 0",)
    boxed = element("div", picture, style=f"height:{height}px", class_="box")
    return figure(name, plot(boxed, left, below), caption=says)


def _bands(strips: Sequence[Strip]) -> Iterator[tuple[list[float], list[int]]]:
    """Layers, neighbours together where there are too many: the most of each."""
    n = len(strips)
    rows = min(n, _MOST_LAYERS)
    for row in range(rows):
        together = strips[row * n // rows : (row + 1) * n // rows]
        bins = max(len(strip.rms) for strip in together)
        alike = [strip for strip in together if len(strip.rms) == bins]
        yield (
            [
                max(values, key=lambda v: (not math.isfinite(v), v))
                for values in zip(*(s.rms for s in alike), strict=True)
            ],
            [sum(counts) for counts in zip(*(s.non_finite for s in alike), strict=True)],
        )


_BAD, _ZERO = -2, -1


def _step(rms: float, non_finite: int, most: float) -> int:
    """The colour of a value, to the most of its drawing."""
    if non_finite or not math.isfinite(rms):
        return _BAD
    if rms <= 0 or most <= 0:
        return _ZERO
    return max(0, STEPS - 1 - int(math.log(most / rms, _FACTOR)))


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches of one value: start, stop, value."""
    start = 0
    for at in range(1, len(values) + 1):
        if at == len(values) or values[at] != values[start]:
            yield start, at, values[start]
            start = at


def _legend() -> Html:
    colours = (path(f"h{step}", rectangle(step, 0, 1, 1)) for step in range(STEPS))
    return element(
        "p",
        "least",
        drawing("colours", *colours, width=STEPS, height=1, says="from the least to the most"),
        "most",
        drawing(
            "zero",
            path("zero", rectangle(0, 0, 1, 1)),
            width=1,
            height=1,
            says="all zero",
            class_="one",
        ),
        "all zero",
        drawing(
            "not finite",
            path("nan", rectangle(0, 0, 1, 1)),
            path("cross", "M0 0l1 1m0-1l-1 1"),
            width=1,
            height=1,
            says="NaN or infinity",
            class_="one",
        ),
        "NaN or infinity",
        class_="scale",
    )
