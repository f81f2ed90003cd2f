"""What a seal says against a file, and whether its repaired copy puts that right."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inspector.bundle import RECORD
from inspector.checks import seals
from inspector.cli.app import app
from inspector.node import walk
from inspector.repair import sealed as of_repair
from inspector.report import examined

INTACT = Path(__file__).resolve().parents[2] / "samples/intact"
PLAIN = "ggsq2.kv--llama-b10229-short.slot"
BESIDE = "ggsq2.hybrid--with-pkcl1.slot"
APPENDED = "ggsq4.hybrid--lfm2-b11549-checkpoints.slot"
STAYS = "what no repair puts right stays: "


def ran(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def said(result: Result) -> str:
    return " ".join(result.output.split())


def sealed(folder: Path, name: str) -> Path:
    """A copy of a sample, and of its list, sealed."""
    path = folder / "slot.bin"
    for suffix in ("", ".ckpt"):
        if (INTACT / (name + suffix)).exists():
            shutil.copyfile(INTACT / (name + suffix), folder / (path.name + suffix))
    assert ran("seal", path).exit_code == 0
    return path


def changed(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(data)
    stamp = path.stat().st_mtime_ns + 60 * 10**9
    os.utime(path, ns=(stamp, stamp))


def place(path: Path, ending: str) -> int:
    """The first byte of the first part whose path ends so."""
    with examined(path) as report:
        return next(n.span.start for p, n in walk(report.tree) if p.endswith(ending))


def test_other_numbers_stay_in_the_copy(tmp_path: Path) -> None:
    path = sealed(tmp_path, PLAIN)
    assert ran("repair", path).exit_code == 0
    changed(path, place(path, "v[0].data"))
    assert ran("inspect", path).exit_code == 1
    for words in ((), ("--build", "b10229"), ("--build", "b11549")):
        result, new = ran("repair", path, *words), tmp_path / "new.bin"
        assert result.exit_code == 1, result.output
        assert f"{STAYS}seal.section-differs" in said(result)
        assert "can stay as it is" not in said(result)
        assert "nothing to repair" not in said(result)
        result = ran("repair", path, *words, "-o", new, "--force")
        assert result.exit_code == 1
        assert f"{STAYS}seal.section-differs" in said(result)
        assert new.exists()
        document = json.loads(ran("repair", path, *words, "--json").output)
        assert document["stays"] == ["seal.section-differs"]


def test_what_is_named_with_other_actions_only(tmp_path: Path) -> None:
    path = sealed(tmp_path, PLAIN)
    changed(path, place(path, "v[0].data"))
    result = ran("repair", path, "--only", "trim")
    assert result.exit_code == 1
    assert "what the actions that are allowed leave stays: seal.section-differs" in said(result)


@pytest.mark.parametrize("build", [None, "b10229", "b11549"])
def test_a_word_that_is_put_right_is_as_it_was_sealed(tmp_path: Path, build: str | None) -> None:
    """Also in a copy of another form, in which no byte stands where it stood."""
    path = sealed(tmp_path, PLAIN)
    original = path.read_bytes()
    changed(path, place(path, "cell_count"))
    result = ran("repair", path, *(("--build", build) if build else ()))
    assert "correct-word" in said(result)
    assert result.exit_code == 0, result.output
    assert "seal." not in said(result)
    new = tmp_path / "new.bin"
    assert ran("repair", path, "-o", new).exit_code == 0
    assert new.read_bytes() == original


def test_a_word_and_numbers(tmp_path: Path) -> None:
    path = sealed(tmp_path, PLAIN)
    numbers = place(path, "v[0].data")
    changed(path, place(path, "cell_count"))
    changed(path, numbers)
    result = ran("repair", path)
    assert result.exit_code == 1
    assert f"{STAYS}seal.section-differs" in said(result)


def test_bytes_behind_the_end_are_cut_off(tmp_path: Path) -> None:
    path = sealed(tmp_path, PLAIN)
    path.write_bytes(path.read_bytes() + bytes(8))
    assert ran("inspect", path).exit_code == 1
    result = ran("repair", path)
    assert result.exit_code == 0, result.output
    assert "seal." not in said(result)


def test_another_list_beside_it(tmp_path: Path) -> None:
    path = sealed(tmp_path, BESIDE)
    listing = path.with_name(path.name + ".ckpt")
    changed(listing, listing.stat().st_size - 100)
    for words in ((), ("--to", "llcp1")):
        assert f"{STAYS}seal.companion-differs" in said(
            ran("repair", path, *words, "-o", tmp_path / "new.bin", "--force")
        )
    result = ran("repair", path, "--build", "b10229")
    assert "drop-checkpoints" in said(result)
    assert "seal." not in said(result)
    listing.unlink()
    assert f"{STAYS}seal.companion-differs" in said(
        ran("repair", path, "-o", tmp_path / "new.bin", "--force")
    )


def test_a_checkpoint_that_the_copy_has_not(tmp_path: Path) -> None:
    path = sealed(tmp_path, APPENDED)
    with examined(path) as report:
        (first, *_) = report.checkpoints
    changed(path, first.record.span.stop - 8)
    result = ran("repair", path, "--build", "b11549")
    assert result.exit_code == 1
    assert f"{STAYS}seal.section-differs" in said(result)
    result = ran("repair", path, "--build", "b10229")
    assert "drop-checkpoints" in said(result)
    assert result.exit_code == 0, result.output
    assert "seal." not in said(result)


def test_large_files_are_compared_by_size_and_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sealed(tmp_path, PLAIN)
    for module in (seals, of_repair):
        monkeypatch.setattr(module, "SMALL", 1 << 10)
    changed(path, place(path, "v[0].data"))
    assert ran("repair", path).exit_code == 0
    changed(path, place(path, "tokens"))
    result = ran("repair", path)
    assert result.exit_code == 1
    assert f"{STAYS}seal.section-differs" in said(result)


def test_a_record_of_how_a_file_was_made_is_no_seal(tmp_path: Path) -> None:
    path, new = sealed(tmp_path, PLAIN), tmp_path / "new.bin"
    assert ran("repair", path, "-o", new).exit_code == 0
    changed(new, place(new, "v[0].data"))
    assert Path(f"{new}{RECORD}").exists()
    assert ran("repair", new).exit_code == 0
