"""Where parsing ended: files that are cut, counts that lie, bytes behind the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from formats.spans import Stop, StopReason
from inspector.checks.subject import Subject
from inspector.checks.whole import missing, whole_end
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.node import Kind, Node, walk
from inspector.span import Span

_LOADER = (
    "llama.cpp b7725 (PR #18801) to b11549: reads past the end succeed silently, "
    "then GGML_ASSERT ends the process"
)

register(
    Code(
        "file.truncated",
        Severity.ERROR,
        "The file ends before its contents do",
        "restoring a slot file like this aborts the whole server from b7725 on; older builds, "
        "Windows and ik_llama.cpp refuse it; readers of other files refuse them",
        RemedyKind.LOSSY,
        "do not restore it: the tokens that are left can be prefilled again; the memory cannot be "
        "completed",
        _LOADER,
    ),
    Code(
        "tokens.count-exceeds-file",
        Severity.ERROR,
        "The token count is larger than the file",
        'a restore is refused: "token count exceeds the file size" or "exceeded capacity"',
        RemedyKind.NONE,
        "where the token list ends cannot be known from the count; if one other count makes "
        "the file whole, it is named",
        "llama.cpp b10388, llama_context::state_seq_load_file",
    ),
    Code(
        "cells.count-exceeds-file",
        Severity.ERROR,
        "A section claims more cells than the file can hold",
        "builds before b11193 allocate memory for all of them first, up to 90 GB, ik_llama.cpp "
        "before 2026-08-06 crashes; later ones refuse the file",
        RemedyKind.NONE,
        "if one other count makes the file whole, it is named",
        "llama.cpp b11193 (PR #27530), llama_kv_cache::state_read",
    ),
    Code(
        "layout.count-exceeds-file",
        Severity.ERROR,
        "A count is larger than what is left of the file",
        "a loader misreads what follows, refuses the file, or aborts",
        RemedyKind.NONE,
        "if one other count makes the file whole, it is named",
        _LOADER,
    ),
    Code(
        "layout.count-unbelievable",
        Severity.ERROR,
        "A count is beyond anything that a writer writes",
        "a loader that believes it allocates without bound",
        RemedyKind.NONE,
        "the bytes behind it are left unread",
        "the limits of the layout (`slotscope layouts ID`)",
    ),
    Code(
        "layout.frame-damaged",
        Severity.ERROR,
        "The contents of a frame do not fit it",
        "the server refuses the restore, or drops what the frame holds",
        RemedyKind.NONE,
        "what follows the frame was read all the same",
        "llama.cpp b10388, tools/server",
    ),
    Code(
        "file.trailing-bytes",
        Severity.NOTE,
        "Bytes follow the end of the state",
        "loaders of slot files ignore them",
        RemedyKind.EXACT,
        "cut them off: nothing of the state is lost",
        "llama.cpp b10587, llama_context::state_seq_load_file",
    ),
    Code(
        "file.trailing-unknown",
        Severity.WARNING,
        "Bytes that nothing explains follow the end of the state",
        "loaders of slot files ignore them, if they really are no part of the state: a section "
        "whose beginning is damaged looks the same",
        RemedyKind.NONE,
        "give the model with --model: it says which sections its state has",
        "llama.cpp b10587, llama_context::state_seq_load_file",
    ),
    Code(
        "file.trailing-bytes-refused",
        Severity.ERROR,
        "Bytes follow the end, and the loader insists on the exact end",
        'loading fails: "did not read all of the session file data"',
        RemedyKind.EXACT,
        "cut them off",
        "llama.cpp b10587, llama_context::state_load_file",
    ),
)

_EXACT_END = ("ggsn", "blob", "context")


def check_extent(subject: Subject) -> Iterator[Finding]:
    """Every stop, and what lies behind the end."""
    decoding = subject.reading.decoding
    for stop in decoding.stops:
        if not (subject.is_state and stop.path.startswith("appendix")):
            yield _stopped(subject, stop)
    if decoding.ended and decoding.end < subject.root.span.stop:
        yield _trailing(subject, Span(decoding.end, subject.root.span.stop))


def _stopped(subject: Subject, stop: Stop) -> Finding:
    end = subject.root.span.stop
    if stop.reason is StopReason.LIMIT:
        return Finding(
            "layout.count-unbelievable",
            stop.path,
            Span(stop.offset, end),
            f"{stop.path} would have {stop.wanted:,} items",
            f"at most {stop.available:,}",
            f"{stop.wanted:,}",
        )
    walled = _frame(subject.root, stop.offset, end)
    if walled is not None:
        path, frame = walled
        return _finding(
            "layout.frame-damaged", stop, frame.span.stop, f"{stop.path} does not fit into {path}"
        )
    if stop.reason is StopReason.COUNT_EXCEEDS_FILE:
        return _count(subject, stop, end)
    return _truncated(subject, stop, f"the file ends inside {stop.path}")


def _truncated(subject: Subject, stop: Stop, message: str) -> Finding:
    evidence = (whole_end(subject), missing(subject))
    return replace(
        _finding("file.truncated", stop, subject.root.span.stop, message),
        evidence=tuple(line for line in evidence if line is not None),
    )


def _count(subject: Subject, stop: Stop, end: int) -> Finding:
    """A count beyond the end: a lie, or the trace of a cut."""
    last = stop.path.rpartition(".")[2]
    if stop.path.startswith("tokens"):
        code = "tokens.count-exceeds-file"
    elif last.startswith("cells"):
        code = "cells.count-exceeds-file"
    else:
        code = "layout.count-exceeds-file"
    message = (
        f"{stop.path} should have {stop.wanted:,} items, the file has room for {stop.available:,}"
    )
    finding = Finding(
        code, stop.path, Span(stop.offset, end), message, f"{stop.wanted:,}", f"{stop.available:,}"
    )
    plausible = subject.identification.mend is None and stop.wanted < 64 * max(1, stop.available)
    if code == "layout.count-exceeds-file" and plausible:
        return _truncated(subject, stop, f"the file ends before all of {stop.path}")
    return finding


def _finding(code: str, stop: Stop, end: int, message: str) -> Finding:
    unit = "items" if stop.reason is StopReason.COUNT_EXCEEDS_FILE else "bytes"
    return Finding(
        code,
        stop.path,
        Span(stop.offset, end),
        message,
        f"{stop.wanted:,} {unit} from 0x{stop.offset:x} on",
        f"{stop.available:,} {unit}",
    )


def _frame(root: Node, offset: int, end: int) -> tuple[str, Node] | None:
    """The frame around a stop that parsing survived: it ends in a gap before the file does."""
    for path, node in walk(root):
        gap = node.children[-1] if node.children else None
        if (
            path
            and gap is not None
            and gap.kind is Kind.GAP
            and gap.span.start == offset
            and gap.span.stop < end
        ):
            return path, node
    return None


def _trailing(subject: Subject, span: Span) -> Finding:
    exact = subject.reading.layout.format in _EXACT_END
    padding = " (all zero)" if subject.reading.padded else ""
    code = "file.trailing-bytes" if subject.reading.padded else "file.trailing-unknown"
    return Finding(
        "file.trailing-bytes-refused" if exact else code,
        "",
        span,
        f"{len(span):,} bytes{padding} follow the end at 0x{span.start:x}",
        f"the end of the file at 0x{span.start:x}",
        f"{len(span):,} more bytes",
    )
