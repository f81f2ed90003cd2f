"""`slotscope explain`: what a finding code means."""

from __future__ import annotations

import typer

from inspector.cli.completion import explained
from inspector.cli.exits import USAGE
from inspector.cli.output import complain, show


def explain(
    code: str = typer.Argument(
        "",
        metavar="[CODE]",
        autocompletion=explained,
        help="A code, such as file.truncated, or an action of repair, such as trim; none lists all "
        "codes.",
    ),
) -> None:
    """Explain a finding code: meaning, consequence, remedy, source; or what a repair does."""
    from inspector.checks import all_codes
    from inspector.render.manual import action_page, code_list, code_page, nearest_name
    from inspector.repair.plan import MEANINGS

    codes = all_codes()
    if not code:
        show(code_list(codes.values()))
    elif code in codes:
        show(code_page(codes[code]))
    elif code in MEANINGS:
        show(action_page(code, MEANINGS[code]))
    else:
        complain(f"no code {code!r}; {nearest_name(code.lower(), [*codes, *MEANINGS])}")
        raise typer.Exit(USAGE)
