r"""Differentially private covariate balancing: private weights, then a private weighted contrast.

*Stage one.* The logit of treatment is :math:`f = \theta'z`, with design rows z of length at most 1.
The covariate balancing loss for the average effect (Zhao 2019),

.. math::
    \ell = t\,(e^{-f} - f) + (1 - t)\,(e^{f} + f),

is convex, and its minimum is where :math:`\sum t z / e = \sum (1-t) z / (1-e)`: weighted arms with
the same covariates. Beyond :math:`f = \mp R`, where a weight would pass 1/0.1, it goes on as a
straight line, so that :math:`|\nabla\ell| \le \zeta = 1 + e^R` and its curvature is at most
:math:`h = e^R`. What is released is the minimiser of
:math:`\sum_i \ell_i + \tfrac{k}{2} |\theta|^2 + b'\theta`, b normal with standard deviation s.

*Stage two.* With e from that :math:`\theta`, moved into [0.1, 0.9], the mean of
:math:`y\,(t/e - (1-t)/(1-e))`, y scaled to [-1, 1], and its mean square
(`comparators.noise.mean_of_bounded`). Scores lie within the greatest weight that any covariates can
have. The interval counts sampling and the second stage's noise. That of the first stage, whose
effect falls faster with n than sampling does, is left out: in small tables it is too short.

**Privacy.** Half of (epsilon, delta) for each stage, added up. Stage one: :math:`\theta` and b
determine each other, :math:`b = -\sum \nabla\ell_i(\theta) - k\theta`, so the ratio of the
densities of :math:`\theta` for two tables has two factors. That of the normal densities: b moves by
:math:`D = \nabla\ell(\theta) - \nabla\ell'(\theta)`, within the plane of z and z', at most
:math:`2\zeta` long, so its logarithm is at most :math:`(2 \cdot 2\zeta\, |b_{plane}| +
4\zeta^2)/2s^2`; and :math:`|b_{plane}| \le s \sqrt{2 \log(1/\delta)}` but with probability
:math:`\delta`. That of the Jacobians, :math:`\det(H + kI)`: each record adds a matrix of rank one,
at most h, so its logarithm is at most :math:`\log(1 + h/k)`. A quarter of the stage's epsilon is
for the second, which gives k, and the rest for the first, which gives s.

Ohnishi and Awan (2024), "Differentially private covariate balancing causal inference",
arXiv:2410.14789: a two-stage weighting estimator by private empirical risk minimisation. The
perturbation of the objective is that of Kifer, Smith and Thakurta (2012), with the proof above for
replacing a record.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from comparators.contract import Comparator, Estimate, central
from comparators.features import Records, box, records
from comparators.noise import mean_of_bounded
from dpcausal_bayes.schema import Schema

__all__ = ["COVARIATE_BALANCING", "loss_terms", "perturbation", "perturbed_minimiser"]

Array = NDArray[np.float64]

OVERLAP = 0.1
REACH = math.log(1 / OVERLAP - 1)  # R: the logit at which a weight is 1/0.1
SLOPE = 1 + math.exp(REACH)  # zeta
CURVATURE = math.exp(REACH)  # h
PROOF = (
    "Perturbed convex balancing objective (gradients at most 10, curvature at most 9, proof in its "
    "module), then a bounded weighted mean; half the budget each, added up."
)


def loss_terms(linear: Array, treated: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Return the loss of each record, its slope and its curvature in the logit."""
    sign = np.where(treated, -1.0, 1.0)
    s = sign * linear  # the loss is exp(s) + s up to R, then a line
    inside = np.minimum(s, REACH)
    grown = np.exp(inside)
    value = grown + s + grown * (s - inside)
    return value, sign * (1 + grown), np.where(s < REACH, grown, 0.0)


def perturbation(epsilon: float, delta: float) -> tuple[float, float]:
    """Return the noise's standard deviation s and the penalty k of stage one."""
    penalty = CURVATURE / math.expm1(epsilon / 4)
    left = 3 * epsilon / 4
    # left = (4 zeta s root + 4 zeta^2) / (2 s^2), solved for s
    root = math.sqrt(-2 * math.log(delta))
    sd = SLOPE * (root + math.sqrt(root**2 + 2 * left)) / left
    return sd, penalty


def perturbed_minimiser(rows: Records, noise: Array, penalty: float) -> Array:
    """Return the coefficients that minimise the perturbed objective."""
    x = rows.design

    def objective(theta: Array) -> tuple[float, Array]:
        value, slope, _ = loss_terms(x @ theta, rows.treated)
        whole = value.sum() + penalty / 2 * theta @ theta + noise @ theta
        return float(whole), x.T @ slope + penalty * theta + noise

    start = np.zeros(x.shape[1])
    return np.asarray(minimize(objective, start, jac=True, method="L-BFGS-B", tol=1e-12).x)


def _method(
    table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
) -> Estimate:
    rows = records(table, schema)
    sd, penalty = perturbation(epsilon / 2, delta / 2)
    theta = perturbed_minimiser(rows, rng.normal(0, sd, rows.design.shape[1]), penalty)
    e = np.clip(expit(rows.design @ theta), OVERLAP, 1 - OVERLAP)
    score = rows.outcome * np.where(rows.treated, 1 / e, -1 / (1 - e))
    most = _greatest_weight(theta, schema)
    mean, variance = mean_of_bounded(score, -most, most, epsilon / 2, delta / 2, rng)
    return central(rows.half * mean, rows.half**2 * variance)


def _greatest_weight(theta: Array, schema: Schema) -> float:
    """Return the greatest weight that any record can have, its covariates within their ranges."""
    ends = np.array([theta * end for end in box(schema)])
    logit = np.array([ends.min(axis=0).sum(), ends.max(axis=0).sum()])
    least, most = np.clip(expit(logit), OVERLAP, 1 - OVERLAP)
    return float(max(1 / least, 1 / (1 - most)))


COVARIATE_BALANCING = Comparator("DP covariate balancing", "record", PROOF, _method)
