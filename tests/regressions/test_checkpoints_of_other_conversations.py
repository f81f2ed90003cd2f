"""Checkpoints of other conversations went into repaired copies as if they were of the state.

Nothing in a list says which conversation it is of; the model does, by its first layer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inspector.check import checked
from inspector.repair.draft import Options
from inspector.repair.plan import Plan, planned
from inspector.report import examined
from inspector.server.prompt import Outcome, Request
from inspector.server.target import target_of
from inspector.span import Span
from samples.make import HERE as SAMPLES

SAMPLE = SAMPLES / "intact/ggsq4.hybrid--lfm2-b11549-checkpoints.slot"
MODEL = SAMPLES.parent / "tests/oracle/models/lfm2.gguf"
SERVER = f"llama-server -m {MODEL} -c 512 -np 1"
CODE = "identity.checkpoint-differs"
ENDS = (18, 27, 31, 38, 42)
"""Tokens of the checkpoints of the sample."""


def states(path: Path) -> list[Span]:
    """Where the checkpoints keep the convolution state of the first layer."""
    with examined(path) as report:
        found = []
        for one in report.checkpoints:
            assert one.record.blob is not None
            (part,) = one.record.blob.sections
            assert part.r[0].data is not None
            found.append(part.r[0].data)
        return found


def exchanged(path: Path, first: int, second: int) -> None:
    """Put the states of two checkpoints in the place of each other."""
    data, spans = bytearray(path.read_bytes()), states(path)
    one, two = spans[first], spans[second]
    data[one.start : one.stop], data[two.start : two.stop] = (
        data[two.start : two.stop],
        data[one.start : one.stop],
    )
    path.write_bytes(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of the sample."""
    found = tmp_path / "a.slot"
    found.write_bytes(SAMPLE.read_bytes())
    return found


FAMILIES = {".ckpt": "pkcl1", ".checkpoints": "llcp1"}


def listed(path: Path, suffix: str) -> bytes:
    """The checkpoints of a file as a list of the family that lies beside a state under a suffix."""
    with planned(path, None, Options(to=FAMILIES[suffix]), "b.slot") as plan:
        (output,) = [one for one in plan.outputs if one.suffix]
        assert output.suffix == suffix
        return output.content.read_at(0, output.content.size)


def without_checkpoints() -> bytes:
    """The sample without its appendix."""
    with examined(SAMPLE) as report:
        found = report.tree.get("appendix")
        assert found is not None
        return report.source.read_at(0, found.span.start)


def kept(plan: Plan) -> list[int | None]:
    """Tokens of the checkpoints in the copy."""
    return [one.record.n_tokens for one in plan.copied.checkpoints]


def test_the_model_tells(path: Path) -> None:
    asked = [Request(n + 1, n + 9) for n in ENDS]
    with target_of(SERVER, "b11549") as target:
        with checked(path, target, asked) as check:
            assert [one.tested for one in check.report.checkpoints] == [True] * 5
            assert [one.found.reused for one in check.reuse] == list(ENDS)
        exchanged(path, 1, 3)
        with checked(path, target, asked) as check:
            assert [f.path for f in check.findings if f.code == CODE] == [
                "appendix.records[1].data_tgt",
                "appendix.records[3].data_tgt",
            ]
            outcomes = [one.found.outcome for one in check.reuse]
            right, unknown = Outcome.REUSES, Outcome.UNKNOWN
            assert outcomes == [right, unknown, right, unknown, right]
        with planned(path, target, Options(), "b.slot") as plan:
            (step,) = plan.steps
            assert step.action == "drop-checkpoints"
            assert "not of the tokens in front of it" in step.why
            assert "2 of 5 checkpoints: a.slot[1], a.slot[3]" in step.changes
            assert kept(plan) == [18, 31, 42]
            assert plan.after is not None
            assert not plan.left


@pytest.mark.parametrize("spoilt", [".ckpt", ".checkpoints"])
def test_of_two_lists_that_is_kept_which_is_of_the_state(path: Path, spoilt: str) -> None:
    """Whichever was written last."""
    exchanged(path, 0, 1)
    exchanged(path, 2, 3)
    exchanged(path, 3, 4)
    for suffix in FAMILIES:
        data = listed(path if suffix == spoilt else SAMPLE, suffix)
        Path(f"{path}{suffix}").write_bytes(data)
    path.write_bytes(without_checkpoints())
    with target_of(SERVER, "b11549") as target, planned(path, target, Options(), "b") as plan:
        assert plan.steps[0].action == "drop-checkpoints"
        assert f"5 of 10 checkpoints: a.slot{spoilt}[0]" in plan.steps[0].changes
        assert kept(plan) == list(ENDS)
        assert not plan.left


@pytest.mark.parametrize("newer", [".ckpt", ".checkpoints"])
def test_of_two_lists_that_is_kept_which_was_written_last(path: Path, newer: str) -> None:
    """Where nothing else tells which is of the state, and the step names it."""
    path.write_bytes(without_checkpoints())
    now = path.stat().st_mtime_ns
    for suffix in FAMILIES:
        Path(f"{path}{suffix}").write_bytes(listed(SAMPLE, suffix))
        time = now + 10**9 * (suffix == newer)
        os.utime(f"{path}{suffix}", ns=(time, time))
    with planned(path, None, Options(), "b.slot") as plan:
        (step,) = plan.steps
        assert step.action == "drop-checkpoints"
        assert step.why == f"one list is kept, and that of a.slot{newer} was written last"
        assert "5 of 10 checkpoints" in step.changes
        assert step.loss
        assert [output.suffix for output in plan.outputs] == ["", newer]


def test_checkpoints_in_the_file_are_kept_rather_than_a_list_beside_it(path: Path) -> None:
    Path(f"{path}.ckpt").write_bytes(listed(SAMPLE, ".ckpt"))
    with planned(path, None, Options(), "b.slot") as plan:
        (step,) = plan.steps
        assert step.why == "one list is kept, and that of a.slot stands in its file"
        (output,) = plan.outputs
        assert output.content.read_at(0, output.content.size) == path.read_bytes()
