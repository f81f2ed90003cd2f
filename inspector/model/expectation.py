"""What a server stores of its model: sections, rows, cells and bytes.

Source: ggml-org/llama.cpp b10587, src/llama-kv-cache.cpp `llama_kv_cache::llama_kv_cache`,
`state_write`; src/llama-kv-cache-iswa.cpp; src/llama-memory-recurrent.cpp `state_write`.
"""

from __future__ import annotations

from dataclasses import dataclass

from formats.bodies.compositions import MEMORY
from formats.ggml_types import IK
from inspector.model.expectation_ik import ik_sections
from inspector.model.geometry import CacheExpectation, MemoryExpectation, WindowType
from inspector.model.section import SectionExpectation, rows_of
from inspector.server.servers import Build, ggsq_version
from inspector.server.target import PADDING, Target, cache_type, padded

V_ROTATION = 64
"""Elements of the matrix that rotates values, and the least of that which rotates keys."""
ALWAYS_ROTATED = frozenset({"deepseek32", "deepseek4", "glm-dsa", "dots3note"})
"""Architectures whose lightning indexer keeps rotated keys whatever their type."""
_F32 = 4


@dataclass(frozen=True, slots=True)
class StateExpectation:
    """A slot file.

    Attributes:
        build: that writes and reads it.
        version: of the file.
        memory: what the model stores.
        sections: in file order.
        n_stream: cell arrays; None if the format has no such word.
        cell_bytes: bytes of a cell record of an attention cache.
        cell_ext: those of its extension.
        v_trans: whether values are stored transposed; None if that is not known.
        rotation_words: whether sections carry n_rot_k and n_rot_v.
        packed: whether a server packs the tokens.
    """

    build: Build
    version: int
    memory: MemoryExpectation
    sections: tuple[SectionExpectation, ...]
    n_stream: int | None
    cell_bytes: int
    cell_ext: int
    v_trans: bool | None
    rotation_words: bool
    packed: bool

    def cells(self, section: SectionExpectation, n_tokens: int) -> int | None:
        """Cells that a slot of so many text tokens stores in a section.

        Returns:
            None if that depends on what the slot did before.
        """
        if section.kind == "recurrent":
            return min(n_tokens, 1)
        if section.kind != "swa":
            return n_tokens
        if self.build.has("masked-cells-left-out"):
            n_swa = self.memory.n_swa
            if self.memory.swa_type is WindowType.CHUNKED:
                return n_tokens - max(0, n_tokens - 1) // n_swa * n_swa
            return min(n_tokens, n_swa)
        fits = section.capacity is not None and n_tokens <= section.capacity
        return n_tokens if fits else None

    def section_bytes(self, section: SectionExpectation, cells: int) -> int:
        """Bytes of a section with so many cells."""
        rows = section.headers_bytes + cells * section.rows_bytes
        if self.build.server == IK and section.kind != "attention":
            words = _WORD * len(section.k) if section.kind == "recurrent" else 0
            return _WORD + words + rows
        if section.kind == "recurrent":
            return _RECURRENT_HEAD + cells * _ANONYMOUS_CELL + rows
        if self.version == 1:
            return _VERSION_1_HEAD + cells * _POSITION + rows
        body = cells * self.cell_bytes + _STREAM_HEAD + rows
        if self.rotation_words:
            body += _ROTATION_WORDS
        if self.n_stream is None:
            return _WORD + body
        return _WORD + self.n_stream * _WORD + (body if cells else 0)

    def payload_bytes(self, n_tokens: int) -> int | None:
        """Bytes of the memory of a slot of so many text tokens; None if that depends."""
        total = 0
        for section in self.sections:
            cells = self.cells(section, n_tokens)
            if cells is None:
                return None
            total += self.section_bytes(section, cells)
        return total

    def token_bytes(self, n_tokens: int) -> int:
        """Bytes of the envelope and of so many text tokens."""
        return _ENVELOPE + _WORD * (n_tokens + (_PACKING if self.packed else 0))

    def file_bytes(self, n_tokens: int) -> int | None:
        """Bytes of a file without checkpoints; None if that depends."""
        payload = self.payload_bytes(n_tokens)
        return None if payload is None else self.token_bytes(n_tokens) + payload


_WORD = 4
_ENVELOPE = 3 * _WORD
"""magic, version, n_token_count."""
_PACKING = 4
"""Words around packed tokens: marker, version, n_tokens, n_media."""
_STREAM_HEAD = 2 * _WORD
"""v_trans, n_layer."""
_ROTATION_WORDS = 2 * _WORD
_RECURRENT_HEAD = 3 * _WORD
"""cell_count, s_trans, n_layer."""
_ANONYMOUS_CELL = 2 * _WORD
"""pos, n_seq_id; a sequence id comes behind it from b5485 on."""
_VERSION_1_HEAD = 4 * _WORD
"""size_t_size, cell_count, n_layer, n_embd_v."""
_POSITION = _WORD


def expected_state(target: Target) -> StateExpectation | str:
    """What a slot file of this server looks like.

    Args:
        target: a server whose model was read.

    Returns:
        The expectation; or why there is none, in words.
    """
    build, memory = target.build, target.memory
    if memory is None:
        return "no model was read"
    version = ggsq_version(build)
    if version is None:
        return f"{build.label} knows no slot files"
    if (reason := _unsized(build, memory)) is not None:
        return reason
    sections = _sections(target, memory)
    if isinstance(sections, str):
        return sections
    cell_ext = _cell_ext(build, memory)
    return StateExpectation(
        build,
        version,
        memory,
        sections,
        target.n_stream if build.has("n-stream") else None,
        _ANONYMOUS_CELL + (_WORD if build.has("seq-id") else 0) + cell_ext,
        cell_ext,
        target.v_trans,
        build.has("rotation-words"),
        build.has("packed-tokens"),
    )


def _unsized(build: Build, memory: MemoryExpectation) -> str | None:
    """Why the size of a model's state is not known."""
    if memory.memory == "none":
        return f"{memory.architecture} has no memory"
    if memory.memory in ("dsv4", "minimax-m3") or memory.architecture == "qwen4exp":
        return f"the size of a {memory.architecture} state is not computed"
    hybrid = memory.recurrent is not None and bool(memory.caches)
    if hybrid and build.server != IK and not build.has("hybrid-saves"):
        return f"{build.label} cannot save states of hybrid models"
    return None


def _cell_ext(build: Build, memory: MemoryExpectation) -> int:
    """Bytes of the extension of a cell."""
    if not memory.mrope or not build.has("mrope-ext"):
        return 0
    return 3 * _WORD if build.has("mrope-ext-token") else 2 * _WORD


def _sections(target: Target, memory: MemoryExpectation) -> tuple[SectionExpectation, ...] | str:
    if target.build.server == IK:
        return ik_sections(target, memory)
    sections = []
    for member, _, _ in MEMORY[memory.memory][1]:
        section = _section(target, memory, member)
        if isinstance(section, str):
            return section
        sections.append(section)
    return tuple(sections)


def _section(target: Target, memory: MemoryExpectation, member: str) -> SectionExpectation | str:
    cache = next((cache for cache in memory.caches if cache.member == member), None)
    if cache is not None:
        return _attention(target, memory, cache)
    state = memory.recurrent
    assert state is not None  # a section that is no cache
    n = len(state.layers)
    return SectionExpectation(
        member,
        "recurrent",
        state.layers,
        state.n_layer,
        "f32",
        "f32",
        (_F32 * state.r,) * n,
        (_F32 * state.s,) * n,
        capacity=target.n_parallel,
    )


def _attention(
    target: Target, memory: MemoryExpectation, cache: CacheExpectation
) -> SectionExpectation | str:
    k = rows_of(target, target.type_k, cache.k, cache.head_k)
    v = rows_of(target, target.type_v, cache.v, cache.head_v)
    if isinstance(k, str) or isinstance(v, str):
        return k if isinstance(k, str) else str(v)
    n_rot_k, n_rot_v = rotation(target, memory, cache)
    return SectionExpectation(
        cache.member,
        cache.kind,
        cache.layers,
        len(cache.layers),
        target.type_k,
        target.type_v if cache.v else None,
        k,
        v,
        n_rot_k,
        n_rot_v,
        _capacity(target, memory, cache),
    )


def _capacity(target: Target, memory: MemoryExpectation, cache: CacheExpectation) -> int | None:
    """Cells of one cell array of a cache."""
    n_ctx_seq = target.n_ctx_seq
    if cache.kind != "swa" or target.swa_full:
        return n_ctx_seq and padded(n_ctx_seq, PADDING)
    window = memory.n_swa * (target.n_parallel if target.kv_unified else 1) + target.n_ubatch
    return padded(min(n_ctx_seq or window, window), PADDING)


def rotation(target: Target, memory: MemoryExpectation, cache: CacheExpectation) -> tuple[int, int]:
    """Elements of the matrices that rotate the keys and the values of a cache; 0 for none.

    Source: ggml-org/llama.cpp b8619 (PR #21038), b8699 (PR #21513), src/llama-kv-cache.cpp
    `attn_rot_k`, `attn_rot_v`; `n_rot_k`, `n_rot_v` from PR #28498 on.
    """
    n_rot_k = n_rot_v = 0
    always = cache.member == "lid" and memory.architecture in ALWAYS_ROTATED
    if always or _rotates(target, target.type_k, cache.head_k, [c.k for c in memory.caches]):
        n_rot_k = _power_of_two(cache.head_k)
    if _rotates(target, target.type_v, cache.head_v, [c.v for c in memory.caches]):
        n_rot_v = V_ROTATION
    return n_rot_k, n_rot_v


def _rotates(
    target: Target, name: str, heads: tuple[int, ...], widths: list[tuple[int, ...]]
) -> bool:
    """Whether a side of a cache is rotated.

    Args:
        target: whose cache it is.
        name: type of the side.
        heads: elements of one head, by layer of the cache.
        widths: elements of a row, by cache of the model and layer.
    """
    kind = cache_type(name, target.build)
    quantized = kind is not None and kind.block_elements > 1
    if not quantized or not target.rotation or not target.build.has("rotation"):
        return False
    if len(set(heads)) != 1 or heads[0] % V_ROTATION:
        return False
    return target.build.has("rotation-by-cache") or len({w for row in widths for w in row}) == 1


def _power_of_two(heads: tuple[int, ...]) -> int:
    """The largest power of two, at least 64, that divides a head; 0 if there is none."""
    largest = heads[0] & -heads[0] if heads else 0
    return largest if largest >= V_ROTATION else 0
