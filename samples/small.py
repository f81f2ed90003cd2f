"""One small model for all samples: what it remembers of one short text, and its header."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from samples.sample import Expected, part
from tests.support.writer import (
    COMPOSITIONS,
    DIALECTS,
    F16,
    F32,
    Cache,
    Cell,
    Compressed,
    Compressor,
    Dialect,
    Dsv4,
    Memory,
    Packed,
    Recurrent,
    Row,
    Section,
    Tokens,
    cells_of,
)

TEXT = Tokens((1, 15043, 3186, 29892, 306, 626, 263, 4802, 3699, 310, 1426, 29889))
PACKED = replace(TEXT, packed=True)
CELLS = cells_of(TEXT)
WINDOW = 5
K, V, INDEXER = Row(F16, 16), Row(F16, 16), Row(F16, 8)
R, S, HISTORY = Row(F32, 512), Row(F32, 1024), Row(F32, 384)


def first(n: int) -> Tokens:
    """The first tokens of the text."""
    return Tokens(TEXT.ids[:n])


def cache(cells: tuple[Cell, ...], *, values: bool = True, windowed: bool = False) -> Cache:
    """Two layers in one stream."""
    return Cache((cells,), (K, K), (V, V) if values else None, windowed=windowed)


def section(kind: str, cells: tuple[Cell, ...], dialect: Dialect) -> Section:
    """A section of this kind that holds these cells."""
    window = cells if dialect.ids == "all" else cells[-WINDOW:]
    match kind:
        case "cache":
            return cache(cells)
        case "keys":
            return cache(cells, values=False)
        case "indexer":
            return Cache((cells,), (INDEXER,), (INDEXER,))
        case "indexer-keys":
            return Cache((cells,), (INDEXER,), None)
        case "window":
            return cache(window, windowed=True)
        case "window-keys":
            return cache(window, values=False, windowed=True)
        case "minimax-m3":
            return replace(cache(cells), index=(None, Row(F32, 16)))
        case "dsv4":
            return dsv4(cells, window)
    histories = (HISTORY, None) if kind == "state-with-history" else ()
    return Recurrent(cells[-1:], 3, (R, R), (S, S), histories)


def dsv4(cells: tuple[Cell, ...], window: tuple[Cell, ...]) -> Dsv4:
    """Three layers: two that compress four positions to one, one that compresses 128."""
    n = len(cells) // 4
    four, many = (0, 2), (1,)
    return Dsv4(
        Cache((cells,), (), None),
        Cache((window,), (K, K, K), None, windowed=True),
        {
            "csa": Compressed(four, 8, n),
            "hca": Compressed(many, 8, 0),
            "lid": Compressed(four, 4, n),
        },
        {
            "csa": Compressor(four, 4, 8, 16),
            "hca": Compressor(many, 128, 128, 8),
            "lid": Compressor(four, 4, 8, 8),
        },
    )


def memory(kind: str, dialect: Dialect, tokens: Tokens = TEXT) -> Memory:
    """A memory of this type that holds these tokens."""
    cells = cells_of(tokens, mrope=dialect.ext > 0)
    sections = {name: section(what, cells, dialect) for name, what in COMPOSITIONS[kind].items()}
    if kind == "recurrent" and isinstance(state := sections["recr"], Recurrent):
        sections["recr"] = replace(state, n_layer=len(state.r))
    return Memory(sections, dialect)


def seq_dialect(version: int, name: str = "") -> Dialect:
    """How a slot file of this version writes cells and sections."""
    return replace(DIALECTS[name], rotation=version == 4)


def layout_id(family: str, kind: str, dialect: str) -> str:
    """The id of a layout."""
    return f"{family}.{kind}.{dialect}" if dialect else f"{family}.{kind}"


def usual(packed: Packed, held: Memory) -> Iterator[Expected]:
    """What is worth a note in an intact slot file of this memory that has no checkpoints."""
    recr, swa = held.sections.get("recr"), held.sections.get("swa")
    yield from keys_alone(packed, held)
    if isinstance(recr, Recurrent):
        yield Expected("reuse.needs-exact-append", *part(packed, "recr"))
    elif isinstance(swa, Cache) or "dsv4" in held.sections:
        path = "swa" if swa is not None else "dsv4.swa"
        yield Expected("reuse.window-cut", *part(packed, path))


def keys_alone(packed: Packed, held: Memory) -> Iterator[Expected]:
    """The note on an attention cache of a slot or context that has no values."""
    attn = held.sections.get("attn")
    if isinstance(attn, Cache) and attn.v is None and "indexer" not in held.sections:
        yield Expected("layout.key-only", *part(packed, "attn"))


# -- its header ------------------------------------------------------------------------------------

_SHAPE = {
    "embedding_length": 32,
    "attention.head_count": 4,
    "attention.head_count_kv": 1,
}
MODELS = {
    "llama": _SHAPE | {"block_count": 2, "vocab_size": 32000},
    "gemma2": _SHAPE | {"block_count": 4, "attention.sliding_window": WINDOW},
}
"""Architecture -> metadata of a model whose states are those of the memories `kv` and `iswa`.

Source: ggml-org/llama.cpp b10587, src/llama-arch.cpp `LLM_KV_NAMES`.
"""


def header(architecture: str, tensors: dict[str, int] | None = None) -> bytes:
    """A GGUF file of version 3 that has metadata, and zeros for tensors of f32 if there are any.

    Args:
        architecture: one of `MODELS`.
        tensors: name -> number of elements.

    Source: ggml-org/llama.cpp b10587, ggml/src/gguf.cpp `gguf_init_from_file_impl`.
    """
    uint32, string = 4, 8
    pairs = MODELS[architecture]
    sizes = tensors or {}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(sizes), 1 + len(pairs))
    out += _string("general.architecture") + struct.pack("<I", string) + _string(architecture)
    for key, value in pairs.items():
        out += _string(f"{architecture}.{key}") + struct.pack("<II", uint32, value)
    offset = 0
    for name, n_elements in sizes.items():
        out += _string(name) + struct.pack("<IQIQ", 1, n_elements, 0, offset)
        offset += 4 * n_elements + -4 * n_elements % 32
    return out + bytes(-len(out) % 32) + bytes(offset)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
