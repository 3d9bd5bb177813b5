"""Small dense algebra as loops for numba: BLAS calls cost seconds to compile."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.link.numba.dispatch import basic as numba_dispatch

__all__ = ["dot", "invert", "multiply"]


@numba_dispatch.numba_njit
def dot(left: Any, right: Any) -> float:
    """Return the product of two vectors; right may have spare entries."""
    total = 0.0
    for i in range(len(left)):
        total += left[i] * right[i]
    return total


@numba_dispatch.numba_njit
def multiply(left: Any, right: Any, product: Any) -> None:
    """Write left @ right; left may have spare columns."""
    for i in range(len(product)):
        for k in range(right.shape[1]):
            product[i, k] = 0.0
        for c in range(len(right)):
            weight = left[i, c]
            for k in range(right.shape[1]):
                product[i, k] += weight * right[c, k]


@numba_dispatch.numba_njit
def invert(matrix: Any, inverse: Any) -> float:
    """Invert a positive definite matrix by its Cholesky factor; return its log-determinant."""
    order = len(matrix)
    root, back = np.zeros((order, order)), np.zeros((order, order))
    log_determinant = 0.0
    for i in range(order):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= root[i, k] * root[j, k]
            root[i, j] = np.sqrt(total) if i == j else total / root[j, j]
        log_determinant += 2 * np.log(root[i, i])
        back[i, i] = 1 / root[i, i]
        for k in range(i):  # row i of the factor's inverse
            ratio = root[i, k] * back[i, i]
            for j in range(k + 1):
                back[i, j] -= ratio * back[k, j]
    for i in range(order):
        for j in range(order):
            inverse[i, j] = 0.0
    for k in range(order):
        for i in range(k + 1):
            weight = back[k, i]
            for j in range(k + 1):
                inverse[i, j] += weight * back[k, j]
    return log_determinant
