"""What the checks of a checkpoint list look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from inspector.checkpoints import CheckpointList, CheckpointRecord
from inspector.checks.checkpoints.readers import READERS, Reader
from inspector.checks.checkpoints.state import State
from inspector.findings import Finding
from inspector.node import join
from inspector.source import Source
from inspector.span import Span


@dataclass(frozen=True)
class ListSubject:
    """A checkpoint list, and the state that it is held against.

    Attributes:
        listing: the list.
        source: the file that holds it, open.
        state: the state it belongs to; None if that is not at hand, or of another program.
        carrier: name of the companion file that holds the list; empty if it is the file itself.
    """

    listing: CheckpointList
    source: Source
    state: State | None
    carrier: str

    @property
    def reader(self) -> Reader:
        """The program that reads the list."""
        return READERS.get((self.listing.format, self.listing.version), Reader("its reader"))

    @property
    def appended(self) -> bool:
        """Whether it is the appendix of a state, not a sidecar."""
        return self.listing.format == "sckp"

    def finding(
        self,
        code: str,
        path: str,
        span: Span,
        message: str,
        expected: str,
        actual: str,
        *evidence: str,
    ) -> Finding:
        """A finding in the file that holds the list."""
        return Finding(code, path, span, message, expected, actual, evidence, self.carrier)

    def of_head(
        self, code: str, name: str, message: str, expected: str, actual: str, *evidence: str
    ) -> Finding:
        """A finding on a word in front of the records."""
        node = self.listing.node.get(name)
        span = node.span if node is not None else self.listing.node.span
        path = join(self.listing.path, name)
        return self.finding(code, path, span, message, expected, actual, *evidence)

    def of_record(
        self,
        code: str,
        record: CheckpointRecord,
        name: str,
        message: str,
        expected: str,
        actual: str,
        *evidence: str,
    ) -> Finding:
        """A finding on a member of a record; the message goes on behind its index."""
        node = record.node.get(name)
        span = node.span if node is not None else record.span
        path = join(record.path, name)
        message = f"checkpoint {record.index} {message}"
        return self.finding(code, path, span, message, expected, actual, *evidence)

    def of_blob(
        self, problem: str, record: CheckpointRecord, message: str, expected: str, actual: str
    ) -> Finding:
        """A finding on the target blob of a record; `problem` is the end of the code."""
        code = f"{'appendix' if self.appended else 'checkpoint'}.{problem}"
        return self.of_record(code, record, "data_tgt", message, expected, actual)

    def recurrent(self, record: CheckpointRecord) -> bool:
        """Whether a record holds a recurrent state, which cannot go back."""
        if self.state is not None and self.state.sections:
            return self.state.section("recurrent") is not None
        return record.blob is not None and any(
            section.kind == "recurrent" for section in record.blob.sections
        )

    @cached_property
    def window(self) -> int | None:
        """The window, corrected by one where the state holds an anchor cell below it."""
        state = self.state
        if state is None or state.window is None:
            return None
        sizes = {
            section.cells
            for record in self.listing.whole
            if record.blob is not None and (record.pos_max or 0) + 1 >= state.window
            for section in record.blob.sections
        }
        return state.window - 1 if sizes == {state.window - 1} else state.window

    @cached_property
    def needs_prefix(self) -> bool:
        """Whether the server looks for the magic of b9028: others have it, or it is that new."""
        state = self.state
        if state is not None and state.writer == "llama.cpp" and (state.version or 0) >= 3:
            return True
        return self.appended or any(
            record.blob is not None and record.blob.prefixed for record in self.listing.whole
        )


def counted_bytes(count: int) -> str:
    """1 -> "1 byte", 2000 -> "2,000 bytes"."""
    return f"{count:,} byte{'s' if count != 1 else ''}"
