"""Where a state may end early for a server to die of it, as real servers showed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.check import checked
from inspector.fuzzing.generator import fitting
from inspector.fuzzing.mutators import mutate
from inspector.fuzzing.run import by_target
from inspector.model.expectation import StateExpectation, expected_state
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES

MODELS = Path(__file__).parents[1] / "oracle" / "models"
HYBRID4 = "ggsq4.hybrid--lfm2-b11549-checkpoints", "lfm2", "b11549"
ISWA4 = "ggsq4.iswa--gemma3-b11549-checkpoints", "gemma3-iswa", "b11549"
KV4 = "ggsq4.kv--llama-b11549-short", "llama-gqa", "b11549"
KV3 = "ggsq3.kv--llama-b10809", "llama-gqa", "b10809"
KV2 = "ggsq2.kv--llama-b10229-short", "llama-gqa", "b10229"
OFF2 = "ggsq2.kv--llama-b10229-flash-attention-off", "llama-gqa", "b10229"
REC3 = "ggsq3.recurrent--mamba-b10809", "mamba", "b10809"
REFUSES, ABORTS = Outcome.REFUSES, Outcome.ABORTS


@pytest.mark.parametrize(
    ("save", "mutation", "outcome"),
    [
        (HYBRID4, "cut@attn.streams[0].v[1].data", REFUSES),
        (HYBRID4, "cut@recr.cells", REFUSES),
        (HYBRID4, "cut@recr.s_trans", REFUSES),
        (HYBRID4, "cut@recr.blocks[1].data", REFUSES),
        (HYBRID4, "cut@recr.blocks[2].row_size", REFUSES),
        (HYBRID4, "cut@recr.blocks[2].data", ABORTS),
        (ISWA4, "cut@swa.streams[0].cells", REFUSES),
        (ISWA4, "cut@swa.streams[0].k[0].k_size_row", REFUSES),
        (ISWA4, "cut@swa.streams[0].k[0].data", ABORTS),
        (KV4, "cut@attn.streams[0].k[0].data", ABORTS),
        (KV3, "cut@attn.streams[0].k[1].data", ABORTS),
        (KV2, "cut@attn.streams[0].k[1].data", REFUSES),
        (KV2, "cut@attn.streams[0].v[0].data", ABORTS),
        (OFF2, "cut@attn.streams[0].k[1].data", REFUSES),
        (REC3, "cut@recr.cell_count", ABORTS),
        (ISWA4, "cell-pos-empty@swa.streams[0].cells", ABORTS),
        (KV4, "stream-emptied@attn.streams[0]", ABORTS),
    ],
)
def test_outcome(
    tmp_path: Path, save: tuple[str, str, str], mutation: str, outcome: Outcome
) -> None:
    """Of the restore, or of the prompt that goes on from it."""
    name, model, build = save
    path = tmp_path / "a.slot"
    whole = (SAMPLES / "intact" / f"{name}.slot").read_bytes()
    path.write_bytes(mutate(whole, f"{mutation}:1").data)
    flash = "off" if "attention-off" in name else "on"
    command = f"llama-server -m {MODELS / model}.gguf -c 512 -np 1 -fa {flash}"
    with target_of(command, build) as target:
        assert by_target(target)(path)[0] is outcome


def test_values_of_another_type_than_keys(tmp_path: Path) -> None:
    """The header that is not there is that of the keys, which does not fit."""
    path = tmp_path / "a.slot"
    command = f"llama-server -m {MODELS / 'llama-gqa'}.gguf -c 512 -np 1 -fa on -ctk q8_0"
    with target_of(command, "b11549") as target:
        expected = expected_state(target)
        assert isinstance(expected, StateExpectation)
        whole = next(fitting(expected)).data
        for mutation, outcome in (("k[1].data", REFUSES), ("v[0].data", ABORTS)):
            path.write_bytes(mutate(whole, f"cut@attn.streams[0].{mutation}:1").data)
            with checked(path, target) as found:
                assert found.restore.outcome is outcome, mutation
