"""What a causal release would be worth to its analyst, before any data are touched."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from dpcausal_bayes.custodian.guesses import Guesses, guesses_for
from dpcausal_bayes.custodian.plans import Plan
from dpcausal_bayes.custodian.predictions import Asked, Predictor
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.laws import number
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["plan"]

POPULATIONS = ("super", "sample")


class Estimand(Protocol):
    """What a plan reads of the analyst's `ATE`, `ATT` and `ATC`: whom they average over."""

    @property
    def short(self) -> str:
        """Name, such as ``"ate"``."""

    @property
    def assigned(self) -> tuple[str, ...]:
        """The arms whose units are averaged over."""

    @property
    def by(self) -> str | None:
        """The covariate whose levels each have an effect, if any."""


@dataclass(frozen=True)
class _Everybody:
    """The average treatment effect: the default, as this half has no estimands of its own."""

    short: str = "ate"
    assigned: tuple[str, ...] = ("control", "treated")
    by: str | None = None


@dataclass(frozen=True)
class _Candidate:
    """One group of strata of one workload."""

    label: str
    workload: CausalWorkload
    group: int

    @property
    def columns(self) -> tuple[str, ...]:
        return self.workload.groups[self.group]


def plan(
    workload: CausalWorkload,
    *,
    n: int,
    epsilon: float | Sequence[float],
    delta: float,
    candidates: Sequence[Sequence[str]] | None = None,
    estimands: Sequence[Estimand] = (_Everybody(),),
    population: str = "super",
    treated: float = 0.5,
    mean: float | None = None,
    sd: float | tuple[float, float] | None = None,
    shares: Mapping[str, Sequence[float]] | None = None,
    confounding: Mapping[str, float] | None = None,
    ci_prob: float = 0.95,
    random_seed: int = 0,
) -> Plan:
    r"""Predict how wide the analyst's interval will be, over epsilon and over choices of strata.

    **No data are touched**: everything follows from the workload, from n, which is public, and from
    guesses, which are to be made from public knowledge. A few releases of the guessed study are
    simulated and the analyst's default model is fitted to them, by a quick approximation that knows
    its priors (see `dpcausal_bayes.custodian.simulated`); what is owed to sampling is by closed
    form (`dpcausal_bayes.custodian.widths`).

    More strata nearly always cost precision; what they are for is to remove confounding, or to
    answer for subgroups. Without a guess of ``confounding`` a plan cannot weigh that, and its best
    choice is simply the narrowest interval.

    Parameters
    ----------
    workload : CausalWorkload
        Schema and weights; its strata are one of the candidates.
    n : int
        Number of records.
    epsilon : float or sequence of float
        Budgets to compare.
    delta : float
    candidates : sequence of sequence of str, optional
        Choices of strata, each a list of covariates; ``[]`` is one stratum. By default no strata,
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
        not among the strata. What is left by several is added up. By default nothing is.
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
    7000.0
    """
    if not isinstance(workload, CausalWorkload):
        raise TypeError(f"workload is a {type(workload).__name__}: it must be a CausalWorkload")
    size = _size(n)
    if population not in POPULATIONS:
        raise ValueError(f'population is {population!r}: it must be "super" or "sample"')
    if not 0 < number(ci_prob, "ci_prob") < 1:
        raise ValueError(f"ci_prob is {ci_prob}: it must lie strictly between 0 and 1")
    guesses = guesses_for(workload.schema, treated, mean, sd, shares, confounding)
    wanted = _wanted(estimands)
    chosen = _own(workload, wanted) if candidates is None else _candidates(workload, candidates)
    budgets = _budgets(epsilon)
    rows = [
        row
        for candidate in chosen
        for row in _rows(
            candidate, wanted, size, budgets, delta, guesses, population, ci_prob, random_seed
        )
    ]
    table = pd.DataFrame(rows).sort_values("epsilon", kind="stable", ignore_index=True)
    error = np.hypot(table["sd"], table["confounding_left"])
    table["best"] = error == error.groupby([table["epsilon"], table["estimand"]]).transform("min")
    table.attrs = {
        "n": size,
        "delta": float(delta),
        "population": population,
        "ci_prob": float(ci_prob),
        "outcome": workload.schema.outcome.column,
    }
    return Plan(table=table, guesses=guesses)


def _rows(
    candidate: _Candidate,
    estimands: Sequence[Estimand],
    n: int,
    budgets: Sequence[float],
    delta: float,
    guesses: Guesses,
    population: str,
    ci_prob: float,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Predict every estimand of one candidate at every budget."""
    workload, group = candidate.workload, candidate.group
    asked = [part for one in estimands for part in _parts(candidate, one)]
    scales = [
        GaussianMechanism.calibrated(workload, epsilon=budget, delta=delta).scale
        for budget in budgets
    ]
    predictor = Predictor(workload, group, n, guesses, seed)
    left = sum(bias for name, bias in guesses.confounding.items() if name not in candidate.columns)
    found = predictor.predict(asked, scales, population, ci_prob)
    for budget, scale, predictions in zip(budgets, scales, found, strict=True):
        for one, prediction in zip(asked, predictions, strict=True):
            yield {
                "epsilon": budget,
                "strata": candidate.label,
                "n_strata": len(one.members),
                "estimand": one.name,
                **prediction._asdict(),
                "confounding_left": float(left),
                "smallest_cell": float(predictor.masses[:, one.members].min()),
                "noise_in_records": scale / workload.group_weights[group],
            }


def _parts(candidate: _Candidate, estimand: Estimand) -> Iterator[Asked]:
    """Return each number that an estimand stands for."""
    factors = candidate.workload.factors(candidate.group)
    if estimand.by is None:
        everywhere = np.ones(candidate.workload.n_strata(candidate.group), dtype=bool)
        yield Asked(estimand.short, everywhere, estimand.assigned)
        return
    if estimand.by not in factors:
        raise ValueError(
            f"estimands ask for {estimand.short} by {estimand.by!r}, which strata of "
            f"{list(factors)} cannot tell apart: leave out that candidate or that estimand"
        )
    labels = np.array(factors[estimand.by])
    for label in dict.fromkeys(factors[estimand.by]):
        yield Asked(f"{estimand.short}[{label}]", labels == label, estimand.assigned)


def _own(workload: CausalWorkload, estimands: Sequence[Estimand]) -> list[_Candidate]:
    """Return the choices that a workload suggests, and that can answer all that is asked."""
    if len(workload.groups) > 1:
        chosen = [
            _Candidate(_label(columns), workload, group)
            for group, columns in enumerate(workload.groups)
        ]
    else:
        (own,) = workload.groups
        chosen = _candidates(workload, list(dict.fromkeys([(), *((name,) for name in own), own])))
    needed = {one.by for one in estimands} - {None}
    able = [one for one in chosen if needed <= set(one.columns)]
    if not able:
        names = " and ".join(sorted(repr(name) for name in needed))
        raise ValueError(
            f"estimands ask for effects by {names}, a covariate that the workload does not have "
            "(or not in one group of strata): name candidates, or other estimands"
        )
    return able


def _candidates(workload: CausalWorkload, candidates: Any) -> list[_Candidate]:
    """Return the choices named, each with a workload of its own."""
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise TypeError(
            f"candidates is a {type(candidates).__name__}: give a list of lists of covariates, "
            'such as [[], ["age"], ["age", "sex"]]'
        )
    if not len(candidates):
        raise ValueError("candidates is empty: name some strata, or leave it out")
    chosen = []
    for i, columns in enumerate(candidates):
        names = [columns] if isinstance(columns, str) else columns
        if not isinstance(names, list | tuple):
            raise TypeError(f"candidates[{i}] is {columns!r}: give a list of covariates")
        one = CausalWorkload(
            workload.schema, strata=list(names), square_weight=workload.square_weight
        )
        chosen.append(_Candidate(_label(one.groups[0]), one, 0))
    sets = [frozenset(one.columns) for one in chosen]
    twice = [one.label for i, one in enumerate(chosen) if sets[i] in sets[:i]]
    if twice:
        raise ValueError(f"candidates holds {twice[0]!r} twice: once will do")
    return chosen


def _label(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "none"


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
