"""The studies that the package holds itself to: designs, and truths to be covered."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import dpcausal_bayes as dpc
from dpcausal_bayes.populations import (
    StratifiedPopulation,
    binary_population,
    mixture_population,
    stratified_population,
)

HEADLINES = [dpc.ATE(), dpc.ATT()]


@dataclass(frozen=True)
class Study:
    """A design, a truth (None: from the prior), and what is estimated."""

    name: str
    design: Any
    truth: Any = None
    estimands: list[Any] = field(default_factory=lambda: HEADLINES)


def moments(study: StratifiedPopulation, *, epsilon: float, laplace: bool = False):
    """Design of a moment release over all covariates of a population."""
    names = [covariate.column for covariate in study.schema.covariates]
    asked = dpc.CausalWorkload(study.schema, strata=names)
    if laplace:
        noise: Any = dpc.LaplaceMechanism.calibrated(asked, epsilon=epsilon)
    else:
        noise = dpc.GaussianMechanism.calibrated(asked, epsilon=epsilon, delta=1 / study.n**2)
    return dpc.MomentDesign(asked, noise, n=study.n)


# Laws as one meets them. The default prior allows for arms of a few units, and of a bounded outcome
# for laws that are two points of the grid, or groups that say all of it: a sampler needs minutes.
BOTH_ARMS = dpc.models.MaxentPriors(propensity_sd=0.7)
ORDINARY = dpc.models.MaxentPriors(propensity_sd=0.7, mean_sd=0.5, shape_sd=0.5, share_sd=0.7)


def groups(*, n: int, epsilon: float, binary: bool):
    """Design of a moment release of three groups of 4, 3 and 2 levels."""
    given = {"priors": BOTH_ARMS} if binary else {"priors": ORDINARY, "grid": 17}
    model = functools.partial(dpc.models.maxent_moments, **given)
    study = stratified_population(covariates={"a": 4, "b": 3, "c": 2}, n=n, binary=binary)
    asked = dpc.CausalWorkload(study.schema, groups=["a", "b", "c"])
    mechanism = dpc.GaussianMechanism.calibrated(asked, epsilon=epsilon, delta=1 / n**2)
    return dpc.MaxentDesign(asked, mechanism, n=n, factory=model)


def labels(trial: Any, *, epsilon: float):
    """Design of a label release of a population."""
    mechanism = dpc.ClusterDP.calibrated(trial.schema, epsilon=epsilon)
    return dpc.LabelDesign(trial.schema, mechanism, trial.cell_size)


def grams(*, n: int, epsilon: float):
    """Design of a second-order release over a covariate of two levels and four numbers."""
    schema = dpc.Schema(
        arm=dpc.Arm("t", control=0, treated=1),
        outcome=dpc.Bounded("y", -1, 1),
        covariates=[
            dpc.Categories("sex", ["f", "m"]),
            *(dpc.Bounded(f"x{j}", -1, 1) for j in range(4)),
        ],
    )
    asked = dpc.GramWorkload(schema)
    mechanism = dpc.GaussianMechanism.calibrated(asked, epsilon=epsilon, delta=1 / n**2)
    return dpc.GramDesign(asked, mechanism, n=n)


def from_prior() -> list[Study]:
    """Truths from the prior: ranks must be uniform."""
    split = [*HEADLINES, dpc.ATE(by="a"), dpc.ATT(by="a")]
    studies = []
    for n, epsilon, regime in ((500, 0.5, "noise"), (20_000, 3.0, "sampling")):
        bounded = stratified_population(covariates={"a": 4, "b": 3}, n=n)
        binary = stratified_population(covariates={"a": 4, "b": 3}, n=n, binary=True)
        one = stratified_population(covariates={}, n=n)
        studies += [
            Study(f"12 strata, bounded, {regime}", moments(bounded, epsilon=epsilon), None, split),
            Study(f"12 strata, binary, {regime}", moments(binary, epsilon=epsilon), None, split),
            Study(f"no strata, bounded, {regime}", moments(one, epsilon=epsilon)),
        ]
    for n, epsilon, regime in ((300, 0.3, "noise"), (5_000, 3.0, "sampling")):
        studies += [
            Study(
                f"6 strata, Laplace, {outcome}, {regime}",
                moments(
                    stratified_population(covariates=CROSSED[6], n=n, binary=outcome == "binary"),
                    epsilon=epsilon,
                    laplace=True,
                ),
                None,
                split,
            )
            for outcome in ("bounded", "binary")
        ]
    levels = [*HEADLINES, dpc.ATE(by="a"), dpc.ATT(by="c")]
    for n, epsilon, regime in ((1_000, 0.5, "noise"), (20_000, 3.0, "sampling")):
        studies += [
            Study(
                f"3 groups, {outcome}, {regime}",
                groups(n=n, epsilon=epsilon, binary=outcome == "binary"),
                None,
                levels,
            )
            for outcome in ("binary", "bounded")
        ]
    small = binary_population(clusters=6, units_per_cluster=40)
    large = binary_population(clusters=6, units_per_cluster=2000)
    at = [*HEADLINES, dpc.ATE(by="sex"), dpc.CATE(at={"x0": 0.5}), dpc.CATESlope("x0")]
    studies += [
        Study("5 covariates, second order, noise", grams(n=2_000, epsilon=1.0), None, at),
        Study("5 covariates, second order, sampling", grams(n=20_000, epsilon=8.0), None, at),
    ]
    by_cluster = [*HEADLINES, dpc.ATE(by="cluster")]
    studies += [
        Study("12 cells of labels, noise", labels(small, epsilon=0.5), None, by_cluster),
        Study("12 cells of labels, sampling", labels(large, epsilon=4.0), None, by_cluster),
    ]
    return studies


def fixed() -> list[Study]:
    """One population each: what coverage is, and what it becomes where the model is wrong."""
    plain = stratified_population(n=5000, confounding=0.7, heterogeneity=0.05)
    null = stratified_population(n=5000, confounding=0.7, effect=0.0)
    wide = stratified_population(n=5000, low=0, high=10, effect=1.0, dispersion=0.02, spread=0.05)
    trial = mixture_population(units=3000, levels=6)
    design = moments(plain, epsilon=1.0)
    return [
        Study("as assumed", design, plain),
        Study("no effect", moments(null, epsilon=1.0), null),
        Study("labels, as assumed", labels(trial, epsilon=1.0), trial),
        Study("labels, no effect in a cluster", labels(trial, epsilon=1.0), _uneven_effects(trial)),
        Study("labels, a cluster wrapped around", labels(trial, epsilon=1.0), _wrapped(trial)),
        Study("heavy tails", moments(wide, epsilon=1.0), Reshaped(wide, _heavy)),
        Study("bounds cut off a sixth", moments(wide, epsilon=1.0), Reshaped(wide, _beyond)),
        Study("dispersions that differ by stratum", design, Reshaped(plain, _uneven)),
        Study("effect of 1.6 halves of the range", moments(_huge(), epsilon=1.0), _huge()),
        Study("a stratum without treated", moments(_one_armed(), epsilon=1.0), _one_armed()),
    ]


CROSSED = {1: {}, 6: {"a": 3, "b": 2}, 30: {"a": 5, "b": 3, "c": 2}}
CELL = ("strata", "outcome", "confounded", "n", "epsilon")


def varied() -> list[Study]:
    """Another population for each release: coverage over size, budget, strata and outcome.

    Experiments with strata are done at one budget, as the hard case is the confounded one.
    """
    studies = []
    for epsilon, n, strata, outcome, confounded in itertools.product(
        (1.0, 0.3, 5.0), (50_000, 500), CROSSED, ("bounded", "binary"), (True, False)
    ):
        if confounded if strata == 1 else not confounded and epsilon != 1:
            continue
        facts = {"covariates": CROSSED[strata], "n": n, "binary": outcome == "binary"}
        facts |= {"confounding": float(confounded), "heterogeneity": 0.05 * (strata > 1)}
        split = [dpc.ATE(by="a"), dpc.ATT(by="b")] if strata > 1 else []
        draw = functools.partial(stratified_population, **facts)
        name = f"{strata} {outcome} {confounded} {n} {epsilon}"
        studies.append(
            Study(name, moments(draw(seed=0), epsilon=epsilon), draw, [*HEADLINES, *split])
        )
    return studies


class Reshaped:
    """A population whose outcomes are reshaped after they are drawn; the truth by a large draw.

    The effect is that of the clipped outcome, which is what a release can tell of.
    """

    def __init__(self, study: StratifiedPopulation, reshape: Any) -> None:
        self.study, self.reshape, self.schema, self.n = study, reshape, study.schema, study.n

    def draw(self, seed: Any, n: int | None = None) -> pd.DataFrame:
        """Draw a table."""
        rng = np.random.default_rng(seed)
        size = self.n if n is None else n
        wide = StratifiedPopulation(
            **{name: getattr(self.study, name) for name in self.study.__struct_fields__}
            | {"n": size}
        )
        table = self.reshape(wide.draw(rng), rng)
        outcome, arm = self.schema.outcome, self.schema.arm
        treated = table[arm.column] == arm.treated
        table[outcome.column] = np.where(treated, table["y1"], table["y0"])
        return table

    def truth(self, estimand: Any) -> xr.DataArray:
        """Return the effect on the clipped outcome in the population, to about 0.0005."""
        if not hasattr(self, "_large"):
            self._large = self.draw(0, 2_000_000)
        return self.sample_truth(estimand, self._large)

    def sample_truth(self, estimand: Any, table: pd.DataFrame) -> xr.DataArray:
        """Return the effect on the clipped outcomes of a table."""
        outcome = self.schema.outcome
        table = table.assign(**{y: table[y].clip(outcome.low, outcome.high) for y in ("y0", "y1")})
        return self.study.sample_truth(estimand, table)


def _heavy(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return table.assign(**{y: table[y] + 0.5 * rng.standard_t(3, len(table)) for y in ("y0", "y1")})


def _beyond(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return table.assign(**{y: 5 + 4 * (table[y] - 5) for y in ("y0", "y1")})


def _uneven(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    noise = np.where(table["a"] == 0, 0.3, 0.01)[:, None] * rng.uniform(-1, 1, (len(table), 2))
    return table.assign(
        y0=(table["y0"] + noise[:, 0]).clip(0, 1), y1=(table["y1"] + noise[:, 1]).clip(0, 1)
    )


def _huge() -> StratifiedPopulation:
    return stratified_population(n=5000, effect=0.8, spread=0.05, dispersion=0.1)


def _one_armed() -> StratifiedPopulation:
    study = stratified_population(n=5000, confounding=0.5)
    propensity = np.array(study.propensity)
    propensity[np.argmin(study.share)] = 0.0
    return StratifiedPopulation(**_facts(study) | {"propensity": propensity})


def _facts(study: StratifiedPopulation) -> dict[str, Any]:
    return {name: getattr(study, name) for name in study.__struct_fields__}


def _uneven_effects(trial: Any) -> Any:
    """Take away the effect in the first cluster; the others keep half a level."""
    shares = np.array(trial.shares)
    shares[0, 1] = shares[0, 0]
    return type(trial)(schema=trial.schema, shares=shares, cell_size=trial.cell_size)


def _wrapped(trial: Any) -> Any:
    """Move the last cluster's treated up by one more level, and the highest to the lowest."""
    shares = np.array(trial.shares)
    shares[-1, 1] = np.roll(shares[-1, 1], 1)
    return type(trial)(schema=trial.schema, shares=shares, cell_size=trial.cell_size)
