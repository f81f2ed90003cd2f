"""The layout table: every variant that a writer really wrote, one row each; the rows stand beside their declarations."""

from __future__ import annotations

from formats.envelopes import ggsq
from formats.layout import Layout
from formats.sidecars import pkcl

LAYOUTS: tuple[Layout, ...] = (
    *ggsq.ROWS,
    *pkcl.ROWS,
)

BY_ID = {layout.id: layout for layout in LAYOUTS}
