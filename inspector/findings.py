"""Findings: what is wrong or worth knowing, with the evidence; and the register of their codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inspector.span import Span


class Severity(StrEnum):
    """How bad it is, by consequence."""

    ERROR = "error"
    """Its writer's loader refuses or misreads it, or the server dies or answers wrongly later."""
    WARNING = "warning"
    """It loads, but contradicts itself or anything a known writer writes, or costs reuse."""
    NOTE = "note"
    """Worth knowing."""

    @property
    def rank(self) -> int:
        """0 for an error, 2 for a note."""
        return list(Severity).index(self)


class RemedyKind(StrEnum):
    """What can be done."""

    EXACT = "exact"
    """The right bytes follow from the rest of the file."""
    LOSSY = "lossy"
    """Something is lost; the text says what."""
    NONE = "none"
    """Nothing; the text says why."""


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding. A released code keeps its meaning.

    Attributes:
        code: `region.problem`.
        severity: by consequence.
        meaning: one line.
        consequence: what a server or a person will see.
        remedy: what kind of help there is.
        advice: what to do, what is lost, or why nothing helps.
        source: where the consequence is known from.
    """

    code: str
    severity: Severity
    meaning: str
    consequence: str
    remedy: RemedyKind
    advice: str
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, where, and how we know.

    Attributes:
        code: a registered code.
        path: the node, as in the tree.
        span: absolute bytes in the file that has them.
        message: what is there, in one sentence.
        expected: what should be there.
        actual: what is there.
        evidence: further facts that prove it.
        carrier: the companion file the span lies in; empty for the file itself.
    """

    code: str
    path: str
    span: Span
    message: str
    expected: str
    actual: str
    evidence: tuple[str, ...] = ()
    carrier: str = ""

    @property
    def about(self) -> Code:
        """What the code says."""
        return CODES[self.code]

    @property
    def severity(self) -> Severity:
        """By consequence."""
        return CODES[self.code].severity


CODES: dict[str, Code] = {}


def register(*codes: Code) -> None:
    """Enter codes into the register.

    Raises:
        ValueError: if a code is there already.
    """
    for code in codes:
        if code.code in CODES:
            raise ValueError(code.code)
        CODES[code.code] = code


def worst(findings: tuple[Finding, ...]) -> Severity | None:
    """The severity of the worst of them."""
    return min((finding.severity for finding in findings), key=lambda s: s.rank, default=None)
