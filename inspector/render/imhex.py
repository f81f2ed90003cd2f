"""A layout as an ImHex pattern."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from formats.layout import Layout
from inspector.export import Field, Look, Type, types_of

_WORDS = (
    (re.compile(r"\b_parent\b"), "parent"),
    (re.compile(r"\band\b"), "&&"),
    (re.compile(r"\bor\b"), "||"),
    (re.compile(r"\bnot "), "!"),
    (re.compile(r"\b_io\.pos\b"), "$"),
)
_LEFT = "std::mem::size() - $"
_FLOATS = {4: "float", 8: "double"}
_SCALAR = re.compile(r"([usf])(\d)(be)?")


def hexpat(layout: Layout) -> str:
    """The text of a .hexpat file.

    Args:
        layout: the layout.
    """
    types = types_of(layout)
    lines = [
        f"// {layout.id}: {layout.title}",
        "// Made of the declarations of slotscope. What this language cannot say is said in",
        "// remarks: counts that are not stored, and what only several readings tell.",
        "#pragma endian little",
        "import std.mem;",
        "",
    ]
    for one in reversed(types):
        lines += [f"struct {_name(one.name)} {{", *_fields(one), "};", ""]
    lines.append(f"{_name(types[0].name)} {types[0].name} @ 0x00;")
    return "\n".join(lines) + "\n"


def _fields(one: Type) -> Iterator[str]:
    for field in one.fields:
        indent = "    "
        if field.remark:
            yield f"{indent}// {field.remark}"
        if field.conditions:
            yield f"{indent}if ({' && '.join(map(_said, field.conditions))})"
            indent += "    "
        yield f"{indent}{_declared(field)};"


def _declared(field: Field) -> str:
    comment = f" [[comment({json.dumps(field.doc)})]]" if field.doc else ""
    if field.type in ("bytes", "str"):
        kind = "u8" if field.type == "bytes" else "char"
        size = _LEFT if field.size == "eos" else _words(field.size)
        return f"{kind} {field.name}[{size}]{comment}"
    kind = _kind(field.type)
    if field.count == "alike":
        ahead = f"{_LEFT} >= 12 && std::mem::read_unsigned($, 4) == 0"
        return f"{kind} {field.name}[while({ahead})]{comment}"
    if field.count == "eos":
        return f"{kind} {field.name}[while(!std::mem::eof())]{comment}"
    if field.count:
        return f"{kind} {field.name}[{_words(field.count)}]{comment}"
    return f"{kind} {field.name}{comment}"


def _kind(type_: str) -> str:
    scalar = _SCALAR.fullmatch(type_)
    if scalar is None:
        return _name(type_)
    size = int(scalar[2])
    name = _FLOATS[size] if scalar[1] == "f" else f"{scalar[1]}{8 * size}"
    return f"be {name}" if scalar[3] else name


def _said(condition: str | Look) -> str:
    if isinstance(condition, str):
        return f"({_words(condition)})"
    read = f"std::mem::read_unsigned($, {condition.size})"
    first = f"{condition.first} && " if condition.first else ""
    room = f"{_LEFT} >= {max(condition.size, condition.room)}"
    if condition.holds.startswith("not"):
        return f"({_words(condition.holds.format(read))})"
    return f"({_words(first)}{room} && {_words(condition.holds.format(read))})"


def _words(formula: str) -> str:
    for pattern, word in _WORDS:
        formula = pattern.sub(word, formula)
    return formula


def _name(type_: str) -> str:
    return "".join(part.capitalize() for part in type_.split("_"))
