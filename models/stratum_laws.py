r"""The law of a record, by arm and stratum, and the moments of what it adds to a release.

Arm t, stratum s; outcome y in [-1, 1]. From surfaces over the strata:

.. math::
    \pi_{ts} \propto \exp(\ell_s \mp e_s / 2), \qquad
    \mu_{ts} = \tanh(b_s \mp d_s / 2), \qquad
    v_{ts} = r_t (1 - \mu_{ts}^2)

A law on [-1, 1] of mean :math:`\mu` has a variance of at most :math:`1 - \mu^2`, which two points
reach: :math:`r_t` is the share of it that is there. Third and fourth moments are those of the beta
law of that mean and variance; with r = 1 all is binary. Plain arithmetic: the same functions serve
arrays and tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["RecordMoments", "StratumLaw", "outcome_moments", "record_moments"]


class StratumLaw(NamedTuple):
    """Shares (2, S) of the population, mean outcomes (2, S), dispersions (2,) or None."""

    share: Any
    mean: Any
    dispersion: Any


class RecordMoments(NamedTuple):
    """Mean and covariance of one record's contribution to the release.

    Covariance: blocks + factors diag(signs) factors'. The vector holds, for each arm and stratum,
    mass and outcome (or the counts of two levels); then, unless binary, the squares of both arms.

    Attributes
    ----------
    mean : (p,)
    blocks : (p / b, b, b)
        b = 2, or 1 for a binary outcome.
    factors : (p, r)
    signs : ndarray (r,)
        Constants, positive ones first.
    """

    mean: Any
    blocks: Any
    factors: Any
    signs: NDArray[np.float64]


def record_moments(law: StratumLaw, n_strata: int, xp: Any) -> RecordMoments:
    r"""Return the moments of a record's contribution.

    Within a cell the raw second moments of (1, y) are :math:`\pi (1, \mu; \mu, \mu^2 + v)`. The
    square :math:`w = y^2 - 1/2` of an arm goes with all its cells, through
    :math:`c = \pi (E w, E\,yw)`; with e the unit vector of that square,
    :math:`c e' + e c' = \tfrac12 (c + e)(c + e)' - \tfrac12 (c - e)(c - e)'`. From all, the outer
    product of the mean is taken.

    Parameters
    ----------
    law : StratumLaw
        Arrays may have further dimensions in front, one law for each place.
    n_strata : int
    xp : module
        numpy or pytensor.tensor, as the law.
    """
    share, mu = law.share, law.mean
    lead = tuple(share.shape[axis] for axis in range(share.ndim - 2))
    if law.dispersion is None:
        high = share * (1 + mu) / 2
        mean = xp.stack([share - high, high], axis=-1).reshape((*lead, -1))
        blocks, factors = mean[..., None, None], mean[..., None]
        return RecordMoments(mean, blocks, factors, np.array([-1.0]))
    y2, y3, y4 = outcome_moments(mu, law.dispersion[..., None])
    y, w, yw = share * mu, share * (y2 - 0.5), share * (y3 - 0.5 * mu)
    first = xp.stack([share, y], axis=-1)
    mean = xp.concatenate([first.reshape((*lead, -1)), w.sum(-1)], axis=-1)
    cells = xp.stack([first, xp.stack([y, share * y2], axis=-1)], axis=-1)
    squares = (share * (y4 - y2 + 0.25)).sum(-1)[..., None] * np.eye(2)
    same_arm = np.eye(2)[:, None, None, :]  # arm, stratum, part, arm of the square
    cross = (xp.stack([w, yw], axis=-1)[..., None] * same_arm).reshape((*lead, -1, 2))
    cross = xp.concatenate([cross, 0 * cross[..., :2, :]], axis=-2)
    unit = np.concatenate([np.zeros((4 * n_strata, 2)), np.eye(2)])
    both = [(cross + unit) / 2**0.5, (cross - unit) / 2**0.5, mean[..., None]]
    return RecordMoments(
        mean,
        xp.concatenate([cells.reshape((*lead, -1, 2, 2)), squares[..., None, :, :]], axis=-3),
        xp.concatenate(both, axis=-1),
        np.array([1.0, 1.0, -1.0, -1.0, -1.0]),
    )


def outcome_moments(mean: Any, dispersion: Any) -> tuple[Any, Any, Any]:
    r"""Return E y^2, E y^3 and E y^4 of a beta law on [-1, 1].

    With :math:`y = 2 x - 1` and :math:`m = E x`,
    :math:`E x^{k+1} / E x^k = (m (1-r) + k r) / (1 - r + k r)`.
    """
    m, free = (1 + mean) / 2, 1 - dispersion
    x2 = m * (m * free + dispersion) / (free + dispersion)
    x3 = x2 * (m * free + 2 * dispersion) / (free + 2 * dispersion)
    x4 = x3 * (m * free + 3 * dispersion) / (free + 3 * dispersion)
    y2 = 4 * x2 - 4 * m + 1
    y3 = 8 * x3 - 12 * x2 + 6 * m - 1
    y4 = 16 * x4 - 32 * x3 + 24 * x2 - 8 * m + 1
    return y2, y3, y4
