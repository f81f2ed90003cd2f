"""`slotscope check`: what a server will do with a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from inspector.cli.completion import severities
from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, failed, show, unread
from inspector.cli.prompts import token_ids
from inspector.cli.targets import BuildOption, ForOption, ModelOption, UrlOption

if TYPE_CHECKING:
    from inspector.check import Check
    from inspector.server.prompt import Request

_PROMPT = re.compile(r"([0-9]{1,12})/([0-9]{1,12})")
_MOST_TOKENS = (1 << 31) - 1
"""Of a prompt: positions have 32 bits."""


def check(
    files: list[Path] = typer.Argument(..., metavar="FILE...", readable=False, help="Slot files."),
    command: ForOption = None,
    build: BuildOption = None,
    model: ModelOption = None,
    url: UrlOption = None,
    timeout: float = typer.Option(
        5.0, min=0.1, max=600.0, metavar="SECONDS", help="How long to wait for --url."
    ),
    env: bool = typer.Option(False, "--env", help="Take the variables that the server reads too."),
    next_: list[str] = typer.Option(
        [],
        "--next",
        metavar="L/M",
        help="A prompt of M tokens, the first L as saved; repeatable.",
    ),
    next_tokens: str | None = typer.Option(
        None,
        metavar="FILE",
        help="A prompt as a JSON array of token ids; - for standard input.",
    ),
    then: str | None = typer.Option(
        None, metavar="L/M", help="The prompt after it: M tokens, the first L as it left them."
    ),
    json: bool = typer.Option(
        False, "--json", help="Print one JSON document (a list for several files)."
    ),
    fail_on: str = typer.Option(
        "error",
        metavar="SEVERITY",
        autocompletion=severities,
        help="Exit 1 from this severity on: error, warning, note or never. "
        "A restore that is refused or kills the server exits 1 unless it is never.",
    ),
) -> None:
    """Say what a server will do with FILE: restore it? reuse how much? is it of its model?"""
    from inspector.check import BadRequest, checked
    from inspector.findings import Severity
    from inspector.server.target import BadTarget, target_of
    from inspector.source import Unreadable

    if fail_on not in (*Severity, "never"):
        raise typer.BadParameter(
            f"{fail_on!r} is none of error, warning, note, never", param_hint="--fail-on"
        )
    limit = Severity(fail_on).rank if fail_on != "never" else -1
    requests = [_request(words, "--next") for words in next_]
    after = _request(then, "--then") if then is not None else None
    ids = token_ids(next_tokens, "--next-tokens") if next_tokens is not None else None
    environment = os.environ if env else None
    outcome, documents = SOUND, []
    try:
        with target_of(
            command, build, model, environment=environment, url=url, timeout=timeout
        ) as target:
            for index, file in enumerate(files):
                try:
                    with checked(file, target, requests, then=after, ids=ids) as found:
                        if json:
                            from inspector.render.verdict_json import to_dict

                            documents.append(to_dict(found))
                        else:
                            _show(found, file, first=not index)
                        outcome = max(outcome, code_of(found, limit))
                except (Unreadable, BadRequest) as error:
                    outcome = USAGE
                    complain(f"{file}: {unread(file, error)}")
                    if json and len(files) > 1:
                        documents.append(failed(file, unread(file, error)))
    except BadTarget as error:
        complain(str(error))
        raise typer.Exit(USAGE) from error
    if json and documents:
        from json import dumps

        document(dumps(documents[0] if len(files) == 1 else documents, indent=2))
    raise typer.Exit(outcome)


def _show(found: Check, file: Path, *, first: bool) -> None:
    from inspector.render.verdict import page

    if not first:
        show([""])
    show(page(found, str(file)))


def code_of(found: Check, limit: int) -> int:
    """The exit code: what is found from a severity on, or a restore that fails."""
    from inspector.findings import worst
    from inspector.server.loader import Outcome

    severity = worst(found.findings)
    bad = severity is not None and severity.rank <= limit
    lost = limit >= 0 and found.restore.outcome in (Outcome.REFUSES, Outcome.ABORTS)
    return FINDINGS if bad or lost else SOUND


def _request(words: str, option: str) -> Request:
    from inspector.server.prompt import Request

    match = _PROMPT.fullmatch(words)
    shared, total = map(int, match.groups()) if match is not None else (0, 0)
    if not 0 <= shared <= total or not total:
        raise typer.BadParameter(
            f"{words!r} is no L/M: L tokens as saved, of M in all", param_hint=option
        )
    if total > _MOST_TOKENS:
        raise typer.BadParameter(f"{words!r}: no context has {total:,} tokens", param_hint=option)
    return Request(shared, total)
