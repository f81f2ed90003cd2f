"""What is said of states of tiny models: right ones, wrong ones, and what cannot be told.

The first layers of all kinds of models are in test_layer0.py, files of real builds in
tests/corpus/test_identity.py.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st

from formats.ggml_types import IK, TYPES
from inspector.builds import Interval
from inspector.identify import identify
from inspector.model.gguf import ModelFile, read_model
from inspector.model.identity import Identity, Outcome, judge, verdict
from inspector.model.layer0.projection import Part
from inspector.model.layer0.recipes import CONVOLUTIONS, NOT_MEASURED, RECIPES, UNVERIFIED, RopeType
from inspector.model.layer0.rope import Rope
from inspector.model.layer0.rounding import as_stored
from inspector.model.layer0.rows import Rows as Compared
from inspector.model.layer0.side import AGREES, OTHER, Side, Way
from inspector.model.layer0.stored import Sample
from inspector.sections import Block, sections
from inspector.source import opened
from inspector.span import Span
from inspector.tokens import tokens_of
from tests.support.belonging import (
    HEAD,
    IDS,
    N_VOCAB,
    Rows,
    attention_state,
    codes,
    identity,
    keys,
    latent_first,
    latent_model,
    llama,
    neox,
    plain,
    rope_first,
    row,
    usual,
)
from tests.support.first_layer import (
    Model,
    angles,
    decoded,
    encoded,
    hadamard,
    turned,
    yarn_angles,
)
from tests.support.writer import Cache, Cell, Memory, Row, Slot, Tokens, pack, small_numbers

# -- keys that alone are wrong ---------------------------------------------------------------------


def turned_by(turn: Callable[[int], list[float]], magnitude: float = 1.0) -> Rows:
    return lambda m, t, p: plain(m, t, p, turn=turn, magnitude=magnitude)


CAUSES: dict[str, tuple[Rows, dict[str, Any]]] = {
    "RoPE base 1e+06, not 10000": (turned_by(lambda p: angles(p, HEAD, 1e6)), {}),
    "RoPE scale 0.25, not 1": (turned_by(lambda p: angles(p, HEAD, 1e4, 0.25)), {}),
    "YaRN with RoPE scale 0.25": (
        turned_by(lambda p: yarn_angles(p, HEAD, 1e4, 0.25, 4096), 1 + 0.1 * math.log(4)),
        {},
    ),
    "positions +4": (llama, {"moved": 4}),
    "positions -1": (llama, {"moved": -1}),
    "they are 1.139 times as large, as YaRN leaves them after context shifts": (
        turned_by(lambda p: angles(p, HEAD), 1 + 0.1 * math.log(4)),
        {},
    ),
    "": (turned_by(lambda p: angles(p, HEAD, 37.0)), {}),
}


@pytest.mark.parametrize("cache", ["f32", "q8_0"])
@pytest.mark.parametrize("cause", CAUSES)
def test_other_positions_and_their_cause(cause: str, cache: str, tmp_path: Path) -> None:
    rows, options = CAUSES[cause]
    model = usual()
    found = identity(
        tmp_path, attention_state(model, rows, k_type=cache, v_type=cache, **options), model
    )
    assert found.outcome is Outcome.OTHER_POSITIONS, found.evidence
    assert found.outcome.in_short == "differs"
    assert found.explanation == cause
    assert codes(found) == ["identity.other-positions"]
    assert found.findings[0].path.endswith("k[0]")


def test_all_parts_of_positions_move(tmp_path: Path) -> None:
    model = usual("qwen2vl", rope__dimension_sections=[1, 8, 7, 0])
    state = attention_state(model, lambda m, t, p: neox(m, t, p + 3), dialect="xyt")
    assert identity(tmp_path, state, model).explanation == "positions +3"


def test_a_longer_model_than_its_metadata_say(tmp_path: Path) -> None:
    """Frequency factors that the writer did not have."""
    model = usual()
    model.vector("rope_freqs.weight", HEAD // 2, 2.0, 0.3)
    found = identity(tmp_path, attention_state(model, llama), model)
    assert found.outcome is Outcome.OTHER_POSITIONS
    assert found.explanation == "RoPE without frequency factors"


def test_context_shifts_round_keys_again(tmp_path: Path) -> None:
    """Each shift turns stored keys and rounds them anew; values stay."""
    model, cache = usual(head=64), "q4_0"

    def shifted(model: Model, token: int, pos: int) -> tuple[Any, Any]:
        k, v = plain(model, token, pos + 60)
        for step in range(6):
            k = np.array(decoded(encoded(k, cache), cache))
            k = turned(k, angles(-10, 64), "norm")
            assert step < 6
        return k, v

    found = identity(tmp_path, attention_state(model, shifted, k_type=cache, v_type=cache), model)
    assert found.outcome is Outcome.MATCHES, found.evidence
    k, v = found.side("k"), found.side("v")
    assert k is not None
    assert v is not None
    assert k.excess > AGREES > v.excess


@pytest.mark.parametrize(
    ("now", "transposed"), [("f32", False), ("f16", False), ("f16", True), ("q8_0", False)]
)
@pytest.mark.parametrize("rotated", [0, 64])
@pytest.mark.parametrize("was", ["q4_0", "q4_1", "q5_1"])
def test_what_a_coarser_type_lost_is_no_other_position(
    was: str, now: str, rotated: int, transposed: bool, tmp_path: Path
) -> None:
    """Rows of a cache of another type, perhaps rotated there, that were stored anew in this one."""
    model, kind = usual(head=64), GGMLQuantizationType[was.upper()]

    def coarse(model: Model, token: int, pos: int) -> tuple[Any, Any]:
        rows = (hadamard(row, rotated) if rotated else row for row in plain(model, token, pos))
        kept = (dequantize(quantize(np.float32(row), kind), kind) for row in rows)
        k, v = (hadamard(row, rotated) if rotated else row for row in kept)
        return k, v

    state = attention_state(model, coarse, k_type=now, v_type=now, transposed=transposed)
    found = identity(tmp_path, state, model)
    assert found.outcome is Outcome.MATCHES, found.evidence
    assert {side.type for side in found.sides} == {was}
    moved = attention_state(model, coarse, k_type=now, v_type=now, moved=5)
    assert identity(tmp_path, moved, model).outcome is Outcome.OTHER_POSITIONS


# -- rotation --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotated", [(0, 0), (128, 64), (128, 0), (0, 64), (128, 128)])
def test_rotation_is_told_for_each_side(rotated: tuple[int, int], tmp_path: Path) -> None:
    model = usual(head=128)
    state = attention_state(model, llama, k_type="q8_0", v_type="q8_0", rotated=rotated)
    found = identity(tmp_path, state, model)
    assert found.outcome is Outcome.MATCHES, found.evidence
    assert tuple(side.rotation for side in found.sides) == rotated
    dated = [dating.builds for dating in found.datings]
    assert dated == [Interval("b8619", None)] * sum(map(bool, rotated))
    assert not identity(tmp_path, state, model, writer=IK).datings


def test_a_rotation_that_contradicts_the_file(tmp_path: Path) -> None:
    model = usual(head=64)
    for said, expected in (((64, 64), []), ((64, 0), ["identity.rotation-differs"])):
        state = attention_state(
            model, llama, k_type="q8_0", v_type="q8_0", rotated=(64, 64), said=said
        )
        found = identity(tmp_path, state, model)
        assert found.outcome is Outcome.MATCHES, found.evidence
        assert codes(found) == expected
        assert all(finding.path.endswith("v[0]") for finding in found.findings)


def test_the_order_of_a_latent_key_dates_the_file(tmp_path: Path) -> None:
    model = latent_model(1, absorbed=True)
    for rows, order, builds in (
        (latent_first, "latent, then rope", Interval("b7812", None)),
        (rope_first, "rope, then latent", Interval("b5137", "b7811")),
    ):
        state = attention_state(model, rows)
        found = identity(tmp_path, state, model)
        assert found.order == order
        assert [dating.builds for dating in found.datings] == [builds]
        assert identity(tmp_path, state, model, writer=IK).datings == ()


# -- tokens and cells ------------------------------------------------------------------------------


def test_a_state_of_two_models(tmp_path: Path) -> None:
    """Restored into another model, continued there, saved again."""
    first, second = usual(seed=1), usual(seed=2)

    def rows(_: Model, token: int, pos: int) -> tuple[Any, Any]:
        return llama(first if pos < 20 else second, token, pos)

    found = identity(tmp_path, attention_state(first, rows), first)
    assert found.outcome is Outcome.MIXED
    assert "with this model at positions 0 to 18" in found.evidence
    assert "other tokens at 21 to 39" in found.evidence
    assert codes(found) == ["identity.mixed"]


def test_keys_of_one_model_and_values_of_another(tmp_path: Path) -> None:
    first, second = usual(seed=1), usual(seed=2)

    def rows(_: Model, token: int, pos: int) -> tuple[Any, Any]:
        return llama(first, token, pos)[0], llama(second, token, pos)[1]

    found = identity(tmp_path, attention_state(first, rows), first)
    assert found.outcome is Outcome.MIXED
    assert "keys were computed with this model, values were not" in found.evidence


def test_values_by_channel_are_looked_at_on_both_ends(tmp_path: Path) -> None:
    first, second = usual(seed=1), usual(seed=2)

    def rows(_: Model, token: int, pos: int) -> tuple[Any, Any]:
        return llama(first, token, pos)[0], llama(first if pos < 20 else second, token, pos)[1]

    found = identity(tmp_path, attention_state(first, rows, transposed=True), first)
    assert found.outcome is Outcome.MIXED
    assert "keys were computed with this model" not in found.evidence
    assert "with this model at positions 0 to 7" in found.evidence
    assert "other tokens at 32 to 39" in found.evidence


def test_keys_that_no_position_turns_are_of_other_weights(tmp_path: Path) -> None:
    def unturned(model: Model, token: int, pos: int) -> tuple[Any, Any]:
        return plain(model, token, pos, turn=lambda pos: [])

    model, other = usual("refact"), usual("refact", seed=2)
    state = attention_state(model, lambda m, t, p: (unturned(other, t, p)[0], unturned(m, t, p)[1]))
    assert identity(tmp_path, state, model).outcome is Outcome.MIXED


def test_another_token_list(tmp_path: Path) -> None:
    model = usual()
    ids = tuple(range(40))
    state = attention_state(model, llama, ids=ids)
    moved = state.replace(
        b"".join(i.to_bytes(4, "little") for i in ids),
        b"".join((i + 1).to_bytes(4, "little") for i in ids),
    )
    assert moved != state
    assert identity(tmp_path, moved, model).outcome is Outcome.DIFFERS


def test_cells_with_holes_and_out_of_order(tmp_path: Path) -> None:
    model = usual()
    positions = [*range(12), *range(20, 48)]
    assert len(positions) == len(IDS)
    order = [*range(20, 40), *range(20)]
    cells = tuple(Cell(positions[i]) for i in order)
    token_at = dict(zip(positions, IDS, strict=True))
    state = attention_state(
        model, lambda m, t, p: llama(m, token_at.get(p, 0), p), cells=cells, transposed=True
    )
    found = identity(tmp_path, state, model)
    assert found.outcome is Outcome.MATCHES, found.evidence
    assert found.tokens_by == "rank"


@pytest.mark.parametrize("changed", ["list", "cell"])
def test_the_row_tells_which_of_two_tokens_was_changed(changed: str, tmp_path: Path) -> None:
    model, other = usual(), {"list": list(IDS), "cell": list(IDS)}
    place = next(i for i, token in enumerate(IDS) if i > 2 and token != IDS[0])
    other[changed][place] = IDS[0]
    cells = tuple(Cell(i, x=i, y=i, tok=token) for i, token in enumerate(other["cell"]))
    listed = Tokens(tuple(other["list"]))
    state = attention_state(model, llama, cells=cells, dialect="xyt", tokens=listed)
    (note, *_) = identity(tmp_path, state, model).notes
    right = "cell" if changed == "list" else "list"
    assert note == (
        f"at position {place} the row is that of the token in the {right}: the {changed} was "
        "changed"
    )


def test_few_distinct_tokens_are_noted(tmp_path: Path) -> None:
    model = usual()
    found = identity(tmp_path, attention_state(model, llama, ids=(3, 5) * 10), model)
    assert found.outcome is Outcome.MATCHES
    assert any("fewer than four" in note for note in found.notes)
    wrong = identity(tmp_path, attention_state(usual(seed=2), llama, ids=(3, 5) * 10), model)
    assert wrong.outcome is Outcome.DIFFERS


def test_rare_tokens_are_looked_for(tmp_path: Path) -> None:
    """Distinct tokens that an even spread would miss."""
    model = usual()
    ids = (7, 3, 4, 5, *(7,) * 60)
    found = identity(tmp_path, attention_state(model, llama, ids=ids), model)
    assert found.sides[0].n_distinct == 4


def test_a_cache_too_coarse_for_what_sets_tokens_apart(tmp_path: Path) -> None:
    """A bias twenty times as large as the signal, in four bits."""
    model = usual("qwen2")
    model.vector("blk.0.attn_k.bias", HEAD, 0.0, 20.0)
    found = identity(tmp_path, attention_state(model, neox, k_type="q4_0"), model)
    k = found.side("k")
    assert k is not None
    assert k.blind
    assert found.outcome is Outcome.MATCHES
    assert "positions with" not in found.evidence.partition("(")[0]
    assert "at these positions" not in found.evidence
    model.vector("blk.0.attn_v.bias", HEAD, 0.0, 20.0)
    state = attention_state(model, neox, k_type="q4_0", v_type="q4_0")
    blind = identity(tmp_path, state, model)
    assert blind.outcome is Outcome.UNDECIDABLE
    assert codes(blind) == ["identity.not-tested"]


def test_a_token_that_is_like_all_others_is_not_foreign() -> None:
    """What sets it apart is lost in rounding; the other cells decide."""
    numbers = np.random.default_rng(8).normal(0, 1, (1, 16, 1, 32)).astype(np.float32)
    numbers[:, 0] = numbers[:, 1:].mean(axis=1) * np.float32(1.05)
    computed = np.repeat(numbers, len(Way), axis=0)
    kind = next(kind for kind in TYPES if kind.name == "q4_0")
    part = Part("v", computed, np.arange(32)[None])
    block = Block("v[0]", kind.id, 18, 16, Span(0, 300), Span(12, 300))
    positions = np.arange(16)[:, None] * np.array([[1, 1, 1, 0]])
    stored = as_stored(numbers[0, :, 0] * np.float32(0.999), kind)
    rows = Compared(
        part, block, kind, stored, computed, Sample(np.arange(16), np.arange(16), positions)
    )
    side = rows.measured(Rope(RopeType.NONE, 0), content=True)
    assert side is not None
    shared = numbers[0, :, 0].mean(axis=0)
    apart = np.linalg.norm(numbers[0, 0, 0] - shared)
    assert np.linalg.norm(stored[0] - numbers[0, 0, 0]) > OTHER * apart
    assert side.foreign == ()
    assert verdict([side]) is Outcome.MATCHES


# -- what is not tested ----------------------------------------------------------------------------


def refused(found: Identity, reason: str) -> None:
    assert found.outcome is Outcome.NOT_TESTED
    assert reason in found.evidence
    assert codes(found) == ["identity.not-tested"]


def test_architectures_without_a_recipe(tmp_path: Path) -> None:
    state = attention_state(usual(), llama)
    for architecture, reason in (
        ("gptj", "no verified recipe"),
        ("deepseek4", "not verified"),
        ("minimax-01", "no convolution state"),
        ("", "without architecture"),
    ):
        model = usual(architecture, block_count=8) if architecture else usual("x")
        if not architecture:
            model.architecture = ""
        refused(identity(tmp_path, state, model), reason)


def test_a_hybrid_whose_first_layer_attends_unverified(tmp_path: Path) -> None:
    model = usual("qwen3next", full_attention_interval=1)
    refused(identity(tmp_path, attention_state(model, neox), model), "was not verified")


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.0.attn_norm.weight"])
def test_a_tensor_that_is_not_there(name: str, tmp_path: Path) -> None:
    model = usual()
    state = attention_state(model, llama)
    refused(identity(tmp_path, state, model, without=name), name)
    model.keys["split.count"] = 3
    assert "no tensor" in identity(tmp_path, state, model, without=name).evidence


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    model, other = usual(), usual()
    other.matrix("blk.0.attn_k.weight", HEAD + 1)
    refused(identity(tmp_path, attention_state(model, llama), other), "attn_k.weight is 64×33")


def test_states_without_tokens_or_rows(tmp_path: Path) -> None:
    model = usual()
    no_tokens = attention_state(model, llama, tokens=Tokens(()))
    refused(identity(tmp_path, no_tokens, model), "no token list")
    media = attention_state(model, llama, tokens=Tokens((0, *(-1,) * 39)))
    unknown = attention_state(model, llama, tokens=Tokens((N_VOCAB,) * 40))
    assert identity(tmp_path, media, model).sides[0].n_cells == 1
    refused(identity(tmp_path, unknown, model), "no cell of layer 0")
    turbo = Memory({"attn": Cache((tuple(map(Cell, range(40))),), (Row(43, 50),), (Row(43, 50),))})
    state = pack(Slot(2, Tokens(IDS), turbo)).data
    refused(identity(tmp_path, state, usual(head=128)), "turbo3")


def test_rows_that_are_not_finite(tmp_path: Path) -> None:
    model = usual()
    nan = (math.nan,) * HEAD
    state = attention_state(model, lambda m, t, p: (np.array(nan), np.array(nan)))
    found = identity(tmp_path, state, model)
    assert found.outcome is Outcome.NOT_TESTED
    assert "not finite" in found.evidence
    assert codes(found) == [*["tensors.non-finite"] * 2, "identity.not-tested"]
    model.tensors["blk.0.attn_norm.weight"][:] = math.inf
    model._put("blk.0.attn_norm.weight", model.tensors["blk.0.attn_norm.weight"], "f32")
    state = attention_state(usual(), llama)
    refused(identity(tmp_path, state, model), "weights are damaged")


BAD_ROWS = {
    "a third": (lambda pos: pos % 3 == 0, math.nan, ["tensors.non-finite"]),
    "all": (lambda pos: True, math.inf, ["tensors.non-finite"]),
    "a third zero": (lambda pos: pos % 3 == 0, 0.0, ["identity.mixed"]),
    "all zero": (lambda pos: True, 0.0, ["identity.mixed"]),
    "a third noise": (lambda pos: pos % 3 == 0, None, ["identity.mixed"]),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_without_a_meaning_among_others(case: str, tmp_path: Path) -> None:
    """Keys alone: the values next to them are those of the model."""
    bad, number, expected = BAD_ROWS[case]

    def rows(m: Model, token: int, pos: int) -> tuple[Any, Any]:
        k, v = llama(m, token, pos)
        if bad(pos):
            k = llama(m, token + 1, pos + 7)[0] if number is None else np.full(HEAD, number)
        return k, v

    model = usual()
    state = attention_state(model, rows)
    found = identity(tmp_path, state, model)
    assert found.outcome is Outcome.MIXED, found.evidence
    assert codes(found) == expected
    actual = [one.actual for one in found.findings if one.code == "identity.mixed"]
    assert actual == {"a third noise": ["6 of 16 rows are further off"]}.get(case, actual)
    (tmp_path / "alone").write_bytes(state)
    with opened(tmp_path / "alone") as source:
        root = identify(source).root
        assert root is not None
        alone = judge(source, sections(root), tokens_of(root), None)
    assert codes(alone) == [code for code in expected if code == "tensors.non-finite"]
    k = found.side("k")
    if case == "a third":
        assert k is not None
        assert k.n_cells < 16
        assert k.first > 0
    assert (k is None) == (case == "all")


def test_a_model_of_another_width_differs(tmp_path: Path) -> None:
    found = identity(tmp_path, attention_state(usual(), llama), usual(n_kv=2))
    assert found.outcome is Outcome.DIFFERS
    assert "keys of 32 elements" in found.evidence
    assert codes(found) == ["identity.differs"]


def test_one_side_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Keys of a fork's type beside ordinary values."""
    model = usual(head=128)
    cache = Cache((tuple(map(Cell, range(40))),), (Row(43, 50),), (row("f16", 128),))

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        if part == "attn.v":
            return encoded(llama(model, IDS[pos], pos)[1], "f16")
        return small_numbers(part, layer, pos, size)

    state = pack(Slot(2, Tokens(IDS), Memory({"attn": cache})), values).data
    found = identity(tmp_path, state, model)
    assert found.outcome is Outcome.MATCHES
    assert [side.name for side in found.sides] == ["v"]
    assert any("turbo3" in note for note in found.notes)
    assert "at these positions" not in found.evidence


def test_every_architecture_has_one_answer() -> None:
    assert not RECIPES.keys() & UNVERIFIED.keys()
    assert RECIPES.keys() >= NOT_MEASURED | CONVOLUTIONS.keys()
    assert len(RECIPES) > 110


# -- without a model -------------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [False, True])
def test_equal_tokens_have_equal_values(transposed: bool, tmp_path: Path) -> None:
    ids = tuple(i % 11 for i in range(40))
    state = attention_state(usual(), llama, ids=ids, transposed=transposed)
    found = identity(tmp_path, state, None)
    assert found.outcome is Outcome.NOT_TESTED
    assert found.notes == ("16 of 16 pairs of cells of one token hold equal values",)
    assert not found.findings
    lists = b"".join(i.to_bytes(4, "little") for i in ids)
    other = b"".join((i % 10).to_bytes(4, "little") for i in range(40))
    moved = identity(tmp_path, state.replace(lists, other), None)
    assert codes(moved) == ["identity.repeated-tokens"]
    assert moved.findings[0].path.endswith("v[0]")


def test_without_repeated_tokens_or_values_nothing_is_said(tmp_path: Path) -> None:
    distinct = attention_state(usual(), llama, ids=tuple(range(40)))
    latent = attention_state(latent_model(1, absorbed=True), latent_first)
    for state in (distinct, latent):
        found = identity(tmp_path, state, None)
        assert (found.outcome, found.notes, found.findings) == (Outcome.NOT_TESTED, (), ())


# -- the verdict alone -----------------------------------------------------------------------------


def side(name: str, error: float, rounding: float = 0.0, *, content: bool | None = None) -> Side:
    agrees = error <= math.hypot(AGREES, 2 * rounding)
    return Side(
        name=name,
        content=name != "k" if content is None else content,
        error=error,
        rounding=rounding,
        way=Way.CPU,
        rotation=0,
        type="f16",
        n_cells=16,
        n_distinct=16,
        first=0,
        last=15,
        agreeing=tuple(range(16)) if agrees else (),
        foreign=tuple(range(16)) if error > OTHER else (),
        path="",
        span=Span(0, 0),
    )


@pytest.mark.parametrize(
    ("sides", "outcome"),
    [
        ([side("k", 2e-4, 2e-4), side("v", 2e-4, 2e-4)], Outcome.MATCHES),
        ([side("k", 0.26, 0.1), side("v", 0.1, 0.1)], Outcome.MATCHES),
        ([side("k", 0.5, 0.1), side("v", 0.1, 0.1)], Outcome.OTHER_POSITIONS),
        ([side("k", 0.2), side("v", 0.12)], Outcome.RELATED),
        ([side("k", 1.8, 1.8), side("v", 2e-4, 2e-4)], Outcome.MATCHES),
        ([side("k", 1.4), side("v", 1.4)], Outcome.DIFFERS),
        ([side("k", 1e-4), side("v", 1.4)], Outcome.MIXED),
        ([side("k", 1e-4), side("v", 1e-4), side("r", 1.3)], Outcome.MIXED),
        ([side("k", 0.9, 0.6), side("v", 0.9, 0.6)], Outcome.UNDECIDABLE),
        ([side("k", 1.4, content=True)], Outcome.DIFFERS),
        ([side("r", 1e-7)], Outcome.MATCHES),
        ([side("v", 1e-4, math.nan)], Outcome.UNDECIDABLE),
    ],
)
def test_verdict(sides: list[Side], outcome: Outcome) -> None:
    assert verdict(sides) is outcome


# -- any bytes, few reads --------------------------------------------------------------------------


@given(data=st.data())
def test_no_bytes_of_a_state_or_of_a_model_raise(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any", numbered=True)
    rows = data.draw(st.sampled_from([llama, latent_first]))
    model = usual() if rows is llama else latent_model(1, absorbed=True)
    state = bytearray(attention_state(model, rows, k_type="f16", v_type="f16"))
    weights = bytearray(model.write(folder / "model.gguf").read_bytes())
    for damaged in (state, weights):
        for _ in range(data.draw(st.integers(0, 6))):
            at = data.draw(st.integers(0, min(len(damaged), 1500) - 1))
            word = data.draw(st.sampled_from([b"\0", b"\xff", b"\xff\xff\xff\xff", b"\0\0\0\0\1"]))
            damaged[at : at + len(word)] = word
    (folder / "state.bin").write_bytes(state)
    (folder / "model.gguf").write_bytes(weights[: data.draw(st.sampled_from([len(weights), 3000]))])
    with opened(folder / "state.bin") as source, opened(folder / "model.gguf") as other:
        root, header = identify(source).root, read_model(other)
        if root is not None and isinstance(header, ModelFile):
            found = judge(source, sections(root), tokens_of(root), header)
            assert found.evidence


def test_a_large_model_costs_no_more_than_the_rows_it_takes(tmp_path: Path) -> None:
    """A file of 70 B parameters, mostly holes."""
    n_embd, n_vocab, heads, head = 8192, 128_256, 8, 128
    large = Model("llama", keys(64, heads, head) | {"embedding_length": n_embd}, weight_type="q8_0")
    path = sparse_model(tmp_path / "large.gguf", large, n_embd, n_vocab, heads * head)
    assert path.stat().st_size > 30 << 30
    cells = tuple(map(Cell, range(40)))
    cache = Cache((cells,), (row("f16", heads * head),), (row("f16", heads * head),))
    (tmp_path / "state.bin").write_bytes(pack(Slot(2, Tokens(IDS), Memory({"attn": cache}))).data)
    with opened(tmp_path / "state.bin") as source, opened(path) as weights:
        root, header = identify(source).root, read_model(weights)
        assert root is not None
        assert isinstance(header, ModelFile)
        at_first, of_header = source.bytes_read, weights.bytes_read
        found = judge(source, sections(root), tokens_of(root), header)
        assert found.outcome is Outcome.NOT_TESTED  # zeros everywhere
        two_heads = 2 * 2 * head * n_embd // 32 * 34
        assert weights.bytes_read - of_header < two_heads + 40 * n_embd // 32 * 34 + (1 << 17)
        assert source.bytes_read - at_first < 200_000


def sparse_model(path: Path, model: Model, n_embd: int, n_vocab: int, width: int) -> Path:
    """The tensors of layer 0 in a file with a hole for the rest."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entries = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    entries += [
        text(f"llama.{key}") + struct.pack("<If", 6, value)
        if isinstance(value, float)
        else text(f"llama.{key}") + struct.pack("<II", 4, value)
        for key, value in model.keys.items()
    ]
    q8 = n_embd // 32 * 34
    tensors = [
        ("token_embd.weight", (n_embd, n_vocab), 8, q8 * n_vocab),
        ("blk.0.attn_norm.weight", (n_embd,), 0, 4 * n_embd),
        ("blk.0.attn_k.weight", (n_embd, width), 8, q8 * width),
        ("blk.0.attn_v.weight", (n_embd, width), 8, q8 * width),
        ("rest", (n_embd, 3_700_000), 8, q8 * 3_700_000),
    ]
    infos, offset = b"", 0
    for name, dims, kind, size in tensors:
        infos += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        infos += struct.pack("<IQ", kind, offset)
        offset += size + -size % 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + infos
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % 32))
        file.truncate(file.tell() + offset)
    return path
