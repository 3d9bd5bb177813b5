"""The steps of a selecting release: a group measured, a group chosen, and what comes of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.custodian.aggregates import exact_moments
from dpcausal_bayes.custodian.beliefs import Law
from dpcausal_bayes.custodian.gains import Outlook, outlook
from dpcausal_bayes.custodian.ledger import Ledger
from dpcausal_bayes.custodian.refits import refit
from dpcausal_bayes.custodian.schedule import Schedule, crossed, loss_of
from dpcausal_bayes.custodian.scores import confounding_score
from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism
from dpcausal_bayes.laws import Gaussian, NoiseSource
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.selections import Choice, Group, Measured, Selection, group_name
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["ChoosingSource", "Steps"]

UNITS = 1024  # scores are whole multiples of 1/UNITS of a record
ROUNDING = 2  # units that rounding adds to how far one record moves a score
# Prior weight of stopping, to that of all candidates together: where none pays, one is chosen once
# in ten at most.
STOP_ODDS = 9.0

Integers = NDArray[np.int64]


class ChoosingSource(NoiseSource, Protocol):
    """A noise source that can carry out the exponential mechanism."""

    def choose(self, scores: Integers, scale: float) -> int:
        """Draw a place with a probability proportional to exp(score / scale)."""


class Answer(NamedTuple):
    """A group's noisy sums in lattice units, squares included with the totals, and their noise."""

    values: Integers
    scale: float

    def pooled(self, other: Answer) -> Answer:
        """Pool two measurements of the same sums by their precisions, which add up."""
        first, second = self.scale**-2, other.scale**-2
        mean = (first * self.values + second * other.values) / (first + second)
        return Answer(np.rint(mean).astype(np.int64), (first + second) ** -0.5)


class Steps:
    """What has been measured and chosen so far, of one confidential table.

    Parameters
    ----------
    table : as `exact_moments` takes it
        Confidential.
    schedule : Schedule
    ledger : Ledger or None
        Charged before each step draws; ``None`` in a simulation.
    source : ChoosingSource
    """

    def __init__(
        self, table: Any, schedule: Schedule, ledger: Ledger | None, source: ChoosingSource
    ) -> None:
        self._table, self._schedule, self._ledger, self._source = table, schedule, ledger, source
        self._n: int | None = None
        self._answers: dict[Group, Answer] = {}
        self._taken: list[Measured | Choice] = []

    @property
    def current(self) -> Group:
        """The group that was measured last: what an analyst would adjust for."""
        return next(reversed(self._answers))

    @property
    def rho(self) -> float:
        """What the steps so far cost, in zCDP."""
        return math.fsum(step.rho for step in self._taken)

    def check_table(self) -> None:
        """Read all columns once, so that bad values are refused before anything is charged."""
        self._exact(CausalWorkload(self._schedule.schema, groups=self._schedule.candidates))

    def measure(self, group: Group, rho: float) -> None:
        """Measure a group's sums, or pool a second measurement with the first."""
        exact = self._exact(self._workload(group))
        if group and not self._workload(group).binary:
            exact = exact[:-2]  # the squares were measured with the totals
        scale = self._schedule.scale(group, rho)
        step = Measured(group=group, rho=rho)
        self._charge(step, f"{group_name(group)} measured")
        noise = self._source.integers(Gaussian(scale * LATTICE), exact.shape)
        answer = Answer(exact + noise, scale)
        before = self._answers.get(group)
        self._answers[group] = answer if before is None else before.pooled(answer)
        self._taken.append(step)

    def choose(self) -> Group | None:
        """Choose a group by the exponential mechanism, or to stop.

        Groups that cannot pay, whatever the table, are no candidates; without any there is nothing
        to choose, at no cost.
        """
        law = self._believed()
        assert self._n is not None
        seen = outlook(self._schedule.schema, law, self._n)
        errors = self._errors(seen)
        before = errors.pop(self.current)
        able = tuple(g for g, after in errors.items() if seen.most_gain(before, after) > 0)
        if not able:
            return None
        epsilon = self._schedule.choice_epsilon
        units, scale = self.scores(able, seen, before, errors)
        of_any = Choice(candidates=able, chosen=None, epsilon=epsilon)
        self._charge(of_any, f"choice among {len(able)} groups")
        place = self._source.choose(units, scale)
        chosen = able[place] if place < len(able) else None
        self._taken.append(Choice(candidates=able, chosen=chosen, epsilon=epsilon))
        return chosen

    def scores(
        self, able: tuple[Group, ...], seen: Outlook, before: float, errors: dict[Group, float]
    ) -> tuple[Integers, float]:
        """Return each candidate's score, and that to stop, in units, and the scale of the choice.

        One record moves a gain by no more than the confounding score, that is by two influences
        (`dpcausal_bayes.custodian.scores`), and by ``ROUNDING`` units more: half a unit at each
        end, and what floating-point sums are off by.
        """
        tables = self._tables(able, seen.schema)
        gains = [
            math.hypot(confounding_score(*tables[group], seen.residuals), before) - errors[group]
            for group in able
        ]
        moved = 2 * seen.residuals.influence * UNITS + ROUNDING
        scale = 2 * moved / self._schedule.choice_epsilon
        stop = scale * math.log(STOP_ODDS * len(able))
        return np.rint([*(UNITS * gain for gain in gains), stop]).astype(np.int64), scale

    def release(self, *, non_private: bool) -> MomentRelease:
        """Put everything that was measured into one release, the last group first."""
        from dpcausal_bayes import __version__  # not at the top: the package imports this module

        groups = list(reversed(self._answers))
        answers = [self._answers[group] for group in groups]
        unit = self._answers[()].scale
        workload = CausalWorkload(
            self._schedule.schema,
            groups=groups,
            group_weights=[unit / answer.scale for answer in answers],
        )
        selection = Selection(steps=tuple(self._taken))
        assert self._n is not None
        return MomentRelease(
            workload=workload,
            mechanism=GaussianMechanism(
                scale=unit, sensitivity=workload.sensitivity, delta=self._schedule.delta
            ),
            values=np.concatenate([answer.values for answer in answers]),
            lattice=LATTICE,
            n=self._n,
            loss=selection.loss(self._schedule.delta),
            noise_source=self._source.name,
            non_private=non_private,
            package_version=__version__,
            selection=selection,
        )

    def _workload(self, group: Group, schema: Schema | None = None) -> CausalWorkload:
        return CausalWorkload(schema or self._schedule.schema, groups=[group])

    def _exact(self, workload: CausalWorkload) -> Integers:
        exact, n = exact_moments(self._table, workload)
        if self._n not in (None, n):
            raise ValueError(
                "table had another number of rows at an earlier step: nothing is released; store "
                "it first, so that it stays as it is"
            )
        self._n = n
        return exact

    def _charge(self, step: Measured | Choice, what: str) -> None:
        if self._ledger is not None:
            outcome = self._schedule.schema.outcome.column
            self._ledger.charge(
                f"moments of {outcome!r}, {what}", loss_of(step, self._schedule.delta)
            )

    def _believed(self) -> Law:
        """Return what the current group's noisy sums say of a record."""
        workload = self._workload(self.current)
        answer, totals = self._answers[self.current], self._answers[()]
        cells = answer.values[: 4 * workload.n_strata()]
        squares = totals.values[totals.values.size if workload.binary else -2 :]
        noisy = np.concatenate([cells, squares]) / LATTICE
        noise = np.repeat([answer.scale, totals.scale], [cells.size, squares.size])
        levels = [len(covariate.labels) for covariate in workload.covariates()]
        assert self._n is not None
        return refit(levels, noisy, noise, self._n, binary=workload.binary)

    def _errors(self, seen: Outlook) -> dict[Group, float]:
        """Return the error to be expected if all that is left goes into the current group.

        And into each other one, of what the choice leaves.
        """
        schedule = self._schedule
        left = schedule.rho - self.rho
        more = schedule.scale(self.current, left)
        scale = (self._answers[self.current].scale ** -2 + more**-2) ** -0.5
        errors = {self.current: seen.error(self._workload(self.current), scale)}
        for group in schedule.candidates:
            if not any(set(group) <= set(measured) for measured in self._answers):
                scale = schedule.scale(group, left - schedule.choice_rho)
                errors[group] = seen.error(self._workload(group), scale)
        return errors

    def _tables(
        self, groups: tuple[Group, ...], schema: Schema
    ) -> dict[Group, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Return counts and outcome sums by arm, current stratum and candidate's stratum."""
        current = self.current
        workload = CausalWorkload(schema, groups=crossed(current, groups))
        place_of = {frozenset(names): place for place, names in enumerate(workload.groups)}
        exact = workload.split(self._exact(workload) / LATTICE)[0]
        found = {}
        for group in groups:
            place = place_of[frozenset(current) | frozenset(group)]
            found[group] = _by_stratum(workload, place, current, group, exact[place])
        return found


def _by_stratum(
    workload: CausalWorkload, place: int, current: Group, group: Group, cells: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum a group's cells (2, L, 2) by arm, stratum of the current group and of a candidate."""
    sizes = {c.column: len(c.labels) for c in workload.covariates(place)}
    levels = np.unravel_index(np.arange(cells.shape[1]), tuple(sizes.values()))
    of = dict(zip(sizes, levels, strict=True))

    def stratum(names: Group) -> tuple[NDArray[np.intp], int]:
        shape = [sizes[name] for name in names]
        where = np.zeros(cells.shape[1], dtype=np.intp)
        for name in names:  # the last one runs fastest
            where = where * sizes[name] + of[name]
        return where, math.prod(shape)

    (rows, n_rows), (columns, n_columns) = stratum(current), stratum(group)
    summed = np.zeros((n_rows, n_columns, 2, 2))
    np.add.at(summed, (rows, columns), np.moveaxis(cells, 0, 1))
    first, second = np.moveaxis(summed, (2, 3), (1, 0))
    if workload.binary:  # the counts of the two levels, which are -1 and 1
        return first + second, second - first
    return first, second
