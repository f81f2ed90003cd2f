"""The options that name a server, as several commands have them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inspector.cli.completion import builds

ForOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="COMMAND",
        help='The server that will load it, as in "llama-server -m M.gguf -c 8192 -np 4".',
    ),
]
BuildOption = Annotated[
    str | None,
    typer.Option(
        "--build",
        metavar="BUILD",
        autocompletion=builds,
        help="Its build: b11549, v0.6.0, turboquant@b9079, ik@2026-08-15 …",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="GGUF", readable=False, help="Its model, in place of the one in --for."
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Ask the running server at this address what it is."),
]
