"""Which model a sample is of, among those that the real servers had."""

from __future__ import annotations

import json
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.model.identity import Outcome
from inspector.whose import candidates, model_files
from samples.make import HERE as SAMPLES

MODELS = Path(__file__).parents[1] / "oracle/models"


def written_with() -> dict[str, str]:
    """Sample -> the model of the server that saved it, of those that are at hand."""
    found = {}
    for card in sorted(SAMPLES.glob("intact/ggsq*.toml")):
        words = shlex.split(tomllib.loads(card.read_text())["origin"].get("made_by", ""))
        name = words[words.index("-m") + 1] if "-m" in words else ""
        if (MODELS / name).is_file():
            found[card.stem] = name
    return found


WRITTEN_WITH = written_with()


def test_there_are_enough_samples() -> None:
    assert len(WRITTEN_WITH) >= 10
    assert len(set(WRITTEN_WITH.values())) >= 5


@pytest.mark.parametrize("sample", WRITTEN_WITH)
def test_it_is_of_one_model(sample: str) -> None:
    found = candidates(SAMPLES / f"intact/{sample}.slot", model_files([MODELS]))
    assert [one.path.name for one in found if one.likely] == [WRITTEN_WITH[sample]]
    assert found[0].outcome is Outcome.MATCHES
    assert {one.path.name for one in found} == {path.name for path in MODELS.glob("*.gguf")}


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    sample, name = next(iter(WRITTEN_WITH.items()))
    state = SAMPLES / f"intact/{sample}.slot"
    shutil.copyfile(MODELS / name, tmp_path / "a.gguf")
    (tmp_path / "b.gguf").write_bytes((MODELS / name).read_bytes()[:100])
    (tmp_path / "c.gguf").write_bytes(b"nothing")
    result = CliRunner().invoke(app, ["whose", str(state), str(tmp_path), "--json"])
    assert result.exit_code == 0
    said = {Path(one["path"]).name: one for one in json.loads(result.stdout)["models"]}
    assert said["a.gguf"]["outcome"] == "matches"
    assert [said[name]["outcome"] for name in ("b.gguf", "c.gguf")] == ["not-tested"] * 2
    assert all(one["evidence"] for one in said.values())


def test_of_none(tmp_path: Path) -> None:
    sample, name = next(iter(WRITTEN_WITH.items()))
    state = SAMPLES / f"intact/{sample}.slot"
    others = [str(path) for path in MODELS.glob("*.gguf") if path.name != name]
    result = CliRunner().invoke(app, ["whose", str(state), *others])
    assert result.exit_code == 1
    assert f"none of {len(others)} models" in result.output
    missing = CliRunner().invoke(app, ["whose", str(tmp_path / "none.bin"), *others])
    assert missing.exit_code == 2


def test_a_model_that_is_cut_is_said_to_be(tmp_path: Path) -> None:
    sample, name = next(iter(WRITTEN_WITH.items()))
    data = (MODELS / name).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[: len(data) - 100])
    (one,) = candidates(SAMPLES / f"intact/{sample}.slot", model_files([tmp_path]))
    assert "the file is cut" in one.why


def test_without_a_model_nothing_is_said(tmp_path: Path) -> None:
    state = str(SAMPLES / f"intact/{next(iter(WRITTEN_WITH))}.slot")
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    for models in (tmp_path, tmp_path / "loop.gguf"):
        assert CliRunner().invoke(app, ["whose", state, str(models)]).exit_code == 2


def test_a_model_with_several_names_is_looked_at_once(tmp_path: Path) -> None:
    name = next(iter(WRITTEN_WITH.values()))
    for n in range(3):
        (tmp_path / f"{n}.gguf").symlink_to(MODELS / name)
    assert [path.name for path in model_files([tmp_path])] == ["0.gguf"]


@pytest.mark.parametrize("sample", WRITTEN_WITH)
def test_a_state_that_is_cut_anywhere_is_of_no_other_model(sample: str, tmp_path: Path) -> None:
    """Windows and recurrent states come last: what is left looks like a state without them."""
    whole = (SAMPLES / "intact" / f"{sample}.slot").read_bytes()
    path = tmp_path / "slot.bin"
    for size in range(len(whole) // 20, len(whole), len(whole) // 20):
        path.write_bytes(whole[:size])
        (found,) = candidates(path, [MODELS / WRITTEN_WITH[sample]])
        assert found.outcome is not Outcome.DIFFERS, (size, found.why)


def test_a_state_with_a_wrong_count_is_still_of_its_model(tmp_path: Path) -> None:
    """It is read with the count that makes it whole, and that is said."""
    data = bytearray((SAMPLES / "intact/ggsq2.kv--llama-b10229-short.slot").read_bytes())
    data[8] += 1
    path = tmp_path / "a.slot"
    path.write_bytes(data)
    found = candidates(path, model_files([MODELS]))
    assert [one.path.name for one in found if one.likely] == ["llama-gqa.gguf"]
    assert "n_token_count was read as 5" in found[0].why
