"""Any bytes, any server: a page that holds together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.overview import overview
from inspector.render.html.page import document, entry
from inspector.server.target import target_of
from tests.property.test_check import BUILDS, MODELS
from tests.property.test_decode import WRITTEN
from tests.support.damage import at_random
from tests.support.html import sound
from tests.support.strategies import Specimen, specimens


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shown") / "slot.bin"


@given(
    specimen=st.sampled_from(WRITTEN).flatmap(specimens),
    seed=st.integers(0, 1 << 32),
    build=st.sampled_from(BUILDS),
    model=st.sampled_from([None, *sorted(MODELS.glob("*.gguf"))]),
    alone=st.booleans(),
)
def test_a_page_of_anything(
    path: Path, specimen: Specimen, seed: int, build: str, model: Path | None, alone: bool
) -> None:
    path.write_bytes(at_random(specimen.packed, seed).data if seed % 4 else specimen.packed.data)
    with target_of(None, build, model) as target, overview(path, target, deep=True) as found:
        sections = [
            entry(found, n, alone=alone, show_tokens=not alone) for n in range(1, 2 + (not alone))
        ]
    sound(document(sections, alone=alone))


@given(data=st.binary(max_size=400), head=st.sampled_from((b"", b"qsgg", b"nsgg", b"GGUF", b"{")))
def test_a_page_of_any_bytes(path: Path, data: bytes, head: bytes) -> None:
    path.write_bytes(head + data)
    with target_of(None) as target, overview(path, target, deep=True) as found:
        sound(document([entry(found, 1, alone=True, show_tokens=True)], alone=True))
