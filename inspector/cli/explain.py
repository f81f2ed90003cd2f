"""`slotscope explain`: what a finding code means."""

from __future__ import annotations

import typer


def explain(
    code: str = typer.Argument("", help="A code, such as file.truncated; none lists all."),
) -> None:
    """Explain a finding code: meaning, consequence, remedy, source."""
    import inspector.checks  # noqa: F401 - registers the codes
    from inspector.render.as_text import explain_code

    explain_code(code)
