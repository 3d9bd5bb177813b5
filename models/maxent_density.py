r"""The likelihood of a first-order release of several groups, as one operator with its gradient.

The released sums are :math:`N(\mu, \Sigma)` with, see `dpcausal_bayes.models.maxent_records`,

.. math::
    \mu = n m, \qquad
    \Sigma = \underbrace{D + n B}_{A} + E\,Q E' - \mu\mu'/n, \qquad Q = n\,\mathrm{diag}(p).

A has a block for each part and group, E one column for each part and outcome. With
:math:`P = (I + Q^{1/2} E' A^{-1} E\, Q^{1/2})^{-1}`, one matrix for each part, and
:math:`d = p^{1/2\prime} P p^{1/2}`, which takes the last term in without any cancellation,

.. math::
    \log|\Sigma| = \log|A| - \log|P| + \log d, \qquad
    \Sigma^{-1} = A^{-1} - A^{-1} E W E' A^{-1} + \frac{b b'}{n d}, \qquad
    W = Q^{1/2} P Q^{1/2}, \quad b = A^{-1} E (I - W E' A^{-1} E)\, n p.

All this is linear in the number of queries.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as numba_dispatch

from dpcausal_bayes.models.maxent_records import MaxentRecords

__all__ = ["maxent_logp"]

_DIMENSIONS = (2, 4, 1, 1, 0, 2, 1, 1)
_LOG_2PI = math.log(2 * math.pi)


def maxent_logp(
    records: MaxentRecords,
    cell: Any,
    level: Any,
    released: Any,
    noise_variance: Any,
    n: Any,
    *,
    noise_aware: bool = True,
) -> Any:
    """Log-density of a release given the law of a record: a scalar tensor.

    Parameters
    ----------
    records : MaxentRecords
    cell, level : tensor, shapes (A, Y) and (A, Y, G, L)
        The law by part.
    released, noise_variance : tensor, shape (Q,)
        In the order of ``records``.
    n : tensor, ()
        Number of records.
    noise_aware : bool
        False takes the release for exact. As its groups then contradict each other, each cell
        counts as a sum over records of its own: E and the products of shares are left out.
    """
    constants = (records.factor, records.square, records.sizes)
    return _MaxentDensity(noise_aware)(cell, level, released, noise_variance, n, *constants)[0]


class _MaxentDensity(Op):
    """Log-density, and its gradients in the two tables of a law, as three outputs."""

    __props__ = ("noise_aware",)

    def __init__(self, noise_aware: bool) -> None:
        self.noise_aware = noise_aware

    def make_node(self, *inputs: Any) -> Apply:
        kinds = ["float64"] * 7 + ["int64"]
        inputs = tuple(
            pt.as_tensor_variable(x, dtype=kind) for x, kind in zip(inputs, kinds, strict=True)
        )
        for x, ndim in zip(inputs, _DIMENSIONS, strict=True):
            if x.type.ndim != ndim:
                raise ValueError(f"got {x.type.ndim} dimensions where {ndim} are wanted")
        gradients = [pt.tensor(dtype="float64", shape=x.type.shape) for x in inputs[:2]]
        return Apply(self, inputs, [pt.scalar(dtype="float64"), *gradients])

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        found = _density_and_gradient(*inputs[:4], float(inputs[4]), *inputs[5:], self.noise_aware)
        for storage, value in zip(output_storage, found, strict=True):
            storage[0] = np.asarray(value)

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        return [(), *shapes[:2]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True] * 3] * 2 + [[False] * 3] * 6

    def pullback(
        self, inputs: list[Variable], outputs: list[Variable], cotangents: list[Variable]
    ) -> list[Variable]:
        weight, *second = cotangents
        if not all(isinstance(x.type, DisconnectedType) for x in second):
            raise NotImplementedError("second derivatives of this density are not available")
        return [*(weight * gradient for gradient in outputs[1:]), *[DisconnectedType()()] * 6]


@numba_dispatch.numba_njit
def _invert(matrix: Any, inverse: Any) -> float:
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
        for k in range(i):  # rows of the factor's inverse
            ratio = root[i, k] * back[i, i]
            for j in range(k + 1):
                back[i, j] -= ratio * back[k, j]
    for i in range(order):
        for j in range(order):
            inverse[i, j] = 0.0
    for k in range(order):
        for i in range(k + 1):
            for j in range(k + 1):
                inverse[i, j] += back[k, i] * back[k, j]
    return log_determinant


@numba_dispatch.numba_njit
def _multiply(left: Any, right: Any, product: Any) -> None:
    """Write left @ right, without BLAS and the seconds its compilation costs."""
    for i in range(left.shape[0]):
        for k in range(right.shape[1]):
            product[i, k] = 0.0
        for c in range(left.shape[1]):
            for k in range(right.shape[1]):
                product[i, k] += left[i, c] * right[c, k]


@numba_dispatch.numba_njit
def _fill(q: Any, level: Any, factor: Any, square: Any, sizes: Any, columns: Any) -> None:
    """Write E, one part's columns."""
    row = 0
    for g in range(len(sizes)):
        for i in range(sizes[g]):
            for j in range(len(factor)):
                for y in range(len(q)):
                    columns[row, y] = factor[j, y] * level[y, g, i]
                row += 1
    if len(square):
        for y in range(len(q)):
            columns[row, y] = square[y]


@numba_dispatch.numba_njit
def _block(q: Any, level: Any, factor: Any, size: int, joint: float, block: Any) -> None:
    """Add n B of one part and group; with joint = 0 the products of shares are left out."""
    n_factors = len(factor)
    for i in range(n_factors):
        for j in range(n_factors):
            for y in range(len(q)):
                weight = q[y] * factor[i, y] * factor[j, y]
                for k in range(size):
                    share = weight * level[y, k]
                    block[k * n_factors + i, k * n_factors + j] += share
                    for m in range(size):
                        block[k * n_factors + i, m * n_factors + j] -= joint * share * level[y, m]


@numba_dispatch.numba_njit
def _pull_block(
    q: Any, level: Any, factor: Any, size: int, joint: float, d_block: Any, d_q: Any, d_level: Any
) -> None:
    """Turn the gradient in a block into those in q = n p and in the shares."""
    n_factors = len(factor)
    for y in range(len(q)):
        for k in range(size):
            diagonal, across = 0.0, 0.0
            for i in range(n_factors):
                for j in range(n_factors):
                    weight = factor[i, y] * factor[j, y]
                    row = d_block[k * n_factors + i]
                    diagonal += weight * row[k * n_factors + j]
                    for m in range(size):
                        across += weight * row[m * n_factors + j] * level[y, m]
            d_q[y] += level[y, k] * (diagonal - joint * across)
            d_level[y, k] += q[y] * (diagonal - 2 * joint * across)


def _kernel(
    cell: Any,
    level: Any,
    released: Any,
    noise_variance: Any,
    n: float,
    factor: Any,
    square: Any,
    sizes: Any,
    noise_aware: bool,
) -> tuple[Any, Any, Any]:
    """Compute log-density and gradients, with plain loops for numba."""
    n_parts, n_points = cell.shape
    n_factors, n_groups = len(factor), len(sizes)
    size = n_factors * sizes.sum() + (1 if len(square) else 0)
    widest = max(n_factors * sizes.max(), 1)
    joint = 1.0 if noise_aware else 0.0
    columns, solved = np.zeros((2, n_parts, size, n_points))  # E and A^{-1} E
    inverse = np.zeros((n_parts, size, widest))  # blocks of A^{-1}, rows apart
    weights = np.zeros((n_parts, n_points, n_points))  # W
    reduced = np.zeros((n_parts, size, n_points))  # A^{-1} E (I - W E' A^{-1} E)
    mean, alpha, b = np.zeros((n_parts, size)), np.zeros((n_parts, size)), np.zeros((n_parts, size))
    gram, capacity, turned = np.zeros((3, n_points, n_points))
    log_density, d = -0.5 * _LOG_2PI * n_parts * size, 0.0
    for a in range(n_parts):
        q = n * cell[a]
        _fill(q, level[a], factor, square, sizes, columns[a])
        for i in range(size):
            for y in range(n_points):
                mean[a, i] += columns[a, i, y] * q[y]
        residual = released[a * size : (a + 1) * size] - mean[a]
        noise = noise_variance[a * size : (a + 1) * size]
        first = 0
        for g in range(n_groups + (1 if len(square) else 0)):
            width = n_factors * sizes[g] if g < n_groups else 1
            block = np.zeros((width, width))
            for i in range(width):
                block[i, i] = noise[first + i]
            if g < n_groups:
                _block(q, level[a, :, g], factor, sizes[g], joint, block)
            elif not noise_aware:
                for y in range(n_points):
                    block[0, 0] += q[y] * square[y] ** 2
            rows = slice(first, first + width)
            own = inverse[a, rows, :width]
            log_density -= 0.5 * _invert(block, own)
            _multiply(own, columns[a, rows], solved[a, rows])
            for i in range(width):
                for j in range(width):
                    alpha[a, first + i] += own[i, j] * residual[first + j]
            first += width
        if not noise_aware:
            continue
        _multiply(columns[a].T.copy(), solved[a], gram)
        root = np.sqrt(q)
        for y in range(n_points):
            for z in range(n_points):
                capacity[y, z] = root[y] * gram[y, z] * root[z] + (1.0 if y == z else 0.0)
        log_density -= 0.5 * _invert(capacity, turned)
        for y in range(n_points):
            for z in range(n_points):
                d += root[y] * turned[y, z] * root[z] / n
                weights[a, y, z] = root[y] * turned[y, z] * root[z]
        _multiply(weights[a], gram, capacity)
        for y in range(n_points):
            for z in range(n_points):
                capacity[y, z] = (1.0 if y == z else 0.0) - capacity[y, z]
        _multiply(solved[a], capacity, reduced[a])
        fitted = np.zeros(n_points)  # (I - W E' A^{-1} E)' E' A^{-1} r, by which alpha gains
        for i in range(size):
            for y in range(n_points):
                b[a, i] += reduced[a, i, y] * q[y]
                fitted[y] += solved[a, i, y] * residual[i]
        for i in range(size):
            for y in range(n_points):
                for z in range(n_points):
                    alpha[a, i] -= solved[a, i, y] * weights[a, y, z] * fitted[z]
    if noise_aware:
        log_density -= 0.5 * np.log(d)
        along = 0.0
        for a in range(n_parts):
            for i in range(size):
                along += b[a, i] * (released[a * size + i] - mean[a, i])
        for a in range(n_parts):
            for i in range(size):
                alpha[a, i] += b[a, i] * along / (n * d)
    for a in range(n_parts):
        for i in range(size):
            log_density -= 0.5 * alpha[a, i] * (released[a * size + i] - mean[a, i])
    d_cell, d_level = np.zeros(cell.shape), np.zeros(level.shape)
    alpha_mean = (alpha * mean).sum()
    across = np.zeros((size, n_points))
    for a in range(n_parts):
        q = n * cell[a]
        d_q = np.zeros(n_points)
        if noise_aware:
            _multiply(solved[a], weights[a], across)
        first = 0
        for g in range(n_groups + (1 if len(square) else 0)):
            width = n_factors * sizes[g] if g < n_groups else 1
            d_block = np.zeros((width, width))
            for i in range(width):
                for j in range(width):
                    total = alpha[a, first + i] * alpha[a, first + j] - inverse[a, first + i, j]
                    if noise_aware:
                        total -= b[a, first + i] * b[a, first + j] / (n * d)
                        for y in range(n_points):
                            total += across[first + i, y] * solved[a, first + j, y]
                    d_block[i, j] = 0.5 * total
            if g < n_groups:
                _pull_block(
                    q, level[a, :, g], factor, sizes[g], joint, d_block, d_q, d_level[a, :, g]
                )
            elif not noise_aware:
                for y in range(n_points):
                    d_q[y] += d_block[0, 0] * square[y] ** 2
            first += width
        d_columns = np.zeros((size, n_points))
        alpha_e, b_e = np.zeros(n_points), np.zeros(n_points)
        for i in range(size):
            for y in range(n_points):
                alpha_e[y] += alpha[a, i] * columns[a, i, y]
                b_e[y] += b[a, i] * columns[a, i, y]
        for i in range(size):
            pull = alpha[a, i]
            if noise_aware:
                pull -= (alpha[a, i] * alpha_mean - b[a, i] / d) / n
            for y in range(n_points):
                along = 0.0
                if noise_aware:
                    along = alpha[a, i] * alpha_e[y] - reduced[a, i, y] - b[a, i] * b_e[y] / (n * d)
                d_q[y] += columns[a, i, y] * (0.5 * along + pull)
                d_columns[i, y] = q[y] * (along + pull)
        row = 0
        for g in range(n_groups):
            for k in range(sizes[g]):
                for j in range(n_factors):
                    for y in range(n_points):
                        d_level[a, y, g, k] += factor[j, y] * d_columns[row, y]
                    row += 1
        for y in range(n_points):
            d_cell[a, y] = n * d_q[y]
    return np.asarray(log_density), d_cell, d_level


_density_and_gradient = numba_dispatch.numba_njit(_kernel, final_function=True)


@numba_dispatch.register_funcify_default_op_cache_key(_MaxentDensity)
def _maxent_density_in_numba(op: Op, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    version = 1  # of the kernel: part of the key of the compiled code's cache
    noise_aware = bool(op.noise_aware)
    kernel = numba_dispatch.numba_njit(_kernel)

    @numba_dispatch.numba_njit
    def maxent_density(
        cell: Any, level: Any, value: Any, noise: Any, n: Any, factor: Any, square: Any, sizes: Any
    ) -> Any:
        return kernel(cell, level, value, noise, n.item(), factor, square, sizes, noise_aware)

    return maxent_density, version
