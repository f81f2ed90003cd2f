"""`slotscope tokens`: the token list of a file, its text, and a request that resumes from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, exactly
from inspector.render.escape import printable

if TYPE_CHECKING:
    from inspector.model.vocabulary import Vocabulary
    from inspector.report import Report
    from inspector.salvage import TokenList

_SCHEMA = "slotscope.tokens/1"
_SPOILT = ("tokens.negative", "tokens.packed-negative")
"""What is wrong with ids that are all there."""


def tokens(
    file: Path = typer.Argument(..., metavar="FILE", help="A state, whole or damaged."),
    model: Path | None = typer.Option(
        None, metavar="GGUF", help="Print the text, with the vocabulary of this model."
    ),
    request: bool = typer.Option(
        False,
        "--request",
        help="Print a body for /completion that begins with exactly the saved ids; "
        "the state must be in the slot.",
    ),
    text: str | None = typer.Option(
        None, metavar="TEXT", help="What the request adds to them; the server tokenizes it."
    ),
    slot: int = typer.Option(0, min=0, metavar="N", help="The slot that the request asks for."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Print the token ids of FILE, as one JSON array; also out of a state beyond repair.

    Exit code 1 says that ids are missing or cannot be trusted: those that are there are printed.
    """
    from json import dumps

    from inspector.report import examined
    from inspector.salvage import text_of, token_list
    from inspector.source import Unreadable

    if request and (json or model is not None):
        raise typer.BadParameter("is JSON of ids by itself", param_hint="--request")
    if not request and (text is not None or slot):
        raise typer.BadParameter("only with --request", param_hint="--text, --slot")
    try:
        words = _vocabulary(model) if model is not None else None
        with examined(file) as report:
            found = token_list(report)
            spoilt = any(one.code in _SPOILT for one in report.findings)
            sound = not found.why and not spoilt
            _say(file, report, found, words)
            if request:
                sound &= _request(file, found, text, slot)
            elif json:
                document(dumps(_as_dict(report, found, words)))
            elif words is not None:
                _show(text_of(found, words))
            elif len(found.tokens.ids):
                document(dumps(found.tokens.ids.tolist()))
    except Unreadable as error:
        complain(f"{file}: {error}")
        raise typer.Exit(USAGE) from error
    raise typer.Exit(SOUND if sound else FINDINGS)


def _vocabulary(path: Path) -> Vocabulary:
    from inspector.model.gguf import Unusable, read_model
    from inspector.model.vocabulary import vocabulary_of
    from inspector.source import Unreadable, opened

    try:
        with opened(path) as source:
            model = read_model(source)
            found = model.reason if isinstance(model, Unusable) else vocabulary_of(model)
    except Unreadable as error:
        found = str(error)
    if isinstance(found, str):
        complain(f"{path}: {found}")
        raise typer.Exit(USAGE)
    return found


def _say(file: Path, report: Report, found: TokenList, words: Vocabulary | None) -> None:
    """What there is to know about the list besides the list."""
    from inspector.findings import Severity

    ids = found.tokens.ids
    errors = sorted(
        {
            one.code
            for one in report.findings
            if one.severity is Severity.ERROR
            or (one.severity is Severity.WARNING and one.code.startswith("tokens."))
        }
    )
    if found.why:
        complain(f"{file}: {found.why}")
    elif errors:
        complain(f"{file}: {len(ids):,} token ids, all there; the file has {', '.join(errors)}")
    beyond = int((ids >= len(words)).sum()) if words is not None else 0
    if words is not None and beyond:
        complain(
            f"{file}: the model does not fit: {beyond:,} ids are beyond its {len(words):,} tokens"
        )


def _request(file: Path, found: TokenList, text: str | None, slot: int) -> bool:
    """Print the request; False if there can be none."""
    from json import dumps

    ids = found.tokens.ids.tolist()
    if not ids:
        return False
    if found.text_only < len(ids):
        complain(
            f"{file}: no request can hold ids below 0 (media, or damage): "
            f"only the first {found.text_only:,} of {len(ids):,} are text"
        )
        return False
    if text is None:
        complain(
            f"{file}: add at least one id or a text to the prompt (--text): without, the last "
            "token is computed again, for which some memories have to begin anew"
        )
    prompt = ids if text is None else [*ids, text]
    document(dumps({"prompt": prompt, "id_slot": slot, "cache_prompt": True}))
    return True


def _show(text: str) -> None:
    """A text as it is, or on a terminal without what could move its cursor."""
    if sys.stdout is not None and sys.stdout.isatty():
        document("\n".join(map(printable, text.split("\n"))))
    else:
        exactly(text)


def _as_dict(report: Report, found: TokenList, words: Vocabulary | None) -> dict[str, Any]:
    from inspector.salvage import text_of

    tokens = found.tokens
    return {
        "schema": _SCHEMA,
        "file": {"name": report.name, "path": report.source.name, "bytes": report.size},
        "count": len(tokens.ids),
        "missing": found.missing,
        "packing": tokens.packing,
        "media": [
            {"start": one.start, "n_tokens": one.n_tokens, "kind": one.kind, "id": one.id}
            for one in found.media
        ],
        "digest": tokens.digest if len(tokens.ids) else None,
        "ids": tokens.ids.tolist(),
        **({"text": text_of(found, words)} if words is not None else {}),
    }
