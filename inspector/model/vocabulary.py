"""The text of tokens: the vocabulary that a model file carries.

Source: ggml-org/llama.cpp, src/llama-vocab.cpp `llama_vocab::impl::load`, `token_to_piece` and
`llama_unescape_rwkv_token`; src/unicode.cpp `unicode_byte_to_utf8_map` (the table of GPT-2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inspector.model.gguf import Array, ModelFile

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
"""`tokenizer.ggml.token_type`; the other types are text."""

_AS_STORED = (UNKNOWN, CONTROL, USER_DEFINED)
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
_NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def _byte_alphabet() -> dict[int, int]:
    """The character that GPT-2 writes for a byte, the other way round: code point -> byte."""
    themselves = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(0x100) if byte not in themselves)
    moved = {0x100 + index: byte for index, byte in enumerate(others)}
    return {byte: byte for byte in themselves} | moved


_BYTES = _byte_alphabet()


def _byte_level(piece: str) -> bytes:
    """`gpt2`: every character stands for a byte; one that does not is itself."""
    return b"".join(
        bytes((_BYTES[ord(char)],)) if ord(char) in _BYTES else char.encode() for char in piece
    )


def _with_spaces(piece: str) -> bytes:
    return piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()


def _unescaped(piece: str) -> bytes:
    """`rwkv`: any bytes, those that are no text escaped."""
    return _ESCAPE.sub(
        lambda match: bytes((int(match[1], 16),)) if match[1] else _NAMED.get(match[2], match[2]),
        piece.encode(),
    )


_DECODERS: dict[str, Callable[[str], bytes]] = {
    "llama": _with_spaces,
    "gemma4": _with_spaces,
    "bert": _with_spaces,
    "t5": _with_spaces,
    "gpt2": _byte_level,
    "rwkv": _unescaped,
    "plamo2": str.encode,
    "plamo3": str.encode,
}


@dataclass(frozen=True)
class Vocabulary:
    """What every token id stands for.

    Attributes:
        model: `tokenizer.ggml.model`, which says how pieces are written.
        pieces: by id, as stored.
        types: by id, as `tokenizer.ggml.token_type` has them; empty if it is missing.
    """

    model: str
    pieces: Sequence[str]
    types: Sequence[int]

    def __len__(self) -> int:
        """Tokens."""
        return len(self.pieces)

    def data(self, token: int) -> bytes:
        """The bytes of one token; `<id>` for one that the vocabulary does not have."""
        if not 0 <= token < len(self.pieces):
            return f"<{token}>".encode()
        piece = self.pieces[token]
        kind = self.types[token] if token < len(self.types) else 0
        if self.model != "rwkv":
            if kind in _AS_STORED:
                return piece.encode()
            if kind == BYTE and (match := _BYTE.fullmatch(piece)):
                return bytes((int(match[1], 16),))
        return _DECODERS[self.model](piece)

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens in a row; bytes that are no UTF-8 are replaced by U+FFFD.

        Control tokens are shown as they are written, and no space is taken from the beginning.
        """
        return b"".join(map(self.data, tokens)).decode("utf-8", "replace")


def vocabulary_of(model: ModelFile) -> Vocabulary | str:
    """The vocabulary of a model, or why its tokens have no text.

    Args:
        model: the header; its file is open, for arrays of a vocabulary's length are read now.
    """
    kind = model.metadata.get("tokenizer.ggml.model")
    if kind in ("none", "no_vocab"):
        return "the model has no vocabulary (no_vocab)"
    if not isinstance(kind, str):
        return "the model does not say which tokenizer it has"
    if kind not in _DECODERS:
        return f"the model's tokenizer is not known: {kind}"
    pieces = model.metadata.get("tokenizer.ggml.tokens")
    if isinstance(pieces, Array) and pieces.type == "string":
        pieces = tuple(pieces.strings())
    if not isinstance(pieces, tuple) or not all(isinstance(piece, str) for piece in pieces):
        return "the model has no list of tokens"
    types = model.metadata.get("tokenizer.ggml.token_type", ())
    if isinstance(types, Array) and types.type != "string":
        types = tuple(types.numbers().tolist())
    if not isinstance(types, tuple):
        types = ()
    words = tuple(piece for piece in pieces if isinstance(piece, str))
    return Vocabulary(kind, words, tuple(one if isinstance(one, int) else 0 for one in types))
