"""Verdicts: every code of a verdict in a situation that has it, and what the command does."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from inspector.checks import all_codes
from inspector.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
INTACT, DAMAGED = ROOT / "samples/intact", ROOT / "samples/damaged"
MODELS = ROOT / "tests/oracle/models"
LLAMA = INTACT / "ggsq2.kv--llama-b10229-short.slot"
SHORT4 = INTACT / "ggsq4.kv--llama-b11549-short.slot"
LFM2 = INTACT / "ggsq2.hybrid--lfm2-b10229.slot"
PACKED = INTACT / "ggsq2.kv--an-image.slot"
ONE = "llama-server -c 512 -np 1 -fa on"
_AT_COUNT, _AT_TOKENS = 8, 12

Edit = Callable[[bytes], bytes]


def put(at: int, code: str, *values: int) -> Edit:
    def edit(data: bytes) -> bytes:
        new = struct.pack("<" + code, *values)
        return data[:at] + new + data[at + len(new) :]

    return edit


def in_payload(at: int, code: str, *values: int) -> Edit:
    """Words behind the tokens."""

    def edit(data: bytes) -> bytes:
        (n,) = struct.unpack_from("<I", data, _AT_COUNT)
        return put(_AT_TOKENS + 4 * n + at, code, *values)(data)

    return edit


def cut(n: int) -> Edit:
    return lambda data: data[:-n]


def same(data: bytes) -> bytes:
    return data


def without_cells(data: bytes) -> bytes:
    (n,) = struct.unpack_from("<I", data, _AT_COUNT)
    return data[: _AT_TOKENS + 4 * n] + struct.pack("<II", 1, 0)


class Situation(NamedTuple):
    """A code, and what brings it about."""

    code: str
    outcome: str
    sample: Path
    build: str
    command: str = ONE
    model: str | None = "llama-gqa"
    edit: Edit = same


SITUATIONS = [
    Situation("target.not-a-slot-file", "refuses", LLAMA, "b10229", edit=put(0, "I", 1)),
    Situation("target.version-mismatch", "refuses", LLAMA, "b11549"),
    Situation("target.tokens-exceed-file", "refuses", SHORT4, "b11549", edit=put(8, "I", 1 << 30)),
    Situation(
        "target.tokens-exceed-context", "refuses", LLAMA, "b10229", edit=put(8, "I", 1 << 20)
    ),
    Situation(
        "target.tokens-invalid",
        "refuses",
        SHORT4,
        "b11549",
        edit=lambda data: data[:24] + struct.pack("<i", 1 << 20) + data[28:],
    ),
    Situation("target.tokens-packed", "accepts", PACKED, "b10229", model=None),
    Situation("target.media-needs-projector", "refuses", PACKED, "b10400", model=None),
    Situation("target.projector-refused", "refuses", LLAMA, "b9500", ONE + " --mmproj P.gguf"),
    Situation("target.n-stream-mismatch", "refuses", LLAMA, "b10229", "llama-server -c 512 -np 2"),
    Situation("target.seq-id-mismatch", "refuses", LLAMA, "b10229", edit=in_payload(12, "I", 2)),
    Situation(
        "target.cells-do-not-fit", "refuses", SHORT4, "b11549", edit=in_payload(4, "I", 9999)
    ),
    Situation(
        "target.cell-count-allocates", "refuses", LLAMA, "b10229", edit=in_payload(4, "I", 1 << 31)
    ),
    Situation("target.layer-count-mismatch", "refuses", LFM2, "b10229", model="mamba"),
    Situation(
        "target.v-trans-mismatch", "refuses", LLAMA, "b10229", "llama-server -c 512 -np 1 -fa off"
    ),
    Situation(
        "target.rotation-mismatch", "refuses", SHORT4, "b11549", edit=in_payload(76, "I", 64)
    ),
    Situation("target.type-mismatch", "refuses", LLAMA, "b10229", ONE + " -ctk q8_0"),
    Situation("target.row-size-mismatch", "refuses", LLAMA, "b10229", edit=in_payload(80, "Q", 64)),
    Situation("target.truncated", "refuses", LLAMA, "b7551", edit=cut(1)),
    Situation("target.truncated-aborts", "aborts", LLAMA, "b10229", edit=cut(1)),
    Situation(
        "target.recurrent-cells-abort",
        "aborts",
        DAMAGED / "ggsq3.recurrent--recurrent.several-cells.slot",
        "b10809",
        model=None,
    ),
    Situation(
        "target.empty-state", "accepts", INTACT / "ggsq2.kv--empty.slot", "b10229", model=None
    ),
    Situation("target.pos-min-abort", "accepts", LLAMA, "b10229", edit=without_cells),
    Situation("target.fallback-aborts", "aborts", LLAMA, "turboquant@cff2ea367", model=None),
    Situation(
        "target.companion-ignored",
        "accepts",
        INTACT / "ggsq2.hybrid--with-pkcl1.slot",
        "b10229",
        model=None,
    ),
]


def slotscope(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def checked(situation: Situation, folder: Path) -> tuple[dict[str, Any], int]:
    path = folder / "slot.bin"
    path.write_bytes(situation.edit(situation.sample.read_bytes()))
    for beside in situation.sample.parent.glob(f"{situation.sample.name}.*"):
        shutil.copyfile(beside, folder / beside.name.replace(situation.sample.name, path.name))
    words: list[str | Path] = ["check", path, "--json", "--for", situation.command]
    words += ["--build", situation.build]
    if situation.model is not None:
        words += ["--model", MODELS / f"{situation.model}.gguf"]
    result = slotscope(*words)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout), result.exit_code


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.code)
def test_a_situation_of_every_code(situation: Situation, tmp_path: Path) -> None:
    document, exit_code = checked(situation, tmp_path)
    assert document["schema"] == "slotscope.check/1"
    assert document["restore"]["outcome"] == situation.outcome
    found = {finding["code"]: finding for finding in document["findings"]}
    assert situation.code in found
    if situation.outcome != "accepts":
        assert document["restore"]["reason"] == situation.code
        assert exit_code == 1
        assert {answer["reused"] for answer in document["reuse"]} == {
            0 if situation.outcome == "refuses" else None
        }


def test_every_code_of_a_restore_has_a_situation() -> None:
    elsewhere = {
        "target.rotation-unrecorded",  # tests/corpus: restores across b8619
        "target.layout-silent",  # tests/corpus: restores across the builds that changed it
        "target.no-cells-abort",  # tests/corpus: ik_llama.cpp
        "target.companion-aborts",
        "target.request-aborts",  # tests/corpus: the replayed prompts
        "target.request-refused",
    }
    codes = {code for code in all_codes() if code.startswith("target.")}
    assert {situation.code for situation in SITUATIONS} == codes - elsewhere
