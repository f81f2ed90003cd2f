"""`slotscope fuzz`: test data for loaders."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inspector.cli.completion import layout_ids
from inspector.cli.exits import USAGE
from inspector.cli.fuzz_mutate import mutate
from inspector.cli.fuzz_output import folder, manifest, put, ready, stoppable
from inspector.cli.fuzz_run import dictionary, minimize, run
from inspector.cli.output import complain, document
from inspector.cli.usage import Commands
from inspector.render.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from formats.layout import Layout
    from inspector.fuzzing.generator import Generated

_BEGINS = re.compile(r"[a-z0-9.-]+--")
"""How the names of generated files begin."""

fuzz = typer.Typer(
    name="fuzz",
    cls=Commands,
    help="Test data for loaders of these files: valid ones, and named mutations.\n\n"
    "generate or mutate makes a folder of files, run gives them to a loader and says what it did, "
    "minimize makes one that harmed it small.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
fuzz.command()(run)
fuzz.command()(minimize)
fuzz.command()(dictionary)
fuzz.command()(mutate)


@fuzz.command()
def generate(
    out: Path = typer.Option(
        ..., "--out", metavar="DIR", parser=folder, help="Where to write; must be empty."
    ),
    layout: list[str] = typer.Option(
        [],
        "--layout",
        metavar="ID",
        autocompletion=layout_ids,
        help="Only files of this layout; repeatable.",
    ),
    seed: int = typer.Option(0, metavar="S", help="The same seed gives the same files."),
    count: int | None = typer.Option(
        None,
        min=1,
        metavar="N",
        help="At most so many files; all combinations by default, some 5,600 files.",
    ),
    max_bytes: int | None = typer.Option(
        None, "--max-bytes", min=1, metavar="B", help="Leave larger files out."
    ),
    for_: str | None = typer.Option(
        None,
        "--for",
        metavar="COMMAND",
        help='Only files that this server takes, as in "llama-server -m M.gguf".',
    ),
    build: str | None = typer.Option(
        None, metavar="BUILD", help="The build of that server: b11549, ik@2026-08-15."
    ),
    force: bool = typer.Option(
        False,
        "--force",
        help="Write into a folder that is not empty; what its manifest.json lists is removed.",
    ),
) -> None:
    """Write small valid files of every layout, and manifest.json that says what they are.

    The smallest file of each layout comes first, then states with sidecars, then files in which
    tokens, types, transposed values, streams and checkpoints occur in all pairs. They have the
    shapes of no real model, so a server refuses them: --for makes those that one takes, without
    sidecars.
    """
    from inspector.cli.bar import Bar
    from inspector.fuzzing.generator import corpus, n_files
    from inspector.fuzzing.manifest import GENERATE_SCHEMA, entry_of
    from inspector.render.page import counted

    if for_ is None and build is not None:
        complain("--build is of the server of --for")
        raise typer.Exit(USAGE)
    if for_ is not None and layout:
        complain("the server of --for says which layout")
        raise typer.Exit(USAGE)
    layouts = _layouts(layout)
    watched, total = sys.stderr is not None and sys.stderr.isatty(), count
    made: Iterable[Generated]
    if for_ is not None:
        made = _fitting(for_, build, seed)
    else:
        made = corpus(layouts, seed)
        if watched and count is None:
            total = n_files(layouts, seed)
    ready(out, _BEGINS, force=force)
    entries: list[dict[str, Any]] = []
    larger: dict[str, int] = {}
    bar = Bar(total)
    with stoppable(out), ExitStack() as stack:
        stack.callback(bar.clear)
        for done, one in enumerate(made):
            if count is not None and len(entries) == count:
                break
            if watched:
                bar.at(done if count is None else len(entries))
            if max_bytes is not None and len(one.data) > max_bytes:
                larger.setdefault(one.case.layout.id, len(one.data))
                continue
            put(out / one.name, one.data)
            for suffix, data in one.companions.items():
                put(out / (one.name + suffix), data)
            entries.append(entry_of(one))
    covered = {entry["layout"] for entry in entries}
    asked = larger if for_ is not None else [layout.id for layout in layouts]
    for why in _left_out(list(asked), covered, larger, count):
        complain(why)
    if not entries:
        complain(f"{out}: no file is left to write")
        raise typer.Exit(USAGE)
    manifest(out, {"schema": GENERATE_SCHEMA, "seed": seed, "files": entries})
    written = f"{counted(len(entries), 'file')} of {counted(len(covered), 'layout')}"
    document(f"{printable(str(out))}: {written}")


def _left_out(
    asked: list[str], covered: set[str], larger: Mapping[str, int], count: int | None
) -> Iterator[str]:
    """Which layouts have no file, and why.

    Args:
        asked: the ids of all that are to have one.
        covered: of those that have.
        larger: layout -> bytes of its smallest file, if --max-bytes leaves that out.
        count: after so many files there are no more.
    """
    from inspector.render.page import counted

    missing = [layout for layout in asked if layout not in covered]
    if large := [layout for layout in missing if layout in larger]:
        smallest, of = min(larger[layout] for layout in large), ", ".join(large[:8])
        which = "its smallest file" if len(large) == 1 else "the smallest file of them"
        yield (
            f"nothing of {counted(len(large), 'layout')}, {of}: {which} has "
            f"{counted(smallest, 'byte')}, more than --max-bytes"
        )
    if n := len(missing) - len(large):
        yield f"--count {count} leaves out {n:,} of {counted(len(asked), 'layout')}"


def _fitting(command: str, build: str | None, seed: int) -> list[Generated]:
    """Files that a server takes."""
    from inspector.fuzzing.generator import fitting
    from inspector.model.expectation import expected_state
    from inspector.server.target import BadTarget, target_of
    from inspector.source import Unreadable

    try:
        with target_of(command, build) as target:
            expected = expected_state(target)
        if isinstance(expected, str):
            raise LookupError(expected)
        return list(fitting(expected, seed))
    except (BadTarget, LookupError, Unreadable) as error:
        complain(str(error))
        raise typer.Exit(USAGE) from error


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
