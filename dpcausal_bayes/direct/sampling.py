"""Sampling variance of a function of noisy moments, by the delta method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.moment_releases import MomentRelease

__all__ = ["sampling_variance", "within_variance"]

ENOUGH = 5.0  # noise standard deviations that a mass needs for its mean to be known


def sampling_variance(
    release: MomentRelease,
    group: int,
    kept: NDArray[np.bool_],
    gradient: NDArray[np.float64],
) -> float:
    r"""Return :math:`g' (n \mathrm{Cov}(h)) g` for a gradient by arm, stratum and part.

    The estimators do not change when all queries are scaled, so :math:`g' q = 0` and the product
    of means in the covariance drops out.
    """
    cells = release.cells(group)[:, kept]
    if release.causal_workload.binary:
        return float(np.sum(gradient**2 * cells))
    mass, total = cells[..., 0], cells[..., 1]
    of_mass, of_total = gradient[..., 0], gradient[..., 1]
    between = mass * (of_mass + of_total * total / mass) ** 2
    within = mass * of_total**2 * within_variance(release, group)[:, None]
    return float(np.sum(between + within))


def within_variance(release: MomentRelease, group: int) -> NDArray[np.float64]:
    r"""Estimate the outcome's variance within strata, by arm, on the scale of [-1, 1].

    From the arm's sum of squares is taken :math:`\sum_s t_s^2/m_s`, freed of what noise adds to it.
    A stratum whose mass is below five standard deviations of its noise has no mean of its own to be
    freed of: it is taken to have the arm's. An arm whose whole mass is below that leaves the
    variance unknown; it is then the largest that outcomes in [-1, 1] can have, 1.
    """
    cells = release.cells(group)
    noise = release.causal_workload.split(release.noise_scale)[0][group][0, 0, 0]
    squares: Any = release.squares
    variance = np.ones(2)
    for arm, (mass, total) in enumerate(np.moveaxis(cells, -1, 1)):
        known = mass > ENOUGH * noise
        whole, noise_of_whole = mass.sum(), noise * np.sqrt(len(mass))
        freedom = whole - known.sum() - (not known.all())
        if whole <= ENOUGH * noise_of_whole or freedom <= 0:
            continue
        own = mass[known] * _squared_mean(mass[known], total[known], noise)
        others = mass[~known].sum() * _squared_mean(whole, total.sum(), noise_of_whole)
        variance[arm] = (squares[arm] + whole / 2 - own.sum() - others) / freedom
    return variance


def _squared_mean(mass: Any, total: Any, noise: float) -> Any:
    """Return the square of a mean, less what noise in mass and total adds to it on average."""
    square = (total / mass) ** 2
    return square - noise**2 * (1 + square) / mass**2
