"""The commands, and what they have in common."""

from __future__ import annotations

import typer
from typer.core import TyperCommand

from inspector.cli.anonymize import anonymize
from inspector.cli.browse import browse
from inspector.cli.check import check
from inspector.cli.diff import diff
from inspector.cli.explain import explain
from inspector.cli.fuzz import fuzz
from inspector.cli.geometry import geometry
from inspector.cli.inspect import InspectCommand, inspect
from inspector.cli.layouts import layouts
from inspector.cli.man import man
from inspector.cli.repair import repair
from inspector.cli.report import report
from inspector.cli.scan import ScanCommand, scan
from inspector.cli.seal import seal
from inspector.cli.summaries import EXIT_CODES, examples, summary
from inspector.cli.tokens import tokens
from inspector.cli.usage import Command, Commands
from inspector.cli.whose import whose

app = typer.Typer(
    name="slotscope",
    cls=Commands,
    help="The fsck of llama.cpp session state: slot saves, prompt caches, checkpoint sidecars.\n\n"
    "Begin with `slotscope inspect FILE`. What it looks at is never written; COMMAND --help says "
    "more of each.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("slotscope"))
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


app.command(cls=InspectCommand)(inspect)
app.command()(browse)
app.command()(check)
app.command()(diff)
app.command(cls=ScanCommand)(scan)
app.command()(report)
app.command()(seal)
app.command()(repair)
app.command()(tokens)
app.command()(anonymize)
app.command()(whose)
app.command()(geometry)
app.add_typer(fuzz, short_help=summary("fuzz"))
app.command()(layouts)
app.command()(explain)
app.command()(man)

for command in (*app.registered_commands, *fuzz.registered_commands):
    if command.cls is TyperCommand:
        command.cls = Command
    if command.callback is not None:
        command.short_help = summary(command.callback.__name__)
        command.epilog = examples(command.callback.__name__)
