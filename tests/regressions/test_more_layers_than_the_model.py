"""A repair for ik_llama.cpp died of a state with more layers than the model of the server has."""

from __future__ import annotations

from pathlib import Path

from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from tests.support.writer import F16, Cell, IkMemory, Row, Slot, Tokens, pack

MODEL = Path(__file__).resolve().parents[1] / "oracle/models/deepseek2-mla.gguf"


def test_it_is_refused_with_words(tmp_path: Path) -> None:
    cells = tuple(Cell(pos) for pos in range(4))
    memory = IkMemory(4, cells, (None, *(Row(F16, 64),) * 8), (None, *(Row(F16, 64),) * 8))
    path = tmp_path / "a.slot"
    path.write_bytes(pack(Slot(4, Tokens((3, 4, 5, 6)), memory)).data)
    with (
        target_of("llama-server -c 512 -np 1 -fa on", "ik@2026-08-15", MODEL) as target,
        planned(path, target, Options(), "new") as plan,
    ):
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.REFUSES
        assert any("keys of layer 8" in why for _, why in plan.refused)
