"""Models that a state may be of, as text for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.model.identity import Outcome
from inspector.render.page import STRONG, columns, counted, text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from inspector.whose import Candidate

_STYLES = {Outcome.MATCHES: "green", Outcome.RELATED: "yellow"}


def page(file: Path, found: Sequence[Candidate]) -> Iterator[RenderableType]:
    """A line for each model, the likeliest first."""
    likely = [candidate.path.name for candidate in found if candidate.likely]
    answer = ", ".join(likely) or f"none of {counted(len(found), 'model')}"
    yield text((str(file), STRONG), f": {answer}")
    table = columns("model", "", "why", fixed=("model", ""))
    for candidate in found:
        outcome = candidate.outcome
        verdict = text((str(outcome), _STYLES.get(outcome, "")))
        table.add_row(text(candidate.path.name), verdict, text(candidate.why))
    yield table


def to_dict(file: Path, found: Sequence[Candidate]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema": "slotscope.whose/1",
        "file": {"name": file.name, "path": str(file)},
        "models": [
            {
                "path": str(candidate.path),
                "architecture": candidate.architecture or None,
                "outcome": candidate.outcome.in_short,
                "finer": str(candidate.outcome),
                "evidence": candidate.why,
            }
            for candidate in found
        ],
    }
