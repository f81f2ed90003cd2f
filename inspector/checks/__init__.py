"""The file against itself: every check is a pure function from what was read to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from inspector.checks.cells import check_cells
from inspector.checks.envelope import check_envelope
from inspector.checks.extent import check_extent
from inspector.checks.layers import check_layers
from inspector.checks.subject import Subject
from inspector.checks.tokens import check_tokens
from inspector.findings import Finding

CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    check_envelope,
    check_extent,
    check_tokens,
    check_cells,
    check_layers,
)


def findings_of(subject: Subject) -> tuple[Finding, ...]:
    """All findings about one file by itself."""
    found = [finding for check in CHECKS for finding in check(subject)]
    if (mend := subject.identification.mend) is not None:
        derailed = ("cells.", "layers.", "layout.flag", "tokens.cells-mismatch", "file.truncated")
        found = [
            f for f in found if f.span.stop <= mend.span.start or not f.code.startswith(derailed)
        ]
    return in_order(tuple(found))


def in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The worst first; of equal ones those of the file itself, then by place."""
    return tuple(sorted(findings, key=lambda f: (f.severity.rank, f.carrier, f.span)))
