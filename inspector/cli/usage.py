"""Wrong usage: one line, whatever is wrong."""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

from typer._click.exceptions import NoArgsIsHelpError, UsageError
from typer.core import TyperCommand, TyperGroup

from inspector.cli.exits import USAGE
from inspector.cli.output import complain, gave_up
from inspector.cli.summaries import GROUPS

_LINE = 70
"""Characters of what is said of a command."""


class Command(TyperCommand):
    """A command; typer has braces around what must be named."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in the first line of its help."""
        return [re.sub(r"^\{(.+)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


class Commands(TyperGroup):
    """All commands; typer's own complaints take four lines and are made one."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by what they are for."""
        wide = max(map(len, self.commands))
        others = {name: "" for name, one in self.commands.items() if not one.hidden}
        for heading, group in {**GROUPS, "Others": others}.items():
            rows = [(name.ljust(wide), self.commands[name]) for name in group if name in others]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(
                        [(name, one.get_short_help_str(_LINE)) for name, one in rows]
                    )
            others = {name: "" for name in others if name not in group}

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command that the words name, and exit."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except NoArgsIsHelpError as error:
            error.show()
            code = USAGE
        except UsageError as error:
            complain(_line(error))
            code = USAGE
        except OSError as error:
            if not gave_up(error):
                raise
            code = USAGE
        sys.exit(code)


_NUMBERS = {"int": "is no whole number", "float": "is no number"}


def _line(error: UsageError) -> str:
    """What typer says, as one line, and where more is said."""
    says = " ".join(error.format_message().split()).removesuffix(".").replace("...'", "'")
    says = re.sub(r"is not a valid (int|float)(eger)?( range)?$", lambda m: _NUMBERS[m[1]], says)
    more = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
    return says[:1].lower() + says[1:] + more
