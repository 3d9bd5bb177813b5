"""The package beside other private methods, on five data sets and five budgets.

    python case_studies/compare.py            # run, or go on with, the comparison
    python case_studies/compare.py --minutes 40
    python case_studies/compare.py --summary  # write case_studies/compare.md from what is there
    python case_studies/compare.py --quick    # a small one on simulated data, printed

Each run of a method is a line of ``outputs/compare.csv``, appended when it is done; runs that are
there are not repeated, so that it may be stopped, or killed, at any time. Data are read from the
folder that DPCAUSAL_DATA names, by default ``../shared/data``. Delta is 1/n². MST, AIM and MWEM
need the package mbi (``pip install .[compare]``); without it they are left out, and that is said.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from comparators.aim import AIM
from comparators.aipw import AIPW
from comparators.contract import Comparator
from comparators.covariate_balancing import COVARIATE_BALANCING
from comparators.horvitz_thompson import horvitz_thompson
from comparators.mst import MST
from comparators.mwem import MWEM
from comparators.noisy_histogram import NOISY_HISTOGRAM
from comparators.posterior_table import posterior_table
from comparators.private_aipw import PRIVATE_AIPW
from comparators.tau_q import CLUSTER_DP, CLUSTER_FREE_DP, UNIFORM_PRIOR_DP
from compare_designs import DESIGNS, SIMULATED, Design, Table
from compare_routes import Route, fit_stratified, routes
from compare_summary import page
from real_data_sets import DATA, ROOT

RESULTS = ROOT / "outputs" / "compare.csv"
PAGE = ROOT / "case_studies" / "compare.md"
NOTES = ROOT / "case_studies" / "compare_notes.md"  # what a person says of the tables
QUICK_RUNS = 3
GRAPHICAL = (MST, MWEM, AIM)
BLOCK = 5  # tables that a method is given at a time
# Budgets and how many tables: the first ones come first.
BUDGETS = (((1.0, 0.5, 2.0), 20), ((5.0, 0.1), 10))
# Methods that are not named here take no time, and come first. Of two that take long, only one
# table in 4 or in 10 is asked for.
ORDER = (
    ("dpcausal_bayes, no strata", "one posterior table, naive"),
    ("dpcausal_bayes, strata", "dpcausal_bayes, Gram regression"),
    ("dpcausal_bayes, selected strata",),
    (MST.name,),
    ("dpcausal_bayes, label release",),
    (MWEM.name, AIM.name),
)
EVERY = {MWEM.name: 4, AIM.name: 10}
COLUMNS = [
    *("data", "method", "epsilon", "run", "protects", "estimate", "low", "high", "truth"),
    *("seconds", "failure", "sampling_sd", "privacy_sd", "monte_carlo_sd", "declared"),
]

Method = Comparator | Route
Row = dict[str, Any]


class Run(NamedTuple):
    """A method on a table at a budget."""

    design: Design
    method: Method
    epsilon: float
    number: int

    @property
    def key(self) -> tuple[str, str, float, int]:
        """What the results know it by."""
        return (self.design.name, self.method.name, self.epsilon, self.number)


def methods(design: Design) -> list[Method]:
    """Return what can be run on a data set: some need randomisation, some mbi."""
    found: list[Method] = [*routes(design), AIPW, NOISY_HISTOGRAM, PRIVATE_AIPW]
    found.append(COVARIATE_BALANCING)
    if design.probability is not None:
        found += [horvitz_thompson(design.probability)]
        found += [CLUSTER_DP, CLUSTER_FREE_DP, UNIFORM_PRIOR_DP]
    found.append(posterior_table(design.workload(stratified=False), fit_stratified(design)))
    if find_spec("mbi") is not None:
        found += GRAPHICAL
    return found


def plan(designs: list[Design]) -> Iterator[Run]:
    """Yield all runs: the main budgets first, quick methods first, some tables at a time."""
    known = [(design, method) for design in designs for method in methods(design)]
    named = {name for names in ORDER for name in names}
    quick = {method.name for _, method in known} - named
    for epsilons, tables in BUDGETS:
        for names in (quick, *ORDER):
            for start in range(0, tables, BLOCK):
                for epsilon in epsilons:
                    for design, method in known:
                        if method.name in names:
                            for number in range(start, start + BLOCK):
                                if number % EVERY.get(method.name, 1) == 0:
                                    yield Run(design, method, epsilon, number)


def carry_out(run: Run) -> Row:
    """Run a method once; return a line of the results, in units of the outcome.

    Tables depend on the run's number only, so that every method and budget has the same ones. Noise
    depends on all that names the run.
    """
    design, method, table = run.design, run.method, run.design.table(run.number)
    delta = 1 / len(table.rows) ** 2
    seed = [crc32(design.name.encode()), crc32(method.name.encode())]
    rng = np.random.default_rng([*seed, round(1000 * run.epsilon), run.number])
    row: Row = dict(zip(COLUMNS, run.key, strict=False))
    row |= {"truth": table.truth, "protects": method.protects}
    if isinstance(method, Route):
        found = method.run(table.rows, run.epsilon, delta, int(rng.integers(2**31)))
        return row | found._asdict()
    return row | _compared(method, design, table, run.epsilon, delta, rng)


def _compared(
    method: Comparator,
    design: Design,
    table: Table,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> Row:
    found = method(table.rows, design.schema, epsilon=epsilon, delta=delta, rng=rng)
    low, high = (np.nan, np.nan) if found.interval is None else found.interval
    half = design.half
    return {
        "estimate": half * found.estimate,
        "low": half * low,
        "high": half * high,
        "seconds": found.seconds,
        "failure": found.failure,
    }


def finished(path: Path) -> set[tuple[str, str, float, int]]:
    """Return the runs that are there; a line that a killed run left torn is taken away."""
    if not path.exists():
        return set()
    text = path.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if not whole:
        path.unlink()
        return set()
    if whole != text:
        path.write_text(whole, "utf-8")
    rows = pd.read_csv(path)
    return set(zip(rows["data"], rows["method"], rows["epsilon"], rows["run"], strict=True))


def append(row: Row, path: Path) -> None:
    """Add a line, in one write."""
    path.parent.mkdir(exist_ok=True)
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(
            {name: f"{v:.8g}" if isinstance(v, float) else v for name, v in row.items()}
        )


def work(runs: list[Run], path: Path, minutes: float, say: Callable[[str], None] = print) -> None:
    """Carry out what is not there yet, until it is done or the time is up."""
    done = finished(path)
    left = [run for run in runs if run.key not in done]
    start = time.perf_counter()
    for number, run in enumerate(left, start=1):
        if time.perf_counter() - start > 60 * minutes:
            say(f"{minutes:g} minutes are up: {len(runs) - len(left) + number - 1} of {len(runs)}")
            return
        append(carry_out(run), path)
        if number % 50 == 0 or number == len(left):
            spent = (time.perf_counter() - start) / 60
            name, method, epsilon, table = run.key
            say(
                f"{len(runs) - len(left) + number}/{len(runs)} runs, {spent:.1f} minutes; "
                f"{name}, epsilon {epsilon:g}, run {table}, {method}"
            )


def quick() -> None:
    """Run most methods a few times on simulated data, and print the tables."""
    runs = [
        Run(SIMULATED, method, 1.0, number)
        for method in methods(SIMULATED)
        if method.name != "dpcausal_bayes, strata"
        for number in range(QUICK_RUNS)[:: EVERY.get(method.name, 1)]
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "compare.csv"
        work(runs, path, minutes=60)
        print(page(pd.read_csv(path), [SIMULATED]))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after so many")
    parser.add_argument("--summary", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--quick", action="store_true", help="simulated data, a few runs")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.getLogger("pymc").setLevel(logging.WARNING)  # it names what it draws at every release
    logging.getLogger().setLevel(logging.ERROR)  # mbi says on it that it compiles
    if find_spec("mbi") is None:
        print("MST, AIM and MWEM are left out: mbi is not installed (pip install .[compare])")
    if given.quick:
        quick()
    elif given.summary:
        if not RESULTS.exists():
            parser.error(f"there is no {RESULTS.relative_to(ROOT)}: run the comparison first")
        notes = NOTES.read_text("utf-8")
        PAGE.write_text(page(pd.read_csv(RESULTS), list(DESIGNS), notes), "utf-8")
    else:
        present = [design for design in DESIGNS if not design.absent()]
        for design in DESIGNS:
            if design not in present:
                print(f"{design.name}: left out, its folder is not in {DATA} (set DPCAUSAL_DATA)")
        work(list(plan(present)), RESULTS, given.minutes, lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()
