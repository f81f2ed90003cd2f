"""The command line: one module a command; nothing else prints."""

from __future__ import annotations

import os
import signal
import sys

from inspector.cli.exits import CRASH, INTERRUPTED


def main() -> None:
    """Run slotscope; whatever escapes a command is our own bug and says so."""
    # numpy's threads spin while they wait, a sixth of what a command costs; no product here is
    # large enough for a second one
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        # until there is something to end in order, Ctrl-C ends it without a word
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from inspector.cli.app import app

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
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
