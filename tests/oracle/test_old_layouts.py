"""Saves of 2024 to 2026 on the newest server: repaired, restored, reused, answered as without."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from inspector.repair.draft import Options
from inspector.repair.outcome import carry_out
from inspector.repair.plan import planned
from inspector.report import examined
from inspector.server.target import target_of
from samples.make import HERE as SAMPLES
from tests.oracle.builds import BUILDS, Build
from tests.oracle.test_records import prompt
from tests.oracle.trial import MODELS, NAME, OTHERWISE, Bench

pytestmark = pytest.mark.oracle

SHARED = Path(__file__).parents[3] / "shared" / "corpus"
"""Saves and models that are too many to lie beside these tests."""
PLAIN = "-c 512 -np 1 --no-kv-unified --cache-ram 0"
NEW = "new.slot"
NEWEST = BUILDS[-1]
B7551, B8156 = Build(7551, "xllamacpp==0.2.8", 2), Build(8156, "xllamacpp==0.2.12", 2)
B10229 = BUILDS[0]
Q8, Q4 = "-fa on -ctk q8_0 -ctv q8_0", "-fa on -ctk q4_0 -ctv q4_0"


@dataclass(frozen=True)
class Case:
    """A save and what makes it fit.

    Attributes:
        model: that it belongs to.
        save: a sample or a file that is shared; or the build that writes it here and now.
        steps: the actions that are taken.
        flags: of the server that restores.
        saved: flags of the server that saves.
        reads: the server that restores.
        far: how far log probabilities may be from those of a cold run.
    """

    model: str
    save: str | Build
    steps: str
    flags: str = "-fa on"
    saved: str = "-fa on"
    reads: Build = NEWEST
    far: float = 0.02

    @property
    def path(self) -> Path:
        """The model's file."""
        return existing(MODELS / f"{self.model}.gguf", SHARED / f"models/{self.model}.gguf")

    def put(self, bench: Bench) -> None:
        """Write the save to the file on trial."""
        if isinstance(self.save, str):
            places = (SAMPLES / "intact" / f"{self.save}.slot", SHARED / f"{self.save}.bin")
            shutil.copyfile(existing(*places), bench.path)
            return
        with bench.serve(self.save, self.path, f"{PLAIN} {self.saved}".split()) as server:
            assert server.complete((1, *prompt(59)), n_predict=1).ok
            assert server.save(NAME).ok

    def __str__(self) -> str:
        """In short."""
        words = self.flags if self.flags != "-fa on" else ""
        return f"{self.model} {self.save} {words} {self.reads}".replace(" ", "_")


def existing(*paths: Path) -> Path:
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        pytest.skip(f"{paths[-1].name} is not at hand")
    return found


CASES = (
    Case("llama-gqa", "ggsq1.kv--llama-2024-06", "relayout transpose-values"),
    Case("llama-gqa", "ggsq1.kv--llama-2024-06", "relayout", "-fa off"),
    Case("llama-gqa", "ggsq2.kv.anonymous--llama-2024-09", "relayout transpose-values"),
    Case("llama-gqa", "ggsq2.kv.anonymous--llama-b3889-flash-attention", "relayout"),
    Case("llama-gqa", "llama-gqa.b4600.lib-plain.seq", "relayout transpose-values"),
    Case(
        "gemma3-iswa",
        "ggsq2.kv.anonymous--gemma3-b5129",
        "split-window relayout transpose-values",
    ),
    Case("gemma3-iswa", "ggsq2.iswa.flat--gemma3-b5671",
         "relayout transpose-values"),
    Case("llama-gqa", "ggsq2.kv.flat--llama-b5671", "relayout transpose-values"),
    Case("llama-gqa", "llama-gqa.b6123.lib-plain.seq", "relayout transpose-values"),
    Case("llama-gqa", "ggsq1.kv--llama-2024-06", "relayout transpose-values transcode", Q8),
    Case("llama-gqa", "ggsn8.kv--llama-2024-09", "from-session relayout transpose-values"),
    Case("llama-gqa", "ggsn9.kv.outputs--llama-b5937", "from-session relayout transpose-values"),
    Case("llama-gqa", "ggsn11.kv--llama-b11549", "from-session"),
    Case("deepseek2-mla", B7551, "drop-values swap-latent-keys relayout"),
    Case("deepseek2-mla", B7551, "drop-values swap-latent-keys relayout", Q8, Q8),
    Case("deepseek2-mla", B7551, "drop-values swap-latent-keys relayout transcode", Q8),
    Case("deepseek2-mla", B7551, "drop-values swap-latent-keys", reads=B10229),
    Case("qwen35", B8156, "transpose-states relayout synthesize-tip"),
    Case("qwen3next", B8156, "transpose-states relayout synthesize-tip"),
    Case("qwen3next", B8156, "transpose-states", reads=B10229),
    Case("llama-hd128", B8156, "relayout transcode", Q8, Q8),
    Case("llama-hd128", B8156, "transcode", Q8, Q8, B10229),
    Case("llama-hd128", B10229, "relayout transcode", Q8),
    Case("llama-hd128", NEWEST, "transcode transpose-values", "-fa off", Q8),
    Case("llama-hd128", NEWEST, "transpose-values transcode", Q8, "-fa off"),
    Case("llama-hd128", NEWEST, "transcode", "-fa off", "-fa off -ctk f32 -ctv f32"),
    Case("llama-hd128", NEWEST, "transcode", "-fa on -ctk f32 -ctv bf16", Q4, far=1),
    Case("llama-hd128", NEWEST, "transpose-values transcode", Q4, "-fa off", far=1),
    Case("gemma3-iswa", NEWEST, "transpose-values transcode", Q8, "-fa off"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_repaired(case: Case, bench: Bench) -> None:
    case.put(bench)
    words = f"llama-server -m {case.path} {PLAIN} {case.flags}"
    with (
        target_of(words, str(case.reads)) as target,
        planned(bench.path, target, Options(), NEW) as plan,
    ):
        assert [step.action for step in plan.steps] == case.steps.split()
        assert plan.before is not None
        assert plan.before.findings, "the server takes it as it is"
        assert plan.after is not None
        expected = next(one.found.reused for one in plan.after.reuse if one.name == "append")
        carry_out(plan, bench.folder / NEW)
    with examined(bench.folder / NEW) as report:
        assert report.tokens is not None
        held = tuple(report.tokens.ids.tolist())
    asked = (*held, *OTHERWISE)
    flags = f"{PLAIN} {case.flags}".split()
    with bench.serve(case.reads, case.path, flags) as server:
        cold = server.complete(asked, n_predict=16, reuse=False)
    with bench.serve(case.reads, case.path, flags) as server:
        assert server.restore(NEW).ok
        answer = server.complete(asked, n_predict=16)
    assert answer.reused == expected
    assert expected is not None
    assert expected >= len(held) - 1 or "gemma3" in case.model
    assert answer.tokens == cold.tokens
    likeliest = cold.likeliest
    assert max(abs(likeliest.get(id_, p) - p) for id_, p in answer.likeliest.items()) < case.far
