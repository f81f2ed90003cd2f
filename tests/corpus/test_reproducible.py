"""States of known sizes, built by hand: what inspection says of each, byte for byte.

The models: A is llama with 2 layers, one KV head of 32; G is gemma3 with 6 layers, one of them
dense; L is lfm2 with 4 layers, two of them short convolutions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.layouts import by_id
from inspector.decode import decode
from inspector.findings import Finding, RemedyKind, Severity
from inspector.identify import Verdict
from inspector.node import walk
from inspector.report import Report, examined
from inspector.source import opened
from tests.support.damage import set_field
from tests.support.writer import (
    F16,
    F32,
    Cache,
    Cell,
    Dialect,
    IkMemory,
    Memory,
    Packed,
    Recurrent,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
    small_numbers,
)

HEAD = Row(F16, 64)
CONVOLUTION, NO_STATE = Row(F32, 512), Row(F32, 0)
LLAMA = (HEAD, HEAD)


def tokens(n: int) -> Tokens:
    return Tokens(tuple((37 * i + 11) % 251 + 1 for i in range(n)))


def slot(n: int, version: int = 2, **sections: Cache | Recurrent) -> Packed:
    return pack(Slot(version, tokens(n), Memory(sections, Dialect(rotation=version == 4))))


def model_a(n: int = 40, version: int = 2, v_trans: int = 0) -> Packed:
    attn = Cache((cells_of(tokens(n)),), LLAMA, LLAMA, v_trans)
    return slot(n, version, attn=attn)


def model_g(n: int) -> Packed:
    cells = cells_of(tokens(n))
    base = Cache((cells,), (HEAD,), (HEAD,))
    return slot(n, base=base, swa=Cache((cells,), (HEAD,) * 5, (HEAD,) * 5, windowed=True))


def model_l(n: int) -> Packed:
    cells = cells_of(tokens(n))
    recr = Recurrent(cells[-1:], 4, (CONVOLUTION,) * 2, (NO_STATE,) * 2)
    return slot(n, attn=Cache((cells,), LLAMA, LLAMA), recr=recr)


class Inspected:
    """A report on bytes, after it was closed."""

    def __init__(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        with examined(path) as report:
            self.report: Report = report
            self.verdict = report.identification.verdict
            self.findings = {finding.code: finding for finding in report.findings}
            self.sections = {section.path: section for section in report.sections}
            root = report.identification.root
            self.spans = {at: (n.span.start, n.span.stop) for at, n in walk(root)} if root else {}
            self.stored = {
                name: [block.path.rpartition(".")[2] for block in section.blocks]
                for name, section in self.sections.items()
            }

    def finding(self) -> Finding:
        """The only one."""
        ((_, finding),) = self.findings.items()
        return finding


# -- R1: a cut that aborts a server ----------------------------------------------------------------


def test_every_byte_of_a_slot_file_of_llama(tmp_path: Path) -> None:
    seen = Inspected(tmp_path / "state", model_a().data)
    stream = "attn.streams[0]"
    assert seen.spans["tokens"] == (12, 172)
    assert seen.spans["attn.n_stream"] == (172, 176)
    assert seen.spans[f"{stream}.cell_count"] == (176, 180)
    assert seen.spans[f"{stream}.cells"] == (180, 660)
    assert seen.spans[f"{stream}.v_trans"] == (660, 664)
    assert seen.spans[f"{stream}.n_layer"] == (664, 668)
    ends = [seen.spans[f"{stream}.{block}"] for block in ("k[0]", "k[1]", "v[0]", "v[1]")]
    assert ends == [(668, 3240), (3240, 5812), (5812, 8384), (8384, 10956)]
    assert seen.report.size == 10956
    assert not seen.findings


@pytest.mark.parametrize(
    ("kept", "incomplete", "absent"),
    [
        (10955, "attn.streams[0].v[1].data", None),
        (8000, "attn.streams[0].v[0].data", "attn.streams[0].v[1] is missing altogether"),
    ],
)
def test_a_cut_says_what_is_incomplete_and_how_long_it_was(
    kept: int, incomplete: str, absent: str | None, tmp_path: Path
) -> None:
    seen = Inspected(tmp_path / "state", model_a().data[:kept])
    found = seen.finding()
    assert seen.verdict is Verdict.DAMAGED
    assert (found.code, found.path, found.severity) == (
        "file.truncated",
        incomplete,
        Severity.ERROR,
    )
    assert found.span.stop == kept
    assert found.evidence[0].startswith("whole it has 10,956 bytes")
    assert found.evidence[1:] == ((absent,) if absent else ())
    assert "aborts the whole server" in found.about.consequence
    assert found.about.remedy is RemedyKind.LOSSY
    assert "the tokens that are left" in found.about.advice
    assert seen.report.tokens is not None
    assert seen.report.tokens.count == 40


# -- R2, R3: streams and the layout of values ------------------------------------------------------


def test_a_slot_of_four_caches(tmp_path: Path) -> None:
    streams: tuple[tuple[Cell, ...], ...] = ((), (), cells_of(tokens(40)), ())
    seen = Inspected(tmp_path / "state", slot(40, attn=Cache(streams, LLAMA, LLAMA)).data)
    attn = seen.sections["attn"]
    assert seen.report.size == 10968
    assert (attn.n_stream, attn.streams, attn.cells) == (4, (2,), 40)
    counts = [seen.spans[f"attn.streams[{i}].cell_count"] for i in range(4)]
    assert [stop - start for start, stop in counts] == [4] * 4
    assert not seen.findings


def test_transposed_values_take_as_many_bytes(tmp_path: Path) -> None:
    seen = Inspected(tmp_path / "state", model_a(v_trans=1).data)
    attn = seen.sections["attn"]
    assert seen.report.size == 10956
    assert attn.v_trans == 1
    assert [(b.element_bytes, b.row_bytes) for b in attn.v] == [(2, 64)] * 2
    assert not seen.findings


# -- R4: long enough not to fit --------------------------------------------------------------------


@pytest.mark.parametrize(("n", "n_bytes"), [(200, 54476), (100, 27276)])
def test_sizes_by_tokens(n: int, n_bytes: int, tmp_path: Path) -> None:
    seen = Inspected(tmp_path / "state", model_a(n).data)
    assert seen.report.size == n_bytes
    assert seen.sections["attn"].cells == n
    assert not seen.findings


# -- R6: what a checkpoint of the end is made of ---------------------------------------------------


def test_the_sections_of_lfm2(tmp_path: Path) -> None:
    seen = Inspected(tmp_path / "state", model_l(40).data)
    attn, recr = seen.sections["attn"], seen.sections["recr"]
    assert seen.report.size == 12048
    assert attn.span.stop == recr.span.start == 10956
    assert len(recr.span) == 1092
    assert (recr.pos_min, recr.pos_max, recr.cells) == (39, 39, 1)
    assert [block.row_bytes for block in recr.r + recr.s] == [512, 512, 0, 0]
    assert set(seen.findings) == {"reuse.needs-exact-append"}


def test_the_sections_of_gemma3(tmp_path: Path) -> None:
    seen = Inspected(tmp_path / "state", model_g(60).data)
    base, swa = seen.sections["base"], seen.sections["swa"]
    assert base.span.stop == swa.span.start
    assert len(swa.span) == 39256
    assert swa.span.stop == seen.report.size
    assert (swa.pos_min, swa.pos_max) == (0, 59)
    assert not seen.findings


# -- R7: restamped ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("stored", "stamped"), [(2, 3), (3, 2)])
def test_version_3_is_version_2_where_cells_have_no_extension(
    stored: int, stamped: int, tmp_path: Path
) -> None:
    packed = model_a(version=stored)
    data = set_field(packed, packed.mark("version"), stamped).data
    differing = [i for i, (a, b) in enumerate(zip(packed.data, data, strict=True)) if a != b]
    assert differing == [4]
    assert data == model_a(version=stamped).data
    seen = Inspected(tmp_path / "state", data)
    assert seen.verdict is Verdict.RECOGNISED
    assert not seen.findings
    with opened(tmp_path / "state") as source:
        for version in (2, 3):
            layout = by_id(f"ggsq{version}.kv")
            assert layout is not None
            assert decode(source, layout, source.whole()).complete


def test_version_4_is_not_version_3(tmp_path: Path) -> None:
    packed = model_a()
    stamped = set_field(packed, packed.mark("version"), 4).data
    found = Inspected(tmp_path / "state", stamped).finding()
    assert found.code == "envelope.version-contradicts-body"
    assert (found.expected, found.actual) in [("2", "4"), ("3", "4")]


def test_a_version_4_of_ik_is_no_restamped_file(tmp_path: Path) -> None:
    held = IkMemory(4, cells_of(tokens(40)), LLAMA, LLAMA)
    seen = Inspected(tmp_path / "state", pack(Slot(4, tokens(40), held)).data)
    identification = seen.report.identification
    assert identification.reading is not None
    assert identification.reading.layout.id == "ik4"
    assert identification.writer == "ik_llama.cpp"
    assert not any(code.startswith("envelope.") for code in seen.findings)


# -- R8: nothing decoded ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packed", "n_bytes", "what"),
    [
        (model_a(0), 20, "one attention cache"),
        (model_g(0), 28, "a full and a windowed attention cache"),
        (model_l(0), 80, "an attention cache and recurrent state"),
    ],
    ids="AGL",
)
def test_an_empty_state_is_not_corrupt(
    packed: Packed, n_bytes: int, what: str, tmp_path: Path
) -> None:
    seen = Inspected(tmp_path / "state", packed.data)
    found = seen.finding()
    assert seen.report.size == n_bytes
    assert seen.verdict is Verdict.RECOGNISED
    assert (found.code, found.severity) == ("state.empty", Severity.NOTE)
    assert found.message == f"an empty state ({what})"
    assert found.about.remedy is RemedyKind.NONE


# -- R9, R12: the end of a window ------------------------------------------------------------------


def window(n: int, cells: tuple[Cell, ...], empty: int = -1, version: int = 4) -> bytes:
    """A slot of a model with 2 windowed layers; the rows of position `empty` are zero there."""

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        hidden = part.startswith("swa") and pos == empty
        return bytes(size) if hidden else small_numbers(part, layer, pos, size)

    base = Cache((cells_of(tokens(n)),), (HEAD,), (HEAD,))
    swa = Cache((cells,), LLAMA, LLAMA, windowed=True)
    held = Memory({"base": base, "swa": swa}, Dialect(rotation=version == 4))
    return pack(Slot(version, tokens(n), held), values).data


def test_a_window_of_32_after_303_tokens(tmp_path: Path) -> None:
    seen = Inspected(tmp_path / "state", window(303, cells_of(tokens(303))[-32:]))
    swa = seen.sections["swa"]
    assert (swa.pos_min, swa.pos_max, swa.cells) == (271, 302, 32)
    found = seen.finding()
    assert found.code == "reuse.window-cut"
    assert found.expected == "cells below position 271, or checkpoints"


def test_window_cells_need_not_stand_in_order(tmp_path: Path) -> None:
    cells = cells_of(tokens(263))
    swapped = (*cells[256:263], *cells[231:256])
    seen = Inspected(tmp_path / "state", window(263, swapped))
    swa = seen.sections["swa"]
    assert (int(swa.pos[0]), swa.pos_min, swa.pos_max) == (256, 231, 262)
    assert set(seen.findings) == {"reuse.window-cut", "cells.pos-not-ascending"}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_anchor_is_explained(version: int, tmp_path: Path) -> None:
    cells = cells_of(tokens(303))[-33:]
    seen = Inspected(tmp_path / "state", window(303, cells, empty=270, version=version))
    swa = seen.sections["swa"]
    assert (swa.pos_min, swa.pos_max, swa.cells) == (270, 302, 33)
    found = seen.finding()
    assert (found.code, found.severity) == ("cells.window-anchor", Severity.NOTE)
    assert "position 270" in found.message
    assert "32 cells, 271 to 302" in found.message
    assert "can never be attended to" in found.about.consequence
