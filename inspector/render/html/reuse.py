"""What the next prompt reuses, of the file and of its repaired copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from shlex import quote
from typing import TYPE_CHECKING

from inspector.findings import Severity, worst
from inspector.render.html.figures import drawing, figure, path, plot
from inspector.render.html.markup import Html, aside, element, inside, labelled, prose, table
from inspector.render.page import counted
from inspector.server.loader import Outcome

if TYPE_CHECKING:
    from inspector.check import Check, Next
    from inspector.overview import Overview
    from inspector.repair.draft import Step
    from inspector.repair.plan import Plan
    from inspector.server.curve import Curve, Point

_MOST_ROWS = 200


def reuse(shown: Overview) -> Html:
    """The curve, and the usual prompts as a table.

    Args:
        shown: the file.
    """
    check, before, after = shown.check, shown.reuse, shown.repaired
    copy = shown.plan.after if shown.plan is not None and after is not None else None
    return inside(_curves(before, after), _prompts(check, copy))


def _curves(before: Curve, after: Curve | None) -> Html:
    n = before.n_tokens
    curves = [before] if after is None else [before, after]
    if not any(reused for one in curves for _, reused in one.points):
        return Html("")
    width = max(1, n, *(one.n_tokens for one in curves))
    top = max(1, width)
    shapes = [path("ideal", f"M0 {top}L{top} 0")]
    if after is not None:
        shapes.append(path("win", _area(after.points, top)))
    names = ["after", "before"] if after is not None else ["only"]
    lines = [(name, one) for name, one in zip(names, reversed(curves), strict=True)]
    shapes += [path(name, _line(one.points, top)) for name, one in lines]
    says = "; ".join(
        f"{'the repaired copy' if name == 'after' else 'this file'}: {_in_words(one.points)}"
        for name, one in reversed(lines)
    )
    drawn = drawing("tokens reused", *shapes, width=width, height=top, says=says, class_="tall")
    labels = {"before": "this file", "after": "the repaired copy", "only": "this file"}
    key = element(
        "ul",
        *(element("li", _sample(name), labels[name]) for name, _ in reversed(lines)),
        element("li", _sample("ideal"), "all that is shared"),
        class_="key",
    )
    return figure(
        "tokens reused, by tokens shared",
        plot(drawn, (f"{top:,}", "0"), ("0 tokens shared", f"{width:,}")),
        key,
        aside("the curve as a table", *(_points(name, one) for name, one in reversed(lines))),
        caption="· a prompt begins as the saved one did, and goes on otherwise",
    )


def _line(points: Sequence[Point], top: int) -> str:
    """A stroke through the points; a jump between neighbours is upright."""
    found, last = "", None
    for shared, reused in points:
        if reused is not None:
            jumps = last is not None and reused - last[1] not in (0, shared - last[0])
            found += f"H{shared}" if jumps else ""
            found += f"{'M' if last is None else 'L'}{shared} {top - reused}"
        last = None if reused is None else (shared, reused)
    return found


def _area(points: Sequence[Point], top: int) -> str:
    found = ""
    for (left, low), (right, high) in pairwise(points):
        if low and high is not None:
            end = high if high - low in (0, right - left) else low
            found += f"M{left} {top}V{top - low}L{right} {top - end}V{top}z"
    return found


def _in_words(points: Sequence[Point], most: int = 8) -> str:
    words = [
        f"{'unknown' if reused is None else f'{reused:,}'} of {shared:,}"
        for shared, reused in points[1:]
    ]
    return ", ".join([*words[:most], *(["…"] if len(words) > most else [])])


def _sample(name: str) -> Html:
    return drawing(name, path(name, "M0 .5h1"), width=1, height=1, says="line of the drawing")


def _points(name: str, curve: Curve) -> Html:
    rows = [
        (f"{shared:,}", "not known" if reused is None else f"{reused:,}")
        for shared, reused in curve.points[:_MOST_ROWS]
    ]
    of = "the copy" if name == "after" else "this file"
    return table(("shared", f"reused of {of}"), rows, (0, 1))


def reused(one: Next) -> str:
    found = one.found
    return f"{found.reused:,}" if found.reused is not None else str(found.outcome)


def _prompts(check: Check, copy: Check | None) -> Html:
    """The usual prompts, of the file and of the copy."""
    names = ["next prompt", "shared", "of", "reused"]
    if copy is not None:
        names[3:] = ["this file", "the copy"]
    after = copy.reuse if copy is not None else (None,) * len(check.reuse)
    rows = []
    for one, other in zip(check.reuse, after, strict=True):
        request, better = one.found.request, other or one
        cells = [one.name, f"{request.shared:,}", f"{request.total:,}", reused(one)]
        if other is not None:
            cells.append(
                element("b", reused(other)) if reused(other) != reused(one) else reused(other)
            )
        why = [element("div", better.found.why)]
        more = better.found.would_change
        why += [element("div", f"more with: {line}", class_="quiet") for line in more]
        why += [element("div", line, class_="quiet") for line in better.found.notes]
        rows.append([*cells, inside(*why)])
    numbers = range(1, len(names))
    reason = "why" if copy is None else "why, of the copy"
    return element("div", table((*names, reason), rows, tuple(numbers)), class_="compare")


def repair(plan: Plan | None, hopeless: str, name: str) -> Html:
    """What a repair does.

    Args:
        plan: the repair; None if there is none.
        hopeless: why there is none.
        name: of the file.
    """
    if plan is None:
        return element("p", "No copy can be made: ", prose(hopeless)) if hopeless else Html("")
    refused = [
        element("li", element("b", action), " is not done: ", prose(why))
        for action, why in plan.refused
    ]
    if not plan.steps and not refused:
        return Html("")
    command = element("code", f"slotscope repair {quote(name)} -o NEW")
    how = [command, " with the same server named writes a copy; the file itself is never touched."]
    if plan.futile:
        how = ["The server would not take the copy either, so none is written."]
    elif plan.estranged:
        how = ["The copy would not be of the model any more, so none is written."]
    elif plan.unconfirmed:
        how += [" It needs --allow-loss, to agree to what is lost."]
    return inside(
        element("p", *how) if plan.steps else "",
        element("ol", *(element("li", *_step(one)) for one in plan.steps), class_="steps")
        if plan.steps
        else "",
        element("ul", *refused, class_="steps") if refused else "",
    )


def _step(step: Step) -> Iterator[str]:
    yield element("b", step.action)
    lines = [("why", step.why), ("changes", step.changes)]
    lines += [("loses", step.loss)] if step.loss else []
    lines += [("tried on", step.proven)] if step.proven else []
    yield labelled(lines)


def gain(shown: Overview) -> tuple[str, str, str]:
    """What a repair would win, in few words: tone, value, more."""
    plan, check = shown.plan, shown.check
    if plan is None:
        return "bad", "none possible", shown.hopeless
    if not plan.steps:
        if worst(shown.findings) not in (None, Severity.NOTE) and plan.whole:
            return "note", "none by itself", "the findings say what can be done"
        helpless = plan.refused or not plan.whole
        return (
            ("bad", "no help", "no step can be taken")
            if helpless
            else ("plain", "not needed", "the file can stay as it is")
        )
    actions = ", ".join(dict.fromkeys(one.action for one in plan.steps))
    steps = f"{counted(len(plan.steps), 'step')}: {actions}"
    if plan.after is None:
        return "note", counted(len(plan.steps), "step"), steps
    outcome = plan.after.restore.outcome
    if outcome is not Outcome.ACCEPTS:
        return "bad", f"still {outcome}", steps
    old, new = check.reuse[0].found, plan.after.reuse[0].found
    value = f"{_or_none(old.reused)} → {_or_none(new.reused)} reused"
    better = (new.reused or 0) > (old.reused or 0) or check.restore.outcome is not Outcome.ACCEPTS
    return "good" if better else "note", value, steps


def _or_none(n: int | None) -> str:
    return "?" if n is None else f"{n:,}"


def verdict(check: Check) -> tuple[str, str, str]:
    """What the server does with the file, in few words: tone, value, more."""
    outcome = check.restore.outcome
    tones = {Outcome.ACCEPTS: "good", Outcome.UNKNOWN: "warn"}
    values = {Outcome.ABORTS: "kills the server"}
    more = "" if outcome is Outcome.ACCEPTS else check.restore.message
    more += f" ({check.restore.reason})" if check.restore.reason else ""
    judged = check.identity.outcome.in_short
    model = {"matches": "the state is of this model", "differs": "the state is of another model"}
    named = not any(line.startswith("build ") for line in check.target.assumed)
    remarks = [
        more,
        model.get(judged, ""),
        "" if named else "no build was named: it is the newest",
    ]
    more = " · ".join(filter(None, remarks))
    tone = (
        "warn" if judged == "differs" and outcome is Outcome.ACCEPTS else tones.get(outcome, "bad")
    )
    return tone, values.get(outcome, str(outcome)), more
