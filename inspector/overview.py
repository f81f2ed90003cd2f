"""All that is known of one file at once: the report, the verdict, and what a repair would win."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.check import Check, check_of
from inspector.findings import Finding
from inspector.repair.draft import Options
from inspector.repair.plan import Plan, planned
from inspector.repair.state import Refused
from inspector.report import Report, examined
from inspector.server.curve import Curve, curve
from inspector.server.target import Target

if TYPE_CHECKING:
    from inspector.checks.strips import Strip


@dataclass(frozen=True)
class Overview:
    """What there is to be shown of one file, while it is open.

    Attributes:
        report: of the file.
        check: what the server does with it, whatever it is.
        plan: the repair; None if there is none.
        hopeless: why there is none; empty otherwise.
        reuse: what is reused of the file.
        repaired: what is reused of the repaired copy; None without one.
        strips: the stored numbers along the cells, if they were read.
    """

    report: Report
    check: Check
    plan: Plan | None
    hopeless: str
    reuse: Curve
    repaired: Curve | None
    strips: tuple[Strip, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Against the file, for the server; the worst first."""
        return self.check.findings

    @property
    def elsewhere(self) -> tuple[Finding, ...]:
        """The other findings about the file, which this server does not meet."""
        met = set(self.findings)
        return tuple(one for one in self.report.findings if one not in met)


@contextmanager
def overview(path: Path, target: Target, *, deep: bool = False) -> Iterator[Overview]:
    """Look at a file, ask what the server does with it, and plan its repair.

    Args:
        path: the file; it stays open within the context.
        target: the server.
        deep: whether to read the stored numbers too.

    Raises:
        Unreadable: if the system does not give us the file.
    """
    with ExitStack() as stack:
        report = stack.enter_context(examined(path, model=target.memory, deep=deep))
        plan, hopeless = None, ""
        try:
            plan = stack.enter_context(planned(path, target, Options(), path.name))
        except Refused as error:
            hopeless = str(error)
        check = plan.before if plan is not None and not deep else None
        if check is None:
            check = check_of(report, target, (), None)
        found: tuple[Strip, ...] = ()
        if report.statistics:
            from inspector.checks.strips import strips

            found = tuple(strips(report.source, report.statistics))
        changed = plan is not None and bool(plan.steps)
        after = plan.after if plan is not None and changed else None
        yield Overview(
            report,
            check,
            plan,
            hopeless,
            curve(check),
            None if after is None else curve(after),
            found,
        )
