"""The command line: what it prints where, how it ends, and what never reaches a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from formats.layouts import all_layouts
from inspector.cli.app import app
from inspector.findings import CODES
from inspector.render.byte_map import GAP, Part, _shared_out
from inspector.render.escape import printable
from inspector.span import Span
from tests.support.damage import at_random
from tests.support.strategies import Specimen, specimens
from tests.support.writer import (
    DIALECTS,
    F16,
    Cache,
    Memory,
    Packed,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
INTACT = sorted((SAMPLES / "intact").glob("*.slot"))
HYBRID = SAMPLES / "intact" / "ggsq2.hybrid--with-pkcl1.slot"
TRUNCATED = SAMPLES / "damaged" / "ggsq2.kv--file.truncated.slot"
ESCAPE = "\x1b"


def slotscope(*words: str | Path) -> Result:
    """Run a command in this process, its output no terminal."""
    return CliRunner().invoke(app, [str(word) for word in words])


def started(*words: str | Path, **options: object) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own."""
    code = "from inspector.cli import main; main()"
    command = [sys.executable, "-W", "error", "-c", code, *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


def on_terminal(columns: int, *words: str | Path, **environment: str) -> str:
    """What a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LC_ALL")}
    env |= {"TERM": "xterm-256color", **environment}
    process = started(*words, stdin=theirs, stdout=theirs, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux: the other end is closed
            data = b""
        if not data:
            break
        shown += data
    os.close(ours)
    process.communicate()
    return shown.decode().replace("\r\n", "\n")


# -- exit codes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((HYBRID,), 0),
        ((HYBRID, "--fail-on", "note"), 1),
        ((TRUNCATED,), 1),
        ((TRUNCATED, "--fail-on", "never"), 0),
        ((HYBRID, TRUNCATED), 1),
        ((TRUNCATED, "missing.bin"), 2),
        ((SAMPLES,), 2),
        ((), 2),
        ((HYBRID, "--fail-on", "panic"), 2),
        ((HYBRID, "--depth", "0"), 2),
        ((HYBRID, "--json", "--path", "attn"), 2),
        ((HYBRID, "--path", "attn.stream[0]"), 2),
        ((HYBRID, "--hex", "0x100000.."), 2),
        ((HYBRID, "--model", TRUNCATED), 2),
        ((HYBRID, "--model", "missing.gguf"), 2),
    ],
)
def test_exit_code(words: tuple[str | Path, ...], code: int) -> None:
    assert slotscope("inspect", *words).exit_code == code


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("chekc",), "no such command 'chekc'"),
        (("--verbose",), "no such option: --verbose"),
        (("inspect",), "missing argument 'FILE'"),
        (("inspect", HYBRID, "--dept", "1"), "--depth"),
        (("inspect", HYBRID, "--depth", "two"), "'--depth': 'two'"),
        (("inspect", HYBRID, "--depth"), "option '--depth' requires an argument"),
        (("inspect", HYBRID, "--deep=no"), "option '--deep' does not take a value"),
        (("inspect", HYBRID, "--fail-on", "pa\nnic"), "--fail-on: 'pa\\nnic'"),
        (("check",), "missing argument 'FILE'"),
        (("check", HYBRID, "--timeout", "0"), "'--timeout': 0.0 is not in the range"),
        (("check", HYBRID, "--next", "3"), "--next: '3' is no L/M"),
        (("check", HYBRID, "--next", "5/99999999999"), "no context has 99,999,999,999 tokens"),
        (("check", HYBRID, "--then", "5/2147483648"), "--then: '5/2147483648'"),
        (("check", HYBRID, "--for", "rm -rf /"), "'rm' is no llama-server"),
        (("check", HYBRID, "--for", "llama-server -fa maybe"), "-fa maybe: on, off or auto"),
        (("check", HYBRID, "--build", "b99999999"), "'b99999999' is no build"),
        (("check", HYBRID, f"--{ESCAPE}[31m"), "--\\x1b[31m"),
        (("geometry", "m.gguf", "--tokens", "-1"), "'--tokens': -1"),
        (("layouts", "ggsq2.kv", "more"), "unexpected extra argument"),
        (("explain", "file.truncated", "more"), "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_line(words: tuple[str | Path, ...], says: str) -> None:
    result = slotscope(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("slotscope: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr[:-1].isprintable()
    assert says in result.stderr


def test_wrong_usage_names_the_help_of_its_command() -> None:
    assert slotscope("check").stderr.endswith("check --help)\n")


def test_without_a_command_help_is_shown() -> None:
    result = slotscope()
    assert result.exit_code == 2
    assert "Look into files:" in result.stderr


def test_a_directory_is_refused() -> None:
    result = slotscope("inspect", SAMPLES)
    assert result.stdout == ""
    assert "a directory" in result.stderr


def test_one_unreadable_file_does_not_hide_the_others() -> None:
    result = slotscope("inspect", "missing.bin", HYBRID)
    assert "missing.bin: No such file" in result.stderr
    assert "slot file, version 2" in result.stdout


def test_a_reader_that_leaves_early_changes_nothing_but_the_output() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for words, code in (((HYBRID,), 0), ((TRUNCATED,), 1), ((TRUNCATED, "--json"), 1)):
        process = started("inspect", *words, stdout=writer)
        _, complaints = process.communicate()
        assert (process.returncode, complaints) == (code, b"")
    os.close(writer)


# -- JSON ------------------------------------------------------------------------------------------


def test_json_is_one_document() -> None:
    one = json.loads(slotscope("inspect", "--json", HYBRID).stdout)
    assert one["schema"] == "slotscope.inspect/1"
    several = json.loads(slotscope("inspect", "--json", HYBRID, TRUNCATED).stdout)
    assert [document["file"]["name"] for document in several] == [HYBRID.name, TRUNCATED.name]


def test_json_of_nothing_is_nothing() -> None:
    assert slotscope("inspect", "--json", "missing.bin").stdout == ""


# -- where it is shown -----------------------------------------------------------------------------


def test_plain_where_there_is_no_terminal() -> None:
    for words in ((HYBRID,), (HYBRID, "--depth", "9"), (HYBRID, "--hex")):
        shown = slotscope("inspect", *words).stdout
        assert ESCAPE not in shown
        assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_as_wide_as_the_terminal(columns: int) -> None:
    shown = on_terminal(columns, "inspect", HYBRID, NO_COLOR="1")
    assert ESCAPE not in shown
    assert columns - 1 <= max(map(len, shown.splitlines())) <= columns or columns > 120


def test_colour_on_a_terminal() -> None:
    shown = on_terminal(80, "inspect", TRUNCATED)
    assert ESCAPE in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    without = on_terminal(80, "inspect", TRUNCATED, NO_COLOR="1")
    assert [line.rstrip() for line in plain.splitlines()] == without.splitlines()


@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_ascii_where_nothing_else_can_be_drawn(environment: dict[str, str]) -> None:
    env = {k: v for k, v in os.environ.items() if k != "LC_ALL"} | environment
    for words in (("inspect", TRUNCATED), ("layouts", "ggsq2.kv"), ("layouts",)):
        process = started(*words, stdout=subprocess.PIPE, env=env)
        shown, complaints = process.communicate()
        assert shown.isascii()
        assert complaints == b""


def test_help_loads_neither_the_engine_nor_rich() -> None:
    code = (
        "import sys; from inspector.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "--help"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(result.stderr.split())
    assert "inspect" in result.stdout
    assert not loaded & {"numpy", "construct", "rich.console", "inspector.report"}


# -- what never reaches a terminal -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x1b[31mred.slot", r"a\x1b[31mred.slot"),
        ("two\nlines.slot", r"two\nlines.slot"),
        ("left\u202eright.slot", r"left\u202eright.slot"),
        ("byte\udcff.slot", r"byte\xff.slot"),
        ("[bold red]x.slot", "[bold red]x.slot"),
        ("größe.slot", "größe.slot"),
    ],
)
def test_file_names_are_escaped(
    name: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(TRUNCATED.read_bytes())
    Path(name + ".ckpt").write_bytes(b"nonsense")
    for words in (("inspect", name), ("inspect", name, "--path", "\x1b[31m")):
        result = slotscope(*words)
        assert ESCAPE not in result.output
        assert shown in result.output
    assert ESCAPE not in slotscope("inspect", name + "x").stderr


@given(st.text())
def test_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


def test_texts_in_a_file_are_escaped(tmp_path: Path) -> None:
    session = next(file for file in INTACT if file.name.startswith("ggsn9.kv--"))
    data = session.read_bytes()
    assert data.count(b"llama") == 1
    file = tmp_path / "slot.bin"
    file.write_bytes(data.replace(b"llama", b"\x1b[31m"))
    for words in ((), ("--depth", "9"), ("--hex",)):
        assert ESCAPE not in slotscope("inspect", file, *words).output


SECRETS = tuple(range(1_234_561, 1_234_577))


def secret(packed: bool) -> Packed:
    """A save whose token ids are like no other number in it, in its list and in its cells."""
    tokens = Tokens(SECRETS, packed=packed)
    rows = (Row(F16, 64),)
    memory = Memory({"attn": Cache((cells_of(tokens),), k=rows, v=rows)}, DIALECTS["rotated-xyt"])
    return pack(Slot(4, tokens, memory))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("damage", ["", "cut", "count", "negative"])
def test_tokens_are_not_shown(packed: bool, damage: str, tmp_path: Path) -> None:
    file, save = tmp_path / "slot.bin", secret(packed)
    data = bytearray(save.data)
    if damage == "cut":
        del data[60:]
    elif damage == "count":
        data[8:12] = b"\xff\xff\xff\x7f"
    elif damage == "negative":
        at = data.index(struct.pack("<i", SECRETS[3]))
        data[at : at + 4] = b"\xfe\xff\xff\xff"
    file.write_bytes(data)
    asked = [(), ("--json",), ("--depth", "9"), ("--hex",), ("--hex", "0..0x200")]
    if not damage:
        where = "tokens.tokens" if packed else "tokens"
        cells = "attn.streams[0].cells"
        asked += [("--path", f"{where}[3]"), ("--path", f"{where}[3].value"), ("--hex", where)]
        asked += [("--path", cells), ("--path", f"{cells}[3].tok"), ("--hex", f"{cells}[3]")]
    for words in asked:
        shown = slotscope("inspect", file, *words).output
        assert "1234" not in shown, words
        assert not re.search("|".join(f"{t & 0xFF:02x} d6 12" for t in SECRETS), shown), words
    if not damage:
        for words in [*asked[5:], ()]:
            assert "1234564" in slotscope("inspect", file, "--show-tokens", *words).output, words


def test_lists_of_other_programs_are_not_shown_as_bytes() -> None:
    file = ROOT / "samples" / "intact" / "ik3--with-companions.slot.tokens.json"
    shown = slotscope("inspect", file, "--hex").output
    assert ".. .. .. .." in shown
    assert not bytes_shown(shown)
    shown = slotscope("inspect", file, "--hex", "--show-tokens").output
    assert b"".join(bytes_shown(shown).values()) == file.read_bytes()


# -- parts -----------------------------------------------------------------------------------------


def bytes_shown(shown: str) -> dict[int, bytes]:
    """Offset -> bytes, of every line of a dump."""
    lines = re.findall(r"^0x([0-9a-f]+) +((?:[0-9a-f]{2} ?)+) ", shown, re.MULTILINE)
    return {int(offset, 16): bytes.fromhex(digits) for offset, digits in lines}


@pytest.mark.parametrize("file", INTACT[::7], ids=lambda file: file.stem)
def test_a_range_shows_every_byte_of_it(file: Path) -> None:
    data = file.read_bytes()
    first, last = len(data) // 5, min(len(data), len(data) // 5 + 700)
    dumped = slotscope("inspect", file, "--show-tokens", "--hex", f"{first}..{last:#x}").output
    at = first
    for offset, found in bytes_shown(dumped).items():
        assert offset == at
        assert found == data[offset : offset + len(found)]
        at += len(found)
    assert at == last


@pytest.mark.parametrize("range_", ["4..12", "0x4..0xC", "004..012", "0X4..12"])
def test_ranges_are_decimal_or_hex(range_: str) -> None:
    shown = bytes_shown(slotscope("inspect", HYBRID, "--hex", range_).output)
    assert (min(shown), sum(map(len, shown.values()))) == (4, 8)


def test_hex_alone_is_about_the_path() -> None:
    path = "attn.streams[0].k[1].k_type"
    alone = slotscope("inspect", HYBRID, "--path", path, "--hex").output
    named = slotscope("inspect", HYBRID, "--hex", path).output
    assert named in alone
    assert "k_type = 1 (F16)" in named
    assert slotscope("inspect", "--hex", "--path", path, HYBRID).output == alone


def test_long_payloads_say_how_much_is_not_shown() -> None:
    shown = slotscope("inspect", HYBRID, "--hex", "recr.blocks[3].data").output
    assert sum(map(len, bytes_shown(shown).values())) == 512
    assert "512 more bytes" in shown


@pytest.mark.parametrize(
    "path",
    [
        "attn.streams[0].cells[²]",
        f"tokens[{'9' * 5000}]",
        "tokens[-1]",
        "]",
        ".",
        f"{'9' * 5000}..",
    ],
)
def test_a_wrong_path_is_a_wrong_use(path: str) -> None:
    for option in ("--path", "--hex"):
        assert slotscope("inspect", HYBRID, option, path).exit_code == 2


def test_a_wrong_path_names_near_ones() -> None:
    complaint = slotscope("inspect", HYBRID, "--path", "attn.streams[0].k[1].type").stderr
    assert "attn.streams[0].k[1].k_type" in complaint


# -- the manual ------------------------------------------------------------------------------------


def test_every_layout_and_every_code_is_listed() -> None:
    layouts, codes = slotscope("layouts").output, slotscope("explain").output
    assert all(layout.id in layouts.split() for layout in all_layouts())
    assert len(CODES) > 30
    assert all(code in codes.split() for code in CODES)


@pytest.mark.parametrize("command", ["layouts", "explain"])
def test_a_wrong_name_is_a_wrong_use(command: str) -> None:
    for name in ("ggsq4.hybird", "file.trunc", "\x1b[31m", ""):
        result = slotscope(command, name) if name else slotscope(command)
        assert result.exit_code == (2 if name else 0)
        assert ESCAPE not in result.output


# -- any bytes -------------------------------------------------------------------------------------


def test_the_parts_of_a_bar_share_it() -> None:
    for width in (1, 5, 79):
        for sizes in ([1], [1, 1 << 40], [3, 0, 1], [1] * 200):
            parts = [Part("", Span(0, size), GAP) for size in sizes if size]
            found = _shared_out(parts, width)
            assert sum(found) == width
            assert min(found) >= (1 if len(parts) < width else 0)


@given(data=st.binary(max_size=200), tail=st.sampled_from(["", "--hex=", "--depth=9"]))
def test_any_bytes_can_be_shown(
    data: bytes, tail: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("any") / "slot.bin"
    file.write_bytes(data)
    result = slotscope("inspect", file, *([tail] if tail else []))
    assert result.exit_code in (0, 1), result.exception
    assert max(map(len, result.output.splitlines()), default=0) <= 80


@given(
    specimen=specimens("ggsq4.hybrid.xyt"),
    seed=st.integers(0, 1 << 30),
    words=st.sampled_from([(), ("--hex",), ("--depth", "9")]),
)
def test_any_damage_can_be_shown(
    specimen: Specimen,
    seed: int,
    words: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("damaged") / "slot.bin"
    file.write_bytes(at_random(specimen.packed, seed).data)
    result = slotscope("inspect", file, *words)
    assert result.exit_code in (0, 1), result.exception
    assert ESCAPE not in result.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize(("given", "kept"), [(None, b"1"), ("3", b"3")])
def test_a_command_takes_one_thread_unless_told_otherwise(given: str | None, kept: bytes) -> None:
    name = "OPENBLAS_NUM_THREADS"
    env = {key: value for key, value in os.environ.items() if key != name}
    env |= {name: given} if given is not None else {}
    code = "import os\nfrom inspector.cli import main\ntry: main()\nfinally: print(os.environ"
    code += f"[{name!r}])"
    command = [sys.executable, "-c", code, "--version"]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False)
    assert result.stdout.split()[-1] == kept


def test_a_full_disk_ends_with_2_and_a_line() -> None:
    with Path("/dev/full").open("wb") as full:
        process = started("inspect", HYBRID, "--json", stdout=full)
        _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.decode().count("\n") == 1
    assert b"No space left" in errors


def test_without_standard_output_the_exit_code_tells() -> None:
    for path, expected in ((HYBRID, 0), (TRUNCATED, 1)):
        process = started("inspect", path, preexec_fn=lambda: os.close(1))
        _, errors = process.communicate()
        assert (process.returncode, errors) == (expected, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("words", [("inspect", HYBRID), ("explain",), ("--help",)])
def test_a_full_disk_is_one_line_for_people_too(words: tuple[str | Path, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        process = started(*words, stdout=full)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.decode() == "slotscope: cannot write: No space left on device\n"


def test_files_that_cannot_be_read_keep_their_place() -> None:
    result = CliRunner().invoke(app, ["inspect", "nowhere/a.bin", str(HYBRID), "--json"])
    assert result.exit_code == 2
    first, second = json.loads(result.stdout)
    assert first["file"] == {"name": "a.bin", "path": "nowhere/a.bin"}
    assert first["error"] == "No such file or directory"
    assert second["file"]["path"] == str(HYBRID)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no such file here")
@pytest.mark.parametrize("words", [("geometry",), ("check", HYBRID, "--model")])
def test_a_model_that_the_disk_does_not_give(words: tuple[str | Path, ...]) -> None:
    result = CliRunner().invoke(app, [*map(str, words), "/proc/self/mem"])
    assert result.exit_code == 2
    assert result.stderr == "slotscope: /proc/self/mem: Input/output error at 0x0\n"


def test_names_that_are_no_text_stay_valid_json(tmp_path: Path) -> None:
    name = tmp_path / os.fsdecode(b"a\xff.bin")
    name.write_bytes(b"")
    result = CliRunner().invoke(app, ["inspect", str(name), "--json"])
    assert json.loads(result.stdout)["file"]["name"] == "a\N{REPLACEMENT CHARACTER}.bin"


def test_a_code_in_capitals_is_recognised() -> None:
    result = CliRunner().invoke(app, ["explain", "FILE.TRUNCATED"])
    assert "did you mean file.truncated" in result.stderr
