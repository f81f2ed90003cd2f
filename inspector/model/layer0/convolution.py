"""What the convolution of a recurrent layer 0 keeps: a vector for each of the last few tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inspector.arrays.numbers import Floats, Indices
from inspector.model.layer0.projection import LARGEST_WIDTH, WAYS, Layer0, Part, Runs
from inspector.model.layer0.recipes import CONVOLUTIONS, Layout
from inspector.model.layer0.weights import NotTestable

MOST_CHANNELS = 512
"""Channels that are compared in one piece: the first and the last of many."""


class Columns(NamedTuple):
    """A tensor that makes channels.

    Attributes:
        name: without `.weight`.
        dims: elements of a row, rows.
        rows: the row of each channel.
    """

    name: str
    dims: tuple[int, int]
    rows: Indices


def n_taps(layer: Layer0) -> int:
    """Tokens that the convolution of layer 0 keeps.

    Raises:
        NotTestable: if that is not known.
    """
    number, layout = layer.keys.number, CONVOLUTIONS.get(layer.keys.architecture)
    if layout is None:
        raise NotTestable(f"{layer.keys.architecture}: its first layer keeps no convolution state")
    if layout is Layout.INPUT:
        return 1
    kernel = number("shortconv.l_cache" if layout is Layout.B_TIMES_X else "ssm.conv_kernel")
    kernel = kernel or 4 * (layout is Layout.Q_K_V)
    if not 1 < kernel <= 64:
        raise NotTestable("the metadata do not say how many tokens the convolution keeps")
    return kernel - 1


def kept(layer: Layer0, x: Floats) -> tuple[Part, int]:
    """What the convolution keeps of each token, and how many channels it has.

    Args:
        layer: the first layer.
        x: its inputs, shape `(tokens, n_embd)`.

    Raises:
        NotTestable: if it cannot be computed.
    """
    layout, n = CONVOLUTIONS[layer.keys.architecture], layer.n_embd
    if layout is Layout.INPUT:
        numbers = np.broadcast_to(x[:, None], (len(WAYS), len(x), 1, n))
        return Part("r", numbers, np.arange(n)[None]), n
    if layout is Layout.B_TIMES_X:
        channels = _ends(n)
        tensor = layer.weights.tensor("blk.0.shortconv.in_proj.weight", n, 3 * n)
        b, scaled = (layer.product(tensor, _runs(at + channels), x[None]) for at in (0, 2 * n))
        return _part(b * scaled, channels), n
    sources = _sources(layer, layout)
    width = sum(len(source.rows) for source in sources)
    channels, parts, at = _ends(width), [], 0
    for name, dims, rows in sources:
        chosen = rows[channels[(channels >= at) & (channels < at + len(rows))] - at]
        if len(chosen):
            parts.append(layer.projected(name, dims, _runs(chosen), x[None]))
        at += len(rows)
    return _part(np.concatenate(parts, axis=2), channels), width


def _part(numbers: Floats, channels: Indices) -> Part:
    n_pieces = 2 if len(channels) == 2 * MOST_CHANNELS else 1
    shape = (*numbers.shape[:2], n_pieces, -1)
    return Part("r", numbers.reshape(shape), channels.reshape(n_pieces, -1))


def _ends(width: int) -> Indices:
    """The channels that are compared."""
    if width <= 2 * MOST_CHANNELS:
        return np.arange(width)
    first = np.arange(MOST_CHANNELS)
    return np.concatenate([first, first + width - MOST_CHANNELS])


def _runs(rows: Indices) -> Runs:
    """Ascending rows as runs of neighbours."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return tuple(range(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, breaks))


def _sources(layer: Layer0, layout: Layout) -> tuple[Columns, ...]:
    number, n = layer.keys.number, layer.n_embd
    inner, state, groups = (
        number(f"ssm.{key}") for key in ("inner_size", "state_size", "group_count")
    )
    n_head, rank = number("attention.head_count"), number("ssm.time_step_rank")
    width = inner + 2 * groups * state
    if layout is Layout.Q_K_V:
        width = n_head * number("kda.head_dim")
        _believable(width)
        names = (f"blk.0.attn_{letter}" for letter in "qkv")
        return tuple(Columns(name, (n, width), np.arange(width)) for name in names)
    _believable(width, inner)
    if layout is Layout.FIRST:
        return (Columns("blk.0.ssm_in", (n, 2 * inner), np.arange(inner)),)
    if layout is Layout.BEHIND_GATE:
        dims = n, inner + width + rank
        return (Columns("blk.0.ssm_in", dims, inner + np.arange(width)),)
    if layout is Layout.HEADS_SECOND_HALF:
        _believable(rank, parts_of=inner)
        rows = np.arange(2 * inner).reshape(rank, 2, -1)[:, 1].ravel()
        return (Columns("blk.0.ssm_in", (n, 2 * inner), rows),)
    if layer.weights.has("blk.0.attn_qkv.weight"):
        return (Columns("blk.0.attn_qkv", (n, width), np.arange(width)),)
    _believable(groups, parts_of=inner)
    per_group = inner // groups
    starts = np.arange(groups)[:, None] * (2 * state + 2 * per_group)
    pieces = ((0, state), (state, state), (2 * state, per_group))  # q, k and v; z is not convolved
    rows = np.concatenate([(starts + at + np.arange(size)).ravel() for at, size in pieces])
    return (Columns("blk.0.ssm_in", (n, width + inner), rows),)


def _believable(*counts: int, parts_of: int = 0) -> None:
    if not all(0 < count < LARGEST_WIDTH and parts_of % count == 0 for count in counts):
        raise NotTestable("the metadata do not say how wide the convolution of layer 0 is")
