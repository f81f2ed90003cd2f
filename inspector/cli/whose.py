"""`slotscope whose`: which model a state is of."""

from __future__ import annotations

from pathlib import Path

import typer

from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, show, unread


def whose(
    file: Path = typer.Argument(..., metavar="FILE", readable=False, help="A state."),
    models: list[Path] = typer.Argument(
        ..., metavar="MODEL...", readable=False, help="Model files, and folders of them."
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Say which of some models FILE is of, by the numbers of their first layers.

    Exit code 1 says that it is of none of them, as far as that can be told; 2 that there is no
    model among them.
    """
    from inspector.source import Unreadable
    from inspector.whose import candidates, model_files

    files = list(model_files(models))
    if not files:
        complain(f"no model files in {', '.join(map(str, models))}")
        raise typer.Exit(USAGE)
    try:
        found = candidates(file, files)
    except (Unreadable, OSError) as error:
        complain(f"{file}: {unread(file, error)}")
        raise typer.Exit(USAGE) from error
    if json:
        from json import dumps

        from inspector.render.whose import to_dict

        document(dumps(to_dict(file, found), indent=2))
    else:
        from inspector.render.whose import page

        show(page(file, found))
    if not any(candidate.architecture for candidate in found):
        raise typer.Exit(USAGE)
    raise typer.Exit(SOUND if any(candidate.likely for candidate in found) else FINDINGS)
