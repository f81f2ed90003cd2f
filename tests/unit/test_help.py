"""The help: every command is explained and exemplified, and the manual page says the same."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.cli.summaries import GROUPS, examples, summary


def commands(command: Any = None, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that name it, groups too."""
    command = command or typer.main.get_command(app)
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


def output(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    return result.output


ALL = {" ".join(words): words for words, _ in commands()}
LEAVES = [words for words, command in commands() if not hasattr(command, "commands")]


def test_every_command_is_in_a_group() -> None:
    named = [name for group in GROUPS.values() for name in group]
    assert sorted(named) == sorted(words[-1] for words in ALL.values() if words)
    assert "Others:" not in output("--help") + output("fuzz", "--help")


@pytest.mark.parametrize("words", ALL.values(), ids=ALL)
def test_help_fits_a_terminal(words: tuple[str, ...]) -> None:
    text = output(*words, "--help")
    assert max(map(len, text.split("\n"))) <= 80
    assert "..." not in re.sub(r"[A-Z]\.\.\.|\[ARGS\]\.\.\.", "", text)
    assert not re.search(r"<[a-z ]+>|Usage: .*\{[A-Z]", text)
    if words:
        assert summary(words[-1])


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_examples_name_what_there_is(words: tuple[str, ...]) -> None:
    known = dict(commands())
    shown = examples(words[-1])
    assert shown is not None
    for line in shown.split("\n")[2:]:
        typed = list(takewhile(lambda word: word not in ("--", "|", ">"), shlex.split(line)))
        names = next(n for n in ((*typed[1:3],), (*typed[1:2],)) if n in known)
        context = typer.Context(known[names], info_name=names[-1])
        options = {name for option in known[names].get_params(context) for name in option.opts}
        given = [word for word in typed[1 + len(names) :] if re.match("--[a-z]|-[a-z]$", word)]
        assert set(given) <= options


def page() -> str:
    """The manual page as its source."""
    return output("man")


def test_the_manual_page_says_what_help_says() -> None:
    plain = page().replace("\\-", "-").replace("\\(ga", "`").replace("\\(ti", "~")
    for words, command in commands():
        context = typer.Context(command, info_name="slotscope", help_option_names=["-h", "--help"])
        assert f".SS {' '.join(['slotscope', *words])}\n" in plain or not words
        for parameter in command.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None:
                assert f".TP\n.B {record[0]}\n{' '.join(record[1].split())}\n" in plain


@pytest.mark.parametrize(
    "lint",
    [
        ["mandoc", "-T", "lint", "-W", "warning"],
        ["groff", "-K", "utf8", "-man", "-ww", "-z"],
    ],
    ids=lambda command: command[0],
)
def test_the_manual_page_is_one(lint: list[str]) -> None:
    if shutil.which(lint[0]) is None:
        pytest.skip(f"no {lint[0]} here")
    done = subprocess.run(lint, input=page(), capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).split("\n")
    assert [line for line in said if line and "missing date" not in line] == []


def test_who_watches_ends_otherwise() -> None:
    """As `test_watching` of scans sees it."""
    said = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "130 ended by Ctrl-C; scan --watch, once it watches, ends with the code for" in said
