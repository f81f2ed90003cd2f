"""The state that checkpoints are held against, and what they have in common with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from formats.ggml_types import IK
from inspector.checkpoints import CheckpointList, CheckpointRecord, digest_of
from inspector.checks.subject import Subject
from inspector.sections import Section
from inspector.source import Source
from inspector.tokens import Tokens

_CHUNK = 8192
"""Tokens of an attention chunk (Llama 4): what begins at a multiple of it may be no window."""


@dataclass(frozen=True)
class State:
    """What checkpoints are held against.

    Attributes:
        writer: the program that wrote the state, None if undecidable.
        version: of its format.
        tokens: its token field.
        sections: its memory; empty if the state was not read to its end.
        window: positions that a sliding window spans; None if there is none, or it is not known.
        source: the open file.
    """

    writer: str | None
    version: int | None
    tokens: Tokens
    sections: tuple[Section, ...]
    window: int | None
    source: Source

    @cached_property
    def digest(self) -> int | None:
        """FNV-1a of the whole file; None if the file is too large for that."""
        return digest_of(self.source)

    @cached_property
    def next_pos(self) -> int | None:
        """The position behind the last one in memory; None if it holds no cells."""
        ends = [section.pos_max for section in self.sections if section.pos_max is not None]
        return max(ends) + 1 if ends else None

    @property
    def aligned(self) -> bool:
        """Whether position and number of tokens are the same thing: text only, nothing removed."""
        return not self.tokens.media and self.next_pos == self.tokens.count

    def section(self, kind: str) -> Section | None:
        """The first section of this kind."""
        return next((section for section in self.sections if section.kind == kind), None)

    @property
    def partial(self) -> tuple[Section, ...]:
        """The sections that a checkpoint of this memory holds.

        Windowed and recurrent ones; all if there are none of these. ik_llama.cpp adds the cells of
        the attention section, without keys and values.
        """
        kept = [section for section in self.sections if section.kind in ("swa", "recurrent")]
        if any(section.kind == "dsv4" for section in self.sections):
            return self.sections
        if kept and self.writer == "ik_llama.cpp":
            return self.sections[:1] + tuple(kept)
        return tuple(kept) or self.sections


def state_of(subject: Subject, source: Source) -> State:
    """What there is to know of a state that checkpoints depend on.

    Args:
        subject: the state.
        source: its file, open.
    """
    decoding = subject.reading.decoding
    sound = all(stop.path.startswith("appendix") for stop in decoding.stops)
    sound = sound and all(fact.path == "version" for fact in subject.reading.failed)
    sections = subject.sections if sound else ()
    return State(
        writer=subject.identification.writer,
        version=subject.reading.layout.version,
        tokens=subject.tokens,
        sections=sections,
        window=_window(subject.reading.layout.version, sections),
        source=source,
    )


def _window(version: int | None, sections: tuple[Section, ...]) -> int | None:
    """How far a sliding window reaches, by a state whose writer keeps nothing else of it.

    From b9473 on (PR #23981) masked cells are not saved; only versions 3 and 4 prove such a writer.
    """
    swa = next((section for section in sections if section.kind == "swa"), None)
    if swa is None or version is None or version < 3 or not swa.pos_min:
        return None
    size = (swa.pos_max or 0) + 1 - swa.pos_min
    return size if swa.cells == size and swa.pos_min % _CHUNK else None


def is_foreign(listing: CheckpointList, state: State) -> bool:
    """Whether a list is of ik_llama.cpp and its state is not, or the reverse."""
    ik_list, ik_state = listing.format == "ik-checkpoints", state.writer == IK
    return state.writer is not None and ik_list != ik_state


def beyond_state(record: CheckpointRecord, state: State) -> tuple[str, str, str, str] | None:
    """How a record reaches beyond the end of the state, or None if it does not.

    Returns:
        The member that tells, what it says, what it could say at most, and the number that it has.
    """
    n_tokens, pos_max = record.n_tokens or 0, record.pos_max or 0
    count, next_pos = state.tokens.count, state.next_pos
    if state.tokens.packing != "none" and n_tokens > count:
        name = "n_tokens" if record.stores_n_tokens else "pos_max_prompt"
        message = f"covers {n_tokens:,} tokens, the state has {count:,}"
        return name, message, f"at most {count}", f"{n_tokens}"
    if next_pos is not None and pos_max >= next_pos:
        message = f"ends at position {pos_max}, the state at {next_pos - 1}"
        return "pos_max", message, f"at most {next_pos - 1}", f"{pos_max}"
    return None
