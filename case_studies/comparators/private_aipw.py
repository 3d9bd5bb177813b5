r"""Doubly robust output perturbation, after PrivATE, with a sensitivity that holds.

The paper's three steps are a private AIPW estimate by output perturbation, a private variance, and
an interval that counts both. What a record can do to a mean of scores
(see `comparators.aipw`) is bounded only if the nuisance functions in them are public. So, here:

1. The rows are split in two by their number. On the first half all nuisance functions are released
   at once: second moments of the design and the outcome by arm, which make :math:`\mu_t`, and the
   coefficients of a ridge-penalised logistic regression, which make e, moved into [0.1, 0.9].
2. On the second half scores are averaged. Their greatest and least value over *all possible
   records* follows from the public functions by interval arithmetic over the covariates' ranges.
   The mean and the mean square are released (`comparators.noise.mean_of_bounded`).
3. The interval is normal, with sampling variance from the mean square, and the noise's.

**Privacy.** A record is in one half only, and which one is public, so each half may spend the whole
budget. First half, with design rows z of length at most 1 and :math:`|y| \le 1`: of one record
:math:`(zz', zy)` has squared length :math:`|z|^4 + |z|^2 y^2 \le 2`; two records of one arm have
inner product :math:`(z \cdot z')^2 + yy'\, z \cdot z' \ge -1/4`, so that the L2 sensitivity is at
most :math:`\sqrt{2 + 2 + 1/2} = 3/\sqrt 2` (two arms: 2). The minimiser of the mean logistic loss
plus :math:`\lambda |\theta|^2 / 2` has L2 sensitivity :math:`2/(n\lambda)` (Chaudhuri, Monteleoni
and Sarwate 2011), and :math:`\lambda = n^{-1/2}`. Both in units of their sensitivity are one query
of sensitivity :math:`\sqrt 2` with Gaussian noise. Second half: a bounded mean.

Schröder, Hartenstein and Feuerriegel (2025), "PrivATE: Differentially private confidence intervals
for average treatment effects", arXiv:2505.21641. How they bound the sensitivity is not followed
here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from comparators.contract import Comparator, Estimate, central
from comparators.features import Records, box, records
from comparators.noise import mean_of_bounded
from dpcausal_bayes.gaussian_accounting import gaussian_scale_for
from dpcausal_bayes.schema import Schema

__all__ = ["PRIVATE_AIPW", "Nuisances", "logistic", "moments", "score_range", "scores"]

Array = NDArray[np.float64]

OVERLAP = 0.1
MOMENT_SENSITIVITY = 3 / math.sqrt(2)
PROOF = (
    "Nuisances from one half, Gaussian noise on moments (L2 3/sqrt 2) and ridge logistic "
    "coefficients (L2 2/(n lambda)) together; bounded scores averaged on the other half; parallel "
    "composition."
)


class Nuisances(NamedTuple):
    """Public functions of the design: coefficients (2, p) of the outcome by arm, (p,) of the logit.

    Predicted outcomes are moved into [-1, 1], propensities into [0.1, 0.9].
    """

    outcome: Array
    logit: Array

    def predict(self, design: Array) -> tuple[Array, Array]:
        """Return mean outcomes (2, n) and propensities (n,)."""
        mean = np.clip(self.outcome @ design.T, -1, 1)
        return mean, np.clip(expit(design @ self.logit), OVERLAP, 1 - OVERLAP)


def moments(rows: Records) -> Array:
    """Return, by arm, upper triangle of the sum of z z' and the sum of z y: shape (2, q)."""
    upper = np.triu_indices(rows.design.shape[1])
    found = []
    for arm in (False, True):
        x, y = rows.design[rows.treated == arm], rows.outcome[rows.treated == arm]
        found.append(np.concatenate([(x.T @ x)[upper], x.T @ y]))
    return np.array(found)


def logistic(rows: Records, penalty: float) -> Array:
    """Return the minimiser of the mean logistic loss plus half the penalty times its length²."""
    x, sign = rows.design, np.where(rows.treated, 1.0, -1.0)

    def loss(beta: Array) -> tuple[float, Array]:
        margin = sign * (x @ beta)
        slope = x.T @ (-sign * expit(-margin)) / len(x)
        value = np.logaddexp(0, -margin).mean() + penalty / 2 * beta @ beta
        return float(value), slope + penalty * beta

    start = np.zeros(x.shape[1])
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", tol=1e-12).x)


def nuisances(rows: Records, epsilon: float, delta: float, rng: np.random.Generator) -> Nuisances:
    """Release all nuisance functions from some rows."""
    n, p = rows.design.shape
    penalty = n**-0.5
    unit = math.sqrt(2) * gaussian_scale_for(epsilon, delta)
    sd = unit * MOMENT_SENSITIVITY
    noisy = moments(rows)
    noisy = noisy + rng.normal(0, sd, noisy.shape)
    logit = logistic(rows, penalty) + rng.normal(0, unit * 2 / (n * penalty), p)
    upper = np.triu_indices(p)
    outcome = []
    for vector in noisy:
        gram = np.zeros((p, p))
        gram[upper] = vector[:-p]
        gram = gram + np.triu(gram, 1).T
        values, axes = np.linalg.eigh(gram)
        # what the noise drowns is shrunk: a ridge of the noise's own size
        safe = np.maximum(values, 0) + sd * math.sqrt(p)
        outcome.append(axes @ ((axes.T @ vector[-p:]) / safe))
    return Nuisances(np.array(outcome), logit)


def scores(rows: Records, known: Nuisances) -> Array:
    """Return the doubly robust scores, on the scale of [-1, 1]."""
    (control, treated), e = known.predict(rows.design)
    t, y = rows.treated, rows.outcome
    return treated - control + np.where(t, (y - treated) / e, -(y - control) / (1 - e))


def score_range(known: Nuisances, low: Array, high: Array) -> tuple[float, float]:
    """Return bounds on the score of any record whose design lies in a box.

    A treated record's score is mu_1 (1 - 1/e) + y/e - mu_0, which falls with both means and is
    extreme at the smallest e; a control's is mu_1 + mu_0 (1/(1-e) - 1) - y/(1-e).
    """

    def reach(coefficient: Array) -> tuple[float, float]:
        ends = np.array([coefficient * low, coefficient * high])
        return float(ends.min(axis=0).sum()), float(ends.max(axis=0).sum())

    (low_0, high_0), (low_1, high_1) = (np.clip(reach(c), -1, 1) for c in known.outcome)
    least, most = np.clip(expit(reach(known.logit)), OVERLAP, 1 - OVERLAP)
    top = max(low_1 - low_0 + (1 - low_1) / least, high_1 - high_0 + (1 + high_0) / (1 - most))
    end = min(high_1 - high_0 - (1 + high_1) / least, low_1 - low_0 - (1 - low_0) / (1 - most))
    return float(end), float(top)


def _method(
    table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
) -> Estimate:
    first = np.arange(len(table)) % 2 == 0
    rows = records(table, schema)
    known = nuisances(_rows(rows, first), epsilon, delta, rng)
    low, high = score_range(known, *box(schema))
    score = scores(_rows(rows, ~first), known)
    mean, variance = mean_of_bounded(score, low, high, epsilon, delta, rng)
    return central(rows.half * mean, rows.half**2 * variance)


def _rows(rows: Records, chosen: NDArray[np.bool_]) -> Records:
    return Records(rows.treated[chosen], rows.outcome[chosen], rows.design[chosen], rows.half)


PRIVATE_AIPW = Comparator("PrivATE", "record", PROOF, _method)
