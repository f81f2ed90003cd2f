"""Folders of test files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from inspector.cli.exits import USAGE
from inspector.cli.output import complain


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


def manifest(out: Path, content: dict[str, Any], originals: Sequence[Path] = ()) -> None:
    """Write manifest.json."""
    from json import dumps

    put(out / "manifest.json", (dumps(content, indent=1) + "\n").encode(), originals)
