"""The four streams behind a hybrid-idx state were read as the size of a history."""

from __future__ import annotations

from formats.layouts import by_id
from inspector.decode import decode
from tests.support.disk import source_of
from tests.support.writer import (
    F16,
    F32,
    Cache,
    Dialect,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)


def test_streams_taken_for_a_history() -> None:
    tokens = Tokens((5,))
    cells, row = cells_of(tokens), Row(F16, 8)
    streams = (cells, (), (), ())
    memory = Memory(
        {
            "attn": Cache(streams, (row,), (row,)),
            "recr": Recurrent(cells, 1, (Row(F32, 512),), (Row(F32, 1024),)),
            "indexer": Cache(streams, (row,), None),
        },
        Dialect(rotation=True),
    )
    layout = by_id("ggsq4.hybrid-idx")
    assert layout is not None
    with source_of(pack(Slot(4, tokens, memory)).data) as source:
        decoding = decode(source, layout, source.whole())
    assert decoding.stops == ()
    assert decoding.complete
