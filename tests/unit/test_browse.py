"""The screen: every sample can be looked around in, however damaged, large or hostile it is."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from inspector.browsing.app import Browser
from inspector.browsing.bytes_view import BytesView
from inspector.browsing.parts import Part, part_of, way_at, way_to
from inspector.node import walk
from inspector.render.escape import printable
from inspector.report import examined
from tests.support.large import large_slot
from tests.support.meter import python
from tests.support.writer import (
    DIALECTS,
    F16,
    Cache,
    Cell,
    Memory,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
STATES = sorted(
    path
    for path in SAMPLES.glob("*/*")
    if path.is_file() and path.suffix not in (".toml", ".md", ".py")
)
HYBRID = SAMPLES / "intact" / "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot"
CUT = SAMPLES / "damaged" / "ggsq2.kv--file.truncated.slot"

ONE_OF_EACH = {re.split(r"[0-9.]", path.name)[0] + path.parent.name: path for path in STATES}
"""An intact and a damaged file of every format."""

Steps = Callable[[Browser, Pilot[None]], Coroutine[Any, Any, None]]


def browse(
    path: Path, steps: Steps, size: tuple[int, int] = (80, 24), *, show_tokens: bool = False
) -> None:
    """Open a file on a screen without a terminal, and do something there."""

    async def run() -> None:
        with examined(path) as report:
            app = Browser(report, show_tokens=show_tokens)
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await steps(app, pilot)

    asyncio.run(run())


async def typed(pilot: Pilot[None], key: str, words: str) -> None:
    """Answer the prompt that a key opens."""
    await pilot.press(key)
    pilot.app.query_one(Input).value = words
    await pilot.press("enter")
    await pilot.pause()


def chosen(app: Browser) -> Part:
    """The part under the cursor of the tree."""
    node = app.query_one("_PartTree").cursor_node  # type: ignore[attr-defined]
    assert node is not None
    return node.data  # type: ignore[no-any-return]


def drawn(app: Browser) -> str:
    """The screen as text,"""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def says(pilot: Pilot[None], words: str) -> None:
    """Wait until the screen has the words, which is a few frames at most."""
    for _ in range(200):
        if words in drawn(pilot.app):
            return
        await pilot.pause(0.01)
    raise AssertionError(drawn(pilot.app))


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.name)
def test_every_part_of_every_sample_is_found(path: Path) -> None:
    with examined(path) as report:
        root = part_of("", report.tree)
        for at, node in walk(root.node):
            way = way_to(root, at, node.span.start)
            assert (way[-1].path, way[-1].span) == (at, node.span)
            for above, below in pairwise(way):
                assert below in list(above.parts())
            if len(node.span) and not node.children:
                last = way_at(root, node.span.stop - 1)[-1]
                assert node.span.stop - 1 in last.span
                assert last.path.startswith(at)


@pytest.mark.parametrize("path", [CUT, HYBRID], ids=lambda path: path.name)
def test_keys(path: Path) -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "down", "down", "down", "right", "right")
        first = chosen(app)
        assert first.path == "attn.n_stream"
        assert app.query_one(BytesView).first == first.span.start
        await says(pilot, "cell arrays: 1 for a unified cache")
        await pilot.press("left", "left")
        assert chosen(app).path == "attn"
        await pilot.press("question_mark")
        await says(pilot, "close what is open below")
        await pilot.press("x", "q")

    browse(path, steps)


@pytest.mark.parametrize("path", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_jumps(path: Path) -> None:
    """To each finding, to an offset, to a field; a screen costs too much for every sample."""

    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        report = app._report
        for finding in report.findings:
            app._jump(finding)
            if not finding.carrier and finding.span.start < report.size:
                part = chosen(app)
                assert part.path == finding.path or finding.span.start in part.span
                assert app.query_one(BytesView).first == finding.span.start
        middle = report.size // 2
        await typed(pilot, "g", hex(middle))
        assert middle in chosen(app).span
        assert app.query_one(BytesView).first == middle
        last = list(walk(report.tree))[-1][0]
        await typed(pilot, "slash", last or "nothing")
        assert not last or last in [at for at, _ in app._found]
        await pilot.press("tab", "end", "home")
        assert app.query_one(BytesView).first == 0

    browse(path, steps)


def test_the_mouse() -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.click(BytesView, offset=(3, 3))
        assert chosen(app).path == "n_token_count"
        await pilot.click(BytesView, offset=(3, 0))
        assert chosen(app).path == "n_token_count"
        app.query_one(BytesView).on_mouse_scroll_down()
        assert app.query_one(BytesView).first > chosen(app).span.start

    browse(CUT, steps)


def test_items_of_lists_say_what_they_are() -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await typed(pilot, "slash", "general.architecture")
        await says(pilot, "▼ [0] general.architecture")

    browse(SAMPLES / "models" / "llama.gguf", steps, (120, 30))


def test_keys_that_come_at_once() -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        for key in ("slash", "t", "o", "k", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await says(pilot, "1 of ")
        assert "tok" in chosen(app).path

    browse(CUT, steps)


def test_findings() -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.press("f")
        assert chosen(app).path == "gap"
        await says(pilot, "192 bytes from 0x34c on")
        await pilot.press("enter")
        assert app.focused is app.query_one("_PartTree")
        await pilot.press("escape")
        assert not app.query_one(OptionList).display

    browse(CUT, steps)


def test_the_next_match_and_the_one_before() -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await typed(pilot, "slash", "K_SIZE_ROW")
        seen = [chosen(app).path]
        for key in ("n", "n", "N"):
            await pilot.press(key)
            seen.append(chosen(app).path)
        first, second = (f"attn.streams[0].k[{i}].k_size_row" for i in (0, 1))
        assert seen == [first, second, first, second]
        await typed(pilot, "slash", "cells[7].pos")
        assert chosen(app).path == "attn.streams[0].cells[7].pos"
        await says(pilot, "position of the token")
        for words in ("cells[99].pos", "(", "[b]"):
            await typed(pilot, "slash", words)
            await says(pilot, f"nothing found: {words}")
        await pilot.press("n")
        assert not app.query_one(Input).display
        await says(pilot, f"nothing found: {words}")

    browse(CUT, steps, (120, 30))


@pytest.mark.parametrize(
    ("words", "answer"),
    [("0x40b", "the file ends at 0x40b"), ("-1", "the file ends"), ("ten", "no offset: ten")],
)
def test_offsets_that_are_none(words: str, answer: str) -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await typed(pilot, "g", words)
        await says(pilot, answer)
        assert app.query_one(BytesView).first == 0

    browse(CUT, steps)


def test_up_undoes_down() -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        shown = app.query_one(BytesView)
        for n in (1, 7, 40, 400):
            shown.action_scroll_to(0)
            shown.action_scroll_lines(n)
            there = shown.first
            shown.action_scroll_lines(-1)
            assert shown.first < there
            shown.action_scroll_lines(1)
            assert shown.first == there
            shown.action_scroll_lines(-n)
            assert shown.first == 0

    browse(HYBRID, steps)


@pytest.mark.parametrize("show", [False, True])
def test_tokens_are_shown_only_if_asked_for(show: bool, tmp_path: Path) -> None:
    ids = tuple(range(1_000_000_001, 1_000_000_009))
    row = (Row(F16, 64),)
    memory = Memory({"attn": Cache((cells_of(Tokens(ids)),), k=row, v=row)}, DIALECTS[""])
    path = tmp_path / "private.slot"
    path.write_bytes(pack(Slot(2, Tokens(ids), memory)).data)

    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await typed(pilot, "slash", "tokens[3]")
        await says(pilot, "[3] 1000000004" if show else "[3] not shown")
        seen = drawn(app)
        assert ("1000000004" in seen) is show
        assert ("04 ca 9a 3b" in seen) is show

    browse(path, steps, (120, 30), show_tokens=show)


@pytest.mark.parametrize("now", [b"", b"other words of the file " * 40])
def test_a_file_that_is_written_to_is_shown_no_more(now: bytes, tmp_path: Path) -> None:
    path = tmp_path / "changing.slot"
    path.write_bytes(CUT.read_bytes())

    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "down", "down", "down")
        assert "n_token_count" in drawn(app)
        path.write_bytes(now)
        await pilot.press("right", "n", "slash", "x", "enter", "f", "g", "tab")
        await says(pilot, "the file has changed")
        seen = drawn(app)
        assert "6f 74 68" not in seen
        assert "n_token_count" not in seen
        await pilot.press("q")

    browse(path, steps, (120, 30))


def test_a_value_that_has_no_room_says_so(tmp_path: Path) -> None:
    path = tmp_path / "far.slot"
    cells = tuple(Cell(pos) for pos in range(100_000, 100_008))
    memory = Memory({"attn": Cache((cells,), k=(Row(F16, 64),), v=(Row(F16, 64),))}, DIALECTS[""])
    path.write_bytes(pack(Slot(2, Tokens(tuple(range(8))), memory)).data)

    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await typed(pilot, "slash", "cells[3].pos")
        shown = re.findall(r"\[\d\] (pos [0-9…]*)", drawn(app))
        assert shown
        assert all(len(words) == 10 or words.endswith("…") for words in shown), shown
        assert any(words.endswith("…") for words in shown), shown
        await pilot.resize_terminal(120, 24)
        await says(pilot, "pos 100003")

    browse(path, steps, (72, 24))


@pytest.mark.parametrize("name", ["[red]x[bold][", "\x1b[31mred", "a\nb", "\udcff.slot"])
def test_names_are_text(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(CUT.read_bytes())

    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.press("f")
        await says(pilot, f" {printable(name)} · ")
        assert "\x1b" not in drawn(app)

    browse(path, steps, (120, 30))


def test_texts_of_a_file_are_text(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    key, value = b"[bold]general[/]", b"\x1b[2J[@click=app.quit]x[/]"
    text = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text)

    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await typed(pilot, "slash", "click")
        assert chosen(app).node.value == value.decode()
        await says(pilot, "[@click=app.quit]x[/]")
        await typed(pilot, "slash", "[bold]")
        await says(pilot, "[bold]general[/]")

    browse(path, steps, (120, 40))


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 5), (1, 1), (250, 70)])
def test_any_size_of_the_screen(size: tuple[int, int]) -> None:
    async def steps(app: Browser, pilot: Pilot[None]) -> None:
        await pilot.press("down", "tab", "pagedown", "end", "up", "f", "down", "escape")
        await pilot.resize_terminal(80, 24)
        assert all(len(line) <= 80 for line in drawn(app).split("\n"))

    browse(CUT, steps, size)


def test_16_gib_open_at_once(tmp_path: Path) -> None:
    """Two seconds, and a few bytes besides what a report reads; scrolled to the end and back."""
    code = """
import asyncio, sys, time
start = time.process_time()
from inspector.browsing.app import Browser
from inspector.report import examined

async def run():
    with examined(sys.argv[1]) as report:
        read = report.source.bytes_read
        app = Browser(report, show_tokens=False)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            opened = time.process_time() - start
            app._search("cells[150000].pos")
            app._go_to(hex(report.size // 2))
            await pilot.press("tab", "end", "pageup", "home", "pagedown")
            print(opened, report.source.bytes_read - read, len(app._tree._tree_lines))

asyncio.run(run())
"""
    usage = python(code, str(large_slot(tmp_path)), scratch=tmp_path)
    seconds, n_bytes, lines = map(float, usage.stdout.split())
    assert seconds < 2
    assert n_bytes < 64 * 1024
    assert lines < 500
    assert usage.peak_bytes < 200 << 20


def run(*words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """A command of its own, without a terminal."""
    code = f"import sys; sys.path.insert(0, {path!r}); from inspector.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )


def test_without_a_terminal_it_says_so() -> None:
    done = run("browse", str(CUT))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "slotscope: browse needs a terminal; slotscope inspect prints\n"


def test_without_textual_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "textual").mkdir()
    (tmp_path / "textual" / "__init__.py").write_text("raise ImportError")
    done = run("browse", str(CUT), path=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install "slotscope[browse]"' in done.stderr


def on_terminal(*keys: tuple[bytes, bytes], before: str = "") -> tuple[int, bytes]:
    """The exit code, and what was written to the terminal.

    Args:
        keys: bytes that are typed, again and again until it says something; empty for its end.
        before: Python that is run before.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    code = f"{before}\nfrom inspector.cli import main; main()"
    seen = b""
    with subprocess.Popen(
        [sys.executable, "-c", code, "browse", str(CUT)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(slave)
        try:
            while b"damaged" not in seen or b"n_token_count" not in seen:
                seen += os.read(master, 4096)
            for typed, says in keys:
                while not says or says not in seen:
                    for key in typed:
                        os.write(master, bytes([key]))
                        time.sleep(0.3)
                    while select.select([master], [], [], 0.3)[0]:
                        seen += os.read(master, 4096)
            while more := os.read(master, 4096):
                seen += more
        except OSError:  # the other end is closed
            pass
    os.close(master)
    return process.returncode, seen


def test_on_a_terminal() -> None:
    """Keys in, escapes out, and back to what was there before."""
    code, seen = on_terminal((b"q", b""))
    assert code == 0
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    assert not re.search(rb"\x1b\[[0-9;]*3[1-6]m", seen)


def test_a_byte_that_is_no_text_is_no_key() -> None:
    code, seen = on_terminal((b"\xffg", b"4096 or 0x1000"), (b"\xc3\xff\x1bq", b""))
    assert code == 0
    assert b"4096 or 0x1000" in seen, "the key behind it was read"
    assert b"Traceback" not in seen


def test_keys_that_cannot_be_read_are_no_success() -> None:
    fails = "from textual.drivers import linux_driver as d\nd.LinuxDriver.run_input_thread = None"
    code, seen = on_terminal(before=fails)
    assert code == 70
    assert seen.endswith(
        b"slotscope: browse has ended: the keys of this terminal cannot be read\r\n"
    )
    assert b"Traceback" not in seen


def test_it_ends_with_its_terminal() -> None:
    """Also where no signal tells it so, as for a process of another session."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", "from inspector.cli import main; main()", "browse", str(CUT)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    ) as process:
        os.close(slave)
        os.read(master, 1)  # it has begun
        while select.select([master], [], [], 1)[0]:
            os.read(master, 4096)
        os.close(master)
        try:
            assert process.wait(timeout=30) != 0
        finally:
            process.kill()
