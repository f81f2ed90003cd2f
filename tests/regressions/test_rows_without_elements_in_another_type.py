"""A repair that stores rows anew died of rows without elements, and of tensors without cells."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.repair.state import Refused
from inspector.server.target import target_of
from tests.support.writer import DIALECTS, F16, Cache, Memory, Row, Slot, Tokens, cells_of, pack


@pytest.mark.parametrize("v_trans", [0, 1])
@pytest.mark.parametrize(("n_cells", "row_bytes"), [(0, 64), (3, 0)])
def test_nothing_is_stored_anew(n_cells: int, row_bytes: int, v_trans: int, tmp_path: Path) -> None:
    tokens, row = Tokens(tuple(range(10, 10 + n_cells))), Row(F16, row_bytes)
    cache = Cache((cells_of(tokens),), (row,), (row,), v_trans=v_trans)
    path = tmp_path / "state.slot"
    path.write_bytes(pack(Slot(2, tokens, Memory({"attn": cache}, DIALECTS[""]))).data)
    flash = "off" if v_trans else "on"
    command = f"llama-server -c 512 -np 1 -fa {flash} -ctk f32"
    with (
        target_of(command, "b10229", None) as target,
        suppress(Refused),
        planned(path, target, Options(allow_loss=True), "new") as plan,
    ):
        assert plan.copied.size > 0
