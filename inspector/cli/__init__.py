"""The command line: one module a command; nothing else prints."""

from __future__ import annotations

import sys

from inspector.cli.exits import CRASH


def main() -> None:
    """Run slotscope; whatever escapes a command is our own bug and says so."""
    from inspector.cli.app import app

    try:
        app()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        import traceback

        traceback.print_exc()
        print(
            f"slotscope: this is a bug in slotscope ({type(error).__name__}); please report it",
            file=sys.stderr,
        )
        sys.exit(CRASH)
