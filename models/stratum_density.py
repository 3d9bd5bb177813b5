r"""The likelihood of bounded moments as one operator, with its gradient.

`record_moments` says what is computed: mean, blocks and factors of a record's contribution. Put
into a model's graph, that and its derivative are some two hundred nodes, each compiled apart. Here
plain loops do both, and call the density of `dpcausal_bayes.models.noise`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as numba_dispatch

from dpcausal_bayes.models.noise import density_and_gradient

__all__ = ["bounded_moments_logp"]


def bounded_moments_logp(
    share: Any,
    mean: Any,
    dispersion: Any,
    value: Any,
    records: Any,
    noise: Any,
    redundancy: Any,
    centred: bool,
) -> Any:
    r"""Log-density of noisy moments of a bounded outcome.

    .. math:: \log N\big(\hat a;\; n m,\; n C + D - U U'\big)

    Parameters
    ----------
    share, mean : tensor, shape (2, S)
    dispersion : tensor, shape (2,)
    value : tensor, shape (4 S + 2,)
        :math:`\hat a`, ordered as `record_moments` does.
    records : tensor, ()
        n.
    noise : tensor, shape (2 S + 1, 2, 2)
        D, in blocks.
    redundancy : array, shape (4 S + 2, q)
        U, constants.
    centred : bool
        False leaves the outer product of the mean out of C.

    Returns
    -------
    tensor, ()
    """
    inputs = (share, mean, dispersion, noise, value, records, redundancy)
    return _BoundedMoments(centred)(*inputs)[0]


class _BoundedMoments(Op):
    """Log-density, and its gradients in share, mean, dispersion and noise, as five outputs."""

    __props__ = ("centred",)

    def __init__(self, centred: bool) -> None:
        self.centred = centred

    def make_node(self, *inputs: Any) -> Apply:
        inputs = tuple(pt.as_tensor_variable(x, dtype="float64") for x in inputs)
        for x, ndim in zip(inputs, (2, 2, 1, 3, 1, 0, 2), strict=True):
            if x.type.ndim != ndim:
                raise ValueError(f"got {x.type.ndim} dimensions where {ndim} are wanted")
        gradients = [pt.tensor(dtype="float64", shape=x.type.shape) for x in inputs[:4]]
        return Apply(self, inputs, [pt.scalar(dtype="float64"), *gradients])

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        found = _compiled(*inputs[:5], float(inputs[5]), inputs[6], self.centred)
        for storage, value in zip(output_storage, found, strict=True):
            storage[0] = np.asarray(value)

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        return [(), *shapes[:4]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True] * 5] * 4 + [[False] * 5] * 3

    def pullback(
        self, inputs: list[Variable], outputs: list[Variable], cotangents: list[Variable]
    ) -> list[Variable]:
        weight, *second = cotangents
        if not all(isinstance(x.type, DisconnectedType) for x in second):
            raise NotImplementedError("second derivatives of this density are not available")
        gradients = [weight * gradient for gradient in outputs[1:]]
        return [*gradients, *(DisconnectedType()() for _ in inputs[4:])]


@numba_dispatch.numba_njit
def _outcome_moments(mean: float, r: float) -> Any:
    """Return E y^2, y^3, y^4 of a beta law on [-1, 1] with their derivatives: (value, mean, r)."""
    m, free = (1 + mean) / 2, 1 - r
    x = np.zeros((5, 3))  # E x^k and its derivatives in the mean and in r
    x[1, 0], x[1, 1] = m, 0.5
    for k in range(1, 4):
        below = free + k * r
        ratio = (m * free + k * r) / below
        x[k + 1, 0] = x[k, 0] * ratio
        x[k + 1, 1] = x[k, 1] * ratio + x[k, 0] * 0.5 * free / below
        x[k + 1, 2] = x[k, 2] * ratio + x[k, 0] * (k - m - ratio * (k - 1)) / below
    y2 = 4 * x[2] - 4 * x[1]
    y3 = 8 * x[3] - 12 * x[2] + 6 * x[1]
    y4 = 16 * x[4] - 32 * x[3] + 24 * x[2] - 8 * x[1]
    y2[0] += 1
    y3[0] -= 1
    y4[0] += 1
    return y2, y3, y4


def _kernel(
    share: Any,
    mean: Any,
    dispersion: Any,
    noise: Any,
    value: Any,
    n: Any,
    redundancy: Any,
    centred: bool,
) -> tuple[Any, Any, Any, Any, Any]:
    """Compute log-density and gradients, with plain loops for numba."""
    n_strata, n_cells = share.shape[1], 2 * share.shape[1]
    p, rank = 4 * n_strata + 2, 5 if centred else 4
    root, half = np.sqrt(n), np.sqrt(0.5)
    expected, cross = np.zeros(p), np.zeros((p, 2))
    blocks = noise.copy().reshape(1, n_cells + 1, 2, 2)
    factors = np.zeros((1, p, rank + redundancy.shape[1]))
    signs = -np.ones(factors.shape[2])
    signs[:2] = 1.0
    powers = np.empty((n_cells, 3, 3))
    for t in range(2):
        for s in range(n_strata):
            j = t * n_strata + s
            pi, mu, i = share[t, s], mean[t, s], 2 * j
            y2, y3, y4 = _outcome_moments(mu, dispersion[t])
            powers[j, 0], powers[j, 1], powers[j, 2] = y2, y3, y4
            expected[i], expected[i + 1] = pi, pi * mu
            expected[p - 2 + t] += pi * (y2[0] - 0.5)
            cross[i, t], cross[i + 1, t] = pi * (y2[0] - 0.5), pi * (y3[0] - 0.5 * mu)
            blocks[0, j, 0, 0] += n * pi
            blocks[0, j, 0, 1] += n * pi * mu
            blocks[0, j, 1, 0] += n * pi * mu
            blocks[0, j, 1, 1] += n * pi * y2[0]
            blocks[0, n_cells, t, t] += n * pi * (y4[0] - y2[0] + 0.25)
    for i in range(p):
        for t in range(2):
            unit = 1.0 if i == p - 2 + t else 0.0
            factors[0, i, t] = root * half * (cross[i, t] + unit)
            factors[0, i, 2 + t] = root * half * (cross[i, t] - unit)
        if centred:
            factors[0, i, 4] = root * expected[i]
        for k in range(redundancy.shape[1]):
            factors[0, i, rank + k] = redundancy[i, k]
    residual = (value - n * expected).reshape(1, p)
    logp, d_residual, d_blocks, d_factors = density_and_gradient(residual, blocks, factors, signs)
    d_expected = -n * d_residual[0]
    if centred:
        d_expected += root * d_factors[0, :, 4]
    d_share, d_mean = np.empty(share.shape), np.empty(mean.shape)
    d_dispersion = np.zeros(2)
    for t in range(2):
        d_square, d_fourth = d_expected[p - 2 + t], n * d_blocks[0, n_cells, t, t]
        for s in range(n_strata):
            j = t * n_strata + s
            pi, mu, i = share[t, s], mean[t, s], 2 * j
            y2, y3, y4 = powers[j, 0], powers[j, 1], powers[j, 2]
            d_block = d_blocks[0, j]
            d_y = d_expected[i + 1] + n * (d_block[0, 1] + d_block[1, 0])
            d_w = d_square + root * half * (d_factors[0, i, t] + d_factors[0, i, 2 + t])
            d_yw = root * half * (d_factors[0, i + 1, t] + d_factors[0, i + 1, 2 + t])
            d_y2, d_y4 = pi * (n * d_block[1, 1] + d_w - d_fourth), pi * d_fourth
            d_share[t, s] = (
                d_expected[i]
                + n * d_block[0, 0]
                + mu * d_y
                + y2[0] * n * d_block[1, 1]
                + (y2[0] - 0.5) * d_w
                + (y3[0] - 0.5 * mu) * d_yw
                + (y4[0] - y2[0] + 0.25) * d_fourth
            )
            d_mean[t, s] = pi * (d_y - 0.5 * d_yw)
            d_mean[t, s] += d_y2 * y2[1] + pi * d_yw * y3[1] + d_y4 * y4[1]
            d_dispersion[t] += d_y2 * y2[2] + pi * d_yw * y3[2] + d_y4 * y4[2]
    return logp[0], d_share, d_mean, d_dispersion, d_blocks[0]


_compiled = numba_dispatch.numba_njit(_kernel, final_function=True)


@numba_dispatch.register_funcify_default_op_cache_key(_BoundedMoments)
def _bounded_moments_in_numba(op: Op, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    version = 2  # of the kernel: part of the key of the compiled code's cache
    centred = bool(op.centred)
    kernel = numba_dispatch.numba_njit(_kernel)

    @numba_dispatch.numba_njit
    def bounded_moments(
        share: Any, mean: Any, r: Any, noise: Any, value: Any, n: Any, redundancy: Any
    ) -> Any:
        logp, d_share, d_mean, d_r, d_noise = kernel(
            share, mean, r, noise, value, n.item(), redundancy, centred
        )
        return np.asarray(logp), d_share, d_mean, d_r, d_noise

    return bounded_moments, version
