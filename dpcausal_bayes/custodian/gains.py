r"""What a further group would gain an analyst's estimate of the ATE, net of the noise it costs.

With W the sum over records of :math:`p(1 - p)`, an estimate's error e counts for W e records. Let
:math:`e_0` be the standard deviation that is to be expected without the group and :math:`e_1` that
with it, by the closed form of `dpcausal_bayes.custodian.widths`, sampling and noise together. With
B the confounding score of the group (`dpcausal_bayes.custodian.scores`), which is W times what it
moves the estimate by,

.. math:: u = \sqrt{B^2 + (W e_0)^2} - W e_1

is the root mean squared error that it saves. As :math:`e_0`, :math:`e_1` and W follow from what is
believed already, from noisy sums and public facts, only B depends on the table; and u moves by no
more than B does.

What is believed also says where outcomes lie: for the score they are clipped to a few standard
deviations around the arms' means, so that a schema with wide bounds costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.custodian.beliefs import Law
from dpcausal_bayes.custodian.guesses import guesses_for
from dpcausal_bayes.custodian.scores import Residuals
from dpcausal_bayes.custodian.widths import expected_masses, variances
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["Outlook", "outlook"]

REACH = 2.5  # standard deviations around the arms' means that outcomes are clipped at
MOST_OUTCOME = 1.0  # standard deviations that the mean of a stratum's residuals is clipped at
MOST_ARM = 0.25  # that of the arm is clipped at


@dataclass(frozen=True)
class Outlook:
    """What noisy sums say of a study, as far as choosing a group needs it.

    Attributes
    ----------
    schema : Schema
        With an outcome that is clipped to where it lies.
    residuals : Residuals
        Of that outcome, scaled to [-1, 1].
    weight : float
        W.
    n : int
    treated, mean : float
        Share of treated; mean outcome, in its unit.
    sd : tuple of float
        Of the outcome, by arm, in its unit.
    """

    schema: Schema
    residuals: Residuals
    weight: float
    n: int
    treated: float
    mean: float
    sd: tuple[float, float]

    def error(self, workload: CausalWorkload, scale: float) -> float:
        """Return W e: the error to be expected with the strata of a workload's one group.

        Parameters
        ----------
        workload : CausalWorkload
            With the whole range of the outcome.
        scale : float
            Of the noise, in records.
        """
        noise = scale / workload.group_weights[0]
        bounded = isinstance(workload.schema.outcome, Bounded)
        sd = self.sd if bounded else None
        guesses = guesses_for(workload.schema, self.treated, self.mean, sd, None, None)
        masses = expected_masses(workload, 0, self.n, guesses)
        everybody = np.ones(masses.shape[1], dtype=bool)
        found = variances(
            workload, 0, masses, everybody, ("control", "treated"), guesses, noise, "super"
        )
        return self.weight * math.sqrt(sum(found)) / abs(_half(self.schema))

    def most_gain(self, before: float, after: float) -> float:
        """Return the gain that no table exceeds: whether a group can pay at all."""
        most_score = self.n * self.residuals.most_arm * self.residuals.most_outcome
        return math.hypot(most_score, before) - after


def outlook(schema: Schema, law: Law, n: int) -> Outlook:
    """Say what a believed law of a record means for choosing a group.

    Parameters
    ----------
    schema : Schema
    law : Law
        By arm and stratum of what is adjusted for.
    n : int

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 100))
    >>> law = Law(np.array([[0.75], [0.25]]), np.array([[0.0], [0.1]]), np.array([0.01, 0.01]))
    >>> seen = outlook(schema, law, 1000)
    >>> seen.schema.outcome, round(seen.weight, 1), round(seen.residuals.influence, 2)
    (Bounded(column='y', low=37.5, high=67.5), 187.5, 0.62)
    """
    share = law.share.sum(axis=1)
    means = (law.share * law.mean).sum(axis=1) / share
    spread = law.dispersion[:, None] * (1 - law.mean**2) + (law.mean - means[:, None]) ** 2
    sd = np.sqrt((law.share * spread).sum(axis=1) / share)
    narrow, middle, half = _narrowed(schema, means, float(sd.max()))
    propensity = law.share[1] / law.share.sum(axis=0)
    residuals = Residuals(
        propensity=propensity,
        mean=np.clip((law.mean - middle) / half, -1, 1),
        low=-1.0,
        high=1.0,
        most_arm=MOST_ARM,
        most_outcome=MOST_OUTCOME * float(sd.max()) / half,
    )
    centre, whole = _centre(schema), _half(schema)
    mean = float(share @ means)
    # the law's own may be a last digit beyond what the bounds allow
    sd = np.minimum(sd, math.sqrt(1 - mean**2))
    return Outlook(
        schema=narrow,
        residuals=residuals,
        weight=n * float(np.sum(law.share.sum(axis=0) * propensity * (1 - propensity))),
        n=n,
        treated=float(share[1]),
        mean=centre + whole * mean,
        sd=(abs(whole) * float(sd[0]), abs(whole) * float(sd[1])),
    )


def _narrowed(schema: Schema, means: NDArray[np.float64], sd: float) -> tuple[Schema, float, float]:
    """Return the schema with narrower bounds, and their middle and half on the scale [-1, 1]."""
    outcome = schema.outcome
    if not isinstance(outcome, Bounded):
        return schema, 0.0, 1.0
    low = max(float(means.min()) - REACH * sd, -1.0)
    high = min(float(means.max()) + REACH * sd, 1.0)
    ends = (outcome.centre + outcome.half * end for end in (low, high))
    clipped = Schema(
        arm=schema.arm,
        outcome=Bounded(outcome.column, *ends),
        covariates=schema.covariates,
    )
    return clipped, (low + high) / 2, (high - low) / 2


def _centre(schema: Schema) -> float:
    outcome: Any = schema.outcome
    return outcome.centre if isinstance(outcome, Bounded) else sum(outcome.values) / 2


def _half(schema: Schema) -> float:
    """Return half of the outcome's range, negative if the second of two levels is the smaller."""
    outcome: Any = schema.outcome
    if isinstance(outcome, Bounded):
        return float(outcome.half)
    return float(outcome.values[1] - outcome.values[0]) / 2
