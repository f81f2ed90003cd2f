"""Real states of ik_llama.cpp as llama.cpp has them, and back again."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.arrays.numbers import dequantize
from inspector.model.identity import Outcome as Belongs
from inspector.repair.apart import state_of
from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.repair.segments import chunks
from inspector.repair.state import Refused, Tensor
from inspector.report import examined
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from tests.corpus.test_check_ik import CORPUS, command, entries

UPSTREAM = CORPUS.parent / "corpus"
SKIPPED = ("synthesize-tip", "window-anchor")
DAYS = {2: "2026-01-01", 3: "2026-03-01", 4: "2026-08-15"}
WINDOWED = ("gemma3-iswa", "gemma4-iswa", "gptoss")


def model_of(entry: dict[str, Any]) -> Path:
    return (CORPUS / entry["model_file"]).resolve()


@dataclass(frozen=True)
class Made:
    """What a repair comes to."""

    steps: tuple[str, ...]
    data: bytes
    restore: Outcome
    identity: Belongs


def repaired(path: Path, build: str, model: Path, words: str) -> Made:
    options = Options(skip=SKIPPED, allow_loss=True)
    with (
        target_of(words, build, model) as target,
        planned(path, target, options, "new.bin") as plan,
    ):
        assert plan.after is not None
        assert not plan.estranged
        return Made(
            tuple(step.action for step in plan.steps),
            b"".join(chunks(plan.outputs[0].content.content)),
            plan.after.restore.outcome,
            plan.after.identity.outcome,
        )


def packed(data: bytes) -> bytes:
    """The same file with its tokens packed, as servers from b10388 on write them."""
    (n,) = struct.unpack_from("<I", data, 8)
    end = 12 + 4 * n
    words = struct.pack("<iII", -1, 1, n) + data[12:end] + bytes(4)
    return data[:8] + struct.pack("<I", len(words) // 4) + words + data[end:]


CONVERTED = [
    pytest.param(entry, build, id=f"{entry['file']}-{build}")
    for entry in entries("seq")
    for build in entry.get("converted", {})
    if entry["model"] not in WINDOWED and entry["converted"][build]["as_ik"]
]


@pytest.mark.parametrize(("entry", "build"), CONVERTED)
def test_the_bytes_that_real_servers_restored(entry: dict[str, Any], build: str) -> None:
    words = command({**entry["settings"], "n_seq_max": 1})
    made = repaired(CORPUS / entry["file"], build, model_of(entry), words)
    data = made.data if build == "b10229" else packed(made.data)
    assert hashlib.sha256(data).hexdigest() == entry["converted"][build]["sha256"]
    assert (made.restore, made.identity) == (Outcome.ACCEPTS, Belongs.MATCHES)


@pytest.mark.parametrize(
    "entry",
    [entry for entry in entries("seq") if "converted" in entry and "two-seqs" not in entry["file"]],
    ids=lambda entry: entry["file"],
)
@pytest.mark.parametrize("build", ["b10229", "b11549"])
def test_there_and_back(entry: dict[str, Any], build: str, tmp_path: Path) -> None:
    words = command({**entry["settings"], "n_seq_max": 1})
    there, model = tmp_path / "there.bin", model_of(entry)
    there.write_bytes(repaired(CORPUS / entry["file"], build, model, words).data)
    back = repaired(there, f"ik@{DAYS[entry['version']]}", model, words)
    assert back.steps[:1] == ("to-ik",)
    assert (back.restore, back.identity) == (Outcome.ACCEPTS, Belongs.MATCHES)
    assert back.data == (CORPUS / entry["file"]).read_bytes()


NUMBERS = ("llama-gqa.ik-2026-09.kv-q6_0.seq.bin", "llama-mqa6.ik-2026-09.kv-iq4_nl.seq.bin")


def numbers(tensor: Tensor) -> np.ndarray:
    assert tensor.kind is not None
    data = tensor.reader().read_at(0, tensor.row_bytes * tensor.n_cells)
    return dequantize(data, tensor.kind, tensor.kind.elements(tensor.row_bytes) or 0)


@pytest.mark.parametrize(
    "entry", [e for e in entries("seq") if e["file"] in NUMBERS], ids=lambda entry: entry["file"]
)
def test_numbers_stay_what_they_were(entry: dict[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / "copy.bin"
    words = "-c 256 -np 1 -fa on -ctk f16 -ctv f16"
    made = repaired(CORPUS / entry["file"], "b11549", model_of(entry), f"llama-server {words}")
    copy.write_bytes(made.data)
    with examined(CORPUS / entry["file"]) as old, examined(copy) as new:
        (before,), (after,) = state_of(old).caches, state_of(new).caches
        for one, other in zip(before.k + before.v, after.k + after.v, strict=True):
            exact, rounded = numbers(one), numbers(other)
            assert np.abs(exact - rounded).max() <= np.abs(exact).max() * 2**-11


REFUSED = {
    "llama-gqa.ik-2026-09.empty.seq.bin": "no cells",
    "llama-gqa.ik-2026-09.plain.broken-cut-half.seq.bin": "cut or damaged",
    "qwen2.ik-2026-09.first-last-k.seq.bin": "-khad",
    "qwen35.ik-2026-09.two-seqs.seq.bin": "all zeros",
    "deepseek2-lat96.ik-2026-09.mla1-fa-off.seq.bin": "latent",
    "deepseek2-lat96.ik-2026-09.mla3-fa-on.seq.bin": "latent",
}


@pytest.mark.parametrize(
    "entry", [e for e in entries("seq") if e["file"] in REFUSED], ids=lambda entry: entry["file"]
)
def test_refusals(entry: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=REFUSED[entry["file"]]):
        repaired(CORPUS / entry["file"], "b11549", model_of(entry), "llama-server -c 256 -np 1")


PAIRS = ("llama-gqa", "qwen2", "qwen2vl", "gemma3-iswa", "gptoss", "qwen35", "deepseek2-mla")
SAVES = [f"{model}.{build}.default.bin" for model in PAIRS for build in ("b10229", "b11549")]


@pytest.mark.parametrize("name", SAVES)
def test_upstream_there_and_back(name: str, tmp_path: Path) -> None:
    path = UPSTREAM / name
    if not path.is_file():
        pytest.skip(f"{name} is not at hand")
    model = UPSTREAM / "models" / f"{name.partition('.')[0]}.gguf"
    there, words = tmp_path / "there.bin", "llama-server -c 512 -np 1 -fa on"
    made = repaired(path, "ik@2026-03-01", model, words)
    assert (made.restore, made.identity) == (Outcome.ACCEPTS, Belongs.MATCHES)
    there.write_bytes(made.data)
    back = repaired(there, name.split(".")[1], model, words)
    assert (back.restore, back.identity) == (Outcome.ACCEPTS, Belongs.MATCHES)
    with examined(path) as old:
        reading = old.identification.reading
        assert reading is not None
        appendix = reading.decoding.root.get("appendix")
        data = path.read_bytes()[: appendix.span.start if appendix is not None else None]
    assert (packed(back.data) if "b11549" in name else back.data) == data


@pytest.mark.skipif(not UPSTREAM.is_dir(), reason="the real files are not at hand")
def test_zeros_in_front_of_a_window_are_no_rows_of_another_model() -> None:
    model = UPSTREAM / "models/gemma3-iswa.gguf"
    made = repaired(
        UPSTREAM / "gemma3-iswa.b11549.long.bin",
        f"ik@{DAYS[4]}",
        model,
        "llama-server -c 512 -np 1 -fa on",
    )
    assert made.restore is Outcome.ACCEPTS
    assert made.identity is Belongs.MIXED
