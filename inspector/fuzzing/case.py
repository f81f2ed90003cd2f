"""What one generated file is to be: the options of a server, and the shapes of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from formats.ggml_types import TYPES, UPSTREAM
from formats.layout import Layout

TYPE_BY_NAME = {t.name: t for t in TYPES if t.writer == UPSTREAM and t.cache}


class Row(NamedTuple):
    """What one cell occupies in one layer: a ggml type id and bytes."""

    type: int
    size: int


def row(name: str, elements: int) -> Row:
    """A row of so many elements of the type of this name."""
    kind = TYPE_BY_NAME[name]
    return Row(kind.id, elements // kind.block_elements * kind.block_bytes)


@dataclass(frozen=True, slots=True)
class Shape:
    """The blocks of one section.

    Attributes:
        k: keys of every layer; R rows of a recurrent section.
        v: values of every layer; S rows of a recurrent section.
        n_layer: the word in the section.
        n_rot: the rotation words, keys and values.
    """

    k: tuple[Row, ...]
    v: tuple[Row, ...]
    n_layer: int
    n_rot: tuple[int, int] = (0, 0)


OPTIONS: dict[str, tuple[object, ...]] = {
    "tokens": ("plain", "packed", "image", "audio"),
    "types": ("f16/f16", "q8_0/q8_0", "f32/f32", "bf16/bf16", "q4_0/f16", "q5_1/iq4_nl"),
    "v_trans": (0, 1),
    "n_stream": (1, 4, 2),
    "records": (None, 1, 2, 0),
    "n_tokens": (12, 7, 33),
    "n_layer": (2, 1, 3),
    "outputs": (2, 0),
    "n_rot": (0, 64),
    "suffix": ("", "recurrent", "indexer"),
    "v_state": (0, 1, 2),
}
"""Option -> its values, the commonest first."""


OWN_WINDOW = 4
"""Tokens that windowed layers see unless a case says otherwise."""


@dataclass(frozen=True, slots=True)
class Case:
    """One file to be generated.

    Attributes:
        layout: what it is written as.
        seed: of everything that is not fixed by the options.
        options: those that differ from the first of `OPTIONS`.
        n_swa: tokens that a windowed layer sees.
        shapes: member of the memory -> its blocks; those of a small model where none is given.
        ids: its tokens; made from the seed if None.
    """

    layout: Layout
    seed: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    n_swa: int = OWN_WINDOW
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    ids: tuple[int, ...] | None = None
