"""The facts about a model file, as text for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from formats.bodies.compositions import described
from inspector.model.summary import ModelSummary, layers_of
from inspector.render.page import QUIET, STRONG, TIMES, counted, labelled, shortened, text

_LONGEST = 120
_MOST_TYPES = 6


def model_part(model: ModelSummary) -> Iterator[RenderableType]:
    """A line for each fact that the header states."""
    table = labelled()
    for label, words in _facts(model):
        table.add_row(text((label, f"not dim {STRONG}")), text(shortened(words, _LONGEST)))
    yield table
    if model.memory is not None and model.memory.memory != "none":
        yield text(("slotscope geometry says more about its state", QUIET))


def _facts(model: ModelSummary) -> Iterator[tuple[str, str]]:
    kind = f" ({model.kind})" if model.kind not in (None, "model") else ""
    yield "model", (model.architecture or "of no architecture") + kind
    for label, words in (("name", model.name), ("size", model.size_label)):
        if words is not None:
            yield label, words
    if model.part is not None:
        yield "part", f"{model.part[0]:,} of {model.part[1]:,}"
    types = [f"{n:,} {TIMES} {name}" for name, n in model.tensors.items()]
    more = [f"{len(types) - _MOST_TYPES} types more"] if len(types) > _MOST_TYPES else []
    of_each = f": {', '.join([*types[:_MOST_TYPES], *more])}" if types else ""
    yield "tensors", f"{model.n_tensors:,}{of_each}"
    if model.file_type is not None:
        yield "weights", model.file_type
    yield "metadata", counted(model.n_keys, "entry")
    if model.n_ctx_train is not None:
        yield "context", counted(model.n_ctx_train, "token")
    yield from _memory(model)


def _memory(model: ModelSummary) -> Iterator[tuple[str, str]]:
    memory = model.memory
    if memory is None:
        if model.kind in (None, "model"):
            yield "state", "not known: the metadata do not say how many layers there are"
        return
    nextn = f", {counted(memory.n_layer_nextn, 'next-token layer')} besides"
    yield "layers", f"{memory.n_layer:,}" + (nextn if memory.n_layer_nextn else "")
    if memory.memory == "none":
        yield "state", "none: nothing of it can be saved"
        return
    window = f", a window of {counted(memory.n_swa, 'token')}" if memory.n_swa else ""
    stored = ", ".join(counted(n, what) for n, what in layers_of(memory) if n)
    of_layers = f" ({stored}{window})" if stored else ""
    yield "state", f"{memory.memory}: {described(memory.memory)}{of_layers}"


def model_dict(model: ModelSummary) -> dict[str, Any]:
    """The same for programs."""
    memory = model.memory
    return {
        "architecture": model.architecture or None,
        "name": model.name,
        "type": model.kind,
        "size_label": model.size_label,
        "file_type": model.file_type,
        "tensors": model.n_tensors,
        "tensor_types": model.tensors,
        "metadata": model.n_keys,
        "context_length": model.n_ctx_train,
        "part": list(model.part) if model.part is not None else None,
        "layers": memory.n_layer if memory is not None else None,
        "memory": memory.memory if memory is not None else None,
        "n_swa": memory.n_swa if memory is not None else None,
    }
