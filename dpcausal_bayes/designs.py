"""Designs of a calibration study: what is public, so that populations and releases can be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.mode import Mode

from dpcausal_bayes.gaussian_mechanism import LATTICE
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.laplace_mechanism import MomentMechanism
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.models.cluster_labels import cluster_labels
from dpcausal_bayes.models.gram_laws import GramForm, GramLaw, covariance, gram_form, gram_law
from dpcausal_bayes.models.gram_regression import gram_regression
from dpcausal_bayes.models.maxent_laws import maxent_form, maxent_law
from dpcausal_bayes.models.maxent_moments import maxent_moments
from dpcausal_bayes.models.priors import GramPriors, MaxentPriors
from dpcausal_bayes.models.stratified_moments import stratified_moments
from dpcausal_bayes.moment_potential import in_units
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.moments import make_moment_release
from dpcausal_bayes.populations.first_order import FirstOrderPopulation
from dpcausal_bayes.populations.labels import Population
from dpcausal_bayes.populations.linear import LinearPopulation, linear_columns
from dpcausal_bayes.populations.strata import StratifiedPopulation
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise, simulate_moments, simulate_release
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["GramDesign", "LabelDesign", "MaxentDesign", "MomentDesign"]

INSIDE = 1 - 1e-9  # tanh rounds to 1, where a bounded outcome would be a constant
_INTERPRETED = Mode(linker="py", optimizer="fast_compile")


@dataclass(frozen=True)
class LabelDesign:
    """A trial whose labels are released: its public facts and the mechanism.

    Parameters
    ----------
    schema : Schema
    mechanism : ClusterDP
    cell_size : array_like of int, shape (C, 2)
        Units of each cluster and arm.
    factory : callable
        From a release to its model.

    Examples
    --------
    >>> from dpcausal_bayes.populations import binary_population
    >>> trial = binary_population(clusters=3, units_per_cluster=100)
    >>> mechanism = ClusterDP.calibrated(trial.schema, epsilon=1.0)
    >>> design = LabelDesign(trial.schema, mechanism, trial.cell_size)
    >>> [population.n for population in design.populations(2, seed=1)]
    [300, 300]
    """

    schema: Schema
    mechanism: ClusterDP
    cell_size: Any
    factory: Callable[[LabelRelease], pm.Model] = cluster_labels

    def populations(self, count: int, *, seed: int) -> list[Population]:
        """Draw populations from the model's prior."""
        sizes = np.asarray(self.cell_size)
        shape = (*sizes.shape, self.schema.n_levels)
        even = Population(schema=self.schema, shares=np.full(shape, 1 / shape[-1]), cell_size=sizes)
        model = self.factory(self.release(even.draw(0), seed=0))
        shares = _prior_draws(model, ["share"], count, seed)[0]
        return [
            Population(schema=self.schema, shares=one / one.sum(-1, keepdims=True), cell_size=sizes)
            for one in shares
        ]

    def release(self, table: pd.DataFrame, *, seed: int | np.random.Generator) -> LabelRelease:
        """Release a simulated table."""
        return simulate_release(table, self.schema, self.mechanism, seed=seed)


@dataclass(frozen=True)
class _StudyDesign:
    """What designs of moment releases share."""

    workload: Any
    mechanism: MomentMechanism
    n: int
    factory: Callable[[MomentRelease], pm.Model]

    def release(self, table: pd.DataFrame, *, seed: int | np.random.Generator) -> MomentRelease:
        """Release a simulated table."""
        return simulate_moments(table, self.workload, self.mechanism, seed=seed)


@dataclass(frozen=True)
class MomentDesign(_StudyDesign):
    """A study whose moments are released: its workload, the mechanism and the number of records.

    Parameters
    ----------
    workload : CausalWorkload
    mechanism : GaussianMechanism or LaplaceMechanism
    n : int
    factory : callable
        From a release to its model.

    Examples
    --------
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.populations import stratified_population
    >>> study = stratified_population()
    >>> workload = CausalWorkload(study.schema, strata=["a", "b"])
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    >>> design = MomentDesign(workload, mechanism, n=1000)
    >>> [population.n for population in design.populations(2, seed=1)]
    [1000, 1000]
    """

    workload: CausalWorkload
    factory: Callable[[MomentRelease], pm.Model] = stratified_moments

    def populations(self, count: int, *, seed: int) -> list[StratifiedPopulation]:
        """Draw populations from the model's prior.

        Raises
        ------
        ValueError
            A workload whose first group is not all of the schema's covariates in their order.
        """
        known = tuple(covariate.column for covariate in self.workload.schema.covariates)
        if self.workload.groups[0] != known:
            raise ValueError(
                f"workload has {self.workload.groups[0]} as its first group: populations are drawn "
                f"over all covariates of the schema, {known}; name these, or drop the others"
            )
        schema, n_strata = self.workload.schema, self.workload.n_strata()
        even = StratifiedPopulation(
            schema=schema,
            n=self.n,
            share=np.full(n_strata, 1 / n_strata),
            propensity=np.full(n_strata, 0.5),
            mean=np.full((2, n_strata), in_units(np.zeros(()), self.workload)),
        )
        model = self.factory(self.release(even.draw(0), seed=0))
        names = ["share", "mean"] + ([] if self.workload.binary else ["dispersion"])
        share, mean, *dispersion = _prior_draws(model, names, count, seed)
        if not self.workload.binary:
            mean = np.clip(mean, -INSIDE, INSIDE)
        populations = []
        for j in range(count):
            strata = share[j].sum(0)
            spread = {} if not dispersion else {"dispersion": tuple(dispersion[0][j])}
            populations.append(
                StratifiedPopulation(
                    schema=schema,
                    n=self.n,
                    share=strata / strata.sum(),
                    propensity=share[j][1] / strata,
                    mean=in_units(mean[j], self.workload),
                    **spread,
                )
            )
        return populations


@dataclass(frozen=True)
class MaxentDesign(_StudyDesign):
    """A study whose groups of strata are released apart: workload, mechanism, number of records.

    Tables are those of a `FirstOrderPopulation`, whose covariates are listed: for a few groups.

    Parameters
    ----------
    workload : CausalWorkload
        Its groups share no covariate.
    mechanism : GaussianMechanism
    n : int
    factory : callable
        From a release to its model.

    Examples
    --------
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.populations import stratified_population
    >>> study = stratified_population()
    >>> workload = CausalWorkload(study.schema, groups=["a", "b"])
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    >>> design = MaxentDesign(workload, mechanism, n=1000)
    >>> [population.n for population in design.populations(2, seed=1)]
    [1000, 1000]
    """

    workload: CausalWorkload
    factory: Callable[[MomentRelease], pm.Model] = maxent_moments

    def populations(self, count: int, *, seed: int) -> list[FirstOrderPopulation]:
        """Draw populations from the model's prior."""
        groups = range(len(self.workload.groups))
        sizes = [self.workload.n_strata(g) for g in groups]
        points = 2 if self.workload.binary else 3
        even = FirstOrderPopulation(
            workload=self.workload,
            n=self.n,
            cell=np.full((2, points), 0.5 / points),
            level=tuple(np.full((2, size, points), 1 / size) for size in sizes),
        )
        model = self.factory(self.release(even.draw(0), seed=0))
        grid = np.array(model.coords["grid"])
        form = maxent_form(self.workload, MaxentPriors(), grid)  # the layout
        drawn = _prior_draws(model, ["coefficient"], count, seed)[0]
        return [
            FirstOrderPopulation(
                workload=self.workload,
                n=self.n,
                cell=law.cell,
                level=tuple(law.level[:, g, : sizes[g]] for g in groups),
            )
            for law in (maxent_law(form, c) for c in drawn)
        ]


@dataclass(frozen=True)
class GramDesign(_StudyDesign):
    """A study whose second moments are released: workload, mechanism and number of records.

    Tables are those of a `LinearPopulation`, and are released as they are: a law without bounds
    cannot be clipped and stay what it is. So this checks the model on its own terms; what clipping
    does is for a study of data as they are.

    Parameters
    ----------
    workload : GramWorkload
        With a `Bounded` outcome, numeric covariates and, as its first one, at most one of levels.
    mechanism : GaussianMechanism
    n : int
    factory : callable
        From a release to its model.

    Examples
    --------
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", -1, 1),
    ...                 covariates=[Categories("sex", ["f", "m"]), Bounded("age", 0, 100)])
    >>> workload = GramWorkload(schema)
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    >>> design = GramDesign(workload, mechanism, n=1000)
    >>> [population.n for population in design.populations(2, seed=1)]
    [1000, 1000]
    """

    workload: GramWorkload
    factory: Callable[[MomentRelease], pm.Model] = gram_regression

    def populations(self, count: int, *, seed: int) -> list[LinearPopulation]:
        """Draw populations from the model's prior."""
        form = gram_form(self.workload, GramPriors())  # the layout; the model has its own priors
        even = self._population(gram_law(form, np.zeros(len(form.centre)), np), form)
        model = self.factory(self.release(even.draw(0), seed=0))
        drawn = _prior_draws(model, ["coefficient"], count, seed)[0]
        return [self._population(gram_law(form, c, np), form) for c in drawn]

    def release(self, table: pd.DataFrame, *, seed: int | np.random.Generator) -> MomentRelease:
        """Release a simulated table, its columns as they are."""
        arm, columns = linear_columns(table, self.workload)
        v = np.column_stack([np.ones(len(arm)), columns])
        second = np.stack([v[arm == a].T @ v[arm == a] for a in (0, 1)])
        rows, others = self.workload.pairs.T
        exact = np.rint(second[:, rows, others].ravel() * LATTICE).astype(np.int64)
        return make_moment_release(
            self.workload, self.mechanism, exact, len(arm), source=SeededNoise(seed),
            non_private=True,
        )  # fmt: skip

    def _population(self, law: GramLaw, form: GramForm) -> LinearPopulation:
        return LinearPopulation(
            workload=self.workload,
            n=self.n,
            share=law.share,
            mean=law.mean,
            covariance=covariance(form, law),
        )


def _prior_draws(
    model: pm.Model, names: list[str], count: int, seed: int
) -> list[NDArray[np.float64]]:
    """Draw named quantities from a model's prior, together: one array a name."""
    drawn = pm.draw(
        [model[name] for name in names], draws=count, random_seed=seed, mode=_INTERPRETED
    )
    return [
        np.asarray(one).reshape(count, *np.shape(one)[-model[n].ndim :])
        for one, n in zip(drawn, names, strict=True)
    ]
