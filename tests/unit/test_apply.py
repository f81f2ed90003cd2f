"""What repair writes: whole or not at all, beside nothing stale, and never over an original."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy

import pytest
from gguf import GGUFReader
from typer.testing import CliRunner

from inspector import report
from inspector.cli.app import app
from inspector.repair import apply
from inspector.repair.apply import NotWritten
from inspector.repair.draft import Options
from inspector.repair.outcome import RECORD, carry_out
from inspector.repair.plan import NAMES as NAMES_OF_ACTIONS
from inspector.repair.plan import Plan, planned
from inspector.repair.segments import Composed, Keep, Write
from inspector.report import examined
from inspector.source import Unreadable, opened
from inspector.span import Span
from tests.support.disk import fill, free_bytes, small_disk
from tests.support.large import large_slot
from tests.support.meter import python
from tests.support.writer import (
    DIALECTS,
    F16,
    Cache,
    Memory,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SAMPLE = SAMPLES / "intact/ggsq2.hybrid--with-pkcl1.slot"
DAMAGED = SAMPLES / "damaged"
NAMES = ("new.bin", "new.bin.checkpoints", "new.bin" + RECORD)


@pytest.fixture(params=["nameless", "hidden", "read and written"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the files come to be: the systems differ."""
    if request.param == "hidden":
        monkeypatch.setattr(apply, "_nameless", lambda folder: None)
    if request.param == "read and written":
        monkeypatch.setattr(apply, "_in_kernel", lambda *args: 0)
    return str(request.param)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A state with a checkpoint list beside it."""
    for suffix in ("", ".ckpt"):
        copy(SAMPLE.with_name(SAMPLE.name + suffix), tmp_path / ("slot.bin" + suffix))
    return tmp_path / "slot.bin"


@contextmanager
def plan_of(path: Path, to: str = "llcp1", new: str = "new.bin") -> Iterator[Plan]:
    with planned(path, None, Options(to=to), new) as plan:
        yield plan


def repaired(path: Path, new: Path, *, to: str = "llcp1", force: bool = False) -> None:
    with plan_of(path, to, new.name) as plan:
        carry_out(plan, new, force=force)


def content(folder: Path, *, but: Path | None = None) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too, but for a folder in it."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path != but}


@contextmanager
def unchanged(folder: Path, *, but: Path | None = None) -> Iterator[None]:
    before = content(folder, but=but)
    yield
    assert content(folder, but=but) == before


@pytest.mark.usefixtures("way")
def test_all_files_are_written(original: Path) -> None:
    folder = original.parent
    before = content(folder)
    original.chmod(0o440)
    with plan_of(original) as plan:
        progress: list[int] = []
        carry_out(plan, folder / "new.bin", progress=progress.append)
        wanted = [one.content.read_at(0, one.content.size) for one in plan.outputs]
    after = content(folder)
    assert set(after) == {*before, *NAMES}
    assert {name: after[name] for name in before} == before
    assert [after[name] for name in NAMES[:2]] == wanted
    assert sum(progress) == sum(len(after[name]) for name in NAMES)
    record = json.loads(after[NAMES[2]])
    assert record["schema"] == "slotscope.record/1"
    assert record["tool"].startswith("slotscope ")
    assert record["source"]["name"] == "slot.bin"
    assert record["source"]["bytes"] == len(before["slot.bin"])
    assert record["source"]["xxh3_of"] == "all bytes"
    assert [action["action"] for action in record["actions"]] == ["convert-checkpoints"]
    states = [(folder / name).stat() for name in NAMES]
    assert {stat.S_IMODE(status.st_mode) for status in states} == {0o640}
    assert len({status.st_mtime_ns for status in states}) == 1
    with examined(folder / "new.bin") as found:
        assert [one.usable for one in found.checkpoints] == [True, True]


@pytest.mark.usefixtures("way")
def test_an_output_that_is_there_is_refused(original: Path) -> None:
    for name in NAMES:
        (original.parent / name).write_bytes(b"mine")
        with (
            unchanged(original.parent),
            pytest.raises(NotWritten, match=f"{name} is there already: --force"),
        ):
            repaired(original, original.parent / "new.bin")
        (original.parent / name).unlink()


@pytest.mark.usefixtures("way")
def test_a_companion_of_another_state_is_refused(original: Path) -> None:
    (original.parent / "new.bin.ckpt").write_bytes(b"of a state that is gone")
    with unchanged(original.parent), pytest.raises(NotWritten, match=r"new.bin.ckpt is there"):
        repaired(original, original.parent / "new.bin")


@pytest.mark.usefixtures("way")
def test_force_leaves_nothing_of_what_was_there(original: Path) -> None:
    folder = original.parent
    for suffix in ("", ".ckpt", ".checkpoints", ".tokens.json", ".gen", ".dft", RECORD):
        (folder / f"new.bin{suffix}").write_bytes(b"old")
    with plan_of(original) as plan:
        removed = carry_out(plan, folder / "new.bin", force=True)
    assert {path.name.removeprefix("new.bin") for path in removed} == {
        ".ckpt",
        ".tokens.json",
        ".gen",
        ".dft",
    }
    assert set(content(folder)) == {"slot.bin", "slot.bin.ckpt", *NAMES}
    assert b"old" not in content(folder).values()
    repaired(original, folder / "new.bin", to="sckp1", force=True)
    assert set(content(folder)) == {"slot.bin", "slot.bin.ckpt", NAMES[0], NAMES[2]}


@pytest.mark.parametrize("suffix", [".tmp", ".tmp.checkpoints"])
@pytest.mark.parametrize("force", [False, True])
def test_the_save_of_another_program_is_never_removed(
    original: Path, suffix: str, *, force: bool
) -> None:
    (original.parent / f"new.bin{suffix}").write_bytes(b"half of a save")
    with unchanged(original.parent), pytest.raises(NotWritten, match="another program's save"):
        repaired(original, original.parent / "new.bin", force=force)


def test_a_leftover_is_not_written_under_its_own_name(original: Path) -> None:
    left = original.rename(original.with_name("left.bin.tmp"))
    with unchanged(original.parent), pytest.raises(NotWritten, match="unfinished save of"):
        repaired(left, original.with_name("left.bin"), to="pkcl1")


@pytest.mark.parametrize("suffix", [".checkpoints", ".tmp", ".gen", ".slotscope.json"])
def test_a_copy_is_no_companion_of_what_is_there(original: Path, suffix: str) -> None:
    for name in ("slot.bin", "another.bin"):
        original.with_name("another.bin").write_bytes(b"")
        with unchanged(original.parent), pytest.raises(NotWritten, match=f"companion of .*{name}"):
            repaired(original, original.with_name(name + suffix), force=True)


def shown(*words: object) -> tuple[int, str]:
    """Exit code and text of a repair."""
    result = CliRunner().invoke(app, ["repair", *map(str, words)])
    return result.exit_code, " ".join(result.output.split())


def test_what_force_removes_is_named(original: Path) -> None:
    new = original.with_name("new.bin")
    stale = original.with_name("new.bin.gen")
    stale.write_bytes(b"old")
    words = (original, "--to", "llcp1", "-o", new)
    code, text = shown(*words)
    assert code == 2
    assert "new.bin.gen is there already, and would be taken for a companion" in text
    code, text = shown(*words, "--force")
    assert code == 0
    for line in (f"removed: {stale}", f"written: {new}, ", f"how it was made: {new}{RECORD}"):
        assert "".join(line.split()) in "".join(text.split())
    stale.write_bytes(b"old")
    found = json.loads(CliRunner().invoke(app, ["repair", *map(str, words), *FORCED]).output)
    assert found["removed"] == [str(stale)]
    assert found["record"] == f"{new}{RECORD}"
    assert found["hindrance"] is None


FORCED = ("--force", "--json")


@pytest.mark.parametrize("action", NAMES_OF_ACTIONS)
def test_every_action_is_explained(action: str) -> None:
    result = CliRunner().invoke(app, ["explain", action])
    assert result.exit_code == 0
    assert len(result.output.split("\n", 1)[1].split()) > 4


def test_a_loss_that_nobody_asked_for_says_what_agrees_to_it(original: Path) -> None:
    original.write_bytes(original.read_bytes() + b"something")
    words = (original, "--only", "strip-trailing")
    code, text = shown(*words, "-o", original.with_name("new.bin"))
    assert code == 1
    assert "needs --allow-loss" in text
    assert "nothing is written: --allow-loss agrees" in text
    code, text = shown(*words, "-o", original.with_name("new.bin"), "--allow-loss")
    assert code == 0


def test_actions_that_are_not_needed_are_named(original: Path) -> None:
    """The copy is a plain one, and the file is not called sound for what nobody looked at."""
    original.write_bytes(original.read_bytes() + b"something")
    new, words = original.with_name("new.bin"), ("--only", "trim", "--only", "from-session")
    code, text = shown(original, *words)
    assert code == 0
    assert "nothing to do trim, from-session not needed" in text
    assert "nothing is written: nothing is to be done, of what is allowed" in text
    code, text = shown(original, *words, "-o", new)
    assert code == 0
    assert "".join(f"written unchanged: {new},".split()) in "".join(text.split())
    assert new.read_bytes() == original.read_bytes()
    code, text = shown(original, "--only", "trim", "--only", "strip-trailing")
    assert "strip-trailing why" in text
    assert "trim not needed" in text
    found = json.loads(CliRunner().invoke(app, ["repair", str(original), *words, "--json"]).output)
    assert found["not_needed"] == ["trim", "from-session"]


@pytest.mark.parametrize("name", ["", ".", "/", "-", ".."])
def test_what_is_no_name_of_a_file(name: str) -> None:
    code, text = shown(SAMPLE, "-o", name)
    assert code == 2
    assert "no name of a file" in text or "no regular file" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "50"), "trim is asked for"),
        (("--at", "2"), "trim is asked for"),
        (("--at", "8", "--skip", "materialize"), "materialize is asked for"),
        (("--only", "window-anchor"), "window-anchor is asked for"),
        (("--build", "b11549", "--only", "synthesize-tip"), "the server would not take the copy"),
        (("--build", "b11549", "--only", "strip-trailing"), "nothing of what is allowed helps"),
    ],
)
def test_what_is_not_as_asked_for_is_not_written(
    original: Path, words: tuple[str, ...], said: str
) -> None:
    with unchanged(original.parent):
        code, text = shown(original, *words, "-o", original.with_name("new.bin"))
    assert code == 1
    assert f"nothing is written: {said}" in text
    assert "the file can stay as it is" not in shown(original, *words)[1]


@pytest.mark.parametrize("kind", ["barred", "folder", "dangling", "pipe"])
def test_a_companion_that_cannot_be_read_is_told(
    original: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    companion = original.with_name("slot.bin.ckpt")
    why = {
        "barred": "Permission denied",
        "folder": "it is a directory",
        "dangling": "the link leads nowhere",
        "pipe": "it is no regular file",
    }[kind]
    if kind == "barred":
        opening, may = os.open, os.access

        def refused(path: object, *args: int, **more: int) -> int:
            if str(path).endswith(".ckpt"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return opening(path, *args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "open", refused)
        monkeypatch.setattr(
            os, "access", lambda path, mode: not str(path).endswith(".ckpt") and may(path, mode)
        )
    else:
        companion.unlink()
    if kind == "folder":
        companion.mkdir()
    elif kind == "dangling":
        companion.symlink_to("gone")
    elif kind == "pipe":
        os.mkfifo(companion)
    code, text = shown(original, "-o", original.with_name("new.bin"))
    assert code == 1
    assert f"slot.bin.ckpt cannot be read: {why}; its checkpoints are not in the copy" in text
    with examined(original) as seen:
        (found,) = [one for one in seen.findings if one.code == "sidecar.unreadable"]
        assert found.message == f"slot.bin.ckpt cannot be read: {why}"
    for words in (["inspect"], ["check", "--build", "turboquant@b9079"]):
        result = CliRunner().invoke(app, [*words, str(original)])
        assert "sidecar.unreadable" in result.output


@pytest.mark.usefixtures("way")
def test_old_companions_go_before_the_new_state_comes(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = original.parent
    for suffix in ("", ".ckpt", ".checkpoints"):
        (folder / f"new.bin{suffix}").write_bytes(b"old")

    def stopped(place: object, path: Path) -> None:
        assert path == folder / "new.bin"
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(apply, "_name", stopped)
    with pytest.raises(NotWritten, match=r"new.bin: Input/output error"):
        repaired(original, folder / "new.bin", force=True)
    assert set(content(folder)) == {"slot.bin", "slot.bin.ckpt", "new.bin"}
    assert content(folder)["new.bin"] == b"old"


@pytest.mark.parametrize("force", [False, True])
def test_the_original_is_no_output(
    original: Path, monkeypatch: pytest.MonkeyPatch, *, force: bool
) -> None:
    folder = original.parent
    (folder / "sub").mkdir()
    (folder / "hard.bin").hardlink_to(original)
    (folder / "soft.bin").symlink_to(original)
    (folder / "to-list.bin").hardlink_to(folder / "slot.bin.ckpt")
    monkeypatch.chdir(folder)
    before = content_of_files(folder)
    for new in (
        original,
        Path("slot.bin"),
        Path("sub/../slot.bin"),
        Path("hard.bin"),
        Path("soft.bin"),
        Path("to-list.bin"),
        Path("slot.bin.ckpt"),
    ):
        with pytest.raises(NotWritten, match=r"is the same file as .*originals are never written"):
            repaired(original, new, force=force)
    assert content_of_files(folder) == before


def content_of_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_an_original_that_is_named_like_a_companion_of_the_output(original: Path) -> None:
    state = original.rename(original.with_name("new.bin.checkpoints"))
    with unchanged(original.parent), pytest.raises(NotWritten, match="originals are never written"):
        repaired(state, original.with_name("new.bin"), to="sckp1", force=True)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["new.bin", "new.bin.checkpoints", "new.bin.ckpt"])
def test_symbolic_links_are_no_outputs(original: Path, name: str, *, force: bool) -> None:
    folder = original.parent
    (folder / "elsewhere").write_bytes(b"of somebody else")
    (folder / name).symlink_to("elsewhere")
    with unchanged(folder), pytest.raises(NotWritten, match=f"{name} is a symbolic link"):
        repaired(original, folder / "new.bin", force=force)
    (folder / "elsewhere").unlink()
    with pytest.raises(NotWritten, match=f"{name} is a symbolic link"):
        repaired(original, folder / "new.bin", force=force)


def test_folders_and_places_that_are_not_there(original: Path) -> None:
    folder = original.parent
    (folder / "sub").mkdir()
    before = content_of_files(folder)
    cases = {
        "sub": "is no regular file",
        "nowhere/new.bin": "No such file or directory",
        "slot.bin/new.bin": "Not a directory",
        "x" * 250: "File name too long",
    }
    for name, why in cases.items():
        with pytest.raises(NotWritten, match=why):
            repaired(original, folder / name, force=True)
    assert content_of_files(folder) == before


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_a_folder_that_may_not_be_written(
    original: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    flag, opened = os.O_TMPFILE | os.O_CREAT, os.open

    def read_only(path: object, flags: int, *args: int, **more: int) -> int:
        if flags & flag & ~os.O_DIRECTORY:
            raise OSError(error, os.strerror(error))
        return opened(path, flags, *args, **more)  # type: ignore[arg-type]

    with plan_of(original) as plan, unchanged(original.parent):
        monkeypatch.setattr(os, "open", read_only)
        with pytest.raises(NotWritten, match=os.strerror(error)):
            carry_out(plan, original.parent / "new.bin")


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
@pytest.mark.usefixtures("way")
def test_a_folder_without_permission(original: Path) -> None:
    folder = original.parent
    folder.chmod(0o555)
    try:
        with unchanged(folder), pytest.raises(NotWritten, match="Permission denied"):
            repaired(original, folder / "new.bin")
    finally:
        folder.chmod(0o755)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "call", ["write", "copy_file_range", "fsync", "ftruncate", "utime", "link"]
)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_call_that_fails_leaves_nothing(
    original: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    """The first, the second, … call of a kind fails, until all succeed."""
    real: Callable[..., object] = getattr(os, call)
    left = [0]

    def fails(*args: object, **more: object) -> object:
        left[0] -= 1
        if not left[0]:
            raise OSError(error, os.strerror(error))
        return real(*args, **more)

    folder = original.parent
    with plan_of(original) as plan:
        before = content(folder)
        monkeypatch.setattr(apply, "CHUNK", 1000)
        monkeypatch.setattr(os, call, fails)
        for n in range(1, 100):
            left[0] = n
            try:
                carry_out(plan, folder / "new.bin")
            except NotWritten as reason:
                assert os.strerror(error) in str(reason)  # noqa: PT017
                assert content(folder) == before
            else:
                break
        assert {name: content(folder)[name] for name in before} == before
        assert set(content(folder)) == {*before, *NAMES}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("room", [0, 1, 1000, 4175, 5000])
def test_a_limit_on_sizes_leaves_nothing(original: Path, room: int) -> None:
    with plan_of(original) as plan, unchanged(original.parent):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            with pytest.raises(NotWritten, match=r"new.bin(.checkpoints)?: File too large"):
                carry_out(plan, original.parent / "new.bin")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("way")
def test_a_source_that_cannot_be_read(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad block: copying in the kernel meets it, then reading does, and says where."""
    real = os.pread

    def bad(descriptor: int, size: int, offset: int) -> bytes:
        if offset <= 2000 < offset + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, offset)

    def bad_copy(*args: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with plan_of(original) as plan, unchanged(original.parent):
        monkeypatch.setattr(os, "copy_file_range", bad_copy)
        monkeypatch.setattr(os, "pread", bad)
        with pytest.raises(Unreadable, match="Input/output error at 0x"):
            carry_out(plan, original.parent / "new.bin")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty disk of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder):
        yield folder


@pytest.mark.usefixtures("way")
def test_a_disk_that_fills_up(original: Path, disk: Path) -> None:
    """Page by page: the state does not fit, its list does not, the record does not, all fit."""
    new, page = disk / "new.bin", os.statvfs(disk).f_frsize
    words = (original, "--to", "llcp1", "-o", new)
    blamed = []
    for left in range(0, 64 * page, page):
        fill(disk, left)
        with unchanged(original.parent, but=disk):
            code, text = shown(*words)
        if code == 0:
            break
        assert code == 2
        (name,) = [
            name for name in NAMES if f"/{name}:Nospaceleftondevice" in "".join(text.split())
        ]
        blamed.append(name)
        assert [path.name for path in disk.iterdir()] == ["ballast"]
        assert free_bytes(disk) == left
    pages = [-(-(disk / name).stat().st_size // page) for name in NAMES]
    assert blamed == [name for name, n in zip(NAMES, pages, strict=True) for _ in range(n)]


@pytest.mark.usefixtures("way")
def test_a_state_that_is_larger_than_the_disk(tmp_path: Path, disk: Path) -> None:
    tokens = Tokens(tuple(range(1, 1001)))
    rows = (Row(F16, 1024),) * 2
    memory = Memory({"attn": Cache((cells_of(tokens),), k=rows, v=rows)}, DIALECTS[""])
    path = tmp_path / "slot.bin"
    path.write_bytes(pack(Slot(2, tokens, memory)).data)
    before, free = path.read_bytes(), free_bytes(disk)
    code, text = shown(path, "--build", "b10809", "-o", disk / "new.bin")
    assert code == 2
    assert "new.bin:Nospaceleftondevice" in "".join(text.split())
    assert path.read_bytes() == before
    assert not list(disk.iterdir())
    assert free_bytes(disk) == free


@pytest.mark.usefixtures("way")
def test_a_disk_that_is_read_only(original: Path, disk: Path) -> None:
    subprocess.run(("mount", "-o", "remount,ro", str(disk)), check=True)
    with unchanged(original.parent, but=disk):
        code, text = shown(original, "--to", "llcp1", "-o", disk / "new.bin")
    assert code == 2
    assert "Read-onlyfilesystem" in "".join(text.split())


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1500)


def fail(path: Path) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("happening", [fail, grow, shrink], ids=["fail", "grow", "shrink"])
@pytest.mark.parametrize("in_kernel", [True, False])
@pytest.mark.parametrize("name", ["slot.bin", "slot.bin.ckpt"])
def test_a_source_that_goes_wrong_at_any_read(
    original: Path,
    monkeypatch: pytest.MonkeyPatch,
    happening: Callable[[Path], None],
    name: str,
    *,
    in_kernel: bool,
) -> None:
    """The first, the fifth, … read of a file meets it, while it is looked at or copied."""
    if not in_kernel:
        monkeypatch.setattr(apply, "_in_kernel", lambda *args: 0)
    folder, path, left = original.parent, original.with_name(name), [0]
    inode, before = path.stat().st_ino, content(folder)

    def meeting(call: Callable[..., object]) -> Callable[..., object]:
        def read(descriptor: int, *args: object, **more: object) -> object:
            if os.fstat(descriptor).st_ino == inode:
                left[0] -= 1
                if not left[0]:
                    happening(path)
            return call(descriptor, *args, **more)

        return read

    for call in ("pread", "preadv", "copy_file_range"):
        monkeypatch.setattr(os, call, meeting(getattr(os, call)))
    codes = []
    for n in range(1, 400, 4):
        path.write_bytes(before[name])
        left[0] = n
        result = CliRunner().invoke(app, ["repair", *map(str, words_of(folder))])
        assert result.exception is None or isinstance(result.exception, SystemExit), n
        codes.append(result.exit_code)
        if left[0] > 0:
            break
        new = {key: data for key, data in content(folder).items() if key not in before}
        if codes[-1] == 0:  # the kernel did not copy, and reading did
            assert happening is fail
            assert set(new) == set(NAMES)
            for key in new:
                (folder / key).unlink()
        else:
            assert codes[-1] in (1, 2)
            assert not new, n
    assert codes[-1] == 0
    assert len(codes) > 5


def words_of(folder: Path) -> tuple[object, ...]:
    return folder / "slot.bin", "--to", "llcp1", "-o", folder / "new.bin"


def test_a_source_that_grows_before_anything_is_read(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is taken when it is opened; what lies beside it, and how old it is, afterwards."""
    real = report.bundle

    def late(path: str | Path) -> object:
        grow(original)
        return real(path)

    monkeypatch.setattr(report, "bundle", late)
    with (
        plan_of(original) as plan,
        pytest.raises(NotWritten, match=r"slot.bin changed while it was read"),
    ):
        carry_out(plan, original.with_name("new.bin"))
    assert set(content(original.parent)) == {"slot.bin", "slot.bin.ckpt"}


def overwrite(path: Path) -> None:
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("change", [grow, shrink, overwrite])
@pytest.mark.parametrize("name", ["slot.bin", "slot.bin.ckpt"])
@pytest.mark.parametrize("moment", ["before", "while"])
def test_a_source_that_changes_stops_the_run(
    original: Path, change: Callable[[Path], None], name: str, moment: str
) -> None:
    folder, calls = original.parent, [0]

    def disturb(n: int) -> None:
        calls[0] += 1
        if moment == "while" and calls[0] == 1:
            change(folder / name)

    with plan_of(original) as plan:
        if moment == "before":
            change(folder / name)
        with pytest.raises((NotWritten, Unreadable), match=r"changed|shorter"):
            carry_out(plan, folder / "new.bin", progress=disturb)
    assert set(content(folder)) == {"slot.bin", "slot.bin.ckpt"}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("taken", NAMES[:2])
def test_of_two_repairs_one_wins(original: Path, taken: str, *, force: bool) -> None:
    """Another program takes a name while the copy is written."""
    folder = original.parent
    if force:
        for name in NAMES:
            (folder / name).write_bytes(b"old")
    done: list[int] = []

    def other(n: int) -> None:
        if not done:
            done.append(n)
            (folder / "other").write_bytes(b"of the other")
            (folder / "other").replace(folder / taken)

    with (
        plan_of(original) as plan,
        pytest.raises(NotWritten, match="was written by another program meanwhile"),
    ):
        carry_out(plan, folder / "new.bin", force=force, progress=other)
    after = content(folder)
    left = dict.fromkeys(NAMES, b"old") if force else {}
    left[taken] = b"of the other"
    assert {name: data for name, data in after.items() if name.startswith("new")} == left
    assert not [name for name in after if name.startswith(".")]


@pytest.mark.usefixtures("way")
def test_what_is_on_the_disk_is_looked_at(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def wrong(descriptor: int, data: bytes) -> int:
        return real(descriptor, bytes(len(data)))

    with plan_of(original) as plan, unchanged(original.parent):
        monkeypatch.setattr(apply, "_in_kernel", lambda *args: 0)
        monkeypatch.setattr(os, "write", wrong)
        with pytest.raises(NotWritten, match="not what was planned"):
            carry_out(plan, original.parent / "new.bin")


@pytest.mark.usefixtures("way")
def test_a_disk_without_hard_links(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*args: object, **more: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(apply, "_nameless", lambda folder: None)
    monkeypatch.setattr(os, "link", no_link)
    repaired(original, original.parent / "new.bin")
    repaired(original, original.parent / "new.bin", force=True)
    assert set(content(original.parent)) == {"slot.bin", "slot.bin.ckpt", *NAMES}


def test_copying_in_the_kernel_that_is_not_there(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "copy_file_range")
    repaired(original, original.parent / "new.bin")
    assert content(original.parent)["new.bin"] == original.read_bytes()


@pytest.mark.parametrize("fails", [None, "copy_file_range", "preadv"])
def test_every_byte_has_its_place_however_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str | None
) -> None:
    """Kept bytes with holes in them, in front of and behind written ones, moved and not."""
    path, new = tmp_path / "old", tmp_path / "new"
    numbers = random.Random(1)
    with path.open("wb") as file:
        file.write(numbers.randbytes(100_000))
        file.seek(3_000_000)
        file.write(numbers.randbytes(1_500_000))
        file.truncate(7_000_000)
    old = path.read_bytes()
    if fails is not None:

        def refused(*args: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, fails, refused)
    with opened(path) as source:
        for _ in range(25):
            content: list[Keep | Write] = []
            for _ in range(numbers.randrange(1, 5)):
                first, last = sorted(numbers.randrange(7_000_001) for _ in range(2))
                written = numbers.randbytes(numbers.choice((0, 4, 8, 1000, 4096)))
                content += [Write(written, ""), Keep(source, Span(first, last))]
            kept_or_written = (
                one.data if isinstance(one, Write) else old[one.span.start : one.span.stop]
                for one in content
            )
            wanted = b"".join(kept_or_written)
            apply.write([apply.File(new, Composed(tuple(content), ""), 0o600)], [], lambda _: None)
            assert new.read_bytes() == wanted
            if fails is None:
                n_data = len(wanted) - wanted.count(0)
                assert new.stat().st_blocks * 512 < 1.01 * n_data + (1 << 17)
            new.unlink()


def test_large_files_cost_little(tmp_path: Path) -> None:
    """A save of several GiB with holes: what is read, the memory, the record, and the bytes."""
    path = large_slot(tmp_path)
    code = (
        "import sys; from inspector.cli import main;"
        "sys.argv = ['slotscope', 'repair', *sys.argv[1:]]; main()"
    )
    new = tmp_path / "new.slot"
    words = [str(path), "-o", str(new), "--at", "150000", "--allow-loss"]
    usage = python(code, *words, scratch=tmp_path)
    assert usage.returncode == 0, usage.stderr
    assert usage.peak_bytes < 300e6
    assert new.stat().st_blocks * 512 < 64 << 20
    record = json.loads(new.with_name(new.name + RECORD).read_text())
    assert record["source"]["xxh3_of"] == "all bytes outside tensors"
    with planned(path, None, Options(at=150_000), "x") as plan:
        carry_out(plan, tmp_path / "again.slot")
        assert plan.report.source.bytes_read < 32 << 20


def test_a_state_of_another_model_is_not_repaired(tmp_path: Path) -> None:
    """Its copy would be restored, and every answer would be another than that of a cold run."""
    state = SAMPLE.with_name("ggsq2.kv--llama-b10229-short.slot")
    own = SAMPLE.parents[2] / "tests/oracle/models/llama-gqa.gguf"
    data, embeddings = own.read_bytes(), GGUFReader(own).tensors[0]
    start, stop = embeddings.data_offset, embeddings.data_offset + int(embeddings.n_bytes)
    middle = start + (stop - start) // 2  # other tokens have the rows of these
    other = tmp_path / "other.gguf"
    other.write_bytes(data[:start] + data[middle:stop] + data[start:middle] + data[stop:])
    new = tmp_path / "new.slot"
    for model, code in ((other, 1), (own, 0)):
        server = f"llama-server -m {model} -c 512 -np 1 -fa on"
        words = ["repair", str(state), "-o", str(new), "--for", server, "--build", "b11549"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        assert new.exists() == (code == 0)
        assert ("it is not of other.gguf" in result.output) == (code == 1)


def test_what_no_repair_puts_right_is_said_to_stay() -> None:
    for name, said in (
        ("damaged/ggsq3.kv.xyt--cells.token-differs.slot", "stays: cells.token-differs"),
        ("intact/ggsq3.kv.xyt--qwen2vl-b10809.slot", "the file itself needs nothing"),
    ):
        result = CliRunner().invoke(app, ["repair", str(SAMPLE.parents[1] / name)])
        assert result.exit_code == 0
        assert said in result.output


def test_what_stays_wrong_is_said_of_a_copy_too(tmp_path: Path) -> None:
    path, new = tmp_path / "slot.bin", tmp_path / "new.bin"
    shutil.copyfile(DAMAGED / "ggsq2.hybrid--recurrent.pos-mismatch.slot", path)
    code, text = shown(path, "--build", "b10229", "-o", new)
    assert code == 1
    assert new.exists()
    assert "what no repair puts right stays: recurrent.pos-mismatch" in text


def test_a_list_that_may_not_be_mended_is_not_all_that_could_be_done(tmp_path: Path) -> None:
    path, new = tmp_path / "slot.bin", tmp_path / "new.bin"
    shutil.copyfile(DAMAGED / "ggsq4.hybrid--appendix.truncated.slot", path)
    words = (path, "--build", "b11549", "-o", new, "--only", "drop-checkpoints")
    code, text = shown(*words)
    assert code == 1
    assert "the copy has none of its checkpoints" in text


def test_a_refusal_is_a_document_too(tmp_path: Path) -> None:
    path = DAMAGED / "ggsq2.kv--file.truncated.slot"
    result = CliRunner().invoke(app, ["repair", str(path), "--json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["schema"] == "slotscope.repair/1"
    assert (found["actions"], found["outputs"], found["after"]) == ([], [], None)
    assert "not whole" in found["hindrance"]


def test_checkpoints_in_a_form_that_the_server_does_not_read() -> None:
    """Asked for all the same, they are written; that they are of no use there is said."""
    path = SAMPLE.with_name("ggsq4.hybrid--lfm2-b11549-checkpoints.slot")
    code, text = shown(path, "--build", "b11549", "--to", "llcp1")
    assert code == 0
    assert "checkpoints are asked for in llcp1 form" in text
    assert "b11549 does not read the checkpoints in" in text
