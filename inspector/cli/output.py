"""Standard output and standard error, as all commands use them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from inspector.cli.exits import USAGE
from inspector.render.escape import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_Data = TypeVar("_Data", str, bytes)

_WIDTH = 80
"""Columns of what is no terminal."""

_ASCII = str.maketrans("│░·…\N{MULTIPLICATION SIGN}≠≥≤▁▂▃▄▅▆▇█", "|:-~x!><_.-=+*%#")
"""What is drawn instead, character for character, where only ASCII can be."""


def show(page: Iterable[RenderableType]) -> None:
    """Print text for people: no wider than the terminal, in colour there unless NO_COLOR is set."""
    console = _console()
    with console.capture() as captured:
        for part in page:
            console.print(part)
    _write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def width() -> int:
    """Columns that text for people may take."""
    return _console().width


def document(text: str) -> None:
    """Print a document for programs."""
    _write(text + "\n")


def exactly(text: str) -> None:
    """Print a text as it is, in UTF-8 and with nothing added: to a pipe or into a file."""
    if sys.stdout is not None:
        _deliver(sys.stdout.buffer.write, text.encode())


def complain(message: str) -> None:
    """Say on standard error what could not be done."""
    print(f"slotscope: {printable(message)}", file=sys.stderr)


def _console() -> Console:
    from rich.console import Console

    return Console(
        width=None if sys.stdout is not None and sys.stdout.isatty() else _WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        markup=False,
        highlight=False,
        emoji=False,
    )


def _write(text: str) -> None:
    if sys.stdout is None:  # closed by who started us; the exit code still tells
        return
    encoding = sys.stdout.encoding or "utf-8"
    if not encoding.lower().startswith("utf") or os.environ.get("LC_ALL") in ("C", "POSIX"):
        text = text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")
    _deliver(sys.stdout.write, text)


def _deliver(write: Callable[[_Data], object], data: _Data) -> None:
    try:
        write(data)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: go on quietly, for the exit code
        _into_nothing()
    except OSError as error:
        _into_nothing()
        complain(f"cannot write: {error.strerror}")
        raise SystemExit(USAGE) from error


def _into_nothing() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
