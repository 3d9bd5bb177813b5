r"""A noisy histogram of arm by outcome, and the difference of its two means.

The outcome has its two levels, or ten equal bins between its public bounds, of which the middle
counts. With noisy counts c, negative ones kept,

.. math::
    \hat\tau = \frac{\sum_k v_k c_{1k}}{\sum_k c_{1k}} - \frac{\sum_k v_k c_{0k}}{\sum_k c_{0k}}

and its variance follows by the delta method, from sampling and noise.

**Privacy.** Replacing a record lowers one count by one and raises another: L1 sensitivity 2, L2
sensitivity :math:`\sqrt 2`, however many cells there are. Laplace or Gaussian noise, whichever is
smaller.

No covariate is used: in an observational study confounding stays. The histogram is the first step
of Javanmard, Mirrokni and Pouget-Abadie (2025), arXiv:2308.00957, there for labels.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comparators.contract import Comparator, Estimate, NoEstimateError, central
from comparators.features import codes, domain, records_of_codes
from comparators.noise import add_noise
from dpcausal_bayes.schema import Schema

__all__ = ["NOISY_HISTOGRAM", "counts"]

L1, L2 = 2.0, math.sqrt(2)
PROOF = "Counts of disjoint cells: L1 sensitivity 2, L2 sensitivity sqrt 2; one mechanism."


def counts(table: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    """Return the exact counts by arm and outcome level, shape (2, K)."""
    coded = codes(table, schema)
    levels = domain(schema)[schema.outcome.column]
    place = levels * coded[schema.arm.column] + coded[schema.outcome.column]
    return np.bincount(place, minlength=2 * levels).reshape(2, levels).astype(float)


def _method(
    table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
) -> Estimate:
    noisy, sd = add_noise(counts(table, schema), L1, L2, epsilon, delta, rng)
    total = noisy.sum(axis=1)
    if total.min() <= 0:
        raise NoEstimateError("an arm's noisy count is not positive")
    value, half = _values(schema)
    mean = noisy @ value / total
    away = (value - mean[:, None]) ** 2
    sampling = np.maximum((noisy * away).sum(axis=1), 0) / total**2
    privacy = sd**2 * away.sum(axis=1) / total**2
    return central(half * float(mean[1] - mean[0]), half**2 * float((sampling + privacy).sum()))


def _values(schema: Schema) -> tuple[NDArray[np.float64], float]:
    """Return the value of each outcome level, in [-1, 1], and half the range in units."""
    levels = domain(schema)[schema.outcome.column]
    coded = {name: np.zeros(levels, dtype=np.int64) for name in domain(schema)}
    rows = records_of_codes(coded | {schema.outcome.column: np.arange(levels)}, schema)
    return rows.outcome, rows.half


NOISY_HISTOGRAM = Comparator("noisy histogram", "record", PROOF, _method)
