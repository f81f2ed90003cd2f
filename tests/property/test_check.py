"""Any bytes, any server: a verdict, and prompts answered within what was asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.check import checked
from inspector.render.verdict import page
from inspector.render.verdict_json import to_dict
from inspector.server.loader import Outcome
from inspector.server.reuse import Request
from inspector.server.target import target_of
from tests.property.test_decode import WRITTEN
from tests.support.damage import at_random
from tests.support.strategies import Specimen, specimens

MODELS = Path(__file__).resolve().parents[1] / "oracle/models"
BUILDS = (
    "b3889",
    "b5000",
    "b7551",
    "b9538",
    "b10229",
    "b10809",
    "b11549",
    "ik@2026-02-01",
    "ik@2026-07-10",
    "ik@2026-08-15",
    "turboquant@b9079",
    "turboquant@cff2ea367",
    "gfx906",
    "bongo",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checked") / "slot.bin"


@given(
    specimen=st.sampled_from(WRITTEN).flatmap(specimens),
    seed=st.integers(0, 1 << 32),
    build=st.sampled_from(BUILDS),
    model=st.sampled_from([None, *sorted(MODELS.glob("*.gguf"))]),
    shares=st.integers(0, 40),
    more=st.integers(0, 20),
)
def test_a_verdict_on_anything(
    path: Path,
    specimen: Specimen,
    seed: int,
    build: str,
    model: Path | None,
    shares: int,
    more: int,
) -> None:
    data = specimen.packed.data
    path.write_bytes(at_random(specimen.packed, seed).data if seed % 3 else data)
    with target_of(None, build, model) as target:
        with checked(path, target) as found:
            held = found.report.tokens.count if found.report.tokens is not None else 0
        asked = Request(min(shares, held), min(shares, held) + more + 1)
        with checked(path, target, [asked], then=asked) as found:
            assert to_dict(found)["schema"] == "slotscope.check/1"
            assert list(page(found, "slot.bin"))
            (answer,) = found.reuse
    reused = answer.found.reused
    assert reused is None or 0 <= reused <= asked.total
    if found.restore.outcome is Outcome.REFUSES:
        assert reused == 0
        assert found.restore.reason is not None
