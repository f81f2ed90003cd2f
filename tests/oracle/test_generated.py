"""Generated files on real servers: what is written for a server is taken by it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inspector.fuzzing.generator import Generated, case_for, fitting, generated
from inspector.model.expectation import StateExpectation, expected_state
from inspector.server.target import target_of
from tests.oracle.builds import build_of, installed
from tests.oracle.server import Server
from tests.oracle.test_ik_repairs import DAY, in_ik

pytestmark = pytest.mark.oracle

MODELS = Path(__file__).with_name("models")
BUILDS = (10229, 11063, 11549)
FILES = 14
"""Of each server; 3 builds with 5 servers each make 210."""
LARGEST_TOKEN = 250


@dataclass(frozen=True)
class Setup:
    """A server: its model and its options."""

    model: str
    flags: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.model, *self.flags))


SETUPS = (
    Setup("llama-gqa", ("-fa", "on", "-ctk", "q8_0", "-ctv", "q4_0")),
    Setup("llama-gqa", ("-fa", "off", "-np", "4", "--no-kv-unified")),
    Setup("gemma3-iswa", ("-fa", "on", "-ctk", "bf16", "-ctv", "f16")),
    Setup("qwen35", ("-fa", "on", "-ctk", "q8_0", "-np", "2", "--no-kv-unified")),
    Setup(
        "deepseek2-mla",
        (
            "-fa",
            "off",
        ),
    ),
)


def files(expected: StateExpectation) -> Iterator[Generated]:
    """Files of all that this server leaves open: tokens, packing, streams, checkpoints."""
    for seed in range(FILES):
        dice = random.Random(seed)
        n_tokens = 1 + seed * 3
        ids = [dice.randrange(3, LARGEST_TOKEN) for _ in range(n_tokens)]
        packed = expected.packed and seed % 2 == 1
        records = seed % 3 if n_tokens > 2 and seed % 3 else None
        tokens = "packed" if packed else "plain"
        yield generated(case_for(expected, ids, seed, tokens=tokens, records=records))


@pytest.mark.parametrize("number", BUILDS)
@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_taken(tmp_path: Path, setup: Setup, number: int) -> None:
    build, model = build_of(number), MODELS / f"{setup.model}.gguf"
    flags = ("-c", "1024", *setup.flags)
    unified = () if "--no-kv-unified" in flags else ("--kv-unified",)
    command = " ".join(("llama-server", "-m", str(model), *flags, *unified))
    slots = tmp_path / "slots"
    slots.mkdir()
    with target_of(command, str(build)) as target:
        expected = expected_state(target)
        assert isinstance(expected, StateExpectation), expected
        made = list(files(expected))
    refused = []
    with Server(installed(build), model, slots, tmp_path / "server.log", flags) as server:
        for index, one in enumerate(made):
            (slots / "slot.bin").write_bytes(one.data)
            answer = server.restore("slot.bin")
            ids = one.case.ids
            assert ids is not None
            if not answer.ok or answer.body["n_restored"] != len(ids):
                refused.append(f"{index}: {one.case.options}: {answer} {answer.body}")
            if answer.death:
                break
        log = server.logged()[-1500:]
    assert not refused, "\n".join((*refused, log))


IK_SETUPS = (
    ("llama-gqa", "-fa on", {"flash_attn": True}),
    ("llama-gqa", "-fa off", {"flash_attn": False}),
    ("gemma3-iswa", "-fa on", {"flash_attn": True}),
    ("qwen35", "-fa on", {"flash_attn": True}),
)


@pytest.mark.parametrize(("model", "flags", "context"), IK_SETUPS)
def test_taken_by_ik(tmp_path: Path, model: str, flags: str, context: dict[str, bool]) -> None:
    path, file = MODELS / f"{model}.gguf", tmp_path / "slot.bin"
    with target_of(f"llama-server -m {path} -c 512 -np 1 {flags}", DAY) as target:
        expected = expected_state(target)
        assert isinstance(expected, StateExpectation), expected
        made = list(fitting(expected))
    assert len(made) == 4
    for one in made:
        file.write_bytes(one.data)
        told = in_ik(path, load=str(file), context=context)
        assert told["read"] == len(one.data), one.name
        assert tuple(told["tokens"]) == one.case.ids
