"""ggml type ids: name, elements and bytes of a block, and the ids that mean different things.

Source: ggml-org/llama.cpp b10587, ggml/include/ggml.h `enum ggml_type` and ggml/src/ggml-common.h
`block_*`.
"""

from __future__ import annotations

from dataclasses import dataclass

UPSTREAM = "llama.cpp"
IK = "ik_llama.cpp"
TURBOQUANT = "turboquant"


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One type as one program defines it.

    Attributes:
        id: the number in the file.
        name: upstream's spelling, lower case.
        block_elements: elements a block holds.
        block_bytes: bytes a block occupies.
        writer: the program that gives the id this meaning.
        row_prefix_bytes: bytes in front of each tensor row (ik_llama.cpp's q8_KV), else 0.
        cache: whether that program accepts it as a cache type.
    """

    id: int
    name: str
    block_elements: int
    block_bytes: int
    writer: str = UPSTREAM
    row_prefix_bytes: int = 0
    cache: bool = True

    def elements(self, row_bytes: int) -> int | None:
        """Elements that a row of so many bytes holds; None if that is no whole number of blocks."""
        blocks, rest = divmod(row_bytes - self.row_prefix_bytes, self.block_bytes)
        return None if rest or blocks < 0 else blocks * self.block_elements


TYPES = (
    GgmlType(0, "f32", 1, 4),
    GgmlType(1, "f16", 1, 2),
    GgmlType(2, "q4_0", 32, 18),
    GgmlType(3, "q4_1", 32, 20),
    GgmlType(6, "q5_0", 32, 22),
    GgmlType(7, "q5_1", 32, 24),
    GgmlType(8, "q8_0", 32, 34),
    GgmlType(9, "q8_1", 32, 36, cache=False),
    GgmlType(20, "iq4_nl", 32, 18),
    GgmlType(30, "bf16", 1, 2),
    GgmlType(39, "mxfp4", 32, 17, cache=False),
    GgmlType(40, "nvfp4", 64, 36, cache=False),
    GgmlType(41, "q1_0", 128, 18, cache=False),
    GgmlType(42, "q2_0", 64, 18, cache=False),
    # TheTom/llama-cpp-turboquant: ids and sizes moved three times in spring 2026, unrecorded
    GgmlType(42, "turbo2", 128, 34, TURBOQUANT),
    GgmlType(43, "turbo3", 128, 50, TURBOQUANT),
    GgmlType(44, "turbo4", 128, 68, TURBOQUANT),
    GgmlType(41, "turbo3", 128, 50, TURBOQUANT),
    GgmlType(41, "turbo3", 128, 52, TURBOQUANT),
    GgmlType(41, "turbo3", 32, 14, TURBOQUANT),
    GgmlType(42, "turbo4", 128, 68, TURBOQUANT),
    GgmlType(43, "turbo2", 128, 34, TURBOQUANT),
    GgmlType(43, "turbo2", 32, 10, TURBOQUANT),
    # ikawrakow/ik_llama.cpp
    GgmlType(133, "q6_0", 32, 26, IK),
    GgmlType(151, "q8_KV", 32, 32, IK, row_prefix_bytes=8),
)

ABSENT = -1
"""What ik_llama.cpp writes as the type of a layer that has no cache."""

GGML_TYPE_NAMES = {ABSENT: "absent"} | {
    t.id: t.name.upper() for t in reversed(TYPES) if t.writer != TURBOQUANT
}


def readings(type_id: int, row_bytes: int) -> tuple[GgmlType, ...]:
    """The types that an id can mean for a row of so many bytes, upstream's first."""
    return tuple(t for t in TYPES if t.id == type_id and t.elements(row_bytes) is not None)


def known(type_id: int) -> bool:
    """Whether any program gives the id a meaning."""
    return any(t.id == type_id for t in TYPES)
