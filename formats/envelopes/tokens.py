"""The token field of a slot file: a plain list, or the packed form with media.

Source: ggml-org/llama.cpp PR #26640 (b10388), tools/server/server-common.cpp `server_tokens`; media
chunks PR #26645 (b10298), tools/mtmd/mtmd.cpp.
"""

from __future__ import annotations

from construct import Container, this

from formats.scalars import I32, LLAMA_TOKEN, U8, U32, U64
from formats.spans import Ahead, Choose, Nested, Record, Rest, Scalar, Series, Table, Text, When

N_TOKENS = 1 << 24
"""Tokens that a file is believed to hold: sixteen times the longest context in use."""

N_MEDIA = 1 << 16
PACKED_MARKER = -1

CHUNK_TYPE = Scalar("I", {0: "text", 1: "image", 2: "audio"})
POS_TYPE = Scalar("I", {0: "normal", 1: "M-RoPE", 2: "Hunyuan-VL"})

_ENTRY = (
    "add_viewsep" / U8 * "whether a separator follows the view",
    "add_newline" / U8 * "whether a newline follows the view",
)
_SIZE = (
    "nx" / I32 * "columns of the preprocessed image, in pixels",
    "ny" / I32 * "rows of the preprocessed image, in pixels",
)
_BATCH = (
    "is_audio" / U8 * "whether the batch is audio",
    "n_entries" / U64 * "preprocessed entries",
    "entries"
    / Choose(
        this._.version >= 2,
        Table(
            this.n_entries,
            Record(*_ENTRY, "lead_pad" / I32 * "padding in front, in pixels", *_SIZE),
            at_most=N_MEDIA,
        ),
        Table(this.n_entries, Record(*_ENTRY, *_SIZE), at_most=N_MEDIA),
        says="chunk version 2",
    )
    * "shapes of the preprocessed entries; the pixels or samples are never stored",
)
_IMAGE = Record(
    "nx" / U32 * "columns of the token grid",
    "ny" / U32 * "rows of the token grid",
    "pos_type" / POS_TYPE * "how positions run over the grid",
    "image_idx" / U32 * "index of the image in its request",
    "n_temporal_merge" / U32 * "frames merged into one",
    "id_size" / U64 * "bytes of the id",
    "id"
    / Text(this.id_size, at_most=4096)
    * "content hash or the user's id; what prompt matching compares",
    *_BATCH,
)
_AUDIO = Record(
    "n_tokens" / U32 * "tokens of the chunk",
    "id_size" / U64 * "bytes of the id",
    "id"
    / Text(this.id_size, at_most=4096)
    * "content hash or the user's id; what prompt matching compares",
    *_BATCH,
)
MEDIA_CHUNK = Record(
    "version" / U64 * "1, or 2 from b10684 on; a loader takes only its own",
    "type" / CHUNK_TYPE * "kind of chunk",
    "n_text" / U64 * "text tokens, 0 for media",
    "text_tokens" / Table(this.n_text, LLAMA_TOKEN, at_most=N_TOKENS) * "token ids",
    "has_image" / U8 * "whether an image follows",
    When(this.has_image != 0, "image" / _IMAGE * "the image", says="has_image = 1"),
    "has_audio" / U8 * "whether audio follows",
    When(this.has_audio != 0, "audio" / _AUDIO * "the audio", says="has_audio = 1"),
    "rest" / Rest() * "bytes that no loader checks",
)

PACKED_TOKENS = Record(
    "marker" / I32 * "-1, which no token is",
    "version" / U32 * "1",
    "n_tokens" / U32 * "tokens, media included",
    "tokens"
    / Table(this.n_tokens, LLAMA_TOKEN, at_most=N_TOKENS)
    * "token ids; -1 at each media token",
    "n_media" / U32 * "media chunks",
    "media_start"
    / Table(this.n_media, U32, at_most=N_MEDIA)
    * "index in tokens of the first -1 of each chunk",
    "media"
    / Series(
        this.n_media,
        Record(
            "size" / U32 * "bytes of the chunk",
            "chunk" / Nested(this.size, MEDIA_CHUNK) * "one image or one piece of audio",
        ),
        at_most=N_MEDIA,
    )
    * "media chunks in the order of media_start",
    "padding" / Rest() * "zeros up to a multiple of four bytes",
    alone=True,
)

_MARKED = Ahead("<i", lambda first: first == PACKED_MARKER, "the first word is -1")


def _is_packed(scope: Container) -> bool:
    return bool(scope.n_token_count > 0) and _MARKED(scope)


TOKEN_FIELD = Choose(
    _is_packed,
    Nested(4 * this.n_token_count, PACKED_TOKENS),
    Table(this.n_token_count, LLAMA_TOKEN, at_most=N_TOKENS),
    says="the first word is -1 (llama-server from b10388 on)",
)
"""The token field of a ggsq file; `n_token_count` counts its 32-bit words, not tokens."""

PLAIN_TOKENS = Table(this.n_token_count, LLAMA_TOKEN, at_most=N_TOKENS)
