"""Folders of test files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from inspector.cli.exits import INTERRUPTED, USAGE
from inspector.cli.output import complain


def folder(name: str) -> Path:
    """The folder of --out; no name at all is not the one where we are.

    Raises:
        BadParameter: if there is no name.
    """
    if not name:
        raise typer.BadParameter("'' is no name of a folder")
    return Path(name)


def ready(
    out: Path, begins: re.Pattern[str], originals: Sequence[Path] = (), *, force: bool
) -> None:
    """Make the folder, and see that it is empty.

    Args:
        out: the folder.
        begins: how the names of new files begin.
        originals: what is never removed.
        force: whether it may be filled: what an earlier run left there is removed then.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        filled = any(out.iterdir())
    except OSError as error:
        complain(f"{out}: {error.strerror}")
        raise typer.Exit(USAGE) from error
    if filled and not force:
        complain(f"{out} is not empty: --force writes into it")
        raise typer.Exit(USAGE)
    if filled:
        _clear(out, begins, originals)


def _clear(out: Path, begins: re.Pattern[str], originals: Sequence[Path]) -> None:
    """Remove what an earlier run left, and see that nothing else is taken for a companion."""
    from inspector.fuzzing.manifest import MANIFEST, still_listed
    from inspector.render.page import counted
    from inspector.repair.apply import NotWritten, see_apart

    left = still_listed(out)
    gone = [path for path in left if not any(_same(path, original) for original in originals)]
    try:
        for path in sorted({*out.iterdir()} - {*gone}):
            if path.name == MANIFEST:
                raise NotWritten(f"{path} is of no fuzz generate or mutate: it is never replaced")
            if begins.match(_owner(path.name.removeprefix("."))):
                see_apart([path], originals)
                raise NotWritten(f"{path} would be taken for a companion of a new file: remove it")
        for path in gone:
            path.unlink()
    except NotWritten as error:
        complain(str(error))
        raise typer.Exit(USAGE) from error
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
        raise typer.Exit(USAGE) from error
    if gone:
        complain(f"{out}: {counted(len(gone), 'file')} of an earlier run removed")


def _same(path: Path, original: Path) -> bool:
    try:
        return path.samefile(original)
    except OSError:
        return False


def _owner(name: str) -> str:
    """The name of the file that one belongs to by its name; empty if it is no companion."""
    from inspector.bundle import RECORD, belongs_to

    if name.endswith(RECORD):
        return name.removesuffix(RECORD)
    owner = belongs_to(Path(name))[1]
    return owner.name if owner is not None else ""


@contextmanager
def stoppable(out: Path) -> Iterator[None]:
    """A time in which Ctrl-C leaves files without a manifest."""
    try:
        yield
    except KeyboardInterrupt:
        complain(f"stopped: {out} has no manifest.json")
        raise typer.Exit(INTERRUPTED) from None


def put(path: Path, data: bytes, originals: Sequence[Path] = ()) -> None:
    """Write a file, unless it is one of the originals."""
    from inspector.repair.apply import NotWritten, see_apart

    try:
        see_apart([path], originals)
        if path.is_symlink():
            raise NotWritten(f"{path} is a symbolic link: nothing is written through it")
        path.write_bytes(data)
    except NotWritten as error:
        complain(str(error))
        raise typer.Exit(USAGE) from error
    except OSError as error:
        complain(f"{path}: {error.strerror}")
        raise typer.Exit(USAGE) from error


def link(links: Mapping[Path, str], originals: Sequence[Path], *, force: bool) -> None:
    """Make symbolic links, none of them in place of an original.

    Args:
        links: their names, and what they say.
        originals: what is never replaced.
        force: whether other files may be.

    Raises:
        NotWritten: if one cannot be made.
    """
    from inspector.repair.apply import NotWritten, see_apart

    see_apart(list(links), originals)
    for path, target in links.items():
        try:
            if force:
                path.unlink(missing_ok=True)
            path.symlink_to(target)
        except OSError as error:
            raise NotWritten(f"{path}: {error.strerror}") from error


def manifest(out: Path, content: dict[str, Any], originals: Sequence[Path] = ()) -> None:
    """Write manifest.json."""
    from json import dumps

    from inspector.fuzzing.manifest import MANIFEST

    put(out / MANIFEST, (dumps(content, indent=1) + "\n").encode(), originals)
