"""What studies of many releases share: scaled tables, a posterior as numbers, a file of runs.

A run is a NamedTuple that names a release and its fit, and has a field ``data``; it is one row per
estimand of the file. Runs that are there are not repeated, so that a study may be stopped at any
time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from real_data_sets import DATA, DATA_SETS, PUBLIC_UNITS, bounds_of, load, missing

from dpcausal_bayes.estimands import ATE, ATT, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.report import split_sd

__all__ = [
    "EPSILONS",
    "ESTIMANDS",
    "SAMPLER",
    "Scaled",
    "append",
    "finished",
    "fit_rows",
    "results",
    "scaled",
    "seed_of",
    "work",
]

EPSILONS = (0.5, 1.0, 2.0, 5.0)
ESTIMANDS = (ATE(), ATT())
SAMPLER = {"draws": 1000, "tune": 500, "chains": 1, "cores": 1, "progressbar": False}
SAMPLER |= {"replicates": False}
PROGRESS = 20  # runs from one line to the next


class Scaled(NamedTuple):
    """A table whose outcome is on [-1, 1] within its bounds; a binary one is left as it is."""

    table: pd.DataFrame
    half: float  # of the bounds: what effects are multiplied by
    truth: dict[str, float]  # in the unit that half is in


@cache
def scaled(data: str, rep: int, bounds: str) -> Scaled:
    """Read one replication and scale it.

    Parameters
    ----------
    data : str
    rep : int
    bounds : "baseline", "public", "unit" or "binary"
        See `real_data_sets.bounds_of`; ``"unit"`` are the public ones in the public unit, which is
        the truth's then, ``"binary"`` is for an outcome of 0 and 1, which has none.
    """
    case = load(data, rep)
    if bounds == "binary":
        return Scaled(case.table, 1.0, case.truth)
    unit = PUBLIC_UNITS.get((data, rep), 1.0) if bounds == "unit" else 1.0
    low, high = bounds_of(data, "public" if bounds == "unit" else bounds, case.table)
    centre, half = (low + high) / 2, (high - low) / 2
    table = case.table.assign(outcome=(case.table["outcome"] / unit - centre) / half)
    return Scaled(table, half, {name: effect / unit for name, effect in case.truth.items()})


def seed_of(data: str, epsilon: float, number: int) -> int:
    """Return the seed of a release, the same whatever is released.

    100,000 times the place of the data set, plus 1,000 times that of epsilon, plus the release's
    number.
    """
    return 100_000 * list(DATA_SETS).index(data) + 1_000 * EPSILONS.index(epsilon) + number


def fit_rows(
    run: Any,
    fitter: Fitter,
    release: MomentRelease,
    half: float,
    facts: Mapping[str, Mapping[str, float]],
) -> list[dict[str, Any]]:
    """Fit a release and return a row for each estimand, in the outcome's own unit.

    A row has the run's fields, mean, standard deviations and intervals of the posterior (``super``
    the population's effect, ``sample`` that on these units, ``table`` what the confidential table
    would have said), facts, seconds of processor time and divergences.

    Parameters
    ----------
    run : NamedTuple
        With a field ``seed``.
    fitter : Fitter
    release : MomentRelease
    half : float
        What scaled effects are multiplied by.
    facts : mapping
        By estimand, what its posterior is held against.
    """
    start = time.process_time()  # a machine that others use tells no other time
    tree = fitter.fit(release, random_seed=run.seed, **SAMPLER)
    population = estimate(tree, ESTIMANDS, population="super")
    trees = {
        "super": population["estimands"],
        "sample": estimate(tree, ESTIMANDS, population="sample")["estimands"],
        "table": population["confidential_estimands"],
    }
    seconds = time.process_time() - start
    known = {"seconds": seconds, "divergences": int(tree["sample_stats"]["diverging"].sum())}
    rows = []
    for one in ESTIMANDS:
        numbers = _numbers({name: half * drawn[one.name] for name, drawn in trees.items()})
        rows.append(
            run._asdict()
            | {"estimand": one.name}
            | numbers
            | {"half": half, **facts[one.name]}
            | known
        )
    return rows


def _numbers(draws: dict[str, xr.DataArray]) -> dict[str, float]:
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


def finished(path: Path, kind: Any) -> set[Any]:
    """Return the runs whose rows are all there; what a killed run left half written is dropped.

    Parameters
    ----------
    path : Path
    kind : type
        Of a run.
    """
    if not path.exists():
        return set()
    text = path.read_text("utf-8")
    lines = text.split("\n")[:-1]  # what follows the last line end is torn
    names = list(kind._fields)
    width = len(names)
    found = {tuple(line.split(",")[: width + 1]) for line in lines}  # a run and an estimand
    counts = Counter(key[:width] for key in found)  # of a run that two processes made, once
    whole = [line for line in lines if counts[tuple(line.split(",")[:width])] == len(ESTIMANDS)]
    if len(whole) < len(lines) - 1 or not text.endswith("\n"):
        text = "".join(f"{line}\n" for line in [*lines[:1], *whole])
        path.write_text(text, "utf-8") if text else path.unlink()
    if not whole:
        return set()
    rows = pd.read_csv(path).drop_duplicates(names)
    return {kind(*key) for key in rows[names].itertuples(index=False, name=None)}


def results(path: Path, kind: Any) -> pd.DataFrame:
    """Return a file's rows, of a run that two processes made only the first.

    Parameters
    ----------
    path : Path
    kind : type
        Of a run.
    """
    return pd.read_csv(path).drop_duplicates([*kind._fields, "estimand"], ignore_index=True)


def append(rows: list[dict[str, Any]], path: Path) -> None:
    """Add the rows of a run, all at once."""
    text = pd.DataFrame(rows).to_csv(index=False, header=not path.exists(), float_format="%.8g")
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def work(runs: Sequence[Any], path: Path, carry_out: Callable[[Any], list[dict[str, Any]]]) -> None:
    """Carry out what is not there yet, and say how far it is.

    Parameters
    ----------
    runs : sequence of runs
    path : Path
    carry_out : callable
        From a run to its rows.
    """
    absent = [data for data in dict.fromkeys(run.data for run in runs) if missing(data)]
    for data in absent:
        print(f"{data}: skipped, as its folder is not in {DATA} (set DPCAUSAL_DATA)")
    runs = [run for run in runs if run.data not in absent]
    done = finished(path, type(runs[0])) if runs else set()
    left = [run for run in runs if run not in done]
    path.parent.mkdir(exist_ok=True)
    logging.getLogger("pymc").setLevel(logging.WARNING)  # it names what it draws at every release
    start = time.perf_counter()
    for number, run in enumerate(left, start=1):
        append(carry_out(run), path)
        if number % PROGRESS == 0 or number == len(left):
            spent = time.perf_counter() - start
            minutes = spent / number * (len(left) - number) / 60
            told = ", ".join(f"{name} {value}" for name, value in run._asdict().items())
            print(
                f"{len(runs) - len(left) + number}/{len(runs)} runs, {spent / 60:.1f} minutes, "
                f"about {minutes:.0f} left; {told}",
                flush=True,
            )
