"""Orders of stored numbers that changed from one build to another without a trace in the file.

Source: ggml-org/llama.cpp PR #18986 (b7812), src/models/deepseek2.cpp; measured on b5671 to b11549
for latent keys, on b8156 and b8390 for delta nets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from inspector.builds import build_number
from inspector.server.servers import CHANGES, Build, uncertain

if TYPE_CHECKING:
    from inspector.model.identity import Identity
    from inspector.report import Report
    from inspector.sections import Section
    from inspector.server.target import Target

DELTA_NETS = ("qwen3next", "qwen35", "qwen35moe")
"""Architectures whose states are square blocks that were transposed."""
_PER_HEAD = ("deepseek2",)
"""Architectures whose keys had the same change head by head, in models without keys for MLA."""
_ROPE_FIRST = 5137
"""Rope parts stand first from here on, until latent parts do. Source: PR #12801."""


class What(Enum):
    """What is ordered otherwise."""

    KEYS = "latent keys: rope part and latent part changed places"
    STATES = "states of delta nets: every block was transposed"


@dataclass(frozen=True, slots=True)
class Order:
    """The order of the numbers of a section.

    Attributes:
        what: of which numbers.
        section: that holds them.
        stored: whether they are as newer builds have them; None if that is not known.
        wanted: whether the server has them so; None if that is not known.
    """

    what: What
    section: Section
    stored: bool | None
    wanted: bool | None

    @property
    def differs(self) -> bool:
        """Whether the server is sure to take them otherwise."""
        return None not in (self.stored, self.wanted) and self.stored != self.wanted


def orders(report: Report, target: Target, identity: Identity | None) -> Iterator[Order]:
    """The orders that matter for a state of the target's model.

    Args:
        report: of the state.
        target: the server that is to load it.
        identity: what its numbers showed; None if nobody looked.
    """
    memory, build = target.memory, target.build
    if memory is None or build.number is None or not report.sections:
        return
    if report.identification.writer == IK:
        return  # it has an order of its own
    builds = report.identification.builds
    since, until = build_number(builds.since or ""), build_number(builds.until or "") or None
    if memory.mla or memory.architecture in _PER_HEAD:
        old = build.number >= _ROPE_FIRST and not build.has("mla-latent-first")
        stored = _keys_newer(since, until, identity, mla=memory.mla)
        yield Order(What.KEYS, report.sections[0], stored, not old)
    recurrent = next((part for part in report.sections if part.kind == "recurrent"), None)
    if memory.architecture in DELTA_NETS and recurrent is not None:
        stored = _states_newer(since, until, identity)
        yield Order(What.STATES, recurrent, stored, _has(build, "delta-net-transposed"))


def _has(build: Build, change: str) -> bool | None:
    return None if uncertain(build, change) else build.has(change)


def _keys_newer(
    since: int, until: int | None, identity: Identity | None, *, mla: bool
) -> bool | None:
    from inspector.model.identity import Outcome
    from inspector.model.layer0.attention import (
        LATENT_FIRST,
        NOPE_FIRST,
        ROPE_FIRST,
        ROPE_THEN_NOPE,
    )

    if identity is not None and identity.outcome in (Outcome.MATCHES, Outcome.RELATED):
        if identity.order in (LATENT_FIRST, NOPE_FIRST):
            return True
        if identity.order in (ROPE_FIRST, ROPE_THEN_NOPE):
            return False
    change = CHANGES["mla-latent-first"].since or 0
    if since >= change:
        return True
    if until is None or until >= change:
        return None
    if mla or since >= _ROPE_FIRST:  # there were no models for MLA before
        return False
    return True if until < _ROPE_FIRST else None


def _states_newer(since: int, until: int | None, identity: Identity | None) -> bool | None:
    if identity is not None and identity.values_first is not None:
        return identity.values_first
    change = CHANGES["delta-net-transposed"]
    if until is not None and until < (change.since or 0):
        return False
    return True if since >= (change.sure or 0) else None
