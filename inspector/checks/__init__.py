"""The file against itself: every check is a pure function from what was read to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from inspector.checks.cells import check_cells
from inspector.checks.envelope import check_envelope
from inspector.checks.extent import check_extent
from inspector.checks.layers import check_layers
from inspector.checks.subject import Subject
from inspector.checks.tokens import check_tokens
from inspector.checks.weights import check_weights
from inspector.findings import CODES, Code, Finding

CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    check_envelope,
    check_extent,
    check_tokens,
    check_cells,
    check_layers,
    check_weights,
)


_DERAILING = ("layout.one-word-away", "recurrent.transposed")
"""Findings of a word behind which nothing is where it seems to be."""
_ANYWHERE = ("envelope.", "file.named-like-a-model")
"""Findings that do not depend on what such a word moves."""


def findings_of(subject: Subject) -> tuple[Finding, ...]:
    """All findings about one file by itself; of checkpoint lists none, `check_list` has those."""
    if subject.root.role == "checkpoints":
        return ()
    found = tuple(finding for check in CHECKS for finding in check(subject))
    words = [finding for finding in found if finding.code in _DERAILING]
    if words:
        word = min(words, key=lambda f: (f.span, _DERAILING.index(f.code)))
        found = tuple(
            f
            for f in found
            if f is word or f.span.stop <= word.span.start or f.code.startswith(_ANYWHERE)
        )
    return in_order(found)


_ON_DEMAND = (
    "checks.anchor",
    "checks.checkpoints",
    "checks.companions",
    "checks.containers",
    "checks.ik",
    "checks.model",
    "checks.reuse",
    "checks.seals",
    "checks.target",
    "checks.tensors",
    "model.identity",
)


def all_codes() -> dict[str, Code]:
    """The register of finding codes, those of the checks that are loaded on demand included."""
    for module in _ON_DEMAND:
        import_module(f"inspector.{module}")
    return CODES


_SAID_BETTER = {
    "file.trailing-unknown": "appendix.magic",
    "swa.count": "cells.window-anchor",
}
"""A finding, and the one that makes it pointless."""


def in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The worst first; of equal ones those of the file itself, then by place."""
    codes = {finding.code for finding in findings}
    kept = [f for f in findings if _SAID_BETTER.get(f.code) not in codes]
    return tuple(sorted(kept, key=lambda f: (f.severity.rank, f.carrier, f.span)))
