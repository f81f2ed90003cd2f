"""A run of a loader over many files: as text for people, as JSON, as JUnit XML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from rich.text import Text

from inspector.fuzzing.listing import MANIFEST
from inspector.fuzzing.loader import Outcome
from inspector.fuzzing.run import SCHEMA, UNEXPECTED, Failure, Result, Run
from inspector.render.page import QUIET, STRONG, STYLES, columns, counted, labelled, text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from inspector.fuzzing.minimize import Small

JUNIT = "slotscope fuzz run"
"""What tells our JUnit XML from that of other programs."""
_MOST_NAMES = 3
"""Files that are named of those that fail alike."""
_MOST_KINDS = 40
"""Of disagreements, by mutation."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLES = {
    Outcome.OK: "green",
    Outcome.REFUSED: "",
    Outcome.CRASH: "bold red",
    Outcome.HANG: "bold red",
    Outcome.MEMORY: "bold red",
    Outcome.SPOILT: "bold red",
}


def page(run: Run) -> Iterator[RenderableType]:
    """What came of a run: what contradicts us first, then what failed, one entry a failure."""
    yield text((run.command, STRONG))
    yield text(_summary(run))
    if run.alike:
        sanitized = "Sanitizer" in run.results[0].observed.gist
        yield text(
            ("warning", STYLES["warning"]),
            ": every file ended the same way: it may be that the loader never starts",
            "; built with AddressSanitizer, it needs --memory 0" if sanitized else "",
        )
    if n := run.n_unlisted:
        yield text(f"{counted(n, 'file')} {'is' if n == 1 else 'are'} not in {MANIFEST}")
    yield from _disagreements(run)
    for failure in run.failures(*UNEXPECTED):
        yield Text()
        yield from _failure(failure)
    yield from _contrary(run, run.taken, "taken", "to be refused for")
    yield from _contrary(run, run.rejected, "refused", "to be accepted with")
    if refusals := run.failures(Outcome.REFUSED):
        yield Text()
        yield _refusals(refusals)


def _refusals(refusals: tuple[Failure, ...]) -> RenderableType:
    """A row for each kind; what two of them say alike is told apart by the exit codes."""
    table = columns("refused", "because", numbers=("refused",))
    n_alike = Counter(failure.observed.gist for failure in refusals)
    for failure in refusals:
        gist, detail = failure.observed.gist, failure.observed.detail
        because = f"{gist} ({detail})" if gist and n_alike[gist] > 1 else gist or detail
        table.add_row(f"{len(failure.results):,}", text(because))
    return table


def _summary(run: Run) -> str:
    done, counts = len(run.results), run.counts
    parts = [f"{counts[outcome]:,} {outcome}" for outcome in Outcome if counts[outcome]]
    if run.disagreements:
        parts.append(counted(len(run.disagreements), "disagreement"))
    of = "" if done == run.total else f" of {run.total:,}"
    files = counted(done, "file") if not of else f"{done:,}{of} files"
    return " · ".join((files, *parts))


def _disagreements(run: Run) -> Iterator[RenderableType]:
    for (says, outcome), kinds in run.disagreeing.items():
        yield Text()
        n_files = sum(map(len, kinds.values()))
        does = (outcome, _STYLES[outcome])
        yield text(
            ("disagreement", STRONG),
            f": {says}, it does: ",
            does,
            f" · {counted(n_files, 'file')}",
        )
        table = columns("files", "because", "as in", numbers=("files",))
        for kind, results in list(kinds.items())[:_MOST_KINDS]:
            more = f" + {len(results) - 1:,} more" if len(results) > 1 else ""
            table.add_row(f"{len(results):,}", text(kind), text(results[0].file + more))
        yield table
        if (left := len(kinds) - _MOST_KINDS) > 0:
            yield text((f"and {left:,} more kinds: --json has them all", QUIET))


def _contrary(
    run: Run, found: Mapping[str, tuple[str, ...]], what: str, instead: str
) -> Iterator[RenderableType]:
    """Files that contradict the manifest, but for those that are disagreements already."""
    told = {result.file for result in run.disagreements}
    left = {kind: [file for file in files if file not in told] for kind, files in found.items()}
    if not any(left.values()):
        return
    yield Text()
    table = columns(what, instead, "as in", numbers=(what,))
    for mutation, files in left.items():
        if files:
            table.add_row(f"{len(files):,}", text(mutation), text(files[0]))
    yield table


def _failure(failure: Failure) -> Iterator[RenderableType]:
    observed, results = failure.observed, failure.results
    yield text(
        (observed.outcome, _STYLES[observed.outcome]),
        f" {observed.detail} · {counted(len(results), 'file')}",
    )
    lines = labelled()
    if observed.gist:
        lines.add_row("says", text(observed.gist))
    names = [result.file for result in results[:_MOST_NAMES]]
    more = len(results) - len(names)
    lines.add_row("files", text(", ".join(names) + (f", and {more:,} more" if more else "")))
    yield lines


def to_dict(run: Run) -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema": SCHEMA,
        "command": run.command,
        "files": run.total,
        "done": len(run.results),
        "from_journal": run.known,
        "all_alike": run.alike,
        "counts": {str(outcome): n for outcome, n in run.counts.items()},
        "disagreements": [_of(result) for result in run.disagreements],
        "failures": [
            {
                "outcome": str(failure.observed.outcome),
                "detail": failure.observed.detail,
                "gist": failure.observed.gist,
                "files": [result.file for result in failure.results],
                "log": failure.observed.log,
            }
            for failure in run.failures(*UNEXPECTED, Outcome.REFUSED)
        ],
        "taken": {mutation: list(files) for mutation, files in run.taken.items()},
        "rejected": {mutation: list(files) for mutation, files in run.rejected.items()},
        "manifest": _manifest(run),
        "results": [_of(result) for result in run.results],
    }


def _manifest(run: Run) -> dict[str, Any] | None:
    """What is to be said of the manifest; None without one."""
    if not run.listing.there:
        return None
    fault = run.listing.fault
    return {"fault": fault or None, "files_not_in_it": None if fault else run.n_unlisted}


def _of(result: Result) -> dict[str, Any]:
    observed = result.observed
    return {
        "file": result.file,
        "xxh3": result.digest,
        "outcome": str(observed.outcome),
        "detail": observed.detail,
        "gist": observed.gist,
        "seconds": round(observed.seconds, 3),
        "cpu_seconds": None if (used := observed.cpu_seconds) is None else round(used, 3),
        "ours": None if result.ours is None else str(result.ours),
        "why": result.why or None,
        "by_manifest": result.listed,
    }


def junit(run: Run) -> str:
    """The same as JUnit XML: a test case a file, failed where somebody should look."""
    seconds = sum(result.observed.seconds for result in run.results)
    suite = ElementTree.Element(
        "testsuite",
        name=_clean(run.command),
        tests=str(len(run.results)),
        failures=str(sum(result.unexpected for result in run.results)),
        errors="0",
        skipped="0",
        time=f"{seconds:.3f}",
    )
    contrary = _sentences(run)
    for result in run.results:
        observed = result.observed
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname="slotscope.fuzz",
            name=_clean(result.file),
            time=f"{observed.seconds:.3f}",
        )
        if result.unexpected:
            kind = "disagreement" if result.disagrees else str(observed.outcome)
            ours = f"; {result.judge}: {result.ours} {result.why}".rstrip()
            ours = ours if result.disagrees else ""
            says = f"{observed.outcome} {observed.detail}: {observed.gist}{ours}"
            failure = ElementTree.SubElement(case, "failure", type=kind, message=_clean(says))
            failure.text = _clean(observed.log)
        elif result.file in contrary:
            ElementTree.SubElement(case, "system-out").text = _clean(contrary[result.file])
    suites = ElementTree.Element("testsuites", name=JUNIT)
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, "unicode", xml_declaration=True) + "\n"


def _sentences(run: Run) -> dict[str, str]:
    """File -> how it contradicts the manifest, which by itself is no failure."""
    return {
        file: f"{what} {mutation}"
        for what, found in (
            ("taken, to be refused for", run.taken),
            ("refused, to be accepted with", run.rejected),
        )
        for mutation, files in found.items()
        for file in files
    }


def _clean(words: str) -> str:
    """Without characters that no XML document may hold."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", words)


def small_page(small: Small, name: str, size: int, written: str) -> Iterator[RenderableType]:
    """What became of a file that was made smaller.

    Args:
        small: what is left.
        name: of the file, as the user gave it.
        size: its bytes.
        written: where the small one is.
    """
    yield text((name, STRONG), f": {size:,} bytes, now {len(small.data):,}")
    observed = small.failure
    yield text(
        "still fails: ", (observed.outcome, _STYLES[observed.outcome]), f" {observed.detail}"
    )
    if observed.gist:
        yield text(f"says: {observed.gist}")
    if small.companions:
        beside = ", ".join(f"{written}{suffix}" for suffix in small.companions)
        yield text(f"only with {beside} beside it, which is written too")
    yield Text()
    table = columns("step", "bytes after it", numbers=("bytes after it",))
    for step, left in small.steps:
        table.add_row(text(step), f"{left:,}")
    yield table
    yield Text()
    yield text(f"{counted(small.tries, 'run')} of the loader")
    yield text(("written", "green"), f": {written}, {written}.py")
