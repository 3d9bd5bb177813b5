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
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real_data_sets import ACIC_REPS, IHDP_REPS, ROOT, load, missing
from selection_candidates import CANDIDATES, Candidates
from selection_quick import quick_effects
from selection_summary import summary
from study_runs import SAMPLER, scaled

from dpcausal_bayes import models
from dpcausal_bayes.columns import Bounded, Levels
from dpcausal_bayes.estimands import ATE, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

RESULTS = ROOT / "outputs" / "selection_study.csv"
RUNS = 100
EPSILON = 1.0
METHODS = ("selected", "all candidates", "public choice", "none")
ANALYSES = ("quick", "model")
DATA_SETS = ("ihdp", "acic", "twins")
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
    candidates: Candidates
    half: float  # what scaled effects are multiplied by
    truth: float


def plan() -> Iterator[Run]:
    """Yield all runs: a table, every method, then the next one, so that all grow alike."""
    for analysis in ANALYSES:
        for number in range(RUNS):
            for data in DATA_SETS:
                for method in METHODS:
                    yield Run(data, method, number, analysis)


@lru_cache(maxsize=1)
def study_of(data: str, number: int) -> Study:
    """Return a run's table. Of IHDP and ACIC there are a few; Twins are drawn anew each time."""
    reps = REPS.get(data)
    if reps is None:
        (rows, truth), half, outcome = load(data, number), 1.0, Levels("outcome", (0, 1))
    else:
        rows, half, truth = scaled(data, reps[number % len(reps)], "unit")
        outcome = Bounded("outcome", -1, 1)
    candidates = CANDIDATES[data]
    return Study(rows, candidates.schema(outcome), candidates, half, truth["ate"])


def release_of(run: Run, study: Study) -> MomentRelease:
    """Make a run's release. The first group is the one whose strata are modelled."""
    delta = 1 / len(study.rows) ** 2
    seed = 10_000 * DATA_SETS.index(run.data) + run.number
    if run.method == "selected":
        return study.candidates.select(study.rows, study.schema, EPSILON, delta, seed)
    groups = {
        "all candidates": study.candidates.groups,
        "public choice": study.candidates.groups[:1],
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
    tree = _fitters[key].fit(release, random_seed=seed, **SAMPLER)
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
    absent = [data for data in DATA_SETS if missing(data)]
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
        if run.data == DATA_SETS[-1] and run.method == METHODS[-1]:
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
