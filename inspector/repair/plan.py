"""What to change in a file so that it is sound, or so that a server makes the most of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from inspector.bundle import (
    NOT_OPENED,
    SUFFIXES,
    Beside,
    Bundle,
    Companion,
    File,
    Role,
    look_into,
)
from inspector.check import Check, check_of
from inspector.findings import Finding, Severity, worst
from inspector.identify import Verdict
from inspector.mend import Mend, Patched
from inspector.model.geometry import MemoryExpectation
from inspector.model.identity import Outcome as Belongs
from inspector.node import join
from inspector.repair.actions.anchor import window_anchor
from inspector.repair.actions.checkpoints import (
    MEND,
    companions,
    convert,
    drop,
    mend,
    prompt,
    see_any,
)
from inspector.repair.actions.form import correct_layers, restamp, unpack
from inspector.repair.actions.from_ik import from_ik
from inspector.repair.actions.layers import drop_layers
from inspector.repair.actions.order import drop_values, swap_latent_keys, transpose_states
from inspector.repair.actions.session import from_session, to_session
from inspector.repair.actions.split import split_window
from inspector.repair.actions.streams import fit_streams
from inspector.repair.actions.tail import strip_trailing
from inspector.repair.actions.tip import synthesize_tip
from inspector.repair.actions.to_ik import (
    TOKENS,
    restamp_ik,
    to_ik,
    token_companion,
    without_values,
    write_tokens,
)
from inspector.repair.actions.transcode import transcode
from inspector.repair.actions.trim import trim
from inspector.repair.actions.values import into_channels, into_rows
from inspector.repair.actions.window import trim_window
from inspector.repair.actions.words import ACTION as WORDS
from inspector.repair.actions.words import FIRST, correct_tokens, correct_words
from inspector.repair.apart import state_of
from inspector.repair.compose import blob, slot_file
from inspector.repair.compose_ik import ik_payload, ik_slot_file
from inspector.repair.draft import Draft, Options, Step, stored_form, wanted_family, wanted_form
from inspector.repair.ik import is_ik
from inspector.repair.kinds import known_type
from inspector.repair.known import Known, known_word, undecided
from inspector.repair.listed import is_list, repaired_list
from inspector.repair.lists import (
    Carried,
    Record,
    binding_to,
    carried_in,
    composed,
    named,
    record_of,
)
from inspector.repair.sealed import unsealed
from inspector.repair.segments import Composed, Content, Keep, Segment, Write, joined
from inspector.repair.state import Hopeless, Refused
from inspector.report import Report, examined, report_of
from inspector.seal import Seal
from inspector.server.loader import Outcome
from inspector.server.restore import own_caches
from inspector.server.target import Target
from inspector.source import Source, Unreadable, opened
from inspector.span import Span

Action = Callable[[Draft], None]

_ACTIONS: tuple[tuple[tuple[str, ...], Action], ...] = (
    ((WORDS,), correct_words),
    ((WORDS,), correct_tokens),
    (("strip-trailing",), strip_trailing),
    (("drop-checkpoints",), drop),
    (("mend-list",), mend),
    (("from-ik",), from_ik),
    (("from-session",), from_session),
    (("trim", "materialize"), trim),
    (("split-window",), split_window),
    (("drop-layers",), drop_layers),
    (("drop-values",), drop_values),
    (("swap-latent-keys",), swap_latent_keys),
    (("transpose-states",), transpose_states),
    ((WORDS,), correct_layers),
    (("restamp", "relayout"), restamp),
    (("unpack-tokens",), unpack),
    (("to-ik",), without_values),
    (("fit-streams",), fit_streams),
    (("transpose-values",), into_rows),
    (("transcode",), transcode),
    (("transpose-values",), into_channels),
    (("trim-window",), trim_window),
    (("to-ik",), to_ik),
    (("relayout", "drop-values"), restamp_ik),
    (("convert-checkpoints",), convert),
    (("synthesize-tip",), synthesize_tip),
    (("convert-checkpoints",), see_any),
    (("window-anchor",), window_anchor),
    (("write-tokens",), write_tokens),
    (("to-session",), to_session),
    (("drop-companions",), companions),
)
"""What is tried, in this order, under the names that it goes by."""

MEANINGS = {
    WORDS: "Corrects a word that no writer writes, or that leads every loader astray, "
    "where the rest of the file or the model says what belongs there.",
    "strip-trailing": "Cuts off bytes behind the end of the state.",
    "drop-checkpoints": "Leaves out checkpoints that no server can use, or that this one does not "
    "read.",
    "mend-list": "Writes a checkpoint list anew whose number, version or end is wrong, tokens and "
    "positions that are not those of a blob, and blobs without their first eight bytes or with "
    "others behind their end.",
    "from-ik": "Writes a state of ik_llama.cpp as one of llama.cpp.",
    "from-session": "Writes a whole-context file of one sequence as a slot file.",
    "trim": "Ends the state earlier, at a token where its memory can be cut.",
    "materialize": "Ends the state at a checkpoint, whose memory takes the place of that of the "
    "end.",
    "split-window": "Divides one section into those of layers with and without a window, as b5429 "
    "and newer builds have them.",
    "drop-layers": "Leaves out the rows of next-token layers, which newer builds keep elsewhere.",
    "drop-values": "Leaves out values of latent attention, which newer builds do not store.",
    "swap-latent-keys": "Puts the two parts of latent keys in the order that the server wants.",
    "transpose-states": "Turns recurrent states into the order that the server wants.",
    "restamp": "Writes the version word that the server reads, where all else is the same.",
    "relayout": "Writes the state in the layout of another version.",
    "unpack-tokens": "Writes packed tokens as a plain list.",
    "to-ik": "Writes a state of llama.cpp as one of ik_llama.cpp.",
    "fit-streams": "Writes as many cell arrays as the server has.",
    "transpose-values": "Turns values from rows to channels or back, as flash attention wants "
    "them.",
    "transcode": "Writes keys and values in the cache types of the server.",
    "trim-window": "Leaves out cells that the sliding window masks, where there is no room for "
    "them.",
    "convert-checkpoints": "Writes checkpoints in the family that the server reads.",
    "synthesize-tip": "Adds a checkpoint of the end of the state, so that a server can go back "
    "to it.",
    "window-anchor": "Adds one masked cell in front of a sliding window, with which servers "
    "without checkpoint lists reuse the save.",
    "write-tokens": "Writes the token list that ik_llama.cpp wants beside a state.",
    "to-session": "Writes a slot file as a whole-context file; only with --only.",
    "drop-companions": "Copies no companions that are of no use to the server, or of other tokens.",
}
"""What every action does, for who reads the names of them."""

NAMES = tuple(dict.fromkeys(name for names, _ in _ACTIONS for name in names))
"""Every action by name."""


@dataclass(frozen=True)
class Output:
    """A file to be written.

    Attributes:
        suffix: what its name adds to that of the state; empty for the state.
        content: its bytes.
    """

    suffix: str
    content: Composed


@dataclass(frozen=True)
class Plan:
    """A repair.

    Attributes:
        report: of the file as it is.
        before: what the target does with it; None without a target.
        steps: what is done, in order.
        refused: what would have been needed, and why it cannot be done.
        outputs: what is written: the state first, its companions behind it.
        new: the name that the copy will have.
        copied: of the copy, before it is written.
        after: what the target will do with the copy.
        undone: what was asked for, and is refused.
        remade: whether it writes checkpoints with other numbers, first or last bytes than they
            have.
        only: the only actions that were allowed; empty if all were.
        unsealed: what the seal beside the file says against it, and the copy does not put right.
    """

    report: Report
    before: Check | None
    steps: tuple[Step, ...]
    refused: tuple[tuple[str, str], ...]
    outputs: tuple[Output, ...]
    new: str
    copied: Report
    after: Check | None
    undone: tuple[str, ...] = ()
    remade: bool = False
    only: tuple[str, ...] = ()
    unsealed: tuple[Finding, ...] = ()

    @property
    def needless(self) -> tuple[str, ...]:
        """Actions that were asked for by name, and that the file has no need of."""
        taken = {step.action for step in self.steps}
        return () if self.undone else tuple(name for name in self.only if name not in taken)

    @property
    def of_state(self) -> bool:
        """Whether it is of a state, rather than of a list alone."""
        reading = self.copied.identification.reading
        return reading is not None and bool(reading.layout.memory)

    @property
    def unconfirmed(self) -> tuple[Step, ...]:
        """Steps that lose what nobody has agreed to lose."""
        return tuple(step for step in self.steps if step.confirm)

    @property
    def whole(self) -> bool:
        """Whether the copy is sound, or its server takes it."""
        if self.after is not None:
            return self.after.restore.outcome is Outcome.ACCEPTS
        return worst(self.copied.findings) is not Severity.ERROR

    @property
    def left(self) -> tuple[Finding, ...]:
        """What is found in the copy, for its server if there is one, and what its seal tells."""
        found = self.copied.findings if self.after is None else self.after.findings
        return (*found, *self.unsealed)

    @property
    def staying(self) -> tuple[str, ...]:
        """Codes of what is wrong with the copy."""
        wrong = (one.code for one in self.left if one.severity is not Severity.NOTE)
        return tuple(dict.fromkeys(wrong))

    @property
    def complete(self) -> bool:
        """Whether no error is left in the copy, and it has all that could be of use in it."""
        wrong = worst(self.left) is Severity.ERROR
        mended = any(step.action == WORDS for step in self.steps)
        wrong |= mended and self.copied.identification.verdict is Verdict.DAMAGED
        lost = self.report.bundle.barred or any(name == MEND for name, _ in self.refused)
        return self.whole and not wrong and not lost

    @property
    def futile(self) -> bool:
        """Whether the server would not take the copy either."""
        outcome = self.after.restore.outcome if self.after is not None else None
        return outcome in (Outcome.REFUSES, Outcome.ABORTS)

    @property
    def estranged(self) -> bool:
        """Whether the file agrees with its model, and the copy would not.

        Cells in front of a window that a step fills with zeros, as ik_llama.cpp wants them, are no
        rows of another model.
        """
        if self.before is None or self.after is None:
            return False
        was, is_now = self.before.identity, self.after.identity
        zeros = is_now.outcome is Belongs.MIXED and not any(side.foreign for side in is_now.sides)
        parted = is_now.outcome.in_short == Belongs.DIFFERS and not zeros
        return was.outcome.in_short == Belongs.MATCHES and parted

    def is_seen_in(self, sources: Sequence[Source]) -> bool:
        """Whether files, one for each output, show what the plan shows.

        Args:
            sources: the files as they were written, open.
        """
        target = self.after.target if self.after is not None else None
        suffixes = [output.suffix for output in self.outputs]
        pairs = list(zip(suffixes, sources, strict=True))
        model = target.memory if target is not None else None
        report = _anew(self.report.bundle, pairs, self.new, model)
        return _facts(report, _checked(report, target)) == _facts(self.copied, self.after)


def _facts(report: Report, check: Check | None) -> object:
    """What two looks at one file must agree on."""
    found = report.identification
    return (
        report.size,
        found.verdict,
        found.reading.layout.id if found.reading is not None else None,
        report.tokens.digest if report.tokens is not None else None,
        [(section.path, section.span, section.pos_max) for section in report.sections],
        [(finding.code, finding.span, finding.carrier) for finding in report.findings],
        [(one.record.carrier, one.record.span, one.usable) for one in report.checkpoints],
        None if check is None else check.restore.outcome,
        None if check is None else [one.found.reused for one in check.reuse],
    )


@contextmanager
def planned(path: Path, target: Target | None, options: Options, new: str) -> Iterator[Plan]:
    """Look at a file, decide what to do, and look at the result before it is written.

    Args:
        path: the file; it stays open within the context, and so do its companions.
        target: the server that is to load it; None to repair the file for itself.
        options: what the user asked for besides.
        new: the name that the copy will have.

    Raises:
        Unreadable: if the system does not give us the file.
        Refused: if nothing can be done at all.
    """
    model = target.memory if target is not None else None
    with ExitStack() as stack:
        report = stack.enter_context(examined(path, model=model))
        companions = stack.enter_context(_companions(report))

        def plan(*, remaking: bool) -> Plan:
            if is_list(report):
                return _of_list(report, target, options, new, remaking=remaking)
            try:
                return _of_state(report, target, options, new, companions, remaking=remaking)
            except Refused:
                corrected = _corrected(report, options, new, companions) if target is None else None
                if corrected is None:
                    raise
                return corrected

        found = plan(remaking=True)
        if found.remade and not all(one.usable for one in found.copied.checkpoints):
            found = plan(remaking=False)  # more is wrong with them than could be seen before
        if report.sealed is not None and not report.sealed.holds:
            alike = [found.copied]
            if any(step.action == WORDS for step in found.steps) and not is_list(report):
                alike.append(_mended(report, target, found.before, _seal(report))[0])
            contents = {one.suffix: one.content for one in found.outputs}
            found = replace(found, unsealed=unsealed(report, alike, contents))
        yield found


def _of_state(
    report: Report,
    target: Target | None,
    options: Options,
    new: str,
    companions: dict[str, Source],
    *,
    remaking: bool,
) -> Plan:
    """The repair of a state, and of what belongs to it."""
    before = judged = _checked(report, target)
    readable, steps = report, list[Step]()
    if options.allows(WORDS):
        readable, steps = _recounted(report, target)
    if steps:
        judged = _checked(readable, target)
    mended, before_or_mended, more = _mended(readable, target, judged, _seal(report))
    steps += more
    if why := undecided(mended, before_or_mended):
        raise Refused(why)
    if steps and not options.allows(WORDS):
        raise Refused(FIRST)
    if before_or_mended is not None and before_or_mended.identity.outcome is Belongs.DIFFERS:
        model_name, evidence = (
            before_or_mended.target.model_name,
            before_or_mended.identity.evidence,
        )
        raise Refused(
            f"it is not of {model_name}: {evidence}; no copy of it is right there "
            "(`slotscope whose` finds its model)"
        )
    draft = _draft(mended, before_or_mended, options, remaking=remaking)
    draft.steps += steps
    draft.companions = dict(companions)
    for name, why in report.bundle.barred:
        held = "its checkpoints are" if _is_list_name(name) else "it is"
        draft.refuse("sidecar.unreadable", f"{name} cannot be read: {why}; {held} not in the copy")
    remade = any(one.trusting for one in draft.carried)
    for names, action in _ACTIONS:
        _attempt(draft, names, action)
    if draft.state.missing:
        missing = ", ".join(draft.state.missing)
        listed = report.tokens is not None and report.tokens.count
        tokens = "; `slotscope tokens` prints the token list, which can be prefilled again"
        raise Refused(
            f"{missing} is not whole, and no checkpoint holds it{tokens if listed else ''}"
        )
    outputs = tuple(_outputs(draft, report.source))
    said = draft.steps or draft.refused
    if not said and outputs[0].content.size < report.size:
        raise Refused("a copy would lack bytes of it, and no action says which")
    pairs = [(output.suffix, output.content) for output in outputs]
    reader = None if draft.form.session else target  # no server restores a whole context
    copied = _anew(report.bundle, pairs, new, reader.memory if reader is not None else None)
    _check_read(copied, draft)
    if not remade:  # else what was hidden may show, and is left out in another plan
        _check_no_worse(copied, draft)
    if target is None:
        draft.refused += _left(copied)
    return Plan(
        report,
        before,
        tuple(draft.steps),
        tuple(draft.refused),
        outputs,
        new,
        copied,
        _checked(copied, reader),
        draft.undone,
        remade,
        options.only,
    )


def _corrected(
    report: Report, options: Options, new: str, companions: dict[str, Source]
) -> Plan | None:
    """A state that cannot be taken apart: its words are corrected, all else stays as it is.

    None if that is not all there is to do.
    """
    mended, _, steps = _mended(report, None, None, _seal(report))
    asked = options.demands not in ((), (WORDS,)) or not options.allows(WORDS)
    if not steps or asked or report.checkpoints:
        return None
    whole = Composed(tuple(_unpatched([Keep(mended.source, mended.source.whole())])), "")
    beside = [Output(s, Composed((Keep(c, c.whole()),), "")) for s, c in companions.items()]
    outputs = (Output("", whole), *beside)
    pairs = [(output.suffix, output.content) for output in outputs]
    copied = _anew(report.bundle, pairs, new, None)
    if worst(copied.findings) is Severity.ERROR:
        return None
    return Plan(report, None, tuple(steps), (), outputs, new, copied, None, only=options.only)


def _of_list(
    report: Report, target: Target | None, options: Options, new: str, *, remaking: bool
) -> Plan:
    """The repair of a checkpoint list alone."""
    content, steps = repaired_list(report, target, options, remaking=remaking)
    copied = _anew(report.bundle, [("", content)], new, None)
    outputs, refused = (Output("", content),), tuple(_left(copied))
    remade = any(one.trusting for one in carried_in(report, remaking=remaking))
    return Plan(
        report,
        None,
        tuple(steps),
        refused,
        outputs,
        new,
        copied,
        None,
        remade=remade,
        only=options.only,
    )


def _check_read(copied: Report, draft: Draft) -> None:
    """See that the copy would be read as what it is meant to be.

    Raises:
        Refused: if it would not: there are memories that a version cannot hold.
    """
    reading = copied.identification.reading
    memory = reading.layout.memory if reading is not None else None
    version = reading.layout.version if reading is not None else None
    if (memory, version) != (draft.state.memory, draft.form.version):
        raise Refused(
            f"as a file of version {draft.form.version} it would be taken for something else: no "
            f"build that reads this version is known to have {draft.state.memory} memory like it"
        )


def _check_no_worse(copied: Report, draft: Draft) -> None:
    """See that the copy has no fault that the file has not.

    Raises:
        Refused: if it has one: there are options that do not go together.
    """
    known = {finding.code for finding in draft.report.findings}
    for finding in copied.findings:
        if finding.severity is Severity.ERROR and finding.code not in known:
            raise Refused(f"the copy would have a fault that the file has not: {finding.message}")


def _left(copied: Report) -> list[tuple[str, str]]:
    """What is still wrong with the copy, and why nothing is done about it."""
    return [
        (finding.code, f"{finding.message}; {finding.about.advice}")
        for finding in copied.findings
        if finding.severity is Severity.ERROR
    ]


_CARRIED = (Role.TOKENS, Role.MARKER, Role.HIDDEN, Role.DRAFT)
"""Companions that a copy of the state can have too."""


@contextmanager
def _companions(report: Report) -> Iterator[dict[str, Source]]:
    """Companions that are copied as they are, open; by what their names add."""
    with ExitStack() as stack:
        found = {}
        for companion in report.bundle.companions:
            if companion.role in _CARRIED:
                with suppress(Unreadable):
                    source = stack.enter_context(opened(companion.file.path))
                    found[companion.suffix] = source
        yield found


def _checked(report: Report, target: Target | None) -> Check | None:
    return check_of(report, target, (), None) if target is not None else None


def _recounted(report: Report, target: Target | None) -> tuple[Report, list[Step]]:
    """The file with the lists beside it read whose number of checkpoints hides some.

    Returns:
        The report on it, and the steps.
    """
    beside, steps = [], []
    for other in report.beside:
        found = _with_all(other)
        beside.append(found or other)
        if found is not None and isinstance(found.source, Patched):
            steps.append(_step(Known(found.source.mend), f"{other.companion.file.name}: "))
    if not steps:
        return report, []
    model = target.memory if target is not None else None
    return report_of(report.source, report.bundle, tuple(beside), model), steps


def _with_all(other: Beside) -> Beside | None:
    """A list read with the number of checkpoints that ends where it ends, if it says fewer."""
    listing = other.listing
    count = listing.node.get("count") if listing is not None else None
    if listing is None or listing.count is None or listing.rest is None or count is None:
        return None
    for value in range(listing.count + 1, listing.count + 1 + _MOST_HIDDEN):
        mend = Mend(join(listing.path, "count"), count.span, listing.count, value)
        found = look_into(other.companion, Patched(other.source, mend))
        if found.listing is None or found.listing.cut:
            return None
        if found.listing.rest is None and len(found.listing.whole) == value:
            return found
    return None


_MOST_HIDDEN = 64
"""Checkpoints that are looked for behind those that a list counts; most writers keep 32."""


def _step(known: Known, where: str = "") -> Step:
    mend = known.mend
    why = f"{where}{mend.path} says {mend.stored:,}: {known.why}"
    return Step(WORDS, why, f"{where}{known.changes}", proven=known.proven)


def _seal(report: Report) -> Seal | None:
    """The seal beside a file, if it is one of a file of this size."""
    seal = report.sealed.seal if report.sealed is not None else None
    return seal if seal is not None and seal.size == report.size else None


def _mended(
    report: Report,
    target: Target | None,
    check: Check | None,
    seal: Seal | None,
    done: frozenset[Span] = frozenset(),
) -> tuple[Report, Check | None, list[Step]]:
    """The file with the words corrected, one after another, that are wrong; each of them once.

    Returns:
        The report on it, what the target does with it, and the steps.
    """
    known = known_word(report, check, seal) or known_type(report, target)
    if known is None or known.mend.span in done:
        return report, check, []
    mend, model = known.mend, target.memory if target is not None else None
    further = report_of(Patched(report.source, mend), report.bundle, report.beside, model)
    done |= {mend.span}
    whole, judged, steps = _mended(further, target, _checked(further, target), seal, done)
    return whole, judged, [_step(known), *steps]


def _is_list_name(name: str) -> bool:
    return any(name.endswith(s) for s, role in SUFFIXES.items() if role is Role.CHECKPOINTS)


def _draft(report: Report, check: Check | None, options: Options, *, remaking: bool) -> Draft:
    if check is not None:  # with what its model says of them
        tested = check.report
        report = replace(report, checkpoints=tested.checkpoints, findings=tested.findings)
    state = state_of(report)
    target = check.target if check is not None else None
    renumbering = remaking and options.allows(MEND)
    carried = carried_in(report, remaking=remaking, renumbering=renumbering)
    records = tuple(
        named(record_of(record, one.source), state.memory)
        for one in carried
        for record in one.records
    )
    family = next((one.family for one in carried if one.records), None)
    stored = stored_form(report)
    own = None
    if target is not None:
        caches = own_caches(report, target, [])
        own = None if isinstance(caches, str) else caches
    draft = Draft(
        report,
        check,
        options,
        state,
        records,
        stored,
        stored,
        wanted_form(stored, target),
        wanted_family(target, options, family),
        own,
        carried,
        _tail(report, carried),
    )
    draft.settle_rotation()
    return draft


def _tail(report: Report, carried: Sequence[Carried]) -> Content:
    """The bytes behind the end of a state that are no checkpoints either."""
    reading = report.identification.reading
    if reading is None or not reading.decoding.ended:
        return ()
    if any(one.source is report.source for one in carried):
        return ()
    rest = Span(reading.decoding.end, report.source.size)
    return (Keep(report.source, rest),) if len(rest) else ()


def _attempt(draft: Draft, names: tuple[str, ...], action: Action) -> None:
    """Take an action, unless it is not allowed."""
    before = replace(draft, steps=list(draft.steps), refused=list(draft.refused))
    try:
        action(draft)
    except Hopeless:
        raise
    except Refused as reason:
        for name, value in vars(before).items():
            setattr(draft, name, value)
        _refuse(draft, names, str(reason))
        return
    taken = [step.action for step in draft.steps[len(before.steps) :]]
    barred = [name for name in taken if not draft.options.allows(name)]
    if barred:
        for name, value in vars(before).items():
            setattr(draft, name, value)
        if set(barred) & set(draft.options.demands):
            _refuse(draft, (barred[0], *names), "it is asked for, and not allowed")


def _refuse(draft: Draft, names: tuple[str, ...], why: str) -> None:
    draft.refuse(names[0], why)
    if set(names) & set(draft.options.demands):
        draft.undone = (*draft.undone, names[0])


def _outputs(draft: Draft, source: Source) -> Iterator[Output]:
    why = draft.steps[-1].action if draft.steps else "copy"
    if is_ik(draft.state):
        content: list[Segment] = list(ik_slot_file(draft.state, draft.form.version, why))
    else:
        content = list(slot_file(draft.state, draft.form, why))
    records = [_with_blob(record, draft, why) for record in draft.records]
    family = draft.family
    appended = family is not None and not family.suffix and bool(records)
    if appended and family is not None:
        content += composed(records, family, why)
    elif draft.tail:
        content += draft.tail
    state = Composed(joined(_unpatched(content), source), "")
    yield Output("", state)
    if records and family is not None and family.suffix:
        binding = binding_to(state) if family.name == "pkcl2" else prompt(draft)
        listed = composed(records, family, why, binding)
        own = next((one.source for one in draft.carried if one.family == family), None)
        own = own.of if isinstance(own, Patched) else own
        yield Output(family.suffix, Composed(joined(_unpatched(listed), own), ""))
    if (tokens := token_companion(draft)) is not None:
        yield Output(TOKENS, tokens)
    for suffix, companion in draft.companions.items():
        yield Output(suffix, Composed((Keep(companion, companion.whole()),), ""))


def _with_blob(record: Record, draft: Draft, why: str) -> Record:
    """A record with its blob in the form that is written."""
    if record.parts is None:
        return record
    first = record.tgt[0] if record.tgt else None
    if is_ik(draft.state):
        content = tuple(ik_payload(record.parts, draft.form.version, why))
    else:
        head = first.read_at(0, 8) if first is not None and record.prefixed else bytes(8)
        slot = int.from_bytes(head[4:], "little")
        content = tuple(blob(record.parts, draft.state.tokens.ids, draft.form, why, slot))
    return replace(record, tgt=_in_place(content, first))


def _in_place(content: Content, first: Segment | None) -> Content:
    """The blob as it stands, if these are its bytes."""
    if not isinstance(first, Keep):
        return content
    whole = Composed((first,), "")
    found, at = [], 0
    for segment in content:
        kept = isinstance(segment, Write) and whole.read_at(at, len(segment)) == segment.data
        span = Span(first.span.start + at, first.span.start + at + len(segment))
        found.append(Keep(first.source, span) if kept else segment)
        at += len(segment)
    return tuple(found)


def _unpatched(content: Iterable[Segment]) -> Iterator[Segment]:
    """Bytes of the file itself, and the corrected words apart."""
    for segment in content:
        if not (isinstance(segment, Keep) and isinstance(segment.source, Patched)):
            yield segment
            continue
        file, word, span = segment.source.of, segment.source.mend.span, segment.span
        first, last = max(span.start, word.start), min(span.stop, word.stop)
        if first >= last:
            yield from _unpatched([Keep(file, span)])
            continue
        yield from _unpatched([Keep(file, Span(span.start, first))])
        yield Write(segment.source.read_at(first, last - first), WORDS)
        yield from _unpatched([Keep(file, Span(last, span.stop))])


def _anew(
    around: Bundle,
    pairs: Sequence[tuple[str, Source]],
    new: str,
    model: MemoryExpectation | None,
) -> Report:
    """The report on a copy, whether it is written yet or not.

    Args:
        around: what the directory shows of the file it is a copy of.
        pairs: what names add to that of the copy, and the files; the state first.
        new: the name of the copy.
        model: what the model it belongs to stores.
    """

    def shown(suffix: str, source: Source) -> File:
        name = new + suffix
        return replace(
            around.subject, path=Path(name), name=name, size=source.size, link=False, n_links=1
        )

    (_, state), *others = pairs
    companions = tuple(
        Companion(shown(suffix, source), SUFFIXES[suffix], suffix) for suffix, source in others
    )
    bundle = Bundle(shown("", state), companions, None, None, ())
    beside = tuple(
        look_into(companion, source)
        for companion, (_, source) in zip(companions, others, strict=True)
        if companion.role not in NOT_OPENED
    )
    return report_of(state, bundle, beside, model)
