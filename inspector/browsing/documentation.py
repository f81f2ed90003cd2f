"""What the declaration of a file's layout says about its parts."""

from __future__ import annotations

import re

from formats.describe import describe
from inspector.browsing.parts import Part
from inspector.report import Report


class Documentation:
    """Of one file.

    Args:
        report: of the file.

    Attributes:
        source: where the layout is known from; empty if none is recognised.
    """

    def __init__(self, report: Report) -> None:
        reading = report.identification.reading
        self._of_rows: dict[str, str] = {}
        self.source = ""
        if reading is None:
            return
        self._of_rows = {row.path: row.doc for row in describe(reading.layout.record) if row.path}
        origins = reading.layout.origins
        if origins:
            more = f" and {len(origins) - 1} more" if len(origins) > 1 else ""
            self.source = f"layout {reading.layout.id}, from {origins[0]}{more}"

    def of(self, part: Part) -> str:
        """What the declaration says; rows of tables have their documentation there alone."""
        if part.node.doc:
            return part.node.doc
        return self._of_rows.get(re.sub(r"\[[0-9]+\]", "[]", part.path).removesuffix("[]"), "")
