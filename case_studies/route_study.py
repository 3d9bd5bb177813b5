"""Four routes from a confidential table to an effect, on real and semi-synthetic data.

No strata, strata, second moments (Gram) or one group a covariate (MaxEnt), each released at four
budgets and fitted by its model; beside it what the same route says without noise (the declared
estimand), the causal truth, and a published implementation's errors where they were measured. What
is released of each data set is in ``route_designs.py``.

    python case_studies/route_study.py            # run, or go on with, the study
    python case_studies/route_study.py --summary  # write case_studies/route_study.md

Each run is one row per estimand of ``outputs/route_study.csv``. Runs that are there are not
repeated, so that the study may be stopped at any time; it goes round all cells, ten releases each,
then twenty, then forty, so that it has looked at each alike. Data are read from the folder that
DPCAUSAL_DATA names, by default ``../shared/data``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real_data_sets import DATA_SETS, ROOT, missing
from route_declared import bent_regression, reach_of
from route_designs import DESIGNS, ROUTES
from route_plans import chosen
from route_summary import page
from study_runs import EPSILONS, ESTIMANDS, fit_rows, results, scaled, seed_of, work

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.simulate import simulate_moments

RESULTS = ROOT / "outputs" / "route_study.csv"
PAGE = ROOT / "case_studies" / "route_study.md"
NOTES = ROOT / "case_studies" / "route_notes.md"  # what is said of the tables, by hand
ROUNDS = (10, 20, 40)  # releases of each cell at the end of a round
BUDGETS = {"acic_rep1": (1.0,)}  # the only one that was measured elsewhere


class Run(NamedTuple):
    """One release and its fit."""

    data: str
    rep: int
    route: str
    epsilon: float
    seed: int


def plan() -> Iterator[Run]:
    """Yield all runs, round by round; in a round the quickest route first."""
    for start, stop in pairwise((0, *ROUNDS)):
        for route in ROUTES:
            for data in DESIGNS:
                reps = DATA_SETS[data]
                for epsilon in BUDGETS.get(data, EPSILONS):
                    for number in range(start, stop):
                        rep, seed = reps[number % len(reps)], seed_of(data, epsilon, number)
                        yield Run(data, rep, route.name, epsilon, seed)


_routes = {route.name: route for route in ROUTES}
_fitters: dict[tuple[str, Workload], Fitter] = {}


def carry_out(run: Run) -> list[dict[str, Any]]:
    """Make the release of a run, fit it, and return a row for each estimand."""
    design, route = DESIGNS[run.data], _routes[run.route]
    table, half, _ = scaled(run.data, run.rep, design.bounds)
    workload = route.workload(design)
    mechanism = route.noise(workload, epsilon=run.epsilon, delta=1 / len(table) ** 2)
    release = simulate_moments(table, workload, mechanism, seed=run.seed)
    key = (run.route, workload)
    if key not in _fitters:
        _fitters[key] = Fitter(route.model(release))
    return fit_rows(run, _fitters[key], release, half, facts_of(run.data, run.rep, run.route))


@cache
def facts_of(data: str, rep: int, route: str) -> dict[str, dict[str, float]]:
    """Return by estimand what is known without noise: declared, unclipped, causal, rows shrunk."""
    design, way = DESIGNS[data], _routes[route]
    table, half, truth = scaled(data, rep, design.bounds)
    workload = way.workload(design)
    declared = way.declare(table, workload, 1)
    reach = 1 if design.bounds == "binary" else reach_of(table)
    unclipped = declared if reach == 1 else way.declare(table, workload, reach)
    shrunk = outside(table, workload) if isinstance(workload, GramWorkload) else 0.0
    return {
        one.name: {
            "declared": half * declared[one.name],
            "unclipped": half * unclipped[one.name],
            "causal": truth[one.name],
            "shrunk": shrunk,
        }
        for one in ESTIMANDS
    }


def known() -> pd.DataFrame:
    """Return what is known without noise of every replication and route that is there.

    The columns of `facts_of`, and ``bent``: for Gram, what squares and products would say besides.
    """
    rows: list[dict[str, Any]] = []
    for data, design in DESIGNS.items():
        for rep in () if missing(data) else DATA_SETS[data]:
            for route in ROUTES:
                facts = facts_of(data, rep, route.name)
                bent = dict.fromkeys(facts, np.nan)
                workload = route.workload(design)
                if isinstance(workload, GramWorkload):
                    table, half, _ = scaled(data, rep, design.bounds)
                    effects = bent_regression(table, workload)
                    bent = {name: half * effect for name, effect in effects.items()}
                rows += [
                    {"data": data, "rep": rep, "route": route.name, "estimand": name}
                    | facts[name]
                    | {"bent": bent[name]}
                    for name in facts
                ]
    return pd.DataFrame(rows)


def outside(table: pd.DataFrame, workload: GramWorkload) -> float:
    """Return the share of rows that are shrunk onto the ball."""
    fields = [field for field in workload.fields if isinstance(field, Bounded)]
    squares: NDArray[np.float64] = np.zeros(len(table))
    for field in fields:
        value = (table[field.column].to_numpy(float) - field.centre) / field.half
        squares += np.clip(value, -1, 1) ** 2
    radius = np.inf if workload.radius is None else workload.radius
    return float((squares > radius**2 * (1 + 1e-12)).mean())


def main() -> None:
    """Run the study, or write its page."""
    if sys.argv[1:] == ["--summary"]:
        if not RESULTS.exists():
            print(f"no page: there is no {RESULTS.relative_to(ROOT)}, run the study first")
            return
        PAGE.write_text(
            page(results(RESULTS, Run), known(), chosen(), NOTES.read_text("utf-8")), "utf-8"
        )
    elif sys.argv[1:]:
        sys.exit(f"unknown arguments {sys.argv[1:]}: there is --summary, or nothing")
    else:
        work(list(plan()), RESULTS, carry_out)


if __name__ == "__main__":
    main()
