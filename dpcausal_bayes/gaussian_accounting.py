r"""What Gaussian noise costs, exactly: Balle and Wang's analytic Gaussian mechanism (2018).

Everything depends on one number, the ratio r of L2 sensitivity to the noise's standard deviation:
two neighbouring tables give normal laws whose means are r standard deviations apart.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_ratio_for", "gaussian_scale_for"]


def gaussian_delta(ratio: float, epsilon: float) -> float:
    r"""Return the smallest delta that holds at an epsilon.

    .. math::
        \delta = \Phi\left(\frac r2 - \frac \varepsilon r\right)
        - e^\varepsilon\, \Phi\left(-\frac r2 - \frac \varepsilon r\right)

    Parameters
    ----------
    ratio : float
        L2 sensitivity over standard deviation.
    epsilon : float

    Examples
    --------
    >>> round(gaussian_delta(0.5, 1.0), 6)
    0.00683
    """
    first = float(log_ndtr(ratio / 2 - epsilon / ratio))
    second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    # the second term is never the larger one, except by rounding
    return math.exp(first) * -math.expm1(min(second - first, 0.0)) if first > -1e6 else 0.0


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """Return the smallest epsilon (to a part in 1e12, rounded up) that holds at a delta.

    Parameters
    ----------
    ratio : float
        L2 sensitivity over standard deviation.
    delta : float
        In (0, 1).

    Examples
    --------
    >>> round(gaussian_epsilon(0.5, 1e-5), 4)
    1.9931
    """
    if gaussian_delta(ratio, 0.0) <= delta:
        return 0.0
    low, high = 0.0, ratio * (ratio / 2 + math.sqrt(-2 * math.log(delta)))  # from zCDP
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if gaussian_delta(ratio, middle) <= delta else (middle, high)
    return high


def gaussian_ratio_for(epsilon: float, delta: float) -> float:
    """Return the largest ratio (to a part in 1e12, rounded down) that is (epsilon, delta)-DP."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low


def gaussian_scale_for(epsilon: float, delta: float) -> float:
    """Return the smallest standard deviation that is (epsilon, delta)-DP at sensitivity 1.

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        In (0, 1).

    Examples
    --------
    >>> round(gaussian_scale_for(1.0, 1e-5), 4)
    3.7306
    """
    return float(np.nextafter(1 / gaussian_ratio_for(epsilon, delta), math.inf))
