"""Checkpoints and companions: what real saves look like passes, each defect has its own code."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from inspector.bundle import bundle, looked_into
from inspector.checkpoints import appendix_of, checkpoint_list
from inspector.checks import companions as bundle_checks
from inspector.checks.checkpoints import check_list, usable
from inspector.checks.checkpoints import codes as list_codes
from inspector.checks.checkpoints.state import state_of
from inspector.checks.companions import check_companions
from inspector.checks.subject import Subject
from inspector.findings import CODES, Finding, RemedyKind, Severity
from inspector.identify import identify
from inspector.sections import sections
from inspector.source import opened
from inspector.tokens import tokens_of
from tests.support.writer import (
    F16,
    F32,
    GGSQ,
    Blob,
    Cache,
    Cell,
    Checkpoint,
    CheckpointList,
    Dialect,
    Generation,
    IkMemory,
    Memory,
    Recurrent,
    Row,
    Slot,
    Tokens,
    ik_tokens,
    pack,
    pkcl2,
    stck2,
)

N, WINDOW = 96, 16
STATE = "slot.bin"
SUFFIXES = {
    "pkcl1": ".ckpt",
    "pkcl2": ".ckpt",
    "lsckpt2": ".ckpt",
    "stck2": ".ckpt",
    "bkcp1": ".ckpt",
    "slck1": ".ckpt",
    "llcp1": ".checkpoints",
    "llcp2": ".checkpoints",
}
HARMLESS = {"sidecar.not-counted", "sidecar.shared"}


# -- what a server would have written --------------------------------------------------------------

UNROTATED, ROTATED = Dialect(), Dialect(rotation=True)


def cells(first: int, stop: int) -> tuple[Cell, ...]:
    return tuple(Cell(pos) for pos in range(first, stop))


def attention(n: int, *, first: int = 0, size: int = 64, windowed: bool = False) -> Cache:
    rows = (Row(F16, size), Row(F16, size))
    return Cache((cells(first, n),), k=rows, v=rows, windowed=windowed)


def plain(n: int, dialect: Dialect = ROTATED) -> Memory:
    return Memory({"attn": attention(n)}, dialect)


def hybrid(n: int, dialect: Dialect = ROTATED, n_layer: int = 4) -> Memory:
    r, s = (Row(F32, 96), Row(F32, 96)), (Row(F32, 512), Row(F32, 512))
    return Memory({"attn": attention(n), "recr": Recurrent((Cell(n - 1),), n_layer, r, s)}, dialect)


def windowed(n: int, dialect: Dialect = ROTATED, *, size: int = 64, window: int = WINDOW) -> Memory:
    swa = attention(n, first=max(0, n - window), size=size, windowed=True)
    return Memory({"base": attention(n, size=size), "swa": swa}, dialect)


def ik(n: int) -> IkMemory:
    rows = (Row(F16, 64), None)
    return IkMemory(4, cells(0, n), rows, rows, recurrent=(None, (Row(F32, 608), 1)))


MEMORIES: dict[str, Callable[[int], Memory]] = {"hybrid": hybrid, "windowed": windowed}


def record(memory: Memory | IkMemory, n: int, prefix: bool = True) -> Checkpoint:
    """The checkpoint of `memory`, which stands behind `n` tokens."""
    upstream = isinstance(memory, Memory)
    blob = pack(Blob(memory.partial(), 0 if prefix and upstream else None)).data
    pos_min = 0 if upstream and "recr" not in memory.sections else n - 1
    return Checkpoint(n, pos_min, n - 1, blob)


def records(memory: Callable[[int], Memory | IkMemory], prefix: bool = True) -> list[Checkpoint]:
    return [record(memory(n), n, prefix) for n in (40, 88)]


def slot(memory: Memory | IkMemory, version: int = 4, n: int = N) -> bytes:
    return pack(Slot(version, Tokens(tuple(range(100, 100 + n))), memory)).data


def listed(family: str, made: list[Checkpoint], state: bytes) -> bytes:
    if family == "pkcl2":
        return pack(pkcl2(made, state)).data
    if family == "stck2":
        return pack(stck2(made, b"prompt", N)).data
    head = {"version": 4} if family == "ik" else {}
    return pack(CheckpointList(family, tuple(made), head)).data


# -- what the checks make of it --------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    findings: tuple[Finding, ...]
    usable: Mapping[str, tuple[bool, ...]]

    @property
    def problems(self) -> set[str]:
        return {finding.code for finding in self.findings if finding.code not in HARMLESS}

    @property
    def codes(self) -> set[str]:
        return {finding.code for finding in self.findings}


@dataclass
class Scene:
    """A state and its companions: suffix -> content; the suffix of the state itself is empty."""

    files: dict[str, bytes]
    ages: dict[str, int] = field(default_factory=dict)

    def judged(self, directory: Path, subject: str = "") -> Verdict:
        for suffix, content in self.files.items():
            path = directory / (STATE + suffix)
            path.write_bytes(content)
            os.utime(path, (10**9, 10**9 - self.ages.get(suffix, 0)))
        return judged(directory / (STATE + subject))


def judged(path: Path) -> Verdict:
    found = bundle(path)
    with opened(path) as source, looked_into(found.companions) as others:
        identification = identify(source)
        assert identification.reading is not None
        root = identification.reading.decoding.root
        subject = Subject(
            path.name,
            source.size,
            identification,
            identification.reading,
            sections(root),
            tokens_of(root),
        )
        layout = identification.reading.layout
        if subject.is_state:
            state, own = state_of(subject, source), appendix_of(source, root, path.name)
        else:
            state = None
            own = checkpoint_list(root, path.name, layout.format, layout.version)
        findings = check_companions(found, others, state, own)
        flags = {}
        for name, listing, where in (
            ("", own, source),
            *((other.companion.file.name, other.listing, other.source) for other in others),
        ):
            if listing is not None:
                problems = check_list(listing, where, state, name)
                findings += problems
                flags[name] = usable(listing, problems)
    return Verdict(findings, flags)


def beside(family: str, memory: Memory, made: list[Checkpoint], version: int = 4) -> Scene:
    state = slot(memory, version)
    scene = Scene({"": state, SUFFIXES[family]: listed(family, made, state)})
    if family == "stck2":
        scene.files[".gen"] = pack(Generation(N)).data
    return scene


def appended(memory: Memory, made: list[Checkpoint]) -> Scene:
    state = slot(memory)
    return Scene({"": state + listed("sckp1", made, state)})


def beside_ik(made: list[Checkpoint] | None = None) -> Scene:
    state = slot(ik(N))
    made = records(ik) if made is None else made
    return Scene(
        {
            "": state,
            ".checkpoints": listed("ik", made, state),
            ".tokens.json": ik_tokens(range(100, 100 + N)),
        }
    )


# -- intact ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("family", SUFFIXES)
def test_an_intact_sidecar_is_clean(family: str, kind: str, tmp_path: Path) -> None:
    memory = MEMORIES[kind]
    verdict = beside(family, memory(N), records(memory)).judged(tmp_path)
    assert verdict.problems == set()
    assert list(verdict.usable.values()) == [(True, True)]


@pytest.mark.parametrize("kind", MEMORIES)
def test_an_intact_appendix_is_clean(kind: str, tmp_path: Path) -> None:
    memory = MEMORIES[kind]
    verdict = appended(memory(N), records(memory)).judged(tmp_path)
    assert verdict.codes == set()
    assert verdict.usable == {"": (True, True)}


def test_an_intact_save_of_ik_is_clean(tmp_path: Path) -> None:
    verdict = beside_ik().judged(tmp_path)
    assert verdict.codes == set()
    assert verdict.usable == {f"{STATE}.checkpoints": (True, True)}


@pytest.mark.parametrize("kind", MEMORIES)
def test_older_blobs_have_no_prefix(kind: str, tmp_path: Path) -> None:
    def memory(n: int) -> Memory:
        return MEMORIES[kind](n, UNROTATED)  # type: ignore[call-arg]

    scene = beside("pkcl1", memory(N), records(memory, prefix=False), version=2)
    verdict = scene.judged(tmp_path)
    assert verdict.problems == set()
    assert verdict.usable == {f"{STATE}.ckpt": (True, True)}


def test_an_anchor_below_the_window_is_no_wider_window(tmp_path: Path) -> None:
    anchored = windowed(N, window=WINDOW + 1)
    verdict = appended(anchored, records(windowed)).judged(tmp_path)
    assert verdict.codes == set()


def test_a_sidecar_alone_is_judged_by_itself(tmp_path: Path) -> None:
    scene = beside("pkcl1", hybrid(N), records(hybrid))
    assert scene.judged(tmp_path, ".ckpt").codes == set()
    (tmp_path / STATE).unlink()
    assert judged(tmp_path / f"{STATE}.ckpt").codes == {"sidecar.orphan"}


# -- one defect each -------------------------------------------------------------------------------


def changed(memory: Callable[[int], Memory], last: bool = True, **changes: object) -> Scene:
    """An appendix whose last record has other numbers or another blob."""
    made = records(memory)
    made[-1 if last else 0] = replace(made[-1 if last else 0], **changes)  # type: ignore[arg-type]
    return appended(memory(N), made)


def patched(scene: Scene, suffix: str, at: int, code: str, value: int) -> Scene:
    """The scene with one word of a file overwritten."""
    data = bytearray(scene.files[suffix])
    struct.pack_into("<" + code, data, at, value)
    scene.files[suffix] = bytes(data)
    return scene


def grown(scene: Scene, suffix: str, by: int) -> Scene:
    data = scene.files[suffix]
    scene.files[suffix] = data + bytes(by) if by > 0 else data[:by]
    return scene


def reblobbed(family: str, blob: Callable[[bytes], bytes]) -> Scene:
    made = records(hybrid)
    assert isinstance(made[-1].tgt, bytes)
    made[-1] = replace(made[-1], tgt=blob(made[-1].tgt))
    return appended(hybrid(N), made) if family == "sckp1" else beside(family, hybrid(N), made)


def aged(family: str, seconds: int) -> Scene:
    scene = beside(family, hybrid(N), records(hybrid))
    scene.ages[SUFFIXES[family]] = seconds
    return scene


def with_file(scene: Scene, suffix: str, content: bytes) -> Scene:
    scene.files[suffix] = content
    return scene


def without(scene: Scene, suffix: str) -> Scene:
    del scene.files[suffix]
    return scene


def misplaced(n: int, pos: int) -> Memory:
    """A window of which one cell stands somewhere else."""
    swa = attention(n, windowed=True)
    held = tuple(Cell(pos) if cell.pos == n - 5 else cell for cell in cells(n - WINDOW, n))
    return Memory({"base": attention(n), "swa": replace(swa, streams=(held,))}, ROTATED)


def holed(n: int) -> Memory:
    """A window in which one position is missing."""
    swa = attention(n, windowed=True)
    kept = tuple(cell for cell in cells(n - WINDOW, n) if cell.pos != n - 5)
    return Memory({"base": attention(n), "swa": replace(swa, streams=(kept,))}, ROTATED)


def other_rows(blob: bytes) -> bytes:
    """The blob of `hybrid` with another first row: 40 bytes of headers, then 96 of the row."""
    return blob[:40] + bytes(byte ^ 0x5A for byte in blob[40:136]) + blob[136:]


def pkcl(made: list[Checkpoint] | None = None) -> Scene:
    return beside("pkcl1", hybrid(N), records(hybrid) if made is None else made)


def len_sckp(scene: Scene) -> int:
    """Where the appendix begins."""
    return scene.files[""].index(b"SCKP")


def appendix_word(at: int, code: str, value: int) -> Scene:
    scene = appended(hybrid(N), records(hybrid))
    return patched(scene, "", len_sckp(scene) + at, code, value)


def many(family: str, count: int) -> Scene:
    return beside(family, hybrid(N), records(hybrid)[:1] * count)


def tip(rows: Callable[[bytes], bytes]) -> Scene:
    made = record(hybrid(N), N)
    assert isinstance(made.tgt, bytes)
    return appended(hybrid(N), [replace(made, tgt=rows(made.tgt))])


DEFECTS: dict[str, Callable[[], Scene]] = {
    "sidecar.truncated": lambda: grown(pkcl(), ".ckpt", -1),
    "sidecar.truncated-unchecked": lambda: grown(beside_ik(), ".checkpoints", -1),
    "sidecar.trailing-bytes": lambda: grown(pkcl(), ".ckpt", 3),
    "sidecar.count-exceeds-file": lambda: patched(pkcl(), ".ckpt", 8, "I", 3),
    "sidecar.unchecked-size": lambda: patched(
        beside("llcp1", hybrid(N), records(hybrid)), ".checkpoints", 8, "I", 0xFFFFFFFF
    ),
    "sidecar.count-above-limit": lambda: many("stck2", 65),
    "sidecar.length-above-limit": lambda: patched(pkcl(), ".ckpt", 28, "Q", (1 << 34) + 1),
    "sidecar.empty": lambda: pkcl([]),
    "sidecar.unknown-version": lambda: patched(pkcl(), ".ckpt", 4, "I", 7),
    "sidecar.hash-mismatch": lambda: patched(
        beside("pkcl2", hybrid(N), records(hybrid)), ".ckpt", 8, "Q", 1
    ),
    "sidecar.prompt-mismatch": lambda: patched(
        beside("stck2", hybrid(N), records(hybrid)), ".ckpt", 20, "Q", N + 1
    ),
    "appendix.truncated": lambda: grown(appended(hybrid(N), records(hybrid)), "", -1),
    "appendix.count-exceeds-file": lambda: appendix_word(8, "I", 3),
    "appendix.magic": lambda: appendix_word(0, "I", 0x12345678),
    "appendix.unknown-version": lambda: appendix_word(4, "I", 2),
    "appendix.empty": lambda: appended(hybrid(N), []),
    "checkpoint.beyond-state": lambda: appended(
        hybrid(N), [record(hybrid(40), 40), record(hybrid(N + 1), N + 1)]
    ),
    "checkpoint.never-picked": lambda: changed(windowed, pos_max=N + 1),
    "checkpoint.positions-invalid": lambda: changed(hybrid, pos_min=88),
    "checkpoint.n-tokens-invalid": lambda: changed(hybrid, last=False, n_tokens=0),
    "checkpoint.n-tokens-mismatch": lambda: changed(windowed, n_tokens=80),
    "checkpoint.n-tokens-low": lambda: changed(windowed, n_tokens=86),
    "checkpoint.n-tokens-high": lambda: changed(hybrid, n_tokens=89),
    "checkpoint.not-ascending": lambda: appended(hybrid(N), records(hybrid)[::-1]),
    "checkpoint.recurrent-range": lambda: changed(hybrid, pos_min=86),
    "checkpoint.window-gap": lambda: appended(
        windowed(N), [record(windowed(40), 40), record(holed(88), 88)]
    ),
    "checkpoint.window-short": lambda: appended(
        windowed(N), [record(windowed(40), 40), record(windowed(88, window=WINDOW - 1), 88)]
    ),
    "checkpoint.position-mismatch": lambda: changed(hybrid, n_tokens=80, pos_min=79, pos_max=79),
    "checkpoint.positions-differ": lambda: changed(hybrid, pos_max=88),
    "checkpoint.other-content": lambda: tip(other_rows),
    "checkpoint.full-blob": lambda: beside("pkcl1", plain(N), records(plain)),
    "checkpoint.draft-data": lambda: changed(hybrid, dft=b"draft"),
    "checkpoint.blob-empty": lambda: reblobbed("pkcl1", lambda blob: b""),
    "checkpoint.blob-truncated": lambda: reblobbed("pkcl1", lambda blob: blob[:-1]),
    "checkpoint.blob-trailing-bytes": lambda: reblobbed("pkcl1", lambda blob: blob + b"\1"),
    "checkpoint.blob-unreadable": lambda: reblobbed("pkcl1", lambda blob: bytes(len(blob))),
    "checkpoint.blob-geometry": lambda: pkcl(
        [record(hybrid(40, n_layer=5), 40), record(hybrid(88), 88)]
    ),
    "checkpoint.blob-prefix": lambda: reblobbed("pkcl1", lambda blob: blob[8:]),
    "checkpoint.blob-rotation": lambda: beside(
        "pkcl1", windowed(N), [record(windowed(40), 40), record(windowed(88, UNROTATED), 88)]
    ),
    "appendix.blob-empty": lambda: reblobbed("sckp1", lambda blob: b""),
    "appendix.blob-truncated": lambda: reblobbed("sckp1", lambda blob: blob[:-1]),
    "appendix.blob-trailing-bytes": lambda: reblobbed("sckp1", lambda blob: blob + b"\1"),
    "appendix.blob-unreadable": lambda: reblobbed("sckp1", lambda blob: bytes(len(blob))),
    "appendix.blob-geometry": lambda: appended(
        windowed(N), [record(windowed(40, size=32), 40), record(windowed(88), 88)]
    ),
    "appendix.blob-prefix": lambda: reblobbed("sckp1", lambda blob: blob[8:]),
    "appendix.blob-rotation": lambda: appended(
        windowed(N), [record(windowed(40), 40), record(windowed(88, UNROTATED), 88)]
    ),
    "checkpoint.blob-cells": lambda: beside(
        "pkcl1", windowed(N), [record(windowed(40), 40), record(misplaced(88, 87), 88)]
    ),
    "appendix.blob-cells": lambda: appended(
        windowed(N), [record(windowed(40), 40), record(misplaced(88, -1), 88)]
    ),
    "sidecar.unknown": lambda: with_file(
        Scene({"": slot(hybrid(N))}), ".ckpt", b"PK\3\4" + bytes(60)
    ),
    "sidecar.foreign": lambda: Scene(
        {
            "": slot(hybrid(N)),
            ".checkpoints": listed("ik", records(ik), b""),
            ".tokens.json": ik_tokens(range(100, 100 + N)),
        }
    ),
    "sidecar.stale": lambda: aged("pkcl1", 60),
    "sidecar.two-carriers": lambda: with_file(
        appended(hybrid(N), records(hybrid)), ".ckpt", listed("pkcl1", records(hybrid), b"")
    ),
    "sidecar.leftover": lambda: with_file(Scene({"": slot(hybrid(N))}), ".tmp", b"half"),
    "sidecar.tokens-unreadable": lambda: grown(beside_ik(), ".tokens.json", -1),
    "sidecar.tokens-ignored": lambda: with_file(
        beside_ik(),
        ".tokens.json",
        ik_tokens(range(100, 100 + N)).replace(b'"version":1', b'"version":2'),
    ),
    "sidecar.tokens-missing": lambda: without(beside_ik(), ".tokens.json"),
    "sidecar.tokens-mismatch": lambda: with_file(
        beside_ik(), ".tokens.json", ik_tokens([*range(100, 99 + N), 7])
    ),
    "sidecar.marker-missing": lambda: without(beside("stck2", hybrid(N), records(hybrid)), ".gen"),
    "sidecar.marker-mismatch": lambda: with_file(
        beside("stck2", hybrid(N), records(hybrid)), ".hbnd", b"five."
    ),
}

ALONG = {
    "sidecar.foreign": {"checkpoint.blob-prefix"},
    "sidecar.count-above-limit": {"checkpoint.not-ascending"},
    "checkpoint.full-blob": set(),
}
"""What else is true of a scene."""

WHOLE_LIST = {
    "sidecar.truncated",
    "sidecar.count-exceeds-file",
    "sidecar.unchecked-size",
    "sidecar.count-above-limit",
    "sidecar.length-above-limit",
    "sidecar.unknown-version",
    "sidecar.hash-mismatch",
    "sidecar.prompt-mismatch",
    "appendix.truncated",
    "appendix.count-exceeds-file",
    "appendix.magic",
    "appendix.unknown-version",
    "appendix.blob-empty",
}
"""Defects after which a reader takes none of the records."""


@pytest.mark.parametrize("code", DEFECTS)
def test_a_defect_has_its_code(code: str, tmp_path: Path) -> None:
    verdict = DEFECTS[code]().judged(tmp_path)
    assert code in verdict.codes
    assert verdict.problems - {code} <= ALONG.get(code, set())
    for finding in verdict.findings:
        assert finding.message
        assert finding.expected != finding.actual
        size = (tmp_path / (finding.carrier or STATE)).stat().st_size
        assert 0 <= finding.span.start <= finding.span.stop <= size


@pytest.mark.parametrize("code", [code for code in DEFECTS if not code.startswith("sidecar.t")])
def test_only_what_the_defect_hits_is_unusable(code: str, tmp_path: Path) -> None:
    verdict = DEFECTS[code]().judged(tmp_path)
    severe = CODES[code].severity is Severity.ERROR or code.startswith("appendix.blob")
    severe |= code in ("checkpoint.n-tokens-invalid", "checkpoint.never-picked")
    for flags in verdict.usable.values():
        if code in WHOLE_LIST:
            assert not any(flags)
        elif code == "checkpoint.other-content":
            assert flags == (False,)
        elif code.startswith(("checkpoint.", "appendix.")) and flags:
            assert flags.count(False) == int(severe)


P = 87
"""The position that the last record of these lists stands at; it has 88 tokens."""


@pytest.mark.parametrize(
    ("memory", "numbers", "problems", "taken"),
    [
        (hybrid, {"n_tokens": P}, {"n-tokens-mismatch"}, False),
        (hybrid, {"n_tokens": P + 2}, {"n-tokens-high"}, True),
        (hybrid, {"n_tokens": N + 100}, {"n-tokens-high"}, True),
        (hybrid, {"n_tokens": -1}, {"n-tokens-high", "not-ascending"}, True),
        (hybrid, {"n_tokens": 0}, {"n-tokens-invalid", "not-ascending"}, False),
        (hybrid, {"pos_min": P - 1}, {"recurrent-range"}, False),
        (hybrid, {"pos_min": -1}, {"recurrent-range", "positions-invalid"}, False),
        (hybrid, {"pos_min": P + 1}, {"positions-invalid"}, True),
        (hybrid, {"pos_max": P - 1}, {"positions-invalid"}, True),
        (hybrid, {"pos_max": P + 1}, {"positions-differ"}, True),
        (hybrid, {"pos_max": N + 1}, {"never-picked"}, False),
        (hybrid, {"pos_min": P - 1, "pos_max": P + 1}, {"recurrent-range"}, False),
        (hybrid, {"pos_min": P - 1, "pos_max": P - 1}, {"position-mismatch"}, False),
        (hybrid, {"pos_min": P + 1, "pos_max": P + 1}, {"positions-differ"}, True),
        (
            hybrid,
            {"n_tokens": P + 2, "pos_min": P + 1, "pos_max": P + 1},
            {"position-mismatch"},
            False,
        ),
        (hybrid, {"pos_min": -1, "pos_max": 0}, {"positions-invalid", "n-tokens-invalid"}, False),
        (windowed, {"n_tokens": P}, {"n-tokens-low"}, True),
        (windowed, {"n_tokens": P - 1}, {"n-tokens-low"}, True),
        (windowed, {"n_tokens": P - 4}, {"n-tokens-mismatch"}, False),
        (windowed, {"pos_min": -1}, {"positions-invalid"}, True),
        (windowed, {"pos_min": 72}, set(), True),
        (windowed, {"pos_min": 73}, {"positions-differ"}, True),
        (windowed, {"pos_min": N - WINDOW}, {"never-picked"}, False),
        (windowed, {"pos_max": P - 1}, {"position-mismatch"}, False),
        (windowed, {"pos_max": P - 1, "pos_min": 72}, {"positions-differ"}, True),
        (windowed, {"pos_max": P + 1}, {"positions-differ"}, True),
        (windowed, {"pos_max": N}, {"positions-differ"}, True),
        (windowed, {"pos_max": N + 1}, {"never-picked"}, False),
    ],
)
def test_numbers_are_judged_by_where_a_server_goes_on(
    memory: Callable[[int], Memory],
    numbers: dict[str, int],
    problems: set[str],
    taken: bool,
    tmp_path: Path,
) -> None:
    verdict = changed(memory, **numbers).judged(tmp_path)
    assert verdict.codes == {f"checkpoint.{problem}" for problem in problems}
    assert verdict.usable == {"": (True, taken)}


@pytest.mark.parametrize(
    ("family", "taken"), [("pkcl1", (True, True)), ("slck1", (False,) * 2), ("stck2", (False,) * 2)]
)
def test_readers_differ_on_absurd_numbers(
    family: str, taken: tuple[bool, ...], tmp_path: Path
) -> None:
    made = records(hybrid)
    made[-1] = replace(made[-1], pos_min=P + 1)
    verdict = beside(family, hybrid(N), made).judged(tmp_path)
    assert verdict.problems == {"checkpoint.positions-invalid"}
    assert verdict.usable == {f"{STATE}.ckpt": taken}


def test_another_save_is_worse_in_a_sidecar(tmp_path: Path) -> None:
    far = [record(hybrid(40), 40), record(hybrid(N + 9), N + 9)]
    assert appended(hybrid(N), far).judged(tmp_path).codes == {"checkpoint.never-picked"}
    assert "checkpoint.beyond-state" in beside("slck1", hybrid(N), far).judged(tmp_path).codes


def test_a_window_of_unknown_size_proves_little(tmp_path: Path) -> None:
    def memory(n: int) -> Memory:
        return windowed(n, UNROTATED)

    made = records(memory, prefix=False)
    for n_tokens, problem in ((P - 4, "n-tokens-low"), (60, "n-tokens-mismatch")):
        made[-1] = replace(made[-1], n_tokens=n_tokens)
        verdict = beside("pkcl1", memory(N), made, version=2).judged(tmp_path)
        assert verdict.problems == {f"checkpoint.{problem}"}


def test_every_code_has_a_defect() -> None:
    registered = {
        code
        for module in (list_codes, bundle_checks)
        for code in CODES
        if f'"{code}"' in Path(str(module.__file__)).read_text(encoding="utf-8")
    }
    registered |= {code for code in CODES if ".blob-" in code}
    apart = {"sidecar.orphan", "sidecar.unreadable"}  # names, not bytes: tested with files
    assert registered - HARMLESS - apart == set(DEFECTS)


def test_bongo_keeps_the_records_before_a_cut(tmp_path: Path) -> None:
    scene = grown(beside("bkcp1", hybrid(N), records(hybrid)), ".ckpt", -1)
    verdict = scene.judged(tmp_path)
    assert verdict.problems == {"sidecar.truncated"}
    assert verdict.usable == {f"{STATE}.ckpt": (True, False)}


def test_readers_differ_on_bytes_behind_the_end(tmp_path: Path) -> None:
    for family, taken in (("pkcl1", True), ("pkcl2", False), ("stck2", False)):
        scene = grown(beside(family, hybrid(N), records(hybrid)), ".ckpt", 1)
        assert scene.judged(tmp_path).usable == {f"{STATE}.ckpt": (taken, taken)}
        for suffix in scene.files:
            (tmp_path / (STATE + suffix)).unlink()


@pytest.mark.parametrize("family", ["lsckpt2", "slck1", "stck2", "pkcl2"])
def test_families_that_rewrite_their_sidecar_are_never_stale_by_age(
    family: str, tmp_path: Path
) -> None:
    assert aged(family, 10**6).judged(tmp_path).problems == set()


def test_a_few_seconds_are_no_age(tmp_path: Path) -> None:
    assert aged("pkcl1", 4).judged(tmp_path).problems == set()


def test_records_beyond_the_state_prove_a_stale_sidecar(tmp_path: Path) -> None:
    made = [record(hybrid(4096), 4096)]
    verdict = beside("pkcl1", hybrid(N), made).judged(tmp_path)
    assert verdict.problems == {"checkpoint.beyond-state", "sidecar.stale"}
    stale = next(finding for finding in verdict.findings if finding.code == "sidecar.stale")
    assert "4,096" in stale.message
    assert stale.carrier == f"{STATE}.ckpt"


def test_a_cut_anywhere_in_the_appendix_leaves_the_state_alone(tmp_path: Path) -> None:
    scene = appended(hybrid(N), records(hybrid))
    whole, begins = scene.files[""], len_sckp(scene)
    for cut in range(begins + 4, len(whole), 97):
        verdict = Scene({"": whole[:cut]}).judged(tmp_path)
        assert len(verdict.problems & {"appendix.truncated", "appendix.count-exceeds-file"}) == 1
        assert not any(verdict.usable[""])


def test_sidecars_under_several_names_are_said(tmp_path: Path) -> None:
    pkcl().judged(tmp_path)
    os.link(tmp_path / f"{STATE}.ckpt", tmp_path / "other.bin.ckpt")
    assert "sidecar.shared" in judged(tmp_path / STATE).codes


def test_every_code_says_what_follows_and_what_to_do() -> None:
    for code in DEFECTS:
        about = CODES[code]
        assert about.meaning
        assert about.consequence
        assert about.advice
        assert about.source
        if about.remedy is RemedyKind.LOSSY:
            assert about.advice != "not needed"


def test_the_magic_of_ik_lists_is_that_of_states() -> None:
    assert int.from_bytes(listed("ik", [], b"")[:4], "little") == GGSQ
