"""Second-order releases: copies of a confounder, coverage, and time.

``python case_studies/gram_study.py toy | coverage [RUNS] | time | show`` appends a line a run to
``outputs/gram_study.csv``, so that it can be stopped and go on; ``show`` writes
``case_studies/gram_study.md`` from it.

*Coverage.* d covariates with correlation 0.3, standard normal, bounds at three standard deviations,
shrunk onto a ball of squared radius 0.22 d; the logit of treatment is linear in them, with standard
deviation 0.8. The outcome in [-1, 1] is 0.1 t + g + e, g linear with standard deviation 0.25 and
correlated with the logit, the effect 0.1 + 0.03 x_1. Errors are normal with standard deviation
0.155; "heteroscedastic" ones grow with |x_1| and in the treated; a "binary" outcome is -1 or +1
with mean 0.1 t + g. Truths are those of the population; errors are in half widths of the outcome's
bounds. "OLS" is regression in each arm on the rows themselves. With 2,000 records and epsilon 1 the
noise leaves slopes to the prior, which allows for steeper ones than these: intervals cover more
than they claim. Over truths from the prior they cover what they claim (`calibration/prior.md`).
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import dpcausal_bayes as dpc
from dpcausal_bayes import fitting
from dpcausal_bayes.models.gram_laws import covariance, gram_form, gram_law
from dpcausal_bayes.models.gram_pilot import gram_pilot

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "outputs" / "gram_study.csv"
PAGE = ROOT / "case_studies" / "gram_study.md"
DELTA = 1e-6
ROUND = 25  # runs of a cell before the next cell's turn
COLUMNS = ["study", "cell", "run", "estimand", "truth", "mean", "sd", "low", "high", "ols", "naive",
           "seconds", "leaves", "diverged"]  # fmt: skip


class Cell(NamedTuple):
    """A row of the coverage table."""

    d: int
    n: int
    epsilon: float
    errors: str = "normal"

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.d}, {self.n:,}, {self.epsilon:g}, {self.errors}"


CELLS = [
    Cell(6, 20_000, 1.0),
    Cell(6, 20_000, 1.0, "binary"),
    Cell(6, 20_000, 1.0, "heteroscedastic"),
    Cell(6, 20_000, 8.0, "heteroscedastic"),
    Cell(6, 2_000, 1.0),
    Cell(12, 2_000, 4.0),
    Cell(12, 20_000, 1.0),
    Cell(12, 20_000, 4.0),
]


def directions(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Slopes of the logit and of the outcome, scaled to their standard deviations."""
    correlation = 0.7 * np.eye(d) + 0.3
    rng = np.random.default_rng(d)
    logit, outcome = rng.normal(0.5, 0.5, d), rng.normal(0.5, 0.5, d)
    logit *= 0.8 / np.sqrt(logit @ correlation @ logit)
    return logit, outcome * 0.25 / np.sqrt(outcome @ correlation @ outcome)


def rows(cell: Cell, n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draw covariates, treatment and outcome."""
    x = np.sqrt(0.3) * rng.normal(size=(n, 1)) + np.sqrt(0.7) * rng.normal(size=(n, cell.d))
    logit, outcome = directions(cell.d)
    t = (rng.random(n) < 1 / (1 + np.exp(-x @ logit))).astype(int)
    mean = x @ outcome + (t - 0.5) * (0.1 + 0.03 * x[:, 0])
    if cell.errors == "binary":
        y = np.where(rng.random(n) < (1 + np.clip(mean, -1, 1)) / 2, 1.0, -1.0)
    else:
        sd = 0.155 * np.ones(n)
        if cell.errors == "heteroscedastic":
            sd = 0.1 * (1 + 0.5 * t) * np.sqrt(0.2 + x[:, 0] ** 2)
        y = mean + sd * rng.normal(size=n)
    return x, t, y


def schema_of(d: int, *, binary: bool = False) -> dpc.Schema:
    """Declare d covariates and an outcome."""
    outcome: Any = dpc.Levels("y", [-1, 1]) if binary else dpc.Bounded("y", -1, 1)
    return dpc.Schema(
        arm=dpc.Arm("t", control=0, treated=1),
        outcome=outcome,
        covariates=[dpc.Bounded(f"x{j}", -3, 3) for j in range(d)],
    )


def table_of(x: np.ndarray, t: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    """Put columns into a table."""
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])]).assign(t=t, y=y)


def least_squares(x: np.ndarray, t: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Effects by regression in each arm, without privacy."""
    design = np.column_stack([np.ones(len(y)), x])
    fitted = [design @ np.linalg.lstsq(design[t == a], y[t == a], rcond=None)[0] for a in (0, 1)]
    effect = fitted[1] - fitted[0]
    return {"ate": effect.mean(), "att": effect[t == 1].mean()}


def done() -> pd.DataFrame:
    """Read the runs that there are."""
    return pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=COLUMNS)


def write(**line: Any) -> None:
    """Add a run."""
    RESULTS.parent.mkdir(exist_ok=True)
    new = not RESULTS.exists()
    with open(RESULTS, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(line)


def summary(tree: Any, name: str, scale: float = 1.0) -> dict[str, float]:
    """Return an estimand's mean, standard deviation and interval."""
    drawn = tree["estimands"][name].values.ravel() * scale
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"mean": drawn.mean(), "sd": drawn.std(), "low": low, "high": high}


def coverage(runs: int) -> None:
    """Fit as many releases of each cell as asked for, but for those that are there.

    In rounds over all cells, so that a study that is stopped has looked at each alike.
    """
    fitting.PREDICTIVE_DRAWS = 20  # of replicated releases, which nobody looks at here
    studies = [_CellStudy(index, cell) for index, cell in enumerate(CELLS)]
    for stop in [*range(ROUND, runs, ROUND), runs]:
        for study in studies:
            had = done()
            had = had[(had["study"] == "coverage") & (had["cell"] == study.cell.name)]
            complete = had.groupby("run")["estimand"].nunique() == len(study.truths)
            for run in sorted(set(range(stop)) - set(complete.index[complete])):
                study.run(run)


class _CellStudy:
    """The releases of one cell, of one compiled model."""

    def __init__(self, index: int, cell: Cell) -> None:
        self.index, self.cell = index, cell
        x, t, _ = rows(cell, 1_000_000, np.random.default_rng(index))
        self.truths = {"ate": 0.1, "att": 0.1 + 0.03 * x[t == 1, 0].mean()}
        schema = schema_of(cell.d, binary=cell.errors == "binary")
        self.workload = dpc.GramWorkload(schema, radius=np.sqrt(0.22 * cell.d))
        self.mechanism = dpc.GaussianMechanism.calibrated(
            self.workload, epsilon=cell.epsilon, delta=DELTA
        )
        self.fitter: Any = None

    def run(self, run: int) -> None:
        """Release a table, fit it, add its lines."""
        rng = np.random.default_rng([self.index, run])
        x, t, y = rows(self.cell, self.cell.n, rng)
        release = dpc.simulate_moments(table_of(x, t, y), self.workload, self.mechanism, seed=rng)
        if self.fitter is None:
            self.fitter = dpc.Fitter(dpc.models.gram_regression(release))
        start = time.perf_counter()
        tree = self.fitter.fit(release, draws=1000, tune=400, chains=1, random_seed=run,
                               progressbar=False)  # fmt: skip
        tree = dpc.estimate(tree, [dpc.ATE(), dpc.ATT()], population="super")
        seconds = time.perf_counter() - start
        stats = tree["sample_stats"]
        ols, naive = least_squares(x, t, y), y[t == 1].mean() - y[t == 0].mean()
        for name, truth in self.truths.items():
            write(study="coverage", cell=self.cell.name, run=run, estimand=name, truth=truth,
                  ols=ols[name], naive=naive, seconds=seconds,
                  leaves=float(stats["n_steps"].mean()),
                  diverged=int(stats["diverging"].sum()), **summary(tree, name))  # fmt: skip


def toy() -> None:
    """Release copies of a confounder, cut in five or a number: a million rows, little noise.

    The posterior is then a point, so its mode is looked at.
    """
    rng = np.random.default_rng(1)
    n = 1_000_000
    x = rng.normal(size=n)
    t = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
    y = t + x + rng.normal(size=n)
    edges = [-9, -0.8416, -0.2533, 0.2533, 0.8416, 9]
    middle = np.array([-1.4, -0.5319, 0.0, 0.5319, 1.4])
    cut = np.digitize(x, edges[1:-1])
    naive = y[t == 1].mean() - y[t == 0].mean()
    for kind in ("levels", "numeric"):
        for k in (1, 2, 4, 8):
            names = [f"x{j}" for j in range(k)]
            covariates = [
                dpc.Binned(name, edges) if kind == "levels" else dpc.Bounded(name, -1.5, 1.5)
                for name in names
            ]
            schema = dpc.Schema(arm=dpc.Arm("t", control=0, treated=1),
                                outcome=dpc.Bounded("y", -8, 9), covariates=covariates)  # fmt: skip
            value = x if kind == "levels" else middle[cut]
            table = pd.DataFrame(dict.fromkeys(names, value)).assign(t=t, y=y)
            workload = dpc.GramWorkload(schema)
            mechanism = dpc.GaussianMechanism.calibrated(workload, epsilon=60.0, delta=DELTA)
            release = dpc.simulate_moments(table, workload, mechanism, seed=k)
            start = time.perf_counter()
            effect = 8.5 * effect_at_mode(workload, release)
            write(study="toy", cell=f"{kind}, k = {k}", run=0, estimand="ate", truth=1.085,
                  naive=naive, mean=effect, seconds=time.perf_counter() - start)  # fmt: skip


def effect_at_mode(workload: dpc.GramWorkload, release: dpc.MomentRelease) -> float:
    """Return the regression's effect on everybody at the posterior mode, in half widths."""
    form = gram_form(workload, dpc.models.GramPriors())
    mode = gram_pilot(form, release.noisy, release.noise_scale, release.n).location
    law = gram_law(form, mode, np)
    s, mean = covariance(form, law), law.mean
    fitted = []
    for t in (0, 1):
        slope = np.linalg.solve(s[t, :-1, :-1], s[t, :-1, -1])
        everybody = law.share @ mean[:, :-1]
        fitted.append(mean[t, -1] + (everybody - mean[t, :-1]) @ slope)
    return float(fitted[1] - fitted[0])


def timing() -> None:
    """Time a fit of 30 numeric covariates: 4 chains of 1,000 draws on 2 cores."""
    cell = Cell(30, 20_000, 1.0)
    workload = dpc.GramWorkload(schema_of(cell.d), radius=np.sqrt(0.22 * cell.d))
    mechanism = dpc.GaussianMechanism.calibrated(workload, epsilon=cell.epsilon, delta=DELTA)
    table = table_of(*rows(cell, cell.n, np.random.default_rng(0)))
    release = dpc.simulate_moments(table, workload, mechanism, seed=1)
    start = time.perf_counter()
    fitter = dpc.Fitter(dpc.models.gram_regression(release))
    print(f"pilot and compilation: {time.perf_counter() - start:.1f} s")
    for run in range(2):
        start = time.perf_counter()
        tree = fitter.fit(release, tune=500, chains=4, cores=2, random_seed=run, progressbar=False)
        seconds = time.perf_counter() - start
        stats = tree["sample_stats"]
        tree = dpc.estimate(tree, [dpc.ATE()], population="super")
        print(f"fit: {seconds:.1f} s")
        write(study="time", cell="30 numeric covariates, 4 x 1,000 draws", run=run, estimand="ate",
              truth=0.1, seconds=seconds, leaves=float(stats["n_steps"].mean()),
              diverged=int(stats["diverging"].sum()), **summary(tree, "ate"))  # fmt: skip


def page() -> str:
    """Write what there is as Markdown."""
    runs = done()
    lines = ["# Second-order releases", ""]
    lines += [
        "`python case_studies/gram_study.py coverage 200`, which goes on where it was stopped,"
    ]
    lines += ["then `show`.", "", (__doc__ or "").split("\n\n", 2)[2].strip(), ""]
    toys = runs[runs["study"] == "toy"].groupby("cell").last()
    if len(toys):
        lines += [
            f"Copies of one confounder: true effect 1, {toys['truth'].iloc[0]:g} after cutting it "
            f"in five, naive {toys['naive'].iloc[0]:.2f}; a million rows, hardly any noise.",
            "", "| copies | k = 1 | 2 | 4 | 8 |", "|---|---|---|---|---|",
        ]  # fmt: skip
        for kind in ("levels", "numeric"):
            found = [toys["mean"].get(f"{kind}, k = {k}", np.nan) for k in (1, 2, 4, 8)]
            lines.append(f"| {kind} | " + " | ".join(f"{mean:.3f}" for mean in found) + " |")
    lines += [
        "",
        "| d, n, epsilon, errors | estimand | runs | RMSE | bias | coverage | length | OLS RMSE "
        "| naive RMSE | seconds | leaves | divergences |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    covered = runs[runs["study"] == "coverage"].drop_duplicates(["cell", "run", "estimand"])
    for (cell, name), own in covered.groupby(["cell", "estimand"], sort=False):
        error = own["mean"] - own["truth"]
        inside = (own["low"] <= own["truth"]) & (own["truth"] <= own["high"])
        size = [np.sqrt(((own[c] - own["truth"]) ** 2).mean()) for c in ("ols", "naive")]
        lines.append(
            f"| {cell} | {name} | {len(own)} | {np.sqrt((error**2).mean()):.4f} "
            f"| {error.mean():.4f} | {100 * inside.mean():.0f} % "
            f"| {(own['high'] - own['low']).median():.3f} | {size[0]:.4f} | {size[1]:.3f} "
            f"| {own['seconds'].median():.1f} | {own['leaves'].mean():.0f} "
            f"| {own['diverged'].sum():.0f} |"
        )
    times = runs[runs["study"] == "time"]
    if len(times):
        seconds, leaves = times["seconds"].min(), times["leaves"].mean()
        lines += ["", f"{times['cell'].iloc[0]}: {seconds:.0f} s on two cores that others used too,"
                  f" {leaves:.0f} leaves a draw."]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    asked = sys.argv[1:] or ["show"]
    if asked[0] == "toy":
        toy()
    elif asked[0] == "coverage":
        coverage(int(asked[1]) if len(asked) > 1 else 100)
    elif asked[0] == "time":
        timing()
    else:
        PAGE.write_text(page(), "utf-8")
