"""A repair as text for people: what is wrong, what is done about it, what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from inspector.bundle import RECORD
from inspector.render.page import QUIET, STRONG, columns, counted, labelled, text
from inspector.render.verdict import remarks, server_name
from inspector.server.loader import Outcome

if TYPE_CHECKING:
    from rich.console import RenderableType

    from inspector.check import Check
    from inspector.repair.outcome import Written
    from inspector.repair.plan import Plan
    from inspector.server.prompt import Prediction


def page(plan: Plan, name: str, written: Written) -> Iterator[RenderableType]:
    """What a repair does.

    Args:
        plan: the repair.
        name: of the file, as the user gave it.
        written: what became of it.
    """
    server = f" for {server_name(plan.before.target)}" if plan.before is not None else ""
    n = len(plan.steps)
    nothing = "nothing to do" if plan.only else "nothing to repair"
    nothing = "no step can be taken" if plan.refused else nothing
    if not plan.whole or (plan.staying and not plan.only):
        nothing = "nothing can be repaired"
    yield text((name, STRONG), f"{server}: {counted(n, 'step') if n else nothing}")
    for step in plan.steps:
        yield Text()
        yield text((step.action, STRONG))
        lines = labelled()
        lines.add_row("why", text(step.why))
        lines.add_row("changes", text(step.changes))
        if step.loss:
            needs = "; needs --allow-loss" if step.confirm else ""
            lines.add_row("loses", text((step.loss, "yellow"), needs))
        if step.proven:
            lines.add_row("tried on", text((step.proven, QUIET)))
        yield lines
    for action, why in plan.refused:
        yield Text()
        yield text((action, STRONG), (" not done", "yellow"))
        lines = labelled()
        lines.add_row("why", text(why))
        yield lines
    if plan.needless:
        yield Text()
        yield text((", ".join(plan.needless), STRONG), " not needed")
    yield Text()
    yield from _compared(plan)
    if plan.before is not None:
        unread = [one.message for one in plan.left if one.code == "target.companion-ignored"]
        notes = (*plan.before.target.notes, *unread)
        yield from remarks(("assumed", plan.before.assumed), ("note", notes))
    yield Text()
    for path in written.removed:
        yield text(("removed", "yellow"), f": {path}")
    if (new := written.new) is not None:
        names = [str(new.with_name(new.name + one.suffix)) for one in plan.outputs]
        same = not plan.steps and plan.copied.size == plan.report.size
        unchanged = " unchanged" if same else ""
        yield text(("written", "green"), f"{unchanged}: {', '.join(names)}")
        yield text(f"how it was made: {new}{RECORD}")
    else:
        yield text(f"nothing is written: {written.hindrance or _hint(plan, written)}")
    if plan.staying and (plan.steps or plan.only or written.new is not None):
        yield text(_stays(plan))


def _stays(plan: Plan) -> str:
    what = "what the actions that are allowed leave" if plan.only else "what no repair puts right"
    return f"{what} stays: {', '.join(plan.staying)}"


def _hint(plan: Plan, written: Written) -> str:
    if plan.steps and written.unwritten is not None:
        return f"without --dry-run the copy becomes {written.unwritten}"
    if plan.steps:
        return f"-o NEW {'without --dry-run ' if written.dry else ''}writes the copy"
    if plan.whole and plan.only:
        return "nothing is to be done, of what is allowed"
    if not plan.whole:
        return "nothing of what is allowed helps"
    if plan.staying:
        return _stays(plan)
    if plan.before is None:
        return "the file itself needs nothing; --for or --build fits it to a server"
    return "the file can stay as it is"


def _compared(plan: Plan) -> Iterator[RenderableType]:
    """The file and its copy side by side."""
    before, after = plan.before, plan.after
    table = columns("", "the file", "the copy")
    table.add_row("bytes", f"{plan.report.size:,}", f"{plan.copied.size:,}")
    if before is None or after is None:
        table.add_row(
            "verdict",
            str(plan.report.identification.verdict),
            str(plan.copied.identification.verdict),
        )
    else:
        table.add_row("restore", _restore(before), _restore(after))
        belongs = (one.identity.outcome.in_short for one in (before, after))
        table.add_row("model", *belongs)
        for old, new in zip(before.reuse, after.reuse, strict=True):
            name = f"reused: {new.name or 'asked'}"
            table.add_row(name, *(_reused(one.found) for one in (old, new)))
    yield table


def _restore(check: Check) -> Text:
    outcome = check.restore.outcome
    return text((str(outcome), "green" if outcome is Outcome.ACCEPTS else "bold red"))


def _reused(found: Prediction) -> str:
    return str(found.outcome) if found.reused is None else f"{found.reused:,}"
