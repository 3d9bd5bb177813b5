r"""How much confounding a group of covariates would take away, as one record hardly moves it.

Let p and :math:`\mu_a` be what is believed of a record: the share of treated and the arms' means,
or those within strata that are adjusted for already. They come from noisy sums, so that they are
constants here. A record has the residuals x = a - p and :math:`z = y - \mu_a`. In a stratum s of
the group, :math:`m_s` records have residuals with means :math:`\bar x_s` and :math:`\bar z_s`, and

.. math:: B = \sum_s m_s\, [\bar x_s]_k\, [\bar z_s]_l, \qquad [v]_k = \min(\max(v, -k), k).

**What it says.** Without the clipping, with W the sum of :math:`(a - p)^2` over all records and
with p and :math:`\mu` those of the table itself,

.. math:: B / W = (1 - R^2)\, (\hat\tau_\text{without} - \hat\tau_\text{with}),

where the estimates are those of least squares without and with an intercept for every stratum, and
R² is the share of the arm's variance that lies between strata. (Both sides: between strata the
products x z sum to B; within strata they sum to :math:`W (1 - R^2)(\hat\tau_\text{with} -
\hat\tau_\text{without})`; and all of them sum to zero.) So the score is how far the group moves the
effect, in units of records times outcomes. R² and the clipping make it understate
strong confounding: of a coarse and a fine cut of a strong confounder it may prefer the coarse one.

**How far one record moves it.** Add a record with residuals (x, z) to a stratum with m records.
Write :math:`a = [\bar x]_k`, :math:`b = [\bar z]_l`, and a', b' for what they become. The new mean
is :math:`\bar x + (x - \bar x)/(m + 1)`, and clipping moves no two numbers apart, so that
:math:`(m + 1)(a' - a) = \theta (x - a)` for some :math:`\theta \in [0, 1]`; likewise
:math:`(m + 1)(b' - b) = \theta' (z - b)`. Then

.. math::
    (m + 1) a' b' - m\, a b &= a b + (m + 1) \left[(a' - a) b + a' (b' - b)\right] \\
        &= b\, [a + \theta (x - a)] + \theta' (z - b)\, a',

whose size is at most :math:`I = l \max(k, X) + k (Z + l)`, with X and Z the largest residuals that
a record can have. (In an empty stratum it is at most k l.) To replace a record is to take one away
and to add another: B moves by 2 I at most, however few records a stratum has, and however many
strata there are.

(Why theta is in [0, 1] where :math:`\bar x > k`, so that a = k: :math:`a' = \min(k, \bar x + (x -
\bar x)/(m + 1))`, which is k, or else :math:`(m + 1)(a' - k) = (x - k) + m(\bar x - k) \ge x - k`.)

Clipping is what makes the score cheap: residual means of strata are small, and k and l only have to
be larger than those that matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Residuals", "confounding_score"]


class Residuals(NamedTuple):
    """What residuals are taken from, and where their means are clipped; none of it confidential.

    Attributes
    ----------
    propensity : ndarray, shape (H,)
        Believed share of treated in each stratum that is adjusted for already.
    mean : ndarray, shape (2, H)
        Believed mean outcome, by arm.
    low, high : float
        Least and greatest outcome.
    most_arm, most_outcome : float
        k and l.

    Examples
    --------
    >>> residuals = Residuals(np.array([0.5]), np.zeros((2, 1)), -1.0, 1.0, 0.25, 0.2)
    >>> residuals.influence  # 0.2 * 0.5 + 0.25 * (1 + 0.2)
    0.4
    """

    propensity: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: float
    high: float
    most_arm: float
    most_outcome: float

    @property
    def influence(self) -> float:
        """I: how far one more record moves the score, at most."""
        x = float(max(np.max(self.propensity), np.max(1 - self.propensity)))
        z = float(max(np.max(self.high - self.mean), np.max(self.mean - self.low)))
        k, most = self.most_arm, self.most_outcome
        return most * max(k, x) + k * (z + most)


def confounding_score(
    counts: NDArray[np.float64], sums: NDArray[np.float64], residuals: Residuals
) -> float:
    """Return B, in records times outcomes. Confidential.

    Parameters
    ----------
    counts, sums : ndarray, shape (2, H, S)
        Records and their outcomes' sums, by arm, stratum that is adjusted for and stratum of the
        group.
    residuals : Residuals

    Examples
    --------
    >>> residuals = Residuals(np.array([0.5]), np.zeros((2, 1)), -1.0, 1.0, 0.5, 1.0)
    >>> counts = np.array([[[30.0, 10.0]], [[10.0, 30.0]]])  # the arms differ in the group
    >>> sums = np.array([[[-6.0, 2.0]], [[-2.0, 6.0]]])  # as the outcome does
    >>> confounding_score(counts, sums, residuals)  # 80 records, mean residuals 0.25 and 0.2
    4.0
    """
    arm = np.array([0.0, 1.0])[:, None, None]
    x = ((arm - residuals.propensity[:, None]) * counts).sum(axis=(0, 1))
    z = (sums - residuals.mean[:, :, None] * counts).sum(axis=(0, 1))
    m = counts.sum(axis=(0, 1))
    k, most = residuals.most_arm, residuals.most_outcome
    full = m > 0
    mean_x = np.clip(x[full] / m[full], -k, k)
    mean_z = np.clip(z[full] / m[full], -most, most)
    return float(np.sum(m[full] * mean_x * mean_z))
