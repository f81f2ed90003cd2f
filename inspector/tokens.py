"""The token field of a state, plain or packed, as plain facts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from inspector.node import Kind, Node, Rows
from inspector.span import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Tokens:
    """What the token field says.

    Attributes:
        packing: `plain`, `packed`, or `none` for a state without a token field.
        count: tokens the state stands for; of a field that could not be read, what its count word
            promises.
        words: 32-bit words of the field.
        media: media chunks.
        path: of the token list.
        span: bytes of the field.
        rows: the token list; None if it was not reached, or lies in no table.
        given: the ids where they lie in no table.
    """

    packing: str
    count: int
    words: int
    media: int
    path: str
    span: Span
    rows: Rows | None
    given: NDArray[np.int64] | None = None

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Token ids in order, -1 at media, shape `(count,)`; empty if the list was not reached."""
        import numpy as np

        if self.given is not None:
            return self.given
        return np.zeros(0, np.int64) if self.rows is None else self.rows.column("value")

    @cached_property
    def digest(self) -> str:
        """xxh3-128 of the ids as little-endian i32, hex: equal for equal lists, however packed."""
        from xxhash import xxh3_128_hexdigest

        return xxh3_128_hexdigest(self.ids.astype("<i4").tobytes())


def tokens_of(root: Node) -> Tokens:
    """The token field of a state, or one with packing `none`."""
    words = root.number("n_token_count")
    node = root.get("tokens")
    if root.get("n_token_count") is None:
        return Tokens("none", 0, 0, 0, "", Span(root.span.start, root.span.start), None)
    if node is None:
        return Tokens(
            "plain", words, words, 0, "tokens", Span(root.span.start, root.span.start), None
        )
    if node.kind is not Kind.RECORD:
        rows = node.value if isinstance(node.value, Rows) else None
        return Tokens("plain", words, words, 0, "tokens", node.span, rows)
    n_tokens, n_media = node.number("n_tokens"), node.number("n_media")
    return Tokens(
        "packed", n_tokens, words, n_media, "tokens.tokens", node.span, node.rows("tokens")
    )
