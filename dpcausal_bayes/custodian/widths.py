r"""How precise the plug-in contrast of a causal release is, by closed form and from guesses alone.

Expected are :math:`m_{as} = n\, P(s)\, P(a)` records in arm a of stratum s, a mean outcome
:math:`\mu` everywhere and standard deviations :math:`\sigma_a`. An estimand averages over the units
of some arms; :math:`W_{as}` is the weight of those of arm a in stratum s, and
:math:`w_s = \sum_a W_{as}`.

**Privacy.** The contrast :math:`\sum_s w_s (t_{1s}/m_{1s} - t_{0s}/m_{0s})` of noisy sums t and
masses m has the gradient g in the released queries. With noise of standard deviation
:math:`\tau` and a the vector that sums all masses to n, which is public and so of no noise, the
variance is :math:`\tau^2 \left(g'g - (g'a)^2 / a'a\right)`.

**Sampling.** What would be left if the table were known:

.. math::
    \text{super:}\quad \sum_s w_s^2
    \left(\frac{\sigma_0^2}{m_{0s}} + \frac{\sigma_1^2}{m_{1s}}\right), \qquad
    \text{sample:}\quad \sum_s \left(W_{1s}^2 \sigma_0^2 + W_{0s}^2 \sigma_1^2\right)
    \left(\frac1{m_{0s}} + \frac1{m_{1s}}\right),

as for these very units only the outcomes under the other arm are unknown.

Strata are taken to have the same effect, so that it does not matter how well their weights are
known. Where the noise is not small beside the masses, the bounds of the outcome and the model's
priors say a good deal that the closed form knows nothing of: it is then too wide, and a plan
simulates. See `dpcausal_bayes.custodian.simulated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpcausal_bayes.custodian.guesses import Guesses
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["expected_masses", "normal_reach", "variances"]


def expected_masses(
    workload: CausalWorkload, group: int, n: int, guesses: Guesses
) -> NDArray[np.float64]:
    """Return the records to be expected by arm and stratum, shape (2, L).

    Parameters
    ----------
    workload : CausalWorkload
    group : int
    n : int
    guesses : Guesses
    """
    share = np.ones(1)
    for covariate in workload.covariates(group):
        levels = len(covariate.labels)
        of_level = guesses.shares.get(covariate.column, (1 / levels,) * levels)
        share = np.outer(share, of_level).ravel()  # the last covariate runs fastest
    return n * np.outer([1 - guesses.treated, guesses.treated], share)


def normal_reach(ci_prob: float) -> float:
    """Return the width of a central normal interval, in standard deviations."""
    return 2 * float(stats.norm.ppf((1 + ci_prob) / 2))


def variances(
    workload: CausalWorkload,
    group: int,
    masses: NDArray[np.float64],
    members: NDArray[np.bool_],
    assigned: Sequence[str],
    guesses: Guesses,
    noise: float,
    population: str,
) -> tuple[float, float]:
    """Return the variance owed to sampling and that owed to privacy, in the outcome's unit squared.

    Parameters
    ----------
    workload : CausalWorkload
    group : int
        The group whose strata are contrasted.
    masses : array, shape (2, L)
        From `expected_masses`.
    members : array of bool, shape (L,)
        The strata that the estimand is about.
    assigned : sequence of str
        The arms whose units it averages over: ``"control"``, ``"treated"``.
    guesses : Guesses
    noise : float
        Standard deviation of the noise of each of the group's queries, in records.
    population : "super" or "sample"

    Returns
    -------
    sampling, privacy : float
    """
    counted = np.array([[arm in assigned] for arm in ("control", "treated")])
    units = masses * counted * members
    units = units / units.sum()
    weight = units.sum(axis=0)
    variance = np.square(guesses.sd)[:, None]
    if population == "super":
        sampling = float(np.sum(weight**2 * variance / masses))
    else:  # units of an arm lack the other arm's outcomes
        sampling = float(np.sum(units[::-1] ** 2 * variance * np.sum(1 / masses, axis=0)))
    outcome: Any = workload.schema.outcome
    if workload.binary:
        of_mean = np.array(outcome.values) - guesses.mean
        of_total = np.ones(2)
    else:
        of_mean = np.array([outcome.centre - guesses.mean, outcome.half])
        of_total = np.array([1.0, 0.0])
    gradient = (np.array([[-1.0], [1.0]]) * weight / masses)[..., None] * of_mean
    known = float(np.sum(gradient * of_total)) ** 2 / (masses.size * float(np.sum(of_total)))
    return sampling, noise**2 * (float(np.sum(gradient**2)) - known)
