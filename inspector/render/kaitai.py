"""A layout as a Kaitai Struct specification."""

from __future__ import annotations

import json
from collections.abc import Iterator

from formats.layout import Layout
from inspector.export import AHEAD, Field, Look, Type, identifier, types_of

_NEXT, _HEAD = "next_first", 12
"""What follows an item, and the bytes that another one has at least."""


def ksy(layout: Layout) -> str:
    """The text of a .ksy file.

    Args:
        layout: the layout.
    """
    first, *others = types_of(layout)
    alike = _alike([first, *others])
    lines = [
        "# Made of the declarations of slotscope. What this language cannot say is said in",
        "# remarks: counts that are not stored, and what only several readings tell.",
        "meta:",
        f"  id: {identifier(layout.id)}",
        f"  title: {json.dumps(layout.title)}",
        "  license: MIT",
        "  endian: le",
        *(_type(first, "", alike)),
    ]
    if others:
        lines.append("types:")
        for one in others:
            lines += [f"  {one.name}:", *_type(one, "    ", alike)]
    return "\n".join(lines) + "\n"


def _type(one: Type, indent: str, alike: dict[str, str]) -> Iterator[str]:
    if one.doc:
        yield f"{indent}doc: {json.dumps(one.doc)}"
    looks: list[tuple[str, Look]] = []
    yield f"{indent}seq:" if one.fields else f"{indent}seq: []"
    for field in one.fields:
        yield f"{indent}  - id: {field.name}"
        for key, value in _keys(field, looks, alike):
            yield f"{indent}    {key}: {value}"
        if field.remark:
            yield f"{indent}    # {field.remark}"
    found = [(name, AHEAD[look.size]) for name, look in looks]
    if one.name in alike:
        found.append((_NEXT, one.fields[0].type))
    if found:
        yield f"{indent}instances:"
        for name, type_ in found:
            yield f"{indent}  {name}:"
            yield f"{indent}    pos: _io.pos"
            yield f"{indent}    type: {type_}"


def _alike(types: list[Type]) -> dict[str, str]:
    """Types of which as many items follow as begin alike -> the field that they begin with."""
    first = {one.name: one.fields[0].name for one in types if one.fields}
    repeated = [field.type for one in types for field in one.fields if field.count == "alike"]
    return {name: first[name] for name in repeated}


def _keys(
    field: Field, looks: list[tuple[str, Look]], alike: dict[str, str]
) -> Iterator[tuple[str, str]]:
    if field.type == "str":
        yield "type", "str"
        yield "encoding", "ASCII"
    elif field.type != "bytes":
        yield "type", field.type
    if field.size == "eos":
        yield "size-eos", "true"
    elif field.size:
        yield "size", field.size
    if field.count == "eos":
        yield "repeat", "eos"
    elif field.count == "alike":
        yield "repeat", "until"
        yield "repeat-until", f"_io.size - _io.pos < {_HEAD} or _.{_NEXT} != _.{alike[field.type]}"
    elif field.count:
        yield "repeat", "expr"
        yield "repeat-expr", field.count
    if field.conditions:
        yield "if", json.dumps(" and ".join(_said(one, looks) for one in field.conditions))
    if field.doc:
        yield "doc", json.dumps(field.doc)


def _said(condition: str | Look, looks: list[tuple[str, Look]]) -> str:
    """A condition; one on the next bytes reads them where they are first asked for."""
    if isinstance(condition, str):
        return condition
    name = condition.name
    if all(name != known for known, _ in looks):
        looks.append((name, condition))
    first = f"{condition.first} and " if condition.first else ""
    room = f"_io.size - _io.pos >= {max(condition.size, condition.room)}"
    if condition.holds.startswith("not"):
        return f"({condition.holds.format(name)})"
    return f"({first}{room} and {condition.holds.format(name)})"
