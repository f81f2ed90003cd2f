"""Cut states: the end that is computed is the end that the whole file had."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inspector.model.geometry import MemoryExpectation, memory_of
from inspector.model.gguf import ModelFile, read_model
from inspector.report import examined
from inspector.source import opened
from samples.small import CELLS, K, V, cache, first, memory, seq_dialect
from tests.corpus.test_model import OWN, SAMPLES
from tests.corpus.test_model import memory as model_of
from tests.support.writer import F16, Memory, Row, Slot, Tokens, pack

CUTS = 24
ALONE = "nothing follows this section"
"""What the end depends on where no model says which sections there are."""


def ends_said(path: Path, model: MemoryExpectation | None = None) -> list[tuple[int, set[str]]]:
    """Every end that is claimed of a file, with the conditions of the claim."""
    with examined(path, model=model) as report:
        lines = [line for finding in report.findings for line in finding.evidence]
    found = [re.fullmatch(r"whole it has ([\d,]+) bytes(?:, if (.+))?", line) for line in lines]
    return [
        (int(one[1].replace(",", "")), set((one[2] or "").split(" and ")) - {""})
        for one in found
        if one is not None
    ]


def cuts(data: bytes, first: int, end: int, path: Path) -> Iterator[int]:
    """Write the beginning of the file, of many lengths, one after another."""
    for at in range(first, end, max(1, (end - first) // CUTS)):
        path.write_bytes(data[:at])
        yield at


def whole(name: str) -> tuple[bytes, list[int], int]:
    """The bytes of a sample, the ends of its sections, and the first byte in its second layer."""
    path = SAMPLES / f"intact/{name}.slot"
    with examined(path) as report:
        ends = [section.span.stop for section in report.sections]
        first = report.sections[0].blocks[1].span.start + 13
    return path.read_bytes(), ends, first


@pytest.mark.parametrize("name", OWN)
def test_without_a_model_it_is_the_end_of_a_section(name: str, tmp_path: Path) -> None:
    data, ends, start = whole(name)
    for _ in cuts(data, start, ends[-1], tmp_path / "state"):
        for end, conditions in ends_said(tmp_path / "state"):
            assert end in ends
            assert conditions == {ALONE}


@pytest.mark.parametrize("name", OWN)
def test_with_its_model_it_is_the_end_of_the_state(name: str, tmp_path: Path) -> None:
    data, ends, start = whole(name)
    model = model_of(OWN[name])
    for _ in cuts(data, start, ends[-1], tmp_path / "state"):
        with examined(tmp_path / "state") as report:
            if not any(finding.code == "file.truncated" for finding in report.findings):
                continue  # it ends where a section does
        ((end, conditions),) = ends_said(tmp_path / "state", model)
        assert end == ends[-1]
        follows = {"no checkpoints follow"} if name.startswith("ggsq4") else set()
        assert conditions - {"its values are of the type of its keys"} == follows


@pytest.mark.parametrize("name", OWN)
def test_a_model_of_other_widths_says_nothing(name: str, tmp_path: Path) -> None:
    data, ends, start = whole(name)
    model = model_of(OWN[name])
    other = replace(
        model, caches=tuple(replace(c, k=tuple(n + 32 for n in c.k)) for c in model.caches)
    )
    for _ in cuts(data, start, ends[0], tmp_path / "state"):
        assert not model.caches or ends_said(tmp_path / "state", other) == []


# -- forms ----------------------------------------------------------------------------------------


def in_values(packed_data: bytes, path: Path, missing: int = 5) -> list[tuple[int, set[str]]]:
    path.write_bytes(packed_data[:-missing])
    return ends_said(path)


@pytest.mark.parametrize("v_trans", [0, 1])
@pytest.mark.parametrize("stream", [0, 2, 3])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_streams_behind_the_one_with_cells_count_too(
    version: int, stream: int, v_trans: int, tmp_path: Path
) -> None:
    streams = tuple(CELLS if at == stream else () for at in range(4))
    attn = replace(cache(CELLS), streams=streams, v_trans=v_trans)
    tokens = Tokens(tuple(range(len(CELLS))))
    held = Memory({"attn": attn}, seq_dialect(version))
    data = pack(Slot(version, tokens, held)).data
    assert in_values(data, tmp_path / "state", 4 * (3 - stream) + 5) == [(len(data), {ALONE})]


def test_values_of_other_rows_than_any_that_was_read_are_not_guessed(tmp_path: Path) -> None:
    wide_k, wide_v = Row(F16, 32), Row(F16, 48)
    attn = replace(cache(CELLS), k=(K, K, wide_k), v=(V, V, wide_v))
    held = Memory({"attn": attn}, seq_dialect(2))
    packed = pack(Slot(2, Tokens(tuple(range(len(CELLS)))), held))
    last = packed.mark("attn.streams[0].v[2].data").start
    path = tmp_path / "state"
    path.write_bytes(packed.data[: last - 20])
    assert ends_said(path) == []
    path.write_bytes(packed.data[: last + 20])
    assert ends_said(path) == [(len(packed.data), {ALONE})]


@pytest.mark.parametrize("kind", ["kv", "iswa"])
def test_keys_do_not_tell_whether_values_follow(kind: str, tmp_path: Path) -> None:
    held = memory(kind, seq_dialect(2))
    packed = pack(Slot(2, Tokens(tuple(range(len(CELLS)))), held))
    part = "attn" if kind == "kv" else "swa"
    path = tmp_path / "state"
    path.write_bytes(packed.data[: packed.mark(f"{part}.streams[0].k[1].data").start + 3])
    assert ends_said(path) == []


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_states_are_as_many_as_histories(kind: str, tmp_path: Path) -> None:
    held = memory(kind, seq_dialect(2))
    packed = pack(Slot(2, Tokens(tuple(range(len(CELLS)))), held))
    path = tmp_path / "state"
    for block, expected in ((1, []), (2, [(len(packed.data), {ALONE})])):
        path.write_bytes(packed.data[: packed.mark(f"recr.blocks[{block}].data").start + 3])
        assert ends_said(path) == expected


@pytest.mark.parametrize(("version", "n", "known"), [(2, 4, True), (2, 12, False), (3, 12, True)])
def test_a_window_that_is_not_there_at_all(
    version: int, n: int, known: bool, tmp_path: Path
) -> None:
    """Builds before b9473 saved whatever their windowed cache held."""
    tokens = first(n)
    held = memory("iswa", seq_dialect(version), tokens)
    packed = pack(Slot(version, tokens, held))
    path = tmp_path / "state"
    path.write_bytes(packed.data[: packed.mark("base.streams[0].v[1].data").start + 3])
    with opened(SAMPLES / "models/gemma2.gguf") as source:
        header = read_model(source)
    assert isinstance(header, ModelFile)
    assert ends_said(path, memory_of(header)) == ([(len(packed.data), set())] if known else [])
