"""`slotscope geometry`: what a server stores of a model, and how long its slot files are."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from inspector.cli.exits import USAGE
from inspector.cli.output import complain, document, show

_USUAL = (0, 1000, 10000)
"""Tokens for which sizes are shown if none are given."""


def geometry(
    model: Path = typer.Argument(..., metavar="MODEL", help="A model file."),
    command: str | None = typer.Option(
        None, "--for", metavar="COMMAND", help='The server, as in "llama-server -c 8192 -np 4".'
    ),
    build: str | None = typer.Option(
        None, metavar="BUILD", help="Its build: b11549, v0.6.0, turboquant@b9079 …"
    ),
    env: bool = typer.Option(False, "--env", help="Take the variables that the server reads too."),
    tokens: list[int] = typer.Option(
        [], metavar="N", min=0, max=1 << 31, help="Text tokens to give the size for; repeatable."
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Say what a slot file for MODEL holds, and how many bytes it has for N tokens."""
    from inspector.model.expectation import expected_state
    from inspector.render.expectation import page, to_dict
    from inspector.server.target import BadTarget, target_of

    environment = os.environ if env else None
    try:
        with target_of(command, build, model, environment=environment) as target:
            state = expected_state(target)
            if isinstance(state, str):
                raise BadTarget(f"{model}: {state}")
            most = target.n_ctx_slot
            usual = {n for n in (*_USUAL, most or 0) if most is None or n <= most}
            wanted = sorted(set(tokens) or usual)
            if json:
                from json import dumps

                document(dumps(to_dict(target, state, wanted), indent=2))
            else:
                show(page(target, state, wanted))
    except BadTarget as error:
        complain(str(error))
        raise typer.Exit(USAGE) from error
