"""The layout table: every variant that a writer really wrote, one row each.

The rows stand beside their declarations; a family is imported when a file may be of it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module

from formats.layout import Layout

FAMILIES: dict[str, tuple[bytes, ...]] = {
    "formats.envelopes.ggsq": (b"qsgg",),
    "formats.envelopes.ggsq1": (b"qsgg",),
    "formats.envelopes.ik": (b"qsgg", b"nsgg", b"CAWS", b"2GAP", b""),
    "formats.envelopes.ggsn": (b"nsgg",),
    "formats.envelopes.ggsn_historic": (b"nsgg", b""),
    "formats.envelopes.blobs": (b"\xd8\x3c\x14\xaf", b""),
    "formats.envelopes.context": (b"",),
    "formats.sidecars.pkcl": (b"PKCL",),
    "formats.sidecars.llcp": (b"PCLL",),
    "formats.sidecars.lsckpt2": (b"LSCKPT2\0",),
    "formats.sidecars.sckp": (b"SCKP",),
    "formats.sidecars.ik": (b"qsgg",),
    "formats.sidecars.stck": (b"STCK", b"SGEN"),
    "formats.sidecars.bkcp": (b"BKCP",),
    "formats.sidecars.slck": (b"SLCK",),
    "formats.gguf": (b"GGUF",),
    "formats.envelopes.sdft": (b"qsgg",),
    "formats.envelopes.foreign": (
        b"CRVK",
        b"DIVK",
        b"YSVK",
        b"LCPC",
        b"LCPI",
        b"KVC1",
        b"SES1",
        b"\xcc\x77\xc0\xb4",
        b"\xf5\xd5\x53\xcc",
    ),
}
"""Module -> the magics of its rows; empty bytes for rows without one."""
_MAGIC = 8
"""Bytes of the longest magic."""


@cache
def _rows(module: str) -> tuple[Layout, ...]:
    rows: tuple[Layout, ...] = import_module(module).ROWS
    return rows


@cache
def all_layouts() -> tuple[Layout, ...]:
    """The whole table."""
    return tuple(layout for module in FAMILIES for layout in _rows(module))


def marked_layouts(head: bytes) -> tuple[Layout, ...]:
    """The rows whose magics the first bytes of a file have, or begin.

    Without the first byte of a second magic it is a row that needs none: those are the common ones.
    """
    return tuple(layout for layout in _of_magic(head[:_MAGIC]) if _marked(head, *layout.mark))


@lru_cache(maxsize=16)
def _of_magic(head: bytes) -> tuple[Layout, ...]:
    return tuple(
        layout
        for module, magics in FAMILIES.items()
        if any(magic and _begins(head, magic) for magic in magics)
        for layout in _rows(module)
        if layout.magic and _begins(head, layout.magic)
    )


def unmarked_layouts() -> tuple[Layout, ...]:
    """The rows without a magic."""
    modules = (module for module, magics in FAMILIES.items() if b"" in magics)
    return tuple(layout for module in modules for layout in _rows(module) if not layout.magic)


def by_id(layout_id: str) -> Layout | None:
    """The row of that id."""
    return next((layout for layout in all_layouts() if layout.id == layout_id), None)


def _begins(head: bytes, magic: bytes) -> bool:
    return bool(head) and head.startswith(magic[: len(head)])


def _marked(head: bytes, offset: int, mark: bytes) -> bool:
    return not mark or _begins(head[offset:], mark)
