"""`slotscope fuzz run` and `slotscope fuzz minimize`: a loader under test."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from inspector.cli.exits import FINDINGS, INTERRUPTED, SOUND, USAGE
from inspector.cli.output import complain, document, say_removed, see_file_name, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inspector.fuzzing.loader import Limits, Loader
    from inspector.fuzzing.minimize import Minimizer, Small
    from inspector.fuzzing.run import Campaign, Predict, Run

_HEAD = 256
"""Bytes that tell what an XML file is."""

_COMMAND = typer.Argument(
    None,
    metavar="-- CMD {}",
    help="A program that loads one file, named by {}, and exits: 0 if it took it.",
)
_SERVER = typer.Option(
    None,
    metavar="COMMAND",
    help='A server that restores it instead, as in "llama-server -m M.gguf"; on loopback, with a '
    "folder for slots of its own.",
)
_TIMEOUT = typer.Option(
    10.0,
    min=0.05,
    max=86400.0,
    metavar="SECONDS",
    help="What a file may take on the clock.",
)
_CPU_TIME = typer.Option(
    10, "--cpu-time", min=1, max=86400, metavar="SECONDS", help="Of processors; not for servers."
)
_MEMORY = typer.Option(
    6144,
    min=0,
    max=1 << 24,
    metavar="MIB",
    help="Address space that a loader may take; 0 for no limit, as AddressSanitizer (ASan) needs.",
)
_REFUSES = typer.Option(
    [],
    "--refuses",
    min=1,
    max=255,
    metavar="CODE",
    help="An exit code of CMD that means a refusal; others are crashes. Repeatable; default: all, "
    "also 137 of a shell, but not what shells make of crashes, as 134 and 139.",
)


def run(
    folder: Path = typer.Argument(
        ...,
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="The files, also in folders below; hidden ones are not loaded, nor companions by "
        "themselves.",
    ),
    command: list[str] | None = _COMMAND,
    server: str | None = _SERVER,
    timeout: float = _TIMEOUT,
    cpu_time: int = _CPU_TIME,
    memory: int = _MEMORY,
    refuses: list[int] = _REFUSES,
    jobs: int = typer.Option(
        1, min=1, max=256, metavar="N", help="Processes at a time; a server is one."
    ),
    compare: bool = typer.Option(
        False,
        "--compare",
        help="Hold what it does against what manifest.json expects of the file, or else what "
        "`inspect` says.",
    ),
    for_: str | None = typer.Option(
        None,
        "--for",
        metavar="COMMAND",
        help="Hold it against what `check` says of this server, whatever a manifest expects.",
    ),
    build: str | None = typer.Option(None, metavar="BUILD", help="The build of that server."),
    model: Path | None = typer.Option(None, metavar="GGUF", help="The model of that server."),
    state: Path | None = typer.Option(
        None, metavar="FILE", help="The journal; DIR/.slotscope-run.jsonl without it."
    ),
    junit: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Write JUnit XML there; of files that are there only the same of an earlier run is "
        "replaced.",
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Give every file of DIR to a loader, and report crashes, hangs and disagreements.

    A program gets the file itself, not a copy: "spoilt" says that it changed the file, or what lies
    beside it.

    A server restores each file into its empty slot 0, evaluates a token more, erases the slot, and
    answers a prompt that it answered before the first file: "spoilt" says that it does so
    otherwise now. Of mutants it is also said which were taken though they are to be refused, and
    which were refused though they are to be accepted.

    A report of a sanitizer is a crash, whatever the exit code, and an end by SIGKILL counts as out
    of memory. What takes too long, and did not use
    processors all the while, is loaded once more at the end, alone and for three times as long,
    before it is called a hang.

    What was done is kept in a journal: the same command goes on where it was stopped. With a
    changed program or other limits all is done anew. Exit code 1 says that a file crashed the
    loader, held it up, spoilt it, or was judged otherwise by us; what a manifest expects counts for
    it with --compare only.
    """
    from inspector.fuzzing.loader import Limits, NoLoader
    from inspector.fuzzing.run import JOURNAL, Campaign, OtherRun
    from inspector.render.page import counted
    from inspector.server.target import BadTarget
    from inspector.source import Unreadable

    limits = Limits(timeout, cpu_time, memory << 20)
    code = USAGE
    try:
        if junit is not None:
            _see_report(junit)
        with ExitStack() as stack:
            named = (for_, build, model) != (None, None, None)
            predict = stack.enter_context(_predicted(compare, for_, build, model))
            loader, name = _loader(command, server, limits, refuses)
            stack.callback(loader.close)
            journal = state or folder / JOURNAL
            campaign = Campaign(folder, loader, name, journal, predict, junit, listed=not named)
            if not campaign.files:
                raise Unreadable(f"{folder}: no files")
            _complain_of(campaign)
            stopped = _watched(campaign, jobs)
            found = campaign.report()
            if junit is not None:
                _write_junit(junit, found)
            _show(found, as_json=json)
            if found.known:
                taken = counted(found.known, "result")
                complain(f"{taken} taken from {journal}; delete it to run again")
            code = FINDINGS if found.unexpected else SOUND
            if stopped:
                complain("stopped; the same command goes on from here")
                code = INTERRUPTED
    except (NoLoader, OtherRun, BadTarget, Unreadable) as error:
        complain(str(error))
    raise typer.Exit(code)


def _complain_of(campaign: Campaign) -> None:
    """Say what of the manifest and of the journal is left out of account."""
    from inspector.fuzzing.listing import MANIFEST
    from inspector.render.page import counted

    if fault := campaign.listing.fault:
        complain(f"{campaign.folder / MANIFEST}: {fault}; it is left out of account")
    if n := campaign.done.n_outdated:
        complain(
            f"{campaign.journal}: {counted(n, 'result')} not used: the program has changed since, "
            "or the limits are others"
        )
    if n := campaign.done.n_unreadable:
        complain(f"{campaign.journal}: {counted(n, 'line')} not used: no result can be read there")


def _loader(
    command: list[str] | None, server: str | None, limits: Limits, refuses: list[int]
) -> tuple[Loader, str]:
    """The loader that was named, and its name."""
    from inspector.fuzzing.loader import CommandLoader

    if bool(command) == (server is not None):
        raise typer.BadParameter("either a command or --server", param_hint="-- CMD {}")
    if server is not None:
        from inspector.fuzzing.server import ServerLoader

        return ServerLoader(server, limits), server
    assert command is not None
    return CommandLoader(command, limits, frozenset(refuses) or None), shlex.join(command)


@contextmanager
def _predicted(
    compare: bool, for_: str | None, build: str | None, model: Path | None
) -> Iterator[Predict | None]:
    """Our verdict on a file, if one is asked for."""
    from inspector.fuzzing.run import by_inspection, by_target

    if for_ is None and build is None and model is None:
        yield by_inspection if compare else None
        return
    from inspector.server.target import target_of

    with target_of(for_, build, model) as target:
        yield by_target(target)


def _watched(campaign: Campaign, jobs: int) -> bool:
    """Run it, with a progress bar on a terminal; whether it was stopped before its end."""
    with _progress(len(campaign.files)) as progress:
        try:
            with closing(campaign.run(jobs)) as results:
                for result in results:
                    progress(result.file if result.unexpected else "")
        except KeyboardInterrupt:
            return True
    return False


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from inspector.render.page import text

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def advance(name: str) -> None:
            bar.advance(task)
            if name:
                bar.console.print(text(name))

        yield advance


def _see_report(path: Path) -> None:
    """See that nothing is replaced but a report of an earlier run.

    Raises:
        OtherRun: if something else is there.
    """
    from inspector.fuzzing.run import OtherRun
    from inspector.render.fuzz_run import JUNIT

    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise OtherRun(f"{path}: {error.strerror}") from error
    if not head.startswith(b"<?xml") or f'<testsuites name="{JUNIT}"'.encode() not in head:
        raise OtherRun(f"{path} is no JUnit report of fuzz run: it is never written")


def _write_junit(path: Path, found: Run) -> None:
    from inspector.render.fuzz_run import junit
    from inspector.source import Unreadable

    _see_report(path)
    try:
        path.write_text(junit(found), encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def _show(found: Run, *, as_json: bool) -> None:
    if as_json:
        from json import dumps

        from inspector.render.fuzz_run import to_dict

        document(dumps(to_dict(found), indent=2))
    else:
        from inspector.render.fuzz_run import page

        show(page(found))


def minimize(
    file: Path = typer.Argument(
        ..., metavar="FILE", exists=True, dir_okay=False, help="A file that fails; never written."
    ),
    command: list[str] | None = _COMMAND,
    output: Path = typer.Option(
        ..., "-o", "--output", metavar="NEW", help="Where to write the small file, and NEW.py."
    ),
    server: str | None = _SERVER,
    timeout: float = _TIMEOUT,
    cpu_time: int = _CPU_TIME,
    memory: int = _MEMORY,
    refuses: list[int] = _REFUSES,
    seconds: float = typer.Option(
        120.0, min=1.0, max=86400.0, metavar="S", help="After so long nothing more is tried."
    ),
    force: bool = typer.Option(
        False,
        "--force",
        help="Replace NEW, and remove what lies beside it and would be taken for its companion.",
    ),
) -> None:
    """Make FILE as small as can be while the loader fails on it in the same way.

    Writes the small file, and beside it a script, NEW.py, that writes it again field by field. The
    companions of FILE go along only if the loader does not fail without them. A refusal is no
    failure; where it is one, --refuses says which exit codes are refusals. At the end the loader is
    given the small file twice more: if it does not fail every time, nothing is written, and the
    exit code is 1. After Ctrl-C what is smaller until then is written in the same way, and the exit
    code is 130.
    """
    from inspector.bundle import RECORD, SUFFIXES
    from inspector.fuzzing.loader import Limits, NoLoader
    from inspector.fuzzing.minimize import Minimizer, NoFailure
    from inspector.repair.apply import NotWritten, see_apart, stale_beside
    from inspector.source import Unreadable

    see_file_name(output)
    limits = Limits(timeout, cpu_time, memory << 20)
    code = USAGE
    try:
        originals = [file, *map(Path, command or ())]
        originals += [Path(f"{file}{suffix}") for suffix in (*SUFFIXES, RECORD)]
        see_apart([output, _script(output)], originals)
        stale_beside(output, (), originals)
        loader, _ = _loader(command, server, limits, refuses)
        with ExitStack() as stack:
            stack.callback(loader.close)
            note = stack.enter_context(_shrinking(file.stat().st_size))
            small = _minimized(Minimizer(file, loader, seconds, output.name, note))
        if small is not None:
            _write_small(small, output, originals, force=force)
            _show_small(small, file, output)
        code = SOUND
        if small is None or small.stopped:
            complain("stopped" + (": nothing smaller was found" if small is None else ""))
            code = INTERRUPTED
    except NoFailure as error:
        complain(f"{file}: {error}")
        code = FINDINGS
    except (NoLoader, NotWritten, Unreadable) as error:
        complain(str(error))
    raise typer.Exit(code)


def _minimized(minimizer: Minimizer) -> Small | None:
    """What it makes of its file; None if it was stopped before that was smaller."""
    size = len(minimizer.data)
    try:
        small = minimizer.run()
    except KeyboardInterrupt:
        return None
    return None if small.stopped and len(small.data) == size else small


@contextmanager
def _shrinking(size: int) -> Iterator[Callable[[str, int], None]]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda step, left: None
        return
    from rich.console import Console

    from inspector.render.page import text

    console = Console(stderr=True)
    with console.status(text(f"{size:,} bytes")) as status:
        yield lambda step, left: status.update(text(f"{left:,} bytes: {step}"))


def _script(output: Path) -> Path:
    return output.with_name(f"{output.name}.py")


def _write_small(small: Small, output: Path, originals: Sequence[Path], *, force: bool) -> None:
    """Write the small file, the script, and the companions without which it does not fail."""
    from inspector.fuzzing.script import script_of
    from inspector.repair.apply import File, stale_beside, write
    from inspector.repair.segments import Composed, Keep, Segment, Write
    from inspector.source import opened

    script = _script(output)
    code = script_of(small, output.name, script.name).encode()
    content: dict[Path, Segment] = {
        output: Write(small.data, "minimize"),
        script: Write(code, "minimize"),
    }
    with ExitStack() as stack:
        for suffix, path in small.companions.items():
            source = stack.enter_context(opened(path))
            content[output.with_name(output.name + suffix)] = Keep(source, source.whole())
        stale = stale_beside(output, content, originals)
        files = [File(path, Composed((one,), path.name), 0o644) for path, one in content.items()]
        say_removed(write(files, stale, lambda places: None, force=force))


def _show_small(small: Small, file: Path, output: Path) -> None:
    from inspector.render.fuzz_run import small_page

    show(small_page(small, str(file), file.stat().st_size, str(output)))


def dictionary() -> None:
    """Print a dictionary for AFL++ and libFuzzer: magics, versions, types of all layouts."""
    from formats.layouts import all_layouts
    from inspector.cli.output import exactly
    from inspector.fuzzing.dictionary import dictionary as of

    exactly(of(all_layouts()))
