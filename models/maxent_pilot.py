r"""A first look at a first-order release: where the posterior lies, and in which coordinates.

Gauss-Newton steps, Student tails as weights, to the mode but for what the covariance's determinant
adds. None of it changes the model: it moves and scales what the sampler sees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.maxent_laws import (
    MaxentForm,
    maxent_law,
    prior_mean,
    prior_mean_slope,
)
from dpcausal_bayes.models.maxent_records import MaxentRecords
from dpcausal_bayes.models.student_prior import student_tails
from dpcausal_bayes.models.whitening import whitener

__all__ = ["MaxentPilot", "maxent_jacobian", "maxent_pilot"]

Array = NDArray[np.float64]

STEPS = 40
FIRST = 0.1  # of the records, what moments may be off by at first
CONVERGED = 1e-3  # squared length of a step, in posterior standard deviations
LEAST = 1e-3  # share of a step
DIFFERENCE = 1e-5  # of a coefficient, for central differences
AT_ONCE = 64  # coefficients whose differences are taken at a time


class MaxentPilot(NamedTuple):
    """Location (K,) and scale (K, K), upper triangular, of the coefficients."""

    location: Array
    scale: Array


@np.errstate(all="ignore")  # a step too far is cut short
def maxent_pilot(
    form: MaxentForm, records: MaxentRecords, released: Array, noise_variance: Array, n: int
) -> MaxentPilot:
    """Find location and scale.

    Parameters
    ----------
    form : MaxentForm
    records : MaxentRecords
    released, noise_variance : ndarray, shape (Q,)
        In the order of ``records``.
    n : int
        Number of records.
    """

    def gap(c: Array) -> Array:
        return np.linalg.solve(root, released - n * records.mean(maxent_law(form, c)))

    def pull(c: Array) -> Array:
        return (c - prior_mean(form, c, np)) / form.scale

    def objective(c: Array) -> float:
        tails, _ = student_tails(pull(c), form.tails, form.degrees)
        return 0.5 * float((gap(c) ** 2).sum()) - tails

    c = form.centre.copy()
    for k in range(STEPS):
        slack = (FIRST * n / 4**k) ** 2  # far from the mode moments are fitted roughly alike
        covariance = n * records.covariance(maxent_law(form, c))
        covariance += np.diag(noise_variance + slack)
        root = np.linalg.cholesky(covariance)  # held while a step's length is chosen
        jacobian = -n * np.linalg.solve(root, maxent_jacobian(form, records, c))
        weight = student_tails(pull(c), form.tails, form.degrees)[1]
        of_prior = (np.eye(len(c)) - prior_mean_slope(form, c)) / form.scale[:, None]
        precision = jacobian.T @ jacobian + of_prior.T @ (weight[:, None] * of_prior)
        step = -np.linalg.solve(precision, jacobian.T @ gap(c) + of_prior.T @ (weight * pull(c)))
        now, length = objective(c), 1.0
        while length > LEAST and not objective(c + length * step) < now:
            length /= 2
        if length > LEAST:
            c = c + length * step
        arrived = length <= LEAST or step @ precision @ step < CONVERGED
        if arrived and slack < 0.01 * noise_variance.min():
            break
    return MaxentPilot(c, whitener(precision))


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
        ahead, behind = (records.mean(maxent_law(form, c + way * moved)) for way in (1, -1))
        columns.append((ahead - behind).T / (2 * DIFFERENCE))
    return np.concatenate(columns, axis=1)
