r"""The noise of a moment release, cell by cell: normal, or Laplace as a mixture of normals.

With b the scale and E exponential of mean 1, :math:`b \sqrt{2 E}\, z` is Laplace noise for z
standard normal: given E the variance is :math:`2 b^2 E`, its mean times E. Of a bounded outcome the
Laplace noise is on the two ends of a cell, l and h, of variances :math:`v_l` and :math:`v_h` given
E; its mass l + h and outcome sum h - l then have

.. math:: \begin{pmatrix} v_h + v_l & v_h - v_l \\ v_h - v_l & v_h + v_l \end{pmatrix}.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["draw_noise", "noise_blocks", "noise_labels"]


def noise_labels(workload: CausalWorkload, group: int) -> list[str]:
    """Name the numbers that have noise of their own, in the order of a group's queries.

    Parameters
    ----------
    workload : CausalWorkload
    group : int
    """
    arms, strata = workload.schema.arms, workload.strata(group)
    parts = workload.parts if workload.binary else ("low end", "high end")
    cells = [f"{stratum}|{arm}|{part}" for arm in arms for stratum in strata for part in parts]
    return cells if workload.binary else [*cells, *(f"square|{arm}" for arm in arms)]


def noise_blocks(variance: Any, mixing: Any, order: int, xp: Any) -> Any:
    """Return the covariance of noise: blocks (..., p / b, b, b).

    Parameters
    ----------
    variance : array or tensor, shape (..., p)
        Of every query's noise.
    mixing : array or tensor, shape (..., p), or None
        E of every number that has noise of its own; ``None`` for normal noise.
    order : int
        b, 1 for counts, 2 for pairs of mass and outcome sum, of which the last is the squares.
    xp : module
        numpy or pytensor.tensor, as the arrays.
    """
    lead = tuple(variance.shape[axis] for axis in range(variance.ndim - 1))
    if mixing is not None and order == 2:
        end = 0.5 * (variance * mixing)[..., :-2].reshape((*lead, -1, 2))
        total, difference = end.sum(-1), end[..., 1] - end[..., 0]
        rows = [xp.stack(row, axis=-1) for row in ((total, difference), (difference, total))]
        squares = (variance * mixing)[..., None, -2:, None] * np.eye(2)
        return xp.concatenate([xp.stack(rows, axis=-2), squares], axis=-3)
    own = variance if mixing is None else variance * mixing
    return own.reshape((*lead, -1, order))[..., None] * np.eye(order)


def draw_noise(blocks: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw noise (..., p) of a covariance given as blocks (..., p / b, b, b)."""
    noise = np.linalg.cholesky(blocks) @ rng.standard_normal((*blocks.shape[:-1], 1))
    return np.asarray(noise.reshape(*blocks.shape[:-3], -1))
