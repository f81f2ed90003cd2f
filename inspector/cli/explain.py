"""`slotscope explain`: what a finding code means."""

from __future__ import annotations

import typer

from inspector.cli.exits import USAGE
from inspector.cli.output import complain, show


def explain(
    code: str = typer.Argument(
        "", metavar="[CODE]", help="A code, such as file.truncated; none lists all."
    ),
) -> None:
    """Explain a finding code: meaning, consequence, remedy, source."""
    from inspector.checks import all_codes
    from inspector.render.manual import code_list, code_page, nearest_name

    codes = all_codes()
    if not code:
        show(code_list(codes.values()))
    elif code in codes:
        show(code_page(codes[code]))
    else:
        complain(f"no code {code!r}; {nearest_name(code.lower(), codes)}")
        raise typer.Exit(USAGE)
