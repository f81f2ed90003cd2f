"""Returns to checkpoints with wrong numbers: what b11549 made of them, request by request."""

from __future__ import annotations

import pytest

from inspector.checks.returns import Held, Numbers, Return, returned

STATE = Held(47, 47, 0, at_tip=True)
"""LFM2, behind 48 of 56 tokens."""
WINDOW = Held(97, 128, 32, at_tip=False)
"""Gemma 3, behind 129 of 137 tokens."""
ALL = Held(0, 17, 32, at_tip=False)
"""The same behind 18 of 26 tokens: nothing has left the window yet."""


@pytest.mark.parametrize(
    ("held", "n_tokens", "pos_min", "pos_max", "outcome"),
    [
        (STATE, 48, 47, 47, Return.RIGHT),
        (STATE, 47, 47, 47, Return.TOO_LOW),
        (STATE, 1, 47, 47, Return.TOO_LOW),
        (STATE, 0, 47, 47, Return.FROM_START),
        (STATE, -1, 47, 47, Return.RIGHT),
        (STATE, 52, 47, 47, Return.RIGHT),
        (STATE, 48, 46, 47, Return.TOO_LOW),
        (STATE, 48, -1, 47, Return.TOO_LOW),
        (STATE, 48, 51, 47, Return.RIGHT),
        (STATE, 51, 50, 47, Return.TOO_HIGH),
        (STATE, 48, 47, 37, Return.RIGHT),
        (STATE, 48, 47, -7, Return.RIGHT),
        (STATE, 48, 47, 51, Return.RIGHT),
        (STATE, 48, 46, 48, Return.TOO_LOW),  # for a prompt of exactly 48 tokens
        (STATE, 48, 0, 48, Return.TOO_LOW),
        (STATE, 48, 46, 49, Return.RIGHT),
        (STATE, 48, 45, 45, Return.TOO_LOW),
        (STATE, 48, 49, 49, Return.RIGHT),
        (STATE, 47, 46, 46, Return.TOO_LOW),
        (STATE, 49, 48, 48, Return.TOO_HIGH),
        (STATE, 48, -1, -1, Return.FROM_START),
        (STATE, 48, -5, -5, Return.TOO_HIGH),
        (WINDOW, 129, 0, 128, Return.RIGHT),
        (WINDOW, 128, 0, 128, Return.RIGHT),
        (WINDOW, 127, 0, 128, Return.SHORT),
        (WINDOW, 119, 0, 128, Return.TOO_LOW),
        (WINDOW, 1, 0, 128, Return.TOO_LOW),
        (WINDOW, 0, 0, 128, Return.FROM_START),
        (WINDOW, -5, 0, 128, Return.RIGHT),
        (WINDOW, 133, 0, 128, Return.RIGHT),
        (WINDOW, 129, -1, 128, Return.RIGHT),
        (WINDOW, 129, 128, 128, Return.RIGHT),
        (WINDOW, 129, 133, 128, Return.RIGHT),
        (WINDOW, 129, 0, 127, Return.TOO_LOW),  # for a prompt of exactly 127 tokens
        (WINDOW, 129, 100, 127, Return.SHORT),
        (WINDOW, 129, 0, 88, Return.TOO_LOW),
        (WINDOW, 129, 0, 132, Return.RIGHT),
        (WINDOW, 130, 0, 129, Return.RIGHT),
        (WINDOW, 131, 0, 130, Return.TOO_HIGH),
        (WINDOW, 129, 0, -1, Return.TOO_LOW),
        (ALL, 18, 0, 17, Return.RIGHT),
        (ALL, 8, 0, 17, Return.RIGHT),
        (ALL, 1, 0, 17, Return.RIGHT),
        (ALL, 18, 0, 7, Return.RIGHT),
        (ALL, 18, 0, -1, Return.RIGHT),
        (ALL, 20, 0, 19, Return.TOO_HIGH),
    ],
)
def test_a_return(held: Held, n_tokens: int, pos_min: int, pos_max: int, outcome: Return) -> None:
    assert returned(Numbers(n_tokens, pos_min, pos_max), held) is outcome


def test_positions_alone() -> None:
    assert returned(Numbers(None, 47, 47), STATE) is Return.RIGHT
    assert returned(Numbers(None, 48, 48), STATE) is Return.TOO_HIGH
    assert returned(Numbers(None, -5, -5), STATE) is Return.TOO_HIGH


def test_what_servers_leave_behind_is_right() -> None:
    short = Held(98, 128, 32, at_tip=False)  # it went back to a checkpoint, and took another
    assert returned(Numbers(129, 0, 128), short) is Return.RIGHT
