r"""Horvitz and Thompson's estimator with noise on its sum, for a known chance of treatment.

With y scaled to [-1, 1] about the middle of its public bounds, p the public probability of
treatment and :math:`q = \min(p, 1-p)`,

.. math::
    u_i = q\, y_i \left(\frac{t_i}{p} - \frac{1 - t_i}{1-p}\right) \in [-1, 1], \qquad
    \hat\tau = \frac{1}{n q} \Big(\sum_i u_i + \text{noise}\Big).

**Privacy.** The sum and half the sum of squares, from which the interval's variance comes, have L1
and L2 sensitivity 2 to replacing a record, whose arm may change with the rest (`comparators.noise`
has the derivation); Laplace or Gaussian noise, whichever is smaller, for the whole budget.

Horvitz and Thompson (1952), "A generalization of sampling without replacement from a finite
universe"; with noise on aggregates it is a baseline of Javanmard, Mirrokni and Pouget-Abadie
(2025), arXiv:2308.00957, there for labels.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comparators.contract import Comparator, Estimate, central
from comparators.features import Records, records
from comparators.noise import mean_of_bounded
from dpcausal_bayes.schema import Schema

__all__ = ["horvitz_thompson", "scores"]

PROOF = (
    "Sum and half the sum of squares of scores in [-1, 1]: L1 and L2 sensitivity 2; one Laplace or "
    "Gaussian mechanism."
)


def scores(rows: Records, probability: float) -> NDArray[np.float64]:
    """Return u, in [-1, 1]."""
    least = min(probability, 1 - probability)
    weight = np.where(rows.treated, least / probability, -least / (1 - probability))
    return np.asarray(rows.outcome * weight)


def horvitz_thompson(probability: float) -> Comparator:
    """Return the comparator for a trial whose public probability of treatment this is.

    Raises
    ------
    ValueError
        A probability that is not strictly between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(
            f"probability is {probability}: that of treatment must lie strictly between 0 and 1"
        )
    least = min(probability, 1 - probability)

    def method(
        table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
    ) -> Estimate:
        rows = records(table, schema)
        u = scores(rows, probability)
        mean, variance = mean_of_bounded(u, -1.0, 1.0, epsilon, delta, rng)
        scale = rows.half / least
        return central(scale * mean, scale**2 * variance)

    return Comparator("noisy Horvitz-Thompson", "record", PROOF, method)
