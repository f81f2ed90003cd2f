"""`slotscope browse`: a file on the screen, to look around in."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from inspector.cli.exits import CRASH, USAGE
from inspector.cli.output import complain, unread


def browse(
    file: Path = typer.Argument(
        ..., metavar="FILE", readable=False, help="A state, a sidecar or a model file."
    ),
    show_tokens: bool = typer.Option(
        False, "--show-tokens", help="Show token ids. They are text: think of who looks on."
    ),
) -> None:
    """Look around in FILE: the tree on the left, annotated bytes on the right, findings below.

    Needs a terminal, and the package textual: pip install "slotscope[browse]". The key ? says what
    the keys do.
    """
    from inspector.source import Unreadable

    try:
        from inspector.browsing.app import Browser
    except ImportError as error:
        complain('browse needs the package textual: pip install "slotscope[browse]"')
        raise typer.Exit(USAGE) from error
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("browse needs a terminal; slotscope inspect prints")
        raise typer.Exit(USAGE)
    from inspector.report import examined

    try:
        with examined(file) as report:
            browser = Browser(report, show_tokens=show_tokens)
            browser.run()
            if browser.bug is not None:
                raise browser.bug
            if browser.deaf:
                complain("browse has ended: the keys of this terminal cannot be read")
                raise typer.Exit(CRASH)
    except Unreadable as error:
        complain(f"{file}: {unread(file, error)}")
        raise typer.Exit(USAGE) from error
