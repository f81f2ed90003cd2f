"""A layout as an ImHex pattern."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby

from formats.layout import Layout
from inspector.export import Field, Look, Type, negated, types_of

_WORDS = (
    (re.compile(r"\b_parent\b"), "parent"),
    (re.compile(r"\band\b"), "&&"),
    (re.compile(r"\bor\b"), "||"),
    (re.compile(r"\bnot "), "!"),
    (re.compile(r"\b_io\.pos\b"), "$"),
)
_LEFT = "std::mem::size() - $"
_FRAME_LEFT = "frame - ($ - addressof(this))"
_AHEAD = "std::mem::read_unsigned($, 4)"
_BYTES = ("bytes", "str")
_TAKEN = frozenset({"padding"})
"""Names of fields that are words of the language."""
_FLOATS = {4: "float", 8: "double"}
_SCALAR = re.compile(r"([usf])(\d)(be)?")


def hexpat(layout: Layout) -> str:
    """The text of a .hexpat file.

    Args:
        layout: the layout.
    """
    types = types_of(layout)
    framed = {one.type for type_ in types for one in type_.fields if _is_framed(one)}
    lines = [
        f"// {layout.id}: {layout.title}",
        "// Made of the declarations of slotscope, and not tried in ImHex. What this language",
        "// cannot say is said in remarks: counts that are not stored, and what only several",
        "// readings tell.",
        "#pragma endian little",
        "import std.mem;",
        "",
    ]
    for one in reversed(types):
        frame = "<auto frame>" if one.name in framed else ""
        lines += [
            f"struct {_name(one.name)}{frame} {{",
            *_fields(one, framed=bool(frame)),
            "};",
            "",
        ]
    lines.append(f"{_name(types[0].name)} {types[0].name} @ 0x00;")
    return "\n".join(lines) + "\n"


def _is_framed(field: Field) -> bool:
    """Whether it is of a type whose bytes are counted outside it."""
    return bool(field.size) and field.type not in _BYTES


def _fields(one: Type, *, framed: bool) -> Iterator[str]:
    left = _FRAME_LEFT if framed else _LEFT
    yield from _block(one.fields, 0, left)
    if framed and all(field.size != "eos" for field in one.fields):
        yield f"    padding[{left}];"


def _block(fields: list[Field], depth: int, left: str) -> Iterator[str]:
    """Fields that have so many conditions in common; those with more of them in blocks."""
    indent, before = "    " * (depth + 1), None
    for condition, group in groupby(fields, lambda one: one.conditions[depth : depth + 1]):
        if not condition:
            for field in group:
                if field.remark:
                    yield f"{indent}// {field.remark}"
                if field.count == "alike":
                    yield f"{indent}u32 {field.name}_first = {_AHEAD};"
                yield f"{indent}{_declared(field, left)};"
        else:
            otherwise = before is not None and condition[0] == negated(before)
            yield indent + ("else {" if otherwise else f"if ({_said(condition[0])}) {{")
            yield from _block(list(group), depth + 1, left)
            yield f"{indent}}}"
        before = condition[0] if condition else None


def _declared(field: Field, left: str) -> str:
    comment = f" [[comment({json.dumps(field.doc)})]]" if field.doc else ""
    name = f"{field.name}_" if field.name in _TAKEN else field.name
    if field.type in _BYTES:
        kind = "u8" if field.type == "bytes" else "char"
        size = left if field.size == "eos" else _words(field.size)
        return f"{kind} {name}[{size}]{comment}"
    kind = _kind(field.type)
    if field.size:
        kind += f"<{_words(field.size)}>"
    if field.count == "alike":
        return f"{kind} {name}[while({_LEFT} >= 12 && {_AHEAD} == {name}_first)]{comment}"
    if field.count == "eos":
        return f"{kind} {name}[while(!std::mem::eof())]{comment}"
    if field.count:
        return f"{kind} {name}[{_words(field.count)}]{comment}"
    return f"{kind} {name}{comment}"


def _kind(type_: str) -> str:
    scalar = _SCALAR.fullmatch(type_)
    if scalar is None:
        return _name(type_)
    size = int(scalar[2])
    name = _FLOATS[size] if scalar[1] == "f" else f"{scalar[1]}{8 * size}"
    return f"be {name}" if scalar[3] else name


def _said(condition: str | Look) -> str:
    if isinstance(condition, str):
        return _words(condition)
    read = f"std::mem::read_unsigned($, {condition.size})"
    first = f"{condition.first} && " if condition.first else ""
    room = f"{_LEFT} >= {max(condition.size, condition.room)}"
    if condition.holds.startswith("not"):
        return _words(condition.holds.format(read))
    return f"{_words(first)}{room} && {_words(condition.holds.format(read))}"


def _words(formula: str) -> str:
    for pattern, word in _WORDS:
        formula = pattern.sub(word, formula)
    return formula


def _name(type_: str) -> str:
    return "".join(part.capitalize() for part in type_.split("_"))
