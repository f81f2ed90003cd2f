"""The bytes of a state in the form that a build reads.

Source: ggml-org/llama.cpp b3483 to b11549, src/llama-kv-cache.cpp `state_write_meta`,
`state_write_data`; src/llama-memory-recurrent.cpp; src/llama-context.cpp
`state_seq_save_file`; tools/server/server-common.cpp `server_tokens::serialize`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from formats.envelopes.ggsn import GGSN_MAGIC
from formats.envelopes.ggsq import GGSQ_MAGIC
from inspector.repair.segments import Content, Keep, Segment, Write
from inspector.repair.state import (
    Cache,
    Cells,
    Numbers,
    Part,
    Recurrent,
    Refused,
    State,
    Tensor,
    TokenList,
    words,
)
from inspector.server.servers import Build, ggsq_version

PACKED = 0xFFFFFFFF
PREFIX = 0xAF143CD8
_OLDEST = 2
_EXTENSIONS: dict[int, tuple[str, ...]] = {0: (), 8: ("x", "y"), 12: ("x", "y", "tok")}


@dataclass(frozen=True)
class Form:
    """How a stretch of builds writes a state of one sequence.

    Attributes:
        version: of slot files, or of whole-context files.
        streams: whether attention caches begin with n_stream.
        seq_id: whether cells carry a sequence id.
        cell_ext: bytes of the extension of a cell.
        rotation: whether attention caches carry rotation words.
        packed: whether tokens are packed.
        prefix: whether blobs begin with eight bytes of their own.
        session: whether it is a whole-context file, in which recurrent cells have ids too.
    """

    version: int
    streams: bool = True
    seq_id: bool = True
    cell_ext: int = 0
    rotation: bool = False
    packed: bool = False
    prefix: bool = True
    session: bool = False


def form_of(build: Build, *, mrope: bool) -> Form:
    """The form that a build reads.

    Args:
        build: of llama.cpp or a fork.
        mrope: whether the model has several positions a token.

    Raises:
        Refused: if it reads no slot files that can be composed.
    """
    version = ggsq_version(build)
    if version is None or version < 2:
        raise Refused(f"no file is written for {build.label}: its slot files are of another kind")
    extended = mrope and build.has("mrope-ext")
    return Form(
        version,
        build.has("n-stream"),
        build.has("seq-id"),
        (12 if build.has("mrope-ext-token") else 8) if extended else 0,
        build.has("rotation-words"),
        build.has("packed-tokens"),
        build.has("blob-prefix"),
    )


def slot_file(state: State, form: Form, why: str) -> Iterator[Segment]:
    """A slot file without checkpoints, or a whole-context file.

    Args:
        state: what it holds.
        form: how to write it.
        why: the action that bytes are written for which the state's source does not have.

    Raises:
        Refused: for versions that are not written.
    """
    if not form.session and form.version < _OLDEST:
        raise Refused("version 1 is not written: name the server that is to read it with --build")
    field = token_field(state.tokens, packed=form.packed)
    yield Write(words(GGSN_MAGIC if form.session else GGSQ_MAGIC), why)
    yield Write(words(form.version), why)
    yield Write(words(len(field) // 4), why)
    yield Write(field, why)
    if form.session:
        yield from state.head
    yield from payload(state.parts, state.tokens.ids, form, why)


def token_field(tokens: TokenList, *, packed: bool) -> bytes:
    """The words behind the count.

    Raises:
        Refused: if a plain list is asked for, and there are media.
    """
    ids = tokens.ids.astype("<i4").tobytes()
    if not packed:
        if tokens.media_start:
            raise Refused("media chunks need packed tokens, which this build does not read")
        return ids
    start = words(*tokens.media_start)
    data = words(PACKED, 1, len(tokens.ids)) + ids + words(len(tokens.media_start)) + start
    data += tokens.media
    return data + bytes(-len(data) % 4)


def payload(parts: Iterable[Part], ids: Numbers, form: Form, why: str) -> Iterator[Segment]:
    """The memory of one sequence.

    Args:
        parts: its sections.
        ids: the token ids, of which an extension of cells may need some.
        form: how to write it.
        why: the action that needs new bytes.
    """
    for part in parts:
        if isinstance(part, Recurrent):
            yield from _recurrent(part, form, why)
        else:
            yield from _cache(part, ids, form, why)


def blob(
    parts: Iterable[Part], ids: Numbers, form: Form, why: str, slot: int = 0
) -> Iterator[Segment]:
    """The memory of one sequence as it stands in a checkpoint, which that slot made."""
    if form.prefix:
        yield Write(words(PREFIX, slot), why)
    yield from payload(parts, ids, form, why)


def _cache(cache: Cache, ids: Numbers, form: Form, why: str) -> Iterator[Segment]:
    count = len(cache.cells)
    if form.streams:
        yield Write(words(cache.n_stream), why)
        for stream in range(cache.n_stream):
            if stream != cache.stream or not count:
                yield Write(words(0), why)
            else:
                yield from _stream(cache, ids, form, why)
    else:
        yield from _stream(cache, ids, form, why)


def _stream(cache: Cache, ids: Numbers, form: Form, why: str) -> Iterator[Segment]:
    yield Write(words(len(cache.cells)), why)
    yield Write(_cells(cache.cells, ids, form), why)
    yield Write(words(cache.v_trans), why)
    yield Write(words(cache.n_layer), why)
    if form.rotation:
        if cache.rotation is None:
            raise Refused(f"whether rows of {cache.member} are rotated is not known")
        yield Write(words(*cache.rotation), why)
    for tensor in cache.k + cache.v:
        yield from block(tensor, why)


def _cells(cells: Cells, ids: Numbers, form: Form) -> bytes:
    names = ("pos", "n_seq_id", *_EXTENSIONS[form.cell_ext], *(["seq_id"] if form.seq_id else []))
    table = np.zeros(len(cells), [(name, "<i4") for name in names])
    columns = extended(cells, ids, _EXTENSIONS[form.cell_ext]).extension
    for name in names:
        if name == "pos":
            table[name] = cells.pos
        elif name == "n_seq_id":
            table[name] = int(form.seq_id)
        elif name == "seq_id":
            table[name] = cells.seq_id
        else:
            table[name] = columns[name]
    return table.tobytes()


def extended(cells: Cells, ids: Numbers, names: tuple[str, ...]) -> Cells:
    """Cells with an extension: of text x and y are the position, tok is the token there.

    Args:
        cells: the cells.
        ids: the token ids.
        names: columns of the extension.

    Raises:
        Refused: if columns are missing, and there are media, whose places cannot be known.
    """
    missing = [name for name in names if name not in cells.extension]
    if missing and bool((ids == -1).any()):
        raise Refused("the places of its media are not stored in these cells")
    inside = (cells.pos >= 0) & (cells.pos < len(ids))
    tok = np.full(len(cells), -1, np.int64)
    tok[inside] = ids[cells.pos[inside]]
    derived = {"x": cells.pos, "y": cells.pos, "tok": tok}
    return replace(
        cells, extension={name: cells.extension.get(name, derived[name]) for name in names}
    )


def block(tensor: Tensor, why: str) -> Iterator[Segment]:
    """One tensor behind its head."""
    if tensor.element_bytes:
        channels = tensor.row_bytes // tensor.element_bytes
        yield Write(struct.pack("<iII", tensor.type_id, tensor.element_bytes, channels), why)
    else:
        yield Write(struct.pack("<iQ", tensor.type_id, tensor.row_bytes), why)
    yield from tensor.content


def _recurrent(part: Recurrent, form: Form, why: str) -> Iterator[Segment]:
    yield Write(words(len(part.pos)), why)
    cells = np.zeros((len(part.pos), 3 if form.session else 2), "<i4")
    cells[:, 0] = part.pos
    if form.session:
        cells[:, 1:] = 1, part.seq_id
    yield Write(cells.tobytes(), why)
    yield Write(words(0), why)
    yield Write(words(part.n_layer), why)
    if part.stored is not None:
        yield part.stored
        return
    for tensor in part.r + part.s:
        yield from block(tensor, why)


def kept(content: Content, state: State) -> bool:
    """Whether nothing is written: the content is the source's."""
    return all(isinstance(segment, Keep) and segment.source is state.source for segment in content)
