"""The bars that `--deep` draws: one for each layer."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app
from samples.small import CELLS, DIALECTS, K, V, cache, memory, seq_dialect
from tests.support.writer import Context, Memory, Packable, Session, Slot, Tokens, pack

TOKENS = Tokens(tuple(range(len(CELLS))))
HEADING = "norms by layer, to the largest of each row"


def rows(
    path: Path,
    what: Packable,
    monkeypatch: pytest.MonkeyPatch,
    scale: dict[int, float],
    locale: str,
) -> list[str]:
    """The rows of bars; keys of a layer are constants of that size, values ones."""

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        return struct.pack("<e", scale.get(layer, 1.0)) * (size // 2)

    path.write_bytes(pack(what, values).data)
    monkeypatch.setenv("LC_ALL", locale)
    lines = CliRunner().invoke(app, ["inspect", "--deep", str(path)]).output.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith(str(path)))
    first = lines.index(HEADING) + 1
    return lines[first : lines.index("", first)]


def slot(n_layer: int) -> Slot:
    attn = replace(cache(CELLS), k=(K,) * n_layer, v=(V,) * n_layer)
    return Slot(2, TOKENS, Memory({"attn": attn}, seq_dialect(2)))


def test_a_bar_is_as_high_as_the_norm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = {0: 0.0, 1: 1 / 7, 2: 0.5, 3: 1.0, 4: math.inf, 5: math.nan}
    seen = rows(tmp_path / "state", slot(6), monkeypatch, scale, "")
    assert seen == ["attn K  ▁▂▅█!!  up to 1", "attn V  ▁▂▅█!!  up to 1"]
    seen = rows(tmp_path / "state", slot(6), monkeypatch, scale, "C")
    assert seen == ["attn K  _.+#!!  up to 1", "attn V  _.+#!!  up to 1"]


def test_many_layers_take_several_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = rows(tmp_path / "state", slot(94), monkeypatch, {93: 2.0}, "")
    assert seen[:3] == ["attn K  " + "▅" * 40, " " * 8 + "▅" * 40, f"{'':8}{'▅' * 13}█  up to 2"]
    assert len(seen) == 6


@pytest.mark.parametrize("norm", [0.0, math.nan])
def test_nothing_to_scale_by(norm: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = rows(tmp_path / "state", slot(2), monkeypatch, {0: norm, 1: norm}, "")
    assert seen[0] == ("attn K  ▁▁" if norm == 0 else "attn K  !!")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("hybrid-iswa", ["base K", "base V", "swa K", "swa V", "recr R", "recr S"]),
        (
            "dsv4",
            [
                "dsv4.swa K",
                *(f"dsv4.{part} keys" for part in ("csa", "lid")),
                *(
                    f"dsv4.{part}_state {t}"
                    for part in ("csa", "hca", "lid")
                    for t in ("kv", "score")
                ),
            ],
        ),
    ],
)
def test_every_kind_of_block_has_a_row(
    kind: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Slot(2, TOKENS, memory(kind, seq_dialect(2)))
    seen = rows(tmp_path / "state", held, monkeypatch, {}, "")
    assert [" ".join(row.split()[:2]) for row in seen] == expected


def test_every_stream_has_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attn = replace(cache(CELLS), streams=(CELLS[:6], CELLS[6:]))
    held = Memory({"attn": attn}, replace(DIALECTS[""], ids="all"))
    seen = rows(
        tmp_path / "state", Session(9, TOKENS.ids, Context(b"llama", held)), monkeypatch, {}, ""
    )
    assert [row.split("  ")[0] for row in seen] == ["attn 0 K", "attn 1 K", "attn 0 V", "attn 1 V"]
