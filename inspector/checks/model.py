"""A state against the header of the model that it is said to belong to."""

from __future__ import annotations

from collections.abc import Iterator

from formats.bodies.compositions import PARTIAL
from formats.ggml_types import IK
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.model.geometry import (
    CacheExpectation,
    MemoryExpectation,
    RecurrentExpectation,
    WindowType,
)
from inspector.sections import Block, Section

_TABLES = "llama.cpp b10587, src/llama-model.cpp llama_model::create_memory"

register(
    Code(
        "model.memory-differs",
        Severity.ERROR,
        "The state holds another kind of memory than the model has",
        "a server with this model refuses the state, or misreads it",
        RemedyKind.NONE,
        "it belongs to another model, or its build stored this one otherwise",
        _TABLES,
    ),
    Code(
        "model.layers-differ",
        Severity.ERROR,
        "A section has another number of layers than the model gives it",
        'a server with this model refuses the state: "mismatched layer count"',
        RemedyKind.NONE,
        "it belongs to another model, or to a build that counted next-token layers otherwise",
        _TABLES,
    ),
    Code(
        "model.width-differs",
        Severity.ERROR,
        "Rows hold another number of elements than the model's",
        'a server with this model refuses the state: "mismatched key row size", or value, r or s',
        RemedyKind.NONE,
        "it belongs to another model",
        _TABLES,
    ),
    Code(
        "tokens.beyond-vocabulary",
        Severity.WARNING,
        "A token id is beyond the vocabulary of the model",
        'servers from b10388 on refuse the restore ("Invalid tokens in slot save file"); older '
        "ones match no prompt beyond it",
        RemedyKind.NONE,
        "which token stood there cannot be known, unless its cell names one and the model confirms "
        "that: slotscope repair with --model writes it then; or the state is of another model",
        "llama.cpp b10388 (PR #26640), tools/server; b10229, restore of such a file",
    ),
    Code(
        "swa.count",
        Severity.NOTE,
        "The window holds more cells than the model's window",
        "nothing: builds before b9473 saved whatever was in the windowed cache; one cell more may "
        "have been added to make the state reusable",
        RemedyKind.NONE,
        "not needed: what is below the window lets servers from b9231 on reuse the state",
        "llama.cpp b9473 (PR #23981)",
    ),
)


def check_model(subject: Subject, model: MemoryExpectation) -> Iterator[Finding]:
    """Vocabulary, memory type, layers, widths and window."""
    yield from _vocabulary(subject, model.n_vocab)
    layout = subject.reading.layout
    if not subject.is_state or layout.memory == "ik" or subject.identification.writer == IK:
        return
    fits = {model.memory, PARTIAL.get(model.memory, model.memory)}
    unsplit = layout.memory == "kv" and model.memory in ("iswa", "mla")
    if layout.memory not in fits and not unsplit:
        yield Finding(
            "model.memory-differs",
            "",
            subject.root.span,
            f"the memory is of type {layout.memory}, that of a {model.architecture} model of type "
            f"{model.memory}",
            model.memory,
            layout.memory,
        )
        return
    by_kind = {cache.kind: cache for cache in model.caches}
    for section in subject.sections:
        if section.kind in by_kind and not unsplit:
            yield from _layers(section, by_kind[section.kind], model.n_layer_nextn)
        if section.kind == "recurrent" and model.recurrent is not None:
            stops = [stop.path for stop in subject.reading.decoding.stops]
            cut = any(path.startswith(section.path) for path in stops)
            yield from _states(section, model.recurrent, model, cut=cut)
        if section.kind == "swa":
            yield from _window(subject, section, model)


def _vocabulary(subject: Subject, n_vocab: int) -> Iterator[Finding]:
    import numpy as np

    tokens = subject.tokens
    if not n_vocab or tokens.rows is None or tokens.packing == "none":
        return
    places = np.flatnonzero(tokens.ids >= n_vocab)
    if len(places):
        index = int(places[0])
        yield Finding(
            "tokens.beyond-vocabulary",
            f"{tokens.path}[{index}]",
            tokens.rows.row_span(index),
            f"token {index} is beyond the {n_vocab:,} tokens of the model, {len(places):,} of "
            f"{len(tokens.ids):,} are",
            f"an id below {n_vocab:,}",
            "a higher id",
        )


def _layers(section: Section, expected: CacheExpectation, n_nextn: int) -> Iterator[Finding]:
    own = len(expected.layers)  # up to b10865 the next-token layers were among them
    if section.n_layer is not None and section.n_layer not in (own, own + n_nextn):
        message = f"has {section.n_layer} layers, the model {own}"
        yield _differing(section, message, own, section.n_layer)
        return
    for name, blocks, widths in (("k", section.k, expected.k), ("v", section.v, expected.v)):
        for block, width in zip(blocks, widths, strict=False):
            if width and (found := _width(name, block, width)) is not None:
                yield found
                return


def _states(
    section: Section, expected: RecurrentExpectation, model: MemoryExpectation, *, cut: bool
) -> Iterator[Finding]:
    words, n_states = (model.n_layer, model.n_layer_all), len(expected.layers)
    if section.n_layer is not None and section.n_layer not in words:
        message = f"is of a model of {section.n_layer} layers, this one has {expected.n_layer}"
        yield _differing(section, message, expected.n_layer, section.n_layer)
        return
    stored, other = len(section.r), len(section.s)
    if stored != n_states or other != n_states:
        if cut:  # nor is it known then which blocks are the states
            return
        message = f"has the states of {stored} layers, the model of {n_states}"
        yield _differing(section, message, n_states, stored)
        return
    for name, blocks, width in (("r", section.r, expected.r), ("s", section.s, expected.s)):
        for block in blocks:
            if (found := _width(name, block, width)) is not None:
                yield found
                return


def _differing(section: Section, message: str, expected: int, actual: int) -> Finding:
    message = f"{section.path} {message}"
    return Finding(
        "model.layers-differ", section.path, section.span, message, f"{expected}", f"{actual}"
    )


def _width(name: str, block: Block, width: int) -> Finding | None:
    """What is said of a row that holds another number of elements."""
    holds = {kind.elements(block.row_bytes) for kind in block.readings}
    if not holds or width in holds:
        return None
    return Finding(
        "model.width-differs",
        block.path,
        block.span,
        f"a {name} row has {block.row_bytes:,} bytes of {block.type_name}, the model's "
        f"{width:,} elements",
        f"{width:,} elements",
        f"{block.row_bytes:,} bytes of {block.type_name}",
    )


def _window(subject: Subject, section: Section, model: MemoryExpectation) -> Iterator[Finding]:
    full = subject.reading.layout.format not in ("ggsq", "blob")
    if full or model.swa_type is not WindowType.STANDARD or not section.cells:
        return
    expected = min(subject.tokens.count or section.cells, model.n_swa)
    if section.cells > expected:
        yield Finding(
            "swa.count",
            section.path,
            section.span,
            f"{section.cells:,} cells in a window of {model.n_swa:,}",
            f"{expected:,} cells",
            f"{section.cells:,}",
        )
