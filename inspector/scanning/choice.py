"""Which rows of a scan are shown, and in what order: `restore=refuses`, `size>1G`, `-age`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from inspector.findings import Severity
from inspector.identify import Verdict
from inspector.scanning.scan import Kind, Row, Sealed
from inspector.server.loader import Outcome

Value = float | str | None

_RANKS = {str(severity): severity.rank for severity in Severity}
_SOUND = len(_RANKS)
_TERM = re.compile(r"([a-z]+)\s*(!=|<=|>=|=|<|>|~)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_BYTES = {"": 1, "b": 1, **{k: 1 << 10 * (i + 1) for i, k in enumerate("kmgt")}}
_FEW = 12
"""Words that are all named to who writes another one."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class BadChoice(Exception):
    """A filter or an order that cannot be; the message says why."""


@dataclass(frozen=True, slots=True)
class Field:
    """Something that rows are chosen by.

    Attributes:
        of: its value in a row; None if the row has none.
        units: of its numbers, by suffix; None for words.
        known: all words that it can be; None if there is no end of them.
    """

    of: Callable[[Row], Value]
    units: dict[str, int] | None = None
    known: Callable[[], Iterable[str]] | None = None


def _age(row: Row) -> float | None:
    """Seconds since the last change."""
    return None if row.mtime_ns is None else time.time() - row.mtime_ns / 1e9


def _codes() -> Iterable[str]:
    from inspector.checks import all_codes

    return all_codes()


def _of_layouts(name: str) -> Callable[[], Iterable[str]]:
    """What a field of the layout table holds, in its order; empty for a file without a layout."""

    def known() -> Iterable[str]:
        from formats.layouts import all_layouts

        return dict.fromkeys(("", *(getattr(layout, name) or "" for layout in all_layouts())))

    return known


def _formats() -> Iterable[str]:
    from inspector.containers import FORMATS

    return (*_of_layouts("format")(), *FORMATS)


_RESTORE = Field(lambda row: row.restore or "none", known=lambda: (*Outcome, "none"))
_MODEL = ("matches", "differs", "not-tested", "undecidable", "none")

FIELDS = {
    "path": Field(lambda row: row.path),
    "name": Field(lambda row: row.name),
    "kind": Field(lambda row: row.kind, known=lambda: Kind),
    "size": Field(lambda row: row.size, _BYTES),
    "age": Field(_age, _SECONDS),
    "identity": Field(lambda row: row.verdict, known=lambda: Verdict),
    "format": Field(lambda row: row.format or "", known=_formats),
    "version": Field(lambda row: row.version, {"": 1}),
    "writer": Field(lambda row: row.writer or ""),
    "layout": Field(lambda row: row.layout or "", known=_of_layouts("id")),
    "memory": Field(lambda row: row.memory, known=_of_layouts("memory")),
    "tokens": Field(lambda row: row.n_tokens, {"": 1}),
    "checkpoints": Field(lambda row: row.n_checkpoints, {"": 1}),
    "usable": Field(lambda row: row.n_usable, {"": 1}),
    "verdict": _RESTORE,
    "restore": _RESTORE,
    "reused": Field(lambda row: row.reused, {"": 1}),
    "model": Field(lambda row: row.model or "none", known=lambda: _MODEL),
    "seal": Field(lambda row: row.sealed or "none", known=lambda: (*Sealed, "none")),
    "worst": Field(
        lambda row: row.worst or ("error" if row.problem else "sound"),
        known=lambda: (*_RANKS, "sound"),
    ),
    "finding": Field(lambda row: " ".join(found.code for found in row.findings), known=_codes),
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


def names_kind(term: str) -> bool:
    """Whether a filter says which kind it wants: also those that have no line otherwise."""
    match = _TERM.fullmatch(term.strip())
    return match is not None and match[1] == "kind" and match[2] in "=~"


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
    if field.known is not None and operator in "~!=":
        _see_known(words, list(field.known()), term, part=operator == "~")
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


def _see_known(words: str, known: list[str], term: str, *, part: bool) -> None:
    """See that there can be a row of that word, so that none is no mistyped all-clear.

    Raises:
        BadChoice: naming the words that there are, or those most like it.
    """
    if words in known or (part and any(words.lower() in one for one in known)):
        return
    if len(known) <= _FEW:
        of = ", ".join(known)
    else:
        like = sorted((one for one in known if words.lower() in one), key=len)
        like = like or get_close_matches(words, known, 3, 0.5)
        of = f"{len(known)} that are known" + (f"; like it: {', '.join(like[:3])}" if like else "")
    raise BadChoice(f"{term!r}: {words!r} is {'part of none' if part else 'none'} of {of}")


def _of_findings(operator: str, words: str, term: str) -> Callable[[Row], bool]:
    """A code, or with ~ a part of one."""
    if operator == "~":
        return lambda row: any(words.lower() in found.code for found in row.findings)
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
