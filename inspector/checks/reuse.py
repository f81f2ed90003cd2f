"""What the most common disappointment will be: a restore that succeeds and reuses nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from formats.ggml_types import IK
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register

_GATE = "llama.cpp b9509, tools/server: reuse of a restored slot, measured on b7551 to b11549"

register(
    Code(
        "reuse.needs-exact-append",
        Severity.NOTE,
        "Recurrent layers and no checkpoints",
        "a restore succeeds, but a prompt is reused only if it begins with every saved token "
        "and adds at least one; "
        "b9231 to b9508 reuse nothing",
        RemedyKind.NONE,
        "a checkpoint of the saved end helps a later request that returns to it; earlier ones "
        "cannot be made",
        _GATE,
    ),
    Code(
        "reuse.window-cut",
        Severity.NOTE,
        "Only the last window of the windowed layers is stored, and no checkpoints",
        "a restore succeeds, but unless the file is from before b9473 and holds more than the "
        "model's window, servers from b9231 on reuse nothing of it, not even for an exact append",
        RemedyKind.NONE,
        "a checkpoint, or one cell below the window, opens the gate again",
        _GATE,
    ),
)


def check_reuse(subject: Subject, found: Collection[Finding]) -> Iterator[Finding]:
    """What limits the reuse of a slot file that has no usable checkpoint.

    Args:
        subject: the state.
        found: what else is wrong with it: what no server restores is not reused anyway.
    """
    layout = subject.reading.layout
    refused = any(finding.severity is Severity.ERROR for finding in found)
    if layout.format != "ggsq" or layout.writer == IK or refused:
        return
    # more than the window is there
    older = any(finding.code in ("swa.count", "cells.window-anchor") for finding in found)
    recurrent, swa, attention = (
        subject.section(kind) for kind in ("recurrent", "swa", "attention")
    )
    if recurrent is not None and recurrent.cells:
        yield Finding(
            "reuse.needs-exact-append",
            recurrent.path,
            recurrent.span,
            f"the state stands at position {recurrent.pos_max} and cannot go back",
            "checkpoints of earlier positions",
            "none that can be used",
        )
    elif (
        swa is not None and attention is not None and 0 < swa.cells < attention.cells and not older
    ):
        yield Finding(
            "reuse.window-cut",
            swa.path,
            swa.span,
            f"the windowed layers hold positions {swa.pos_min} to {swa.pos_max}, "
            f"{swa.cells:,} of {attention.cells:,}",
            f"cells below position {swa.pos_min}, or checkpoints",
            "none that can be used",
        )
