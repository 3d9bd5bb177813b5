r"""The likelihood of a second-order release: normal noise on moments that the coefficients make.

With :math:`C = (F q)(F q)'` and m of `dpcausal_bayes.models.gram_laws`, the query of columns i and
j in arm t expects :math:`n\,\pi_t\,(C_{ij} + m_i m_j)`, and its noise is normal as released. One
operator goes from shares, means, factors and free rows to the log-density and its gradient, so that
a model's graph stays small whatever the number of covariates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as numba_dispatch

from dpcausal_bayes.models.gram_laws import GramForm, GramLaw, covariance

__all__ = ["expected", "gram_likelihood", "gram_logp"]

_DIMENSIONS = (1, 2, 3, 1, 1)  # of share, mean, factor, common and difference
_LOG_2PI = math.log(2 * math.pi)


def expected(form: GramForm, law: GramLaw) -> NDArray[np.float64]:
    """Return what the queries are without noise, in shares of the records, (..., Q), from arrays.

    Parameters
    ----------
    form : GramForm
    law : GramLaw
    """
    mean = np.concatenate([np.ones((*law.mean.shape[:-1], 1)), law.mean], axis=-1)
    second = mean[..., :, None] * mean[..., None, :]
    second[..., 1:, 1:] += covariance(form, law)
    cells = law.share[..., None] * second[..., form.pairs[:, 0], form.pairs[:, 1]]
    return cells.reshape(*cells.shape[:-2], -1)


def gram_logp(form: GramForm, law: GramLaw, released: Any, noise_sd: Any, records: Any) -> Any:
    """Log-density of a release given the law of the confidential moments: a scalar tensor.

    Parameters
    ----------
    form : GramForm
    law : GramLaw
        Tensors.
    released, noise_sd : tensor, shape (Q,)
        Queries and the standard deviations of their noise, in records.
    records : tensor
        n.
    """
    constants = (form.pairs, form.place, form.start)
    return _GramDensity()(*law, released, noise_sd, records, *constants)[0][0]


def gram_likelihood(form: GramForm, law: GramLaw, data: dict[str, Any]) -> Any:
    """Add the observed node ``release`` (query) to the model on the context stack.

    Parameters
    ----------
    form : GramForm
    law : GramLaw
        Tensors.
    data : dict
        ``released``, ``noise_sd`` and ``records``.
    """

    def logp(value: Any, *parameters: Any) -> Any:
        return gram_logp(form, GramLaw(*parameters[:5]), value, *parameters[5:])

    def random(*parameters: Any, rng: np.random.Generator, size: Any = None) -> Any:
        noise_sd, records = parameters[5:]
        return records * expected(form, GramLaw(*parameters[:5])) + rng.normal(0, noise_sd)

    return pm.CustomDist(
        "release",
        *law,
        pm.Data("noise_sd", data["noise_sd"], dims="query"),
        pm.Data("records", data["records"]),
        logp=logp,
        random=random,
        signature="(a),(a,p),(a,p,p),(z),(z),(q),()->(q)",
        observed=pm.Data("released", data["released"], dims="query"),
        dims="query",
    )


class _GramDensity(Op):
    """Log-density, and its gradients in the five parts of a law, as six outputs."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        real = [pt.as_tensor_variable(x, dtype="float64") for x in inputs[:8]]
        whole = [pt.as_tensor_variable(x, dtype="int64") for x in inputs[8:]]
        dimensions = (*_DIMENSIONS, 1, 1, 0, 2, 2, 1)
        for x, ndim in zip([*real, *whole], dimensions, strict=True):
            if x.type.ndim != ndim:
                raise ValueError(f"got {x.type.ndim} dimensions where {ndim} are wanted")
        gradients = [pt.tensor(dtype="float64", shape=x.type.shape) for x in real[:5]]
        return Apply(self, [*real, *whole], [pt.tensor(dtype="float64", shape=(1,)), *gradients])

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        for storage, value in zip(output_storage, _density_and_gradient(*inputs), strict=True):
            storage[0] = value

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        return [(1,), *shapes[:5]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True] * 6] * 5 + [[False] * 6] * 6

    def pullback(
        self, inputs: list[Variable], outputs: list[Variable], cotangents: list[Variable]
    ) -> list[Variable]:
        weight, *second = cotangents
        if not all(isinstance(x.type, DisconnectedType) for x in second):
            raise NotImplementedError("second derivatives of this density are not available")
        return [*(weight[0] * gradient for gradient in outputs[1:]), *[DisconnectedType()()] * 6]


@numba_dispatch.numba_njit
def _orthonormal_rows(free: Any, start: Any, rows: Any, overlap: Any, length: Any) -> None:
    """Make the rows of each block orthonormal, one after the other (Gram and Schmidt)."""
    p = len(start)
    for i in range(p):
        for a in range(i + 1):
            rows[i, a] = free[i, a]
        rows[i, i] = 1.0
        for j in range(start[i], i):
            total = 0.0
            for a in range(start[i]):
                total += free[i, a] * rows[j, a]
            overlap[i, j] = total
            for a in range(j + 1):
                rows[i, a] -= total * rows[j, a]
        total = 0.0
        for a in range(i + 1):
            total += rows[i, a] ** 2
        length[i] = np.sqrt(total)
        for a in range(i + 1):
            rows[i, a] /= length[i]


@numba_dispatch.numba_njit
def _pull_rows(
    free: Any, start: Any, rows: Any, overlap: Any, length: Any, d_rows: Any, d_free: Any
) -> None:
    """Turn gradients in orthonormal rows into gradients in the free ones."""
    p = len(start)
    for i in range(p - 1, -1, -1):
        along = 0.0
        for a in range(i + 1):
            along += d_rows[i, a] * rows[i, a]
        for a in range(i + 1):
            d_rows[i, a] = (d_rows[i, a] - along * rows[i, a]) / length[i]
        for a in range(start[i]):
            d_free[i, a] = d_rows[i, a]
        for j in range(start[i], i):
            total = 0.0
            for a in range(j + 1):
                total += d_rows[i, a] * rows[j, a]
            for a in range(start[i]):
                d_free[i, a] -= total * rows[j, a]
                d_rows[j, a] -= total * free[i, a]
            for a in range(j + 1):
                d_rows[j, a] -= overlap[i, j] * d_rows[i, a]


def _kernel(
    share: Any,
    mean: Any,
    factor: Any,
    common: Any,
    difference: Any,
    released: Any,
    noise_sd: Any,
    records: Any,
    pairs: Any,
    place: Any,
    start: Any,
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Compute log-density and gradients, with plain loops for numba."""
    p, asked = mean.shape[1], len(pairs)
    n = records.item()
    d_share, d_mean = np.zeros(2), np.zeros((2, p))
    d_factor = np.zeros((2, p, p))
    d_common, d_difference = np.zeros(len(common)), np.zeros(len(common))
    logp = np.full(1, -0.5 * _LOG_2PI * len(released))
    for t in range(2):
        side = 2.0 * t - 1.0
        free, rows, root = np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
        overlap, length = np.zeros((p, p)), np.zeros(p)
        for k in range(len(place)):
            free[place[k, 0], place[k, 1]] = common[k] + side * difference[k]
        _orthonormal_rows(free, start, rows, overlap, length)
        for i in range(p):
            for j in range(start[i], i + 1):
                for a in range(j + 1):
                    root[i, a] += factor[t, i, j] * rows[j, a]
        d_root = np.zeros((p, p))
        mass = n * share[t]
        for k in range(asked):
            i, j = pairs[k, 0] - 1, pairs[k, 1] - 1
            second = 1.0
            if i >= 0:
                second = mean[t, i] * mean[t, j]
                for a in range(min(i, j) + 1):
                    second += root[i, a] * root[j, a]
            elif j >= 0:
                second = mean[t, j]
            sd = noise_sd[t * asked + k]
            standardised = (released[t * asked + k] - mass * second) / sd
            logp[0] -= 0.5 * standardised**2 + np.log(sd)
            slope = standardised / sd
            d_share[t] += slope * n * second
            slope *= mass
            if i >= 0:
                d_mean[t, i] += slope * mean[t, j]
                d_mean[t, j] += slope * mean[t, i]
                for a in range(min(i, j) + 1):
                    d_root[i, a] += slope * root[j, a]
                    d_root[j, a] += slope * root[i, a]
            elif j >= 0:
                d_mean[t, j] += slope
        d_rows, d_free = np.zeros((p, p)), np.zeros((p, p))
        for i in range(p):
            for j in range(start[i], i + 1):
                for a in range(j + 1):
                    d_factor[t, i, j] += d_root[i, a] * rows[j, a]
                    d_rows[j, a] += factor[t, i, j] * d_root[i, a]
        _pull_rows(free, start, rows, overlap, length, d_rows, d_free)
        for k in range(len(place)):
            gradient = d_free[place[k, 0], place[k, 1]]
            d_common[k] += gradient
            d_difference[k] += side * gradient
    return logp, d_share, d_mean, d_factor, d_common, d_difference


_density_and_gradient = numba_dispatch.numba_njit(_kernel, final_function=True)


@numba_dispatch.register_funcify_default_op_cache_key(_GramDensity)
def _gram_density_in_numba(op: Op, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    version = 3  # of the kernel: part of the key of the compiled code's cache
    return numba_dispatch.numba_njit(_kernel), version
