"""Which rows of a scan are shown, and in what order: `restore=refuses`, `size>1G`, `-age`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from inspector.findings import Severity
from inspector.scanning.scan import Row

Value = float | str | None

_RANKS = {str(severity): severity.rank for severity in Severity}
_SOUND = len(_RANKS)
_TERM = re.compile(r"([a-z]+)\s*(!=|<=|>=|=|<|>|~)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_BYTES = {"": 1, "b": 1, **{k: 1 << 10 * (i + 1) for i, k in enumerate("kmgt")}}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class BadChoice(Exception):
    """A filter or an order that cannot be; the message says why."""


@dataclass(frozen=True, slots=True)
class Field:
    """Something that rows are chosen by.

    Attributes:
        of: its value in a row; None if the row has none.
        units: of its numbers, by suffix; None for words.
    """

    of: Callable[[Row], Value]
    units: dict[str, int] | None = None


def _age(row: Row) -> float | None:
    """Seconds since the last change."""
    return None if row.mtime_ns is None else time.time() - row.mtime_ns / 1e9


FIELDS = {
    "path": Field(lambda row: row.path),
    "name": Field(lambda row: row.name),
    "kind": Field(lambda row: row.kind),
    "size": Field(lambda row: row.size, _BYTES),
    "age": Field(_age, _SECONDS),
    "identity": Field(lambda row: row.verdict),
    "format": Field(lambda row: row.format or ""),
    "version": Field(lambda row: row.version, {"": 1}),
    "writer": Field(lambda row: row.writer or ""),
    "layout": Field(lambda row: row.layout or ""),
    "memory": Field(lambda row: row.memory),
    "tokens": Field(lambda row: row.n_tokens, {"": 1}),
    "checkpoints": Field(lambda row: row.n_checkpoints, {"": 1}),
    "verdict": Field(lambda row: row.restore or "none"),
    "restore": Field(lambda row: row.restore or "none"),
    "reused": Field(lambda row: row.reused, {"": 1}),
    "model": Field(lambda row: row.model or "none"),
    "seal": Field(lambda row: row.sealed or "none"),
    "worst": Field(lambda row: row.worst or ("error" if row.problem else "sound")),
    "finding": Field(lambda row: " ".join(found.code for found in row.findings)),
}
"""What `--filter` and `--sort` know."""


def sort_key(order: str) -> tuple[Callable[[Row], Value], bool]:
    """What rows are sorted by, and whether the largest comes first.

    Raises:
        BadChoice: if there is no such field.
    """
    name = order.removeprefix("-")
    field = _field(name)
    if name == "worst":
        return (lambda row: _RANKS.get(str(field.of(row)), _SOUND)), order != name
    return field.of, order != name


def condition(term: str) -> Callable[[Row], bool]:
    """Whether a row is what `FIELD OPERATOR VALUE` says.

    Raises:
        BadChoice: if that cannot be said.
    """
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise BadChoice(f"{term!r} is none of FIELD=VALUE, !=, <, <=, >, >=, ~")
    name, operator, words = match.groups()
    field = _field(name)
    if name == "finding":
        return _of_findings(operator, words, term)
    if name == "worst" and operator not in "~!=":
        return _of_severity(operator, words, term)
    if operator == "~":
        return lambda row: words.lower() in str(field.of(row)).lower()
    if field.units is None and operator in ("=", "!="):
        return lambda row: (field.of(row) == words) is (operator == "=")
    if field.units is None:
        raise BadChoice(f"{term!r}: {name} holds words, which are compared by =, != and ~")
    wanted = _number(words, field.units, term)

    def holds(row: Row) -> bool:
        value = field.of(row)
        return isinstance(value, (int, float)) and _compared(value, operator, wanted)

    return holds


def _of_findings(operator: str, words: str, term: str) -> Callable[[Row], bool]:
    """A code, or with ~ a part of one."""
    if operator == "~":
        return lambda row: any(words in found.code for found in row.findings)
    if operator not in ("=", "!="):
        raise BadChoice(f"{term!r}: codes are compared by =, != and ~")
    return lambda row: any(found.code == words for found in row.findings) is (operator == "=")


def _of_severity(operator: str, words: str, term: str) -> Callable[[Row], bool]:
    """A severity; worse is more."""
    if words not in _RANKS:
        raise BadChoice(f"{term!r}: {words!r} is none of {', '.join(_RANKS)}")
    of = FIELDS["worst"].of
    return lambda row: _compared(-_RANKS.get(str(of(row)), _SOUND), operator, -_RANKS[words])


def _field(name: str) -> Field:
    if name not in FIELDS:
        raise BadChoice(f"{name!r} is none of {', '.join(FIELDS)}")
    return FIELDS[name]


def _number(words: str, units: dict[str, int], term: str) -> float:
    match = _NUMBER.fullmatch(words.strip())
    unit = match[2].lower() if match is not None else ""
    if units is _BYTES and len(unit) > 1:
        unit = re.sub(r"i?b$", "", unit)
    if match is None or unit not in units:
        known = [unit for unit in units if unit]
        more = f", with {', '.join(known)} behind it" if known else ""
        raise BadChoice(f"{term!r}: {words!r} is no number{more}")
    return float(match[1]) * units[unit]


def _compared(value: float, operator: str, wanted: float) -> bool:
    return {
        "=": value == wanted,
        "!=": value != wanted,
        "<": value < wanted,
        "<=": value <= wanted,
        ">": value > wanted,
        ">=": value >= wanted,
    }[operator]
