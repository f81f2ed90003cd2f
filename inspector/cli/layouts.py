"""`slotscope layouts`: the documentation that the declarations carry."""

from __future__ import annotations

import typer

from inspector.cli.exits import USAGE
from inspector.cli.output import complain, show


def layouts(
    layout_id: str = typer.Argument(
        "", metavar="[ID]", help="A layout, such as ggsq4.hybrid; none lists all."
    ),
) -> None:
    """List the known layouts, or print every field of one: offset, size, meaning, source."""
    from formats.layouts import all_layouts, by_id
    from inspector.render.manual import layout_list, layout_page, nearest_name

    if not layout_id:
        show(layout_list(all_layouts()))
        return
    layout = by_id(layout_id)
    if layout is None:
        near = nearest_name(layout_id, [layout.id for layout in all_layouts()])
        complain(f"no layout {layout_id!r}; {near}")
        raise typer.Exit(USAGE)
    show(layout_page(layout))
