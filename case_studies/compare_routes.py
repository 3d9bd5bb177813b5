"""The package's own rows: a release, its model, and what each part of the error is due to.

Strata that are chosen beforehand are released with Laplace noise; second moments, and strata that
are selected, with Gaussian noise. A model is compiled once for each design and refitted
(`dpcausal_bayes.Fitter`). The interval is the reported one, of the population
(``population="super"``); the estimate is the posterior mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from comparators.features import codes, domain, outcome_range, records, records_of_codes
from comparators.tau_q import label_release
from compare_designs import Design
from numpy.typing import NDArray
from selection_candidates import CANDIDATES
from study_runs import SAMPLER

from dpcausal_bayes import models
from dpcausal_bayes.estimands import ATE, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.report import split_sd
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["Posterior", "Route", "fit_stratified", "routes"]

_fitters: dict[Any, Fitter] = {}


class Posterior(NamedTuple):
    """What one fit says, in units of the outcome.

    Attributes
    ----------
    estimate, low, high : float
        Posterior mean and 95 % interval of the population's effect.
    sampling_sd, privacy_sd : float
    monte_carlo_sd : float
        Standard error of the posterior mean, of a finite chain.
    declared : float
        What the same workload says of the table without noise.
    seconds : float
        Of fit and estimands, not of compiling.
    """

    estimate: float
    low: float
    high: float
    sampling_sd: float
    privacy_sd: float
    monte_carlo_sd: float
    declared: float
    seconds: float


class Route(NamedTuple):
    """A way to use the package: its name, what it protects, and a function of a table."""

    name: str
    protects: str
    run: Callable[[pd.DataFrame, float, float, int], Posterior]


def routes(design: Design) -> list[Route]:
    """Return the package's routes for a data set."""
    found = [
        Route("no strata", "record", _strata(design, design.workload(stratified=False))),
        Route("strata", "record", _strata(design, design.workload(stratified=True))),
        Route("selected strata", "record", _selected(design)),
        Route("Gram regression", "record", _regression(design)),
    ]
    if design.probability is not None:
        found.append(Route("label release", "label", _labels(design)))
    return [Route(f"dpcausal_bayes, {one.name}", one.protects, one.run) for one in found]


def fit_stratified(design: Design) -> Callable[[MomentRelease, int], xr.DataTree]:
    """Return what fits the stratified model of a release, compiled once for each of its designs."""
    build = _of_strata(design)
    return lambda release, seed: _fit(_key(release), release, seed, build)


def _of_strata(design: Design) -> Callable[[Any], pm.Model]:
    """Return the stratified model, which knows the probability of treatment where it is public."""
    return partial(models.stratified_moments, probability=design.probability)


def _key(release: MomentRelease) -> Any:
    """Return what a model of a moment release may be refitted to."""
    several = len(getattr(release.workload, "groups", ())) > 1
    # of several groups the noise is part of a model; of one it is data, but for its law
    return release.workload, release.mechanism if several else type(release.mechanism)


def _fit(
    key: Any,
    release: MomentRelease | LabelRelease,
    seed: int,
    build: Callable[[Any], pm.Model],
) -> xr.DataTree:
    if key not in _fitters:
        _fitters[key] = Fitter(build(release))
    return _fitters[key].fit(release, random_seed=seed, **SAMPLER)


def _strata(
    design: Design, workload: CausalWorkload
) -> Callable[[pd.DataFrame, float, float, int], Posterior]:
    def run(table: pd.DataFrame, epsilon: float, delta: float, seed: int) -> Posterior:
        mechanism = LaplaceMechanism.calibrated(workload, epsilon=epsilon)
        release = simulate_moments(table, workload, mechanism, seed=seed)
        declared = float(table_contrast(ATE(), table, workload))
        return _posterior(design, _key(release), release, seed, _of_strata(design), declared)

    return run


def _regression(design: Design) -> Callable[[pd.DataFrame, float, float, int], Posterior]:
    workload = GramWorkload(design.schema)

    def run(table: pd.DataFrame, epsilon: float, delta: float, seed: int) -> Posterior:
        mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=delta)
        release = simulate_moments(table, workload, mechanism, seed=seed)
        declared = _least_squares(table, design)
        return _posterior(design, _key(release), release, seed, models.gram_regression, declared)

    return run


def _selected(design: Design) -> Callable[[pd.DataFrame, float, float, int], Posterior]:
    """Causal-AIM: one group of public candidates, chosen by looking, or none."""
    candidates = CANDIDATES[design.name]
    schema = candidates.schema(design.schema.outcome)

    def run(table: pd.DataFrame, epsilon: float, delta: float, seed: int) -> Posterior:
        release = candidates.select(table, schema, epsilon, delta, seed)
        workload = release.causal_workload
        declared = float(
            table_contrast(ATE(), table, CausalWorkload(schema, groups=workload.groups[:1]))
        )
        return _posterior(design, _key(release), release, seed, _of_strata(design), declared)

    return run


def _labels(design: Design) -> Callable[[pd.DataFrame, float, float, int], Posterior]:
    def run(table: pd.DataFrame, epsilon: float, delta: float, seed: int) -> Posterior:
        release = label_release(
            table,
            design.schema,
            epsilon,
            clustered=True,
            floor=0.5,
            rng=np.random.default_rng(seed),
        )
        key = (design.name, epsilon)  # the mechanism is part of a label model's design
        declared = _within_clusters(table, design)
        _, unit = outcome_range(design.schema)  # levels' values are on [-1, 1]
        return _posterior(design, key, release, seed, models.cluster_labels, declared, unit)

    return run


def _posterior(
    design: Design,
    key: Any,
    release: MomentRelease | LabelRelease,
    seed: int,
    build: Callable[[Any], pm.Model],
    declared: float,
    unit: float = 1.0,
) -> Posterior:
    if key not in _fitters:
        _fitters[key] = Fitter(build(release))
    start = time.perf_counter()
    tree = _fit(key, release, seed, build)
    tree = estimate(tree, [ATE()], population="super")
    seconds = time.perf_counter() - start
    half = design.half
    drawn = half * unit * tree["estimands"]["ate"]
    exact = half * unit * tree["confidential_estimands"]["ate"]
    sampling, privacy = split_sd(drawn, exact)
    low, high = np.quantile(drawn.values, [0.025, 0.975])
    return Posterior(
        estimate=float(drawn.mean()),
        low=float(low),
        high=float(high),
        sampling_sd=float(sampling),
        privacy_sd=float(privacy),
        monte_carlo_sd=float(az.mcse(drawn)),
        declared=half * declared,
        seconds=seconds,
    )


def _least_squares(table: pd.DataFrame, design: Design) -> float:
    """Return the effect by least squares in each arm, on the outcome's own scale."""
    rows = records(table, design.schema)
    fitted = [
        rows.design.mean(axis=0)
        @ np.linalg.lstsq(
            rows.design[rows.treated == arm], rows.outcome[rows.treated == arm], rcond=None
        )[0]
        for arm in (False, True)
    ]
    return float(rows.half * (fitted[1] - fitted[0]))


def _within_clusters(table: pd.DataFrame, design: Design) -> float:
    """Return the difference in means of the cut outcome within clusters, weighted by their size."""
    schema = design.schema
    coded = codes(table, schema)
    every = {name: np.zeros(len(table), dtype=np.int64) for name in domain(schema)}
    column = schema.outcome.column
    rows = records_of_codes(every | {column: coded[column]}, schema)
    assert schema.cluster is not None
    cluster = table[schema.cluster.column].to_numpy()
    treated: NDArray[np.bool_] = coded[schema.arm.column] == 1
    weighed = [
        np.mean(inside)
        * (rows.outcome[inside & treated].mean() - rows.outcome[inside & ~treated].mean())
        for inside in (cluster == level for level in schema.cluster.levels)
    ]
    return float(rows.half * np.sum(weighed))
