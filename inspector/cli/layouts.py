"""`slotscope layouts`: the documentation that the declarations carry."""

from __future__ import annotations

import typer


def layouts(
    layout_id: str = typer.Argument(
        "", metavar="[ID]", help="A layout, such as ggsq4.hybrid; none lists all."
    ),
) -> None:
    """List the known layouts, or print the fields of one with offsets, sizes, meaning and source."""
    from inspector.render.as_text import show_layout, show_layouts

    show_layout(layout_id) if layout_id else show_layouts()
