"""The token list against itself and against the cells."""

from __future__ import annotations

from collections.abc import Iterator

from formats.ggml_types import IK
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.node import Node
from inspector.span import Span

_SERVER = "llama.cpp b10388 (PR #26640), tools/server: validation of the restored token list"

register(
    Code(
        "tokens.negative",
        Severity.WARNING,
        "A token id is negative in a plain list",
        'servers from b10388 on refuse the restore ("Invalid tokens in slot save file"); '
        "older ones match no prompt "
        "beyond it",
        RemedyKind.NONE,
        "which token stood there cannot be known, unless its cell names one and the model confirms "
        "that: slotscope repair with --model writes it then",
        _SERVER,
    ),
    Code(
        "tokens.packed-negative",
        Severity.ERROR,
        "A token is negative where no media chunk is",
        'the server refuses the restore: "Invalid tokens in slot save file"; the slot is emptied',
        RemedyKind.NONE,
        "which token stood there cannot be known, unless its cell names one and the model confirms "
        "that: slotscope repair with --model writes it then",
        _SERVER,
    ),
    Code(
        "tokens.media-mismatch",
        Severity.ERROR,
        "Media chunks and the places of media in the token list disagree",
        "the server refuses the restore and empties the slot",
        RemedyKind.NONE,
        "the list and the chunks come from the same save; one of them is damaged",
        _SERVER,
    ),
    Code(
        "tokens.none",
        Severity.NOTE,
        "There are cells but no tokens",
        "the state restores, and no prompt matches it: nothing is reused",
        RemedyKind.NONE,
        "supply the token list of the conversation",
        "llama.cpp b10587, tools/server: common prefix of the token lists",
    ),
    Code(
        "tokens.no-cells",
        Severity.ERROR,
        "There are tokens but no cells",
        "the restore succeeds and leaves the slot's cells as they are; the next request that "
        "shares a prefix aborts the server (b5554 on), or, in a slot that was in use, is answered "
        "from the cells of the conversation before it",
        RemedyKind.LOSSY,
        "prefill the tokens again; there is no memory to keep",
        'llama.cpp b5554 (PR #13833): "pos_min == -1, but n_past > 0"; restores over a used slot '
        "on b10229, b10809 and b11549",
    ),
    Code(
        "tokens.cells-mismatch",
        Severity.WARNING,
        "The number of tokens and the number of cells differ",
        "decoding after the restore meets positions that the token list does not account for",
        RemedyKind.LOSSY,
        "attention-only states can be cut to the common prefix",
        "llama.cpp b10587: the server saves one cell for every token of its list",
    ),
    Code(
        "tokens.beyond-cells",
        Severity.NOTE,
        "The list has one token more than there are cells",
        "nothing: prompt caches of b9300 and later leave the last token to be evaluated again",
        RemedyKind.NONE,
        "not needed",
        "llama.cpp b9300 (PR #23468)",
    ),
    Code(
        "state.empty",
        Severity.NOTE,
        "An unused slot was saved: no tokens, no cells",
        "restoring it gives an empty slot, or is refused (builds before b5913 may abort)",
        RemedyKind.NONE,
        "delete it; nothing is lost",
        "llama.cpp, save of a slot that served nothing",
    ),
)


def check_tokens(subject: Subject) -> Iterator[Finding]:
    """Negative ids, media runs, and counts against cells."""
    tokens = subject.tokens
    if tokens.packing == "none" or tokens.rows is None:
        return
    if tokens.packing == "plain":
        yield from _negative(subject, "tokens.negative", allowed=[])
    else:
        runs = [(start, start + (length or 0)) for _, start, length in _chunks(subject)]
        yield from list(_media(subject)) or _negative(subject, "tokens.packed-negative", runs)
    yield from _against_cells(subject)


def _negative(subject: Subject, code: str, allowed: list[tuple[int, int]]) -> Iterator[Finding]:
    import numpy as np

    tokens = subject.tokens
    assert tokens.rows is not None
    bad = tokens.ids < 0
    for start, stop in allowed:
        bad[start:stop] &= tokens.ids[start:stop] != -1
    places = np.flatnonzero(bad)
    if len(places):
        index = int(places[0])
        yield Finding(
            code,
            f"{tokens.path}[{index}]",
            tokens.rows.row_span(index),
            f"token {index} is {tokens.ids[index]}, {len(places):,} of {len(tokens.ids):,} "
            "are negative",
            "an id of at least 0",
            str(int(tokens.ids[index])),
        )


def _chunks(subject: Subject) -> list[tuple[Node, int, int | None]]:
    """The media chunks: each with its first token and its number of tokens, if that is known."""
    node = subject.root.get("tokens")
    assert node is not None
    starts, media = node.rows("media_start"), node.get("media")
    if starts is None or media is None:
        return []
    pairs = zip(media.children, starts.column("value").tolist(), strict=False)
    return [(item, start, _media_tokens(item.get("chunk"))) for item, start in pairs]


def _media(subject: Subject) -> Iterator[Finding]:
    ids, chunks = subject.tokens.ids, _chunks(subject)
    for index, (item, start, length) in enumerate(chunks):
        inside = ids[start : start + (length or 0)]
        n_media = int((inside == -1).sum())
        if not length or n_media < length:
            claimed = f"{length:,}" if length is not None else "an unknown number of"
            yield Finding(
                "tokens.media-mismatch",
                f"tokens.media[{index}]",
                item.span,
                f"chunk {index} claims {claimed} tokens from {start} on, where the list has "
                f"{n_media:,} media tokens",
                "as many media tokens as the chunk has",
                f"{len(inside):,} tokens, {n_media:,} of them media",
            )
    starts = [start for _, start, _ in chunks]
    if starts != sorted(set(starts)):
        node = subject.root.get("tokens")
        table = node.get("media_start") if node is not None else None
        yield Finding(
            "tokens.media-mismatch",
            "tokens.media_start",
            table.span if table is not None else subject.tokens.span,
            "the media chunks do not start at ascending places",
            "ascending indices",
            str(starts[:8]),
        )


def _media_tokens(chunk: Node | None) -> int | None:
    """Tokens that a chunk stands for; None if it could not be read.

    Source: ggml-org/llama.cpp PR #26645, tools/mtmd `mtmd_image_tokens::n_tokens`.
    """
    if chunk is None:
        return None
    if (audio := chunk.get("audio")) is not None:
        return audio.number("n_tokens")
    if (image := chunk.get("image")) is None:
        return None
    nx, ny, entries = image.number("nx"), image.number("ny"), image.number("n_entries")
    if image.number("pos_type") == 2:
        return (nx + 1) * ny + 2
    merge = image.number("n_temporal_merge")
    return nx * ny * (-(-entries // merge) if merge > 1 else entries)


def _against_cells(subject: Subject) -> Iterator[Finding]:
    tokens = subject.tokens
    main = subject.section("attention") or subject.section("recurrent", "swa")
    if main is None or subject.reading.decoding.stops:
        return
    if not tokens.count and not main.cells:
        if subject.identification.writer == IK:  # has a code of its own, for it is fatal there
            return
        what = subject.reading.layout.title.rpartition(": ")[2]
        yield Finding(
            "state.empty",
            "",
            subject.root.span,
            f"an empty state ({what})",
            "tokens and cells",
            "none",
        )
        return
    if not tokens.count:
        count = subject.root.get("n_token_count")
        yield Finding(
            "tokens.none",
            "n_token_count",
            count.span if count is not None else tokens.span,
            f"{main.cells:,} cells, no tokens",
            f"{main.cells:,} tokens",
            "0",
        )
        return
    if not main.cells:
        if main.node.get("kv_ntok") is not None:  # of 2023: only how many there are is stored
            return
        yield Finding(
            "tokens.no-cells",
            main.path,
            main.span,
            f"{tokens.count:,} tokens, no cells",
            f"{tokens.count:,} cells",
            "0",
        )
        return
    layout, last = subject.reading.layout, tokens.count - 1
    if main.kind == "attention" and layout.format == "ggsq" and main.cells != tokens.count:
        yield _mismatch(subject, main.cells, main.path, main.span)
    if layout.format == "ggsn" and main.cells == last and main.pos_max == last - 1:
        assert tokens.rows is not None
        yield Finding(
            "tokens.beyond-cells",
            f"{tokens.path}[{last}]",
            tokens.rows.row_span(last),
            f"{tokens.count:,} tokens and {main.cells:,} cells: the last token has none",
            f"{tokens.count:,} cells, or {last:,} from b9300 on",
            f"{main.cells:,} cells",
        )


def _mismatch(subject: Subject, cells: int, path: str, span: Span) -> Finding:
    count = subject.tokens.count
    return Finding(
        "tokens.cells-mismatch",
        path,
        span,
        f"{count:,} tokens, but {cells:,} cells",
        f"{count:,} cells",
        f"{cells:,}",
    )
