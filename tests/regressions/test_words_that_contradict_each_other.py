"""Two words, each of which seemed wrong by the other, were put right in turn without end."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.entries import ENTRIES

STATE = bytes.fromhex(
    "71736767040000000200000000000000030000000300000003000000030000000401000000000000"
    "04000000000000000000000001000000000000000200000000000000030000000000000000000000"
    "02000000ffffffff0000000000000000ffffffff0000000000000000ffffffff0000000000000000"
    "ffffffff000000000000000001000000ffffffff0000000000000000000000000000000080000000"
    "0000000001000000a53d7e3d1f3c60be2bbc00bd1cbe213d543cdbbc153f7f3f883e01bfb53fd7bc"
    "663fef3e0cbd3f3d9ebf933e9dbc923de3be51be2f3cb2beaf3cef3eefbe98bfdebf813c283d043e"
    "bbbc793ee33daf3f5abfdfbdbbbfccbe2d3cb13fdabd8ebe8b3dd93c6fbca83c073e753f31bccb3c"
    "41bdafbc70be783c16befabca7bf1b3d00000000"
)


def test_a_repair_comes_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a.slot"
    path.write_bytes(STATE)
    ENTRIES["repair"](path)
