"""The window anchor: what is one, and what only looks like one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inspector.model.geometry import MemoryExpectation, WindowType, memory_of
from inspector.model.gguf import ModelFile, read_model
from inspector.report import examined
from inspector.source import opened
from samples.make import HERE as SAMPLES
from samples.small import CELLS, WINDOW, cache, memory, seq_dialect
from tests.support.writer import (
    F16,
    Q8_0,
    Cache,
    Cell,
    Row,
    Slot,
    Tokens,
    pack,
    small_numbers,
)

CODE = "cells.window-anchor"
TOKENS = Tokens(tuple(range(len(CELLS))))
ANCHOR = CELLS[-WINDOW - 1]


def state(
    path: Path,
    cells: tuple[Cell, ...] = CELLS[-WINDOW - 1 :],
    zero: tuple[str, ...] = ("swa.k", "swa.v"),
    version: int = 2,
    **changes: object,
) -> Path:
    """A slot file with a window of `cells`; the rows of `zero` are zeros at the anchor."""

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        empty = part in zero and pos == ANCHOR.pos
        return bytes(size) if empty else small_numbers(part, layer, pos, size)

    window = replace(cache(cells, windowed=True), **changes)  # type: ignore[arg-type]
    held = memory("iswa", seq_dialect(version))
    base = replace(cache(CELLS), k=window.k, v=window.v, v_trans=window.v_trans)
    held = replace(held, sections={"base": base, "swa": window})
    path.write_bytes(pack(Slot(version, TOKENS, held), values).data)
    return path


def codes(path: Path, model: MemoryExpectation | None = None) -> list[str]:
    with examined(path, model=model, deep=True) as report:
        return [finding.code for finding in report.findings]


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("v_trans", [0, 1])
def test_an_anchor_is_the_only_thing_to_say(version: int, v_trans: int, tmp_path: Path) -> None:
    path = state(tmp_path / "state", version=version, v_trans=v_trans)
    assert codes(path) == [CODE]


def test_quantized_rows(tmp_path: Path) -> None:
    rows = (Row(Q8_0, 34),) * 2
    path = state(tmp_path / "state", k=rows, v=rows)
    assert codes(path) == [CODE]


def test_it_says_where_and_how_that_is_known(tmp_path: Path) -> None:
    with examined(state(tmp_path / "state")) as report:
        (found,) = report.findings
        swa = report.sections[1]
    assert found.path == "swa.streams[0].cells[0]"
    assert found.span == swa.tables[0].row_span(0)
    assert "position 6" in found.message
    assert "7 to 11" in found.message
    assert found.evidence[1] == "zero in 4 rows"


def test_long_transposed_values_are_read_in_part(tmp_path: Path) -> None:
    wide = (Row(F16, 1 << 15),) * 2
    with examined(state(tmp_path / "state", v=wide, v_trans=1)) as report:
        (found,) = [one for one in report.findings if one.code == CODE]
        assert report.source.bytes_read < 1 << 19
    assert found.evidence[1].endswith("of transposed values the first 5,461 channels")


@pytest.mark.parametrize("zero", [(), ("swa.k",), ("swa.v",)])
@pytest.mark.parametrize("v_trans", [0, 1])
def test_rows_with_numbers_are_no_anchor(
    zero: tuple[str, ...], v_trans: int, tmp_path: Path
) -> None:
    assert CODE not in codes(state(tmp_path / "state", zero=zero, v_trans=v_trans))


@pytest.mark.parametrize(
    "cells",
    [
        (*CELLS[-WINDOW:], ANCHOR),  # it has to be the first
        (ANCHOR, *CELLS[-WINDOW + 1 :]),  # right in front of the window
        (ANCHOR, *CELLS[-WINDOW:-1]),  # which ends with the state
        (*CELLS[-WINDOW - 2 :],),  # and has nothing below the anchor
        (ANCHOR,),
    ],
)
def test_a_cell_of_zeros_elsewhere_is_no_anchor(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    assert CODE not in codes(state(tmp_path / "state", cells))


def model() -> MemoryExpectation:
    with opened(SAMPLES / "models/gemma2.gguf") as source:
        header = read_model(source)
    assert isinstance(header, ModelFile)
    found = memory_of(header)
    assert found is not None
    return found


def test_the_model_knows_the_window(tmp_path: Path) -> None:
    path = state(tmp_path / "state")
    assert codes(path, model()) == [CODE]
    for other in (
        replace(model(), n_swa=WINDOW + 1),
        replace(model(), swa_type=WindowType.CHUNKED),
    ):
        assert CODE not in codes(path, other)


def test_values_that_the_layout_does_not_have(tmp_path: Path) -> None:
    no_values = Cache((CELLS[-WINDOW - 1 :],), (Row(F16, 16),), None, windowed=True)
    held = memory("dsa-iswa", seq_dialect(2))
    held = replace(held, sections={**held.sections, "swa": no_values})

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        empty = part == "swa.k" and pos == ANCHOR.pos
        return bytes(size) if empty else small_numbers(part, layer, pos, size)

    path = tmp_path / "state"
    path.write_bytes(pack(Slot(2, TOKENS, held), values).data)
    assert CODE in codes(path)
