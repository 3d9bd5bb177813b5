"""The likelihood of a first-order release as one operator of the coefficients, with its gradient.

From coefficients to the law of a record (`dpcausal_bayes.models.maxent_tables`), from there to the
normal density of the release (`dpcausal_bayes.models.maxent_normal`), and back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as numba_dispatch

from dpcausal_bayes.models.maxent_laws import MaxentForm
from dpcausal_bayes.models.maxent_normal import normal_density
from dpcausal_bayes.models.maxent_records import MaxentRecords
from dpcausal_bayes.models.maxent_tables import forward, pull_back

__all__ = ["maxent_logp"]

_KINDS = (*["float64"] * 8, "int64")
_DIMENSIONS = (1, 1, 1, 0, 1, 3, 2, 1, 1)


def maxent_logp(
    form: MaxentForm,
    records: MaxentRecords,
    coefficient: Any,
    released: Any,
    noise_variance: Any,
    n: Any,
    *,
    noise_aware: bool = True,
) -> Any:
    """Log-density of a release given the coefficients: a scalar tensor.

    Parameters
    ----------
    form : MaxentForm
    records : MaxentRecords
    coefficient : tensor, shape (K,)
    released, noise_variance : tensor, shape (Q,)
        In the order of ``records``.
    n : tensor, ()
        Number of records.
    noise_aware : bool
        False takes the release for exact. As its groups then contradict each other, each cell
        counts as a sum over records of its own.
    """
    constants = (form.grid, form.contrasts, records.factor, records.square, form.sizes)
    density = _MaxentDensity(form.binary, noise_aware)
    return density(coefficient, released, noise_variance, n, *constants)[0]


class _MaxentDensity(Op):
    """Log-density, and its gradient in the coefficients, as two outputs."""

    __props__ = ("binary", "noise_aware")

    def __init__(self, binary: bool, noise_aware: bool) -> None:
        self.binary, self.noise_aware = binary, noise_aware

    def make_node(self, *inputs: Any) -> Apply:
        inputs = tuple(
            pt.as_tensor_variable(x, dtype=kind) for x, kind in zip(inputs, _KINDS, strict=True)
        )
        for x, ndim in zip(inputs, _DIMENSIONS, strict=True):
            if x.type.ndim != ndim:
                raise ValueError(f"got {x.type.ndim} dimensions where {ndim} are wanted")
        gradient = pt.tensor(dtype="float64", shape=inputs[0].type.shape)
        return Apply(self, inputs, [pt.scalar(dtype="float64"), gradient])

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        found = _compiled(*inputs[:3], float(inputs[3]), *inputs[4:], self.binary, self.noise_aware)
        for storage, value in zip(output_storage, found, strict=True):
            storage[0] = np.asarray(value)

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        return [(), shapes[0]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True, True], *[[False, False]] * 8]

    def pullback(
        self, inputs: list[Variable], outputs: list[Variable], cotangents: list[Variable]
    ) -> list[Variable]:
        weight, second = cotangents
        if not isinstance(second.type, DisconnectedType):
            raise NotImplementedError("second derivatives of this density are not available")
        return [weight * outputs[1], *[DisconnectedType()()] * 8]


def _kernel(
    c: Any, released: Any, noise: Any, n: float, grid: Any, contrasts: Any, factor: Any,
    square: Any, sizes: Any, binary: bool, noise_aware: bool,
) -> Any:  # fmt: skip
    """Compute log-density and gradient, with plain loops for numba."""
    n_points, groups, levels = len(grid), len(sizes), contrasts.shape[1]
    cell, base, outcome = np.zeros((2, n_points)), np.zeros((2, n_points)), np.zeros((2, n_points))
    level = np.zeros((2, groups, levels, n_points))
    tilt, weight = np.zeros((2, groups, levels)), np.zeros((2, groups, levels))
    forward(c, grid, contrasts, sizes, binary, cell, level, tilt, base, outcome, weight)
    # the parts of the table: arms; of a binary outcome arm and outcome, of one point each
    n_parts, of_part = (4, 1) if binary else (2, n_points)
    part, d_part = np.zeros((n_parts, of_part)), np.zeros((n_parts, of_part))
    part_level = np.zeros((n_parts, groups, levels, of_part))
    d_part_level, d_cell, d_level = np.zeros(part_level.shape), np.zeros(cell.shape), level.copy()
    for a in range(n_parts):
        for y in range(of_part):
            t, point = (a // 2, a % 2) if binary else (a, y)
            part[a, y] = cell[t, point]
            for g in range(groups):
                for k in range(levels):
                    part_level[a, g, k, y] = level[t, g, k, point]
    log_density = normal_density(
        part, part_level, released, noise, n, factor, square, sizes, noise_aware, d_part,
        d_part_level,
    )  # fmt: skip
    for a in range(n_parts):
        for y in range(of_part):
            t, point = (a // 2, a % 2) if binary else (a, y)
            d_cell[t, point] = d_part[a, y]
            for g in range(groups):
                for k in range(levels):
                    d_level[t, g, k, point] = d_part_level[a, g, k, y]
    gradient = pull_back(
        c, grid, contrasts, sizes, binary, cell, level, tilt, outcome, weight, d_cell, d_level
    )
    return np.asarray(log_density), gradient


_compiled = numba_dispatch.numba_njit(_kernel, final_function=True)


@numba_dispatch.register_funcify_default_op_cache_key(_MaxentDensity)
def _maxent_density_in_numba(op: Op, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    version = 5  # of the kernel: part of the key of the compiled code's cache
    binary, noise_aware = bool(op.binary), bool(op.noise_aware)
    kernel = numba_dispatch.numba_njit(_kernel)

    @numba_dispatch.numba_njit
    def maxent_density(
        c: Any, released: Any, noise: Any, n: Any, grid: Any, contrasts: Any, factor: Any,
        square: Any, sizes: Any,
    ) -> Any:  # fmt: skip
        return kernel(
            c, released, noise, n.item(), grid, contrasts, factor, square, sizes, binary,
            noise_aware,
        )  # fmt: skip

    return maxent_density, version
