"""`slotscope fuzz`: test data for loaders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inspector.cli.completion import layout_ids
from inspector.cli.exits import USAGE
from inspector.cli.fuzz_mutate import mutate
from inspector.cli.fuzz_output import manifest, put, ready
from inspector.cli.fuzz_run import dictionary, minimize, run
from inspector.cli.output import complain, document
from inspector.cli.usage import Commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from formats.layout import Layout

fuzz = typer.Typer(
    name="fuzz",
    cls=Commands,
    help="Test data for loaders of these files: valid ones, and named mutations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
fuzz.command()(run)
fuzz.command()(minimize)
fuzz.command()(dictionary)
fuzz.command()(mutate)


@fuzz.command()
def generate(
    out: Path = typer.Option(..., "--out", metavar="DIR", help="Where to write; must be empty."),
    layout: list[str] = typer.Option(
        [],
        "--layout",
        metavar="ID",
        autocompletion=layout_ids,
        help="Only files of this layout; repeatable.",
    ),
    seed: int = typer.Option(0, metavar="S", help="The same seed gives the same files."),
    count: int | None = typer.Option(
        None, min=1, metavar="N", help="At most so many files; all combinations by default."
    ),
    max_bytes: int | None = typer.Option(
        None, "--max-bytes", min=1, metavar="B", help="Leave larger files out."
    ),
    force: bool = typer.Option(False, "--force", help="Write into a folder that is not empty."),
) -> None:
    """Write small valid files of every layout, and manifest.json that says what they are.

    The smallest file of each layout comes first, then states with sidecars, then files in which
    tokens, types, transposed values, streams and checkpoints occur in all pairs.
    """
    from inspector.fuzzing.generator import corpus
    from inspector.fuzzing.manifest import GENERATE_SCHEMA, entry_of

    layouts = _layouts(layout)
    ready(out, force=force)
    entries: list[dict[str, Any]] = []
    for one in corpus(layouts, seed):
        if count is not None and len(entries) == count:
            break
        if max_bytes is not None and len(one.data) > max_bytes:
            continue
        put(out / one.name, one.data)
        for suffix, data in one.companions.items():
            put(out / (one.name + suffix), data)
        entries.append(entry_of(one))
    manifest(out, {"schema": GENERATE_SCHEMA, "seed": seed, "files": entries})
    covered = {entry["layout"] for entry in entries}
    if missing := [layout.id for layout in layouts if layout.id not in covered]:
        complain(f"no file of {len(missing)} layouts: {', '.join(missing[:8])}")
    document(f"{out}: {len(entries):,} files of {len(covered):,} layouts")


def _layouts(ids: Sequence[str]) -> list[Layout]:
    from formats.layouts import all_layouts, by_id
    from inspector.render.manual import nearest_name

    found = [by_id(layout_id) for layout_id in ids]
    for layout_id, layout in zip(ids, found, strict=True):
        if layout is None:
            near = nearest_name(layout_id, [layout.id for layout in all_layouts()])
            complain(f"no layout {layout_id!r}; {near}")
            raise typer.Exit(USAGE)
    return [layout for layout in found if layout is not None] or list(all_layouts())
