r"""A first look at a first-order release: where the posterior lies, and in which coordinates.

Gauss-Newton steps to the mode with every spread at its prior median. None of it changes the model:
it moves and scales what the sampler sees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.maxent_laws import MaxentForm, MaxentLaw, maxent_law
from dpcausal_bayes.models.maxent_records import MaxentRecords
from dpcausal_bayes.models.whitening import whitener

__all__ = ["MaxentPilot", "maxent_jacobian", "maxent_pilot"]

Array = NDArray[np.float64]

STEPS = 30
CONVERGED = 1e-3  # gain in log density
VAGUE = 0.7  # share of its prior variance above which the prior speaks
DIFFERENCE = 1e-5  # of a coefficient, for central differences
AT_ONCE = 64  # coefficients whose differences are taken at a time


class MaxentPilot(NamedTuple):
    """Location (K,), scale (K, K) and centring (K,) of the coefficients.

    Centring is 1 for the coefficients of a spread about which the release says much, 0 where the
    prior speaks: see `dpcausal_bayes.models.maxent_prior`, whose coordinates these are.
    """

    location: Array
    scale: Array
    centring: Array


@np.errstate(all="ignore")  # a step too far is cut short
def maxent_pilot(
    form: MaxentForm, records: MaxentRecords, released: Array, noise_variance: Array, n: int
) -> MaxentPilot:
    """Find location, scale and centring.

    Parameters
    ----------
    form : MaxentForm
    records : MaxentRecords
    released, noise_variance : ndarray, shape (Q,)
        In the order of ``records``.
    n : int
        Number of records.
    """

    def objective(c: Array) -> tuple[float, Array, Array]:
        law = maxent_law(form, c)
        covariance = n * records.covariance(law) + np.diag(noise_variance)
        residual = released - n * records.mean(law)
        pull = (c - form.centre) / form.scale
        sign, log_determinant = np.linalg.slogdet(covariance)
        if not sign > 0:
            return -np.inf, residual, covariance
        square = residual @ np.linalg.solve(covariance, residual)
        return -0.5 * float(square + log_determinant + pull @ pull), residual, covariance

    c = form.centre.copy()
    best, residual, covariance = objective(c)
    for _ in range(STEPS):
        jacobian = n * maxent_jacobian(form, records, c)
        weighted = np.linalg.solve(covariance, np.column_stack([jacobian, residual]))
        precision = jacobian.T @ weighted[:, :-1] + np.diag(form.scale**-2)
        slope = jacobian.T @ weighted[:, -1] - (c - form.centre) / form.scale**2
        step = np.linalg.solve(precision, slope)
        length, new = 1.0, objective(c + step)
        while length > 1e-3 and not new[0] > best:
            length /= 2
            new = objective(c + length * step)
        gain = new[0] - best
        if gain > 0:
            c = c + length * step
            best, residual, covariance = new
        if not gain > CONVERGED:
            break
    left = np.diag(np.linalg.inv(precision)) / form.scale**2  # share of the prior variance
    centring = np.ones(len(c))
    for spread in range(len(form.spreads)):
        own = form.spread_of == spread
        centring[own] = left[own].mean() < VAGUE if own.any() else 1.0
    return MaxentPilot(c, whitener(precision), centring)


def maxent_jacobian(form: MaxentForm, records: MaxentRecords, c: Array) -> Array:
    """Return the derivative (Q, K) of a record's expected contribution, by central differences.

    Parameters
    ----------
    form : MaxentForm
    records : MaxentRecords
    c : ndarray, shape (K,)
    """
    columns = []
    for first in range(0, len(c), AT_ONCE):
        moved = DIFFERENCE * np.eye(len(c))[first : first + AT_ONCE]
        ahead, behind = (_expected(form, records, c + way * moved) for way in (1, -1))
        columns.append((ahead - behind).T / (2 * DIFFERENCE))
    return np.concatenate(columns, axis=1)


def _expected(form: MaxentForm, records: MaxentRecords, c: Array) -> Array:
    law: MaxentLaw = maxent_law(form, c)
    return records.mean(law)
