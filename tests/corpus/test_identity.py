"""Files of real builds against the models that wrote them and others (`-s` shows the margins)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.checkpoints import appendix_of
from inspector.identify import identify
from inspector.mend import Patched
from inspector.model.gguf import ModelFile, Tensor, read_model
from inspector.model.identity import Identity, Outcome, judge
from inspector.model.layer0 import delta
from inspector.model.layer0.comparison import comparison
from inspector.sections import Section, sections
from inspector.source import Source, opened
from inspector.span import Span
from inspector.tokens import Tokens, tokens_of

SHARED = Path(__file__).resolve().parents[3] / "shared"
pytestmark = pytest.mark.skipif(
    not (SHARED / "corpus").is_dir(), reason="no collection of real state files beside the checkout"
)
FACTOR = 50
"""By which the nearest wrong model has to be farther away than the farthest right one."""

FOUND_WRONG = {"qwen2vl.b5129.lib-plain.seq.bin": Outcome.OTHER_POSITIONS}
"""What really is not as its model makes it: one position for each token, where M-RoPE has four."""
NOT_TESTED = {
    "qwen35.ik-2026-09.two-seqs.seq.bin": "all zero",
    "llama-gqa.ik-2026-09.empty.seq.bin": "no token list",
    "llama-gqa.ik-2026-09.holes.seq.bin": "no token list",
    "llama-gqa.ik-2026-09.plain.blob-partial.bin": "no keys",
    "llama-gqa.ik-8337e4cd3.plain.blob-partial.bin": "no keys",
    "gemma3-iswa.ik-2026-09.plain.blob-partial.bin": "no keys",
}


@dataclass(frozen=True)
class State:
    """A real file, the model that wrote it, and the tokens that its manifest adds to a blob."""

    path: Path
    model: str
    tokens: tuple[int, ...] = ()
    damaged: bool = False


def states() -> Iterator[State]:
    for folder in ("corpus", "corpus-ik"):
        path = SHARED / folder / "manifest.json"
        if not path.is_file():
            continue
        for entry in json.loads(path.read_text())["files"]:
            if entry["kind"] in ("ik-checkpoints", "ik-tokens"):
                continue
            steps = entry.get("steps") or ()
            blob = entry["kind"].startswith("blob")
            fed = [token for step in steps if step[0] == "decode" for token in step[1]]
            yield State(
                path.with_name(entry["file"]),
                entry["model"],
                tuple(fed) if blob else (),
                bool(entry.get("damage")),
            )
    for truth in sorted(SHARED.glob("corpus-fork/*/truth.json")):
        model = json.loads(truth.read_text())["model"].removesuffix(".gguf")
        yield State(truth.with_name("slot.bin"), model)


STATES = list(states())
MODELS = {
    path.stem: path
    for folder in ("corpus", "corpus-ik")
    for path in sorted(SHARED.glob(f"{folder}/models/*.gguf"))
}
INTACT = [s for s in STATES if s.model in MODELS and not s.damaged]


@dataclass(frozen=True)
class Read:
    """A state that was identified; its file stays open."""

    source: Source
    sections: tuple[Section, ...]
    tokens: Tokens
    appendix: tuple[tuple[tuple[Section, ...], int], ...]

    def judged(self, model: ModelFile | None) -> Identity:
        return judge(self.source, self.sections, self.tokens, model)


@pytest.fixture(scope="module")
def open_files() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def models(open_files: ExitStack) -> dict[str, ModelFile]:
    return {name: header(open_files, path) for name, path in MODELS.items()}


def header(stack: ExitStack, path: Path) -> ModelFile:
    found = read_model(stack.enter_context(opened(path)))
    assert isinstance(found, ModelFile)
    return found


@pytest.fixture(scope="module")
def twins(open_files: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFile]:
    """The same shapes with other weights: each large tensor's numbers in reverse order."""
    folder = tmp_path_factory.mktemp("twins")
    found = {}
    for name, path in MODELS.items():
        data = bytearray(path.read_bytes())
        with opened(path) as source:
            original = read_model(source)
            assert isinstance(original, ModelFile)
        for tensor in original.tensors.values():
            if len(tensor.dims) > 1 and tensor.data is not None:
                data[tensor.data.start : tensor.data.stop] = reversed_numbers(data, tensor)
        (folder / path.name).write_bytes(data)
        found[name] = header(open_files, folder / path.name)
    return found


def reversed_numbers(data: bytearray, tensor: Tensor) -> bytes:
    assert tensor.type is not None
    assert tensor.data is not None
    size = {"f32": 4, "f16": 2}[tensor.type.name]
    numbers = np.frombuffer(data[tensor.data.start : tensor.data.stop], f"<u{size}")
    return numbers[::-1].tobytes()


@pytest.fixture(scope="module")
def read(open_files: ExitStack) -> Any:
    @cache
    def reading(state: State) -> Read:
        source = open_files.enter_context(opened(state.path))
        identification = identify(source)
        if identification.mend is not None:  # as `whose` and `check` do
            source = Patched(source, identification.mend)
            identification = identify(source)
        root = identification.root
        assert root is not None, state.path.name
        tokens = tokens_of(root)
        if state.tokens:
            tokens = given(state.tokens)
        listing = appendix_of(source, root, state.path.name)
        blobs = [
            (record.blob.sections, record.n_tokens)
            for record in (listing.whole if listing is not None else ())
            if record.blob is not None and record.n_tokens is not None
        ]
        return Read(source, sections(root), tokens, tuple(blobs))

    return reading


def given(ids: tuple[int, ...]) -> Tokens:
    n = len(ids)
    return Tokens("plain", n, n, 0, "tokens", Span(0, 0), None, np.array(ids, np.int64))


def label(state: State) -> str:
    return f"{state.path.parent.name}/{state.path.name}"


def test_every_file_matches_its_model_and_no_other(
    read: Any, models: dict[str, ModelFile], twins: dict[str, ModelFile]
) -> None:
    """And the margins: by cache type and side, how far off the right and the wrong ones are."""
    right: dict[tuple[str, str], list[float]] = defaultdict(list)
    wrong: dict[tuple[str, str], list[float]] = defaultdict(list)
    answers: dict[str, Outcome] = {}
    for state in INTACT:
        reading = read(state)
        found = reading.judged(models[state.model])
        answers[label(state)] = found.outcome
        if (reason := NOT_TESTED.get(state.path.name)) is not None:
            assert found.outcome is Outcome.NOT_TESTED, label(state)
            assert reason in found.evidence, found.evidence
            continue
        expected = FOUND_WRONG.get(state.path.name, Outcome.MATCHES)
        assert found.outcome is expected, (label(state), found.evidence)
        if expected is Outcome.MATCHES:
            assert not found.findings
            for side in found.sides:
                right[side.type, side.name].append(side.excess)
        other = reading.judged(twins[state.model])
        assert other.outcome is Outcome.DIFFERS, (label(state), other.evidence)
        for side in other.sides:
            wrong[side.type, side.name].append(side.excess)
    show(right, wrong)
    assert set(right) == set(wrong)
    assert {kind for kind, _ in right} >= {"f32", "f16", "bf16", "q8_0", "q4_0", "q6_0", "iq4_nl"}
    farthest = max(max(values) for values in right.values())
    nearest = min(min(values) for values in wrong.values())
    print(f"farthest right {farthest:.1e}, nearest wrong {nearest:.2f}: {nearest / farthest:.0f}")
    assert nearest > FACTOR * farthest
    tested = [outcome for outcome in answers.values() if outcome is not Outcome.NOT_TESTED]
    assert len(tested) >= 300


def show(right: dict[Any, list[float]], wrong: dict[Any, list[float]]) -> None:
    print("\ncache   side  files  right, most  wrong, least")
    for kind, name in sorted(right):
        values, others = right[kind, name], wrong[kind, name]
        print(
            f"{kind:8}{name:5}{len(values):6}{max(values):13.1e}{min(others, default=np.nan):14.2f}"
        )


def test_no_other_model_is_taken_for_the_writer(read: Any, models: dict[str, ModelFile]) -> None:
    """Whatever its shape; of equal shape there are llama-gqa and its twin, qwen2 and qwen2vl."""
    outcomes = set()
    for state in INTACT[::3]:
        for name, model in models.items():
            if name != state.model:
                found = read(state).judged(model)
                assert found.outcome in (Outcome.DIFFERS, Outcome.NOT_TESTED), (
                    label(state),
                    name,
                    found.evidence,
                )
                outcomes.add(found.outcome)
    assert outcomes == {Outcome.DIFFERS, Outcome.NOT_TESTED}


def test_a_token_list_moved_by_one_is_not_the_states(
    read: Any, models: dict[str, ModelFile]
) -> None:
    for state in INTACT:
        reading = read(state)
        ids = reading.tokens.ids
        moved = given(tuple(np.roll(ids, 1).tolist()))
        ends_alike = (ids[-3:] == moved.ids[-3:]).any()  # all that a convolution keeps
        if state.path.name in NOT_TESTED or ends_alike:
            continue
        found = judge(reading.source, reading.sections, moved, models[state.model])
        assert found.outcome in (Outcome.DIFFERS, Outcome.MIXED), (label(state), found.evidence)


def test_checkpoints_behind_a_state_are_of_its_tokens(
    read: Any, models: dict[str, ModelFile], twins: dict[str, ModelFile]
) -> None:
    n_checkpoints = 0
    for state in INTACT:
        reading = read(state)
        for blob, n_tokens in reading.appendix:
            before = replace(reading.tokens, given=reading.tokens.ids[:n_tokens])
            found = judge(reading.source, blob, before, models[state.model])
            assert found.outcome is Outcome.MATCHES, (label(state), found.evidence)
            other = judge(reading.source, blob, before, twins[state.model])
            assert other.outcome is Outcome.DIFFERS, (label(state), other.evidence)
            n_checkpoints += 1
    assert n_checkpoints >= 20


def test_rotation_order_and_delta_nets_date_files(read: Any, models: dict[str, ModelFile]) -> None:
    dated: dict[str, tuple[Any, ...]] = {}
    for state in INTACT:
        found = read(state).judged(models[state.model])
        if found.outcome is Outcome.MATCHES:
            rotations = tuple(side.rotation for side in found.sides if side.name != "r")
            name = state.path.name.replace("slot.bin", state.path.parent.name)
            dated[name] = rotations, found.order, found.values_first
    rotated = {name: told[0] for name, told in dated.items() if any(told[0])}
    assert rotated == {
        **{f"llama-hd128.{build}.k-q8_0.bin": (128, 0) for build in ("b10229", "b11549")},
        **{f"llama-hd128.{build}.kv-q8_0.bin": (128, 64) for build in ("b10229", "b11549")},
        "llama-hd128.ik-2026-09.kv-q8_0-khad.seq.bin": (128, 0),
        "llama-hd128.ik-2026-09.kv-q8_0-khad-vhad.seq.bin": (128, 128),
    }
    assert dated["llama-hd128.b8156.kv-q8_0.bin"][0] == (0, 0)
    for name, (_, order, values_first) in dated.items():
        if name.startswith("deepseek2-lat96"):
            assert order == ("nope, then rope" if "mla0" in name else "rope, then latent"), name
        elif name.startswith("deepseek"):
            assert order == "latent, then rope", name
        if name.startswith(("qwen35", "qwen3next")):
            assert values_first is (".ik-" not in name), name
        else:
            assert values_first is None


def test_the_state_of_a_delta_net_is_the_computed_one(
    read: Any, models: dict[str, ModelFile]
) -> None:
    """All tokens of these files are computed, so but for rounding nothing is missing."""
    n_files = 0
    for state in INTACT:
        reading = read(state)
        if state.model not in ("qwen35", "qwen3next") or not 0 < len(reading.tokens.ids) < 64:
            continue
        compared = comparison(
            reading.source, reading.sections, reading.tokens.ids, models[state.model], []
        )
        section = next(s for s in reading.sections if s.kind == "recurrent")
        if state.path.name in NOT_TESTED:
            continue
        alike = delta.likeness(reading.source, section, compared.layer, reading.tokens.ids, 0)
        assert alike is not None
        assert max(alike) > 0.9999, label(state)
        assert abs(min(alike)) < 0.2, label(state)
        n_files += 1
    assert n_files >= 18


def test_another_layer_is_not_taken_for_the_first(read: Any, models: dict[str, ModelFile]) -> None:
    """ik_llama.cpp lists layers without a cache; the first that has one may be the fourth."""
    n_files = 0
    for state in INTACT:
        if state.model == "qwen35" and ".ik-" in state.path.name and ".seq." in state.path.name:
            found = read(state).judged(models["qwen2"])
            assert found.outcome is Outcome.NOT_TESTED, found.evidence
            assert "no keys of layer 0" in found.evidence
            n_files += 1
    assert n_files


def test_a_state_restored_into_the_twin_is_caught(read: Any, models: dict[str, ModelFile]) -> None:
    """The pair of equal shape in the collection: servers accept such a file and answer noise."""
    for state in INTACT:
        if state.model == "llama-gqa" and state.path.name not in NOT_TESTED:
            assert read(state).judged(models["llama-gqa-twin"]).outcome is Outcome.DIFFERS


def test_damaged_files_are_judged_by_what_is_left(
    read: Any, models: dict[str, ModelFile], twins: dict[str, ModelFile]
) -> None:
    """A word that lies leaves the answer, as most damage does; rows that are others mix it."""
    outcomes = defaultdict(set)
    for state in STATES:
        if not state.damaged or "broken-empty" in state.path.name:
            continue
        reading = read(state)
        found = reading.judged(models[state.model])
        outcomes[found.outcome].add(state.path.name.partition(".broken-")[2].partition(".")[0])
        assert reading.judged(twins[state.model]).outcome in (Outcome.DIFFERS, Outcome.NOT_TESTED)
    assert set(outcomes) == {Outcome.MATCHES, Outcome.MIXED, Outcome.NOT_TESTED}
    assert outcomes[Outcome.MIXED] == {
        "pos-duplicate",
        "dup-pos",
        "payload-ff",
    }
    assert len(outcomes[Outcome.MATCHES]) > 15


def test_equal_tokens_hold_equal_values_without_a_model(read: Any) -> None:
    said = 0
    for state in INTACT:
        reading = read(state)
        found = reading.judged(None)
        assert not found.findings, label(state)
        if found.notes and len(reading.tokens.ids):
            said += 1
            moved = given(tuple(np.roll(reading.tokens.ids, 1).tolist()))
            wrong = judge(reading.source, reading.sections, moved, None)
            assert [f.code for f in wrong.findings] in ([], ["identity.repeated-tokens"])
    assert said >= 60
