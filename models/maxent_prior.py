r"""The prior of a maximum-entropy model's coefficients, and what the sampler sees of them.

A coefficient has the prior :math:`N(m, \tau^2)`, some with an unknown spread :math:`\tau` of prior
median :math:`\tau_0`. Sampled is

.. math:: u \sim N(m, \tau_0^2 (\tau / \tau_0)^{2w}), \qquad
          c = m + (\tau / \tau_0)^{1-w} (u - m),

with w = 1 where the release says much (centred), w = 0 where it does not (non-centred); and u in
the pilot's coordinates, in which the posterior is round.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from dpcausal_bayes.models.maxent_laws import MaxentForm
from dpcausal_bayes.models.whitening import GivenWhitening

__all__ = ["maxent_coefficients"]


def maxent_coefficients(form: MaxentForm, data: dict[str, Any], spread_sd: float) -> Any:
    """Add the coefficients (term), and their spreads (group), to the model on the stack.

    Parameters
    ----------
    form : MaxentForm
    data : dict
        ``pilot_location``, ``pilot_scale`` and ``pilot_centring``.
    spread_sd : float
        Prior standard deviation of the logarithm of every spread.

    Returns
    -------
    tensor, shape (K,)
    """
    location = pm.Data("pilot_location", data["pilot_location"], dims="term")
    scale = pm.Data("pilot_scale", data["pilot_scale"])
    centring = pm.Data("pilot_centring", data["pilot_centring"], dims="term")
    relative: Any = pt.zeros(len(form.centre))
    if form.spreads:
        spread = pm.LogNormal("spread", np.log(form.median), spread_sd, dims="group")
        log_ratio = pt.log(spread / form.median)
        relative = pt.concatenate([log_ratio, np.zeros(1)])[form.spread_of]
    constant = np.log(form.scale).sum() + 0.5 * len(form.scale) * math.log(2 * math.pi)

    def logp(u: Any, relative: Any, centring: Any, location: Any, scale: Any) -> Any:
        stretch = centring * relative
        standardised = (u - form.centre) / form.scale * pt.exp(-stretch)
        return -0.5 * (standardised**2).sum() - stretch.sum() - constant

    def random(
        relative: Any, centring: Any, location: Any, scale: Any, rng: np.random.Generator,
        size: Any = None,
    ) -> NDArray[np.float64]:  # fmt: skip
        noise = rng.standard_normal(len(form.scale))
        return form.centre + form.scale * np.exp(centring * relative) * noise

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
    found = form.centre + pt.exp((1 - centring) * relative) * (offset - form.centre)
    return pm.Deterministic("coefficient", found, dims="term")
