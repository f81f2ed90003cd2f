"""States of ik_llama.cpp on real servers of llama.cpp, and states of those in ik_llama.cpp."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inspector.model.identity import Outcome as Belongs
from inspector.repair.draft import Options
from inspector.repair.outcome import carry_out
from inspector.repair.plan import planned
from inspector.report import examined
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from tests.oracle.builds import BUILDS, Build, installed
from tests.oracle.trial import MODELS, Bench

pytestmark = pytest.mark.oracle

SHARED = Path(__file__).parents[3] / "shared"
IK_CORPUS = SHARED / "corpus-ik"
CORPUS = SHARED / "corpus"
IK = Build(0, "ik-llama-cpp-python==0.1.5", 3)
"""The library without its server; it writes what builds of 2026-02 to 2026-07 write."""
DAY = "ik@2026-03-01"
N_PREDICT = 16
SUFFIX = (300, 310)
NEW = "new.slot"


def manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    found: dict[str, Any] = {"files": [], "models": {}}
    return json.loads(path.read_text()) if path.is_file() else found


@dataclass(frozen=True)
class Case:
    """A save, and what is asked of the server that gets its copy.

    Attributes:
        name: of the file.
        flags: of the server, besides the context.
        steps: actions for b10229 and for b11549.
        alike: tokens that are generated as in a cold run. Fewer where ik_llama.cpp itself computed
            the deeper layers otherwise: with q6_0 keys they are 40 % off its own with f16 keys.
    """

    name: str
    flags: str = ""
    steps: tuple[str, str] = ("from-ik", "from-ik")
    alike: int = N_PREDICT

    def __str__(self) -> str:
        """The file."""
        return self.name.removesuffix(".bin").removesuffix(".seq")


TURNED = ("from-ik transcode", "from-ik transcode")
HYBRID = ("from-ik", "from-ik synthesize-tip")
SHORT = ("from-ik trim transcode", "from-ik trim transcode")
LEFT = "from-ik drop-companions"
CHECKPOINTS = (
    "from-ik drop-checkpoints drop-companions",
    "from-ik convert-checkpoints drop-companions",
)
Q8, Q4 = "-ctk q8_0 -ctv q8_0", "-ctk q4_0 -ctv q4_0"

FROM = (
    Case("llama-gqa.ik-2026-09.plain.seq.bin"),
    Case("llama-gqa.ik-2026-09.fa-off.seq.bin", "-fa off"),
    Case("llama-gqa.ik-2026-09.kv-q8_0.seq.bin", Q8),
    Case("llama-gqa.ik-2026-09.kv-q6_0.seq.bin", steps=TURNED, alike=0),
    Case("llama-gqa.ik-2026-09.k-q8_0-v-q6_0.seq.bin", Q8, TURNED),
    Case("llama-gqa.ik-2026-09.k-q8_KV.seq.bin", steps=SHORT, alike=6),
    Case("llama-gqa.ik-2026-09.two-seqs.seq.bin"),
    Case("llama-gqa.ik-8337e4cd3.plain.seq.bin"),
    Case("llama-gqa.ik-8337e4cd3.fa-off.seq.bin", "-fa off"),
    Case("llama-gqa.ik-8337e4cd3.server.bin", steps=(LEFT, LEFT)),
    Case("llama-gqa.ik-528cadb07.plain.seq.bin", steps=("relayout", "relayout")),
    Case("llama-mqa6.ik-2026-09.k-q8_KV.seq.bin", steps=TURNED, alike=2),
    Case("llama-mqa6.ik-2026-09.kv-iq4_nl.seq.bin", "-ctk iq4_nl -ctv iq4_nl", alike=0),
    Case("llama-mqa6.ik-2026-09.kv-iq4_nl.seq.bin", "-ctk f16 -ctv f16", TURNED, alike=0),
    Case("llama-hd128.ik-2026-09.kv-q8_0.seq.bin", Q8, TURNED),
    Case("llama-hd128.ik-2026-09.kv-q8_0-khad.seq.bin", Q8, TURNED),
    Case("llama-hd128.ik-2026-09.kv-q8_0-khad-vhad.seq.bin", Q8, TURNED),
    Case("llama-hd128.ik-2026-09.kv-q8_0-khad-vhad.seq.bin", "-ctk f16 -ctv f16", TURNED),
    Case("qwen2.ik-2026-09.plain.seq.bin"),
    Case("qwen2.ik-528cadb07.fa-off.seq.bin", "-fa off", ("relayout", "relayout")),
    Case("qwen2vl.ik-2026-09.plain.seq.bin"),
    Case("gemma3-iswa.ik-2026-09.plain.seq.bin"),
    Case("gemma4-iswa.ik-2026-09.plain.seq.bin"),
    Case("gptoss.ik-2026-09.plain.seq.bin"),
    Case("qwen35.ik-2026-09.plain.seq.bin", steps=HYBRID),
    Case("qwen35.ik-8337e4cd3.plain.seq.bin", steps=HYBRID),
    Case("qwen35.ik-8337e4cd3.server.bin", "", CHECKPOINTS, alike=6),
    Case("qwen3next.ik-2026-09.plain.seq.bin", steps=HYBRID),
    Case("deepseek2-lat96.ik-2026-09.mla0-fa-on.seq.bin"),
    Case("deepseek2-lat96.ik-2026-09.mla0-fa-off.seq.bin", "-fa off"),
)


def model_of(name: str) -> Path:
    found = next(
        (f for f in (IK_CORPUS / "models", CORPUS / "models") if (f / f"{name}.gguf").is_file()),
        None,
    )
    return (found or MODELS) / f"{name}.gguf"


def put(source: Path, path: Path) -> None:
    """Copy a file and what lies beside it."""
    if not source.is_file():
        pytest.skip(f"{source.name} is not at hand")
    for one in source.parent.glob(f"{source.name}*"):
        shutil.copyfile(one, path.with_name(path.name + one.name.removeprefix(source.name)))


def repaired(
    old: Path, new: Path, command: str, build: str, model: Path, refused: tuple[str, ...] = ()
) -> tuple[str, Any]:
    """The steps of a repair, and the check of its copy; the copy is written."""
    with (
        target_of(f"llama-server {command}", build, model) as target,
        planned(old, target, Options(allow_loss=True), new.name) as plan,
    ):
        assert tuple(action for action, _ in plan.refused) == refused, plan.refused
        carry_out(plan, new)
        return " ".join(step.action for step in plan.steps), plan.after


def tokens_of(path: Path) -> list[int]:
    with examined(path) as report:
        assert report.tokens is not None
        return [int(token) for token in report.tokens.ids]


@pytest.mark.parametrize("build", [BUILDS[0], BUILDS[-1]], ids=str)
@pytest.mark.parametrize("case", FROM, ids=lambda case: f"{case}{case.flags.replace(' ', '_')}")
def test_states_of_ik_go_on_as_a_cold_run(bench: Bench, case: Case, build: Build) -> None:
    new, old = bench.folder / NEW, bench.path
    put(IK_CORPUS / case.name, old)
    model = model_of(case.name.partition(".")[0])
    flags = f"-c 512 -np 1 --no-kv-unified --cache-ram 0 {case.flags}"
    steps, after = repaired(old, new, flags, str(build), model)
    assert steps == case.steps[build is BUILDS[-1]]
    assert after.restore.outcome is Outcome.ACCEPTS
    close = (Belongs.MATCHES, *((Belongs.RELATED,) if not case.alike else ()))
    assert after.identity.outcome in close, after.identity.evidence
    held = tokens_of(new)
    following = (*held, *SUFFIX)
    with bench.serve(build, model, flags.split()) as server:
        restored = server.restore(NEW)
        assert restored.ok, restored
        warm = server.complete(following, n_predict=N_PREDICT)
    with bench.serve(build, model, flags.split()) as server:
        cold = server.complete(following, n_predict=N_PREDICT)
    assert warm.reused == len(held)
    assert warm.tokens[: case.alike] == cold.tokens[: case.alike]


def in_ik(model: Path, **asked: Any) -> dict[str, Any]:
    """What the library of ik_llama.cpp does in a process of its own."""
    script = Path(__file__).with_name("ik.py")
    command = (sys.executable, script, installed(IK), model, json.dumps(asked))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@dataclass(frozen=True)
class ToIk:
    """A save of upstream, and the context of ik_llama.cpp that gets its copy.

    Attributes:
        name: of the file.
        flags: of the target.
        context: parameters of the context.
        steps: actions.
        singly: whether tokens are evaluated one by one: its kernel for several disagrees with that
            for one in tiny delta nets.
        alike: tokens that are generated as in a cold run of ik_llama.cpp.
    """

    name: str
    flags: str = ""
    context: dict[str, Any] = field(default_factory=dict)
    steps: str = "to-ik"
    singly: bool = False
    alike: int = N_PREDICT

    def __str__(self) -> str:
        """The file."""
        return self.name.removesuffix(".bin")


OFF = {"flash_attn": False}
TO = tuple(
    case
    for build in ("b10229", "b11549")
    for case in (
        ToIk(f"llama-gqa.{build}.default.bin"),
        ToIk(f"llama-gqa.{build}.fa-off.bin", "-fa off", OFF),
        ToIk(f"llama-gqa.{build}.kv-q8_0.bin", Q8, {"type_k": 8, "type_v": 8}),
        ToIk(f"llama-hd128.{build}.f16.bin"),
        ToIk(
            f"llama-hd128.{build}.kv-q8_0.bin",
            Q8,
            {"type_k": 8, "type_v": 8},
            "transcode to-ik",
        ),
        ToIk(
            f"llama-hd128.{build}.kv-q8_0.bin",
            f"{Q8} -khad -vhad",
            {"type_k": 8, "type_v": 8, "k_cache_hadamard": True, "v_cache_hadamard": True},
            "transcode to-ik",
        ),
        ToIk(f"llama-gqa.{build}.np4.bin"),
        ToIk(f"llama-gqa.{build}.kv-q4_0.bin", Q4, {"type_k": 2, "type_v": 2}, alike=0),
        ToIk(f"gemma4-iswa.{build}.default.bin"),
        ToIk(f"qwen2.{build}.default.bin"),
        ToIk(f"qwen2vl.{build}.default.bin"),
        ToIk(f"gemma3-iswa.{build}.long.bin"),
        ToIk(f"gptoss.{build}.default.bin"),
        ToIk(f"qwen35.{build}.default.bin", singly=True),
        ToIk(f"qwen3next.{build}.default.bin", singly=True),
    )
)


@pytest.mark.parametrize("case", TO, ids=lambda case: f"{case}{case.flags.replace(' ', '_')}")
def test_states_of_upstream_go_on_in_ik_as_a_cold_run(tmp_path: Path, case: ToIk) -> None:
    old, new, again = tmp_path / "old.bin", tmp_path / NEW, tmp_path / "again.bin"
    put(CORPUS / case.name, old)
    model = model_of(case.name.partition(".")[0])
    steps, after = repaired(old, new, f"-c 512 {case.flags}", DAY, model)
    assert steps.removesuffix(" drop-checkpoints") == case.steps  # this day knows none
    assert after.restore.outcome is Outcome.ACCEPTS
    filled = "zero at" in after.identity.evidence  # windowed rows that upstream left out
    wanted = Belongs.MIXED if filled and "iswa" in case.name else Belongs.MATCHES
    assert after.identity.outcome is wanted, after.identity.evidence
    asked = {"context": case.context, "singly": case.singly, "n_predict": N_PREDICT}
    warm = in_ik(model, load=str(new), save=str(again), next=SUFFIX, **asked)
    assert warm["read"] == new.stat().st_size
    assert again.read_bytes() == new.read_bytes()
    cold = in_ik(model, next=[*warm["tokens"], *SUFFIX], **asked)
    assert warm["generated"][: case.alike] == cold["generated"][: case.alike]


@pytest.mark.parametrize(
    "name",
    [
        "llama-gqa.ik-528cadb07.plain.seq.bin",
        "llama-gqa.ik-8337e4cd3.plain.seq.bin",
        "qwen35.ik-8337e4cd3.plain.seq.bin",
    ],
)
def test_states_of_another_version_load_in_ik(tmp_path: Path, name: str) -> None:
    old, new, again = tmp_path / "old.bin", tmp_path / NEW, tmp_path / "again.bin"
    put(IK_CORPUS / name, old)
    model = model_of(name.partition(".")[0])
    repaired(old, new, "-c 512", DAY, model)
    told = in_ik(model, load=str(new), save=str(again), next=SUFFIX, singly=True, n_predict=6)
    assert told["read"] == new.stat().st_size
    assert again.read_bytes() == new.read_bytes()
    known = next(f for f in manifest(IK_CORPUS)["files"] if f["file"] == name)
    assert told["generated"] == known["reference"]


@pytest.mark.parametrize(("keep", "right"), [(84, True), (60, True), (40, True), (30, False)])
def test_prompts_that_go_back_in_ik(tmp_path: Path, keep: int, right: bool) -> None:
    """Two checkpoints of the save hold all but the first nine cells of its windowed layers."""
    old, new = tmp_path / "old.bin", tmp_path / NEW
    put(CORPUS / "gemma3-iswa.b11549.long.bin", old)
    model = model_of("gemma3-iswa")
    repaired(old, new, "-c 512", DAY, model)
    asked = {"singly": False, "n_predict": N_PREDICT}
    warm = in_ik(model, load=str(new), keep=keep, next=SUFFIX, **asked)
    cold = in_ik(model, next=[*warm["tokens"][:keep], *SUFFIX], **asked)
    assert (warm["generated"] == cold["generated"]) == right


def test_short_keys_go_on_in_ik_from_where_they_are_whole(tmp_path: Path) -> None:
    """Its server drops the cells behind the last token; the library is told to."""
    old, new = tmp_path / "old.bin", tmp_path / NEW
    put(IK_CORPUS / "llama-gqa.ik-2026-09.k-q8_KV.seq.bin", old)
    model = model_of("llama-gqa")
    steps, _ = repaired(old, new, "-c 512 -ctk q8_KV", DAY, model, refused=("transcode",))
    assert steps == "trim"
    held = tokens_of(new)
    asked = {"context": {"type_k": 151}, "singly": False, "n_predict": N_PREDICT}
    warm = in_ik(model, load=str(new), keep=len(held), next=SUFFIX, **asked)
    cold = in_ik(model, next=[*held, *SUFFIX], **asked)
    assert warm["tokens"] == held
    assert warm["generated"] == cold["generated"]
