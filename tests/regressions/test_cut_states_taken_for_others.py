"""Files cut in one layout were taken for whole ones of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.identify import Verdict, identify
from tests.support.disk import source_of

INTACT = Path(__file__).resolve().parents[2] / "samples" / "intact"


@pytest.mark.parametrize(
    ("name", "size", "layouts"),
    [
        pytest.param(
            "ik3.blob--gemma3-partial.slot",
            538,
            {"ik3.blob", "blob.kv.anonymous"},
            id="as a state of 2024 with zeros for a random generator",
        ),
        pytest.param(
            "ggsn6.hparams-b3305--llama-2024-06.slot",
            2112,
            {"ggsn6.hparams-b3305"},
            id="as an earlier one, of a model without layers",
        ),
        pytest.param(
            "ggsn9.iswa.flat--twelve-tokens.slot",
            1220,
            {"ggsn9.iswa.flat"},
            id="as its first cache and trailing bytes",
        ),
        pytest.param(
            "ggsq3.hybrid-idx.xyt--twelve-tokens.slot",
            4876,
            {"ggsq3.hybrid-idx.xyt", "ggsq3.hybrid-idx-values.xyt"},
            id="as its first sections and trailing bytes",
        ),
        pytest.param(
            "ggsq4.kv--llama-b11549-short.slot",
            2096,
            {"ggsq4.kv"},
            id="as keys without values, when cut in the head of the first value",
        ),
        pytest.param(
            "ik4--with-companions.slot.checkpoints",
            510,
            {"ik-checkpoints4"},
            id="as a slot with a compacted window, when it is a checkpoint list",
        ),
        pytest.param(
            "ggsq2.hybrid--with-pkcl1.slot.ckpt",
            20,
            {"pkcl1"},
            id="as an empty list of another version",
        ),
    ],
)
def test_cut_states_taken_for_others(name: str, size: int, layouts: set[str]) -> None:
    with source_of((INTACT / name).read_bytes()[:size]) as source:
        identification = identify(source)
    assert identification.verdict is Verdict.DAMAGED
    assert identification.reading is not None
    assert identification.reading.layout.id in layouts


@pytest.mark.parametrize("size", range(4, 13))
def test_the_first_words_of_a_state_taken_for_a_draft_companion(size: int) -> None:
    data = (INTACT / "ggsq4.kv--llama-b11549-short.slot").read_bytes()
    with source_of(data[:size]) as source:
        identification = identify(source)
    assert identification.verdict is Verdict.DAMAGED
    assert identification.reading is not None
    assert identification.reading.layout.format == "ggsq"
    assert identification.reading.layout.memory
