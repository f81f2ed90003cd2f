"""`slotscope layouts`: the documentation that the declarations carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from inspector.cli.completion import languages, layout_ids
from inspector.cli.exits import USAGE
from inspector.cli.output import complain, exactly, show

if TYPE_CHECKING:
    from formats.layout import Layout


def layouts(
    layout_id: str = typer.Argument(
        "",
        metavar="[ID]",
        autocompletion=layout_ids,
        help="A layout, such as ggsq4.hybrid; none lists all.",
    ),
    export: str | None = typer.Option(
        None,
        metavar="LANGUAGE",
        autocompletion=languages,
        help="Print it as ksy (Kaitai Struct) or hexpat (ImHex; not tried there).",
    ),
) -> None:
    """List the known layouts, or print every field of one: offset, size, meaning, source."""
    from formats.layouts import all_layouts, by_id
    from inspector.render.manual import layout_list, layout_page, nearest_name

    if export is not None and (export not in ("ksy", "hexpat") or not layout_id):
        complain("--export takes ksy or hexpat, and one layout")
        raise typer.Exit(USAGE)
    if not layout_id:
        show(layout_list(all_layouts()))
        return
    layout = by_id(layout_id)
    if layout is None:
        near = nearest_name(layout_id, [layout.id for layout in all_layouts()])
        complain(f"no layout {layout_id!r}; {near}")
        raise typer.Exit(USAGE)
    if export is not None:
        exactly(_exported(layout, export))
    else:
        show(layout_page(layout))


def _exported(layout: Layout, language: str) -> str:
    if language == "ksy":
        from inspector.render.kaitai import ksy

        return ksy(layout)
    from inspector.render.imhex import hexpat

    return hexpat(layout)
