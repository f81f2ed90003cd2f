"""A Python script that writes a small file again, field by field."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

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
{beside}
    python {script} FILE
"""

{imports}
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


_TAIL_BESIDE = """
beside = {{
{companions}
}}
for suffix, text in beside.items():
    with open(sys.argv[1] + suffix, "wb") as file:
        file.write(base64.b64decode(text))
"""
_MOST_BESIDE = 64 << 10
"""Bytes of a companion that are written into the script."""
_CHARACTERS = 76
"""Of a companion that are written in one line."""


def script_of(small: Small, name: str, script: str) -> str:
    """The script for a file, and for the small ones of its companions.

    Args:
        small: what the file is made of.
        name: of the file.
        script: its own name.
    """
    layout = f", {small.layout.title} ({small.layout.id})" if small.layout is not None else ""
    observed = small.failure
    failure = f"{observed.outcome} {observed.detail}"
    if observed.gist:
        failure += f": {observed.gist}"
    held = {suffix: path for suffix, path in small.companions.items() if _fits(path)}
    head = _HEAD.format(
        name=_quiet(name),
        size=len(small.data),
        layout=layout,
        failure=_quiet(failure),
        script=_quiet(script),
        beside="".join(f"\n{_quiet(line)}\n" for line in _beside(small, name)),
        imports="import base64\nimport struct" if held else "import struct",
    )
    lines = [f"        {line}" for piece in small.pieces for line in _written(piece)]
    return head + "\n".join(lines) + "\n" + _TAIL + (_written_beside(held) if held else "")


def _fits(companion: Path) -> bool:
    return companion.stat().st_size <= _MOST_BESIDE


def _beside(small: Small, name: str) -> Iterator[str]:
    """What must lie beside the file, in a sentence each."""
    for suffix, path in small.companions.items():
        how = "which is written too"
        if not _fits(path):
            how = f"which is too large to be in here: copy it to FILE{suffix}"
        yield f"It fails only with {name}{suffix} beside it, {how}."


def _written_beside(companions: Mapping[str, Path]) -> str:
    lines = []
    for suffix, path in companions.items():
        text = base64.b64encode(path.read_bytes()).decode()
        lines.append(f'    "{suffix}": (')
        lines += [
            f'        "{text[at : at + _CHARACTERS]}"'
            for at in range(0, len(text) or 1, _CHARACTERS)
        ]
        lines.append("    ),")
    return _TAIL_BESIDE.format(companions="\n".join(lines))


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
