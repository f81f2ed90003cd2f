"""What the next prompt reuses of a restored slot, and the prompt after that.

A server goes through these steps: common prefix, gate, search for a checkpoint, erasure of others,
at least one token left to evaluate, removal of the tail, and checkpoints while it evaluates.

Source: ggml-org/llama.cpp, tools/server `update_slots`; see `inspector.server.gate`.
ikawrakow/ik_llama.cpp 8337e4cd3, examples/server/server-context.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from formats.ggml_types import IK, UPSTREAM
from inspector.builds import build_number
from inspector.server.gate import (
    ERASURES,
    GATES,
    SEARCHES,
    TAKINGS,
    Batch,
    Gate,
    Search,
    Taking,
    row,
)
from inspector.server.prompt import Outcome, Prediction, Request, usual
from inspector.server.restored import restored
from inspector.server.servers import CHANGES, NEWEST, Build, carriers, ggsq_version
from inspector.server.slot import NOWHERE, Blob, Cells, Checkpoint, Memory, Slot, Window
from inspector.server.target import Target

if TYPE_CHECKING:
    from inspector.report import Report

_CONSECUTIVE = 5700
"""Builds from here on refuse a batch that does not begin behind the last position in memory.

Source: ggml-org/llama.cpp, src/llama-batch.cpp `llama_batch_allocr::init`, mid-June 2025.
"""
_LONG_PROMPT_REFUSED = 7551
"""Builds from here on are known to refuse prompts that fill the slot; old ones cut them."""
_LEAST_CELLS = 1 << 12
_MOST_CELLS = 1 << 27
"""Cells that are looked at to follow a prompt, one array for each small batch: a few seconds."""
_KEPT = 0.5
"""A slot of which a prompt shares less is replaced: its content goes to the host prompt cache."""
_FOUND = 0.25
"""Content of the host prompt cache of which a prompt shares less is not looked at."""

_NONE_FITS = ", and no checkpoint fits"
_NONE = ", and there is no checkpoint"
_MISLED = ", from which no answer is right"


def predict(slot: Slot, target: Target, request: Request, *, remedies: bool = True) -> Prediction:
    """What a server does with a prompt.

    Args:
        slot: what it has in the slot.
        target: the server.
        request: the prompt.
        remedies: whether to say what would make it reuse more.
    """
    found = _predicted(slot, target, request)
    return replace(found, would_change=tuple(_remedies(slot, target, found))) if remedies else found


def after(slot: Slot, target: Target, request: Request, n_predict: int) -> Slot | str:
    """What a server has in the slot when it has answered a prompt of a completion.

    Args:
        slot: what it had.
        target: the server.
        request: the prompt.
        n_predict: tokens of the answer; the last one is not evaluated.

    Returns:
        The slot; or why that cannot be said, in words.
    """
    found = _predicted(slot, target, request)
    if found.outcome is Outcome.HTTP_ERROR:
        return replace(slot.cut(0, 0), checkpoints=())
    if found.outcome is not Outcome.REUSES:
        return f"the prompt before: {found.why}"
    if slot.memory.windowed and slot.window is None:
        return "the size of the window is not known: name the model"
    if target.build.server == IK:
        return _after_in_ik(slot, target, request, n_predict)
    admission = _admit(slot, target, request)
    n_ubatches = (request.total - admission.n_past) // max(1, target.n_ubatch) + n_predict
    n_cells = 1 if slot.cells is None else len(slot.cells.pos)
    if max(n_ubatches, 1) * max(n_cells, _LEAST_CELLS) > _MOST_CELLS:
        return "the prompt before is too long to be followed"
    grown = _evaluated(admission, target, request.total, n_predict)
    if isinstance(grown, Slot) and _replaced(slot, target, request):
        return replace(grown, parked=replace(slot, parked=None))
    return grown


def follow_up(
    slot: Slot, target: Target, first: Request, second: Request, n_predict: int | None = None
) -> Prediction:
    """What a server does with the prompt after the next.

    Args:
        slot: what it has in the slot.
        target: the server.
        first: the next prompt.
        second: the one after it; `shared` is what it shares with the first and its answer.
        n_predict: tokens of the answer to the first; None for as many as the second one shares.
    """
    if n_predict is None:
        n_predict = max(1, second.shared - first.total + 1)
    held = after(slot, target, first, n_predict)
    if isinstance(held, str):
        return Prediction(second, Outcome.UNKNOWN, None, None, "", held)
    return predict(held, target, second)


def predictions(
    report: Report,
    target: Target,
    requests: tuple[Request, ...] = (),
    *,
    remedies: bool = True,
) -> tuple[Prediction, ...] | str:
    """What a server does with prompts after it restored a file, each of them the first.

    Args:
        report: of the file.
        target: the server.
        requests: the prompts; none for the usual ones.
        remedies: whether to say what would make it reuse more.

    Returns:
        An answer for each; or why there is none, in words.
    """
    slot = restored(report, target)
    if isinstance(slot, str):
        return slot
    held = report.tokens.count if report.tokens is not None else slot.n_tokens
    asked = requests or tuple(usual(held).values())
    if not remedies:
        return tuple(predict(slot, target, request, remedies=False) for request in asked)
    others = tuple(_others(report, target))
    answers = []
    for request in asked:
        found = predict(slot, target, request)
        more = (*_by_other_lists(report, slot, target, found), *_by_build(others, found))
        answers.append(replace(found, would_change=(*found.would_change, *more)))
    return tuple(answers)


def conditions(slot: Slot, target: Target) -> tuple[str, ...]:
    """What every prediction takes for granted.

    Args:
        slot: what the server has in the slot.
        target: the server.
    """
    return tuple(_conditions(slot, target))


def _conditions(slot: Slot, target: Target) -> Iterator[str]:
    yield from slot.assumed
    yield "the prompt is served by this slot (id_slot), with cache_prompt on"
    build = target.build
    if target.cache_reuse > 0 and slot.memory is Memory.UNIFIED and not slot.mrope:
        yield f"--cache-reuse {target.cache_reuse} may find more behind the common prefix"
    if target.n_parallel > 1 and target.cache_idle_slots and _host_cache(target):
        if target.kv_unified and build.has("idle-slots-parked"):
            yield (
                "a prompt on another slot moves this one to the host prompt cache: after that, a "
                "prompt that names this slot reuses nothing, one that names none finds it again"
            )
    elif target.n_parallel > 1 and target.kv_unified:
        yield "other slots may take the cells of this one"
    if slot.memory in (Memory.COMPRESSED, Memory.HYBRID_WINDOWED):
        yield f"the rules for {slot.memory} memory are read in the source, not measured"
    if build.server == IK:
        yield "ik_llama.cpp compares the text too: prompts that differ in tokens alone share more"
    elif slot.memory is not Memory.UNIFIED and build.has("checkpoints"):
        yield "a chat leaves further checkpoints in front of its user messages"


# What is decided before anything is evaluated


@dataclass(frozen=True)
class _Admission:
    """How far a server has come when it begins to evaluate.

    Attributes:
        outcome: how it goes on.
        n_past: tokens that are kept.
        slot: what is kept.
        why: the reason, in words.
        rule: the row that decided.
        checkpoint: what it went back to; None if it did not.
        notes: what else is to be known.
        threshold: of the gate; None if it was not closed.
    """

    outcome: Outcome
    n_past: int
    slot: Slot
    why: str
    rule: str = ""
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = ()
    threshold: int | None = None


def _predicted(slot: Slot, target: Target, request: Request) -> Prediction:
    n_ctx = target.n_ctx_slot
    if n_ctx is not None and request.total >= n_ctx and target.build.server != IK:
        refused = (target.build.number or 0) >= _LONG_PROMPT_REFUSED
        why = f"the prompt has {request.total:,} tokens, the slot {n_ctx:,}"
        outcome = Outcome.HTTP_ERROR if refused else Outcome.UNKNOWN
        return Prediction(request, outcome, None, None, "", why)
    if slot.memory.windowed and slot.window is None and target.build.server != IK:
        return _whatever_window(slot, target, request)
    decide = _admit_in_ik if target.build.server == IK else _admit
    admission = decide(slot, target, request)
    checkpoint = admission.checkpoint
    return Prediction(
        request,
        admission.outcome,
        admission.n_past if admission.outcome is Outcome.REUSES else None,
        checkpoint.index if checkpoint is not None else None,
        admission.rule,
        admission.why,
        notes=admission.notes,
    )


def _whatever_window(slot: Slot, target: Target, request: Request) -> Prediction:
    """The answer if it is the same for the least and for the largest window, hence for all."""
    least, largest = (
        _predicted(replace(slot, window=Window(n_swa)), target, request)
        for n_swa in (1, max(1, slot.n_tokens) + 1)
    )
    if (least.outcome, least.reused) == (largest.outcome, largest.reused):
        return replace(least, notes=("whatever the size of the window",))
    why = "the size of the window is not known: name the model"
    return Prediction(request, Outcome.UNKNOWN, None, None, least.rule, why)


def _admit(slot: Slot, target: Target, request: Request) -> _Admission:
    build, number = target.build, target.build.number or 0
    slot, shared, why = _brought_back(slot, target, request)
    gate, search, erasure = row(GATES, number), row(SEARCHES, number), row(ERASURES, number)
    assert gate is not None
    rule = _rule(gate, None)
    n_past = slot.shared(min(shared, request.total))
    pos = slot.position(n_past)
    threshold = gate.threshold(pos, _n_swa(slot, target), n_past < request.total)
    why += slot.alien or _shared(n_past)
    if not slot.alien and slot.sharable < min(shared, slot.n_tokens):
        why += f": no prompt has the id that token {slot.sharable} has"
    closed, checkpoint = False, None
    if gate.entered(n_past, slot.n_tokens):
        if slot.pos_min == NOWHERE and build.has("pos-min-asserted"):
            why += ' and no cell holds them: abort, "pos_min == -1, but n_past > 0"'
            return _Admission(Outcome.ABORTS, 0, slot, why, rule)
        closed = gate.resets(slot.pos_min, threshold)
    now = slot
    if closed:
        if slot.unsure:
            return _Admission(Outcome.UNKNOWN, 0, slot, slot.unsure, rule)
        rule = _rule(gate, search if slot.checkpoints else None)
        if search is not None:
            newest = reversed(slot.checkpoints)
            checkpoint = next((c for c in newest if search.fits(c, threshold, pos)), None)
        why += f", but {_stands(slot, gate, threshold)}"
        if checkpoint is not None and checkpoint.blob is Blob.ABORTS:
            why += f"; the blob of {_named(checkpoint)} does not load: abort"
            return _Admission(Outcome.ABORTS, 0, slot, why, rule, checkpoint)
        if checkpoint is not None and checkpoint.blob is Blob.MISLEADS:
            why += f": back to {_named(checkpoint)}{_MISLED}"
            return _Admission(Outcome.UNKNOWN, 0, slot, why, rule, checkpoint)
        if checkpoint is not None and checkpoint.blob is Blob.FAILS:
            why += f"; the blob of {_named(checkpoint)} does not load"
            checkpoint = None
        elif checkpoint is None:
            why += _NONE_FITS if slot.checkpoints else _NONE
        if checkpoint is not None and search is not None:
            why += f": back to {_named(checkpoint)}"
            now = slot.loaded(checkpoint)
            pos, n_past = search.resumes(slot, checkpoint, pos)
        else:
            pos = n_past = 0
    if erasure is not None:
        kept = tuple(c for c in slot.checkpoints if not erasure.hits(c, threshold, pos))
        now = replace(now, checkpoints=kept)
    if n_past >= request.total and n_past > 0:
        n_past = request.total - 1
        why += "; one token must be left to evaluate"
    notes = tuple(_might_come_back(slot, target, request))
    if n_past > shared:
        notes = (*notes, "a token that is not shared is kept: the answer is wrong")
    missed = threshold if closed else None
    so_far = _Admission(Outcome.REUSES, 0, slot, why, rule, checkpoint, notes, missed)
    return _cut(now, target, n_past, so_far)


def _cut(now: Slot, target: Target, n_past: int, so_far: _Admission) -> _Admission:
    """Remove the tail, and look whether memory then ends where the prompt goes on."""
    build, start, why = target.build, now.position(n_past), so_far.why
    if now.memory.at_tip and 0 < start <= now.tip:
        why += f"; the state of position {now.tip} cannot be cut back to {start}"
        if build.has("removal-aborts"):
            why += ': abort, "failed to remove sequence"'
            return replace(so_far, outcome=Outcome.ABORTS, why=why)
        n_past = start = 0
    now = now.cut(n_past, start)
    last = now.pos_max
    if last not in (NOWHERE, start - 1) and not now.mrope and (build.number or 0) >= _CONSECUTIVE:
        why += f'; position {start} does not follow {last}: HTTP 500, "Invalid input batch."'
        return replace(so_far, outcome=Outcome.HTTP_ERROR, why=why)
    notes = (*so_far.notes, *_flaws(now, start))
    return replace(so_far, n_past=n_past, slot=now, why=why, notes=notes)


def _shared(n_tokens: int) -> str:
    return {0: "no token is shared", 1: "1 token is shared"}.get(
        n_tokens, f"{n_tokens:,} tokens are shared"
    )


def _rule(gate: Gate, search: Search | None) -> str:
    text = f"b{gate.since} ({gate.source}): {gate.says}"
    if search is not None:
        text += f"; checkpoint, b{search.since} ({search.source}): {search.says}"
    return text


def _n_swa(slot: Slot, target: Target) -> int:
    """W of the gate."""
    if slot.window is None or (target.swa_full and target.build.has("swa-full-unwindowed")):
        return 0
    return slot.window.n_swa


def _stands(slot: Slot, gate: Gate, threshold: int) -> str:
    """Why memory will not do."""
    wanted = threshold if gate.resets(threshold, threshold) else threshold + 1
    what = {Memory.UNIFIED: "memory begins", Memory.WINDOWED: "the windowed layers begin"}
    return (
        f"{what.get(slot.memory, 'memory stands')} at position {slot.pos_min}, not below {wanted}"
    )


def _named(checkpoint: Checkpoint) -> str:
    what = "the checkpoint" if checkpoint.index is None else f"checkpoint {checkpoint.index}"
    return (
        f"{what} of {checkpoint.n_tokens:,} tokens, positions {checkpoint.pos_min} to "
        f"{checkpoint.pos_max}"
    )


def _flaws(now: Slot, start: int) -> Iterator[str]:
    """What is missing in front of the first position that is evaluated."""
    if start <= 0:
        return
    if now.cells is not None and now.window is not None:
        first, lowest = max(0, now.window.begin(start)), now.cells.lowest
        if first < start and not NOWHERE < lowest <= first:
            last = start - 1 if lowest == NOWHERE else lowest - 1
            yield (
                f"the windowed layers lack positions {first} to {last}: the answer is worse than "
                "that of a cold run"
            )
    elif now.pos_max == NOWHERE:
        yield "no cell holds the shared tokens: the answer knows nothing of them"
    if (held := now.scattered) is not None and (missing := held[-1] + 1 - len(held)):
        yield (
            f"{missing:,} positions up to {held[-1]} have no cell: the answer is not that of the "
            "prompt"
        )
    if now.memory.at_tip and now.tip not in (NOWHERE, start - 1):
        yield f"the state of position {now.tip} goes on at {start}: the answer is wrong"


# The host prompt cache


def _host_cache(target: Target) -> bool:
    return target.cache_ram != 0 and target.build.has("host-prompt-cache")


def _replaced(slot: Slot, target: Target, request: Request) -> bool:
    """Whether a prompt first moves the content of the slot that it names to the host cache."""
    cached = _host_cache(target) and target.build.has("named-slots-cached")
    return (
        cached and slot.n_tokens > 0 and min(request.shared, slot.sharable) / slot.n_tokens < _KEPT
    )


def _brought_back(slot: Slot, target: Target, request: Request) -> tuple[Slot, int, str]:
    """The slot as the host prompt cache has it, if that fits better, and the tokens shared."""
    parked, returning = slot.parked, request.returning
    if parked is None or returning is None or not _replaced(slot, target, request):
        return slot, request.shared, ""
    own = request.shared / slot.n_tokens
    theirs = returning / parked.n_tokens
    if theirs < _FOUND or theirs <= own or returning <= request.shared:
        return slot, request.shared, ""
    back = replace(parked, task=slot.task)
    return back, returning, "the host prompt cache gives back what the slot held before; "


def _might_come_back(slot: Slot, target: Target, request: Request) -> Iterator[str]:
    if slot.parked is not None and request.returning is None and _replaced(slot, target, request):
        yield (
            f"the host prompt cache has the {slot.parked.n_tokens:,} tokens from before: a prompt "
            "that shares at least a quarter of them gets them back"
        )


# What a request leaves behind


def _evaluated(admission: _Admission, target: Target, total: int, n_predict: int) -> Slot | str:
    """The slot with the rest of the prompt and its answer evaluated, checkpoints taken."""
    slot = replace(admission.slot, task=admission.slot.task + 1, alien="", n_possible=None)
    number, n_past = target.build.number or 0, admission.n_past
    taking = row(TAKINGS, number)
    behind = slot.position(n_past) - n_past
    taken = _takes_checkpoints(slot, target)
    if taken and (taking is None or number < taking.sure):
        slot = replace(slot, unsure=_unsure(slot, target, taking))
    start = n_past
    while start < total:
        stop = _end_of_batch(start, total, target, taking if taken else None)
        if taken and taking is not None and slot.pos_min != NOWHERE:
            slot = _with_checkpoint(slot, target, taking, start, stop, total)
        grown = slot.grown(start + behind, stop - start, target.n_ubatch)
        if grown is None:
            return "the windowed cache has no room for the prompt before"
        slot, start = grown, stop
    for pos in range(total + behind, total + behind + n_predict - 1):
        grown = slot.grown(pos, 1, target.n_ubatch)
        if grown is None:
            return "the windowed cache has no room for the answer before"
        slot = grown
    return slot


def _unsure(slot: Slot, target: Target, taking: Taking | None) -> str:
    label = target.build.label
    if taking is None:
        return f"which checkpoints {label} takes is not known"
    return f"which older checkpoints {label} drops is not known" if slot.checkpoints else ""


def _takes_checkpoints(slot: Slot, target: Target) -> bool:
    build = target.build
    if target.n_ctx_checkpoints <= 0:
        return False
    if target.mmproj and build.has("no-checkpoints-with-mmproj"):
        return False
    if slot.memory.at_tip:
        return build.has("recurrent-checkpoints")
    return slot.memory.windowed and not target.swa_full and build.has("checkpoints")


def _end_of_batch(start: int, total: int, target: Target, taking: Taking | None) -> int:
    n_batch = max(1, min(target.n_batch, target.n_ctx_slot or target.n_batch))
    cuts = taking.cuts(n_batch, target.n_ubatch) if taking is not None else ()
    ends = [total, start + n_batch, *(total - cut for cut in cuts)]
    return min(end for end in ends if end > start)


def _with_checkpoint(
    slot: Slot, target: Target, taking: Taking, start: int, stop: int, total: int
) -> Slot:
    """With a checkpoint in front of a batch, if the build takes one there."""
    step, limit = target.checkpoint_min_step, target.n_ctx_checkpoints
    held = list(slot.checkpoints)
    last = held[-1] if held else None
    if not taking.takes(Batch(start, stop, total, slot.pos_max, last, target.n_ubatch, step)):
        return slot
    if taking.thins(len(held), limit):
        held = list(_thinned(held, slot.task, step))
    held = held[max(0, len(held) - limit + 1) :]
    if taking.replaces:
        held = [c for c in held if c.n_tokens != start]
    unmasked = slot.window if target.build.has("masked-cells-left-out") else None
    held.append(
        Checkpoint(
            start,
            slot.pos_min,
            slot.pos_max,
            window=None if slot.cells is None else slot.cells.saved(unmasked),
            tip=slot.tip if slot.memory.at_tip else None,
            task=slot.task,
        )
    )
    return replace(slot, checkpoints=tuple(held))


def _thinned(held: list[Checkpoint], task: int, step: int) -> Iterator[Checkpoint]:
    last = None
    for checkpoint in held:
        if checkpoint.task == task or last is None or checkpoint.n_tokens > last + step:
            last = checkpoint.n_tokens
            yield checkpoint


# ik_llama.cpp


def _admit_in_ik(slot: Slot, target: Target, request: Request) -> _Admission:
    n_past = slot.shared(min(request.shared, request.total))
    why = _shared(n_past)
    rule = "0 < P < N and pos_min >= P - 1; checkpoint: pos_max < P - 1"
    if n_past >= request.total and n_past > 0:
        n_past = request.total - 1
        why += "; one token must be left to evaluate"
    checkpoint = None
    if 0 < n_past < slot.n_tokens and slot.pos_min >= n_past - 1:
        if slot.unsure or not target.build.has("ik-companions"):
            why = slot.unsure or "what ik_llama.cpp did before 2026-04-05 is not known"
            return _Admission(Outcome.UNKNOWN, 0, slot, why, rule)
        end = n_past if slot.memory is Memory.COMPRESSED else n_past - 1
        why += f", but memory begins at position {slot.pos_min}, not below {n_past - 1}"
        fits = (c for c in reversed(slot.checkpoints) if c.pos_max < end)
        checkpoint = next((c for c in fits), None)
        if checkpoint is not None and checkpoint.blob is Blob.MISLEADS:
            why += f": back to {_named(checkpoint)}{_MISLED}"
            return _Admission(Outcome.UNKNOWN, 0, slot, why, rule, checkpoint)
        if checkpoint is None or checkpoint.blob is not Blob.LOADS:
            why += _NONE_FITS if slot.checkpoints else _NONE
            checkpoint, n_past = None, 0
        else:
            why += f": back to {_named(checkpoint)}"
            resumed = max(checkpoint.pos_min + 1, checkpoint.pos_max)
            if slot.memory is Memory.COMPRESSED:
                resumed = checkpoint.pos_max + 1
            n_past = min(n_past, resumed)
    return _Admission(Outcome.REUSES, n_past, slot, why, rule, checkpoint)


def _after_in_ik(slot: Slot, target: Target, request: Request, n_predict: int) -> Slot:
    """The slot of ik_llama.cpp, all cells kept; its checkpoints are known only roughly."""
    end = request.total + n_predict - 1
    unsure = f"which checkpoints {target.build.label} takes is known only roughly"
    return replace(
        slot,
        n_tokens=end,
        n_possible=None,
        lowest=0,
        highest=end - 1,
        tip=end - 1 if slot.memory.at_tip else NOWHERE,
        unsure=unsure if slot.memory.at_tip else "",
    )


# What would change it


def _remedies(slot: Slot, target: Target, found: Prediction) -> Iterator[str]:
    """What would make a prompt reuse more, each tried."""
    request, reused = found.request, found.reused or 0
    best = min(request.shared, request.total - 1, slot.sharable)
    if found.outcome is Outcome.UNKNOWN or reused >= best:
        return
    if slot.alien:
        yield "the same tokens written as a plain list"
        return
    if slot.memory.windowed and not target.swa_full:
        full = _predicted(slot, replace(target, swa_full=True), request)
        if (full.reused or 0) > reused:
            yield f"--swa-full: {full.reused:,} tokens" + "".join(f", but {n}" for n in full.notes)
    if target.build.server != IK:
        yield from _by_repair(slot, target, request, reused)
    if (most := _longest_checkpoint(slot, target, request)) > reused:
        yield f"a checkpoint of at most {most:,} tokens"


def _longest_checkpoint(slot: Slot, target: Target, request: Request) -> int:
    """Tokens of the longest checkpoint that the server would go back to; 0 if to none."""
    if target.n_ctx_checkpoints <= 0:
        return 0
    if target.build.server == IK:
        return min(request.shared, request.total - 1) - 1 if slot.memory.at_tip else 0
    search = row(SEARCHES, target.build.number or 0)
    if search is None or (slot.memory.windowed and slot.window is None):
        return 0
    threshold = _admit(slot, target, request).threshold
    if threshold is None or (slot.memory.at_tip and not target.build.has("recurrent-checkpoints")):
        return 0
    n_tokens = threshold if slot.memory.at_tip else min(request.shared, request.total)
    last = slot.position(n_tokens) - 1
    wanted = Checkpoint(n_tokens, last if slot.memory.at_tip else 0, last)
    return n_tokens if search.fits(wanted, threshold, last + 1) else 0


def _by_repair(slot: Slot, target: Target, request: Request, reused: int) -> Iterator[str]:
    """What could be added to a file of a sliding window without inventing anything."""
    window, cells = slot.window, slot.cells
    if slot.memory is not Memory.WINDOWED or window is None or cells is None or slot.task:
        return
    if window.chunked or cells.lowest != slot.n_tokens - window.n_swa or cells.lowest <= 0:
        return
    import numpy as np

    held, below = cells.saved(None), cells.lowest - 1
    if carriers(target.build) and target.n_ctx_checkpoints > 0:
        tip = Checkpoint(slot.n_tokens, below, cells.highest, held)
        added = _predicted(replace(slot, checkpoints=(*slot.checkpoints, tip)), target, request)
        if (added.reused or 0) > reused:
            yield f"a checkpoint made of the saved end: {added.reused:,} tokens"
    anchored = Cells.restored(len(held) + 1, np.concatenate(([below], held)))
    opened = _predicted(replace(slot, cells=anchored), target, request)
    if (opened.reused or 0) > reused:
        yield f"one cell below the window: {opened.reused:,} tokens"


def _by_other_lists(report: Report, slot: Slot, target: Target, found: Prediction) -> Iterator[str]:
    """Checkpoints at hand that this server does not read."""
    if found.reused is None or not slot.memory.at_tip:
        return
    read = {carrier.format for carrier in carriers(target.build)}
    most = min(found.request.shared, found.request.total - 1)
    fitting = [
        (held.record.n_tokens, held.record.carrier)
        for held in report.checkpoints
        if held.usable
        and held.record.format not in read
        and held.record.n_tokens is not None
        and found.reused < held.record.n_tokens <= most
    ]
    if fitting:
        n_tokens, carrier = max(fitting)
        yield (
            f"the checkpoint of {n_tokens:,} tokens in {carrier}, which this server does not read: "
            "converted to a list that it reads, it would serve"
        )


_TURNS = ("packed-tokens", "sckp", "swa-full-unwindowed", "removal-aborts", "pos-min-asserted")
"""Changes besides the tables that decide about reuse."""


@dataclass(frozen=True)
class _Other:
    """Upstream builds that do alike, from the first to the last, and what they have in the slot."""

    since: int
    until: int
    target: Target
    slot: Slot


def _others(report: Report, target: Target) -> Iterator[_Other]:
    """The upstream builds that read the file."""
    reading = report.identification.reading
    if target.build.server != UPSTREAM or reading is None:
        return
    oldest = build_number(reading.layout.since or "")
    turns = [
        change for name, change in CHANGES.items() if name in _TURNS or name.startswith("ggsq-")
    ]
    starts = {r.since for table in (GATES, SEARCHES) for r in table if r.since}
    starts |= {number for turn in turns for number in (turn.since, turn.sure) if number}
    starts.add(oldest)
    for since, after_last in pairwise([*sorted(starts), NEWEST + 1]):
        build = Build(UPSTREAM, f"b{after_last - 1}", after_last - 1)
        if since < oldest or ggsq_version(build) != reading.layout.version:
            continue
        other = replace(target, build=build)
        slot = restored(report, other)
        if isinstance(slot, Slot):
            yield _Other(since, after_last - 1, other, slot)


def _by_build(others: tuple[_Other, ...], found: Prediction) -> Iterator[str]:
    """The upstream builds that reuse most, the newest of them."""
    if found.outcome is Outcome.UNKNOWN:
        return
    best, since, until = _answered(found), 0, 0
    for other in others:
        reused = _answered(_predicted(other.slot, other.target, found.request))
        if until and reused == best and other.since == until + 1:
            until = other.until
        elif reused > best or (until and reused == best):
            best, since, until = reused, other.since, other.until
    if until:
        builds = f"b{since} to b{until}" if until < NEWEST else f"from b{since} on"
        yield f"{builds}: {best:,} tokens"


def _answered(found: Prediction) -> int:
    """Tokens reused, -1 if the prompt is not answered."""
    return -1 if found.reused is None else found.reused
