"""Prompts as commands take them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from inspector.cli.output import NOT_REGULAR
from inspector.render.escape import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BYTES = 1 << 24
"""More than two million tokens."""


def token_ids(name: str, option: str) -> Sequence[int]:
    """The token ids in a JSON file.

    Args:
        name: of the file; `-` for standard input.
        option: that named it.
    """
    from json import loads

    from inspector.source import Unreadable, opened

    ids, problem = None, "no JSON array of token ids"
    try:
        if name == "-" and sys.stdin is None:
            raise Unreadable("standard input is closed")
        if name == "-":
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with opened(name) as source:
                data = source.read_at(0, min(source.size, _MOST_BYTES + 1))
        if len(data) > _MOST_BYTES:
            problem = "larger than 16 MiB"
        else:
            ids = loads(data)
    except Unreadable as error:
        problem = str(error)
        if problem == NOT_REGULAR:
            problem += f": pipe it to {option} -"
    except (OSError, ValueError, RecursionError):
        pass
    if not isinstance(ids, list) or not ids or not all(type(one) is int for one in ids):
        raise typer.BadParameter(f"{printable(name)}: {problem}", param_hint=option)
    if any(not -(1 << 31) <= one < 1 << 31 for one in ids):
        raise typer.BadParameter(f"{printable(name)}: ids beyond 32 bits", param_hint=option)
    return ids
