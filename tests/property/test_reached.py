"""Every registered code is produced by a named mutation, or there is a reason why none can be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from formats.layouts import by_id
from inspector.check import checked
from inspector.checks import all_codes
from inspector.fuzzing.case import Case
from inspector.fuzzing.generator import BESIDE, case_for, generated, with_sidecar
from inspector.fuzzing.mutators import mutant
from inspector.fuzzing.subject import Subject
from inspector.model.expectation import StateExpectation, expected_state
from inspector.report import examined
from inspector.sealing import sealed
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES

REACHED: Mapping[str, tuple[str, str, str]] = json.loads(
    Path(__file__).with_name("reached.json").read_text()
)
"""Code -> a file of `SUBJECTS`, the id of a mutation, and a server of `MODELS`, if one is needed.

A server is a build, or a model and a build; `sealed` is none, but the file was sealed before it was
mutated.
"""

SEED = 5
SUBJECTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "kv": ("ggsq2.kv", {"n_stream": 2}),
    "kvone": ("ggsq2.kv", {"n_tokens": 7, "n_layer": 2}),
    "kvimg": ("ggsq2.kv", {"tokens": "image"}),
    "q8": ("ggsq2.kv", {"types": "q8_0/q8_0"}),
    "kv3q8": ("ggsq3.kv", {"types": "q8_0/q8_0"}),
    "kv4": ("ggsq4.kv", {}),
    "kv4img": ("ggsq4.kv", {"tokens": "image"}),
    "kv4f32": ("ggsq4.kv", {"types": "f32/f32", "n_layer": 2}),
    "kv4q8": ("ggsq4.kv", {"types": "q8_0/q8_0", "n_rot": 64}),
    "xyt": ("ggsq3.kv.xyt", {"tokens": "packed"}),
    "iswa2": ("ggsq2.iswa", {}),
    "iswa4": ("ggsq4.iswa", {"records": 2, "n_tokens": 12}),
    "iswa4n": ("ggsq4.iswa", {}),
    "hyb4": ("ggsq4.hybrid", {"records": 2}),
    "rec": ("ggsq3.recurrent", {}),
    "first": ("ggsq1.kv", {}),
    "full": ("ggsn9.kv", {}),
    "mla": ("ggsq2.mla", {}),
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
    "fitkv": ("llama-gqa b11549", 20, 0),
    "fitkv2": ("llama-gqa b10229", 20, 0),
    "fitiswa": ("gemma b11549", 20, 0),
    "fitwide": ("gemma b11549", 60, 55),
    "fithyb": ("qwen35 b11549", 20, 0),
    "fitik": ("llama-gqa ik@2026-08-15", 20, 0),
}
"""Name -> the server that a file is generated for, its tokens, and those in its window if set."""

REAL = "ggsq4.kv--llama-b11549-short.slot"
"""What a server computed of the model `llama-gqa`."""

MODELS = {
    "llama-gqa": "-c 256 -np 1 -fa on",
    "q8": "-c 256 -np 1 -fa on -ctk q8_0 -ctv q8_0",
    "ctx": "-c 256 -np 4 -fa on",
    "qwen35": "-c 256 -np 1 -fa on",
    "gemma": "-c 256 -np 1 -fa on",
    "lfm2": "-c 256 -np 1 -fa on",
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
FILES = {"q8": "llama-gqa", "ctx": "llama-gqa", "gemma": "gemma3-iswa"}
FOLDER = Path(__file__).resolve().parents[1] / "oracle/models"

_NAME = "what the file or its companion is called or when it was written, not what it holds"
_WEIGHTS = "compares numbers with a model's weights: a state must really have been computed"
_OTHER_FILE = "about another file than the one that is mutated: the model of the server"
_ORDER = "needs rows whose order or rotation shows, which only computed ones do"

UNREACHED: Mapping[str, str] = {
    "file.named-like-a-model": _NAME,
    "file.symlink": _NAME,
    "sidecar.orphan": _NAME,
    "sidecar.unreadable": _NAME,
    "ik.keys-saved-short": "a fault of a writer, that shows in rows which only it computes",
    "target.model-truncated": _OTHER_FILE,
    "target.projector-refused": "about the options of a server alone, whatever the file is",
    "target.layout-silent": _ORDER,
    "target.rotation-unrecorded": _ORDER,
    "seal.unreadable": "the record of a seal is ours, and no companion that is mutated",
    "container.not-opened": "about files of other programs, which no mutation of one of ours is",
    "identity.repeated-tokens": _WEIGHTS,
}


def command_of(server: str) -> tuple[str | None, str]:
    """The command line and the build of a server."""
    model, _, build = server.rpartition(" ")
    if not model:
        return None, build
    file = FOLDER / f"{FILES.get(model, model)}.gguf"
    return f"llama-server -m {file} {MODELS[model]}", build


@cache
def subject(name: str) -> Subject:
    if name in FITTED:
        server, n_tokens, n_swa = FITTED[name]
        with target_of(*command_of(server)) as target:
            expected = expected_state(target)
        assert isinstance(expected, StateExpectation), expected
        case = case_for(expected, range(3, 3 + n_tokens), SEED)
        data = generated(replace(case, n_swa=n_swa or case.n_swa)).data
        return Subject(data, {".tokens.json": TOKENS_OF_IK} if name == "fitik" else {})
    if name == "real":
        return Subject((SAMPLES / "intact" / REAL).read_bytes())
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


def put(path: Path, data: bytes, companions: Mapping[str, bytes]) -> None:
    path.write_bytes(data)
    for suffix, beside in companions.items():
        path.with_name(path.name + suffix).write_bytes(beside)


@pytest.mark.parametrize("code", sorted(all_codes()))
def test_reached(tmp_path: Path, code: str) -> None:
    if code in UNREACHED:
        assert code not in REACHED
        return
    name, mutation, server = REACHED[code]
    found = mutant(subject(name), mutation)
    path = tmp_path / "a.slot"
    if server == "sealed":
        put(path, subject(name).data, subject(name).companions)
        sealed(path, None, None)
    put(path, found.data, found.companions)
    if server in ("", "sealed"):
        with examined(path, deep=server == "sealed" or "values" in mutation) as report:
            codes = {one.code for one in report.findings}
    else:
        with target_of(*command_of(server)) as target:
            with examined(path, model=target.memory) as report:
                codes = {one.code for one in report.findings}
            with checked(path, target) as check:
                codes |= {one.code for one in check.findings}
    assert code in codes


def test_reasons_are_of_registered_codes() -> None:
    assert set(UNREACHED) | set(REACHED) == set(all_codes())
