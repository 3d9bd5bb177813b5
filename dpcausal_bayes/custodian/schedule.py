"""How a selecting release divides its budget among its steps, before any of them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpcausal_bayes.accounting import REPLACE_ONE_RECORD, PrivacyLoss, epsilon_from_rho
from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.gaussian_mechanism import LATTICE, MARGIN
from dpcausal_bayes.laws import LARGEST_SCALE, number
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.selections import Choice, Group, Measured
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["Schedule", "crossed", "loss_of", "schedule_for"]

TOTALS = 0.2  # share of the budget for the arms' totals
CHOICES = 0.1  # share for all choices together


@dataclass(frozen=True)
class Schedule:
    """What each step may cost, in zCDP, and what may be chosen.

    Attributes
    ----------
    schema : Schema
    candidates : tuple of tuples of str
    rho, delta : float
        Of all steps together, and of the statement of their loss.
    rounds : int

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 1),
    ...                 covariates=[Categories("site", [0, 1])])
    >>> schedule = Schedule(schema, (("site",),), 0.5, 1e-6, 1)
    >>> [round(loss.rho, 6) for loss in schedule.losses()], round(schedule.choice_epsilon, 3)
    ([0.1, 0.05, 0.35], 0.632)
    """

    schema: Schema
    candidates: tuple[Group, ...]
    rho: float
    delta: float
    rounds: int

    @property
    def totals_rho(self) -> float:
        """What the first look at the arms' totals costs."""
        return TOTALS * self.rho

    @property
    def choice_rho(self) -> float:
        """What the choice of one round costs."""
        return CHOICES * self.rho / self.rounds

    @property
    def choice_epsilon(self) -> float:
        """The exponential mechanism's, of one round."""
        return math.sqrt(8 * self.choice_rho)

    @property
    def group_rho(self) -> float:
        """What the measurement of a chosen group costs."""
        return (1 - TOTALS - CHOICES) * self.rho / self.rounds

    def scale(self, group: Group, rho: float) -> float:
        """Return the noise, in records, with which measuring a group costs rho.

        The totals are measured with the squares.
        """
        workload = CausalWorkload(self.schema, groups=[group])
        if not group or workload.binary:
            sensitivity = workload.sensitivity
        else:  # of a count, an outcome, and the same of another cell: 1 + 1 + 1 + 1
            sensitivity = 2.0
        return sensitivity * (1 + MARGIN) / math.sqrt(2 * rho)

    def losses(self) -> list[PrivacyLoss]:
        """Return what each step will cost, if every round chooses a group."""
        choice = Choice(candidates=self.candidates, chosen=None, epsilon=self.choice_epsilon)
        group = Measured(group=self.candidates[0], rho=self.group_rho)
        steps: list[Measured | Choice] = [Measured(group=(), rho=self.totals_rho)]
        steps += [choice, group] * self.rounds
        return [loss_of(step, self.delta) for step in steps]


def crossed(current: Group, groups: Sequence[Group]) -> list[Group]:
    """Return each group with the current one's covariates before its own; of twins the first.

    Examples
    --------
    >>> crossed(("a",), [("b",), ("b", "a"), ("c", "a")])
    [('a', 'b'), ('a', 'c')]
    """
    whole = [(*current, *(name for name in group if name not in current)) for group in groups]
    return list({frozenset(names): names for names in reversed(whole)}.values())[::-1]


def loss_of(step: Measured | Choice, delta: float) -> PrivacyLoss:
    """State what one step costs for replacing one record."""
    if isinstance(step, Choice):
        return PrivacyLoss(
            pure_epsilon=step.epsilon,
            rho=step.rho,
            epsilon=step.epsilon,
            delta=0.0,
            adjacency=REPLACE_ONE_RECORD,
        )
    return PrivacyLoss(
        pure_epsilon=None,
        rho=step.rho,
        epsilon=epsilon_from_rho(step.rho, delta),
        delta=delta,
        adjacency=REPLACE_ONE_RECORD,
    )


def schedule_for(
    schema: Schema, candidates: Any, epsilon: Any, rho: Any, delta: Any, rounds: Any
) -> Schedule:
    """Check the arguments of a selection, and divide its budget.

    Raises
    ------
    TypeError, ValueError
        The message names the argument.
    """
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise TypeError(
            f"candidates is a {kind_of(candidates)}: give a list of groups of covariates, such as "
            '["age", ["age", "sex"]]'
        )
    if not len(candidates):
        raise ValueError("candidates is empty: name a group, or use release_moments")
    groups = CausalWorkload(schema, groups=list(candidates)).groups
    if () in groups:
        raise ValueError(
            "candidates hold an empty group: the arms' totals are measured in any case; leave it "
            "out"
        )
    whole = isinstance(rounds, numbers.Integral) and not isinstance(rounds, bool)
    if not whole or not 1 <= rounds <= len(groups):
        raise ValueError(
            f"rounds is {rounds!r}: it must be a whole number from 1 to {len(groups)}, the number "
            "of candidates"
        )
    schedule = Schedule(schema, groups, *_budget(epsilon, rho, delta), int(rounds))
    if rounds > 1:  # so that no later round asks for more strata than there can be
        for group in groups:
            CausalWorkload(schema, groups=crossed(group, groups))
    largest = max(
        schedule.scale((), schedule.totals_rho), schedule.scale(groups[0], schedule.group_rho)
    )
    if largest * LATTICE > LARGEST_SCALE:
        raise ValueError(
            f"rho is {schedule.rho:g}: the noise would be more than 64-bit integers hold; raise "
            "epsilon or rho, or ask for fewer rounds"
        )
    return schedule


def _budget(epsilon: Any, rho: Any, delta: Any) -> tuple[float, float]:
    """Return rho and delta of the budget that is given as one of epsilon and rho."""
    delta = number(delta, "delta")
    if not 0 < delta <= 0.5:
        raise ValueError(
            f"delta is {delta:g}: it must be above 0 and at most 1/2; choose it well below one "
            "over the number of records"
        )
    if (epsilon is None) == (rho is None):
        raise TypeError("a selection needs epsilon or rho, one of the two: its whole budget")
    name, value = ("epsilon", epsilon) if rho is None else ("rho", rho)
    budget = number(value, name)
    if budget <= 0:
        raise ValueError(f"{name} is {budget:g}: the budget must be positive")
    return (budget if epsilon is None else _rho_for(budget, delta)), delta


def _rho_for(epsilon: float, delta: float) -> float:
    """Return the largest rho (to a part in 1e12, rounded down) that implies (epsilon, delta)."""
    low, high = 0.0, epsilon  # zCDP of epsilon costs more than epsilon, for delta up to 1/2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_from_rho(middle, delta) <= epsilon else (low, middle)
    return low
