"""Every registered code is produced by a named mutation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from formats.layouts import by_id
from inspector.bundle import RECORD
from inspector.check import checked
from inspector.checks import all_codes
from inspector.fuzzing.case import Case
from inspector.fuzzing.generator import BESIDE, case_for, generated, with_sidecar
from inspector.fuzzing.mutators import mutant
from inspector.fuzzing.mutators.kinds import Changed
from inspector.fuzzing.subject import Subject
from inspector.model.expectation import StateExpectation, expected_state
from inspector.report import examined
from inspector.sealing import sealed
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES
from tests.support.mutants import put

REACHED: Mapping[str, tuple[str, str, str]] = json.loads(
    Path(__file__).with_name("reached.json").read_text()
)
"""Code -> a file of `SUBJECTS`, the id of a mutation, and a server of `MODELS`, if one is needed.

A server is a build, or a model and a build; `as-model` and a build is the server of the mutated
file, for the sound state `real`; `sealed` is none, but the file was sealed before it was mutated.
"""

SEED = 5
FOLDER = Path(__file__).resolve().parents[1] / "oracle/models"
SUBJECTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "kv": ("ggsq2.kv", {"n_stream": 2}),
    "kvone": ("ggsq2.kv", {"n_tokens": 7, "n_layer": 2}),
    "kvimg": ("ggsq2.kv", {"tokens": "image"}),
    "q8": ("ggsq2.kv", {"types": "q8_0/q8_0"}),
    "kv3": ("ggsq3.kv", {"tokens": "packed"}),
    "kv3q8": ("ggsq3.kv", {"types": "q8_0/q8_0"}),
    "kv4img": ("ggsq4.kv", {"tokens": "image"}),
    "kv4q8": ("ggsq4.kv", {"types": "q8_0/q8_0", "n_rot": 64}),
    "xyt": ("ggsq3.kv.xyt", {"tokens": "packed"}),
    "iswa2": ("ggsq2.iswa", {}),
    "iswa4": ("ggsq4.iswa", {"records": 2, "n_tokens": 12}),
    "hyb4": ("ggsq4.hybrid", {"records": 2}),
    "rec": ("ggsq3.recurrent", {}),
    "full": ("ggsn9.kv", {}),
    "dsa": ("ggsq2.dsa", {}),
    "gguf3": ("gguf3", {}),
}
"""Name -> layout and options of a generated file."""
LISTED = {family: (state, suffix) for family, suffix, state in BESIDE} | {
    "ik4": ("ik4", ".checkpoints"),
    "iswa4slck": ("ggsq4.iswa", ".ckpt"),
}
"""Name -> layout of a state, and what its checkpoint list adds to its name."""
FAMILIES = {"ik4": "ik-checkpoints4", "iswa4slck": "slck1"}

FITTED = {
    "fitkv": "llama-gqa b11549",
    "fitiswa": "gemma b11549",
    "fitik": "llama-gqa ik@2026-08-15",
    "fitikq8kv": "q8_KV ik@2026-08-15",
    "fitq8": "q8 b11549",
}
"""Name -> the server that a file of twenty tokens is generated for."""

COMPUTED = {
    "real": SAMPLES / "intact/ggsq4.kv--llama-b11549-short.slot",
    "realq8": SAMPLES / "intact/ggsq4.kv--llama-b11549-q8_0.slot",
    "realmla": SAMPLES / "intact/ggsq2.mla--deepseek2-b10229.slot",
    "realiswa": SAMPLES / "intact/ggsq4.iswa--gemma3-b11549-checkpoints.slot",
    "model": FOLDER / "llama-gqa.gguf",
}
"""Name -> what servers computed of the models of `MODELS`; and the first of these."""

MODELS = {
    "llama-gqa": "-c 256 -np 1 -fa on",
    "q8": "-c 256 -np 1 -fa on -ctk q8_0 -ctv q8_0",
    "q8_KV": "-c 256 -np 1 -fa on -ctk q8_KV",
    "unrotated": "-c 256 -np 1 -fa on -ctk q8_0 -ctv q8_0",
    "deepseek2": "-c 256 -np 1 -fa on",
    "projector": "-c 256 -np 1 -fa on --mmproj projector.gguf",
    "gemma": "-c 256 -np 1 -fa on",
}
TOKENS_OF_IK = json.dumps(
    {
        "has_mtmd": False,
        "map_idx_to_media": [],
        "tokens": list(range(3, 23)),
        "magic": 1819112310,
        "version": 1,
    }
).encode()
FILES = {
    **dict.fromkeys(("q8", "q8_KV", "unrotated", "projector"), "llama-gqa"),
    "gemma": "gemma3-iswa",
    "deepseek2": "deepseek2-mla",
}
VARIABLES = {"unrotated": "LLAMA_ATTN_ROT_DISABLE=1 "}


def command_of(server: str) -> tuple[str | None, str]:
    """The command line and the build of a server."""
    model, _, build = server.rpartition(" ")
    if not model:
        return None, build
    file = FOLDER / f"{FILES.get(model, model)}.gguf"
    return f"{VARIABLES.get(model, '')}llama-server -m {file} {MODELS[model]}", build


@cache
def subject(name: str) -> Subject:
    if name in FITTED:
        with target_of(*command_of(FITTED[name])) as target:
            expected = expected_state(target)
        assert isinstance(expected, StateExpectation), expected
        data = generated(case_for(expected, range(3, 23), SEED)).data
        return Subject(data, {".tokens.json": TOKENS_OF_IK} if name == "fitik" else {})
    if name in COMPUTED:
        return Subject(COMPUTED[name].read_bytes())
    if name == "iktokens":
        return Subject(TOKENS_OF_IK)
    if name in LISTED:
        state, suffix = LISTED[name]
        layout = by_id(state)
        assert layout is not None
        case = Case(layout, SEED, {"suffix": "recurrent"})
        made = with_sidecar(case, FAMILIES.get(name, name), suffix)
        return Subject(made.data, made.companions)
    layout_id, options = SUBJECTS[name]
    layout = by_id(layout_id)
    assert layout is not None
    return Subject(generated(Case(layout, SEED, options)).data)


def codes(path: Path, server: str, *, deep: bool) -> set[str]:
    """Of all that is found in a file, for a server if there is one."""
    if not server:
        with examined(path, deep=deep) as report:
            return {one.code for one in report.findings}
    with target_of(*command_of(server)) as target:
        with examined(path, model=target.memory) as report:
            found = {one.code for one in report.findings}
        with checked(path, target) as check:
            return found | {one.code for one in check.findings}


def of_a_model(state: Path, model: Path, build: str) -> set[str]:
    """What is found in a state for a server of that model."""
    with target_of(f"llama-server -m {model}", build) as target, checked(state, target) as check:
        return {one.code for one in check.findings}


@pytest.mark.parametrize("code", sorted(all_codes()))
def test_reached(tmp_path: Path, code: str) -> None:
    """By the mutation: before it, the same file does not have the code."""
    name, mutation, server = REACHED[code]
    intact = subject(name)
    role, _, build = server.rpartition(" ")
    deep = server == "sealed" or "values" in mutation

    def of(path: Path) -> set[str]:
        if role == "as-model":
            return of_a_model(COMPUTED["real"], path, build)
        return codes(path, server.removeprefix("sealed"), deep=deep)

    path = put(tmp_path / "a.slot", Changed(intact.data, intact.companions))
    if server == "sealed":
        sealed(path, None, None)
    assert code not in of(path)
    record = path.with_name(path.name + RECORD)
    seal = record.read_bytes() if record.exists() else None
    path = put(path, mutant(intact, mutation))
    if seal is not None:
        record.write_bytes(seal)
    assert code in of(path)


def test_no_other_codes() -> None:
    assert set(REACHED) == set(all_codes())
