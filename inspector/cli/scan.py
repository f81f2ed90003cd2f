"""`slotscope scan`: many files at a glance."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inspector.cli.completion import orders, severities
from inspector.cli.exits import CRASH, FINDINGS, INTERRUPTED, SOUND, USAGE
from inspector.cli.output import complain, document, on_terminal, show, width
from inspector.cli.targets import BuildOption, ForOption, ModelOption, UrlOption
from inspector.cli.usage import Command

if TYPE_CHECKING:
    from inspector.cli.bar import Bar
    from inspector.scanning.choice import Value
    from inspector.scanning.ledger import Ledger, Totals
    from inspector.scanning.scan import Job, Row
    from inspector.scanning.watch import Watch
    from inspector.server.target import Target

_AT_ONCE = 64
"""Lines that are printed together, unless they come slowly."""
_SLOWLY = 0.2
"""Seconds."""
_POLL = 1.0
"""Seconds between two looks at folders that are watched."""


class ScanCommand(Command):
    """`--json` may be followed by the word `lines`, which is what it prints."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take that word away."""
        pairs = zip(args, ["", *args], strict=False)
        return super().parse_args(ctx, [a for a, before in pairs if (before, a) != _JSON_LINES])


_JSON_LINES = ("--json", "lines")


def scan(
    paths: list[str] = typer.Argument(..., metavar="PATH...", help="Folders, files, addresses."),
    command: ForOption = None,
    build: BuildOption = None,
    model: ModelOption = None,
    url: UrlOption = None,
    filter_: list[str] = typer.Option(
        [],
        "--filter",
        metavar="TERM",
        help="Show only what fits: restore=refuses, worst>=warning, size>1G, age>30d, tokens<100, "
        "finding=file.truncated, path~old …; = is the whole word, ~ a part of it, != not that "
        "word; repeatable, all must fit. checkpoints counts all of them, usable those that their "
        "server would take; without a token list no number of tokens fits. kind=orphan and its "
        "like show what has no line otherwise.",
    ),
    sort: str | None = typer.Option(
        None,
        metavar="FIELD",
        autocompletion=orders,
        help="Sort by size, age, tokens, restore, worst …; -size: largest first.",
    ),
    json: bool = typer.Option(False, "--json", help="Print JSON, one document a line."),
    csv: Path | None = typer.Option(None, metavar="FILE", help="Write a table too, as CSV."),
    parquet: Path | None = typer.Option(None, metavar="FILE", help="The same as Parquet."),
    force: bool = typer.Option(
        False, "--force", help="Replace a table of an earlier scan; no other file ever is."
    ),
    verify: bool = typer.Option(
        False,
        "--verify",
        help="Read all of every sealed file, and compare its sections with its seal, by xxh3. A "
        "file or a companion that differs, and a seal that cannot be read, exit 1 unless --fail-on "
        "is never.",
    ),
    watch: bool = typer.Option(
        False,
        "--watch",
        help="Go on, and report files again as they change; Ctrl-C ends it, with the exit code for "
        "what was shown.",
    ),
    workers: int = typer.Option(
        0, min=0, max=1024, metavar="N", help="Processes; 0 for one on every core."
    ),
    dask: str | None = typer.Option(
        None, metavar="ADDRESS", help="Let the workers of this Dask scheduler look at the files."
    ),
    fail_on: str = typer.Option(
        "error",
        metavar="SEVERITY",
        autocompletion=severities,
        help="Exit 1 if a line that is shown has a finding from this severity on: error, warning, "
        "note or never. A restore that is refused or kills the server exits 1 unless it is never. "
        "A file below a folder that cannot be read is an error; a PATH that cannot be read always "
        "exits 2, as does a table that cannot be written.",
    ),
) -> None:
    """Say of every state below PATH what it is, whether it restores, and what is wrong with it.

    The findings are those of `check`, and what differs from a seal; in stores without those of
    numbers, unless a model is named. Reused is what a prompt reuses that goes on from all tokens.
    Companions are part of the line of their state. What lies about without a state, and states
    that are equal or begin alike, follow at the end, unless lines are filtered. A file that is
    reached twice has one line, and links are told from copies. States of equal size with the same
    tokens are compared byte for byte, as long as that reads no more than 1 GiB in all; else, and in
    stores, it is said that they were not compared. On a terminal lines are cut to its width,
    elsewhere nothing is. PATH may be the address of a store that fsspec reaches, s3:// or
    https://, of which only parts are fetched.
    """
    from inspector.cli.tables import NoTable, tables
    from inspector.findings import Severity
    from inspector.scanning.choice import BadChoice, condition, names_kind, sort_key
    from inspector.scanning.fleet import NoCluster
    from inspector.scanning.scan import job_for
    from inspector.server.target import BadTarget, target_of

    if fail_on not in (*Severity, "never"):
        raise typer.BadParameter(
            f"{fail_on!r} is none of error, warning, note, never", param_hint="--fail-on"
        )
    try:
        conditions = [condition(term) for term in filter_]
    except BadChoice as error:
        raise typer.BadParameter(str(error), param_hint="--filter") from error
    try:
        order = sort_key(sort) if sort is not None else None
    except BadChoice as error:
        raise typer.BadParameter(str(error), param_hint="--sort") from error
    if watch and order is not None:
        raise typer.BadParameter("lines come as files change", param_hint="--sort, --watch")
    limit = Severity(fail_on).rank if fail_on != "never" else -1
    code = SOUND
    try:
        with ExitStack() as stack:
            target = stack.enter_context(target_of(command, build, model, url=url))
            written = stack.enter_context(tables(csv, parquet, force=force))
            folder = f"{paths[0].rstrip('/')}/" if len(paths) == 1 else ""
            printer = _Printer(
                conditions,
                limit,
                written.take,
                folder,
                every=any(map(names_kind, filter_)),
                as_json=json,
                verify=verify,
            )
            job = job_for(target, verify=verify)
            code = _scanned(paths, target, job, printer, order, workers, dask, watch=watch)
            written.interrupted = code == INTERRUPTED
    except (BadTarget, NoTable, NoCluster) as error:
        complain(str(error))
        code = max(code, USAGE)
    raise typer.Exit(code)


class _Printer:
    """Where rows go.

    Args:
        conditions: what a row must be to be shown.
        limit: the rank of the severity from which on the exit code is 1; -1 for none.
        table: takes rows as well.
        folder: that all paths begin with, empty for none.
        every: whether rows are shown that have no line otherwise.
        as_json: whether lines are documents.
        verify: whether all of sealed files was read.
    """

    def __init__(
        self,
        conditions: list[Callable[[Row], bool]],
        limit: int,
        table: Callable[[Row], None],
        folder: str,
        *,
        every: bool,
        as_json: bool,
        verify: bool,
    ) -> None:
        self._every = every
        self._conditions = conditions
        self._folder = folder
        self._limit = limit
        self._table = table
        self._as_json = as_json
        self._verify = verify
        self._waiting: list[Row] = []
        self._flushed = 0.0
        self._lines: Any = None
        self.shown = 0
        self.code = SOUND

    @property
    def names_groups(self) -> bool:
        """Whether it is said which states have something in common: not to who asks for some."""
        return not self._conditions

    def wants(self, row: Row) -> bool:
        """Whether a row has a line, and is to be shown."""
        return (row.listed or self._every) and all(holds(row) for holds in self._conditions)

    def add(self, row: Row, bar: Bar) -> None:
        """Print a row, soon."""
        self.shown += 1
        self.code = max(self.code, _code(row, self._limit, verify=self._verify))
        self._table(row)
        self._waiting.append(row)
        if len(self._waiting) >= _AT_ONCE or time.monotonic() - self._flushed > _SLOWLY:
            self.flush(bar)

    def flush(self, bar: Bar) -> None:
        """Print what waits."""
        waiting, self._waiting, self._flushed = self._waiting, [], time.monotonic()
        if not waiting:
            return
        bar.clear()
        if self._as_json:
            from json import dumps

            from inspector.render.scan_json import line

            document("\n".join(dumps(line(row)) for row in waiting))
            return
        if self._lines is None:
            from inspector.render.scan import Lines

            self._lines = Lines(width(), self._folder, cut=on_terminal(), verify=self._verify)
            show([self._lines.head()])
        show(self._lines.of(row) for row in waiting)

    def end(self, book: Ledger, totals: Totals, target: Target, *, interrupted: bool) -> None:
        """Print what is said of all; to who asks for certain lines, numbers alone."""
        if self._as_json:
            from json import dumps

            from inspector.render.scan_json import group_line, line, totals_line

            if self.names_groups:
                for row in book.apart():
                    document(dumps(line(row)))
                for group in book.groups():
                    document(dumps(group_line(group)))
            document(dumps(totals_line(totals, target, interrupted=interrupted)))
            return
        from inspector.render import scan as page
        from inspector.render.verdict import server_name

        if self.names_groups:
            show(page.apart(book.apart(), self._folder))
            show(page.groups(book.groups(), self._folder, brief=on_terminal()))
        if self._every:
            totals = replace(totals, lines=totals.files)
        server, assumed = server_name(target), target.assumed_of_states
        show(page.totals(totals, self.shown, server, assumed, verify=self._verify))


def _code(row: Row, limit: int, *, verify: bool) -> int:
    """The exit code for one row."""
    if row.bug:
        return CRASH
    if row.problem:
        return USAGE if row.named else SOUND if limit < 0 else FINDINGS
    if limit < 0:
        return SOUND
    from inspector.findings import Severity
    from inspector.scanning.scan import Sealed

    bad = row.restore in ("refuses", "aborts")
    bad = bad or (verify and row.sealed in (Sealed.DIFFERS, Sealed.UNREADABLE))
    bad = bad or (row.worst != "" and Severity(row.worst).rank <= limit)
    return FINDINGS if bad else SOUND


def _scanned(
    paths: list[str],
    target: Target,
    job: Job,
    printer: _Printer,
    order: tuple[Callable[[Row], Value], bool] | None,
    n_workers: int,
    cluster: str | None,
    *,
    watch: bool,
) -> int:
    from inspector.cli.bar import Bar
    from inspector.scanning.compare import compare
    from inspector.scanning.fleet import on_cluster, rows
    from inspector.scanning.folder import items
    from inspector.scanning.ledger import Totals, ledger
    from inspector.scanning.scan import Kind
    from inspector.scanning.watch import Watch

    watched_by_people = sys.stderr is not None and sys.stderr.isatty()
    known = watched_by_people and not any("://" in path for path in paths)
    bar = Bar(sum(1 for _ in items(paths)) if known else None)
    totals, interrupted = Totals(), False
    watched = Watch(paths) if watch else None
    with ledger() as book:
        try:
            listed = items(paths)
            found = on_cluster(listed, job, cluster) if cluster else rows(listed, job, n_workers)
            for row in found:
                totals.add(row, again=book.note(row))
                if printer.wants(row):
                    if order is None:
                        printer.add(row, bar)
                    else:
                        book.keep(row, order[0](row))
                elif row.kind in (Kind.ORPHAN, Kind.LEFTOVER):
                    book.set_apart(row)
                if watched_by_people:
                    bar.at(totals.files)
            if printer.names_groups:
                totals.bytes_read += compare(book)
        except KeyboardInterrupt:
            interrupted = True
        bar.clear()
        if order is not None:
            for row in book.ordered(descending=order[1]):
                printer.add(row, bar)
        printer.flush(bar)
        printer.end(book, totals, target, interrupted=interrupted)
    if watched is not None and not interrupted:
        _follow(watched, job, printer, bar)
    elif interrupted:
        complain(f"interrupted: {totals.files:,} files were looked at")
        return INTERRUPTED
    return printer.code


def _follow(watched: Watch, job: Job, printer: _Printer, bar: Bar) -> None:
    """Report files again as they change, until Ctrl-C."""
    from inspector.scanning.scan import Kind, Row, rows_of

    try:
        while True:
            time.sleep(_POLL)
            changes = watched.look()
            for path in changes.gone:
                printer.add(Row(path, Kind.FAILED, problem="gone"), bar)
            for item in changes.settled:
                for row in rows_of([item], job):
                    if printer.wants(row):
                        printer.add(row, bar)
            printer.flush(bar)
    except KeyboardInterrupt:
        bar.clear()
