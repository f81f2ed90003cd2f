"""HTML that is safe to put together: what is not markup already is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from inspector.render.escape import printable


class Html(str):
    """Markup, as opposed to a text that is to be shown as it is."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: object) -> Html:
    """An element.

    Args:
        name: its tag.
        children: markup, or texts.
        attributes: `class_` is `class`, `aria_label` is `aria-label`; None is left out.
    """
    found = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{found}>{inside(*children)}</{name}>")


def inside(*children: str) -> Html:
    """Markup and texts one after another."""
    return Html("".join(one if isinstance(one, Html) else text(one) for one in children))


def text(words: str) -> Html:
    """A text as it is to be shown; what could hide or move something becomes visible."""
    return Html(escape(printable(words)))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> Html:
    """A table that scrolls within itself where it is too wide.

    Args:
        headings: of the columns.
        rows: cells.
        numbers: columns that are aligned to the right.
    """

    def line(cells: Sequence[str], tag: str) -> Html:
        kinds = ("num" if at in numbers else None for at in range(len(cells)))
        scope = "col" if tag == "th" else None
        return element(
            "tr",
            *(
                element(tag, cell, class_=k, scope=scope)
                for cell, k in zip(cells, kinds, strict=True)
            ),
        )

    return element(
        "div",
        element(
            "table",
            element("thead", line(headings, "th")),
            element("tbody", *(line(row, "td") for row in rows)),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=f"table: {', '.join(filter(None, headings))}",
    )


def prose(words: str) -> Html:
    """A text in which what stands between backticks is code."""
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return text(words)
    return inside(*(element("code", part) if at % 2 else part for at, part in enumerate(parts)))


def labelled(lines: Iterable[tuple[str, str]]) -> Html:
    """Labels, each with what is to be said under it; nothing where there are none."""
    found = [inside(element("dt", label), element("dd", prose(words))) for label, words in lines]
    return element("dl", *found) if found else Html("")


def aside(summary: str, *children: str) -> Html:
    """What is shown when somebody asks for it."""
    return element("details", element("summary", summary), *children)


def percent(part: float, whole: float) -> str:
    """A share as SVG and CSS take it, to a hundredth of a percent."""
    return f"{100 * part / whole if whole else 0:.2f}".rstrip("0").rstrip(".") + "%"
