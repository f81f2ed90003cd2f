"""What a model file is, in a few facts: from its header, without the long arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from formats.gguf import FILE_TYPES
from inspector.model.geometry import MemoryExpectation, memory_of
from inspector.model.gguf import ModelFile, model_in
from inspector.report import Report


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What the header of a model file says.

    Attributes:
        architecture: `general.architecture`; empty if missing.
        name: `general.name`.
        kind: `general.type`: model, adapter, mmproj, …
        size_label: such as `4B`.
        file_type: what most tensors are, such as `Q4_K_M`; what the number is if it is unknown.
        n_keys: entries of the metadata.
        tensors: number of tensors by type, the commonest first.
        n_ctx_train: tokens of context that it was trained with.
        part: number of this file and of all, if the model is split.
        memory: what it stores; None if that is not known, or it is no whole model.
    """

    architecture: str
    name: str | None
    kind: str | None
    size_label: str | None
    file_type: str | None
    n_keys: int
    tensors: dict[str, int]
    n_ctx_train: int | None
    part: tuple[int, int] | None
    memory: MemoryExpectation | None

    @property
    def n_tensors(self) -> int:
        """Tensors in this file."""
        return sum(self.tensors.values())


def summary(report: Report) -> ModelSummary | None:
    """The facts about a model file; None for any other file, or a header that is damaged."""
    reading = report.identification.reading
    if reading is None or reading.layout.format != "gguf" or not reading.decoding.complete:
        return None
    model = model_in(report.source, reading.layout.version or 0, reading.decoding.root)
    return _summary(model) if isinstance(model, ModelFile) else None


def _summary(model: ModelFile) -> ModelSummary:
    kind = _text(model, "general.type")
    types = Counter(
        tensor.type.name if tensor.type is not None else f"type {tensor.type_id}"
        for tensor in model.tensors.values()
    )
    number, count = _number(model, "split.no"), _number(model, "split.count")
    return ModelSummary(
        architecture=model.architecture,
        name=_text(model, "general.name"),
        kind=kind,
        size_label=_text(model, "general.size_label"),
        file_type=_file_type(model),
        n_keys=len(model.metadata),
        tensors=dict(types.most_common()),
        n_ctx_train=_number(model, f"{model.architecture}.context_length"),
        part=(number + 1, count) if number is not None and count and count > 1 else None,
        memory=memory_of(model) if kind in (None, "model") else None,
    )


def _file_type(model: ModelFile) -> str | None:
    value = _number(model, "general.file_type")
    return None if value is None else FILE_TYPES.get(value, f"type {value}")


def _text(model: ModelFile, key: str) -> str | None:
    value = model.metadata.get(key)
    return value if isinstance(value, str) and value else None


def _number(model: ModelFile, key: str) -> int | None:
    value = model.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def layers_of(memory: MemoryExpectation) -> Iterator[tuple[int, str]]:
    """How many layers store what, in file order."""
    for cache in memory.caches:
        if cache.kind == "indexer":
            what = "indexer layer"
        elif cache.kind == "swa":
            what = "windowed attention layer"
        else:
            what = "attention layer"
        yield len(cache.layers), what
    if memory.recurrent is not None:
        yield len(memory.recurrent.layers), "recurrent layer"
