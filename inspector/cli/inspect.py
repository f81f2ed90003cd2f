"""`slotscope inspect`: what every byte of a file is, and what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from inspector.cli.exits import FINDINGS, USAGE


def inspect(
    files: list[Path] = typer.Argument(
        ..., metavar="FILE…", help="State files, sidecars or model files."
    ),
    json: bool = typer.Option(
        False, "--json", help="Print one JSON document (a list for several files)."
    ),
    fail_on: str = typer.Option(
        "error",
        metavar="SEVERITY",
        help="Exit 1 from this severity on: error, warning, note or never.",
    ),
) -> None:
    """Say what every byte of FILE is, what is wrong with it, and how that is known."""
    from inspector.findings import Severity, worst
    from inspector.report import Report
    from inspector.report import inspect as look
    from inspector.source import Unreadable, opened

    if fail_on not in (*Severity, "never"):
        raise typer.BadParameter(
            f"{fail_on!r} is none of error, warning, note, never", param_hint="--fail-on"
        )
    reports: list[Report] = []
    unreadable = False
    documents = []
    for path in files:
        try:
            with opened(path) as source:
                report = look(source)
                reports.append(report)
                if json:
                    from inspector.render.as_json import to_dict

                    documents.append(to_dict(report))
                else:
                    from inspector.render.as_text import show

                    show(report)
        except Unreadable as error:
            unreadable = True
            print(f"slotscope: {path}: {error}", file=sys.stderr)
    if json and documents:
        from json import dumps

        print(dumps(documents[0] if len(files) == 1 else documents, indent=2, ensure_ascii=True))
    if unreadable:
        raise typer.Exit(USAGE)
    limit = Severity(fail_on).rank if fail_on != "never" else -1
    if any(
        (found := worst(report.findings)) is not None and found.rank <= limit for report in reports
    ):
        raise typer.Exit(FINDINGS)
