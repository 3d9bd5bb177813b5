r"""Augmented inverse probability weighting, without privacy: what the data can say.

.. math::
    \psi = \mu_1(x) - \mu_0(x) + \frac{t\,(y - \mu_1(x))}{e(x)}
           - \frac{(1-t)(y - \mu_0(x))}{1 - e(x)}, \qquad \hat\tau = \bar\psi

with least squares in each arm for :math:`\mu_t` and a logistic regression for e, moved into
[0.05, 0.95]. Its standard error is that of a mean of :math:`\psi`.

**Not private.** It is also the analysis that is run, as if they were real, on synthetic tables.

Robins, Rotnitzky and Zhao (1994), "Estimation of regression coefficients when some regressors are
not always observed".
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from comparators.contract import Comparator, Estimate, NoEstimateError, central
from comparators.features import Records, records
from dpcausal_bayes.schema import Schema

__all__ = ["AIPW", "doubly_robust"]

OVERLAP = 0.05
RIDGE = 1e-6  # of a record's weight: for columns that the rows do not tell apart
NEWTON_STEPS = 50


def doubly_robust(rows: Records) -> Estimate:
    """Return the estimate and its interval from rows taken at face value.

    Raises
    ------
    NoEstimateError
        An arm with fewer than two records.
    """
    t, y, x = rows.treated, rows.outcome, rows.design
    if min(t.sum(), (~t).sum()) < 2:
        raise NoEstimateError("an arm has fewer than two records")
    fitted = [_least_squares(x[t == arm], y[t == arm], x) for arm in (False, True)]
    e = np.clip(expit(x @ _logistic(x, t)), OVERLAP, 1 - OVERLAP)
    score = fitted[1] - fitted[0] + np.where(t, (y - fitted[1]) / e, -(y - fitted[0]) / (1 - e))
    variance = float(score.var(ddof=1)) / len(score)
    return central(rows.half * float(score.mean()), rows.half**2 * variance)


def _least_squares(
    x: NDArray[np.float64], y: NDArray[np.float64], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    gram = x.T @ x + RIDGE * np.eye(x.shape[1])
    return np.asarray(at @ np.linalg.solve(gram, x.T @ y))


def _logistic(x: NDArray[np.float64], t: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the coefficients by Newton's method, steps halved while they do not pay."""
    ridge = 1e-3  # keeps separated arms finite

    def loss(beta: NDArray[np.float64]) -> float:
        linear = x @ beta
        return float(np.logaddexp(0, linear).sum() - linear[t].sum() + ridge / 2 * beta @ beta)

    beta = np.zeros(x.shape[1])
    for _ in range(NEWTON_STEPS):
        p = expit(x @ beta)
        gradient = x.T @ (p - t) + ridge * beta
        hessian = (x * (p * (1 - p))[:, None]).T @ x + ridge * np.eye(len(beta))
        step = np.linalg.solve(hessian, gradient)
        while loss(beta - step) > loss(beta) + 1e-12 * abs(loss(beta)):
            step = step / 2
        beta = beta - step
        if np.abs(step).max() < 1e-9:
            break
    return beta


def _method(
    table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
) -> Estimate:
    return doubly_robust(records(table, schema))


AIPW = Comparator("AIPW, not private", "nothing", "none", _method)
