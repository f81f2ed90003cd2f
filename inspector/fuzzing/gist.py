"""What a log says of a failure, without what differs from run to run."""

from __future__ import annotations

import re

LOG_BYTES = 1 << 16
"""Kept of the end of a log, and as many of its beginning."""
_LONGEST = 200

_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ (?:in )?(\S+)", re.MULTILINE)
_PYTHON = re.compile(r'^  File "([^"]+)", line \d+, in (\S+)', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_FRAMES = 3
"""Innermost functions that tell failures apart."""
_MACHINERY = re.compile(
    r"^(?:__|abort$|raise$|gsignal$|ggml_abort|std::terminate|std::rethrow|__cxa|_Unwind|start_thread|clone)"
)

_TIME = r"^(?:\d+\.\d\d\.\d{3}\.\d{3} (?:[A-Z] )?)?"
"""With the level, of a line of a llama.cpp log; another thread may go on behind it."""
_FATAL = re.compile(
    r"assert\w*\b.*(?:fail|false)|GGML_ASSERT|terminate called|what\(\):|panicked at|fatal|"
    r"abort|stack smashing|double free|corrupt|"
    + _TIME
    + r"\S+\.(?:c|cc|cpp|cxx|cu|h|hpp|m|mm):\d+: ",
    re.IGNORECASE,
)
_HEAD = re.compile(_TIME)
_CRASH = re.compile(
    r"libFuzzer: deadly|panicked at |^panic: |"
    r"Fatal Python error|GGML_ASSERT\(.*\) failed|terminate called after",
    re.MULTILINE,
)
_SANITIZER = re.compile(
    r"^.*(?:ERROR: .{0,80}Sanitizer|WARNING: (?:Memory|Thread)Sanitizer: |: runtime error: ).*$",
    re.MULTILINE,
)
_TOO_MUCH = re.compile(r"Sanitizer: (?:.*out of memory|requested allocation size)")
"""A sanitizer that was asked for more memory than there is, or than it gives."""
_MEMORY = re.compile(
    r"bad_alloc|out of memory|Cannot allocate memory|MemoryError|memory allocation of \d+ bytes|"
    r"allocation-size-too-big|failed to allocate|bad_array_new_length",
    re.IGNORECASE,
)
_SAYS = re.compile(r"error|fail|invalid|refuse|cannot|unknown|mismatch|exceed|unexpected", re.I)

_HEX, _NUMBER = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{8,}\b"), re.compile(r"-?\d+")
_FOLDERS = re.compile(r"(?:/[^\s:'\"()]+)+/")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def out_of_memory(log: str) -> bool:
    """Whether a log says that memory ran out; where a sanitizer speaks, only its word counts."""
    if says := sanitizer(log):
        return bool(_TOO_MUCH.search(says))
    return bool(_MEMORY.search(log))


def crashed(log: str) -> bool:
    """Whether a log says that the program is broken, of one that did not exit with 0."""
    return bool(_CRASH.search(log))


def sanitizer(log: str) -> str:
    """The line with which a sanitizer begins its report; empty if there is none.

    A program that goes on after it, as with UBSan or `halt_on_error=0`, may still exit with 0.
    """
    found = _SANITIZER.search(log)
    return found[0] if found else ""


def gist_of(log: str, names: tuple[str, ...] = ()) -> str:
    """What tells this failure from another: its stack, its assertion, or its first complaint.

    Args:
        log: what the loader printed.
        names: of the file that was loaded, which are not part of it.
    """
    log = _COLOUR.sub("", log)
    lines = [line for line in log.splitlines() if line.strip()]
    if not lines:
        return ""
    stack = _stack(log)
    fatal = [line for line in lines if _FATAL.search(line)]
    says = fatal[-1] if fatal else next((line for line in lines if _SAYS.search(line)), lines[-1])
    if "terminate called" in says and says is not lines[-1]:
        says = lines[lines.index(says) + 1]
    if _TRACEBACK in log:
        says = lines[-1]
    says = sanitizer(log) or _HEAD.sub("", says)
    return f"{_plain(says, names)}{stack}"[:_LONGEST]


def _stack(log: str) -> str:
    """The innermost functions, if the log has them."""
    if (at := log.rfind(_TRACEBACK)) >= 0:
        frames = _PYTHON.findall(log, at)
        return f" at {frames[-1][1]}" if frames else ""
    names = [name for name in _FRAME.findall(log) if not _MACHINERY.match(name)]
    return f" at {' < '.join(names[:_FRAMES])}" if names else ""


def _plain(line: str, names: tuple[str, ...]) -> str:
    for name in sorted(names, key=len, reverse=True):
        line = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "{}", line)
    line = _FOLDERS.sub("", line)
    line = _NUMBER.sub("#", _HEX.sub("#", line))
    return " ".join(line.split())
