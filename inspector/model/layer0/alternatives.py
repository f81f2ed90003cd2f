"""What would make keys right that alone are wrong: other settings of RoPE, other positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inspector.model.geometry import Keys
from inspector.model.layer0.comparison import Attention
from inspector.model.layer0.recipes import RopeType
from inspector.model.layer0.rope import Rope, with_yarn

_BASES = (1e4, 1e5, 5e5, 1e6, 5e6, 1e7)
_SCALES = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)
_OFFSETS = (1, -1, 2, -2, 3, -3, 4, -4)


def explained(attention: Attention, keys: Keys) -> str:
    """What would make the keys right, in words; of several the best, empty if nothing does.

    Args:
        attention: what was compared.
        keys: the metadata of the model.
    """
    rows, rope = attention.k, attention.rope
    if rows is None or rope.type is RopeType.NONE:
        return ""
    fits = []
    for says, other, offset in (*_alternatives(rope, keys), *_multiples(attention)):
        positions = rows.sample.positions.copy()
        positions[:, :3] += offset
        moved = replace(rows, sample=replace(rows.sample, positions=positions))
        side = moved.measured(other, content=False)
        if side is not None and side.agrees:
            fits.append((side.error, says))
    return min(fits, default=(0.0, ""))[1]


def _multiples(attention: Attention) -> Iterator[tuple[str, Rope, int]]:
    """The same setting with keys that are larger: with YaRN, each context shift enlarges them."""
    rows, rope = attention.k, attention.rope
    side = next((side for side in attention.sides if side.name == "k"), None)
    if rows is not None and side is not None:
        factor = rows.multiple(rope, side.rotation)
        says = f"they are {factor:.3f} times as large, as YaRN leaves them after context shifts"
        yield says, replace(rope, magnitude=rope.magnitude * factor), 0


def _alternatives(rope: Rope, keys: Keys) -> Iterator[tuple[str, Rope, int]]:
    """Other settings: in words, the setting, and how far positions move."""
    for base in _BASES:
        if base != rope.base:
            yield f"RoPE base {base:g}, not {rope.base:g}", replace(rope, base=base), 0
    trained = float(keys.number("context_length"))
    for scale in _SCALES:
        plain = replace(rope, trained=None, scale=scale, magnitude=1.0)
        if scale != rope.scale or rope.trained is not None:
            yield f"RoPE scale {scale:g}, not {rope.scale:g}", plain, 0
        if scale != 1.0 and trained and (rope.trained is None or scale != rope.scale):
            yield f"YaRN with RoPE scale {scale:g}", with_yarn(plain, trained, scale), 0
    if rope.factors is not None:
        yield "RoPE without frequency factors", replace(rope, factors=None), 0
    for offset in _OFFSETS:
        yield f"positions {offset:+d}", rope, offset
