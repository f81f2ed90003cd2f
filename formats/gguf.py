"""GGUF: the header of a model file. Arrays and tensors are stepped over.

Source: ggml-org/llama.cpp b10587, ggml/src/gguf.cpp `gguf_init_from_reader`; names from
ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

from construct import Container, this

from formats.ggml_types import TURBOQUANT, TYPES, GgmlType
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64
from formats.spans import (
    Choose,
    Payload,
    Record,
    Rest,
    Scalar,
    Series,
    Strings,
    Switch,
    Table,
    Text,
)

GGUF_MAGIC = 0x46554747
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32

N_KV = 1 << 12
"""Key-value pairs that a file is believed to hold; usual models have 20 to 80."""
N_TENSORS = 1 << 14
"""Tensors that a file is believed to hold; the largest known model has about 1,100."""
N_NUMBERS = 1 << 24
N_STRINGS = 1 << 22
"""Strings that an array is believed to hold; the longest known list of merges has 0.6 million."""
N_NAME = 0xFFFF
"""Bytes of the longest key that docs/gguf.md permits."""
N_TEXT = 1 << 16
"""Bytes up to which a string is read at once; longer ones are stepped over."""
N_DIMENSIONS = 4
"""GGML_MAX_DIMS."""

UINT32, BOOL, STRING, ARRAY = 4, 7, 8, 9
NUMBERS = {
    0: ("uint8", U8),
    1: ("int8", I8),
    2: ("uint16", U16),
    3: ("int16", I16),
    UINT32: ("uint32", U32),
    5: ("int32", I32),
    6: ("float32", F32),
    BOOL: ("bool", Scalar("B", {0: "false", 1: "true"})),
    10: ("uint64", U64),
    11: ("int64", I64),
    12: ("float64", F64),
}
"""`gguf_type` of the numbers: name, and how one is stored."""
VALUE_TYPE_NAMES = {code: name for code, (name, _) in NUMBERS.items()} | {
    STRING: "string",
    ARRAY: "array",
}
VALUE_TYPE = Scalar("I", VALUE_TYPE_NAMES)

_WEIGHTS = (
    GgmlType(10, "q2_K", 256, 84, cache=False),
    GgmlType(11, "q3_K", 256, 110, cache=False),
    GgmlType(12, "q4_K", 256, 144, cache=False),
    GgmlType(13, "q5_K", 256, 176, cache=False),
    GgmlType(14, "q6_K", 256, 210, cache=False),
    GgmlType(15, "q8_K", 256, 292, cache=False),
    GgmlType(16, "iq2_xxs", 256, 66, cache=False),
    GgmlType(17, "iq2_xs", 256, 74, cache=False),
    GgmlType(18, "iq3_xxs", 256, 98, cache=False),
    GgmlType(19, "iq1_s", 256, 50, cache=False),
    GgmlType(21, "iq3_s", 256, 110, cache=False),
    GgmlType(22, "iq2_s", 256, 82, cache=False),
    GgmlType(23, "iq4_xs", 256, 136, cache=False),
    GgmlType(24, "i8", 1, 1, cache=False),
    GgmlType(25, "i16", 1, 2, cache=False),
    GgmlType(26, "i32", 1, 4, cache=False),
    GgmlType(27, "i64", 1, 8, cache=False),
    GgmlType(28, "f64", 1, 8, cache=False),
    GgmlType(29, "iq1_m", 256, 56, cache=False),
    GgmlType(34, "tq1_0", 256, 54, cache=False),
    GgmlType(35, "tq2_0", 256, 66, cache=False),
)
"""Types that only tensors of a model have.

Source: ggml-org/llama.cpp, gguf-py/gguf/constants.py `GGML_QUANT_SIZES`.
"""

TENSOR_TYPES = {t.id: t for t in (*TYPES, *_WEIGHTS) if t.writer != TURBOQUANT}

FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
}
"""`general.file_type`: what most tensors of a model are.

Source: ggml-org/llama.cpp, gguf-py/gguf/constants.py `LlamaFileType`.
"""

_NAME = Record(
    "len" / U64 * "bytes of the characters",
    "string" / Text(this.len, at_most=N_NAME) * "characters, no terminator",
)
_STRING = Record(
    "len" / U64 * "bytes of the characters",
    "string"
    / Choose(
        this.len <= N_TEXT,
        Text(this.len, at_most=N_TEXT),
        Payload(this.len),
        says=f"at most {N_TEXT} bytes",
    )
    * "characters in UTF-8, no terminator",
)
_ARRAY = Record(
    "type" / VALUE_TYPE * "type of every element; arrays do not nest",
    "len" / U64 * "elements",
    "array"
    / Switch(
        this.type,
        {code: Table(this.len, number, at_most=N_NUMBERS) for code, (_, number) in NUMBERS.items()}
        | {STRING: Strings(this.len, at_most=N_STRINGS)},
    )
    * "elements one after another",
)
_KEY_VALUE = Record(
    "key" / _NAME * "name of the entry, such as `llama.block_count`",
    "value_type" / VALUE_TYPE * "type of the value",
    "value"
    / Switch(
        this.value_type,
        {code: number for code, (_, number) in NUMBERS.items()} | {STRING: _STRING, ARRAY: _ARRAY},
    )
    * "value of the entry",
)
_TENSOR_INFO = Record(
    "name" / _NAME * "name of the tensor, such as `blk.0.attn_k.weight`",
    "n_dimensions" / U32 * "dimensions, at most 4",
    "dimensions"
    / Table(this.n_dimensions, U64, at_most=N_DIMENSIONS)
    * "elements in each dimension, the length of a row first",
    "type" / Scalar("I", {t.id: t.name.upper() for t in TENSOR_TYPES.values()}) * "ggml type id",
    "offset" / U64 * "bytes from the start of tensor_data, a multiple of the alignment",
)


def alignment(scope: Container) -> int:
    """Bytes that tensors are aligned to: the stated number if it is a power of two, else 32."""
    for entry in scope.metadata_kv:
        if entry.key.string == ALIGNMENT_KEY and entry.value_type == UINT32:
            stated = int(entry.value)
            return stated if stated.bit_count() == 1 else DEFAULT_ALIGNMENT
    return DEFAULT_ALIGNMENT


def padding(scope: Container) -> int:
    """Bytes up to the next multiple of the alignment."""
    return int(-scope._cursor.offset % alignment(scope))


GGUF = Record(
    "magic" / Scalar("I", {GGUF_MAGIC: "GGUF"}) * '0x46554747, on disk "GGUF"',
    "version" / U32 * "format version",
    "tensor_count" / U64 * "tensors in this file",
    "metadata_kv_count" / U64 * "entries of the metadata",
    "metadata_kv"
    / Series(this.metadata_kv_count, _KEY_VALUE, at_most=N_KV)
    * "metadata: architecture, sizes, tokenizer",
    "tensor_infos" / Series(this.tensor_count, _TENSOR_INFO, at_most=N_TENSORS) * "tensors",
    "_padding" / Payload(padding) * "zeros up to a multiple of the alignment",
    "tensor_data" / Rest() * "weights, every tensor aligned",
    role="model",
)

_ORIGINS = (
    Origin("ggml-org/llama.cpp", "b10587", "ggml/src/gguf.cpp", "gguf_init_from_reader"),
    Origin("ggml-org/ggml", "master", "docs/gguf.md"),
)


def _row(version: int, *tells: str) -> Layout:
    return Layout(
        id=f"gguf{version}",
        title=f"model file, version {version}",
        format="gguf",
        version=version,
        magic=b"GGUF",
        declare=lambda: GGUF,
        origins=_ORIGINS,
        tells=tells,
        window=1 << 13,
    )


ROWS = (
    _row(2, "little-endian only; the bytes are those of version 3"),
    _row(3, "the version that every current converter writes"),
)
