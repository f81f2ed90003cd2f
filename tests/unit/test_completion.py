"""Completion in real shells, installed there with the one command that the README names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Complete = Callable[[str], list[str]]

_IN_BASH = """
source ~/.bashrc
complete -p slotscope | grep -q -- '-o default' || exit 1
read -ra COMP_WORDS <<< "$1"
[[ $1 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_slotscope_completion slotscope
printf '%s\\n' "${COMPREPLY[@]:-$(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")}"
"""
"""What bash does at a tab; where nothing is completed, it completes files."""


@pytest.fixture(params=["bash", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """What a shell makes of a line, after `slotscope --install-completion` in it."""
    shell: str = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    command = tmp_path / "bin" / "slotscope"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom inspector.cli import main\nmain()\n")
    command.chmod(0o755)
    (tmp_path / "one.slot").touch()
    environment = {"HOME": str(tmp_path), "PATH": f"{command.parent}:{os.environ['PATH']}"}

    def run(*argv: str) -> str:
        done = subprocess.run(
            [shell, *argv],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "installed" in run("-c", "slotscope --install-completion; true")
    if shell == "bash":
        return lambda line: run("-c", _IN_BASH, "bash", line).split()
    return lambda line: [
        word.partition("\t")[0] for word in run("-c", f"complete -C '{line}'").strip().split("\n")
    ]


def test_every_kind_of_word(complete: Complete) -> None:
    assert complete("slotscope expl") == ["explain"]
    assert complete("slotscope fuzz min") == ["minimize"]
    assert complete("slotscope repair --allow") == ["--allow-loss"]
    assert complete("slotscope repair one.slot --only trim-") == ["trim-window"]
    assert complete("slotscope repair one.slot --to pkcl1") == ["pkcl1"]
    assert complete("slotscope explain file.trunc") == ["file.truncated"]
    assert complete("slotscope layouts ggsq4.hybrid.x") == ["ggsq4.hybrid.xyt"]
    assert complete("slotscope check one.slot --build b11") == ["b11549"]
    assert sorted(complete("slotscope inspect one.slot --fail-on ")) == [
        "error",
        "never",
        "note",
        "warning",
    ]


@pytest.mark.parametrize("words", ["inspect", "scan", "check --model"])
def test_files(complete: Complete, words: str) -> None:
    assert complete(f"slotscope {words} on") == ["one.slot"]
