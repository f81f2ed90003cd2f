"""A cache of its own for windowed layers, which older builds kept among the others.

All cells stay, as far as there is room: newer builds leave out what the window hides, but a prompt
that goes back can use it.

Source: ggml-org/llama.cpp b5429 (PR #13194), b7789 for hybrid models.
"""

from __future__ import annotations

from dataclasses import replace

from formats.bodies.compositions import MEMORY
from inspector.render.page import counted
from inspector.repair.draft import Draft, Step
from inspector.repair.state import Cache, Part, Refused

ACTION = "split-window"
_SPLIT = {"kv": "iswa", "hybrid": "hybrid-iswa"}
"""Memory types of models with windows: before, and since they have a cache of their own."""


def split_window(draft: Draft) -> None:
    """Windowed layers apart, with the cells that the next token sees."""
    target, state = draft.target, draft.state
    memory = target.memory if target is not None else None
    if target is None or memory is None or _SPLIT.get(state.memory) != memory.memory:
        return
    base, swa = (
        next((one for one in memory.caches if one.kind == kind), None)
        for kind in ("attention", "swa")
    )
    cache = state.cache("attention")
    if cache is None or base is None or swa is None:
        return
    layers = sorted(base.layers + swa.layers)
    if len(cache.k) != len(layers) or len(cache.v) != len(layers):
        raise Refused(
            f"{cache.member} has {counted(len(cache.k), 'layer')}, those of the model's two "
            f"caches are {len(layers)}"
        )

    def of(member: str, kind: str, own: tuple[int, ...]) -> Cache:
        k, v = (
            tuple(tensors[layers.index(layer)] for layer in own) for tensors in (cache.k, cache.v)
        )
        return replace(cache, member=member, kind=kind, n_layer=len(own), k=k, v=v)

    parts: dict[str, Part] = {part.member: part for part in state.parts}
    parts[base.member] = of(base.member, "attention", base.layers)
    parts[swa.member] = of(swa.member, "swa", swa.layers)
    draft.take(
        Step(
            ACTION,
            f"since b5429 windowed layers have a cache of their own: {target.build.label} wants "
            f"two sections, and the file has one for all {cache.n_layer} layers",
            f"a section for layers without a window ({len(base.layers)}), and one for those with "
            f"({len(swa.layers)}), of {counted(len(cache.cells), 'cell')} each",
            proven="b5129 on b11549, with gemma3",
        )
    )
    members = [member for member, _, _ in MEMORY[memory.memory][1]]
    draft.state = replace(
        state, memory=memory.memory, parts=tuple(parts[member] for member in members)
    )
