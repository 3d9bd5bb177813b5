"""Groups chosen by looking, privately, beside groups chosen beforehand: IHDP, ACIC 2016, Twins.

Four releases of each table at epsilon 1 (delta 1/n²): `custodian.select_moments` among public
candidates; all candidates measured at once; one public choice of strata; no strata. Each is held
against the causal truth and against what the same strata say of the table without noise (the
declared estimand), twice: by the stratified model's normal approximation around its mode, which
takes no time (``quick``), and by the model itself.

    python case_studies/selection_study.py            # run, or go on with, the study
    python case_studies/selection_study.py --minutes 30
    python case_studies/selection_study.py --summary  # tables of what is there, in Markdown

Each run is a row of ``outputs/selection_study.csv``; runs that are there are not repeated, so that
the study may be stopped at any time. Data are read from the folder that DPCAUSAL_DATA names, by
default ``../shared/data``.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
from numpy.typing import NDArray
from real_data_sets import ACIC_REPS, IHDP_REPS, PUBLIC_BOUNDS, ROOT, Case, load, missing
from selection_quick import quick_effects
from selection_summary import summary

from dpcausal_bayes import models
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian.schedule import schedule_for
from dpcausal_bayes.custodian.select import carry_out as select
from dpcausal_bayes.estimands import ATE, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise, simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

RESULTS = ROOT / "outputs" / "selection_study.csv"
RUNS = 100
EPSILON = 1.0
METHODS = ("selected", "all candidates", "public choice", "none")
ANALYSES = ("quick", "model")
SAMPLER = {"draws": 1000, "tune": 500, "chains": 1, "cores": 1, "progressbar": False}
NO_YES = (0, 1)

# Candidates were written down before any release was made, by what the columns are; none was
# revised. The first one is the public choice, that of `real_data_sets` and `compare_designs`. The
# exception is ``twins_weeks``, which was added after the first runs, as four classes of gestation
# leave confounding: it offers a finer cut as well, which is then the public choice.
# Numbers are cut at round values or where the field cuts them. ACIC's columns have no names: taken
# are the two of the public choices, those of letters or of 0 and 1, and the first ten counts,
# none against some.
COVARIATES: dict[str, tuple[Categories | Binned, ...]] = {
    "ihdp": (
        Categories("schooling", ["none", "high school", "college", "degree"]),
        Categories("married", NO_YES),
        Binned("momage", [10, 20, 30, 50]),
        Binned("preterm", [0, 5, 10, 20]),
        Categories("cig", NO_YES),
        Categories("drugs", NO_YES),
    ),
    "acic": (
        Binned("x_1", [10, 20, 30, 60]),
        Categories("x_24", ["E"], other="not E"),
        Categories("x_2", ["A", "B", "C", "D", "E", "F"]),
        *(Categories(f"x_{i}", NO_YES) for i in (17, 22, 38, 51, 54)),
        *(Categories(f"x_{i}", [0], other="some") for i in range(7, 17)),
    ),
    "twins": (
        Binned("gestat", [16, 28, 32, 37, 48]),
        Binned("dmage", [10, 20, 30, 50]),
        Binned("dmeduc", [0, 12, 13, 20]),
        Binned("cigar", [0, 1, 10, 100]),
        Binned("nprevist", [0, 1, 10, 60]),
        Categories("dmar", [1, 2]),
    ),
}
COVARIATES["twins_weeks"] = (
    Binned("weeks", [16, 24, 26, 28, 30, 32, 34, 36, 38, 40, 48]),
    *COVARIATES["twins"],
)
JOINT = {
    "ihdp": ("schooling", "married"),
    "acic": ("x_1", "x_24"),
    "twins": ("gestat", "dmage"),
    "twins_weeks": ("gestat", "dmage"),
}
REPS = {"ihdp": IHDP_REPS, "acic": ACIC_REPS}


class Run(NamedTuple):
    """One release and its fit."""

    data: str
    method: str
    number: int
    analysis: str


class Study(NamedTuple):
    """A table whose outcome is on [-1, 1] or 0 and 1, and what is public of it."""

    rows: pd.DataFrame
    schema: Schema
    candidates: tuple[tuple[str, ...], ...]
    half: float  # what scaled effects are multiplied by
    truth: float


def plan() -> Iterator[Run]:
    """Yield all runs: a table, every method, then the next one, so that all grow alike."""
    for analysis in ANALYSES:
        for number in range(RUNS):
            for data in COVARIATES:
                for method in METHODS:
                    yield Run(data, method, number, analysis)


@lru_cache(maxsize=1)
def study_of(data: str, number: int) -> Study:
    """Return a run's table. Of IHDP and ACIC there are a few; Twins are drawn anew each time."""
    reps = REPS.get(data)
    case = _twins(number) if reps is None else _case(data, reps[number % len(reps)])
    outcome: Levels | Bounded = Levels("outcome", NO_YES)
    rows, half = case.table, 1.0
    if data in PUBLIC_BOUNDS:
        low, high = PUBLIC_BOUNDS[data]
        half = (high - low) / 2
        outcome = Bounded("outcome", -1, 1)
        rows = rows.assign(outcome=(rows["outcome"] - (low + high) / 2) / half)
    covariates = COVARIATES[data]
    schema = Schema(
        arm=Arm("treat", control=0, treated=1), outcome=outcome, covariates=list(covariates)
    )
    candidates = (*((one.column,) for one in covariates), JOINT[data])
    return Study(rows, schema, candidates, half, case.truth["ate"])


@lru_cache(maxsize=1)
def _twins(number: int) -> Case:
    case = load("twins", number)
    return Case(case.table.assign(weeks=case.table["gestat"]), case.truth)


@cache
def _case(data: str, rep: int) -> Case:
    return load(data, rep)


def release_of(run: Run, study: Study) -> MomentRelease:
    """Make a run's release. The first group is the one whose strata are modelled."""
    delta = 1 / len(study.rows) ** 2
    seed = 10_000 * list(COVARIATES).index(run.data) + run.number
    if run.method == "selected":
        schedule = schedule_for(study.schema, study.candidates, EPSILON, None, delta, 1)
        rows = pl.from_pandas(study.rows)  # summed faster
        return select(rows, schedule, None, SeededNoise(seed), non_private=True)
    groups = {
        "all candidates": study.candidates,
        "public choice": study.candidates[:1],
        "none": ((),),
    }[run.method]
    workload = CausalWorkload(study.schema, groups=groups)
    mechanism = GaussianMechanism.calibrated(workload, epsilon=EPSILON, delta=delta)
    return simulate_moments(study.rows, workload, mechanism, seed=seed)


_fitters: dict[tuple[CausalWorkload, GaussianMechanism], Fitter] = {}


def carry_out(run: Run) -> dict[str, Any]:
    """Make a run's release, fit it, and return its row."""
    study = study_of(run.data, run.number)
    start = time.perf_counter()
    release = release_of(run, study)
    released = time.perf_counter() - start
    start = time.perf_counter()
    sampled = run.analysis == "model"
    effects, divergences = (_sampled if sampled else quick_effects)(release, run.number)
    drawn = study.half * effects
    low, high = np.quantile(drawn, [0.025, 0.975])
    group = release.causal_workload.groups[0]
    strata = CausalWorkload(study.schema, groups=[group])
    return run._asdict() | {
        "strata": " x ".join(group) or "none",
        "estimate": float(drawn.mean()),
        "low": float(low),
        "high": float(high),
        "declared": study.half * float(table_contrast(ATE(), study.rows, strata)),
        "causal": study.truth,
        "epsilon": release.loss.epsilon,
        "divergences": divergences,
        "release_seconds": released,
        "fit_seconds": time.perf_counter() - start,
    }


def _sampled(release: MomentRelease, seed: int) -> tuple[NDArray[np.float64], int]:
    """Return the model's draws of the effect, and the number of divergences."""
    workload = release.causal_workload
    # several groups are pooled for one noise scale; with one group the scale is data of the model
    key = (workload, release.mechanism if len(workload.groups) > 1 else None)
    if key not in _fitters:
        _fitters[key] = Fitter(models.stratified_moments(release))
    tree = _fitters[key].fit(release, random_seed=seed, replicates=False, **SAMPLER)
    effects = estimate(tree, [ATE()], population="super")["estimands"]["ate"].values.ravel()
    return effects, int(tree["sample_stats"]["diverging"].sum())


def finished(path: Path) -> set[Run]:
    """Return the runs whose rows are there; a row that was cut short is dropped."""
    if not path.exists():
        return set()
    text = path.read_text("utf-8")
    if not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], "utf-8")
    rows = pd.read_csv(path)
    return {Run(*key) for key in rows[list(Run._fields)].itertuples(index=False, name=None)}


def work(path: Path, minutes: float) -> None:
    """Carry out what is not there yet, for so long."""
    absent = [data for data in COVARIATES if missing(data.split("_")[0])]
    for data in absent:
        print(f"{data}: skipped, as its folder is not there (set DPCAUSAL_DATA)")
    done = finished(path)
    left = [run for run in plan() if run not in done and run.data not in absent]
    path.parent.mkdir(exist_ok=True)
    logging.getLogger("pymc").setLevel(logging.WARNING)
    end = time.perf_counter() + 60 * minutes
    for count, run in enumerate(left):
        if time.perf_counter() > end:
            print(f"time is up: {len(left) - count} runs are left")
            return
        row = pd.DataFrame([carry_out(run)])
        text = row.to_csv(index=False, header=not path.exists(), float_format="%.8g")
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        if run.data == list(COVARIATES)[-1] and run.method == METHODS[-1]:
            print(f"{run.analysis}: {run.number + 1}/{RUNS} tables of each data set", flush=True)


def main() -> None:
    """Run the study, or print its tables."""
    parser = argparse.ArgumentParser(description="Groups chosen by looking, privately.")
    parser.add_argument("--summary", action="store_true", help="print tables of what is there")
    parser.add_argument("--minutes", type=float, default=1e9)
    given = parser.parse_args()
    if not given.summary:
        work(RESULTS, given.minutes)
    elif RESULTS.exists():
        print(summary(pd.read_csv(RESULTS)))
    else:
        print(f"no tables: there is no {RESULTS.relative_to(ROOT)}, run the study first")


if __name__ == "__main__":
    main()
