"""`slotscope report`: one page with drawings, of one file or of many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from inspector.cli.check import code_of
from inspector.cli.completion import severities
from inspector.cli.exits import SOUND, USAGE
from inspector.cli.output import complain, document, see_file_name, unread
from inspector.cli.targets import BuildOption, ForOption, ModelOption, UrlOption

if TYPE_CHECKING:
    from inspector.render.html.page import Entry
    from inspector.report import Report
    from inspector.scanning.scan import Item
    from inspector.server.target import Target


def report(
    files: list[Path] = typer.Argument(
        ..., metavar="FILE...", readable=False, help="States or sidecars; all files of a folder."
    ),
    output: Path = typer.Option(
        ..., "-o", "--output", metavar="PAGE", help="Where to write the page, such as report.html."
    ),
    command: ForOption = None,
    build: BuildOption = None,
    model: ModelOption = None,
    url: UrlOption = None,
    deep: bool = typer.Option(False, "--deep", help="Read the stored numbers too."),
    show_tokens: bool = typer.Option(
        False, "--show-tokens", help="Show token ids. They are text: think before you send them."
    ),
    force: bool = typer.Option(False, "--force", help="Replace PAGE if it is there."),
    fail_on: str = typer.Option(
        "error",
        metavar="SEVERITY",
        autocompletion=severities,
        help="Exit 1 from this severity on: error, warning, note or never. "
        "A restore that is refused or kills the server exits 1 unless it is never.",
    ),
) -> None:
    """Write one page about FILE: what is in it, what is wrong, what a server reuses of it.

    The page needs no network, and works without scripts. It names files without their folders, and
    shows no tokens unless it is told to.
    """
    from inspector.findings import Severity
    from inspector.render.html.page import document as page
    from inspector.repair.apply import NotWritten
    from inspector.server.target import BadTarget, target_of

    if fail_on not in (*Severity, "never"):
        raise typer.BadParameter(
            f"{fail_on!r} is none of error, warning, note, never", param_hint="--fail-on"
        )
    see_file_name(output)
    limit = Severity(fail_on).rank if fail_on != "never" else -1
    alone = len(files) == 1 and not os.path.isdir(files[0])  # noqa: PTH112 - is_dir() raises
    try:
        with target_of(command, build, model, url=url) as target:
            entries, originals, code = _entries(
                files, target, limit, alone=alone, deep=deep, show_tokens=show_tokens
            )
            if entries:
                _write(page(entries, alone=alone), output, originals, force=force)
    except (BadTarget, NotWritten) as error:
        complain(str(error))
        raise typer.Exit(USAGE) from error
    raise typer.Exit(code)


def _files(paths: list[Path]) -> Iterator[Item]:
    """The files that are named, and those below folders; of these, companions go with a state."""
    from inspector.bundle import RECORD, belongs_to
    from inspector.scanning.folder import items
    from inspector.scanning.scan import Item

    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112
            yield Item(str(path), named=True)
            continue
        for item in items([str(path)]):
            _, owner = belongs_to(Path(item.path))
            beside = item.path.endswith(RECORD) or (owner is not None and os.path.exists(owner))  # noqa: PTH110
            if not item.special and not beside:
                yield item


def _entries(
    files: list[Path], target: Target, limit: int, *, alone: bool, deep: bool, show_tokens: bool
) -> tuple[list[Entry], list[Path], int]:
    """The sections of the page, the files that were read, and the exit code."""
    from inspector.overview import overview
    from inspector.render.html.page import Entry, entry
    from inspector.source import Unreadable

    entries, outcome = list[Entry](), SOUND
    originals = [Path(target.model.source.name)] if target.model is not None else []
    for item in _files(files):
        path = Path(item.path)
        try:
            if item.problem:
                raise Unreadable(item.problem)
            with overview(path, target, deep=deep) as found:
                if item.named or _is_ours(found.report):
                    companions = found.report.bundle.companions
                    originals += [path, *(Path(one.file.path) for one in companions)]
                    n = len(entries) + 1
                    entries.append(entry(found, n, alone=alone, show_tokens=show_tokens))
                    outcome = max(outcome, code_of(found.check, limit))
        except Unreadable as error:
            outcome = USAGE
            complain(f"{path}: {unread(path, error)}")
    if not entries:
        complain("nothing is written: there is no file to report on")
    return entries, originals, outcome if entries else USAGE


def _is_ours(report: Report) -> bool:
    """Whether a file of a folder is a state or a checkpoint list."""
    reading = report.identification.reading
    return reading is not None and reading.layout.format != "gguf"


def _write(page: str, output: Path, originals: list[Path], *, force: bool) -> None:
    from inspector.repair.apply import File, see_apart, write
    from inspector.repair.segments import Composed, Write

    see_apart([output], originals)
    data = page.encode("utf-8", "backslashreplace")
    content = Composed((Write(data, "report"),), output.name)
    write([File(output, content, 0o644)], (), lambda places: None, force=force)
    document(f"written: {output}")
