"""Scans: what every file is among others, in what order, how they end, and what is said at last."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from inspector.check import checked
from inspector.cli.app import app
from inspector.cli.exits import FINDINGS, INTERRUPTED, SOUND, USAGE
from inspector.render.scan import Lines, size
from inspector.render.scan_json import line, record
from inspector.scanning import fleet
from inspector.scanning.choice import BadChoice, condition, sort_key
from inspector.scanning.compare import compare
from inspector.scanning.folder import items
from inspector.scanning.ledger import Totals, ledger
from inspector.scanning.scan import SMALL, Found, Item, Job, Kind, Row, job_for, row_of, rows_of
from inspector.scanning.watch import Watch
from inspector.server.target import target_of
from tests.support.disk import fill, small_disk
from tests.support.powers import powerless
from tests.support.writer import DIALECTS, F16, Cache, Memory, Slot, Tokens, cells_of, pack
from tests.support.writer import Row as Stored

ROOT = Path(__file__).resolve().parents[2]
INTACT = ROOT / "samples/intact"
CHECKPOINTED = INTACT / "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot"
MODEL = ROOT / "tests/oracle/models/qwen35.gguf"


def save(path: Path, tokens: Sequence[int], rows: int = 16) -> Path:
    """A small save of version 2, which b10229 restores."""
    made = Tokens(tuple(tokens))
    stored = (Stored(F16, rows),) * 2
    memory = Memory({"attn": Cache((cells_of(made),), k=stored, v=stored)}, DIALECTS[""])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(Slot(2, made, memory)).data)
    return path


@pytest.fixture
def job() -> Iterator[Job]:
    with target_of(None, "b10229") as target:
        yield job_for(target)


def scanned(*words: object) -> Result:
    return CliRunner().invoke(app, ["scan", *map(str, words)])


def documents(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def kinds(folder: Path, job: Job) -> dict[str, Kind]:
    return {
        str(Path(row.path).relative_to(folder)): row.kind
        for row in fleet.rows(items([str(folder)]), job, 1)
    }


# -- one file --------------------------------------------------------------------------------------


def test_what_files_are_among_others(tmp_path: Path, job: Job) -> None:
    save(tmp_path / "a.bin", range(1, 20))
    save(tmp_path / "named.ckpt", range(1, 5))
    save(tmp_path / "named", range(1, 6))
    save(tmp_path / "b/later.bin.tmp", range(1, 5))
    for name in ("a.bin.ckpt", "lost.bin.ckpt"):
        shutil.copyfile(next(INTACT.glob("*--with-pkcl1.slot.ckpt")), tmp_path / name)
    (tmp_path / "a.bin.slotscope.json").write_text("{}")
    (tmp_path / "lost.bin.slotscope.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("words: äöü\n")
    (tmp_path / "zeros.bin").write_bytes(bytes(5000))
    (tmp_path / "empty.bin").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    shutil.copyfile(ROOT / "samples/models/llama.gguf", tmp_path / "model.gguf")
    assert kinds(tmp_path, job) == {
        "a.bin": Kind.STATE,
        "a.bin.ckpt": Kind.COMPANION,
        "a.bin.slotscope.json": Kind.COMPANION,
        "b/later.bin.tmp": Kind.LEFTOVER,
        "empty.bin": Kind.UNKNOWN,
        "link": Kind.FAILED,
        "lost.bin.ckpt": Kind.ORPHAN,
        "lost.bin.slotscope.json": Kind.ORPHAN,
        "model.gguf": Kind.MODEL,
        "named": Kind.STATE,
        "named.ckpt": Kind.STATE,
        "notes.txt": Kind.OTHER,
        "zeros.bin": Kind.UNKNOWN,
    }


def test_a_row_says_what_check_says() -> None:
    with target_of(f"llama-server -m {MODEL} -c 512 -np 1 -fa on") as target:
        (row,) = rows_of([Item(str(CHECKPOINTED))], job_for(target))
        assert row == row_of(Item(str(CHECKPOINTED)), target)
    assert (row.format, row.version, row.memory, row.since) == ("ggsq", 4, "hybrid", "b11435")
    assert (row.n_tokens, row.n_usable, row.n_checkpoints) == (27, 1, 1)
    assert (row.restore, row.reused, row.model) == ("accepts", 27, "matches")
    assert row.prefixes
    assert row.prefixes[0][0] == 16


@pytest.mark.parametrize("build", ["b10229", "b11549"])
def test_findings_are_those_of_check(build: str) -> None:
    """Of requests that the server dies of or refuses too; seals are the business of scans."""
    with target_of(None, build) as target:
        for path in sorted((ROOT / "samples").glob("*/*.slot")):
            row = row_of(Item(str(path)), target)
            if row.kind is Kind.STATE:
                with checked(path, target) as check:
                    codes = list(dict.fromkeys(one.code for one in check.findings))
                found = [one.code for one in row.findings]
                more = [code for code in found if code not in codes]
                assert [code for code in found if code not in more] == codes, path.name
                assert all(code.startswith("seal.") for code in more), path.name


def test_a_bug_of_ours_is_one_line(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("pos")

    monkeypatch.setattr("inspector.scanning.scan.report_of", broken)
    (row,) = rows_of([Item(str(CHECKPOINTED))], job)
    assert row.bug
    assert row.problem == "KeyError: 'pos'"


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A save with a hard link and a symbolic link, and a link to its folder beside it."""
    folder = tmp_path / "saves"
    save(folder / "b.bin", range(1, 40))
    (folder / "a link.bin").symlink_to("b.bin")
    os.link(folder / "b.bin", folder / "hard.bin")
    (tmp_path / "again").symlink_to(folder)
    return folder


def test_a_file_that_is_reached_twice_is_one_item(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(linked.parent)
    again = (
        "saves",
        "./saves",
        str(linked),
        "again",
        "again/b.bin",
        "saves/b.bin",
        "saves",
        linked.as_uri(),
    )
    found = list(items(again))
    assert [item.path for item in found] == ["saves/a link.bin", "saves/hard.bin", "again/b.bin"]
    assert [item.named for item in found] == [False, False, True]
    nested = save(linked / "deep/c.bin", range(1, 5))
    assert [item.path for item in items(["saves/deep", "saves"])].count("saves/deep/c.bin") == 1
    nested.unlink()


def test_links_are_no_copies(linked: Path) -> None:
    *lines, totals = documents(scanned(linked, "--build", "b10229", "--json"))
    states = [line for line in lines if line["kind"] == "state"]
    (group,) = [line for line in lines if line["kind"] == "group"]
    assert len(states) == 3
    assert (group["shared"], group["bytes"]) == ("file", 0)
    assert [Path(path).name for path in group["paths"]] == ["a link.bin", "b.bin", "hard.bin"]
    assert [Path(path).name for path in group["links"]] == ["a link.bin"]
    assert (totals["states"], totals["links"]) == (1, 2)
    assert totals["bytes"] == (linked / "b.bin").stat().st_size
    shutil.copyfile(linked / "b.bin", linked / "copy.bin")
    result = scanned(linked, "--build", "b10229")
    assert "a link.bin  (symbolic link)\n" in result.stdout
    assert "2 further names" in result.stdout
    lines = documents(scanned(linked, "--build", "b10229", "--json"))
    (equal,) = [line for line in lines if line.get("shared") == "contents"]
    assert [Path(path).name for path in equal["paths"]] == ["a link.bin", "copy.bin"]


def test_what_is_no_file_is_counted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "self").symlink_to(tmp_path)
    result = scanned(tmp_path)
    assert result.exit_code == SOUND
    assert "besides  2 not regular\n" in result.stdout


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "an empty name"),
        ("missing", "there is no such file"),
        ("broken", "the link leads nowhere"),
        ("loop", "the link leads in a circle"),
        ("pipe", "not a regular file"),
    ],
)
@pytest.mark.parametrize("fail_on", ["error", "never"])
def test_a_path_that_cannot_be_read(tmp_path: Path, name: str, why: str, fail_on: str) -> None:
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    result = scanned(tmp_path / name if name else "", "--json", "--fail-on", fail_on)
    assert result.exit_code == USAGE
    assert documents(result)[0]["problem"] == why


def test_files_below_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to("nowhere")
    assert scanned(tmp_path).exit_code == FINDINGS
    assert scanned(tmp_path, "--fail-on", "never").exit_code == SOUND


# -- many files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty saves, in two folders."""
    made = tmp_path_factory.mktemp("saves")
    for n in range(40):
        save(made / f"{n % 2}/{n:03}.bin", range(1 + n, 10 + 2 * n))
    return made


def killing(items: Sequence[Item], job: Job) -> list[Row]:
    """What a process does that dies of one file."""
    if any(item.path.endswith("007.bin") for item in items):
        os.kill(os.getpid(), signal.SIGKILL)
    return rows_of(items, job)


def test_processes_give_the_same_rows_in_the_same_order(folder: Path, job: Job) -> None:
    listed = list(items([str(folder)]))
    assert [item.path for item in listed] == sorted(item.path for item in listed)
    assert list(fleet.rows(listed, job, 2)) == rows_of(listed, job)


def test_a_killed_process_costs_no_other_file(
    folder: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "rows_of", killing)
    listed = list(items([str(folder)]))
    found = list(fleet.rows(listed, job, 2))
    assert [row.path for row in found] == [item.path for item in listed]
    (lost,) = [row for row in found if row.kind is Kind.FAILED]
    assert lost.path.endswith("007.bin")
    assert "killed" in lost.problem


SLOW = """
import inspector.scanning.fleet as fleet, inspector.cli as cli, time
rows = fleet.rows
def slow(*words):
    yield from rows(*words)
    print('now', flush=True)
    time.sleep(60)
fleet.rows = slow
cli.main()
"""
"""A scan that comes to no end."""


def interrupted(*words: object) -> tuple[list[dict[str, Any]], list[str]]:
    """Lines of a scan that was ended by Ctrl-C when all files were looked at, and complaints."""
    command = (sys.executable, "-c", SLOW, "scan", *map(str, words), "--json")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdout is not None
        lines = []
        while (line := run.stdout.readline()) != "now\n":
            lines.append(line)
        run.send_signal(signal.SIGINT)
        rest, complaint = run.communicate(timeout=60)
    assert run.returncode == INTERRUPTED
    return [json.loads(line) for line in [*lines, *rest.splitlines()]], complaint.splitlines()


def test_ctrl_c_ends_with_what_is_done(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", range(1, 20))
    (state, totals), complaints = interrupted(tmp_path, "--build", "b10229")
    assert state["kind"] == "state"
    assert (totals["kind"], totals["complete"], totals["states"]) == ("totals", False, 1)
    assert complaints == ["slotscope: interrupted: 1 files were looked at"]


def test_ctrl_c_replaces_no_table(folder: Path, tmp_path: Path) -> None:
    table, other, empty = tmp_path / "table.csv", tmp_path / "other.csv", tmp_path / "empty"
    assert scanned(folder, "--csv", table, "--fail-on", "never").exit_code == SOUND
    before = table.read_text()
    few = folder / "000.bin"
    _, complaints = interrupted(few, "--csv", table, "--force")
    assert table.read_text() == before
    assert complaints[-1].endswith("table.csv: the table that is there stays as it is")
    _, complaints = interrupted(few, "--csv", other)
    assert other.read_text().count("\n") == 2
    assert complaints[-1].endswith("other.csv: a table of the 1 lines until then")
    empty.mkdir()
    _, complaints = interrupted(empty, "--csv", tmp_path / "none.csv")
    assert complaints[-1].endswith("none.csv: no table was written")
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["other.csv", "table.csv"]


def test_ctrl_c_at_any_time(folder: Path) -> None:
    """Also while processes are started, which are sent it too, says no more than it has to."""
    main = "from inspector.cli import main; print(flush=True); main()"
    command = (sys.executable, "-c", main, "scan", str(folder), "--workers", "2")
    pipe = subprocess.PIPE
    for wait in range(4, 64, 6):
        with subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        ) as run:
            assert run.stdout is not None
            run.stdout.readline()
            time.sleep(wait / 100)
            os.killpg(run.pid, signal.SIGINT)
            _, complaint = run.communicate(timeout=60)
        assert "Traceback" not in complaint


# -- what is said at the end -----------------------------------------------------------------------


def test_states_that_have_something_in_common(tmp_path: Path, job: Job) -> None:
    long = list(range(1000, 1100))
    save(tmp_path / "a.bin", long)
    save(tmp_path / "equal.bin", long)
    save(tmp_path / "other rows.bin", long, rows=32)
    save(tmp_path / "earlier.bin", long[:40])
    save(tmp_path / "branch.bin", [*long[:70], *range(50)])
    save(tmp_path / "stranger.bin", range(1, 100))
    with ledger() as book:
        for row in fleet.rows(items([str(tmp_path)]), job, 1):
            book.note(row)
        found = [
            (one.shared, one.n_tokens, [Path(path).stem for path in one.paths], one.n_closer)
            for one in book.groups()
        ]
    assert found == [
        ("contents", 100, ["a", "equal"], 0),
        ("tokens", 100, ["a", "other rows"], 0),
        ("prefix", 64, ["a", "branch"], 0),
        ("prefix", 32, ["earlier"], 2),
    ]


def large_saves(folder: Path) -> Path:
    """Saves of the same tokens and of equal size, over 1 MiB: two are equal, two are not."""
    first = save(folder / "a.bin", range(1, 40), rows=1 << 14)
    assert first.stat().st_size > SMALL
    shutil.copy(first, folder / "copy.bin")
    for name, offset in (("elsewhere.bin", -1), ("inside.bin", 700_000)):
        data = bytearray(first.read_bytes())
        data[offset] ^= 1
        (folder / name).write_bytes(data)
    return folder


def grouped(folder: Path, job: Job, most_bytes: int) -> tuple[list[tuple[object, ...]], int]:
    with ledger() as book:
        for row in fleet.rows(items([str(folder)]), job, 1):
            book.note(row)
        n_read = compare(book, most_bytes)
        return [
            (one.shared, one.compared, [Path(path).stem for path in one.paths])
            for one in book.groups()
            if one.shared != "prefix"
        ], n_read


def test_large_copies_are_equal(tmp_path: Path, job: Job) -> None:
    """A byte that differs at none of the places that are looked at first is found too."""
    folder = large_saves(tmp_path)
    size = (folder / "a.bin").stat().st_size
    found, n_read = grouped(folder, job, 4 * size)
    assert found == [
        ("contents", True, ["a", "copy"]),
        ("tokens", True, ["a", "elsewhere", "inside"]),
    ]
    assert 3 * size < n_read < 3.2 * size, "the one that ends otherwise is not read"
    result = scanned(folder, "--build", "b10229")
    assert "equal, byte for byte\n39 tokens      a.bin\n               copy.bin\n" in result.stdout
    assert "the same tokens, other bytes\n39 tokens      a.bin\n" in result.stdout


def test_what_was_not_compared_is_not_called_other_bytes(tmp_path: Path, job: Job) -> None:
    folder = large_saves(tmp_path)
    found, n_read = grouped(folder, job, 2 * (folder / "a.bin").stat().st_size)
    assert found == [("tokens", False, ["a", "copy", "elsewhere", "inside"])]
    assert n_read < SMALL // 2
    (folder / "copy.bin").unlink()
    (folder / "inside.bin").unlink()
    found, _ = grouped(folder, job, 0)
    assert found == [("tokens", True, ["a", "elsewhere"])], "it differs where it was looked at"


def test_bytes_of_who_is_interrupted_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("inspector.scanning.compare._digest", ctrl_c)
    result = scanned(large_saves(tmp_path), "--build", "b10229")
    assert result.exit_code == INTERRUPTED
    assert "the same tokens, bytes not compared\n39 tokens      a.bin\n" in result.stdout
    assert "other bytes" not in result.stdout


def test_rows_are_kept_in_order() -> None:
    with ledger() as book:
        for name, key in (("a", 2.0), ("b", None), ("c", 3.0), ("d", 2.0)):
            book.note(Row(name, Kind.STATE))
            book.keep(Row(name, Kind.STATE), key)
        assert [row.path for row in book.ordered(descending=False)] == ["a", "d", "c", "b"]
        assert [row.path for row in book.ordered(descending=True)] == ["c", "a", "d", "b"]


@pytest.mark.parametrize("order", ["path", "-name"])
def test_names_that_are_no_text_have_an_order(tmp_path: Path, order: str) -> None:
    names = [b"a.bin", "ä.bin".encode(), b"\xfe.bin", b"\xff.bin"]
    for name in names:
        save(tmp_path / os.fsdecode(name), range(1, 20))
    result = scanned(tmp_path, "--build", "b10229", "--sort", order, "--json")
    lines = [one for one in documents(result) if one["kind"] == "state"]
    assert result.exit_code == SOUND
    said = [
        bytes.fromhex(one["path_bytes"]) if "path_bytes" in one else one["path"].encode()
        for one in lines
    ]
    order_of_bytes = names if order == "path" else names[::-1]
    assert [os.path.basename(one) for one in said] == order_of_bytes  # noqa: PTH119 - bytes


def test_names_that_are_no_text(tmp_path: Path, job: Job) -> None:
    save(tmp_path / "a.bin", range(1, 20))
    for name in (b"\xff.bin", b"\xff\n.bin"):
        (tmp_path / os.fsdecode(name)).write_bytes((tmp_path / "a.bin").read_bytes())
    result = scanned(tmp_path, "--build", "b10229")
    assert result.exit_code == SOUND
    assert r"\xff\n.bin" in result.stdout
    *lines, totals = documents(scanned(tmp_path, "--json", "lines"))
    assert totals["states"] == 3
    assert all(Path(os.fsdecode(bytes.fromhex(one["path_bytes"]))).is_file() for one in lines[1:3])
    assert "path_bytes" not in lines[0]
    paths = [os.fsdecode(bytes.fromhex(path)) for path in lines[3]["paths_bytes"]]
    assert sorted(paths) == sorted(map(str, tmp_path.iterdir()))
    table = tmp_path.with_name("names.csv")
    assert scanned(tmp_path, "--build", "b10229", "--csv", table).exit_code == SOUND
    with table.open(newline="") as file:
        read = [one["path_bytes"] for one in csv.DictReader(file)]
    assert read == ["", *(one["path_bytes"] for one in lines[1:3])]


def test_totals() -> None:
    totals = Totals()
    for row in (
        Row("a", Kind.STATE, 100, restore="accepts", companion_bytes=20),
        Row("b", Kind.STATE, 1, restore="refuses", findings=(Found("error", "a.b", ""),)),
        Row("c", Kind.FAILED, problem="gone"),
        Row("d", Kind.COMPANION, 20),
    ):
        totals.add(row)
    assert (totals.files, totals.states, totals.bytes) == (4, 2, 121)
    assert totals.by_restore == {"accepts": 1, "refuses": 1}
    assert totals.by_worst == {"sound": 1, "error": 2}
    totals.add(Row("e", Kind.STATE, 100), again=True)
    assert (totals.lines, totals.states, totals.links, totals.bytes) == (4, 2, 1, 121)


# -- filters and orders ----------------------------------------------------------------------------

ROW = Row(
    "folder/a.bin",
    Kind.STATE,
    size=3 << 20,
    mtime_ns=0,
    n_tokens=300,
    tokens="digest of them",
    restore="refuses",
    findings=(Found("warning", "sidecar.stale", ""), Found("note", "file.symlink", "")),
)


@pytest.mark.parametrize(
    ("term", "holds"),
    [
        ("restore=refuses", True),
        ("verdict = refuses", True),
        ("restore!=refuses", False),
        ("size>2M", True),
        ("size>=3MiB", True),
        ("size<3.5 mb", True),
        ("age>30d", True),
        ("tokens=300", True),
        ("reused>0", False),
        ("worst=warning", True),
        ("worst>=note", True),
        ("worst>=error", False),
        ("finding=sidecar.stale", True),
        ("finding!=sidecar.stale", False),
        ("finding~symlink", True),
        ("path~FOLDER", True),
        ("name=a.bin", True),
        ("model=none", True),
    ],
)
def test_filter(term: str, holds: bool) -> None:
    assert condition(term)(ROW) is holds


@pytest.mark.parametrize(
    "term", ["", "size", "size>big", "colour=red", "restore>refuses", "age>3y", "worst>bad"]
)
def test_filters_that_cannot_be(term: str) -> None:
    with pytest.raises(BadChoice):
        condition(term)
    result = scanned(".", "--filter", term)
    assert result.exit_code == USAGE
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("term", "named"),
    [
        ("restore=", "accepts"),
        ("restore=foo", "accepts, refuses, aborts, unknown, none"),
        ("restore!=refuse", "refuses"),
        ("verdict~acepts", "accepts"),
        ("finding=file.truncatd", "file.truncated"),
        ("finding~trunkated", "known"),
        ("worst=none", "error, warning, note, sound"),
        ("layout=ggsq2", "ggsq2.kv"),
        ("format=ggsq2", "ggsq"),
        ("kind=stat", "state"),
        ("seal=held", "holds, tokens hold, differs, unreadable, none"),
        ("model=other", "matches"),
        ("memory=hybird", "hybrid"),
        ("identity=good", "recognised"),
    ],
)
def test_a_misspelt_word_is_no_all_clear(term: str, named: str) -> None:
    result = scanned(".", "--filter", term)
    assert result.exit_code == USAGE
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert named in result.stderr


@pytest.mark.parametrize(
    "term", ["layout~ggsq2", "finding~TRUNC", "format=", "seal=tokens hold", "format=jan"]
)
def test_words_that_can_be(term: str) -> None:
    assert condition(term)(ROW) is (term == "format=")


def test_orders() -> None:
    sound = Row("b", Kind.STATE)
    key, descending = sort_key("-worst")
    assert key(ROW) < key(sound)  # type: ignore[operator]
    assert descending
    assert sort_key("size")[0](ROW) == 3 << 20
    assert sort_key("-tokens")[0](ROW) == 300
    with pytest.raises(BadChoice):
        sort_key("colour")


def test_tokens_are_the_same_in_every_form(tmp_path: Path, job: Job) -> None:
    """A list that is lost has no number: neither 0 nor what its count word promises."""
    save(tmp_path / "a.bin", range(1, 20))
    save(tmp_path / "empty.bin", ())
    promises = (tmp_path / "a.bin").read_bytes()[:8] + b"\xff\xff\xff\xff"
    (tmp_path / "lost.bin").write_bytes(promises)
    shutil.copy(INTACT / "blob.hybrid--lfm2-b6673.slot", tmp_path / "without.bin")
    table = tmp_path.with_name("tokens.csv")
    asked = (tmp_path, "--build", "b10229", "--fail-on", "never")
    text = scanned(*asked, "--csv", table).stdout.splitlines()[1:5]
    lines = documents(scanned(*asked, "--json"))[:4]
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [19, 0, None, None]
    assert [one["tokens"]["count"] for one in lines] == expected
    assert [one["tokens"] for one in rows] == ["19", "0", "", ""]
    shown = [re.findall(r" (\d+|-) +(?:accepts|refuses|aborts|unknown|-) ", one)[0] for one in text]
    assert shown == ["19", "0", "-", "-"]
    (lost,) = rows_of([Item(str(tmp_path / "lost.bin"))], job)
    assert sort_key("-tokens")[0](lost) is None
    assert not any(condition(term)(lost) for term in ("tokens=0", "tokens>0"))


def test_checkpoints_are_counted_as_in_tables() -> None:
    row = replace(ROW, n_checkpoints=3, n_usable=1)
    assert condition("checkpoints=3")(row)
    assert condition("usable=1")(row)
    assert (record(row)["checkpoints"], record(row)["checkpoints_usable"]) == (3, 1)
    assert line(row)["checkpoints"] == {"usable": 1, "count": 3}


# -- the command -----------------------------------------------------------------------------------


def test_lines_are_documents(folder: Path) -> None:
    result = scanned(folder, "--build", "b10229", "--json", "--workers", "1")
    assert result.exit_code == SOUND
    *lines, totals = documents(result)
    states = [line for line in lines if line["kind"] == "state"]
    assert {line["schema"] for line in (*lines, totals)} == {"slotscope.scan/1"}
    assert len(states) == 40
    assert all(line["restore"]["outcome"] == "accepts" for line in states)
    assert totals["restore"] == {"accepts": 40}


def test_a_kind_that_is_named_is_shown(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", range(1, 20))
    for name in ("a.bin.ckpt", "lost.bin.ckpt"):
        shutil.copyfile(next(INTACT.glob("*--with-pkcl1.slot.ckpt")), tmp_path / name)
    save(tmp_path / "later.bin.tmp", range(1, 5))
    shutil.copyfile(ROOT / "samples/models/llama.gguf", tmp_path / "model.gguf")
    table = tmp_path.with_name("table.csv")
    for term, name in (
        ("kind=orphan", "lost.bin.ckpt"),
        ("kind=leftover", "later.bin.tmp"),
        ("kind=model", "model.gguf"),
        ("kind~compan", "a.bin.ckpt"),
    ):
        words = (tmp_path, "--filter", term)
        line, totals = documents(scanned(*words, "--json"))
        assert (line["file"]["name"], totals["files"]) == (name, 5)
        result = scanned(*words, "--filter", "size>0", "--sort", "size", "--csv", table, "--force")
        assert result.stdout.splitlines()[1].endswith(f" {name}")
        assert "1 of 5 lines shown" in result.stdout
        assert name in table.read_text()
    (state, _) = documents(scanned(tmp_path, "--filter", "size>0", "--json"))
    assert state["kind"] == "state"
    assert len(documents(scanned(tmp_path, "--filter", "kind!=state", "--json"))) == 1


def test_lines_are_as_wide_as_the_page(folder: Path) -> None:
    row = replace(ROW, path="folder/" + "名前" * 30, format="ggsq", version=2)
    for width in (80, 90, 100, 120, 140, 200):
        lines = Lines(width, "folder/", verify=True)
        assert lines.head().cell_len <= width
        assert lines.of(row).cell_len <= width
        assert lines.of(Row("a", Kind.FAILED, problem="no " * 99)).cell_len <= width
    assert [size(n) for n in (0, 999, 1024, 10_000, 1 << 20, 8 << 30)] == [
        "0",
        "999",
        "1.0 K",
        "9.8 K",
        "1.0 M",
        "8.0 G",
    ]


@pytest.mark.parametrize("columns", ["", "40", "0", "wide"])
def test_nothing_is_cut_off_a_terminal(
    tmp_path: Path, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    name = "of a long name " * 9 + "end"
    for n in range(5):
        for letter in "abcdefghi":
            save(tmp_path / f"{name}{letter}{n}.bin", [ord(letter)] * 4)
    result = scanned(tmp_path, "--build", "b10229", "--workers", "1")
    lines = result.stdout.splitlines()
    for n in range(5):
        for letter in "abcdefghi":
            assert sum(line.endswith(f" {name}{letter}{n}.bin") for line in lines) == 2
    assert "…" not in result.stdout
    assert "more" not in result.stdout
    found = Found("error", "envelope.version-contradicts-body", "")
    line = Lines(80, cut=False).of(replace(ROW, findings=(found, found)))
    assert "E envelope.version-contradicts-body +1" in line.plain


def test_what_permissions_forbid_is_no_bug(tmp_path: Path) -> None:
    save(tmp_path / "closed/a.bin", range(1, 20))
    (tmp_path / "closed/a.bin.slotscope.json").write_text("{}")
    (tmp_path / "closed").chmod(0o600)
    try:
        done = powerless("scan", tmp_path, "--json")
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert done.returncode == FINDINGS
    *lines, _ = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["problem"] for line in lines] == ["Permission denied"] * 2


def test_exit_codes(tmp_path: Path) -> None:
    assert scanned(tmp_path / "nothing").exit_code == USAGE
    assert scanned(tmp_path).exit_code == SOUND
    save(tmp_path / "a.bin", range(1, 20))
    assert scanned(tmp_path, "--build", "b10229").exit_code == SOUND
    assert scanned(tmp_path, "--build", "b11549").exit_code == FINDINGS
    assert scanned(tmp_path, "--build", "b11549", "--fail-on", "never").exit_code == SOUND
    assert scanned(tmp_path, "--filter", "restore=accepts").exit_code == SOUND
    assert scanned(tmp_path, "--build", "b0").exit_code == USAGE
    assert scanned(tmp_path, "--fail-on", "bad").exit_code == USAGE


def test_a_table(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    words = (folder, "--build", "b10229", "--sort", "-tokens", "--csv", table, "--workers", "1")
    assert scanned(*words).exit_code == SOUND
    with table.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 40
    assert read[0]["tokens"] == "48"
    again = scanned(*words)
    assert again.exit_code == USAGE
    assert "--force" in again.stderr
    table.write_text("")
    assert scanned(*words, "--force").exit_code == SOUND
    assert table.read_text().count("\n") == 41
    assert list(tmp_path.iterdir()) == [table]
    table.write_text("path,size\n")
    for name in ("-", "/dev/null", table):
        refused = scanned(folder, "--csv", name, "--force")
        assert refused.exit_code == USAGE
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("form", ["--csv", "--parquet"])
def test_a_table_replaces_tables_alone(form: str, tmp_path: Path) -> None:
    if form == "--parquet":
        pytest.importorskip("pyarrow")
    save(tmp_path / "a.bin", range(1, 20))
    shutil.copyfile(next(INTACT.glob("*--with-pkcl1.slot.ckpt")), tmp_path / "a.bin.ckpt")
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("a.bin", "a.bin.ckpt", "notes.txt"):
        before = (tmp_path / name).read_bytes()
        for force in ((), ("--force",)):
            refused = scanned(tmp_path, form, tmp_path / name, *force)
            assert (refused.exit_code, refused.stdout) == (USAGE, "")
            assert "is no table of a scan: it is never written" in refused.stderr
        assert (tmp_path / name).read_bytes() == before
    for _ in range(2):
        words = (tmp_path, form, tmp_path / "table", "--force", "--fail-on", "never")
        assert scanned(*words).exit_code == SOUND


def test_a_full_disk_costs_the_table_alone(folder: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        fill(disk, 4096)
        words = (folder, "--build", "b10229", "--csv", disk / "table.csv", "--workers", "1")
        result = scanned(*words, "--json")
        left = [file.name for file in disk.iterdir()]
    assert result.exit_code == USAGE
    assert documents(result)[-1]["states"] == 40
    assert "No space left" in result.stderr
    assert left == ["ballast"]


# -- changes ---------------------------------------------------------------------------------------


def test_changes_are_told_once_they_have_settled(tmp_path: Path) -> None:
    first = save(tmp_path / "a.bin", range(1, 20))
    watch = Watch([str(tmp_path)])
    assert watch.look().settled == ()
    second = save(tmp_path / "b.bin", range(1, 20))
    assert watch.look().settled == ()
    assert [item.path for item in watch.look().settled] == [str(second)]
    assert watch.look().settled == ()
    (tmp_path / "a.bin.ckpt").write_bytes(b"LCKP")
    watch.look()
    assert [item.path for item in watch.look().settled] == [str(first)]
    second.unlink()
    assert watch.look().gone == (str(second),)
    assert watch.look().gone == ()


def test_watching(tmp_path: Path) -> None:
    save(tmp_path / "a.bin", range(1, 20))
    main = "from inspector.cli import main; main()"
    words = (sys.executable, "-c", main, "scan", str(tmp_path), "--watch", "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        kinds = [json.loads(run.stdout.readline())["kind"] for _ in range(2)]
        save(tmp_path / "b.bin", range(1, 20))
        line = json.loads(run.stdout.readline())
        (tmp_path / "b.bin").unlink()
        gone = json.loads(run.stdout.readline())
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    assert kinds == ["state", "totals"]
    assert line["file"]["name"] == gone["file"]["name"] == "b.bin"
    assert gone["problem"] == "gone"
    assert run.returncode in (SOUND, FINDINGS)
