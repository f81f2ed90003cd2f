"""Cut, changed and random files: a report in good time, never a traceback or a false all-clear."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import struct
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from formats.layouts import all_layouts
from inspector.bundle import SUFFIXES
from inspector.identify import Identification, Verdict
from inspector.node import Kind, Node, walk
from inspector.render.as_json import to_dict
from inspector.render.as_text import page
from inspector.report import Report, examined
from tests.property.test_decode import assert_sound
from tests.support.damage import NUMBERS, Damaged, at_random, insert, set_field, trail
from tests.support.meter import python
from tests.support.writer import Checkpoint as Record
from tests.support.writer import CheckpointList, Mark, Packed, pack

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
SHARED = [ROOT.parent / "shared" / name for name in ("corpus", "corpus-ik", "corpus-fork")]
DEEP = os.environ.get("SLOTSCOPE_HYPOTHESIS_PROFILE") == "deep"

MOST_SECONDS = 1.0
MOST_BYTES = 150 << 20
WIDTH = 80
"""Columns of the text."""
ONE_IN = 20
"""Of so many files one is shown as text too."""

LARGEST = 1 << 20
HEAD = 1 << 16
"""Of a model file only so much is damaged: the rest is tensors."""
SMALL = 20_000 if DEEP else 0
"""Real files up to here are cut at every byte."""
CUTS, CUTS_OF_SAMPLES = (2000, 40) if DEEP else (16, 8)
SLICES = 24
"""Parts of the work that can run at the same time."""
MUTATIONS = 10_000
RANDOM_FILES = 10_000

STATES = (".bin", ".slot", ".gguf", ".pkl", ".val", ".db")
COMPANIONS = (*SUFFIXES, ".json")


@dataclass(frozen=True)
class Original:
    """A file to be damaged, and what is found in it before.

    Attributes:
        path: where it lies.
        data: its bytes; of a model the head.
        subject: the state that it is a companion of, or the file itself.
    """

    path: Path
    data: bytes
    subject: Path

    @property
    def together(self) -> list[Path]:
        """The state and its companions."""
        names = [self.subject.name + suffix for suffix in ("", *SUFFIXES)]
        return [path for name in names if (path := self.subject.with_name(name)).is_file()]


@cache
def originals() -> tuple[Original, ...]:
    """Real files where they are at hand, and the samples; every content once."""
    found: dict[str, Original] = {}
    for folder in (*SHARED, SAMPLES):
        for path in sorted(folder.rglob("*")):
            name = path.name
            if not name.endswith((*STATES, *SUFFIXES)) or path.stat().st_size > LARGEST:
                continue
            data = path.read_bytes()
            data = data[:HEAD] if name.endswith(".gguf") else data
            suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
            subject = path.with_name(name.removesuffix(suffix))
            subject = subject if suffix and subject.is_file() else path
            found.setdefault(hashlib.sha256(data).hexdigest(), Original(path, data, subject))
    return tuple(found.values())


def intact() -> list[Original]:
    """Those that nothing has happened to yet."""
    return [
        one
        for one in originals()
        if "broken" not in one.path.name and one.path.parent.name != "damaged"
    ]


def name_of(original: Original) -> str:
    """A name that says to the report what the original's does: the companion's suffix."""
    suffix = original.path.name.removeprefix(original.subject.name)
    return f"x.slot{suffix}" if suffix else f"x{original.path.suffix}"


def shown(report: Report) -> str:
    """The report as text."""
    console = Console(file=io.StringIO(), width=WIDTH, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for part in page(report, report.name, WIDTH, show_tokens=True):
            console.print(part)
    return captured.get()


def seconds_of_a_report(path: Path) -> float:
    """Of the processor."""
    start = time.process_time()
    with examined(path) as report:
        json.dumps(to_dict(report))
    return time.process_time() - start


def surveyed(path: Path, data: bytes, what: object, *, text: bool = False) -> Identification:
    """Write a file, look at it in every way, check what must hold for all files, remove it.

    Args:
        path: where to write it.
        data: its bytes.
        what: says how to get the same bytes again.
        text: whether to show it as text, too.
    """
    path.write_bytes(data)
    try:
        start = time.process_time()
        with examined(path) as report:
            document = json.dumps(to_dict(report))
            lines = shown(report).split("\n") if text else []
            seconds = time.process_time() - start
            if seconds >= MOST_SECONDS:  # the machine may have been held up: not twice
                seconds = min(seconds, seconds_of_a_report(path))
            identification = report.identification
            if report.container is None and identification.reading is not None:
                assert_sound(identification.reading.decoding, len(data))
            assert document
            assert all(len(line) <= WIDTH for line in lines)
            assert seconds < MOST_SECONDS
    except Exception as error:
        error.add_note(f"{what}, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")
        raise
    finally:
        path.unlink()
    return identification


# -- prefixes --------------------------------------------------------------------------------------


@cache
def small_files() -> dict[str, bytes]:
    """Small files of different layouts, some of real servers; a PKCL list as no sample is small."""
    names = (
        "ggsq1.kv--rows.slot",
        "ggsq3.dsa--twelve-tokens.slot",
        "ggsq4.mla--twelve-tokens.slot",
        "ggsn11.kv--twelve-tokens.slot",
        "ik4--hybrid.slot",
        "ik3.blob--gemma3-partial.slot",
        "ik3--with-companions.slot.checkpoints",
        "blob.iswa-partial.prefixed--checkpoint.slot",
        "blob.recurrent.prefixed--lfm2-b10229.slot",
    )
    files = {name: (SAMPLES / "intact" / name).read_bytes() for name in names}
    blob = (SAMPLES / "intact" / "blob.iswa-partial--checkpoint.slot").read_bytes()
    files["pkcl1"] = pack(CheckpointList("pkcl1", (Record(9, 4, 8, blob),) * 2)).data
    return files


def ends(root: Node) -> set[int]:
    """Where a file can end and still look whole: behind anything but a number of a record."""
    return {node.span.stop for _, node in walk(root) if node.kind is not Kind.FIELD}


@dataclass(frozen=True)
class Whole:
    """What the whole file is: its verdict, and the places where one can end that looks whole."""

    layout: str
    verdict: Verdict
    ends: set[int]


def whole(path: Path, data: bytes, what: object) -> Whole:
    """Look at the whole file."""
    identification = surveyed(path, data, what, text=True)
    reading, root = identification.reading, identification.root
    layout = "" if reading is None else reading.layout.id
    return Whole(layout, identification.verdict, ends(root) if root is not None else set())


def assert_cut(whole: Whole, identification: Identification, data: bytes) -> None:
    """A cut file is only taken for a whole one where one of another layout ends as well.

    Zeros behind such an end may be padding. What follows the header of a model is no concern, and
    containers have checks of their own.
    """
    if identification.verdict not in (Verdict.RECOGNISED, Verdict.AMBIGUOUS):
        return
    if whole.verdict is not Verdict.RECOGNISED or whole.layout in ("", "gguf3"):
        return
    lit = len(data.rstrip(b"\0"))
    assert any(lit <= end <= len(data) for end in whole.ends)


def assert_survives(path: Path, name: str, data: bytes, cuts: list[int]) -> None:
    """Look at every one of these prefixes."""
    full = whole(path, data, name)
    for i, size in enumerate(cuts):
        what = f"{name} cut at {size}"
        identification = surveyed(path, data[:size], what, text=not i % ONE_IN)
        assert_cut(full, identification, data[:size])


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("name", small_files())
def test_every_prefix_of_a_small_file(name: str, part: int, tmp_path: Path) -> None:
    data = small_files()[name]
    cuts = list(range(part, len(data), 2))
    assert_survives(tmp_path / f"x{Path(name).suffix}", name, data, cuts)


def chosen_cuts(original: Original) -> list[int]:
    """Every place of a small file if there is time; else some, half of them in front."""
    size, sample = len(original.data), original.path.is_relative_to(SAMPLES)
    if size <= SMALL and not sample:
        return list(range(size))
    dice = random.Random(original.path.name)
    n = CUTS_OF_SAMPLES if sample else CUTS
    return sorted(dice.randrange(min(size, dice.choice((size, 1024)))) for _ in range(n))


@pytest.mark.parametrize("part", range(SLICES))
def test_prefixes_of_files(part: int, tmp_path: Path) -> None:
    for original in intact()[part::SLICES]:
        cuts = chosen_cuts(original)
        path = tmp_path / f"x{original.path.suffix}"
        assert_survives(path, str(original.path), original.data, cuts)


# -- lies ------------------------------------------------------------------------------------------

TWELVE_TOKENS = sorted(
    path
    for version in (2, 3, 4)
    for memory in ("kv", "iswa", "hybrid", "kv.*", "hybrid.*")
    for path in (SAMPLES / "intact").glob(f"ggsq{version}.{memory}--twelve-tokens.slot")
)


@pytest.mark.parametrize("path", TWELVE_TOKENS, ids=lambda path: path.stem)
def test_a_false_number_of_cells_is_named(path: Path, tmp_path: Path) -> None:
    original = Original(path, path.read_bytes(), path)
    marked = packed(original)
    mark = next(mark for mark in marked.marks if mark.path.endswith("cell_count"))
    for number in NUMBERS:
        damaged = set_field(marked, mark, number(mark.value or 0))
        mend = surveyed(tmp_path / "x.slot", damaged.data, damaged.what).mend
        assert mend is not None
        assert (mend.path, mend.value) == (mark.path, mark.value)


# -- mutations -------------------------------------------------------------------------------------


@cache
def packed(original: Original) -> Packed:
    """The file with the numbers in it marked, as far as a layout explains it."""
    with examined(original.path) as report:
        root = report.identification.root
        fields = [
            Mark(path, node.span.start, node.span.stop, node.value)
            for path, node in (walk(root) if root is not None else ())
            if node.kind is Kind.FIELD and isinstance(node.value, int)
        ]
    size = len(original.data)
    return Packed(original.data, tuple(mark for mark in fields if mark.stop <= size))


def mutated(original: Original, seed: int) -> Damaged:
    """One damage or a few, in numbers and anywhere."""
    dice = random.Random(seed)
    what, data = [], original.data
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(data)) if data else 0
        size = dice.choice((4, 12, 64, 1000))
        other = dice.choice(originals())
        match dice.randrange(8):
            case 0:
                damaged = insert(data, at, data[at : at + size])
            case 1:
                damaged = trail(data[:at], other.data[dice.randrange(len(other.data) + 1) :])
            case _:
                marked = Packed(data, packed(original).marks if len(data) else ())
                damaged = at_random(marked, dice.getrandbits(64))
        what.append(damaged.what)
        data = damaged.data
    return Damaged("; ".join(what), data)


@pytest.mark.parametrize("part", range(SLICES))
def test_mutations(part: int, tmp_path: Path) -> None:
    for seed in range(part, MUTATIONS, SLICES):
        original = random.Random(seed).choice(originals())
        damaged = mutated(original, seed)
        what = f"{original.path}, seed {seed}: {damaged.what}"
        surveyed(tmp_path / name_of(original), damaged.data, what, text=not seed // SLICES % ONE_IN)


def together() -> list[Original]:
    """The files of every set of a state and its companions."""
    return [original for original in originals() if len(original.together) > 1]


@pytest.mark.parametrize("part", range(4))
def test_mutations_of_one_of_several_files(part: int, tmp_path: Path) -> None:
    """The state is looked at, whichever file of the set is damaged; and a damaged companion too."""
    for original in together()[part::4]:
        files = {path.name: path.read_bytes() for path in original.together}
        state = original.subject.name
        for seed in range(MUTATIONS // 1000):
            damaged = mutated(original, seed)
            what = f"{original.path}, seed {seed}: {damaged.what}"
            changed = {**files, original.path.name: damaged.data}
            for name in {state, original.path.name}:
                for other, data in changed.items():
                    (tmp_path / other).write_bytes(data)
                surveyed(tmp_path / name, changed[name], f"{name} of {what}", text=True)
        for name in files:
            (tmp_path / name).unlink(missing_ok=True)


# -- random files ----------------------------------------------------------------------------------

MAGICS = sorted({layout.magic for layout in all_layouts()})
OTHER_HEADS = (b'{"', b"\x80\x04\x95", b"\x80\x05\x95", b"SQLite format 3\0", b"GGUF\3\0\0\0")


def random_file(seed: int) -> Damaged:
    """Noise, a run of one byte, text, words behind a magic, or pieces of two files."""
    dice = random.Random(seed)
    size = dice.randrange(dice.choice((16, 64, 300, 4096)) + 1)
    head = dice.choice((*MAGICS, *OTHER_HEADS))
    if head in MAGICS and head:
        head += dice.randrange(13).to_bytes(4, "little")
    numbers = [dice.choice((0, 1, 2, 3, size, dice.getrandbits(32))) for _ in range(size // 4)]
    one, other = dice.choice(originals()).data, dice.choice(originals()).data
    front, back = dice.randrange(min(len(one), 2000) + 1), dice.randrange(len(other) + 1)
    kinds = {
        "noise": dice.randbytes(size),
        "zeros": bytes(size),
        "ones": b"\xff" * size,
        "text": "".join(dice.choices('{"[]}:,0 9-e\\\n ünul', k=size)).encode(),
        "noise behind a head": head + dice.randbytes(size),
        "numbers behind a head": head + struct.pack(f"<{len(numbers)}I", *numbers),
        "two pieces": one[:front] + other[back : back + size],
    }
    what = dice.choice(list(kinds))
    return Damaged(what, kinds[what])


@pytest.mark.parametrize("part", range(SLICES))
def test_random_files(part: int, tmp_path: Path) -> None:
    names = ("x.slot", "x.gguf", "x.slot.tokens.json", "x.slot.checkpoints", "x.ckpt", "x")
    for seed in range(part, RANDOM_FILES, SLICES):
        file = random_file(seed)
        name = names[seed // SLICES % len(names)]
        what = f"{name}, seed {seed}: {file.what}"
        surveyed(tmp_path / name, file.data, what, text=not seed // SLICES % ONE_IN)


# -- memory ----------------------------------------------------------------------------------------

_LIMITED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.property import test_damage as tests

path = Path(sys.argv[2])
for name, data in tests.small_files().items():
    tests.surveyed(path, data, name, text=True)
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + tests.MOST_BYTES
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for seed in range(400):
    original = tests.originals()[seed % len(tests.originals())]
    tests.surveyed(path, tests.mutated(original, seed).data, seed)
    tests.surveyed(path, tests.random_file(seed).data, seed)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the address space in /proc")
def test_damaged_files_do_not_take_memory(tmp_path: Path) -> None:
    """Not even address space: what is asked for and never touched counts here as well."""
    usage = python(_LIMITED, str(ROOT), str(tmp_path / "x.slot"), scratch=tmp_path)
    assert usage.returncode == 0, usage.stderr
    assert usage.peak_bytes < MOST_BYTES
