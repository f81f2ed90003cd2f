"""What all drawings have in common: a plot with its axes, and paths."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.render.html.markup import Html, element


def drawing(
    what: str, *shapes: str, width: float, height: float, says: str, class_: str = ""
) -> Html:
    """Shapes that are stretched to the room there is; no text is among them.

    Args:
        what: it shows, in few words.
        shapes: markup.
        width: of its coordinates.
        height: of its coordinates.
        says: what there is to be seen, in words.
        class_: of the style.
    """
    return element(
        "svg",
        element("title", what),
        element("desc", says),
        *shapes,
        viewBox=f"0 0 {number(width)} {number(height)}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{what}: {says}",
        class_=class_ or None,
    )


def plot(picture: str, left: Sequence[str], below: Sequence[str]) -> Html:
    """A drawing with the ends of its axes written beside it.

    Args:
        picture: the drawing.
        left: at the upright axis, from the top down.
        below: at the level axis, from the left.
    """
    return element(
        "div",
        element("div", *(element("span", words) for words in left), class_="y"),
        picture,
        element("div", *(element("span", words) for words in below), class_="x"),
        class_="plot",
    )


def figure(title: str, *children: str, caption: str = "") -> Html:
    """A drawing with what is to be said of it."""
    return element(
        "figure",
        element("figcaption", element("b", title), *([" ", caption] if caption else [])),
        *children,
    )


def number(value: float) -> str:
    """A coordinate, as short as it may be."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def path(class_: str, commands: str) -> Html:
    return element("path", d=commands, class_=class_)


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as commands of a path."""
    return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"
