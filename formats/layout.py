"""Layout: one variant that a writer really wrote, as a row of the table in `formats.layouts`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from formats.provenance import Origin
from formats.spans import Record


@dataclass(frozen=True)
class Layout:
    """One variant of one format.

    Attributes:
        id: `format.memory.dialect`, unique.
        title: one line for people.
        format: the family (`ggsq`, `ggsn`, `blob`, `pkcl`, …).
        version: the version word it is written with; None where the format has none.
        magic: the first bytes; empty where the format has none.
        declare: makes the declaration.
        origins: where the facts come from.
        since: first build that can have written it, or None.
        until: last build that can have written it, or None.
        tells: what sets it apart from its neighbours.
        writer: the program, where only one writes it.
        memory: the composition (`kv`, `iswa`, `hybrid`, …), empty for what is no state.
        window: bytes to fetch at once while parsing.
        mark: offset and bytes of a second magic; no bytes where the format has none.
    """

    id: str
    title: str
    format: str
    version: int | None
    magic: bytes
    declare: Callable[[], Record]
    origins: tuple[Origin, ...]
    since: str | None = None
    until: str | None = None
    tells: tuple[str, ...] = ()
    writer: str | None = None
    memory: str = ""
    window: int = 64
    mark: tuple[int, bytes] = (0, b"")

    @cached_property
    def record(self) -> Record:
        """The declaration, made when first needed."""
        return self.declare()
