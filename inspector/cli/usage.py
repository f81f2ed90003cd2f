"""Wrong usage: one line, whatever is wrong."""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

from typer._click.exceptions import NoArgsIsHelpError, UsageError
from typer.core import TyperGroup

from inspector.cli.exits import USAGE
from inspector.cli.output import complain, gave_up


class Commands(TyperGroup):
    """All commands; typer's own complaints take four lines and are made one."""

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
    says = " ".join(error.format_message().split()).removesuffix(".")
    says = re.sub(r"is not a valid (int|float)(eger)?( range)?$", lambda m: _NUMBERS[m[1]], says)
    more = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
    return says[:1].lower() + says[1:] + more
