r"""A first look at a release: where the posterior lies, and in which coordinates it is round.

Gauss-Newton steps to the mode of the stratified model with every spread at its prior median. None
of it changes the model: it moves and scales what the sampler sees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.coefficients import pilot_coordinates
from dpcausal_bayes.models.measurement import Measurement
from dpcausal_bayes.models.stratum_laws import StratumLaw, record_moments
from dpcausal_bayes.models.surfaces import Surfaces, prior_mean, prior_mean_slope, stratum_law

__all__ = ["Pilot", "pilot"]

STEPS = 20
CONVERGED = 1e-3  # gain in log density


class Pilot(NamedTuple):
    """Location (K,), scale (K, K) and centring (K,) of the coefficients.

    Centring is 1 for the coefficients of a spread about which the release says much, 0 where the
    prior speaks: see `dpcausal_bayes.models.coefficients`, whose coordinates these are.
    """

    location: NDArray[np.float64]
    scale: NDArray[np.float64]
    centring: NDArray[np.float64]


@np.errstate(over="ignore")  # a step may go as far as dispersions of 0, and is then cut short
def pilot(form: Surfaces, measured: Measurement, n: int) -> Pilot:
    """Find location, scale and centring.

    Parameters
    ----------
    form : Surfaces
    measured : Measurement
    n : int
        Number of records.
    """
    c = prior_mean(form, form.centre, np)
    best, residual, covariance = _objective(form, measured, n, c)
    for _ in range(STEPS):
        jacobian = n * _jacobian(form, c)
        weighted = np.linalg.solve(covariance, np.column_stack([jacobian, residual]))
        pull, slope = _prior_residual(form, c)
        precision = jacobian.T @ weighted[:, :-1] + slope.T @ slope
        step = np.linalg.solve(precision, jacobian.T @ weighted[:, -1] - slope.T @ pull)
        length = 1.0
        new = _objective(form, measured, n, c + step)
        while length > 1e-3 and not new[0] > best:
            length /= 2
            new = _objective(form, measured, n, c + length * step)
        gain = new[0] - best
        if gain > 0:
            c = c + length * step
            best, residual, covariance = new
        if not gain > CONVERGED:
            break
    mean, slope = prior_mean(form, c, np), prior_mean_slope(form, c)
    return Pilot(*pilot_coordinates(form, c, precision, mean, slope))


def _prior_residual(
    form: Surfaces, c: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far coefficients are from their prior means, in scales, and its derivative."""
    residual = (c - prior_mean(form, c, np)) / form.scale
    return residual, (np.eye(len(c)) - prior_mean_slope(form, c)) / form.scale[:, None]


def _objective(
    form: Surfaces, measured: Measurement, n: int, c: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the log density at the coefficients, the residual, and the covariance of both."""
    moments = record_moments(stratum_law(form, c, np), form.n_strata, np)
    covariance = measured.noise + n * (moments.factors * moments.signs) @ moments.factors.T
    order = moments.blocks.shape[-1]
    for j, block in enumerate(moments.blocks):
        own = slice(j * order, (j + 1) * order)
        covariance[own, own] += n * block
    residual = measured.value - n * moments.mean
    sign, log_determinant = np.linalg.slogdet(covariance)
    if sign <= 0:
        return -np.inf, residual, covariance
    log_density = -0.5 * (residual @ np.linalg.solve(covariance, residual) + log_determinant)
    pull = _prior_residual(form, c)[0]
    return log_density - 0.5 * float(pull @ pull), residual, covariance


def _jacobian(form: Surfaces, c: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the derivative (p, K) of a record's expected contribution."""
    law: StratumLaw = stratum_law(form, c, np)
    sign = np.array([-0.5, 0.5])[:, None, None]
    d_logit = form.log_share + sign * form.propensity
    d_logit = d_logit - np.einsum("ts,tsk->k", law.share, d_logit)
    d_share = law.share[..., None] * d_logit
    d_mean = (1 - law.mean**2)[..., None] * (form.baseline + sign * form.effect)
    d_outcome = d_share * law.mean[..., None] + law.share[..., None] * d_mean
    if form.dispersion is None:
        high = (d_share + d_outcome) / 2
        return np.stack([d_share - high, high], axis=2).reshape(-1, len(c))
    r = law.dispersion
    d_r = (r * (1 - r))[:, None] * form.dispersion
    spare = 1 - law.mean**2
    square = law.mean**2 + r[:, None] * spare - 0.5
    d_square = (2 * law.mean * (1 - r[:, None]))[..., None] * d_mean
    d_square = d_square + spare[..., None] * d_r[:, None]
    squares = (d_share * square[..., None] + law.share[..., None] * d_square).sum(1)
    cells: Any = np.stack([d_share, d_outcome], axis=2).reshape(-1, len(c))
    return np.concatenate([cells, squares])
