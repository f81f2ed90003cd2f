"""Transcripts: commands as a user types them, and exactly what they print.

`pytest tests/golden --update-golden` rewrites them; the diff is then read by a person.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
README = ROOT / "README.md"
CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
SAVED = 1_000_000_000
"""Time of the last change of every file that a command is given, so that none looks stale."""


def borrowed(argument: str, folder: Path) -> None:
    """Copy a file that a command names, with what lies beside it, or a folder, to `folder`."""
    source = ROOT / argument
    if not argument.startswith(("samples/", "tests/")) or not source.exists():
        return
    beside = source.iterdir() if source.is_dir() else source.parent.glob(f"{source.name}*")
    for file in beside:
        copy = folder / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        os.utime(copy, (SAVED, SAVED))


def ran(command: str, folder: Path) -> str:
    """What a command prints, standard output and standard error, and its exit code if not 0."""
    words = shlex.split(command)
    assert words[0] == "slotscope"
    for word in " ".join(words[1:]).split():
        borrowed(word, folder)
    result = CliRunner().invoke(app, words[1:])
    code = f"[exit {result.exit_code}]\n" if result.exit_code else ""
    return f"$ {command}\n{result.output}{code}"


def plain(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A folder of its own, and nothing that changes what is printed."""
    monkeypatch.chdir(folder)
    for name in ("LC_ALL", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(
    transcript: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    plain(monkeypatch, tmp_path)
    expected = transcript.read_text()
    commands = COMMAND.findall(expected)
    assert commands
    actual = "\n".join(ran(command, tmp_path) for command in commands)
    if pytestconfig.getoption("--update-golden", default=False):
        transcript.write_text(actual)
        expected = actual
    assert actual == expected
    typed, paths = ("$ ", "slotscope: "), (".slot", ".slot.tmp", " state")
    lines = [line for line in actual.splitlines() if not line.startswith(typed)]
    assert all(len(line) <= 80 or line.endswith(paths) for line in lines)


def test_the_readme_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """All but the exit codes, which a terminal does not show either."""
    plain(monkeypatch, tmp_path)
    expected = README.read_text()

    def shown(block: re.Match[str]) -> str:
        (command,) = COMMAND.findall(block[0])
        return re.sub(r"^\[exit \d+\]\n", "", ran(command, tmp_path), flags=re.MULTILINE)

    actual = CONSOLE.sub(shown, expected)
    if pytestconfig.getoption("--update-golden", default=False):
        README.write_text(actual)
        expected = actual
    assert actual == expected
