r"""The normal law of a first-order release of several groups: log-density and gradient.

The released sums are :math:`N(\mu, \Sigma)` with, see `dpcausal_bayes.models.maxent_records`,

.. math::
    \mu = n m, \qquad
    \Sigma = \underbrace{D + n B}_{A} + E\,Q E' - \mu\mu'/n, \qquad Q = n\,\mathrm{diag}(p).

A has a block for each part and group, E one column for each part and outcome. With
:math:`P = (I + Q^{1/2} E' A^{-1} E\, Q^{1/2})^{-1}`, one matrix for each part, and
:math:`d = p^{1/2\prime} P p^{1/2}`, which takes the last term in without any cancellation,

.. math::
    \log|\Sigma| = \log|A| - \log|P| + \log d, \qquad
    \Sigma^{-1} = A^{-1} - A^{-1} E W E' A^{-1} + \frac{b b'}{n d}, \\
    W = Q^{1/2} P Q^{1/2}, \qquad F = A^{-1} E (I - W E' A^{-1} E), \qquad b = n F p.

All this is linear in the number of queries.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pytensor.link.numba.dispatch import basic as numba_dispatch

from dpcausal_bayes.models.loops import dot, invert, multiply

__all__ = ["normal_density"]

_LOG_2PI = math.log(2 * math.pi)


@numba_dispatch.numba_njit
def normal_density(
    cell: Any, level: Any, released: Any, noise: Any, n: float, factor: Any, square: Any,
    sizes: Any, aware: bool, d_cell: Any, d_level: Any,
) -> float:  # fmt: skip
    """Return the log-density of a release, and write its gradients in the law's two tables.

    Parameters
    ----------
    cell, d_cell : ndarray, shape (A, Y)
    level, d_level : ndarray, shape (A, G, L, Y)
    released, noise : ndarray, shape (Q,)
        The release, and the diagonal of D.
    n : float
    factor, square, sizes : ndarray
        Of `MaxentRecords`.
    aware : bool
        False leaves E and the products of shares out.
    """
    n_parts, n_points = cell.shape
    size = len(released) // n_parts
    widest = max(len(factor) * sizes.max(), 1)
    columns = np.zeros((n_parts, size, n_points))  # E
    solved, reduced = np.zeros(columns.shape), np.zeros(columns.shape)  # A^{-1} E, F
    inverse = np.zeros((n_parts, size, widest))  # the blocks of A^{-1}, one below another
    weights = np.zeros((n_parts, n_points, n_points))  # W
    mean, residual = np.zeros((n_parts, size)), np.zeros((n_parts, size))
    alpha, b, q = np.zeros((n_parts, size)), np.zeros((n_parts, size)), np.zeros(cell.shape)
    log_density, d = -0.5 * _LOG_2PI * n_parts * size, 0.0
    for a in range(n_parts):
        for y in range(n_points):
            q[a, y] = n * cell[a, y]
        _fill(level[a], factor, square, sizes, columns[a])
        for i in range(size):
            mean[a, i] = dot(columns[a, i], q[a])
            residual[a, i] = released[a * size + i] - mean[a, i]
        log_density -= 0.5 * _blocks(
            q[a], level[a], columns[a], residual[a], noise[a * size : (a + 1) * size], factor,
            square, sizes, aware, inverse[a], solved[a], alpha[a],
        )  # fmt: skip
        if aware:
            log_p, part_d = _low_rank(
                q[a], n, columns[a], solved[a], residual[a], weights[a], reduced[a], alpha[a], b[a]
            )
            log_density += 0.5 * log_p
            d += part_d
    total = 0.0
    if aware:
        log_density -= 0.5 * np.log(d)
        for a in range(n_parts):
            total += dot(b[a], residual[a]) / (n * d)
    along = 0.0
    for a in range(n_parts):
        for i in range(size):
            alpha[a, i] += total * b[a, i]
        along += dot(alpha[a], mean[a])
        log_density -= 0.5 * dot(alpha[a], residual[a])
    for a in range(n_parts):
        _pull(
            q[a], level[a], n, factor, square, sizes, aware, columns[a], solved[a], reduced[a],
            inverse[a], weights[a], alpha[a], b[a], along, d, d_cell[a], d_level[a],
        )  # fmt: skip
    return log_density


@numba_dispatch.numba_njit
def _fill(level: Any, factor: Any, square: Any, sizes: Any, columns: Any) -> None:
    """Write E, one part's columns."""
    row = 0
    for g in range(len(sizes)):
        for k in range(sizes[g]):
            for j in range(len(factor)):
                for y in range(columns.shape[1]):
                    columns[row, y] = factor[j, y] * level[g, k, y]
                row += 1
    for y in range(len(square)):
        columns[row, y] = square[y]


@numba_dispatch.numba_njit
def _blocks(
    q: Any, level: Any, columns: Any, residual: Any, noise: Any, factor: Any, square: Any,
    sizes: Any, aware: bool, inverse: Any, solved: Any, alpha: Any,
) -> float:  # fmt: skip
    """Invert a part's blocks of A, solve with them; return the log-determinant."""
    first, log_determinant = 0, 0.0
    for g in range(len(sizes) + (1 if len(square) else 0)):
        width = len(factor) * sizes[g] if g < len(sizes) else 1
        block = np.zeros((width, width))
        if g < len(sizes):
            _fill_block(q, level[g], factor, sizes[g], aware, columns[first : first + width], block)
        elif not aware:
            for y in range(len(q)):
                block[0, 0] += q[y] * square[y] ** 2
        for i in range(width):
            block[i, i] += noise[first + i]
        own = inverse[first : first + width]
        log_determinant += invert(block, own)
        multiply(own, columns[first : first + width], solved[first : first + width])
        for i in range(width):
            alpha[first + i] = dot(residual[first : first + width], own[i])
        first += width
    return log_determinant


@numba_dispatch.numba_njit
def _fill_block(
    q: Any, level: Any, factor: Any, size: int, aware: bool, columns: Any, block: Any
) -> None:
    """Write n B of one part and group."""
    n_factors = len(factor)
    for k in range(size):
        for i in range(n_factors):
            row = k * n_factors + i
            for j in range(n_factors):
                for y in range(len(q)):
                    block[row, k * n_factors + j] += (
                        q[y] * factor[i, y] * columns[k * n_factors + j, y]
                    )
    if aware:
        for i in range(len(block)):
            for j in range(i + 1):
                total = 0.0
                for y in range(len(q)):
                    total += q[y] * columns[i, y] * columns[j, y]
                block[i, j] -= total
                if i != j:
                    block[j, i] -= total


@numba_dispatch.numba_njit
def _low_rank(
    q: Any, n: float, columns: Any, solved: Any, residual: Any, weights: Any, reduced: Any,
    alpha: Any, b: Any,
) -> Any:  # fmt: skip
    """Take one part's E Q E' in: write W, F, b, update alpha; return log|P| and its part of d."""
    size, n_points = columns.shape
    gram, capacity = np.zeros((n_points, n_points)), np.zeros((n_points, n_points))
    turned, root = np.zeros((n_points, n_points)), np.zeros(n_points)
    for i in range(size):
        for y in range(n_points):
            weight = columns[i, y]
            for z in range(n_points):
                gram[y, z] += weight * solved[i, z]
    for y in range(n_points):
        root[y] = np.sqrt(q[y])
    for y in range(n_points):
        for z in range(n_points):
            capacity[y, z] = root[y] * gram[y, z] * root[z]
        capacity[y, y] += 1.0
    log_p, d = -invert(capacity, turned), 0.0
    for y in range(n_points):
        for z in range(n_points):
            weights[y, z] = root[y] * turned[y, z] * root[z]
            d += weights[y, z] / n
    multiply(weights, gram, capacity)
    for y in range(n_points):
        for z in range(n_points):
            capacity[y, z] = -capacity[y, z]
        capacity[y, y] += 1.0
    multiply(solved, capacity, reduced)
    fitted = np.zeros(n_points)  # E' A^{-1} r
    for i in range(size):
        b[i] = dot(reduced[i], q)
        for y in range(n_points):
            fitted[y] += solved[i, y] * residual[i]
    pulled = np.zeros(n_points)
    for y in range(n_points):
        pulled[y] = dot(weights[y], fitted)
    for i in range(size):
        alpha[i] -= dot(solved[i], pulled)
    return log_p, d


@numba_dispatch.numba_njit
def _pull(
    q: Any, level: Any, n: float, factor: Any, square: Any, sizes: Any, aware: bool, columns: Any,
    solved: Any, reduced: Any, inverse: Any, weights: Any, alpha: Any, b: Any,
    along: float, d: float, d_cell: Any, d_level: Any,
) -> None:  # fmt: skip
    r"""Write one part's gradients, from R = (alpha alpha' - Sigma^{-1}) / 2.

    A's block takes R's, a column e of E takes 2 q R e, mu takes alpha - 2 R mu / n; and
    :math:`\Sigma^{-1} E = F + b b' E / (n d)`, :math:`\Sigma^{-1} \mu = b / d`.
    """
    size, n_points = columns.shape
    n_factors = len(factor)
    d_q, d_columns = np.zeros(n_points), np.zeros((size, n_points))
    alpha_e, b_e = np.zeros(n_points), np.zeros(n_points)
    for i in range(size):
        for y in range(n_points):
            alpha_e[y] += alpha[i] * columns[i, y]
            b_e[y] += b[i] * columns[i, y]
    for i in range(size):
        slope = alpha[i]
        if aware:
            slope -= (alpha[i] * along - b[i] / d) / n
        for y in range(n_points):
            double = 0.0
            if aware:
                double = alpha[i] * alpha_e[y] - reduced[i, y] - b[i] * b_e[y] / (n * d)
            d_q[y] += columns[i, y] * (0.5 * double + slope)
            d_columns[i, y] = q[y] * (double + slope)
    first, across = 0, np.zeros((size, n_points))
    if aware:
        multiply(solved, weights, across)
    for g in range(len(sizes) + (1 if len(square) else 0)):
        width = n_factors * sizes[g] if g < len(sizes) else 1
        pull = np.zeros((width, width))
        for i in range(width):
            for j in range(i + 1):
                total = alpha[first + i] * alpha[first + j] - inverse[first + i, j]
                if aware:
                    total += dot(across[first + i], solved[first + j])
                    total -= b[first + i] * b[first + j] / (n * d)
                pull[i, j] = pull[j, i] = 0.5 * total
        if g < len(sizes):
            _pull_block(
                q, level[g], factor, sizes[g], aware, columns[first : first + width], pull, d_q,
                d_columns[first : first + width], d_level[g],
            )  # fmt: skip
        elif not aware:
            for y in range(n_points):
                d_q[y] += pull[0, 0] * square[y] ** 2
        first += width
    for y in range(n_points):
        d_cell[y] = n * d_q[y]


@numba_dispatch.numba_njit
def _pull_block(
    q: Any, level: Any, factor: Any, size: int, aware: bool, columns: Any, pull: Any, d_q: Any,
    d_columns: Any, d_level: Any,
) -> None:  # fmt: skip
    """Write the gradient in a group's shares, from those in its block and its columns."""
    n_factors, n_points = len(factor), len(q)
    if aware:
        for i in range(len(columns)):
            turned = np.zeros(n_points)  # row i of the block's gradient times the columns
            for j in range(len(columns)):
                for y in range(n_points):
                    turned[y] += pull[i, j] * columns[j, y]
            for y in range(n_points):
                d_q[y] -= columns[i, y] * turned[y]
                d_columns[i, y] -= 2 * q[y] * turned[y]
    for k in range(size):
        for y in range(n_points):
            d_level[k, y] = 0.0
        for i in range(n_factors):
            row = k * n_factors + i
            for y in range(n_points):
                d_level[k, y] += factor[i, y] * d_columns[row, y]
            for j in range(n_factors):
                for y in range(n_points):
                    square = pull[row, k * n_factors + j] * factor[i, y] * factor[j, y]
                    d_level[k, y] += q[y] * square
                    d_q[y] += level[k, y] * square
