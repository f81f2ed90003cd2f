"""The rotation of caches: groups of elements times a Hadamard matrix, which also undoes it.

Source: ggml-org/llama.cpp b8619 (PR #21038), src/llama-kv-cache.cpp `attn_rot_k`, `attn_rot_v`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from inspector.arrays.numbers import Floats

FACTOR = 16
"""Elements of a group that one product takes; the rest of a larger group is a second product."""


@cache
def hadamard_matrix(size: int) -> Floats:
    """Sylvester's orthonormal matrix; its own inverse."""
    matrix: Floats = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.float32(np.sqrt(size))


def rotate(numbers: Floats, size: int) -> Floats:
    """Consecutive groups of `size` along the last axis times the matrix; unchanged for 0.

    A large matrix is a Kronecker product of two small ones, which are multiplied one by one:
    several times as fast, and rounded less. Each line is a product of its own, too small to be
    divided among threads, which wait for each other on a busy machine.
    """
    if not size:
        return numbers
    outer = size // FACTOR if size > 2 * FACTOR else 1
    inner = size // outer
    lines = numbers.reshape(-1, numbers.shape[-1] // inner, inner)
    with np.errstate(all="ignore"):  # infinities and NaN spread over their group
        found: Floats = lines @ hadamard_matrix(inner)
        if outer > 1:
            found = hadamard_matrix(outer) @ found.reshape(-1, outer, inner)
    return found.reshape(numbers.shape)
