"""Where a fact about a format comes from, and how well it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["read", "ran", "reported", "reasoned"]


@dataclass(frozen=True, slots=True)
class Origin:
    """A source for a fact.

    Attributes:
        repository: `owner/name` on GitHub, or the program's name.
        commit: build number, pull request or commit.
        file: path in the repository, or empty.
        symbol: function or type, or empty.
        basis: `read` in a writer's source, `ran` (seen in what a real build wrote or did),
            `reported`, or `reasoned`.
    """

    repository: str
    commit: str
    file: str = ""
    symbol: str = ""
    basis: Basis = "read"

    def __str__(self) -> str:
        """One line for people."""
        place = " ".join(part for part in (self.file, self.symbol) if part)
        return f"{self.repository} {self.commit}{': ' + place if place else ''} ({self.basis})"
