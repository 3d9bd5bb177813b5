"""What a causal release would be worth to its analyst, before any data are touched."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpcausal_bayes.custodian.candidates import Estimand, Question, named, own
from dpcausal_bayes.custodian.guesses import guesses_for
from dpcausal_bayes.custodian.plans import Plan
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.laws import number
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["plan"]

POPULATIONS = ("super", "sample")
NOISES = ("least", "Gaussian")


@dataclass(frozen=True)
class _Everybody:
    """The average treatment effect: the default, as this half has no estimands of its own."""

    short: str = "ate"
    assigned: tuple[str, ...] = ("control", "treated")
    by: str | None = None


def plan(
    workload: CausalWorkload,
    *,
    n: int,
    epsilon: float | Sequence[float],
    delta: float | None = None,
    noise: str = "least",
    candidates: Sequence[Sequence[str] | GramWorkload] | None = None,
    estimands: Sequence[Estimand] = (_Everybody(),),
    population: str = "super",
    treated: float = 0.5,
    mean: float | None = None,
    sd: float | tuple[float, float] | None = None,
    shares: Mapping[str, Sequence[float]] | None = None,
    confounding: Mapping[str, float] | None = None,
    covariate_sd: Mapping[str, float] | None = None,
    ci_prob: float = 0.95,
    random_seed: int = 0,
) -> Plan:
    r"""Predict how wide the analyst's interval will be, over epsilon and over what is released.

    **No data are touched**: everything follows from the workload, from n, which is public, and from
    guesses, which are to be made from public knowledge. A few releases of the guessed study are
    simulated and the analyst's default model is fitted to them, by a quick approximation that knows
    its priors (see `dpcausal_bayes.custodian.simulated`); what is owed to sampling is by closed
    form (`dpcausal_bayes.custodian.widths`).

    More strata nearly always cost precision, and so do second moments (`GramWorkload`, by closed
    form: `dpcausal_bayes.custodian.gram_widths`); what they are for is to remove confounding, or to
    answer for subgroups. Without a guess of ``confounding`` a plan cannot weigh that, and its best
    choice is simply the narrowest interval. With one the best choice has the least expected error,
    of spread and of the bias that is left: none by strata of levels or by a regression's number, if
    the outcome is linear in it; of a number cut in bins what is left within them, as if it were
    normal and the outcome linear in it (Cochran 1968: five bins leave a tenth).

    Parameters
    ----------
    workload : CausalWorkload
        Schema and weights; its strata are one of the candidates.
    n : int
        Number of records.
    epsilon : float or sequence of float
        Budgets to compare.
    delta : float, optional
        Needed by several groups and by second moments.
    noise : "least" or "Gaussian"
        By default every choice is planned with the least noise that epsilon and delta allow, as
        `release_moments` takes it: one group of strata with Laplace's, which spends no delta; the
        rest with Gaussian noise. The other way is for releases whose mechanism is Gaussian.
    candidates : sequence of (sequence of str or GramWorkload), optional
        Choices: strata, each a list of covariates, ``[]`` for one stratum; or second moments of the
        same arm and outcome. By default no strata,
        each of the workload's covariates alone, and the workload's own, as far as they can answer
        for all estimands. A workload of several groups is planned as it is, group by group.
    estimands : sequence of ATE, ATT or ATC
        The analyst's own objects; with ``by``, every candidate must hold that covariate.
    population : "super" or "sample"
        Whose effect: that in the population, or that on these very units.
    treated : float
        Guess: share of treated records.
    mean : float, optional
        Guess: mean of the outcome, in its own unit. By default the middle of its range.
    sd : float or (float, float), optional
        Guess: standard deviation of the outcome within strata, in its own unit; or those of the
        controls and of the treated. By default a quarter of the range. That of a binary outcome
        follows from its mean and is not to be given.
    shares : mapping of str to sequence of float, optional
        Guesses: for a covariate, the share of each of its levels or bins, in the order declared
        (and of ``other``, last). By default all are equally likely, and covariates independent.
    confounding : mapping of str to float, optional
        Guesses: for a covariate, how far the effect would be off, in the outcome's unit, if it is
        not adjusted for. What is left by several is added up. By default nothing is.
    covariate_sd : mapping of str to float, optional
        Guesses: standard deviations of numeric covariates of second-order candidates, in their own
        units. By default a sixth of the range.
    ci_prob : float
        Probability of the interval.
    random_seed : int
        Of the simulated releases; widths move by a few percent with it.

    Returns
    -------
    Plan
        ``.table`` with a row for each epsilon, candidate and estimand; ``.best``; ``.figure()``.

    Raises
    ------
    TypeError, ValueError
        Bad input: the message names the argument.

    References
    ----------
    Cochran (1968), "The effectiveness of adjustment by subclassification in removing bias in
    observational studies".

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(
    ...     arm=Arm("treat", control=0, treated=1), outcome=Bounded("re78", 0, 40_000),
    ...     covariates=[Categories("nodegree", [0, 1]), Binned("age", [17, 25, 35, 56])])
    >>> workload = CausalWorkload(schema, strata=["nodegree", "age"])
    >>> planned = plan(workload, n=445, epsilon=[0.5, 1, 2], delta=5e-6, mean=5_000, sd=7_000)
    >>> planned.best["strata"].tolist()
    ['none', 'none', 'none']
    >>> float(planned.best["width"].iloc[0].round(-3))  # dollars, at epsilon 0.5
    6000.0
    """
    if not isinstance(workload, CausalWorkload):
        raise TypeError(f"workload is a {type(workload).__name__}: it must be a CausalWorkload")
    size = _size(n)
    if population not in POPULATIONS:
        raise ValueError(f'population is {population!r}: it must be "super" or "sample"')
    if not 0 < number(ci_prob, "ci_prob") < 1:
        raise ValueError(f"ci_prob is {ci_prob}: it must lie strictly between 0 and 1")
    wanted, budgets = _wanted(estimands), _budgets(epsilon)
    chosen = own(workload, wanted) if candidates is None else named(workload, candidates)
    guesses = guesses_for(
        workload.schema,
        treated,
        mean,
        sd,
        shares,
        confounding,
        covariate_sd,
        [field for candidate in chosen for field in candidate.fields],
    )
    delta = None if delta is None else number(delta, "delta")
    if noise not in NOISES:
        raise ValueError(f'noise is {noise!r}: it must be "least" or "Gaussian"')
    if noise == "Gaussian" and delta is None:
        raise ValueError('delta is None: noise="Gaussian" needs one, above 0 and at most 1/2')
    asked = Question(wanted, size, budgets, delta, noise, population, float(ci_prob))
    rows = [row for candidate in chosen for row in candidate.rows(asked, guesses, random_seed)]
    table = pd.DataFrame(rows).sort_values("epsilon", kind="stable", ignore_index=True)
    error = np.hypot(table["sd"], table["confounding_left"])
    table["best"] = error == error.groupby([table["epsilon"], table["estimand"]]).transform("min")
    table.attrs = {
        "n": size,
        "delta": 0.0 if delta is None else delta,
        "population": population,
        "ci_prob": float(ci_prob),
        "outcome": workload.schema.outcome.column,
    }
    return Plan(table=table, guesses=guesses)


def _size(n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, numbers.Integral) or n < 2:
        raise ValueError(f"n is {n!r}: it must be a whole number of records, 2 or more")
    return int(n)


def _budgets(epsilon: Any) -> list[float]:
    given = [epsilon] if isinstance(epsilon, numbers.Real) else epsilon
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"epsilon is {epsilon!r}: give a number or a list of numbers")
    found = [number(one, "epsilon") for one in given]
    if not found or min(found) <= 0:
        raise ValueError(f"epsilon is {epsilon!r}: budgets must be above 0, and at least one")
    return sorted(set(found))


def _wanted(estimands: Any) -> list[Estimand]:
    """Check that estimands say whom they average over, as the analyst's objects do."""
    if isinstance(estimands, str) or not isinstance(estimands, Sequence) or not len(estimands):
        raise TypeError("estimands must be a list such as [ATE(), ATT(by='age')]")
    for one in estimands:
        if isinstance(one, type | str) or not hasattr(one, "assigned") or not hasattr(one, "by"):
            raise TypeError(
                f"estimands holds {one!r}: it must be one of the analyst's objects, such as ATE()"
            )
    return list(estimands)
