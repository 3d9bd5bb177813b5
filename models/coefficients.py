r"""The prior of a model's coefficients, and what the sampler sees of them.

A coefficient c has the prior :math:`N(m, \tau^2)`; m is given, or a product of two others (see
`dpcausal_bayes.models.surfaces`), the spread :math:`\tau` is fixed, or unknown with the prior
median :math:`\tau_0`. Sampled is

.. math:: u \sim N(w m, \tau_0^2 (\tau / \tau_0)^{2w}), \qquad
          c = m + (\tau / \tau_0)^{1-w} (u - w m),

with w = 1, u = c where the release says much (centred), and w = 0 where it does not (non-centred);
and u in the pilot's coordinates, in which the posterior is round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from dpcausal_bayes.models.surfaces import Surfaces
from dpcausal_bayes.models.whitening import GivenWhitening, whitener

__all__ = ["coefficients", "pilot_coordinates"]

Mean = Callable[[Any, Any], Any]
VAGUE = 0.7  # share of its prior variance above which the prior speaks


def coefficients(
    form: Surfaces,
    data: dict[str, Any],
    spread_sd: float,
    *,
    dim: str,
    mean: Mean,
) -> Any:
    """Add the coefficients (term), and their spreads, to the model on the stack.

    Parameters
    ----------
    form : Surfaces
    data : dict
        ``pilot_location``, ``pilot_scale`` and ``pilot_centring``.
    spread_sd : float
        Prior standard deviation of the logarithm of every spread.
    dim : str
        Of the spreads.
    mean : callable
        Of coefficients and an array library: all prior means, from the coefficients whose mean is
        their centre.

    Returns
    -------
    tensor, shape (K,)
    """
    location = pm.Data("pilot_location", data["pilot_location"], dims="term")
    scale = pm.Data("pilot_scale", data["pilot_scale"])
    centring = pm.Data("pilot_centring", data["pilot_centring"], dims="term")
    relative: Any = np.zeros(len(form.centre))
    if form.spreads:
        spread = pm.LogNormal("spread", np.log(form.median), spread_sd, dims=dim)
        log_ratio = pt.log(spread / form.median)
        relative = pt.concatenate([log_ratio, np.zeros(1)])[form.spread_of]

    def logp(u: Any, relative: Any, centring: Any, location: Any, scale: Any) -> Any:
        located = centring * _coefficient(form, mean, u, relative, centring, pt)[1]
        log_sd = np.log(form.scale) + centring * relative
        normal = -0.5 * ((u - located) * pt.exp(-log_sd)) ** 2 - log_sd
        return normal.sum() - 0.5 * len(form.scale) * math.log(2 * math.pi)

    def random(
        relative: Any,
        centring: Any,
        location: Any,
        scale: Any,
        rng: np.random.Generator,
        size: Any = None,
    ) -> NDArray[np.float64]:
        noise = form.scale * np.exp(centring * relative) * rng.standard_normal(len(form.scale))
        # parents and slopes have no parents: once they are drawn, all means are known
        first = centring * form.centre + noise
        return noise + centring * _coefficient(form, mean, first, relative, centring, np)[1]

    offset = pm.CustomDist(
        "coefficient_offset",
        relative,
        centring,
        location,
        scale,
        logp=logp,
        random=random,
        support_point=lambda rv, size, relative, centring, location, scale: location,
        signature="(p),(p),(p),(p,p)->(p)",
        default_transform=GivenWhitening(),
        dims="term",
    )
    found = _coefficient(form, mean, offset, relative, centring, pt)[0]
    return pm.Deterministic("coefficient", found, dims="term")


def pilot_coordinates(
    form: Surfaces,
    c: NDArray[np.float64],
    precision: NDArray[np.float64],
    mean: NDArray[np.float64],
    mean_slope: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Choose w and the coordinates of u from the mode: location (K,), scale (K, K) and centring.

    Parameters
    ----------
    form : Surfaces
    c : ndarray, shape (K,)
        The mode, with every spread at its prior median.
    precision : ndarray, shape (K, K)
        Of the posterior there.
    mean, mean_slope : ndarray, shapes (K,) and (K, K)
        The coefficients' prior means there, and their derivative.
    """
    left = np.diag(np.linalg.inv(precision)) / form.scale**2  # share of the prior variance
    centring = np.ones(len(c))
    for spread in range(len(form.spreads)):
        own = form.spread_of == spread
        centring[own] = left[own].mean() < VAGUE if own.any() else 1.0
    shifted = (centring == 0)[:, None]
    axes = np.eye(len(c))
    back = np.linalg.inv(np.where(shifted, axes - mean_slope, axes))
    return c - (1 - centring) * mean, whitener(back.T @ precision @ back), centring


def _coefficient(form: Surfaces, mean: Mean, u: Any, relative: Any, centring: Any, xp: Any) -> Any:
    """Return the coefficients of what is sampled, and their prior means."""
    stretch = xp.exp((1 - centring) * relative)
    # those that others depend on have no such mean themselves
    alone = form.centre + stretch * (u - centring * form.centre)
    means = mean(alone, xp)
    return means + stretch * (u - centring * means), means
