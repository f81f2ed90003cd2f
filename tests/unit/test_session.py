"""Whole-context files of one sequence as slot files, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inspector.findings import Severity
from inspector.identify import Verdict
from inspector.repair.draft import Options
from inspector.repair.plan import Plan, planned
from inspector.repair.segments import chunks
from inspector.repair.state import Refused
from inspector.server.loader import Outcome
from inspector.server.target import target_of
from samples.small import TEXT, memory, seq_dialect
from tests.support.gguf import model_file
from tests.support.writer import (
    DIALECTS,
    F16,
    RNG,
    Cache,
    Context,
    Dialect,
    Memory,
    Outputs,
    Recurrent,
    Row,
    Session,
    Slot,
    cells_of,
    checkpoint,
    pack,
)

ROOT = Path(__file__).resolve().parents[2]
CELLS = cells_of(TEXT)
ROW = Row(F16, 64)
KEYS: dict[str, Any] = {
    "block_count": 2,
    "embedding_length": 64,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.key_length": 32,
    "attention.value_length": 32,
}
TO = Options(only=("to-session",))
FROM = Options(only=("from-session",))


@contextmanager
def plan_for(
    file: Path, build: str | None = None, options: Options | None = None, architecture: str = ""
) -> Iterator[Plan]:
    chosen = options or Options()
    if build is None:
        with planned(file, None, chosen, "new.bin") as plan:
            yield plan
        return
    model = None
    if architecture:
        model = model_file(file.with_suffix(".gguf"), architecture, KEYS)
    with (
        target_of("llama-server -c 512 -np 1 -fa on", build, model) as target,
        planned(file, target, chosen, "new.bin") as plan,
    ):
        yield plan


def copy_of(plan: Plan) -> bytes:
    return b"".join(chunks(plan.outputs[0].content.content))


def taken(plan: Plan) -> list[str]:
    return [step.action for step in plan.steps]


def full(version: int, name: str = "") -> Dialect:
    dialect = DIALECTS[name]
    return Dialect(dialect.streams, "all", dialect.ext, version == 11)


def session(path: Path, version: int, kind: str = "kv", name: str = "", **head: Any) -> Path:
    held = memory(kind, full(version, name))
    if kind == "kv":
        held = Memory({"attn": Cache((CELLS,), (ROW, ROW), (ROW, ROW))}, full(version, name))
    path.write_bytes(pack(Session(version, TEXT.ids, Context(b"llama", held, **head))).data)
    return path


OUTPUTS = Outputs((3,), 50, 0)
GENERATIONS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "8": (8, "flat", {"rng": RNG, "outputs": OUTPUTS}),
    "9 flat": (9, "flat", {"outputs": OUTPUTS}),
    "9 with outputs": (9, "", {"outputs": OUTPUTS}),
    "9": (9, "", {}),
    "10": (10, "", {}),
    "11": (11, "", {}),
}


@pytest.mark.parametrize("build", ["b6123", "b10229", "b10809", "b11549"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_for_a_server(generation: str, build: str, tmp_path: Path) -> None:
    version, name, head = GENERATIONS[generation]
    file = session(tmp_path / "whole.bin", version, "kv", name, **head)
    with plan_for(file, build, architecture="llama") as plan:
        assert taken(plan)[0] == "from-session"
        assert plan.before is not None
        assert plan.before.restore.outcome is Outcome.REFUSES
        assert plan.after is not None
        assert plan.after.restore.outcome is Outcome.ACCEPTS, plan.after.restore
        assert next(n.found.reused for n in plan.after.reuse if n.name == "append") == len(TEXT.ids)


OF_ONE = [
    path
    for path in sorted((ROOT / "samples/intact").glob("ggsn*.slot"))
    if path.name[4:6].strip(".") in ("8", "9", "10", "11")
    and not path.stem.endswith(("-sequences", "-streams", "-cells"))
    and not any(kind in path.name for kind in ("dsv4", "minimax"))
]


@pytest.mark.parametrize("sample", OF_ONE, ids=lambda path: str(path.stem))
def test_left_as_it_is_unless_asked(sample: Path) -> None:
    with plan_for(sample) as plan:
        assert taken(plan) == []
        assert copy_of(plan) == sample.read_bytes()


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("kind", ["kv", "mla", "iswa", "recurrent", "hybrid", "hybrid-iswa"])
def test_there_and_back(kind: str, version: int, tmp_path: Path) -> None:
    file, whole = tmp_path / "slot.bin", tmp_path / "whole.bin"
    file.write_bytes(pack(Slot(version, TEXT, memory(kind, seq_dialect(version)))).data)
    build = {2: "b10229", 3: "b10809", 4: "b11549"}[version]
    with plan_for(file, build, TO, "llama") as plan:
        assert taken(plan) == ["to-session"]
        assert plan.after is None
        assert plan.copied.identification.verdict is not Verdict.UNKNOWN
        whole.write_bytes(copy_of(plan))
        codes = [f.code for f in plan.copied.findings if f.severity is Severity.ERROR]
        assert codes == []
    with plan_for(whole, options=FROM) as plan:
        assert taken(plan) == ["from-session"]
        assert copy_of(plan) == file.read_bytes()


def test_outputs_for_builds_that_read_them(tmp_path: Path) -> None:
    file = tmp_path / "slot.bin"
    file.write_bytes(pack(Slot(2, TEXT, memory("kv", seq_dialect(2)))).data)
    with plan_for(file, "b6123", TO, "llama") as plan:
        reading = plan.copied.identification.reading
        assert reading is not None
        assert reading.layout.id == "ggsn9.kv.outputs"


def test_checkpoints_have_no_place(tmp_path: Path) -> None:
    file, held = tmp_path / "slot.bin", memory("hybrid", seq_dialect(4))
    slot = Slot(4, TEXT, held, (checkpoint(held, len(TEXT.ids)),))
    file.write_bytes(pack(slot).data)
    with plan_for(file, "b11549", TO, "llama") as plan:
        (step,) = plan.unconfirmed
        assert step.loss == "1 checkpoint, for which such files have no place"


@pytest.mark.parametrize(("build", "model"), [(None, ""), ("b11549", "")])
def test_without_an_architecture(build: str | None, model: str, tmp_path: Path) -> None:
    file = tmp_path / "slot.bin"
    file.write_bytes(pack(Slot(4, TEXT, memory("kv", seq_dialect(4)))).data)
    with plan_for(file, build, TO, model) as plan:
        assert [name for name, _ in plan.refused] == ["to-session"]
        assert "--model" in plan.refused[0][1]


def test_several_sequences(tmp_path: Path) -> None:
    cells = (*CELLS[:6], *(cell._replace(seq_ids=(1,)) for cell in CELLS[:6]))
    held = Memory({"attn": Cache((cells,), (ROW,), (ROW,))}, full(11))
    file = tmp_path / "whole.bin"
    file.write_bytes(pack(Session(11, TEXT.ids, Context(b"llama", held))).data)
    with pytest.raises(Refused, match="several sequences"), plan_for(file, "b11549"):
        pass


def test_the_cell_of_a_recurrent_section(tmp_path: Path) -> None:
    """Its sequence is named in whole contexts, and not in slot files."""
    held = memory("recurrent", full(11))
    state = held.sections["recr"]
    assert isinstance(state, Recurrent)
    file = session(tmp_path / "whole.bin", 11, "recurrent")
    with plan_for(file, options=FROM) as plan:
        expected = pack(Slot(4, TEXT, memory("recurrent", seq_dialect(4)))).data
        assert copy_of(plan) == expected


@pytest.mark.parametrize("sample", ["ggsn5.hparams-b2440--llama-2024-04", "ik9.session--qwen2"])
def test_others_are_not_taken_apart(sample: str) -> None:
    paths = sorted((ROOT / "samples/intact").glob(f"{sample}*.slot"))
    for path in paths:
        with pytest.raises(Refused), plan_for(path):
            pass
