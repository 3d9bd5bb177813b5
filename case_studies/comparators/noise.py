r"""Noise and private selection that several comparators share, with their sensitivities.

*A sum and its sum of squares for one price.* With :math:`u \in [-1, 1]` a record adds
:math:`(u, u^2/2)`. Replacing u by u' moves these by :math:`a = |u - u'|` and
:math:`a |u + u'| / 2 \le a (2 - a) / 2`, together at most :math:`a (4 - a) / 2`, which grows up to
a = 2, where it is 2. So the L1 sensitivity is 2, that of the sum alone, and so is the L2 one.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from dpcausal_bayes.accounting import epsilon_from_rho
from dpcausal_bayes.gaussian_accounting import gaussian_scale_for

__all__ = ["add_noise", "exponential_mechanism", "mean_of_bounded", "noise_sd", "rho_for"]

SUM_SENSITIVITY = 2.0  # of a bounded sum with half its sum of squares: L1 and L2


@cache
def rho_for(epsilon: float, delta: float) -> float:
    """Return the largest rho (to a part in 1e6, rounded down) whose zCDP is (epsilon, delta)-DP.

    Examples
    --------
    >>> round(epsilon_from_rho(rho_for(1.0, 1e-6), 1e-6), 5)
    1.0
    """
    low, high = 0.0, epsilon + 1
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_from_rho(middle, delta) <= epsilon else (low, middle)
    return low


def noise_sd(l1: float, l2: float, epsilon: float, delta: float) -> tuple[float, bool]:
    """Return the smaller standard deviation of Laplace and Gaussian noise, and if it is Laplace's.

    Laplace noise is (epsilon, 0)-DP, so its choice, which is public, keeps (epsilon, delta).
    """
    laplace = math.sqrt(2) * l1 / epsilon
    gaussian = l2 * gaussian_scale_for(epsilon, delta)
    return min(laplace, gaussian), laplace <= gaussian


def add_noise(
    exact: NDArray[np.float64],
    l1: float,
    l2: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], float]:
    """Return a noisy query and the standard deviation of its noise."""
    sd, is_laplace = noise_sd(l1, l2, epsilon, delta)
    if is_laplace:
        return exact + rng.laplace(0.0, sd / math.sqrt(2), exact.shape), sd
    return exact + rng.normal(0.0, sd, exact.shape), sd


def mean_of_bounded(
    score: NDArray[np.float64],
    low: float,
    high: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Release the mean of scores in [low, high], and the variance of that mean, noise included.

    The bounds hold for every record that could be, given what is public. The noisy mean square is
    moved into what scores in [-1, 1] of that mean can have; a mean beyond the bounds stays.
    """
    n, centre, half = len(score), (low + high) / 2, (high - low) / 2
    u = (score - centre) / half
    exact = np.array([u.sum(), (u**2).sum() / 2])
    noisy, sd = add_noise(exact, SUM_SENSITIVITY, SUM_SENSITIVITY, epsilon, delta, rng)
    mean, square = noisy[0] / n, 2 * noisy[1] / n
    within = max(min(square, 1.0) - mean**2, 0.0)
    return float(centre + half * mean), float(half**2 * (within / n + (sd / n) ** 2))


def exponential_mechanism(
    score: NDArray[np.float64], epsilon: float, sensitivity: float, rng: np.random.Generator
) -> int:
    r"""Choose a place with probability proportional to :math:`e^{\varepsilon s/2\Delta}`.

    It is epsilon-DP, and :math:`\varepsilon^2/8`-zCDP (Cesar and Rogers 2021).
    """
    chance = softmax(epsilon / (2 * sensitivity) * (score - score.max()))
    return int(rng.choice(len(score), p=chance))
