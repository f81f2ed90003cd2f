"""The token list of a file, also out of one whose memory is beyond repair."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from formats.envelopes.tokens import N_TOKENS, PACKED_MARKER
from formats.layouts import marked_layouts
from inspector.decode import completes, decode
from inspector.identify import Verdict
from inspector.mend import Mend, Patched
from inspector.node import Node, Rows
from inspector.span import Span
from inspector.tokens import Tokens, tokens_of
from inspector.trace import Ends

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from formats.layout import Layout
    from formats.spans import Stop
    from inspector.model.vocabulary import Vocabulary
    from inspector.report import Report

_LARGEST_VOCABULARY = 1 << 20
"""Ids of the largest vocabularies in use end at a quarter of that."""
_DIFFERS = "tokens.cells-mismatch"
_MOST_COUNTS = 32
"""Numbers of tokens that are tried where the stored one cannot be."""
_FARTHEST = 1 << 20
"""The largest of them."""
_PACKED_HEAD = 3
"""Words in front of a packed list: marker, version, n_tokens."""
_LIST = re.compile(rb'"tokens"\s*+:\s*+\[([-\d,\s]*+)')


@dataclass(frozen=True, slots=True)
class Media:
    """Places in the list that stand for an image or a piece of audio, -1 each.

    Attributes:
        start: index of the first.
        n_tokens: how many there are.
        kind: `image` or `audio`; None where only the places are known.
        id: what prompt matching compares.
    """

    start: int
    n_tokens: int
    kind: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class TokenList:
    """The tokens that could be read.

    Attributes:
        tokens: the list, its count being that of the ids that are there.
        media: what its -1 stand for, in order.
        missing: ids that the file promises and does not have; None if that cannot be told.
        why: what is wrong with the list; empty if it is whole.
    """

    tokens: Tokens
    media: tuple[Media, ...] = ()
    missing: int | None = 0
    why: str = ""

    @property
    def text_only(self) -> int:
        """How many ids come before the first that no request can hold: media, or damage."""
        import numpy as np

        negative = np.flatnonzero(self.tokens.ids < 0)
        return int(negative[0]) if len(negative) else len(self.tokens.ids)


def token_list(report: Report) -> TokenList:
    """Every token id that the file of a report still has. Never raises for what the bytes are."""
    found = _of_container(report) if report.container is not None else _of_state(report)
    if found.why:
        found = replace(found, why="; ".join((found.why, *_elsewhere(report))))
    return replace(found, media=found.media or tuple(_runs(found.tokens.ids)))


def text_of(found: TokenList, vocabulary: Vocabulary) -> str:
    """The text of a list; `<image>`, `<audio>` or `<media>` stand where they are."""
    parts, at = [], 0
    ids = found.tokens.ids.tolist()
    for one in found.media:
        if one.n_tokens and one.start >= at:
            parts += [vocabulary.text(ids[at : one.start]), f"<{one.kind or 'media'}>"]
            at = one.start + one.n_tokens
    return "".join((*parts, vocabulary.text(ids[at:])))


def _of_state(report: Report) -> TokenList:
    identification, root = report.identification, report.identification.root
    if root is None or identification.reading is None:
        return _nothing("nothing is known of this file, so neither where its tokens are")
    decoding, why = identification.reading.decoding, ""
    stop = next((one for one in decoding.stops if one.path.startswith("tokens")), None)
    mended = _mended(report, root, cut=stop is not None)
    if mended is not None:
        layout, mend = mended
        decoding = decode(Patched(report.source, mend), layout, root.span)
        root, stop = decoding.root, None
        why = f"{mend.path} is damaged: it says {mend.stored:,}, the file is whole with"
        why += f" {mend.value:,}"
    tokens = _field(root)
    if tokens is not None:
        if not why and not len(tokens.ids):
            why = "its token list is empty"
        return TokenList(tokens, tuple(_media(root, tokens.ids)), 0, why)
    if stop is not None:
        return _cut(report, root, stop)
    what = identification.reading.layout.title
    if decoding.stops and decoding.layout.memory:
        return _nothing(f"it ends before its token list ({what})")
    return _nothing(f"it has no token list ({what})")


def _mended(report: Report, root: Node, *, cut: bool) -> tuple[Layout, Mend] | None:
    """The word about the list that is damaged, and the layout under which the file is whole then.

    Args:
        report: of the file.
        root: its tree.
        cut: whether the list ends early.
    """
    identification, mend = report.identification, report.identification.mend
    assert identification.reading is not None
    if mend is not None and mend.path.startswith(("n_token_count", "tokens.")):
        return identification.reading.layout, mend
    damaged = identification.verdict is Verdict.DAMAGED and mend is None
    differs = any(finding.code == _DIFFERS for finding in report.findings)
    return _other_count(report, root) if cut or damaged or differs else None


def _other_count(report: Report, root: Node) -> tuple[Layout, Mend] | None:
    """The number of tokens with which the file is whole: an attention cache has as many cells."""
    import numpy as np

    source, count = report.source, root.get("n_token_count")
    if count is None or not isinstance(count.value, int):
        return None
    size = min(4 * _FARTHEST, root.span.stop - count.span.stop)
    data = source.read_at(count.span.stop, size)
    words = np.frombuffer(data[: len(data) // 4 * 4], "<u4")
    index = np.arange(len(words))
    found = np.concatenate([np.flatnonzero(words[n:] == index[: len(index) - n]) for n in (0, 1)])
    layouts = marked_layouts(source.read_at(root.span.start, 16))
    found = found[found != count.value]
    if words[:2].astype(np.int32).tolist() == [PACKED_MARKER, 1]:  # with its frame, and n_media
        n_tokens = int(words[:_PACKED_HEAD][-1])
        found = found[found > _PACKED_HEAD + (n_tokens if n_tokens < len(words) else 0)]
    for value in np.unique(found)[:_MOST_COUNTS].tolist():
        mend = Mend("n_token_count", count.span, count.value, value)
        patched, ends = Patched(source, mend), Ends()
        for layout in layouts:
            if completes(patched, layout, root.span, ends):
                return layout, mend
    return None


def _field(root: Node) -> Tokens | None:
    """The list, if it could be read to its end."""
    tokens, node = tokens_of(root), root.get("tokens")
    if node is None:
        return None
    rows = node.value if isinstance(node.value, Rows) else node.rows("tokens")
    if rows is None or len(rows.column("value")) != len(rows):
        return None
    if tokens.packing == "none":
        packing = "plain" if rows is node.value else "packed"
        tokens = Tokens(packing, len(rows), len(node.span) // 4, 0, "tokens", node.span, rows)
    return tokens


def _cut(report: Report, root: Node, stop: Stop) -> TokenList:
    """What is there of a list that was not read to its end."""
    import numpy as np

    count, frame = root.get("n_token_count"), root.get("tokens")
    if stop.path == "tokens.tokens" and frame is not None:
        start, end, promised = stop.offset, frame.span.stop, stop.wanted
    elif count is not None:
        start, end, frame = count.span.stop, root.span.stop, None
        promised = root.number("n_token_count")
    else:
        return _nothing("it ends in front of its token list")
    most = 4 * (N_TOKENS + _PACKED_HEAD)
    data = report.source.read_at(start, min(most, end - start))
    words = np.frombuffer(data[: len(data) // 4 * 4], "<i4").astype(np.int64)
    packed = frame is not None or words[:1].tolist() == [PACKED_MARKER]
    if packed and frame is None:
        promised = int(words[2]) & 0xFFFFFFFF if len(words) >= _PACKED_HEAD else 0
        words = words[_PACKED_HEAD:]
    if not len(words):
        return _nothing("it ends before the first id of its token list")
    strange = np.flatnonzero((words < (-1 if packed else 0)) | (words >= _LARGEST_VOCABULARY))
    ids = words[: int(strange[0]) if len(strange) else None][: min(promised, N_TOKENS)]
    why, missing = "", promised - len(ids)
    damaged = len(strange) > 0 or promised > N_TOKENS
    if frame is not None and not words[-1] and words.min() >= 0:  # n_media ends the frame
        ids, missing = words[:-1], 0
        why = f"its token count is damaged: it says {promised:,}, the list has {len(ids):,}"
    elif missing and damaged:
        why = f"its token count is damaged ({promised:,}): {len(ids):,} words that can be token ids"
        why += " follow, and where the list ends is not known"
    elif missing:
        why = f"it ends inside its token list: {missing:,} of {promised:,} ids are missing"
    packing, span = "packed" if packed else "plain", Span(start, end)
    tokens = Tokens(packing, len(ids), len(words), 0, stop.path, span, None, ids)
    return TokenList(tokens, (), None if damaged and missing else missing, why)


def _of_container(report: Report) -> TokenList:
    import numpy as np

    from inspector.containers import LARGEST_JSON

    container, tokens = report.container, report.tokens
    assert container is not None
    assert tokens is not None
    if container.tokens is not None:
        return TokenList(tokens, (), 0, "" if len(tokens.ids) else "its token list is empty")
    if not container.problems:
        return _nothing(f"it has no token list ({container.format})")
    problem = container.problems[0]
    where = f"at 0x{problem.span.start:x}"
    why = f"its token list could not be read: {problem.kind} {where}, {problem.expected} expected"
    text = b""
    if container.format == "ik-tokens":
        text = report.source.read_at(0, min(report.source.size, LARGEST_JSON))
    match = _LIST.search(text)
    if match is None:
        return _nothing(why)
    numbers = match[1].split(b",")
    if match.end() == len(text):  # the last number may have lost digits
        numbers = numbers[:-1]
    ids = np.array([int(one) for one in takewhile(_is_id, numbers)], np.int64)
    span = Span(match.start(1), match.end(1))
    tokens = Tokens("plain", len(ids), len(ids), 0, "tokens", span, None, ids)
    if match.end() < len(text):
        return TokenList(tokens, (), None, f"it is damaged: {problem.kind} {where}")
    why = "it ends inside its token list, and how many ids are missing it does not say"
    return TokenList(tokens, (), None, why)


def _is_id(text: bytes) -> bool:
    text = text.strip()
    return text.removeprefix(b"-").isdigit() and len(text) < len("-2147483648")


def _nothing(why: str) -> TokenList:
    import numpy as np

    nowhere = Span(0, 0)
    return TokenList(
        Tokens("none", 0, 0, 0, "", nowhere, None, np.zeros(0, np.int64)), (), None, why
    )


def _elsewhere(report: Report) -> Iterator[str]:
    """Other files that have the list."""
    for beside in report.beside:
        held = beside.container.tokens if beside.container is not None else None
        if held is not None and len(held):
            yield f"{beside.companion.file.name} beside it has {len(held):,} ids"
    if report.bundle.state is not None:
        yield f"the state it belongs to lies beside it: {report.bundle.state.name}"


def _media(root: Node, ids: NDArray[np.int64]) -> Iterator[Media]:
    """The chunks of a packed list."""
    node = root.get("tokens")
    starts = node.rows("media_start") if node is not None else None
    series = node.get("media") if node is not None else None
    if starts is None or series is None:
        return
    places = starts.column("value").tolist()
    for item, start, stop in zip(series.children, places, [*places[1:], len(ids)], strict=False):
        run = ids[start:stop] == -1
        n_tokens = len(run) if run.all() else int(run.argmin())
        chunk = item.get("chunk")
        kind = chunk.get("type") if chunk is not None else None
        yield Media(start, n_tokens, kind.meaning if kind is not None else None, _id(chunk))


def _id(chunk: Node | None) -> str | None:
    for name in ("image", "audio"):
        part = chunk.get(name) if chunk is not None else None
        text = part.get("id") if part is not None else None
        if text is not None and isinstance(text.value, str):
            return text.value
    return None


def _runs(ids: NDArray[np.int64]) -> Iterator[Media]:
    """Places of media in a list that does not say what they are."""
    import numpy as np

    edges = np.flatnonzero(np.diff(np.concatenate(([0], (ids == -1).astype(np.int8), [0]))))
    for start, stop in edges.reshape(-1, 2).tolist():
        yield Media(start, stop - start)
