"""`slotscope seal`: digests beside a file, that tell later which bytes have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, show


def seal(
    files: list[Path] = typer.Argument(
        ..., metavar="FILE...", help="States, with their companions; any other file too."
    ),
    command: str | None = typer.Option(
        None, "--for", metavar="COMMAND", help="The server that wrote it, to be remembered."
    ),
    build: str | None = typer.Option(None, metavar="BUILD", help="Its build."),
    model: Path | None = typer.Option(
        None, metavar="GGUF", help="Its model, of which a fingerprint is kept."
    ),
    force: bool = typer.Option(
        False, "--force", help="Replace a seal that does not hold, or that cannot be read."
    ),
    json: bool = typer.Option(False, "--json", help="Print the records, one a line."),
) -> None:
    """Write FILE.slotscope.json: what the bytes of FILE and its companions are now.

    `slotscope scan --verify` and `slotscope inspect` compare its sections later, by xxh3. The
    sha256 is for you and for other programs: we do not compute it again.
    """
    from inspector.repair.apply import NotWritten
    from inspector.seal import BadSeal
    from inspector.sealing import Refused, sealed
    from inspector.server.target import BadTarget, target_of
    from inspector.source import Unreadable

    code = SOUND
    try:
        with target_of(command, build, model) as target:
            named = any(word is not None for word in (command, build))
            for file in files:
                try:
                    record = sealed(file, target if named else None, target.model, force=force)
                except (Unreadable, NotWritten) as error:
                    complain(f"{file}: {error}")
                    code = USAGE
                except Refused as error:
                    complain(f"{file}: {error}")
                    code = max(code, FINDINGS)
                except BadSeal as error:
                    complain(f"{file}: {error}")
                    code = max(code, FINDINGS)
                else:
                    _show(file, record, as_json=json)
    except BadTarget as error:
        complain(str(error))
        code = USAGE
    raise typer.Exit(code)


def _show(file: Path, record: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        from json import dumps

        document(dumps(record))
        return
    from inspector.bundle import RECORD
    from inspector.render.page import counted, text

    seal = record["seal"]
    what = counted(len(seal["sections"]), "section")
    if seal["companions"]:
        what += f", {counted(len(seal['companions']), 'companion')}"
    show([text(f"{file.name}{RECORD}: {what}, sha256 {seal['sha256'][:32]}…")])
