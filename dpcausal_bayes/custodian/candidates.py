"""What a plan chooses between, strata of a workload or second moments, and what each is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpcausal_bayes.custodian.confounding import confounding_left
from dpcausal_bayes.custodian.gram_widths import GramPredictor
from dpcausal_bayes.custodian.guesses import Guesses
from dpcausal_bayes.custodian.predictions import MOST_STRATA, Asked, Predictor
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.laplace_mechanism import MomentMechanism, least_noise
from dpcausal_bayes.workloads import CausalWorkload

__all__ = [
    "Estimand",
    "GramCandidate",
    "Question",
    "StrataCandidate",
    "named",
    "own",
]

MOST_NAMES = 4  # of covariates in the name of a choice


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


class Question(NamedTuple):
    """What a plan is asked, of every candidate."""

    estimands: Sequence[Estimand]
    n: int
    budgets: Sequence[float]
    delta: float | None
    noise: str
    population: str
    ci_prob: float

    def mechanisms(self, workload: Workload) -> list[MomentMechanism]:
        """Return the mechanism at each budget."""
        if self.noise == "Gaussian":
            assert self.delta is not None
            return [
                GaussianMechanism.calibrated(workload, epsilon=budget, delta=self.delta)
                for budget in self.budgets
            ]
        return [least_noise(workload, epsilon=budget, delta=self.delta) for budget in self.budgets]


@dataclass(frozen=True)
class StrataCandidate:
    """One group of strata of one workload."""

    label: str
    workload: CausalWorkload
    group: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The covariates that are crossed."""
        return self.workload.groups[self.group]

    @property
    def fields(self) -> Sequence[Any]:
        """The covariates as the schema declares them."""
        return self.workload.covariates(self.group)

    def rows(self, asked: Question, guesses: Guesses, seed: int) -> Iterator[dict[str, Any]]:
        """Predict every estimand at every budget, by a few simulated releases.

        Parameters
        ----------
        asked : Question
        guesses : Guesses
        seed : int
            Of the simulation.
        """
        parts = [part for one in asked.estimands for part in self._parts(one)]
        mechanisms = asked.mechanisms(self.workload)
        noises = [one.noise_sd(self.workload) for one in mechanisms]
        predictor = Predictor(self.workload, self.group, asked.n, guesses, seed)
        found = predictor.predict(parts, noises, asked.population, asked.ci_prob)
        for mechanism, noise, budget, predictions in zip(
            mechanisms, noises, asked.budgets, found, strict=True
        ):
            for one, prediction in zip(parts, predictions, strict=True):
                yield {
                    "epsilon": budget,
                    "strata": self.label,
                    "n_strata": len(one.members),
                    "estimand": one.name,
                    **prediction._asdict(),
                    "confounding_left": confounding_left(self.fields, guesses),
                    "smallest_cell": float(predictor.masses[:, one.members].min()),
                    "noise": type(mechanism).__name__.removesuffix("Mechanism"),
                    "noise_in_records": float(self.workload.split(noise)[0][self.group].max()),
                    "rough": len(one.members) > MOST_STRATA,
                }

    def _parts(self, estimand: Estimand) -> Iterator[Asked]:
        """Return each number that an estimand stands for."""
        factors = self.workload.factors(self.group)
        if estimand.by is None:
            everywhere = np.ones(self.workload.n_strata(self.group), dtype=bool)
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


@dataclass(frozen=True)
class GramCandidate:
    """Second moments of covariates."""

    label: str
    workload: GramWorkload

    @property
    def fields(self) -> Sequence[Any]:
        """The covariates as the schema declares them."""
        return self.workload.fields

    def rows(self, asked: Question, guesses: Guesses, seed: int) -> Iterator[dict[str, Any]]:
        """Predict every estimand at every budget, by closed form.

        Parameters
        ----------
        asked : Question
        guesses : Guesses
        seed : int
            Not used: nothing is simulated.
        """
        split = [one for one in asked.estimands if one.by is not None]
        if split:
            raise ValueError(
                f"estimands ask for {split[0].short} by {split[0].by!r}: second-order candidates "
                "are planned for effects on everybody; leave out that candidate or that estimand"
            )
        predictor = GramPredictor(self.workload, asked.n, guesses)
        for budget, mechanism in zip(asked.budgets, asked.mechanisms(self.workload), strict=True):
            scale = mechanism.scale
            for one in asked.estimands:
                part = Asked(one.short, np.ones(1, dtype=bool), one.assigned)
                found = predictor.predict(part, scale, asked.population, asked.ci_prob)
                yield {
                    "epsilon": budget,
                    "strata": self.label,
                    "n_strata": 1,
                    "estimand": one.short,
                    **found._asdict(),
                    "confounding_left": confounding_left(self.fields, guesses),
                    "smallest_cell": float(predictor.records.min()),
                    "noise": "Gaussian",
                    "noise_in_records": scale,
                    "rough": predictor.rough(scale),
                }


Candidate = StrataCandidate | GramCandidate


def own(workload: CausalWorkload, estimands: Sequence[Estimand]) -> list[Candidate]:
    """Return the choices that a workload suggests, and that can answer all that is asked.

    Parameters
    ----------
    workload : CausalWorkload
    estimands : sequence of Estimand

    Raises
    ------
    ValueError
        There is none.
    """
    if len(workload.groups) > 1:
        chosen = [
            StrataCandidate(_label(columns), workload, group)
            for group, columns in enumerate(workload.groups)
        ]
    else:
        (all_of_them,) = workload.groups
        choices = [(), *((name,) for name in all_of_them), all_of_them]
        chosen = [_strata(workload, columns) for columns in dict.fromkeys(choices)]
    needed = {one.by for one in estimands} - {None}
    able = [one for one in chosen if needed <= set(one.columns)]
    if not able:
        names = " and ".join(sorted(repr(name) for name in needed))
        raise ValueError(
            f"estimands ask for effects by {names}, a covariate that the workload does not have "
            "(or not in one group of strata): name candidates, or other estimands"
        )
    return list(able)


def named(workload: CausalWorkload, candidates: Any) -> list[Candidate]:
    """Return the choices named, each with a workload of its own.

    Parameters
    ----------
    workload : CausalWorkload
    candidates : sequence of (sequence of str or GramWorkload)

    Raises
    ------
    TypeError, ValueError
        None, one named twice or of another kind, another arm or outcome.
    """
    if isinstance(candidates, str | GramWorkload | Mapping) or not isinstance(candidates, Sequence):
        raise TypeError(
            f"candidates is a {type(candidates).__name__}: give a list of lists of covariates, "
            'such as [[], ["age"], ["age", "sex"]], and of GramWorkloads'
        )
    if not len(candidates):
        raise ValueError("candidates is empty: name some strata, or leave it out")
    chosen: list[Candidate] = []
    for i, one in enumerate(candidates):
        columns = [one] if isinstance(one, str) else one
        if isinstance(columns, GramWorkload):
            ours, theirs = workload.schema, columns.schema
            if (ours.arm, ours.outcome) != (theirs.arm, theirs.outcome):
                raise ValueError(
                    f"candidates[{i}] has another arm or outcome than the workload: widths of "
                    "different effects cannot be compared; declare the same"
                )
            chosen.append(GramCandidate(_second_order(columns), columns))
        elif isinstance(columns, list | tuple):
            chosen.append(_strata(workload, columns))
        else:
            raise TypeError(
                f"candidates[{i}] is {columns!r}: give a list of covariates, or a GramWorkload"
            )
    keys = [
        one.label if isinstance(one, GramCandidate) else frozenset(one.columns) for one in chosen
    ]
    twice = [one.label for i, one in enumerate(chosen) if keys[i] in keys[:i]]
    if twice:
        raise ValueError(f"candidates holds {twice[0]!r} twice: once will do")
    return chosen


def _strata(workload: CausalWorkload, columns: Sequence[str]) -> StrataCandidate:
    one = CausalWorkload(
        workload.schema, strata=list(columns), square_weight=workload.square_weight
    )
    return StrataCandidate(_label(one.groups[0]), one, 0)


def _second_order(workload: GramWorkload) -> str:
    """Name a choice of second moments: by all covariates, or by some of many."""
    names = workload.covariates
    shown = ", ".join(names) or "none"
    if len(names) > MOST_NAMES:
        shown = f"{', '.join(names[:2])} ... {names[-1]} ({len(names)} covariates)"
    radius = f", radius {workload.radius:.4g}" if workload.shrinks else ""
    return f"second order: {shown}{radius}"


def _label(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "none"
