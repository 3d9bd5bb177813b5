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

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from real_data_sets import (
    DATA,
    DATA_SETS,
    ROOT,
    STRATA,
    Case,
    bounds_of,
    load,
    missing,
    workload_of,
)
from real_data_summary import summary

from dpcausal_bayes import models
from dpcausal_bayes.estimands import ATE, ATT, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.report import split_sd
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

RESULTS = ROOT / "outputs" / "real_data_study.csv"
EPSILONS = (0.5, 1.0, 2.0, 5.0)
RELEASES = 40
ESTIMANDS = (ATE(), ATT())
UNCLIPPED = 20.0  # half-widths of the bounds: beyond every outcome
SAMPLER = {"draws": 1000, "tune": 500, "chains": 1, "cores": 1, "progressbar": False}
SAMPLER |= {"replicates": False}


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
    """Yield the releases of one design, spread over the replications.

    Seeds are 100,000 times the place of the data set, plus 1,000 times that of epsilon, plus the
    number of the release. They are the same for every choice of bounds and strata.
    """
    reps = DATA_SETS[data]
    for epsilon in epsilons:
        first = 100_000 * list(DATA_SETS).index(data) + 1_000 * EPSILONS.index(epsilon)
        for number in range(RELEASES):
            rep = reps[number % len(reps)]
            yield Run(data, rep, bounds, strata, epsilon, first + number, aware)


class Design(NamedTuple):
    """A table whose outcome is on [-1, 1], its workload, and what a release is held against."""

    table: pd.DataFrame
    workload: CausalWorkload
    half: float  # of the bounds: what effects are multiplied by
    declared: dict[str, float]
    unclipped: dict[str, float]  # the declared estimand, had the outcome not been clipped
    truth: dict[str, float]


@cache
def case_of(data: str, rep: int) -> Case:
    """Read one replication once."""
    return load(data, rep)


@cache
def design_of(data: str, rep: int, bounds: str, strata: str) -> Design:
    """Scale a table and compute what its strata define without privacy."""
    case = case_of(data, rep)
    low, high = bounds_of(data, bounds, case.table)
    centre, half = (low + high) / 2, (high - low) / 2
    table = case.table.assign(outcome=(case.table["outcome"] - centre) / half)
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
        case.truth,
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
    fitter = fitter_of(release, run.aware)
    start = time.perf_counter()
    tree = fitter.fit(release, random_seed=run.seed, **SAMPLER)
    population = estimate(tree, ESTIMANDS, population="super")
    sample = estimate(tree, ESTIMANDS, population="sample")
    seconds = time.perf_counter() - start
    known = {"seconds": seconds, "divergences": int(tree["sample_stats"]["diverging"].sum())}
    rows = []
    for one in ESTIMANDS:
        draws = {
            "super": design.half * population["estimands"][one.name],
            "sample": design.half * sample["estimands"][one.name],
            "table": design.half * population["confidential_estimands"][one.name],
        }
        facts = {
            "half": design.half,
            "declared": design.declared[one.name],
            "unclipped": design.unclipped[one.name],
            "causal": design.truth[one.name],
        }
        rows.append(run._asdict() | {"estimand": one.name} | _posterior(draws) | facts | known)
    return rows


def _posterior(draws: dict[str, xr.DataArray]) -> dict[str, float]:
    sampling, privacy = split_sd(draws["super"], draws["table"])
    found = {
        "mean": float(draws["super"].mean()),
        "sd": float(draws["super"].std(ddof=1)),
        "sampling_sd": float(sampling),
        "privacy_sd": float(privacy),
    }
    for name, drawn in draws.items():
        low, high = np.quantile(drawn.values, [0.025, 0.975])
        found |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    return found


def finished(path: Path) -> set[Run]:
    """Return the runs whose rows are all there; what a killed run left half written is dropped."""
    if not path.exists():
        return set()
    lines = path.read_text("utf-8").split("\n")[:-1]  # what follows the last line end is torn
    width = len(Run._fields)
    runs = [tuple(line.split(",")[:width]) for line in lines]
    counts = Counter(runs)
    whole = [line for line, run in zip(lines, runs, strict=True) if counts[run] == len(ESTIMANDS)]
    if len(whole) < len(lines) - 1 or not path.read_text("utf-8").endswith("\n"):
        text = "".join(f"{line}\n" for line in [*lines[:1], *whole])
        path.write_text(text, "utf-8") if text else path.unlink()
    if not whole:
        return set()
    rows = pd.read_csv(path).drop_duplicates(list(Run._fields))
    return {Run(*key) for key in rows[list(Run._fields)].itertuples(index=False, name=None)}


def append(rows: list[dict[str, Any]], path: Path) -> None:
    """Add the rows of a run, all at once."""
    text = pd.DataFrame(rows).to_csv(index=False, header=not path.exists(), float_format="%.8g")
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def work(path: Path) -> None:
    """Carry out what is not there yet, and say how far it is."""
    absent = [data for data in DATA_SETS if missing(data)]
    for data in absent:
        print(f"{data}: skipped, as its folder is not in {DATA} (set DPCAUSAL_DATA)")
    runs = [run for run in plan() if run.data not in absent]
    done = finished(path)
    left = [run for run in runs if run not in done]
    path.parent.mkdir(exist_ok=True)
    logging.getLogger("pymc").setLevel(logging.WARNING)  # it names what it draws at every release
    start = time.perf_counter()
    for number, run in enumerate(left, start=1):
        append(carry_out(run), path)
        if number % 20 == 0 or number == len(left):
            spent = time.perf_counter() - start
            minutes = spent / number * (len(left) - number) / 60
            print(
                f"{len(done) + number}/{len(runs)} runs, {spent / 60:.1f} minutes, about "
                f"{minutes:.0f} left; {run.data}, {run.bounds} bounds, strata {run.strata}, "
                f"epsilon {run.epsilon:g}",
                flush=True,
            )


def main() -> None:
    """Run the study, or print its tables."""
    if sys.argv[1:] == ["--summary"]:
        if not RESULTS.exists():
            print(f"no tables: there is no {RESULTS.relative_to(ROOT)}, run the study first")
            return
        print(summary(pd.read_csv(RESULTS)))
    elif sys.argv[1:]:
        sys.exit(f"unknown arguments {sys.argv[1:]}: there is --summary, or nothing")
    else:
        work(RESULTS)


if __name__ == "__main__":
    main()
