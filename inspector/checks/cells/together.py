"""The sections of a state against each other, and against its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.checks.subject import Subject
from inspector.findings import Finding


def check_together(subject: Subject) -> Iterator[Finding]:
    """Sections of one moment end at one position, and a window is part of the full cache."""
    if subject.reading.layout.format not in ("ggsq", "blob"):
        return
    attention, swa, recurrent = (
        subject.section(kind) for kind in ("attention", "swa", "recurrent")
    )
    if (
        attention is not None
        and swa is not None
        and attention.pos_max is not None
        and swa.pos_max is not None
    ):
        if swa.pos_max < attention.pos_max:
            yield Finding(
                "swa.behind",
                swa.path,
                swa.span,
                f"the window ends at position {swa.pos_max}, the full cache at {attention.pos_max}",
                f"position {attention.pos_max}",
                f"position {swa.pos_max}",
            )
        import numpy as np

        full = attention.ordered
        nearest = np.searchsorted(full, swa.pos).clip(max=len(full) - 1)
        strangers = np.sort(swa.pos[full[nearest] != swa.pos])
        if len(strangers):
            yield Finding(
                "swa.more-cells",
                swa.path,
                swa.span,
                f"the window holds position {strangers[0]}, which the full cache lacks; so it "
                f"does {len(strangers):,} of {swa.cells:,} positions of the window",
                "positions of the full cache",
                f"position {strangers[0]}",
            )
    ahead = attention or swa
    if recurrent is None or ahead is None or None in (recurrent.pos_max, ahead.pos_max):
        return
    if recurrent.pos_max != ahead.pos_max:
        yield Finding(
            "recurrent.pos-mismatch",
            recurrent.path,
            recurrent.span,
            f"the state stands at position {recurrent.pos_max}, "
            f"the attention cache ends at {ahead.pos_max}",
            f"position {ahead.pos_max}",
            f"position {recurrent.pos_max}",
        )


def check_end(subject: Subject) -> Iterator[Finding]:
    """Text that was saved whole has a position for every token, the last of them one less."""
    tokens, layout = subject.tokens, subject.reading.layout
    main = subject.section("attention", "recurrent")
    if layout.format != "ggsq" or not tokens.count or tokens.media or main is None:
        return
    if main.pos_max is None or subject.reading.decoding.stops or main.pos_max < 0:
        return
    last = tokens.count - 1
    if main.pos_max < last and main.cells == tokens.count and subject.section("swa") is None:
        yield Finding(
            "cells.end-mismatch",
            main.path,
            main.span,
            f"{tokens.count:,} tokens and as many cells, the highest position is {main.pos_max}",
            f"position {last}",
            f"position {main.pos_max}",
        )
    # a library may save one more token than it evaluated
    if main.kind == "recurrent" and main.pos_max not in (last, last - 1):
        yield Finding(
            "recurrent.pos-mismatch",
            main.path,
            main.span,
            f"the state stands at position {main.pos_max}, the last token at {last}",
            f"position {last}",
            f"position {main.pos_max}",
        )
