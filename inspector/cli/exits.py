"""Exit codes; other programs rely on them."""

from __future__ import annotations

SOUND = 0
"""Sound, or done."""
FINDINGS = 1
"""Findings at or above `--fail-on`."""
USAGE = 2
"""Wrong usage, or a file that cannot be read at all."""
CRASH = 70
"""Our own bug."""
INTERRUPTED = 130
"""Ended by Ctrl-C, with what was done until then; what only watched has another code."""
