"""What the checks look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inspector.identify import Identification, Reading
from inspector.node import Node
from inspector.sections import Section
from inspector.tokens import Tokens

if TYPE_CHECKING:
    from inspector.model.geometry import MemoryExpectation


@dataclass(frozen=True)
class Subject:
    """A file that was identified.

    Attributes:
        name: the file's name.
        size: bytes.
        identification: what it is.
        reading: the best reading.
        sections: its memory sections.
        tokens: its token field.
        model: what the model it is said to belong to stores.
    """

    name: str
    size: int
    identification: Identification
    reading: Reading
    sections: tuple[Section, ...]
    tokens: Tokens
    model: MemoryExpectation | None = None

    @property
    def root(self) -> Node:
        """The tree."""
        return self.reading.decoding.root

    @property
    def is_state(self) -> bool:
        """Whether the file holds a memory of its own."""
        return bool(self.reading.layout.memory)

    def section(self, *kinds: str) -> Section | None:
        """The first section of one of these kinds."""
        return next((section for section in self.sections if section.kind in kinds), None)
