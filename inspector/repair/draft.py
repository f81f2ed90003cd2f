"""A repair in the making: what is left of the file, and the steps taken so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from formats.ggml_types import IK, GgmlType
from inspector.builds import build_number
from inspector.check import Check, rotated_rows
from inspector.model.expectation import V_ROTATION, rotation
from inspector.model.section import SectionExpectation
from inspector.repair.compose import Form, form_of
from inspector.repair.ik import rotation_of
from inspector.repair.lists import Carried, Family, Record, family_of
from inspector.repair.segments import Content
from inspector.repair.state import IK_MEMORY, Cache, Part, Refused, State, Tensor
from inspector.report import Report
from inspector.server.loader import Own
from inspector.server.servers import NEWEST, NEWEST_BUILD, carriers
from inspector.server.target import Target, cache_type
from inspector.source import Source

_IN_IK = {"base": "attn", "swa": "attn", "mla": "attn", "recr": "qnext", "indexer": "dsa"}
"""Where ik_llama.cpp keeps what upstream has a section for."""
_ROTATION = 8619
"""Quantized rows are rotated from here on. Source: llama.cpp PR #21038."""


OBSTRUCTED = "other bytes stand behind the state, and strip-trailing is not allowed"
"""Why there is no place for checkpoints."""


@dataclass(frozen=True)
class Step:
    """One action of a repair.

    Attributes:
        action: its name.
        why: what is wrong without it.
        changes: what it changes.
        loss: what is lost by it; None if nothing is.
        proven: on which servers that was tried.
        confirm: whether the loss has to be allowed.
    """

    action: str
    why: str
    changes: str
    loss: str | None = None
    proven: str = ""
    confirm: bool = False


@dataclass(frozen=True)
class Options:
    """What the user asked for besides.

    Attributes:
        only: actions that may be taken; empty for all.
        skip: actions that may not.
        at: tokens at which the state is to end at most.
        prompt: tokens of the prompt that it is to serve.
        to: name of the family that checkpoints are to be written in.
        allow_loss: whether what is lost was agreed to.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    at: int | None = None
    prompt: tuple[int, ...] | None = None
    to: str | None = None
    allow_loss: bool = False

    def allows(self, action: str) -> bool:
        """Whether an action may be taken."""
        return action not in self.skip and (not self.only or action in self.only)

    def asks_for(self, action: str) -> bool:
        """Whether it was named."""
        return action in self.only

    @property
    def demands(self) -> tuple[str, ...]:
        """Actions without which the copy is not what was asked for."""
        cut = self.at is not None or self.prompt is not None
        return (
            *self.only,
            *(("trim", "materialize") if cut else ()),
            *(("convert-checkpoints",) if self.to is not None else ()),
        )


def expected_of(own: Own, member: str, target: Target) -> SectionExpectation | None:
    """What the target's cache of that name stores; None if it has none."""
    if target.build.server == IK:
        member = _IN_IK.get(member, member)
    return next((section for section in own.sections if section.member == member), None)


@dataclass
class Draft:
    """What actions work on, one after another.

    Attributes:
        report: of the file as it is.
        check: what the target does with it; None without a target.
        options: what the user asked for.
        state: its parts as far as they are changed.
        records: its checkpoints.
        stored: the form it is stored in.
        form: the form that it is written in so far.
        wanted: the form that the target reads.
        family: of its checkpoints, None if it has none or none are written.
        own: the caches of the target; None if they are not known.
        carried: the lists that its checkpoints come from.
        tail: bytes behind the end of the state that are kept.
        companions: other files that belong to it and are kept, by what their names add.
        steps: what was done.
        refused: actions that were needed and could not be taken, and why.
        undone: those of them without which the copy is not what was asked for.
    """

    report: Report
    check: Check | None
    options: Options
    state: State
    records: tuple[Record, ...]
    stored: Form
    form: Form
    wanted: Form
    family: Family | None
    own: Own | None = None
    carried: tuple[Carried, ...] = ()
    tail: Content = ()
    companions: dict[str, Source] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    undone: tuple[str, ...] = ()

    @property
    def target(self) -> Target | None:
        """The server that is to load it."""
        return self.check.target if self.check is not None else None

    @property
    def for_ik(self) -> bool:
        """Whether the target is ik_llama.cpp."""
        return self.target is not None and self.target.build.server == IK

    @property
    def ik(self) -> bool:
        """Whether what is written is a state of ik_llama.cpp: it has one form, and few words."""
        return self.for_ik or self.state.memory == IK_MEMORY

    @property
    def fits(self) -> bool:
        """Whether it is cut as far as it has to be."""
        room = self.target.n_ctx_slot if self.target is not None else None
        too_many = room is not None and len(self.state.tokens.ids) > room
        return not too_many and all(action != "trim" for action, _ in self.refused)

    @property
    def obstructed(self) -> bool:
        """Whether bytes that are kept stand where its checkpoints would have to."""
        return bool(self.tail) and self.family is not None and not self.family.suffix

    def expects(self, member: str) -> SectionExpectation | None:
        """What the target's cache of that name stores; None if that is not known."""
        if self.own is None or self.target is None:
            return None
        return expected_of(self.own, member, self.target)

    def settle_rotation(self) -> None:
        """Fill in the rotation words that older files lack, as far as they follow."""
        if self.state.memory == IK_MEMORY:
            self.convert(self._settled_of_ik)  # depends on options, not on the build
            return

        def settled(cache: Cache) -> Cache:
            if cache.rotation is not None:
                return cache
            sides = (self._rotation(cache, cache.k, "k"), self._rotation(cache, cache.v, "v"))
            k, v = sides
            return cache if k is None or v is None else replace(cache, rotation=(k, v))

        self.convert(settled)

    def _settled_of_ik(self, cache: Cache) -> Cache:
        identity = self.check.identity if self.check is not None else None
        try:
            return replace(cache, rotation=rotation_of(identity, cache))
        except Refused:
            return cache

    def _rotation(self, cache: Cache, tensors: tuple[Tensor, ...], side: str) -> int | None:
        """Elements of the matrix that turned one side of a cache; None if that is not known."""
        if cache.kind == "indexer" or any(tensor.kind is None for tensor in tensors):
            expected = self.expects(cache.member)
            return getattr(expected, f"n_rot_{side}") if expected is not None else None
        kinds = {tensor.kind for tensor in tensors if tensor.kind is not None}
        if all(kind.block_elements == 1 for kind in kinds):
            return 0
        size = self._matrix(cache, kinds, side)
        if size == 0:
            return 0
        rotated = self._rotated(side)
        return 0 if rotated is False else size if rotated else None

    def _rotated(self, side: str) -> bool | None:
        """Whether quantized rows are rotated: by their numbers, or by the time of writing."""
        if self.check is not None:
            found = self.check.identity.side(side)
            if found is not None and found.agrees and not found.blind:
                return bool(found.rotation)
            rotated = rotated_rows(self.report, self.check.identity)
            if rotated is not None:
                return rotated
        builds = self.report.identification.builds
        if builds.until and build_number(builds.until) < _ROTATION:
            return False
        return True if builds.since and build_number(builds.since) >= _ROTATION else None

    def _matrix(self, cache: Cache, kinds: set[GgmlType], side: str) -> int | None:
        """Elements of the matrix that a build would turn such rows with; None if unknown."""
        memory = self.target.memory if self.target is not None else None
        caches = memory.caches if memory is not None else ()
        own = next((one for one in caches if one.member == cache.member), None)
        if self.target is None or memory is None or own is None or len(kinds) != 1:
            tensors = cache.k if side == "k" else cache.v
            widths = {(t.kind and t.kind.elements(t.row_bytes)) or 0 for t in tensors}
            return 0 if all(width % V_ROTATION for width in widths) else None
        until = self.report.identification.builds.until
        number = max(build_number(until or "") or NEWEST, _ROTATION)
        written = replace(NEWEST_BUILD, number=number, label=f"b{number}")
        name = next(iter(kinds)).name
        turned = replace(self.target, build=written, type_k=name, type_v=name, rotation=True)
        if cache_type(name, written) is None:
            return None
        k, v = rotation(turned, memory, own)
        return k if side == "k" else v

    def take(self, step: Step) -> None:
        """Note a step that was taken."""
        self.steps.append(step)

    def refuse(self, action: str, why: str) -> None:
        """Note one that was needed and could not be."""
        self.refused.append((action, why))

    def convert(self, change: Callable[[Cache], Cache]) -> None:
        """Change every attention cache, of the state and of its checkpoints."""
        self.convert_parts(lambda part: change(part) if isinstance(part, Cache) else part)

    def convert_parts(self, change: Callable[[Part], Part]) -> None:
        """Change every section, of the state and of its checkpoints."""

        def changed(parts: tuple[Part, ...]) -> tuple[Part, ...]:
            return tuple(map(change, parts))

        self.state = replace(self.state, parts=changed(self.state.parts))
        self.records = tuple(
            record if record.parts is None else replace(record, parts=changed(record.parts))
            for record in self.records
        )


_PREFIXED = 3
"""First version of slot files whose builds all write blobs with eight bytes in front."""


def stored_form(report: Report) -> Form:
    """The form that a slot file is stored in."""
    reading = report.identification.reading
    assert reading is not None  # its state was taken apart
    attention = [part for part in report.sections if part.kind != "recurrent"]
    names = [name for part in attention for table in part.tables for name, _ in table.fields]
    session = reading.layout.format == "ggsn"
    blobs = [c.record.blob for c in report.checkpoints if c.record.blob is not None]
    newer = not session and (reading.layout.version or 0) >= _PREFIXED
    newer |= any(one.record.format == "sckp" for one in report.checkpoints)
    prefixed = not blobs or newer or any(blob.prefixed for blob in blobs)
    return Form(
        reading.layout.version or 0,
        not attention or attention[0].node.get("streams") is not None,
        session or "seq_id" in names or not names,
        max((part.cell_ext for part in attention), default=0),
        any(part.node.facts.get("rotation") for part in attention),
        report.tokens is not None and report.tokens.packing == "packed",
        prefixed,
        session,
    )


def wanted_form(stored: Form, target: Target | None) -> Form:
    """The form that the target reads.

    Raises:
        Refused: if it reads none that can be written.
    """
    if target is None:
        return stored
    mrope = bool(target.memory.mrope) if target.memory is not None else stored.cell_ext > 0
    form = form_of(target.build, mrope=mrope)
    if target.memory is None and not stored.cell_ext and form.version == stored.version:
        form = replace(form, cell_ext=0)
    if not stored.packed:  # plain lists are taken everywhere
        form = replace(form, packed=False)
    return form


def wanted_family(target: Target | None, options: Options, found: Family | None) -> Family | None:
    """The family of checkpoint lists that the target takes; without one that of the file."""
    from inspector.repair.lists import BY_NAME

    if options.to is not None:
        return BY_NAME[options.to]
    if target is None:
        return found
    if target.n_ctx_checkpoints <= 0:
        return None
    read = (family_of(carrier.format, carrier.version) for carrier in carriers(target.build))
    return next((family for family in read if family is not None), None)
