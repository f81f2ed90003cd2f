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
    import inspector.report  # noqa: F401 - registers the codes of all checks
    from inspector.findings import CODES
    from inspector.render.manual import code_list, code_page, nearest_name

    if not code:
        show(code_list(CODES.values()))
    elif code in CODES:
        show(code_page(CODES[code]))
    else:
        complain(f"no code {code!r}; {nearest_name(code, CODES)}")
        raise typer.Exit(USAGE)
