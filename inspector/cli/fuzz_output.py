"""Folders of test files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from inspector.cli.exits import USAGE
from inspector.cli.output import complain


def folder(name: str) -> Path:
    """The folder of --out; no name at all is not the one where we are.

    Raises:
        BadParameter: if there is no name.
    """
    if not name:
        raise typer.BadParameter("'' is no name of a folder")
    return Path(name)


def ready(out: Path, *, force: bool) -> None:
    """Make the folder, and see that it is empty."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        filled = any(out.iterdir())
    except OSError as error:
        complain(f"{out}: {error.strerror}")
        raise typer.Exit(USAGE) from error
    if filled and not force:
        complain(f"{out} is not empty: --force writes into it")
        raise typer.Exit(USAGE)


def put(path: Path, data: bytes, originals: Sequence[Path] = ()) -> None:
    """Write a file, unless it is one of the originals."""
    from inspector.repair.apply import NotWritten, see_apart

    try:
        see_apart([path], originals)
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

    put(out / "manifest.json", (dumps(content, indent=1) + "\n").encode(), originals)
