"""A false cell count made the reading fail before the count itself, which was then not tried."""

from __future__ import annotations

from inspector.identify import identify
from tests.support.damage import set_field
from tests.support.disk import source_of
from tests.support.writer import F16, Cache, Dialect, Memory, Row, Slot, Tokens, cells_of, pack


def test_number_of_cells_never_suspected() -> None:
    tokens, row = Tokens((5, 6, 7, 8, 9)), Row(F16, 8)
    cache = Cache((cells_of(tokens),), (row,), (row,))
    packed = pack(Slot(2, tokens, Memory({"attn": cache}, Dialect())))
    count = packed.mark("attn.streams[0].cell_count")
    with source_of(set_field(packed, count, 0xFFFFFFFF).data) as source:
        mend = identify(source).mend
    assert mend is not None
    assert (mend.path, mend.stored, mend.value) == (count.path, 0xFFFFFFFF, 5)
