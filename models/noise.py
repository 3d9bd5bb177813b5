r"""The likelihood of a noisy average: its log-density, and the average given parameters and noise.

A release is an average over records plus independent noise. Given the population's parameters the
average is nearly normal, the noise is normal with known variance, so the released vector x has

.. math:: x \sim N(m, \Sigma), \qquad \Sigma = B + U S U',

B block-diagonal with blocks of order b (1, 2 or 3) and the noise variance on its diagonal, U of few
columns, S a diagonal of signs. Woodbury's identity and the determinant lemma give the density in
O(p). One operator computes it with its gradient, so that a model's graph, and the time that it
takes to compile, stay small.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as numba_dispatch

__all__ = ["density_and_gradient", "low_rank_normal_draw", "low_rank_normal_logp"]

_LOG_2PI = math.log(2 * math.pi)


def low_rank_normal_logp(residual: Any, blocks: Any, factors: Any, signs: Any) -> Any:
    r"""Log-density of J independent normal vectors with block-plus-low-rank covariance.

    .. math::
        \log N(r; 0, \Sigma), \qquad
        \Sigma^{-1} = B^{-1} - B^{-1} U (S + U' B^{-1} U)^{-1} U' B^{-1}, \qquad
        |\Sigma| = |B|\,|S + U' B^{-1} U|\,|S|

    Parameters
    ----------
    residual : tensor, shape (J, p)
        Released minus expected.
    blocks : tensor, shape (J, p / b, b, b)
        Positive definite blocks of B, noise included.
    factors : tensor, shape (J, p, r)
        U. Columns of sign +1 come before columns of sign -1.
    signs : array, shape (r,)
        The diagonal of S, +1 or -1: constants.

    Returns
    -------
    tensor, shape (J,)
        Minus infinity or NaN where :math:`\Sigma` is not positive definite.

    References
    ----------
    Woodbury's identity and the matrix determinant lemma.

    Examples
    --------
    >>> import numpy as np
    >>> value = low_rank_normal_logp(
    ...     np.array([[1.0, 0.0]]), np.ones((1, 2, 1, 1)), np.zeros((1, 2, 1)), np.ones(1)
    ... )
    >>> value.eval().round(3)
    array([-2.338])
    """
    return _LowRankNormal()(residual, blocks, factors, signs)[0]


def low_rank_normal_draw(
    prior_draw: NDArray[np.float64],
    noise_draw: NDArray[np.float64],
    observed: NDArray[np.float64],
    blocks: NDArray[np.float64],
    factors: NDArray[np.float64],
    signs: NDArray[np.float64],
    noise_blocks: NDArray[np.float64],
    noise_factors: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    r"""Draw the confidential average given parameters and release, exactly.

    With :math:`a_0` a draw of the average and :math:`e_0` of the noise, both before seeing the
    release x,

    .. math:: a = a_0 + C (C + D)^{-1} (x - a_0 - e_0), \qquad C = B + U S U',

    has the law of the average given x when both are normal (Matheron's rule): mean
    :math:`m + C (C + D)^{-1}(x - m)` and the matching covariance.

    Parameters
    ----------
    prior_draw, noise_draw, observed : ndarray, shape (J, p)
        :math:`a_0`, :math:`e_0` and x.
    blocks, noise_blocks : ndarray, shape (J, p / b, b, b)
        B, and D in blocks of the same order.
    factors, signs : ndarray, shapes (J, p, r) and (r,)
        U and the diagonal of S.
    noise_factors : ndarray, shape (p, q), optional
        F, where the noise has covariance D - F F'.

    Returns
    -------
    ndarray, shape (J, p)

    References
    ----------
    Doucet (2010), "A note on efficient conditional simulation of Gaussian distributions".

    Examples
    --------
    >>> import numpy as np
    >>> one, block = np.ones((1, 1)), np.ones((1, 1, 1, 1))
    >>> low_rank_normal_draw(
    ...     0 * one, 0 * one, 2 * one, block, np.zeros((1, 1, 1)), np.ones(1), block
    ... )
    array([[1.]])
    """
    n, groups, order, _ = blocks.shape
    noisy = blocks + noise_blocks
    extra = np.zeros((factors.shape[1], 0)) if noise_factors is None else noise_factors
    all_factors = np.concatenate([factors, np.broadcast_to(extra, (n, *extra.shape))], axis=-1)
    all_signs = np.concatenate([signs, -np.ones(extra.shape[1])])
    # the gradient of the log-density at r is -Sigma^{-1} r
    residual = observed - prior_draw - noise_draw
    solved = -density_and_gradient(residual, noisy, all_factors, all_signs)[1]
    weighted = np.einsum("jpr,jp->jr", factors, solved) * signs
    within = np.einsum("jgab,jgb->jga", blocks, solved.reshape(n, groups, order))
    return prior_draw + within.reshape(n, -1) + np.einsum("jpr,jr->jp", factors, weighted)


class _LowRankNormal(Op):
    """Log-density, and its gradients in residual, blocks and factors, as four outputs."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        inputs = tuple(pt.as_tensor_variable(x, dtype="float64") for x in inputs)
        for x, ndim in zip(inputs, (2, 4, 3, 1), strict=True):
            if x.type.ndim != ndim:
                raise ValueError(f"got {x.type.ndim} dimensions where {ndim} are wanted")
        gradients = [pt.tensor(dtype="float64", shape=x.type.shape) for x in inputs[:3]]
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=(None,)), *gradients])

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        for storage, value in zip(output_storage, density_and_gradient(*inputs), strict=True):
            storage[0] = value

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        return [shapes[0][:1], *shapes[:3]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True] * 4] * 3 + [[False] * 4]

    def pullback(
        self, inputs: list[Variable], outputs: list[Variable], cotangents: list[Variable]
    ) -> list[Variable]:
        weight, *second = cotangents
        if not all(isinstance(x.type, DisconnectedType) for x in second):
            raise NotImplementedError("second derivatives of the low-rank normal are not available")
        padded = (weight[:, None], weight[:, None, None, None], weight[:, None, None])
        return [
            *(w * gradient for w, gradient in zip(padded, outputs[1:], strict=True)),
            DisconnectedType()(),
        ]


@numba_dispatch.numba_njit
def _invert_block(block: Any, inverse: Any) -> float:
    """Invert a positive definite block by its Cholesky factor; return its log-determinant."""
    order = len(block)
    root = np.zeros((order, order))
    root_inverse = np.zeros((order, order))
    log_determinant = 0.0
    for a in range(order):
        for c in range(a + 1):
            total = block[a, c]
            for k in range(c):
                total -= root[a, k] * root[c, k]
            root[a, c] = np.sqrt(total) if a == c else total / root[c, c]
        log_determinant += 2 * np.log(root[a, a])
    for c in range(order):
        for a in range(c, order):
            total = 1.0 if a == c else 0.0
            for k in range(c, a):
                total -= root[a, k] * root_inverse[k, c]
            root_inverse[a, c] = total / root[a, a]
    for a in range(order):
        for c in range(order):
            inverse[a, c] = 0.0
            for k in range(max(a, c), order):
                inverse[a, c] += root_inverse[k, a] * root_inverse[k, c]
    return log_determinant


@numba_dispatch.numba_njit
def _invert_capacity(capacity: Any, signs: Any) -> float:
    """Invert S + U'V in place by Gauss-Jordan; return log(|S + U'V| |S|).

    Needs no pivoting: with the positive columns first, each pivot has the sign of its column.
    """
    rank = len(signs)
    log_determinant = 0.0
    for m in range(rank):
        pivot = capacity[m, m]
        log_determinant += np.log(pivot * signs[m])
        capacity[m, m] = 1.0
        for k in range(rank):
            capacity[m, k] /= pivot
        for k in range(rank):
            if k != m:
                ratio = capacity[k, m]
                capacity[k, m] = 0.0
                for c in range(rank):
                    capacity[k, c] -= ratio * capacity[m, c]
    return log_determinant


@numba_dispatch.numba_njit
def _multiply(left: Any, right: Any, product: Any) -> None:
    """Write left @ right: small matrices, without BLAS and the seconds its compilation costs."""
    for i in range(left.shape[0]):
        for k in range(right.shape[1]):
            product[i, k] = 0.0
            for c in range(left.shape[1]):
                product[i, k] += left[i, c] * right[c, k]


def _kernel(residual: Any, blocks: Any, factors: Any, signs: Any) -> tuple[Any, Any, Any, Any]:
    """Compute log-density and gradients, with plain loops for numba.

    With alpha = Sigma^{-1} r: the gradient in r is -alpha, in B the blocks of
    (alpha alpha' - Sigma^{-1}) / 2, in U (alpha alpha' - Sigma^{-1}) U S.
    """
    n, p = residual.shape
    groups, order, rank = blocks.shape[1], blocks.shape[2], factors.shape[2]
    logp = np.empty(n)
    d_residual, d_factors = np.empty((n, p)), np.empty((n, p, rank))
    d_blocks = np.empty((n, groups, order, order))
    inverse = np.empty((groups, order, order))  # of B
    solved, solved_factors = np.empty((p, 1)), np.empty((p, rank))  # B^{-1} r and V = B^{-1} U
    projected, fitted = np.empty((rank, 1)), np.empty((p, 1))
    capacity, update = np.empty((rank, rank)), np.empty((p, rank))  # update: V (S + U'V)^{-1}
    for j in range(n):
        r, u = residual[j].reshape(p, 1), factors[j]
        logp[j] = -0.5 * p * _LOG_2PI
        for g in range(groups):
            logp[j] -= 0.5 * _invert_block(blocks[j, g], inverse[g])
            rows = slice(g * order, (g + 1) * order)
            _multiply(inverse[g], r[rows], solved[rows])
            _multiply(inverse[g], u[rows], solved_factors[rows])
        _multiply(u.T, solved_factors, capacity)
        for m in range(rank):
            capacity[m, m] += signs[m]
        logp[j] -= 0.5 * _invert_capacity(capacity, signs)
        _multiply(solved_factors, capacity, update)
        _multiply(u.T, solved, projected)
        _multiply(update, projected, fitted)
        for i in range(p):
            d_residual[j, i] = fitted[i, 0] - solved[i, 0]
            logp[j] += 0.5 * r[i, 0] * d_residual[j, i]
        _multiply(u.T, d_residual[j].reshape(p, 1), projected)  # now -U' alpha
        for i in range(p):
            for m in range(rank):
                d_factors[j, i, m] = d_residual[j, i] * projected[m, 0] * signs[m] - update[i, m]
        for g in range(groups):
            for a in range(order):
                for c in range(order):
                    i, k = g * order + a, g * order + c
                    total = d_residual[j, i] * d_residual[j, k] - inverse[g, a, c]
                    for m in range(rank):
                        total += update[i, m] * solved_factors[k, m]
                    d_blocks[j, g, a, c] = 0.5 * total
    return logp, d_residual, d_blocks, d_factors


density_and_gradient = numba_dispatch.numba_njit(_kernel, final_function=True)


@numba_dispatch.register_funcify_default_op_cache_key(_LowRankNormal)
def _low_rank_normal_in_numba(op: Op, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    version = 1  # of the kernel: part of the key of the compiled code's cache
    return numba_dispatch.numba_njit(_kernel), version
