"""A Python script that writes a small file again, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator

from formats.spans import Member, Record, Scalar, Span, Table
from inspector.fuzzing.minimize import Small
from inspector.fuzzing.reshape import Piece, packing

_LINE = 16
"""Bytes of a payload that are written in one line."""
_MOST_ROWS = 256
_MAGIC = 1 << 16
"""Values from here on that mean something are written in hex."""
_CONTROL = re.compile(r"[^\x20-\x7e]")

_HEAD = '''"""Writes {name}: {size:,} bytes{layout}.

{failure}

    python {script} FILE
"""

import struct
import sys

data = b"".join(
    [
'''
_TAIL = """    ]
)
if len(sys.argv) != 2:
    sys.exit(f"usage: python {sys.argv[0]} FILE")
with open(sys.argv[1], "wb") as file:
    file.write(data)
"""


def script_of(small: Small, name: str, script: str) -> str:
    """The script for a file.

    Args:
        small: what the file is made of.
        name: of the file.
        script: its own name.
    """
    layout = f", {small.layout.title} ({small.layout.id})" if small.layout is not None else ""
    observed = small.failure
    failure = f"{observed.outcome} {observed.detail}: {observed.gist}"
    head = _HEAD.format(
        name=_quiet(name),
        size=len(small.data),
        layout=layout,
        failure=_quiet(failure),
        script=_quiet(script),
    )
    lines = [f"        {line}" for piece in small.pieces for line in _written(piece)]
    return head + "\n".join(lines) + "\n" + _TAIL


def _written(piece: Piece) -> Iterator[str]:
    about = f"  # {_quiet(piece.path)}" + (f": {_quiet(piece.doc)}" if piece.doc else "")
    con = piece.con
    if not piece.path:
        about = "  # not part of the layout"
    if isinstance(con, Scalar) and isinstance(piece.value, int):
        magic = piece.value in con.meanings and piece.value >= _MAGIC
        value = hex(piece.value) if magic else str(piece.value)
        yield f'struct.pack("{con.layout.format}", {value}),{about}'
    elif isinstance(con, Table) and _rows(con, piece):
        yield f"#{about[3:]}"
        layout = packing(con.row)
        for row in layout.iter_unpack(piece.data):
            yield f'struct.pack("{layout.format}", {", ".join(map(repr, row))}),'
    elif not any(piece.data):
        if piece.data:
            yield f"bytes({len(piece.data)}),{about}"
    else:
        yield f"#{about[3:]}"
        for at in range(0, len(piece.data), _LINE):
            yield f'bytes.fromhex("{piece.data[at : at + _LINE].hex(" ")}"),'


def _rows(con: Table, piece: Piece) -> bool:
    """Whether the rows of a table are written as numbers."""
    size = con.row_bytes
    whole = len(piece.data) % size == 0 and 0 < len(piece.data) // size <= _MOST_ROWS
    return whole and _integers(con.row)


def _integers(row: Span) -> bool:
    members = row.members if isinstance(row, Record) else ()
    scalars = [m.con for m in members if isinstance(m, Member)] or [row]
    return all(isinstance(con, Scalar) and con.type_name[0] in "ui" for con in scalars)


def _quiet(words: str) -> str:
    """Nothing that could end a docstring or a comment."""
    return _CONTROL.sub("?", words).replace('"""', "'''").replace("\\", "/")
