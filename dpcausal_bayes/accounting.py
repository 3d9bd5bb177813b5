r"""What a label release costs: exact privacy loss of its two steps, in closed form.

One changed label moves two histogram counts by one each, and passes the changed unit through
another column of the label channel. Each step has a dominating pair whose privacy loss takes few
values, so the pair of both (Zhu, Dong and Wang 2022) is summed as it stands. No grid is rounded.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

__all__ = ["PrivacyLoss", "epsilon_from_rho"]

REPLACE_ONE_LABEL = "replace one label"
REPLACE_ONE_RECORD = "replace one record"

# Discrete Gaussian losses live on a lattice of about 40 points a unit of scale; beyond this scale
# the (still valid, slightly larger) zCDP bound is used and the sum is not formed.
LARGEST_SUMMED_SCALE = 2e4

SMALLEST_LAM = 2.0**-64  # the sampler decides with 64-bit words
SMALLEST_GAMMA = 2.0**-40  # far below any use, and well inside the sampler's resolution


class PrivacyLoss(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    r"""The privacy loss of one release, three ways.

    Parameters
    ----------
    pure_epsilon : float or None
        The release is ``pure_epsilon``-DP; ``None`` where no finite number holds.
    rho : float
        The release is rho-zCDP (Bun and Steinke 2016).
    epsilon, delta : float
        The release is (epsilon, delta)-DP, tight for all its steps together.
    adjacency : str
        Which tables are neighbours.

    Examples
    --------
    >>> print(PrivacyLoss(pure_epsilon=1.0, rho=0.2, epsilon=0.9, delta=1e-6))
    (0.9, 1e-06)-DP, 1-DP, 0.2-zCDP; neighbours: replace one label
    """

    pure_epsilon: float | None
    rho: float
    epsilon: float
    delta: float
    adjacency: str = REPLACE_ONE_LABEL

    def __post_init__(self) -> None:
        for field in ("pure_epsilon", "rho", "epsilon", "delta"):
            value = getattr(self, field)
            if field == "pure_epsilon" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"PrivacyLoss.{field} is {value!r}: it must be a number")
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"PrivacyLoss.{field} is {value}: it must be finite and >= 0")
            force_setattr(self, field, float(value))
        if self.delta >= 1:
            raise ValueError(f"PrivacyLoss.delta is {self.delta}: it must be below 1")
        if self.delta == 0 and self.pure_epsilon is None:
            raise ValueError("PrivacyLoss.pure_epsilon is None, which needs delta > 0")
        if not isinstance(self.adjacency, str) or not self.adjacency:
            raise ValueError(f"PrivacyLoss.adjacency is {self.adjacency!r}: name the neighbours")

    def __str__(self) -> str:
        parts = [] if self.pure_epsilon is None else [f"{self.pure_epsilon:.6g}-DP"]
        if self.delta > 0:
            parts.insert(0, f"({self.epsilon:.6g}, {self.delta:.6g})-DP")
        return ", ".join([*parts, f"{self.rho:.6g}-zCDP"]) + f"; neighbours: {self.adjacency}"


class Losses(NamedTuple):
    """A privacy loss as a discrete random variable: its values and their log-probabilities.

    ``missing`` bounds the probability that was left out; it is charged to delta in full.
    """

    value: NDArray[np.float64]
    log_mass: NDArray[np.float64]
    missing: float = 0.0


NO_LOSS = Losses(np.zeros(1), np.zeros(1))


def laplace_losses(scale: float) -> Losses:
    r"""Loss of two counts, each with discrete Laplace noise and moved by one, in opposite ways.

    :math:`|k - 1| - |k| = \pm 1` at every integer: the loss of one count takes only the values
    :math:`\pm 1/\sigma`, with odds :math:`e^{1/\sigma}`. It is exactly randomised response.
    """
    one = 1.0 / scale
    # log of e^{one} / (1 + e^{one}) and of its complement, without overflow
    high, low = -np.logaddexp(0.0, -one), -np.logaddexp(0.0, one)
    return Losses(
        np.array([2 * one, 0.0, -2 * one]), np.array([2 * high, math.log(2) + high + low, 2 * low])
    )


def gaussian_losses(scale: float) -> Losses:
    r"""Loss of two counts, each with discrete Gaussian noise and moved by one, in opposite ways.

    The loss is :math:`(1 - d)/\sigma^2` where :math:`d` is the difference of the two noises, and
    :math:`P(d) \propto e^{-d^2/4\sigma^2} \sum_k e^{-(k - d/2)^2/\sigma^2}`, whose sum only depends
    on the parity of :math:`d`.
    """
    reach = math.ceil(20 * scale) + 2
    d = np.arange(-reach, reach + 1)
    log_mass = -(d**2) / (4 * scale**2)
    near = np.arange(-40, 41) if scale < 4 else np.arange(-10 * int(scale), 10 * int(scale) + 1)
    parity = [np.logaddexp.reduce(-((near - shift) ** 2) / scale**2) for shift in (0.0, 0.5)]
    log_mass = log_mass + np.where(d % 2 == 0, parity[0], parity[1])
    log_mass -= log_mass.max() + np.log(np.sum(np.exp(log_mass - log_mass.max())))
    # a Gaussian of variance 2 sigma^2 beyond 20 sigma = 14 of its standard deviations
    return Losses((1 - d) / scale**2, log_mass, 1e-43)


def channel_losses(lam: float, gamma: float) -> Losses:
    r"""Loss of one unit's label channel at its worst: both labels' prior shares at the floor.

    For prior shares :math:`g` of the true label the hockey-stick divergence of two columns is
    :math:`[(1-\lambda) - (e^\varepsilon - 1)\lambda g]_+`, which falls in :math:`g`; so the floor
    :math:`g = \gamma` dominates at every epsilon, and likewise with the columns swapped.
    """
    lost = lam * gamma
    kept = (1 - lam) + lost
    epsilon = channel_epsilon(lam, gamma)
    rest = max(lam * (1 - 2 * gamma), 0.0)
    values, masses = [epsilon, -epsilon], [kept, lost]
    if rest > 0:
        values, masses = [*values, 0.0], [*masses, rest]
    return Losses(np.array(values), np.log(masses))


def channel_epsilon(lam: float, gamma: float) -> float:
    r"""Return the pure loss of the label channel, :math:`\log(1 + (1-\lambda)/(\lambda\gamma))`."""
    return math.log1p((1 - lam) / lam / gamma)


def compose(first: Losses, second: Losses) -> Losses:
    """Return the sum of two independent losses."""
    return Losses(
        np.add.outer(first.value, second.value).ravel(),
        np.add.outer(first.log_mass, second.log_mass).ravel(),
        first.missing + second.missing,
    )


def delta_at(losses: Losses, epsilon: float) -> float:
    """Return the hockey-stick divergence: sum of p(L) (1 - e^(epsilon - L)) where L > epsilon."""
    above = losses.value > epsilon
    gain = -np.expm1(epsilon - losses.value[above])
    return float(np.sum(np.exp(losses.log_mass[above]) * gain)) + losses.missing


def epsilon_at(losses: Losses, delta: float, upper: float) -> float:
    """Return the smallest epsilon (to 1e-12, rounded up) that holds at ``delta``, given a bound."""
    if delta_at(losses, 0.0) <= delta:
        return 0.0
    low, high = 0.0, upper
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if delta_at(losses, middle) <= delta else (middle, high)
    return high


def randomised_response_rho(epsilon: float) -> float:
    r"""Return the zCDP loss of any epsilon-DP step, :math:`\varepsilon \tanh(\varepsilon/2)`.

    Every such step is a function of randomised response (Kairouz, Oh and Viswanath 2015), for
    which :math:`(\alpha-1) D_\alpha = \log \cosh(s\varepsilon) - \log\cosh(\varepsilon/2)` with
    :math:`s = \alpha - 1/2`. As :math:`\tanh(u)/u` falls, this is concave in :math:`s^2` and lies
    below its tangent at :math:`s = 1/2`, which is :math:`\alpha(\alpha-1)` times the claim. It is
    never above the usual :math:`\varepsilon^2/2`.
    """
    return epsilon * math.tanh(epsilon / 2)


@functools.lru_cache(maxsize=256)
def channel_rho(lam: float, gamma: float) -> float:
    r"""Return an upper bound, tight to 0.2 %, on the zCDP loss of the label channel.

    With :math:`f(t) = t D_{1+t}` of the worst pair, rho is :math:`\sup_t f(t)/(t(t+1))`. Since
    :math:`f` is convex and increasing from 0, on a grid :math:`f(t_{i+1})/(t_i(t_i+1))` bounds
    each interval, :math:`f(t_1)/t_1` the first and :math:`\varepsilon/(1+t)` the last.
    """
    epsilon = channel_epsilon(lam, gamma)
    lost = lam * gamma
    kept = (1 - lam) + lost
    t = np.geomspace(1e-4, 1e4, 18_421) / max(epsilon, 1.0)
    up = t * epsilon
    with np.errstate(over="ignore"):
        small = np.log1p(kept * np.expm1(up) + lost * np.expm1(-up))
    rest = math.log(max(lam * (1 - 2 * gamma), 5e-324))
    big = np.logaddexp(np.logaddexp(math.log(kept) + up, math.log(lost) - up), rest)
    f = np.where(up < 30, small, big)
    bound = max(f[0] / t[0], float(np.max(f[1:] / (t[:-1] * (1 + t[:-1])))), epsilon / (1 + t[-1]))
    return min(float(bound), randomised_response_rho(epsilon))


def epsilon_from_rho(rho: float, delta: float) -> float:
    r"""Return an epsilon such that rho-zCDP implies (epsilon, delta)-DP.

    The smallest over :math:`\alpha` of :math:`\rho\alpha + \log(1 - 1/\alpha) -
    \log(\delta\alpha)/(\alpha - 1)` (Canonne, Kamath and Steinke 2020, proposition 12). Any alpha
    gives a valid bound, so the search need not be exact to be safe.

    Examples
    --------
    >>> round(epsilon_from_rho(0.1, 1e-6), 3)
    2.142
    """
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf
    centre = math.log(math.sqrt(-math.log(delta) / rho))
    order = np.exp(np.linspace(centre - 4, centre + 4, 80_001))  # alpha - 1
    alpha = 1 + order
    bound = rho * alpha + np.log(order / alpha) - (math.log(delta) + np.log(alpha)) / order
    return max(float(np.min(bound)), 0.0)


def lam_for(epsilon: float, gamma: float) -> float:
    r"""Return the smallest lambda whose label channel is epsilon-DP, rounded up.

    :math:`\lambda = 1/(1 + \gamma(e^\varepsilon - 1))`, or the sampler's resolution if that is
    larger, in which case less is spent than was allowed.
    """
    odds = gamma * math.expm1(epsilon) if epsilon < 600 else math.inf
    lam = max(1 / (1 + odds), SMALLEST_LAM)
    while lam < 1 and channel_epsilon(lam, gamma) > epsilon:
        lam = math.nextafter(lam, 2)
    if lam >= 1:
        raise ValueError(
            f"epsilon leaves {epsilon:g} for the labels, less than floating point can tell from "
            "nothing: raise epsilon"
        )
    return lam


def gaussian_sigma_for(epsilon: float, delta: float, lam: float, gamma: float) -> float:
    """Return the smallest sigma (to one part in a million, rounded up) for an (epsilon, delta)."""
    channel = channel_losses(lam, gamma)
    rho = channel_rho(lam, gamma)

    def holds(sigma: float) -> bool:
        if sigma > LARGEST_SUMMED_SCALE:
            return epsilon_from_rho(rho + 1 / sigma**2, delta) <= epsilon
        return delta_at(compose(gaussian_losses(sigma), channel), epsilon) <= delta

    high = 1.0
    while not holds(high):
        high *= 2
        if high > 1e12:
            raise ValueError(
                f"epsilon {epsilon:g} at delta {delta:g} would need more than 1e12 counts of "
                "noise: raise either"
            )
    low = high / 2
    while low > 1e-3 and holds(low):
        low, high = low / 2, low
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
