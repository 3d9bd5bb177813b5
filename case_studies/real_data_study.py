"""Moment releases of real and semi-synthetic tables, beside a published implementation.

Hundreds of seeded releases of LaLonde, IHDP and ACIC 2016 (parameter set 7) at four budgets; from
each the model's intervals, beside what the strata define on the confidential table (the declared
estimand) and beside the causal truth. The published implementation's errors and intervals on the
same tables were measured elsewhere; its file is optional.

    python case_studies/real_data_study.py            # run, or go on with, the study
    python case_studies/real_data_study.py --summary  # tables of what is there, in Markdown

Each run is one row per estimand of ``outputs/real_data_study.csv``. Runs that are there are not
repeated, so that the study may be stopped at any time. Data are read from the folder that
DPCAUSAL_DATA names, by default ``../shared/data``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
from real_data_sets import DATA_SETS, ROOT, STRATA, workload_of
from real_data_summary import summary
from study_runs import EPSILONS, ESTIMANDS, fit_rows, results, scaled, seed_of, work

from dpcausal_bayes import models
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

RESULTS = ROOT / "outputs" / "real_data_study.csv"
RELEASES = 40
UNCLIPPED = 20.0  # half-widths of the bounds: beyond every outcome


class Run(NamedTuple):
    """One release and its fit."""

    data: str
    rep: int
    bounds: str
    strata: str
    epsilon: float
    seed: int
    aware: bool


def plan() -> Iterator[Run]:
    """Yield all runs, the most important first.

    The comparison with the published implementation (its bounds, epsilon 1, no strata), then the
    other budgets, public bounds, the noise-blind analysis, and strata.
    """
    one, others = (1.0,), (0.5, 2.0, 5.0)
    five, rest = (5.0,), (0.5, 2.0)
    three = ("lalonde", "ihdp", "acic")
    first = {data: list(STRATA[data])[1] for data in three}
    second = {data: list(STRATA[data])[2] for data in three}
    for data in (*three, "acic_rep1"):
        yield from _block(data, "baseline", "none", one)
    for bounds, epsilons in (("baseline", others), ("public", EPSILONS)):
        for data in three:
            yield from _block(data, bounds, "none", epsilons)
    for data in three:
        yield from _block(data, "baseline", "none", EPSILONS, aware=False)
    for strata, epsilons in ((first, one + five), (second, one), (first, rest)):
        for data in three:
            yield from _block(data, "baseline", strata[data], epsilons)


def _block(
    data: str, bounds: str, strata: str, epsilons: tuple[float, ...], *, aware: bool = True
) -> Iterator[Run]:
    """Yield the releases of one design, spread over the replications."""
    reps = DATA_SETS[data]
    for epsilon in epsilons:
        for number in range(RELEASES):
            rep, seed = reps[number % len(reps)], seed_of(data, epsilon, number)
            yield Run(data, rep, bounds, strata, epsilon, seed, aware)


class Design(NamedTuple):
    """A table whose outcome is on [-1, 1], its workload, and what a release is held against."""

    table: pd.DataFrame
    workload: CausalWorkload
    half: float  # of the bounds: what effects are multiplied by
    declared: dict[str, float]
    unclipped: dict[str, float]  # the declared estimand, had the outcome not been clipped
    truth: dict[str, float]


@cache
def design_of(data: str, rep: int, bounds: str, strata: str) -> Design:
    """Scale a table and compute what its strata define without privacy."""
    table, half, truth = scaled(data, rep, bounds)
    workload = workload_of(STRATA[data][strata])
    wide = table.assign(outcome=table["outcome"] / UNCLIPPED)
    return Design(
        table,
        workload,
        half,
        {one.name: half * float(table_contrast(one, table, workload)) for one in ESTIMANDS},
        {
            one.name: half * UNCLIPPED * float(table_contrast(one, wide, workload))
            for one in ESTIMANDS
        },
        truth,
    )


_fitters: dict[tuple[CausalWorkload, bool], Fitter] = {}


def fitter_of(release: MomentRelease, aware: bool) -> Fitter:
    """Return the compiled model of a design, compiled when it is first asked for."""
    key = (release.workload, aware)
    if key not in _fitters:
        _fitters[key] = Fitter(models.stratified_moments(release, noise_aware=aware))
    return _fitters[key]


def carry_out(run: Run) -> list[dict[str, Any]]:
    """Make the release of a run, fit it, and return a row for each estimand."""
    design = design_of(run.data, run.rep, run.bounds, run.strata)
    mechanism = GaussianMechanism.calibrated(
        design.workload, epsilon=run.epsilon, delta=1 / len(design.table) ** 2
    )
    release = simulate_moments(design.table, design.workload, mechanism, seed=run.seed)
    facts = {
        one.name: {
            "declared": design.declared[one.name],
            "unclipped": design.unclipped[one.name],
            "causal": design.truth[one.name],
        }
        for one in ESTIMANDS
    }
    return fit_rows(run, fitter_of(release, run.aware), release, design.half, facts)


def main() -> None:
    """Run the study, or print its tables."""
    if sys.argv[1:] == ["--summary"]:
        if not RESULTS.exists():
            print(f"no tables: there is no {RESULTS.relative_to(ROOT)}, run the study first")
            return
        print(summary(results(RESULTS, Run)))
    elif sys.argv[1:]:
        sys.exit(f"unknown arguments {sys.argv[1:]}: there is --summary, or nothing")
    else:
        work(list(plan()), RESULTS, carry_out)


if __name__ == "__main__":
    main()
