"""The rotation of caches against a reading of one element at a time."""

from __future__ import annotations

import numpy as np
import pytest

from inspector.arrays.rotation import hadamard_matrix, rotate
from tests.support.first_layer import hadamard

NUMBERS = np.random.default_rng(4).normal(0, 3, (3, 2, 512)).astype(np.float32)


@pytest.mark.parametrize("size", [2**n for n in range(10)])
def test_a_rotation_is_its_own_inverse(size: int) -> None:
    found = rotate(NUMBERS, size)
    assert found.dtype == np.float32
    slow = [hadamard(row, size) for row in NUMBERS.reshape(-1, 512)]
    np.testing.assert_allclose(found.reshape(-1, 512), slow, atol=1e-5)
    np.testing.assert_allclose(rotate(found, size), NUMBERS, atol=1e-5)
    np.testing.assert_allclose(found[:1, :, :size], rotate(NUMBERS[:1, :, :size], size), atol=1e-5)


@pytest.mark.parametrize("size", [1, 32, 64, 128])
def test_the_matrix_is_orthonormal_and_symmetric(size: int) -> None:
    matrix = hadamard_matrix(size)
    np.testing.assert_allclose(matrix @ matrix, np.eye(size), atol=1e-6)
    assert (matrix == matrix.T).all()


def test_nothing_is_rotated_by_0() -> None:
    assert rotate(NUMBERS, 0) is NUMBERS
    assert rotate(NUMBERS[:0], 64).shape == (0, 2, 512)


@pytest.mark.parametrize("size", [64, 256])
def test_f16_survives_there_and_back(size: int) -> None:
    """A size with an integer root: what was f16 is f16 again, but for a few last bits."""
    halves = NUMBERS.astype(np.float16)
    again = rotate(rotate(halves.astype(np.float32), size), size).astype(np.float16)
    assert (again == halves).mean() > 0.99
    np.testing.assert_allclose(again.astype(np.float32), halves, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("size", [32, 64, 256])
def test_what_is_not_finite_spreads_over_its_group(size: int) -> None:
    numbers = NUMBERS.copy()
    numbers[0, 0, size : size + 2] = np.inf, -np.inf
    numbers[1, 0, size] = np.nan
    spread = ~np.isfinite(rotate(numbers, size))
    expected = np.zeros(spread.shape, np.bool_)
    expected[:2, 0, size : 2 * size] = True
    assert (spread == expected).all()
