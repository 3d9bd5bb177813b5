"""Posteriors for the experiments of the Cluster-DP paper: one row of results a fit.

The notebook ``04_cluster_dp_paper.ipynb`` computes tau_Q's errors (`cluster_dp_errors`) and reads
those of the posteriors from ``cluster_dp_experiments.csv``, which this script makes:

    python case_studies/cluster_dp_experiments.py            # run, or go on with, the fits
    python case_studies/cluster_dp_experiments.py --minutes 20
    python case_studies/cluster_dp_experiments.py --summary  # write the table of what is there

Each fit is a row of ``outputs/cluster_dp_experiments.csv``; rows that are there are not repeated,
so that the run may be stopped at any time. The YouTube communities are left out where the optional
data folder (DPCAUSAL_DATA) is not there.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from cluster_dp_errors import at_budget
from real_data_sets import ROOT
from youtube_trial import YOUTUBE, youtube_population

import dpcausal_bayes as dpc
from dpcausal_bayes import direct, models
from dpcausal_bayes.populations.labels import Population, mixture_population
from dpcausal_bayes.simulate import simulate_release

RUNS = ROOT / "outputs" / "cluster_dp_experiments.csv"
TABLE = Path(__file__).with_suffix(".csv")
SAMPLER = {"draws": 500, "tune": 300, "chains": 1, "cores": 1, "progressbar": False}

# The paper varies gamma at a fixed lambda and sigma; these two are this study's choice.
LAM, SIGMA = 0.8, 10.0
SEPARATIONS = (0.0, 2.0, 4.5)  # beta: distance of the clusters' centres


class Design(NamedTuple):
    """A trial and a mechanism: one compiled model, several releases.

    ``separation`` is beta of the Gaussian mixture, or None for the YouTube communities.
    ``epsilon`` is a proved budget, half of it the histogram's; None stands for LAM and SIGMA.
    """

    separation: float | None
    epsilon: float | None
    floor: float = 0.5

    @property
    def name(self) -> str:
        """How the tables call it."""
        trial = "youtube" if self.separation is None else f"mixture, beta {self.separation:g}"
        budget = "fixed" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        return f"{trial}; {budget}; floor {self.floor:g}"

    def population(self) -> Population:
        """Return the trial's law."""
        if self.separation is None:
            return youtube_population()
        return mixture_population(separation=self.separation)

    def mechanism(self, n_levels: int) -> dpc.ClusterDP:
        """Return the mechanism for K levels."""
        if self.epsilon is None:
            return dpc.ClusterDP(lam=LAM, sigma=SIGMA, gamma=self.floor / n_levels)
        return at_budget(n_levels, self.epsilon, floor=self.floor)


DESIGNS = {  # and how many releases of each
    Design(2.0, 1.0): 16,
    Design(2.0, 0.5): 16,
    Design(2.0, None): 12,
    Design(0.0, None): 28,
    Design(4.5, None): 12,
    Design(None, 1.0): 6,
    Design(2.0, None, 0.1): 12,
    Design(None, None): 4,
    Design(4.5, 1.0): 12,
}


def plan() -> Iterator[tuple[Design, int]]:
    """Yield all fits, a design after the other: each is compiled once."""
    for design, releases in DESIGNS.items():
        if design.separation is None and not YOUTUBE.is_dir():
            print(f"{design.name}: left out, {YOUTUBE.name} is not there (set DPCAUSAL_DATA)")
            continue
        yield from ((design, run) for run in range(releases))


def posterior_row(
    design: Design, run: int, fitter: dpc.Fitter | None = None
) -> tuple[dict[str, Any], dpc.Fitter]:
    """Draw a trial, release it, and say what posterior, tau_Q and histogram make of it."""
    population = design.population()
    schema = population.schema
    seed = [20_000 + run, round(10 * (design.separation or 0)), design.separation is None]
    rng = np.random.default_rng(seed)
    mechanism = design.mechanism(schema.n_levels)
    release = simulate_release(population.draw(rng), schema, mechanism, seed=rng)
    fitter = dpc.Fitter(models.cluster_labels(release)) if fitter is None else fitter
    start = time.perf_counter()
    tree = fitter.fit(release, random_seed=run + 1, replicates=False, **SAMPLER)
    seconds = time.perf_counter() - start
    drawn = dpc.estimate(tree, [dpc.ATE()], population="super")["estimands"]["ate"].to_numpy()
    low, high = np.quantile(drawn, [0.025, 0.975])
    row = {
        "design": design.name,
        "run": run,
        "truth": float(population.truth(dpc.ATE())),
        "mean": drawn.mean(),
        "sd": drawn.std(),
        "low": low,
        "high": high,
        "tau_q": direct.debiased(release).estimate,
        "histogram": direct.centred_histogram_contrast(release).estimate,
        "divergences": int(tree["sample_stats"]["diverging"].sum()),
        "seconds": seconds,
    }
    return row, fitter


def work(minutes: float) -> None:
    """Carry out what is not there yet, until it is done or the time is up."""
    done = finished(RUNS)
    left = [(design, run) for design, run in plan() if (design.name, run) not in done]
    stop = time.perf_counter() + 60 * minutes
    for design, runs in itertools.groupby(left, key=lambda one: one[0]):
        fitter = None
        for _, run in runs:
            if time.perf_counter() > stop:
                print(f"{minutes:g} minutes are up")
                return
            row, fitter = posterior_row(design, run, fitter)
            append(row, RUNS)
        print(f"{time.ctime()}: {design.name}", flush=True)


def finished(path: Path) -> set[tuple[str, int]]:
    """Return the fits that are there; a line that a killed run left torn is taken away."""
    if not path.exists():
        return set()
    text = path.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, "utf-8")
    rows = pd.read_csv(path)
    return set(zip(rows["design"], rows["run"], strict=True))


def append(row: dict[str, Any], path: Path) -> None:
    """Add a line, in one write."""
    path.parent.mkdir(exist_ok=True)
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each design: errors of its posteriors, with Monte Carlo errors."""
    lines = {}
    for name, part in rows.groupby("design", sort=False):
        square = (part["mean"] - part["truth"]) ** 2
        rmse = np.sqrt(square.mean())
        covered = part["truth"].between(part["low"], part["high"])
        lines[name] = {
            "releases": len(part),
            "rmse": rmse,
            "rmse_error": square.std() / np.sqrt(len(part)) / (2 * rmse),
            "sd": np.sqrt((part["sd"] ** 2).mean()),
            "bias": (part["mean"] - part["truth"]).mean(),
            "covered": int(covered.sum()),
            "divergences": int(part["divergences"].sum()),
            "tau_q_rmse": np.sqrt(((part["tau_q"] - part["truth"]) ** 2).mean()),
            "histogram_rmse": np.sqrt(((part["histogram"] - part["truth"]) ** 2).mean()),
            "seconds": part["seconds"].median(),
        }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("design")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after so many")
    parser.add_argument("--summary", action="store_true", help=f"write {TABLE.name}")
    given = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.WARNING)
    if given.summary:
        summary(pd.read_csv(RUNS)).to_csv(TABLE, float_format="%.5g", lineterminator="\n")
    else:
        work(given.minutes)


if __name__ == "__main__":
    main()
