"""A token that was changed in the list or in a cell of a real save, and what its model says."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.model.layer0.comparison import MOST_SETTLED
from inspector.repair.draft import Options
from inspector.repair.plan import Plan, planned
from inspector.repair.segments import chunks
from inspector.report import examined
from inspector.server.target import target_of
from tests.corpus.test_check import CORPUS

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the real files are not at hand")

MODEL = CORPUS / "models/qwen2vl.gguf"
BUILDS = ("b10809", "b11549")
LIST, CELL = "list", "cell"
CHANGES = {
    "one in the list": ({(LIST, 1): 77}, "the list: token 1, as the cells have it"),
    "the last in the list": ({(LIST, 26): 77}, "the list: token 26, as the cells have it"),
    "a negative one": ({(LIST, 5): -7}, "the list: token 5, as the cells have it"),
    "one that is no media": ({(LIST, 5): -1}, "the list: token 5, as the cells have it"),
    "one beyond all": ({(LIST, 5): 1 << 30}, "the list: token 5, as the cells have it"),
    "one in a cell": ({(CELL, 4): 77}, "the cells: token 4, as the list has it"),
    "beyond all in a cell": ({(CELL, 4): 1 << 30}, "the cells: token 4, as the list has it"),
    "one in each": (
        {(LIST, 9): 77, (CELL, 4): 78},
        "the list: token 9, as the cells have it; the cells: token 4, as the list has it",
    ),
    "ten in the list": (
        {(LIST, at): 90 + at for at in range(2, 12)},
        "the list: 10 tokens from 2 to 11, as the cells have it",
    ),
}


def save(build: str) -> Path:
    return CORPUS / f"qwen2vl.{build}.default.bin"


def changed(folder: Path, build: str, words: dict[tuple[str, int], int]) -> Path:
    """The save with other token ids in its list or its cells."""
    with examined(save(build)) as report:
        assert report.tokens is not None
        assert report.tokens.rows is not None
        table = report.sections[0].tables[0]
        tok = [name for name, _ in table.fields].index("tok") * 4
        places = {
            (where, at): report.tokens.rows.row_span(at).start
            if where == LIST
            else table.row_span(at).start + tok
            for where, at in words
        }
    data = bytearray(save(build).read_bytes())
    for key, value in words.items():
        struct.pack_into("<i", data, places[key], value)
    path = folder / "slot.bin"
    path.write_bytes(data)
    return path


def copy_of(plan: Plan) -> bytes:
    (state,) = plan.outputs
    return b"".join(chunks(state.content.content))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("case", CHANGES)
def test_the_model_tells_which_was_changed(case: str, build: str, tmp_path: Path) -> None:
    words, said = CHANGES[case]
    path = changed(tmp_path, build, words)
    server = "llama-server -c 512 -np 1"
    with (
        target_of(server, build, MODEL) as target,
        planned(path, target, Options(), "new.bin") as plan,
    ):
        (step,) = plan.steps
        assert (step.action, step.changes, step.loss) == ("correct-word", said, None)
        assert copy_of(plan) == save(build).read_bytes()
        assert plan.staying == ()
    with (
        target_of(server, build, MODEL) as target,
        planned(path, target, Options(skip=("correct-word",)), "new.bin") as plan,
    ):
        assert plan.steps == ()
        assert copy_of(plan) == path.read_bytes()
        assert plan.staying


@pytest.mark.parametrize("case", CHANGES)
def test_without_a_model_nothing_is_done(case: str, tmp_path: Path) -> None:
    path = changed(tmp_path, "b11549", CHANGES[case][0])
    with planned(path, None, Options(), "new.bin") as plan:
        assert plan.steps == ()
        assert copy_of(plan) == path.read_bytes()
        assert "cells.token-differs" in plan.staying


def test_both_were_changed(tmp_path: Path) -> None:
    """Neither is that of the row: none is written in place of the other."""
    path = changed(tmp_path, "b11549", {(LIST, 5): 77, (CELL, 5): 78})
    with (
        target_of("llama-server -c 512 -np 1", "b11549", MODEL) as target,
        planned(path, target, Options(), "new.bin") as plan,
    ):
        assert plan.steps == ()
        assert "cells.token-differs" in plan.staying


def test_more_than_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done by halves: the next repair would find more to do."""
    assert MOST_SETTLED > 3
    monkeypatch.setattr("inspector.repair.actions.words.MOST_SETTLED", 3)
    path = changed(tmp_path, "b11549", {(LIST, at): 90 + at for at in (2, 8, 14, 20)})
    with (
        target_of("llama-server -c 512 -np 1", "b11549", MODEL) as target,
        planned(path, target, Options(), "new.bin") as plan,
    ):
        assert plan.steps == ()
        assert "more than 3 cells name different tokens" in dict(plan.refused)["correct-word"]


@pytest.mark.parametrize("value", [-7, 77])
def test_a_plain_list(tmp_path: Path, value: int) -> None:
    """As libraries write it, and servers that save no media."""
    with examined(save("b11549")) as report:
        assert report.tokens is not None
        ids, memory = report.tokens.ids.astype("<i4"), report.sections[0].node.span.start
    data = save("b11549").read_bytes()
    plain = data[:8] + struct.pack("<I", len(ids)) + ids.tobytes() + data[memory:]
    path = tmp_path / "slot.bin"
    path.write_bytes(plain[:32] + struct.pack("<i", value) + plain[36:])
    with (
        target_of("llama-server -c 512 -np 1", "b11549", MODEL) as target,
        planned(path, target, Options(), "new.bin") as plan,
    ):
        assert ("tokens.negative" in [one.code for one in plan.report.findings]) == (value < 0)
        assert [step.changes for step in plan.steps] == [CHANGES["a negative one"][1]]
        assert copy_of(plan) == plain


def test_another_form_of_the_corrected_list(tmp_path: Path) -> None:
    """A server without tokens in cells gets the list that they vouch for."""
    path, new = changed(tmp_path, "b11549", {(LIST, 5): 77}), tmp_path / "new.bin"
    words = ["repair", path, "-o", new, "--model", MODEL, "--build", "b10229"]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    with examined(new) as found, examined(save("b11549")) as original:
        assert found.tokens is not None
        assert original.tokens is not None
        assert found.tokens.ids.tolist() == original.tokens.ids.tolist()
