"""What a prompt reuses, row by row of the tables, with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inspector.server.restored import capacity
from inspector.server.reuse import (
    Outcome,
    Prediction,
    Request,
    after,
    conditions,
    follow_up,
    predict,
    usual,
)
from inspector.server.servers import Build, build_named
from inspector.server.slot import Blob, Cells, Checkpoint, Media, Memory, Slot, Window
from inspector.server.target import CHECKPOINT_MIN_STEP, Target

N, W = 100, 32
NEWEST = 11549


def target(number: int | str = NEWEST, **options: Any) -> Target:
    name = f"b{number}" if isinstance(number, int) else number
    build = build_named(name)
    assert isinstance(build, Build), build
    step = next(value for first, value in CHECKPOINT_MIN_STEP if (build.number or 0) >= first)
    settings = {"n_ctx": 4096, "cache_ram": 0, "checkpoint_min_step": step, **options}
    return Target(build, **settings)


def unified(n_tokens: int = N) -> Slot:
    return Slot(Memory.UNIFIED, n_tokens, 0, n_tokens - 1)


def hybrid(n_tokens: int = N, *checkpoints: Checkpoint) -> Slot:
    last = n_tokens - 1
    return Slot(Memory.HYBRID, n_tokens, 0, last, tip=last, checkpoints=checkpoints)


def windowed(lowest: int, n_tokens: int = N, *checkpoints: Checkpoint, cells: int = 512) -> Slot:
    held = Cells.restored(cells, np.arange(lowest, n_tokens))
    return Slot(
        Memory.WINDOWED, n_tokens, 0, n_tokens - 1, held, window=Window(W), checkpoints=checkpoints
    )


def state(n_tokens: int, index: int | None = 0) -> Checkpoint:
    """A checkpoint of a recurrent memory."""
    last = n_tokens - 1
    return Checkpoint(n_tokens, last, last, tip=last, index=index)


def piece(low: int, high: int, n_tokens: int | None = None) -> Checkpoint:
    """A checkpoint of a windowed cache, its blob as long as it says."""
    n_tokens = high + 1 if n_tokens is None else n_tokens
    return Checkpoint(n_tokens, low, high, np.arange(low, high + 1), index=0)


def answer(found: Prediction) -> int | Outcome:
    return found.outcome if found.reused is None else found.reused


def reused(slot: Slot, server: Target, shared: int, total: int) -> int | Outcome:
    return answer(predict(slot, server, Request(shared, total)))


ABORTS = Outcome.ABORTS


@pytest.mark.parametrize("number", [2630, 5429, 5554, 5653, 6685, 8152, 8450, 9230, 9509, NEWEST])
def test_unified(number: int) -> None:
    assert reused(unified(), target(number), 60, 70) == 60
    assert reused(unified(), target(number), 60, 60) == 59
    assert reused(unified(), target(number), N, N + 1) == N
    assert reused(unified(), target(number), N, N) == N - 1
    assert reused(unified(), target(number), 0, 10) == 0
    assert reused(unified(), target(number), 1, 10) == 1


@pytest.mark.parametrize(("number", "more", "none"), [(9231, 0, 0), (9508, 0, 0), (9509, 1, 0)])
def test_one_shared_token(number: int, more: int, none: int) -> None:
    assert reused(unified(), target(number), 1, 10) == more
    assert reused(unified(), target(number), 1, 1) == none


@pytest.mark.parametrize(
    ("number", "append", "identical", "half"),
    [
        (5428, N, 0, 0),  # the tail cannot be removed: the slot is emptied
        (6685, N, 0, 0),
        (9179, N, 0, 0),
        (9180, N, ABORTS, 0),
        (9230, N, ABORTS, 0),
        (9231, 0, 0, 0),
        (9508, 0, 0, 0),
        (9509, N, 0, 0),
        (NEWEST, N, 0, 0),
    ],
)
@pytest.mark.parametrize("memory", [Memory.RECURRENT, Memory.HYBRID])
def test_recurrent(
    memory: Memory, number: int, append: int, identical: int | Outcome, half: int
) -> None:
    slot = replace(hybrid(), memory=memory)
    assert reused(slot, target(number), N, N + 1) == append
    assert reused(slot, target(number), N, N) == identical
    assert reused(slot, target(number), N // 2, N) == half


def test_checkpoint_for_the_last_token() -> None:
    """Since b6685 a memory without a window counts as one with a window of one token."""
    assert reused(hybrid(N, state(60)), target(8449), 99, 105) == 60


ALL_CELLS, LAST_CELLS = 0, N - W


@pytest.mark.parametrize(
    ("number", "lowest", "append", "most", "few"),
    [  # of N shared tokens, of 99, and of 20: no more than the window
        (5428, LAST_CELLS, N, 99, 20),
        (5429, ALL_CELLS, N, 99, 20),
        (5429, LAST_CELLS, N, 0, 0),
        (5554, ALL_CELLS, N, 99, 0),  # the threshold is below 0
        (5653, ALL_CELLS, N, 99, 20),
        (5653, LAST_CELLS, N, 0, 0),
        (8449, ALL_CELLS, N, 99, 20),
        (8450, ALL_CELLS, N, 99, 0),
        (8450, LAST_CELLS, N, 0, 0),
        (9230, LAST_CELLS, N, 0, 0),
        (9231, ALL_CELLS, N, 99, 0),
        (9231, LAST_CELLS, 0, 0, 0),
        (9509, ALL_CELLS, N, 99, 0),
        (9509, LAST_CELLS, 0, 0, 0),
        (NEWEST, LAST_CELLS, 0, 0, 0),
    ],
)
def test_windowed(number: int, lowest: int, append: int, most: int, few: int) -> None:
    slot, server = windowed(lowest), target(number)
    assert reused(slot, server, N, N + 1) == append
    assert reused(slot, server, 99, N) == most
    assert reused(slot, server, 20, N) == few


def test_wrapped_window() -> None:
    """A file of old builds holds what its cache still had: here from position 40 on."""
    assert reused(windowed(40), target(8449), 72, N) == 72
    assert reused(windowed(40), target(8449), 71, N) == 0
    assert reused(windowed(40), target(8450), 73, N) == 73
    assert reused(windowed(40), target(8450), 72, N) == 0


@pytest.mark.parametrize(("number", "expected"), [(8915, 0), (8916, 69), (NEWEST, 69)])
def test_swa_full(number: int, expected: int) -> None:
    server = target(number, swa_full=True)
    found = predict(windowed(LAST_CELLS), server, Request(69, N))
    assert found.reused == expected
    assert reused(windowed(LAST_CELLS), server, 68, N) == 0
    lack = "the windowed layers lack positions 38 to 67: "
    assert [note[: len(lack)] for note in found.notes] == ([lack] if expected else [])


def test_swa_full_is_exact_for_an_append() -> None:
    found = predict(windowed(LAST_CELLS), target(swa_full=True), Request(N, N + 1))
    assert (found.reused, found.notes) == (N, ())


@pytest.mark.parametrize(
    ("number", "below", "above"), [(8449, 8000, 8500), (8450, 0, 8500), (NEWEST, 0, 8500)]
)
def test_chunks(number: int, below: int, above: int) -> None:
    slot = replace(windowed(0, 9000, cells=16384), window=Window(8192, chunked=True))
    server = target(number, n_ctx=32768)
    assert reused(slot, server, 8000, 9000) == below
    assert reused(slot, server, 8500, 9000) == above


def test_compressed() -> None:
    slot = Slot(Memory.COMPRESSED, N, tip=N - 1, window=Window(W))
    assert reused(slot, target(), N, N + 1) == 0
    assert reused(slot, target(swa_full=True), N, N + 1) == N
    assert reused(slot, target(swa_full=True), N - 1, N + 1) == 0


# Checkpoints

BACK = Request(210, 240)
"""A prompt for which the windowed layers, which begin at 200, need a position below 178."""


@pytest.mark.parametrize(
    ("number", "inside", "beyond", "at_threshold"),
    [
        (5653, 0, 0, 0),  # none is looked for
        (6160, 199, 210, 199),
        (6685, 199, 210, 0),
        (8152, 200, 211, 0),
        (8166, 199, 210, 0),
        (9593, 199, 0, 0),
        (NEWEST, 199, 0, 0),
    ],
)
def test_search(number: int, inside: int, beyond: int, at_threshold: int) -> None:
    """One that ends inside the common prefix, one that ends beyond, one that begins at 178."""
    for checkpoint, expected in (
        (piece(150, 199), inside),
        (piece(150, 299), beyond),
        (piece(178, 199), at_threshold),
    ):
        slot = windowed(200, 400, checkpoint)
        found = predict(slot, target(number), BACK)
        assert answer(found) == expected, found.why
        assert found.checkpoint == (0 if expected else None)


def test_prefix_overrun_is_noted() -> None:
    slot = windowed(200, 400, piece(150, 299))
    assert "not shared" in predict(slot, target(8152), BACK).notes[0]


@pytest.mark.parametrize(
    ("number", "short", "long"), [(8692, 0, 0), (8693, 15, 20), (9592, 15, 20), (9593, 15, 0)]
)
def test_from_position_zero(number: int, short: int, long: int) -> None:
    for checkpoint, expected in ((piece(0, 15), short), (piece(0, 199), long)):
        assert reused(windowed(200, 400, checkpoint), target(number), 20, 40) == expected


def test_search_goes_backwards() -> None:
    """In the order of the list, which nothing sorts."""
    in_order = hybrid(N, state(30, 0), state(60, 1), state(90, 2))
    found = predict(in_order, target(), Request(80, 90))
    assert (found.reused, found.checkpoint) == (60, 1)
    backwards = replace(in_order, checkpoints=in_order.checkpoints[::-1])
    assert reused(backwards, target(), 80, 90) == 30


def test_token_that_is_skipped() -> None:
    """b8152 to b8165 go on one token too late: M-RoPE models do not notice, others refuse."""
    slot = hybrid(N, state(60))
    assert reused(slot, target(8151), 80, 90) == 60
    assert reused(slot, target(8152), 80, 90) is Outcome.HTTP_ERROR
    assert reused(slot, target(8165), 80, 90) is Outcome.HTTP_ERROR
    assert reused(slot, target(8166), 80, 90) == 60
    found = predict(replace(slot, mrope=True), target(8152), Request(80, 90))
    assert found.reused == 61
    assert "the answer is wrong" in found.notes[0]


def test_refused_request_empties_the_slot() -> None:
    held = after(hybrid(N, state(60)), target(8152), Request(80, 90), 8)
    assert isinstance(held, Slot)
    assert (held.n_tokens, held.pos_min, held.checkpoints) == (0, -1, ())


@pytest.mark.parametrize(
    ("blob", "expected"),
    [(Blob.LOADS, 60), (Blob.FAILS, 0), (Blob.ABORTS, ABORTS)],
)
def test_blob(blob: Blob, expected: int | Outcome) -> None:
    """No older checkpoint is tried in place of one that does not load."""
    slot = hybrid(N, state(30), replace(state(60), blob=blob))
    assert reused(slot, target(), 80, 90) == expected


def test_no_cells() -> None:
    """Tokens without memory: an exact append was not looked at until b9230."""
    slot = Slot(Memory.UNIFIED, N)
    assert reused(slot, target(5553), 60, 70) == 60
    assert reused(slot, target(5554), 60, 70) is ABORTS
    found = predict(slot, target(9230), Request(N, N + 1))
    assert found.reused == N
    assert found.notes == ("no cell holds the shared tokens: the answer knows nothing of them",)
    assert reused(slot, target(9231), N, N + 1) is ABORTS


def test_positions_that_do_not_follow() -> None:
    slot = Slot(Memory.UNIFIED, N, 0, N - 3)
    assert reused(slot, target(), N, N + 1) is Outcome.HTTP_ERROR
    assert reused(slot, target(), N - 2, N) == N - 2


# A record with wrong numbers, b11549


@pytest.mark.parametrize(
    ("record", "append", "identical"),
    [
        (state(303), 303, 0),
        (replace(state(303), n_tokens=308), 303, 0),
        (replace(state(303), pos_min=301), 303, ABORTS),
        (replace(state(303), pos_min=0), 303, ABORTS),
        (replace(state(303), pos_max=352), 303, 0),
    ],
)
def test_wrong_recurrent_record(record: Checkpoint, append: int, identical: int | Outcome) -> None:
    slot = hybrid(303, record)
    assert reused(slot, target(), 303, 309) == append
    assert reused(slot, target(), 303, 303) == identical


@pytest.mark.parametrize(
    ("low", "n_tokens", "append", "identical"),
    [(271, 303, 0, 0), (270, 303, 302, 0), (0, 303, 302, 302), (270, 298, 298, 0)],
)
def test_tip_of_a_window(low: int, n_tokens: int, append: int, identical: int) -> None:
    """One position lower than the window begins, an append goes back to the tip."""
    record = replace(piece(271, 302), pos_min=low, n_tokens=n_tokens)
    slot = windowed(271, 303, record)
    assert reused(slot, target(), 303, 309) == append
    assert reused(slot, target(), 303, 303) == identical
    degraded = [note for note in predict(slot, target(), Request(303, 309)).notes if "lack" in note]
    assert bool(degraded) == (n_tokens == 298)


def test_tip_from_zero_is_one_cell_short_for_its_own_tokens() -> None:
    slot = windowed(271, 303, replace(piece(271, 302), pos_min=0))
    found = predict(slot, target(), Request(302, 302))
    assert found.reused == 301
    assert "lack positions 270 to 270" in found.notes[0]


# What a request leaves behind


def held_after(slot: Slot, server: Target, shared: int, total: int, n_predict: int = 1) -> Slot:
    held = after(slot, server, Request(shared, total), n_predict)
    assert isinstance(held, Slot), held
    return held


def taken(slot: Slot) -> list[int]:
    return [checkpoint.n_tokens for checkpoint in slot.checkpoints]


EMPTY = Slot(Memory.HYBRID, 0)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (7969, [936]),
        (7970, [488]),
        (8218, [488]),
        (8271, [740, 996]),
        (8450, [740, 996]),
        (9310, [740]),
        (9765, [740]),
        (9978, [740, 996]),
        (NEWEST, [740, 996]),
    ],
)
def test_taken_in_a_prompt_of_1000(number: int, expected: list[int]) -> None:
    assert taken(held_after(EMPTY, target(number, n_ubatch=256), 0, 1000)) == expected


def test_taken_on_the_way() -> None:
    """As a log of a May 2026 build has it: a prompt of 9899 tokens, n_ubatch 512."""
    server = target(9200, n_ctx=65536)
    assert taken(held_after(EMPTY, server, 0, 9899)) == [8192, 9383, 9895]
    server = target(9978, n_ctx=65536)
    assert taken(held_after(EMPTY, server, 0, 9899)) == [9383, 9895]


@pytest.mark.parametrize(("number", "expected"), [(8217, [19488]), (8218, [8192, 16384, 19488])])
def test_taken_every_8192_tokens(number: int, expected: list[int]) -> None:
    assert taken(held_after(EMPTY, target(number, n_ctx=65536), 0, 20000)) == expected


@pytest.mark.parametrize(("number", "expected"), [(8449, [96]), (8450, [60])])
def test_taken_of_little(number: int, expected: list[int]) -> None:
    """64 positions in memory are needed first; since b8450 64 tokens up to the batch's end."""
    assert taken(held_after(hybrid(60), target(number), 60, 100)) == expected


def test_taken_at_the_restored_end() -> None:
    """After a short append the server has the tip itself."""
    held = held_after(hybrid(303), target(), 303, 309, n_predict=8)
    assert taken(held) == [303, 305]
    assert (held.n_tokens, held.tip, held.pos_max) == (316, 315, 315)
    assert reused(held, target(), 303, 320) == 303


@pytest.mark.parametrize(
    ("number", "expected"),
    [(10229, [100, 303, 305]), (11000, [100, 200, 303, 305])],
)
def test_crowded_checkpoints_of_earlier_requests(number: int, expected: list[int]) -> None:
    """Until #28302 those within the least step were dropped though the list was not full."""
    slot = hybrid(303, state(100), state(200))
    assert taken(held_after(slot, target(number), 303, 309)) == expected


def test_full_list() -> None:
    slot = hybrid(303, state(100), state(200))
    assert taken(held_after(slot, target(n_ctx_checkpoints=3), 303, 309)) == [100, 303, 305]
    assert taken(held_after(slot, target(n_ctx_checkpoints=2), 303, 309)) == [303, 305]
    assert taken(held_after(hybrid(303), target(n_ctx_checkpoints=0), 303, 309)) == []


def test_checkpoint_of_as_many_tokens_is_replaced() -> None:
    held = held_after(hybrid(303, state(303)), target(), 303, 309)
    assert taken(held) == [303, 305]
    assert [checkpoint.task for checkpoint in held.checkpoints] == [1, 1]


@pytest.mark.parametrize(("number", "expected"), [(8392, [60, 199]), (8393, [60, 150])])
def test_erasure(number: int, expected: list[int]) -> None:
    """By the lowest position (118 is asked for) until b8392, by the highest (150) since."""
    slot = windowed(200, 400, piece(20, 59), piece(100, 198), piece(130, 180))
    assert taken(held_after(slot, target(number), 150, 180)) == expected


def test_unified_memory_leaves_none() -> None:
    held = held_after(unified(), target(), N, 2000)
    assert (taken(held), held.n_tokens) == ([], 2000)


def test_no_checkpoints_with_a_projector() -> None:
    server = target(8000, mmproj=True)
    assert taken(held_after(EMPTY, server, 0, 1000)) == []


@pytest.mark.parametrize(
    ("checkpoints", "expected"), [((), 0), ((state(1103),), 1103), ((state(1096),), 1096)]
)
def test_anchor_for_the_second_request(checkpoints: tuple[Checkpoint, ...], expected: int) -> None:
    """Append 600 tokens to 1103 at n_ubatch 256, then ask something else after the 1103."""
    server = target(n_ubatch=256, n_batch=512)
    slot = hybrid(1103, *checkpoints)
    found = follow_up(slot, server, Request(1103, 1703), Request(1103, 1109), 8)
    assert answer(found) == expected


@pytest.mark.parametrize(
    ("n_ctx_checkpoints", "n_predict", "expected"),
    [(0, 218, 303), (0, 219, 0), (32, 218, 303), (32, 219, 302)],
)
def test_anchor_below_the_window(n_ctx_checkpoints: int, n_predict: int, expected: int) -> None:
    """One cell at position 270 opens the gate, as long as 256 cells do not overflow; b11549."""
    slot = windowed(270, 303, cells=256)
    server = target(n_ubatch=32, n_ctx_checkpoints=n_ctx_checkpoints)
    assert reused(slot, server, 303, 309) == 303
    found = follow_up(slot, server, Request(303, 309), Request(303, 310), n_predict)
    assert answer(found) == expected


def test_cells() -> None:
    """A cache of eight cells, a window of three."""
    window = Window(3)
    cells = Cells.restored(8, np.arange(4, 10))
    assert cells is not None
    assert cells.pos.tolist() == [4, 5, 6, 7, 8, 9, -1, -1]
    assert cells.place(np.array([10, 11, 12]), window)  # position 4 is masked: all below go
    assert cells.pos.tolist() == [12, 5, 6, 7, 8, 9, 10, 11]
    assert (cells.lowest, cells.highest, cells.head) == (5, 12, 1)
    cells.remove(11)
    assert cells.pos.tolist() == [-1, 5, 6, 7, 8, 9, 10, -1]
    assert cells.head == 0
    assert cells.place(np.array([11, 12]), window)  # 5 is masked, and stands behind the head
    assert cells.pos.tolist() == [11, 12, 6, 7, 8, 9, 10, -1]
    assert cells.saved(window).tolist() == [11, 12, 10]
    assert not cells.place(np.arange(13, 20), window)
    assert Cells.restored(2, np.arange(3)) is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"n_ubatch": 512}, 768),
        ({"n_ubatch": 32}, 256),
        ({"n_ubatch": 512, "n_ctx": 512}, 512),
        ({"n_ubatch": 256, "n_parallel": 4, "kv_unified": True}, 512),
        ({"n_ubatch": 256, "n_parallel": 4}, 512),
        ({"swa_full": True}, 4096),
    ],
)
def test_capacity(options: dict[str, Any], expected: int) -> None:
    assert capacity(Window(W), target(**options)) == expected


# Other things that decide


def test_packed_tokens_before_b10388() -> None:
    slot = replace(unified(), alien="the words of packed tokens are taken for tokens")
    found = predict(slot, target(10229), Request(60, 70))
    assert (found.reused, found.why) == (0, slot.alien)
    assert found.would_change
    assert reused(held_after(slot, target(10229), 60, 70), target(10229), 60, 80) == 60


def test_media() -> None:
    """64 tokens of an image from token 10 on take 8 positions: N tokens end at position 43."""
    image = Media(10, 64, 8)
    slot = replace(unified(), media=(image,), mrope=True, highest=43)
    assert (slot.position(10), slot.position(74), slot.position(100)) == (10, 18, 44)
    assert (slot.tokens_up_to(10), slot.tokens_up_to(18), slot.tokens_up_to(24)) == (10, 74, 80)
    assert reused(slot, target(), 74, 90) == 74
    assert reused(slot, target(), 50, 90) == 10, "an image is shared as a whole"
    tip = Checkpoint(80, 23, 23, tip=23, index=0)
    state = replace(slot, memory=Memory.HYBRID, tip=43, checkpoints=(tip,))
    assert reused(state, target(), 90, 95) == 80
    held = held_after(slot, target(), 74, 90)
    assert (held.n_tokens, held.highest) == (90, 33)


@pytest.mark.parametrize(
    ("number", "cache_ram", "expected"),
    [(NEWEST, None, N), (NEWEST, 0, 0), (9717, None, 0), (9718, None, N)],
)
def test_host_prompt_cache(number: int, cache_ram: int | None, expected: int) -> None:
    """An unrelated prompt, then the saved one: what was parked comes back whole."""
    server = target(number, cache_ram=cache_ram)
    then = Request(0, N + 6, returning=N)
    assert answer(follow_up(hybrid(), server, Request(0, 9), then, 8)) == expected


def test_host_prompt_cache_that_may_help() -> None:
    server = target(cache_ram=None)
    found = follow_up(hybrid(), server, Request(0, 9), Request(0, N + 6), 8)
    assert found.reused == 0
    assert found.notes[0].startswith("the host prompt cache has the 100 tokens from before")


@pytest.mark.parametrize(
    ("shared", "returning", "expected"),
    [(7, N, 7), (1, 24, 1), (1, 25, 25)],
)
def test_host_prompt_cache_asks_for_a_better_fit(
    shared: int, returning: int, expected: int
) -> None:
    """Half of the slot shared keeps it; less than a quarter of the parked one is no match."""
    server = target(cache_ram=None)
    then = Request(shared, N + 6, returning)
    assert answer(follow_up(unified(), server, Request(0, 9), then, 5)) == expected


def test_window_that_is_not_known() -> None:
    slot = replace(windowed(LAST_CELLS), window=None)
    assert reused(slot, target(9230), N, N + 1) == N
    assert reused(slot, target(), N, N + 1) is Outcome.UNKNOWN
    assert reused(slot, target(), 50, N) == 0, "no window is so large that it would do"
    assert isinstance(after(slot, target(), Request(50, N), 8), str)


def test_prompt_that_fills_the_slot() -> None:
    assert reused(unified(), target(n_ctx=512), 60, 511) == 60
    assert reused(unified(), target(n_ctx=512), 60, 512) is Outcome.HTTP_ERROR
    assert reused(unified(), target(6000, n_ctx=512), 60, 512) is Outcome.UNKNOWN


def test_prompts_without_bound() -> None:
    endless = 10**12
    server = target(n_ctx=None)
    for slot in (unified(), hybrid(), windowed(LAST_CELLS)):
        assert predict(slot, server, Request(N, endless)).outcome is Outcome.REUSES
        assert isinstance(after(slot, server, Request(N, endless), 8), str)
        assert isinstance(after(slot, server, Request(N, N + 1), endless), str)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (6700, "which checkpoints b6700 takes is not known"),
        (10860, "which older checkpoints b10860 drops is not known"),
    ],
)
def test_builds_whose_checkpoints_are_not_known(number: int, reason: str) -> None:
    slot = hybrid(303, state(100), state(200))
    found = follow_up(slot, target(number), Request(303, 400), Request(320, 410), 8)
    assert (found.outcome, found.why) == (Outcome.UNKNOWN, reason)
    append = follow_up(slot, target(number), Request(303, 400), Request(407, 410), 8)
    assert append.reused == 407, "the gate is not closed: no checkpoint is needed"


def test_follow_up_of_what_is_not_answered() -> None:
    found = follow_up(hybrid(), target(9200), Request(N, N), Request(N, N + 1))
    assert found.outcome is Outcome.UNKNOWN
    assert "failed to remove sequence" in found.why


def test_answer_as_long_as_the_second_prompt_shares() -> None:
    found = follow_up(unified(), target(), Request(N, 110), Request(150, 160))
    assert found.reused == 150


# ik_llama.cpp: a hybrid model, 207 tokens saved, checkpoints at 63, 127, 191, 194, 206

IK_LIST = tuple(state(end + 1, index) for index, end in enumerate((63, 127, 191, 194, 206)))
IK_REQUESTS = (Request(207, 213), Request(200, 200), Request(192, 201), Request(100, 109))


@pytest.mark.parametrize(
    ("n_tokens", "checkpoints", "evaluated"),
    [
        (207, IK_LIST, [6, 5, 73, 45]),
        (512, IK_LIST, [18, 5, 73, 45]),  # zeros behind the tokens
        (207, (), [6, 200, 201, 109]),
        (512, (), [213, 200, 201, 109]),
    ],
)
def test_ik(n_tokens: int, checkpoints: tuple[Checkpoint, ...], evaluated: list[int]) -> None:
    slot = replace(hybrid(207, *checkpoints), n_tokens=n_tokens)
    found = [predict(slot, target("ik@2026-08-15"), request) for request in IK_REQUESTS]
    assert [f.request.total - (f.reused or 0) for f in found] == evaluated


def test_ik_attention() -> None:
    server = target("ik@2026-08-15")
    found = [predict(unified(207), server, request) for request in IK_REQUESTS]
    assert [f.request.total - (f.reused or 0) for f in found] == [6, 1, 9, 9]
    assert answer(follow_up(unified(207), server, Request(207, 213), Request(150, 160))) == 150


def test_ik_follow_up() -> None:
    server = target("ik@2026-08-15")
    slot = hybrid(207, *IK_LIST)
    found = follow_up(slot, server, Request(207, 213), Request(213, 220), 1)
    assert found.reused == 213
    assert reused(held_after(slot, server, 207, 213, 8), server, 150, 220) is Outcome.UNKNOWN
    assert reused(hybrid(207), target("ik@2026-01-01"), 100, 109) is Outcome.UNKNOWN


# Words


def test_rule_names_build_and_source() -> None:
    found = predict(windowed(LAST_CELLS, N, piece(0, 50)), target(), Request(60, 70))
    assert found.rule.startswith("b9509 (PR #24110): ")
    assert "checkpoint, b9593 (PR #24411): " in found.rule
    assert found.why == (
        "60 tokens are shared, but the windowed layers begin at position 68, not below 28: "
        "back to checkpoint 0 of 51 tokens, positions 0 to 50"
    )


def test_what_would_help_a_window() -> None:
    """Each is tried: the anchor gives 303, the corrected tip 302, the whole cache 303."""
    found = predict(windowed(271, 303), target(), Request(303, 309))
    assert found.reused == 0
    words = " | ".join(found.would_change)
    assert "--swa-full: 303 tokens" in words
    assert "302 tokens" in words
    assert words.count("303 tokens") == 3
    assert "a checkpoint of at most 303 tokens" in words
    without = predict(windowed(271, 303), target(10229), Request(303, 309))
    assert not any("302 tokens" in word for word in without.would_change), "no list is read"


def test_what_would_help_a_state() -> None:
    assert predict(hybrid(), target(), Request(N, N + 1)).would_change == ()
    found = predict(hybrid(), target(), Request(N, N))
    assert found.would_change == ("a checkpoint of at most 99 tokens",)
    assert predict(hybrid(), target(n_ctx_checkpoints=0), Request(N, N)).would_change == ()
    assert reused(hybrid(N, state(99)), target(), N, N) == 99
    assert reused(hybrid(N, state(100)), target(), N, N) == 0


def test_usual() -> None:
    assert usual(N) == {
        "append": Request(100, 101),
        "identical": Request(100, 100),
        "roll back 8": Request(92, 100),
        "half": Request(50, 100),
    }
    assert all(request.total > 0 for request in usual(0).values())
    for request in usual(3).values():
        assert 0 <= request.shared <= request.total


def test_conditions() -> None:
    shared = target(n_parallel=4, kv_unified=True, cache_ram=None)
    assert any("reuses nothing" in line for line in conditions(unified(), shared))
    split = target(n_parallel=4, cache_ram=None)
    assert not any("reuses nothing" in line for line in conditions(unified(), split))
    old = target(8657, n_parallel=4, kv_unified=True, cache_ram=None)
    assert not any("reuses nothing" in line for line in conditions(unified(), old))
    assert any("cache_prompt" in line for line in conditions(unified(), target()))
    shifting = target(cache_reuse=256)
    assert any("--cache-reuse 256" in line for line in conditions(unified(), shifting))
    compressed = Slot(Memory.COMPRESSED, N, tip=N - 1)
    assert any("not measured" in line for line in conditions(compressed, target()))


def test_a_gap_in_memory() -> None:
    """Positions 20 to 29 were removed, and 90 tokens are listed."""
    held = np.array([*range(20), *range(30, N)])
    slot = replace(unified(90), highest=N - 1, scattered=held)
    before, inside, behind = (predict(slot, target(), Request(n, n + 4)) for n in (20, 25, 31))
    assert (before.outcome, before.reused, before.notes) == (Outcome.REUSES, 20, ())
    assert inside.outcome is Outcome.HTTP_ERROR
    assert "position 25 does not follow 19" in inside.why
    assert (behind.outcome, behind.reused) == (Outcome.REUSES, 31)
    assert behind.notes == (
        "10 positions up to 30 have no cell: the answer is not that of the prompt",
    )
    again = follow_up(slot, target(), Request(40, 44), Request(25, 30))
    assert again.outcome is Outcome.HTTP_ERROR
