"""Type words that lie: which one the rest of a file or its model gives, and where none does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from inspector.identify import identify
from inspector.repair import plan as plans
from inspector.repair.draft import Options
from inspector.repair.plan import Plan, planned
from inspector.repair.state import Refused
from inspector.report import Report, examined
from inspector.server.target import target_of
from inspector.source import opened
from tests.support.writer import (
    BF16,
    DIALECTS,
    F16,
    F32,
    Q8_0,
    Cache,
    Cell,
    IkMemory,
    Memory,
    Packed,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)

ROOT = Path(__file__).resolve().parents[2]
INTACT, MODELS = ROOT / "samples/intact", ROOT / "tests/oracle/models"
TOKENS = Tokens(tuple(range(3, 11)))
CELLS = tuple(Cell(pos) for pos in range(8))
K, V = Row(F16, 48), Row(F16, 32)
STATE = (Row(F32, 128), 1)
PLAIN = IkMemory(3, CELLS, (K,) * 3, (V,) * 3)
HYBRID = IkMemory(3, CELLS, (None, K, None, K), (None, V, None, V), recurrent=(STATE, None) * 2)
TRANSPOSED = replace(PLAIN, v_state=1)
LATENT = IkMemory(3, CELLS, (K,) * 2, (), v_state=2)


def ik(memory: IkMemory) -> Packed:
    return pack(Slot(memory.version, TOKENS, memory))


def upstream(k: tuple[Row, ...], v: tuple[Row, ...]) -> Packed:
    cache = Cache((cells_of(TOKENS),), k, v)
    return pack(Slot(2, TOKENS, Memory({"attn": cache}, DIALECTS[""])))


@dataclass(frozen=True)
class Case:
    """A file with one word changed."""

    sound: bytes
    data: bytes
    path: Path


def changed(folder: Path, packed: Packed, name: str, value: int) -> Case:
    """The file with another value in the field at the end of whose path `name` stands."""
    mark = next(mark for mark in packed.marks if mark.path.endswith(name))
    assert mark.value != value
    size = mark.stop - mark.start
    word = value.to_bytes(size, "little", signed=value < 0)
    data = packed.data[: mark.start] + word + packed.data[mark.stop :]
    path = folder / "a.slot"
    path.write_bytes(data)
    return Case(packed.data, data, path)


def copy_of(plan: Plan) -> bytes:
    content = plan.outputs[0].content
    return content.read_at(0, content.size)


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def type_words() -> Iterator[tuple[Packed, str, int]]:
    """All types of some files with -1 in their place, the first and the last with others too."""
    files = [ik(one) for one in (PLAIN, HYBRID, TRANSPOSED, LATENT, replace(PLAIN, version=4))]
    for packed in (*files, upstream((K,) * 2, (V,) * 2)):
        marks = [mark for mark in packed.marks if mark.path.endswith("_type")]
        wrong = [(mark, -1) for mark in marks] + [(mark, 77) for mark in (marks[0], marks[-1])]
        wrong += [(mark, F16) for mark in marks if mark.value == -1]
        yield from ((packed, mark.path, value) for mark, value in wrong if mark.value != value)


@pytest.mark.parametrize(("packed", "path", "value"), list(type_words()))
def test_a_type_that_cannot_be_is_put_right(
    packed: Packed, path: str, value: int, tmp_path: Path
) -> None:
    """-1 says in ik_llama.cpp that a layer has no rows: not where rows stand behind it."""
    case = changed(tmp_path, packed, path, value)
    with examined(case.path) as report:
        assert "layout.one-word-away" in codes(report)
    with planned(case.path, None, Options(), "new") as plan:
        assert copy_of(plan) == case.sound
        assert [step.action for step in plan.steps] == ["correct-word"]


def test_a_type_that_nothing_tells_stays_an_error(tmp_path: Path) -> None:
    """No other block has rows of that size: its type is not known, and none of it is lost."""
    one = IkMemory(3, CELLS, (K,), (V,))
    case = changed(tmp_path, ik(one), "k[0].k_type", -1)
    with examined(case.path) as report:
        assert "layers.type-unknown" in codes(report)
    with planned(case.path, None, Options(), "new") as plan:
        assert copy_of(plan) == case.data
        assert not plan.complete


def test_a_copy_that_lacks_bytes_is_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.slot"
    path.write_bytes(ik(PLAIN).data)
    whole = plans.ik_slot_file
    monkeypatch.setattr(plans, "ik_slot_file", lambda *words: list(whole(*words))[:-2])
    with pytest.raises(Refused, match="would lack bytes"), planned(path, None, Options(), "new"):
        pass


@pytest.mark.parametrize("row", [3, 48])
def test_rows_of_a_layer_without_a_cache_are_a_wrong_size(row: int, tmp_path: Path) -> None:
    case = changed(tmp_path, ik(HYBRID.partial()), "v[2].v_size_row", row)
    with opened(case.path) as source:
        mend = identify(source).mend
    assert mend is not None
    assert (mend.path, mend.value) == ("attn.v[2].v_size_row", 0)


@pytest.mark.parametrize("wrong", [F32, BF16])
def test_most_layers_of_upstream_tell(wrong: int, tmp_path: Path) -> None:
    case = changed(tmp_path, upstream((K,) * 3, (V,) * 3), "k[0].k_type", wrong)
    with examined(case.path) as report:
        assert "layers.types-disagree" in codes(report)
    with planned(case.path, None, Options(), "new") as plan:
        assert copy_of(plan) == case.sound
        assert plan.complete


def test_one_of_two_layers_tells_nothing(tmp_path: Path) -> None:
    for packed in (upstream((K,) * 2, (V,) * 2), ik(replace(PLAIN, k=(K,) * 2, v=(V,) * 2))):
        case = changed(tmp_path, packed, "k[0].k_type", F32)
        with planned(case.path, None, Options(), "new") as plan:
            assert copy_of(plan) == case.data
            assert plan.staying == ("layers.types-disagree",)


def test_layers_of_ik_may_differ_but_not_in_width(tmp_path: Path) -> None:
    """Rows of one size hold as many bf16 as f16, and half as many f32."""
    case = changed(tmp_path, ik(PLAIN), "k[1].k_type", BF16)
    with examined(case.path) as report:
        assert codes(report) == {"layers.types-differ"}
    case = changed(tmp_path, ik(PLAIN), "k[1].k_type", F32)
    with examined(case.path) as report:
        assert codes(report) == {"layers.types-disagree"}
    with planned(case.path, None, Options(), "new") as plan:
        assert copy_of(plan) == case.sound


def test_layers_of_ik_with_other_rows_have_their_types(tmp_path: Path) -> None:
    path = tmp_path / "a.slot"
    path.write_bytes(ik(replace(PLAIN, k=(Row(Q8_0, 68), Row(F16, 128), Row(Q8_0, 68)))).data)
    with examined(path) as report:
        assert "layers.types-disagree" not in codes(report)


@pytest.mark.parametrize("wrong", [F32, -1, BF16])
def test_the_model_tells_types(wrong: int, tmp_path: Path) -> None:
    """Nothing is stored anew: the rows are those of the model, and only the word is wrong."""
    sound = (INTACT / "ggsq4.kv--llama-b11549-short.slot").read_bytes()
    at = sound.index(struct.pack("<iQ", F16, 128))
    path = tmp_path / "a.slot"
    path.write_bytes(sound[:at] + struct.pack("<i", wrong) + sound[at + 4 :])
    with (
        target_of(None, "b11549", MODELS / "llama-gqa.gguf") as target,
        planned(path, target, Options(), "new") as plan,
    ):
        assert [step.action for step in plan.steps] == ["correct-word"]
        assert copy_of(plan) == sound


def test_the_other_layers_of_an_indexer_tell(tmp_path: Path) -> None:
    """f16 would make the file whole too."""
    sound = (INTACT / "ik4--glm-dsa-indexer.slot").read_bytes()
    at = sound.index(struct.pack("<iQ", Q8_0, 68))
    path = tmp_path / "a.slot"
    path.write_bytes(sound[:at] + struct.pack("<i", 10) + sound[at + 4 :])
    with planned(path, None, Options(), "new") as plan:
        assert copy_of(plan) == sound


def test_of_two_words_none_is_named(tmp_path: Path) -> None:
    """Two layers of latent keys are as long as one with keys and values."""
    case = changed(tmp_path, ik(LATENT), "v_state", 0)
    with opened(case.path) as source:
        assert identify(source).mend is None


@pytest.mark.parametrize("value", [-1, 77])
@pytest.mark.parametrize("layer", [1, 2])
def test_a_block_of_an_indexer_does_not_end_the_file(
    layer: int, value: int, tmp_path: Path
) -> None:
    """Nothing says how many there are."""
    packed = ik(replace(LATENT, version=4, k=(K,) * 4, indexer=(Row(F16, 64),) * 3))
    case = changed(tmp_path, packed, f"indexer.k[{layer}].k_type", value)
    with planned(case.path, None, Options(), "new") as plan:
        assert [step.action for step in plan.steps] == ["correct-word"]
        assert copy_of(plan) == case.sound


@pytest.mark.parametrize(
    ("k", "v", "word", "value"),
    [
        ((Row(Q8_0, 34), Row(F16, 64), Row(F16, 64)), (Row(F16, 64),) * 3, "k[0].k_type", F16),
        ((K, K, Row(F16, 96)), (V, V, Row(F16, 64)), "k[2].k_type", F32),
        ((K, K, Row(F16, 96)), (V, V, Row(F16, 64)), "v[2].v_type", F32),
    ],
)
def test_keys_tell_of_values(
    k: tuple[Row, ...], v: tuple[Row, ...], word: str, value: int, tmp_path: Path
) -> None:
    """Heads of keys and of values are as wide, one by the other, in every layer."""
    case = changed(tmp_path, ik(replace(PLAIN, k=k, v=v)), word, value)
    with examined(case.path) as report:
        assert "layers.types-disagree" in codes(report)
    with planned(case.path, None, Options(), "new") as plan:
        assert copy_of(plan) == case.sound


def test_the_model_tells_the_type_of_a_single_layer(tmp_path: Path) -> None:
    """Without it keys of f32 half as wide as the values could be meant."""
    sound = (INTACT / "ik3--qwen35.slot").read_bytes()
    at = sound.index(struct.pack("<iQ", F16, 64))
    path = tmp_path / "a.slot"
    path.write_bytes(sound[:at] + struct.pack("<i", F32) + sound[at + 4 :])
    with (
        target_of(None, "ik@2026-05-01", MODELS / "qwen35.gguf") as target,
        planned(path, target, Options(), "new") as plan,
    ):
        assert plan.steps[0].action == "correct-word"
        assert copy_of(plan) == sound


@pytest.mark.parametrize(("v", "value"), [(K, None), (V, 3)])
def test_twice_as_many_layers_are_not_layers_without_values(
    v: Row, value: int | None, tmp_path: Path
) -> None:
    """Values that are as long as keys could be keys of more layers."""
    case = changed(tmp_path, ik(replace(PLAIN, v=(v,) * 3)), "n_layer", 6)
    with opened(case.path) as source:
        mend = identify(source).mend
    found = None if mend is None else (mend.path, mend.value)
    assert found == (None if value is None else ("attn.n_layer", value))


def test_a_number_of_states_is_no_size_of_a_state(tmp_path: Path) -> None:
    case = changed(tmp_path, ik(HYBRID), "recr.s[0].s_rows", 2)
    with planned(case.path, None, Options(), "new") as plan:
        assert copy_of(plan) == case.sound
