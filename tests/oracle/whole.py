"""An intact file and its tree, to find the places that get damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from inspector.node import Node, walk
from inspector.report import examined
from tests.support.damage import overwrite


class Whole:
    """An intact file.

    Attributes:
        data: its bytes.
        tokens: what it is a save of.
        nodes: its tree, by path.
        sections: paths of its memory sections.
        end: where its payload ends.
    """

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        with examined(path) as report:
            assert report.identification.root is not None
            assert report.tokens is not None
            self.tokens = [int(token) for token in report.tokens.ids]
            self.nodes: dict[str, Node] = dict(walk(report.identification.root))
            self.sections = [section.path for section in report.sections]
        appendix = self.nodes.get("appendix")
        self.end = appendix.span.start if appendix else len(self.data)

    @property
    def last_record(self) -> int:
        """The index of its newest checkpoint."""
        return self.number("appendix.count") - 1

    def number(self, path: str) -> int:
        """What a field says."""
        value = self.nodes[path].value
        assert isinstance(value, int)
        return value

    def changed(self, path: str, change: Callable[[int], int]) -> bytes:
        """The file with another number in one field."""
        return self.with_numbers({path: change(self.number(path))})

    def with_numbers(self, numbers: dict[str, int]) -> bytes:
        """The file with other numbers in some fields."""
        data = self.data
        for path, number in numbers.items():
            span = self.nodes[path].span
            stored = (number % (1 << 8 * len(span))).to_bytes(len(span), "little")
            data = overwrite(data, span.start, stored).data
        return data
