"""The report on one file: everything that was found, ready to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector.checks import findings_of
from inspector.checks.envelope import unrecognised
from inspector.checks.subject import Subject
from inspector.findings import Finding
from inspector.identify import Identification, Verdict, identify
from inspector.sections import Block, Section, sections
from inspector.source import Source
from inspector.tokens import Tokens, tokens_of

SCHEMA = "slotscope.inspect/1"


@dataclass(frozen=True)
class Report:
    """What is known about one file.

    Attributes:
        name: the file's name, without folders.
        size: bytes.
        identification: what it is.
        sections: its memory sections in file order.
        tokens: its token field.
        findings: the worst first, then in file order.
    """

    name: str
    size: int
    identification: Identification
    sections: tuple[Section, ...]
    tokens: Tokens | None
    findings: tuple[Finding, ...]


def inspect(source: Source) -> Report:
    """Look at one file.

    Args:
        source: the open file.

    Returns:
        The report; the same bytes always give the same one.
    """
    name = Path(source.name).name
    identification = identify(source)
    if identification.reading is None:
        finding = unrecognised(source.size, source.read_at(0, 16))
        return Report(name, source.size, identification, (), None, (finding,))
    root = identification.reading.decoding.root
    parts, tokens = sections(root), tokens_of(root)
    subject = Subject(name, source.size, identification, identification.reading, parts, tokens)
    return Report(name, source.size, identification, parts, tokens, findings_of(subject))
