"""What other programs wrap around the same states: told by their headers, with blobs inside.

Each row has the source of its facts. Fields of native structs keep their padding.
"""

from __future__ import annotations

from construct import this

from formats.envelopes.tokens import N_TOKENS, PACKED_TOKENS, PLAIN_TOKENS
from formats.layout import Layout
from formats.provenance import Origin
from formats.scalars import I32, I64, LLAMA_POS, U8, U32, U64
from formats.sidecars.record import N_RECORDS
from formats.spans import Nested, Payload, Record, Rest, Scalar, Series, Span, Table, Text

U32BE = Scalar(">I")
I32BE = Scalar(">i")

_VERSION = "version" / U32 * "format version"


def _magic(tag: bytes) -> Scalar:
    return Scalar("I", {int.from_bytes(tag, "little"): tag.decode()})


LLAMASHARP = Record(
    "magic" / Scalar(">I", {0xCC77C0B4: "LLamaSharp"}) * "0xcc77c0b4, big-endian",
    "header_size" / U32BE * "bytes of the header, big-endian",
    "header" / Text(this.header_size, at_most=1 << 16) * "JSON with Version and TokenCount",
    "state" / Rest(holds="blob") * "sequence state of the llama.cpp behind it",
)

GPT4ALL = Record(
    "magic" / Scalar(">I", {0xF5D553CC: "GPT4All"}) * "0xf5d553cc, big-endian",
    "version" / I32BE * "format version, big-endian, at most 12 so far",
    "stream"
    / Rest()
    * "Qt data stream; up to version 9 or so it may end with a zlib-compressed context state",
)

SES1 = Record(
    "magic" / _magic(b"SES1") * 'on disk "SES1"',
    "n_tokens" / U32 * "tokens that follow",
    "tokens" / Table(this.n_tokens, I32, at_most=N_TOKENS) * "tokens that the state stands for",
    "state" / Rest(holds="blob") * "sequence state",
)

_PREFIX_MAX = 4096
_COMPAT_HASH = "compat_hash" / U64 * "hash of the model and the cache types"
_TOKEN_COUNT = "token_count" / U32 * "tokens of token_prefix that are in use"
_TOKEN_PREFIX = "token_prefix" / Table(_PREFIX_MAX, U32, at_most=_PREFIX_MAX) * "first tokens"
_DATA = "data" / Payload(this.data_size, holds="blob") * "state of the target context"

_RECORD = (
    "magic" / _magic(b"CRVK") * '0x4b565243, on disk "CRVK"',
    _VERSION,
    "id" / U64 * "number of the checkpoint, also in the file's name",
    "slot_id" / U32 * "slot it was made for",
    "pos_min" / LLAMA_POS * "lowest position of the state",
    "pos_max" / LLAMA_POS * "highest position of the state",
    "pad0" / U32 * "alignment",
    "n_tokens" / U64 * "tokens of the state",
    "turn_created" / U32 * "turn of the conversation",
    "pad1" / U32 * "alignment",
    "data_size" / U64 * "bytes of the target context's state",
    "token_hash" / U64 * "FNV-1a-64 of the tokens",
    _TOKEN_COUNT,
    "pad2" / U32 * "alignment",
    _COMPAT_HASH,
    _TOKEN_PREFIX,
)
_SIZES = (
    "dft_data_size" / U64 * "bytes of the draft context's state",
    "spec_data_size" / U64 * "bytes of the speculative decoder's state",
)
_REST = (
    _DATA,
    "dft_data" / Payload(this.dft_data_size, holds="draft") * "state of the draft context",
    "spec_data" / Payload(this.spec_data_size) * "state of the speculative decoder",
)
CACHYLLAMA2 = Record(*_RECORD, _DATA)
CACHYLLAMA3 = Record(*_RECORD, *_SIZES, *_REST)

CACHYLLAMA_INDEX = Record(
    "magic" / _magic(b"DIVK") * '0x4b564944, on disk "DIVK"',
    _VERSION,
    "next_id" / U64 * "number of the next checkpoint",
    _COMPAT_HASH,
    "reserved" / Table(12, U64, at_most=12) * "zeros",
)
CACHYLLAMA_SYSTEM = Record(
    "magic" / _magic(b"YSVK") * '0x4b565359, on disk "YSVK"',
    _VERSION,
    "hash" / U64 * "FNV-1a-64 of the system prompt's tokens",
    "n_tokens" / U32 * "tokens of the system prompt",
    "data_size" / U32 * "bytes of the state",
    _COMPAT_HASH,
    "created_at" / U64 * "time of creation, in seconds since 1970",
    "last_used" / U64 * "time of the last use, in seconds since 1970",
    "access_count" / U32 * "uses",
    _TOKEN_COUNT,
    _TOKEN_PREFIX,
    _DATA,
)


def _text(name: str, doc: str) -> tuple[Span, Span]:
    size = f"{name}_size"
    return (
        size / U32 * f"bytes of {name}",
        name / Text(this[size], at_most=1 << 16) * doc,
    )


def _bytes(name: str, doc: str, holds: str = "") -> tuple[Span, Span]:
    size = f"{name}_size"
    return (size / U64 * f"bytes of {name}", name / Payload(this[size], holds) * doc)


_PRODUCER = _text("producer_identity", "model and cache configuration that the state needs")
_ADAPTERS = _text("adapter_config_key", "adapters that the state needs")
_TRAILER = (
    "body_size" / U64 * "bytes in front of this field",
    "sha256" / Payload(32) * "SHA-256 of those bytes",
)

LCPC = Record(
    "magic" / _magic(b"LCPC") * 'on disk "LCPC"',
    _VERSION,
    "n_token_count" / U32 * "tokens that follow",
    "tokens" / PLAIN_TOKENS * "tokens that the state stands for",
    *_PRODUCER,
    *_ADAPTERS,
    "sequence_epoch" / U64 * "age of the sequence",
    *_bytes("main", "state of the target context", "blob"),
    *_bytes("drft", "state of the draft context", "draft"),
    "n_checkpoints" / U32 * "checkpoints that follow, at most 4096",
    "records"
    / Series(
        this.n_checkpoints,
        Record(
            "n_tokens" / I64 * "tokens of the prompt that the checkpoint returns to",
            "id_task" / I32 * "task that made the checkpoint, -1 for none",
            "pos_min" / LLAMA_POS * "lowest position of the state",
            "pos_max" / LLAMA_POS * "highest position of the state",
            "checkpoint_epoch" / U64 * "age of the checkpoint",
            "checkpoint_epoch_swa" / U64 * "age of its windowed part",
            "frontier_version" / U32 * "version of the fields up to media_content_identity",
            "sequence_epoch" / U64 * "age of the sequence",
            "token_count" / I64 * "tokens that were computed",
            "next_position" / I64 * "position of the next token",
            *_text("execution_identity", "how the tokens were computed"),
            *_text("adapter_config_identity", "adapters they were computed with"),
            *_text("media_content_identity", "media among them"),
            "data_dft_full_sequence" / U8 * "whether the draft state is a full one",
            *_bytes("data_tgt", "partial state of the target context", "blob"),
            *_bytes("data_dft", "state of the draft context", "draft"),
            *_bytes("data_qsa", "state of the sparse attention"),
            *_bytes("accel_ring", "ring buffer of the speculative decoder"),
            *_bytes("accel_spec", "state of the speculative decoder"),
        ),
        at_most=N_RECORDS,
    )
    * "checkpoints",
    *_TRAILER,
)

LCPI = Record(
    "magic" / _magic(b"LCPI") * 'on disk "LCPI"',
    _VERSION,
    "n_entries" / U32 * "entries that follow",
    "entries"
    / Series(
        this.n_entries,
        Record(
            *_text("file", "name of the object's file"),
            "size" / U64 * "bytes of that file",
            "n_tokens" / U32 * "tokens of the state",
            "saved_unix_ms" / U64 * "time of the save, in milliseconds since 1970",
            *_PRODUCER,
            *_ADAPTERS,
            "object_sha256" / Payload(32) * "SHA-256 of that file without its trailer",
        ),
        at_most=N_RECORDS,
    )
    * "objects of the folder",
    *_TRAILER,
)

KVC = Record(
    "magic" / _magic(b"KVC1") * '0x3143564b, on disk "KVC1"',
    _VERSION,
    "compat_hash" / U64 * "hash of the server's configuration",
    "chain_hash" / U64 * "XXH64 chained over the tokens, also in the file's name",
    "n_tokens" / U32 * "tokens, media included",
    "pad" / U32 * "alignment",
    "tokens_size" / U64 * "bytes of the tokens",
    "state_size" / U64 * "bytes of the state",
    "tokens" / Nested(this.tokens_size, PACKED_TOKENS) * "tokens that the state stands for",
    "state" / Payload(this.state_size, holds="blob") * "sequence state",
)


def _row(
    layout_id: str,
    title: str,
    version: int | None,
    magic: bytes,
    record: Record,
    writer: str | None,
    origin: Origin,
    *tells: str,
) -> Layout:
    return Layout(
        id=layout_id,
        title=title,
        format=layout_id.rstrip("0123456789"),
        version=version,
        magic=magic,
        declare=lambda: record,
        origins=(origin,),
        tells=tells,
        writer=writer,
    )


def _cachyllama(file: str, commit: str = "85a0c11e1 (2026-06-28)") -> Origin:
    return Origin("fewtarius/CachyLLama", commit, f"common/{file}")


_BUUN = Origin(
    "spiritbuun/buun-llama-cpp", "c8d780fec", "tools/server/server-cache-disk.cpp", "spill"
)

ROWS = (
    _row(
        "llamasharp",
        "conversation of LLamaSharp",
        None,
        b"\xcc\x77\xc0\xb4",
        LLAMASHARP,
        "LLamaSharp",
        Origin(
            "SciSharp/LLamaSharp",
            "Conversation.Save",
            "LLama/Batched/LLamaContextExtensions.cs",
            "SaveState",
        ),
        "big-endian header, JSON, then a sequence state",
    ),
    _row(
        "gpt4all",
        "chat of GPT4All",
        None,
        b"\xf5\xd5\x53\xcc",
        GPT4ALL,
        "GPT4All",
        Origin("nomic-ai/gpt4all", "chat", "gpt4all-chat/src/chatlistmodel.cpp"),
        "big-endian version of at most 12",
    ),
    _row(
        "ses1",
        "saved state of ClosetGeek's llama.cpp",
        None,
        b"SES1",
        SES1,
        "ClosetGeek-Git/llama.cpp",
        Origin("ClosetGeek-Git/llama.cpp", "save-state"),
        "tokens, then a sequence state",
    ),
    _row(
        "cachyllama2",
        "stored checkpoint of CachyLLama, version 2",
        2,
        b"CRVK",
        CACHYLLAMA2,
        "CachyLLama",
        _cachyllama("kv-ssd-cache.h", "6a0db500c (2026-06-26)"),
        "header of 16464 bytes, one blob",
    ),
    _row(
        "cachyllama3",
        "stored checkpoint of CachyLLama, version 3",
        3,
        b"CRVK",
        CACHYLLAMA3,
        "CachyLLama",
        _cachyllama("kv-ssd-cache.h"),
        "header of 16480 bytes, three blobs",
    ),
    _row(
        "cachyllama-index",
        "index of CachyLLama's store",
        None,
        b"DIVK",
        CACHYLLAMA_INDEX,
        "CachyLLama",
        _cachyllama("kv-ssd-cache.h"),
        "120 bytes",
    ),
    _row(
        "cachyllama-system",
        "stored system prompt of CachyLLama",
        None,
        b"YSVK",
        CACHYLLAMA_SYSTEM,
        "CachyLLama",
        _cachyllama("kv-ssd-system-cache.h"),
        "header of 16440 bytes, one blob",
    ),
    _row(
        "lcpc1",
        "stored prompt of buun-llama-cpp",
        1,
        b"LCPC",
        LCPC,
        "buun-llama-cpp",
        _BUUN,
        "SHA-256 at the end",
    ),
    _row(
        "lcpi1",
        "index of buun-llama-cpp's prompt store",
        1,
        b"LCPI",
        LCPI,
        "buun-llama-cpp",
        _BUUN,
        "SHA-256 at the end",
    ),
    _row(
        "kvc1",
        "stored prompt of `--cache-disk`",
        1,
        b"KVC1",
        KVC,
        None,
        Origin(
            "ggml-org/llama.cpp fork network", "5234b9d26", "tools/server/server-cache-disk.cpp"
        ),
        "two hashes, packed tokens, a sequence state",
    ),
)
