"""Standard output and standard error, as all commands use them."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from inspector.cli.exits import USAGE
from inspector.render.escape import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_Data = TypeVar("_Data", str, bytes)

_WIDTH = 80
"""Columns of what is no terminal, unless COLUMNS says how many."""

_ASCII = str.maketrans("│░·…\N{MULTIPLICATION SIGN}≠≥≤▁▂▃▄▅▆▇█", "|:-~x!><_.-=+*%#")
"""What is drawn instead, character for character, where only ASCII can be."""


_ESCAPED = re.compile(r"\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2}")
"""In JSON: a backslash, a pair of surrogates, or one alone, which no other program takes."""
_LONE = 6
"""Characters of a surrogate that is written alone."""


NOT_REGULAR = "not a regular file"
"""What `inspector.source` says of a pipe."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def show(page: Iterable[RenderableType]) -> None:
    """Print text for people, in colour on a terminal unless NO_COLOR is set.

    It is no wider than that, but for lines that say themselves that they must not be folded.
    """
    console = _console()
    with console.capture() as captured:
        for part in page:
            whole = getattr(part, "no_wrap", None) is True
            console.print(part, crop=False, no_wrap=whole, overflow="ignore" if whole else None)
    _write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def on_terminal() -> bool:
    """Whether text goes to a terminal, which a reader can make wider."""
    return sys.stdout is not None and sys.stdout.isatty()


def width() -> int:
    """Columns that text for people may take."""
    return _console().width


def document(text: str) -> None:
    """Print a document for programs."""
    if "\\ud" in text:
        text = _ESCAPED.sub(lambda m: "\\ufffd" if len(m[0]) == _LONE else m[0], text)
    _write(text + "\n")


def exactly(text: str) -> None:
    """Print a text as it is, in UTF-8 and with nothing added: to a pipe or into a file."""
    if sys.stdout is not None:
        _deliver(sys.stdout.buffer.write, text.encode("utf-8", "replace"))


def see_file_name(output: Path) -> None:
    """See that the output of -o has the name of a file.

    Raises:
        BadParameter: if it has none, as `.` and `/`, or stands for standard output.
    """
    if not output.name or str(output) == "-":
        raise typer.BadParameter(f"{str(output)!r} is no name of a file", param_hint="-o")


def unread(file: Path, error: Exception) -> str:
    """Why a file could not be looked at, and the way out if it is no file."""
    why = str(error)
    if why == NOT_REGULAR or str(file) == "-":
        why += ": write it to a file first, it is read from several places"
    return why


def failed(file: Path, why: str) -> dict[str, Any]:
    """What stands in a list of documents for a file that could not be looked at."""
    return {"file": {"name": file.name, "path": str(file)}, "error": why}


def complain(message: str) -> None:
    """Say on standard error what could not be done."""
    print(f"slotscope: {printable(message)}", file=sys.stderr)


def say_removed(paths: Iterable[Path]) -> None:
    """Name the files that --force removed."""
    for path in paths:
        complain(f"{path}: removed, it would be taken for a companion")


def _console() -> Console:
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    piped = int(columns) if columns.isdecimal() else 0
    return Console(
        width=None if on_terminal() else piped or _WIDTH,
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


def gave_up(error: OSError) -> bool:
    """Whether an error is that of a full disk; if so that is said, and nothing more is written."""
    if sys.stdout is None or error.errno not in _FULL:
        return False
    _into_nothing()
    complain(f"cannot write: {error.strerror}")
    return True


def _into_nothing() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
