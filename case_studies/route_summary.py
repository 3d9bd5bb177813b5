"""The page of the route study: routes beside each other, verdicts, what no budget takes away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from route_designs import DESIGNS
from route_statements import FIFTH, FIRST_ROUND, statements, within
from study_tables import covered, markdown, number, percent, published, rms, rms_error, share_error

__all__ = ["page", "verdicts"]

PUBLISHED = {"lalonde": "lalonde", "ihdp": "ihdp", "acic_rep1": "acic_dgp7"}
PLANNED = ("no strata", "strata", "Gram")
NORMAL = 1.96

HEAD = """\
Made by `python case_studies/route_study.py`, which goes on where it was stopped, then `--summary`.
Every route has the same tables, epsilon and delta (1/n²), and all of the budget. One chain of 1,000
draws after 500 of tuning.

- **No strata**, **strata**: counts, sums and squares of one group with Laplace noise, which spends
  no delta, `stratified_moments`. **Gram**: second moments of all covariates, `gram_regression`.
  **MaxEnt**: a group for each covariate, cut, `maxent_moments`; both with Gaussian noise.
  Covariates, cuts, radii and their reasons: `route_designs.py`.
- **Declared**: what the route says of the confidential table without noise, outcome clipped: the
  contrast of the strata, least squares in each arm, the effects of the law of largest entropy with
  the table's moments. The *table's interval* is the posterior of that number, the *reported* one
  the population's.
- **Causal**: of simulations the means of mu1 - mu0; of Twins the difference of both twins; of
  LaLonde the experiment's difference in means, beside survey controls for the treated only.
- **Bounds** of LaLonde's trial, IHDP and ACIC are mean +- 5 sd of the confidential outcome, as the
  published implementation took them: **a leak, and here for the comparison only**. LaLonde beside
  survey controls has 0 to 40,000 dollars.
- *RMSE* is about the causal truth, ± one Monte Carlo standard error; the best route is that of the
  least. *Answering 0*: the RMSE of always saying so. `na_mi` is the published implementation
  (noise-aware, multiple imputation), measured on the same tables; on ACIC replication 1 at
  epsilon 1 only. Seconds are of processor time, for a refit of a compiled model."""


def page(rows: pd.DataFrame, known: pd.DataFrame, plans: pd.DataFrame, notes: str) -> str:
    """Return the page.

    Parameters
    ----------
    rows : pandas.DataFrame
        Of the study.
    known : pandas.DataFrame
        What is known without noise, of `route_study.known`.
    plans : pandas.DataFrame
        Of `route_plans.chosen`.
    notes : str
        What is said of it by hand.
    """
    found = verdicts(rows, plans)
    parts = ["# Four routes on real data", HEAD, "## What it says", statements(found, rows)]
    parts += [notes.strip(), "## Verdicts", VERDICTS, markdown(list(_told(found)))]
    parts += ["## The declared estimand", DECLARED, markdown(list(_own(rows)))]
    parts += ["## Without privacy", LEFT, markdown(list(_left(known, rows)))]
    for data, design in DESIGNS.items():
        for estimand in ("ate", "att"):
            own = rows[(rows["data"] == data) & (rows["estimand"] == estimand)]
            if not own.empty:
                parts += [f"## {design.title}: {estimand.upper()}"]
                parts += [markdown(list(_routes(data, own)))]
    return "\n\n".join(parts) + "\n"


def verdicts(rows: pd.DataFrame, plans: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each data set, estimand and budget: the best route, and beside what.

    Where no causal truth is known there is none. Columns: ``data``, ``estimand``, ``epsilon``,
    ``runs`` (of `common`), ``best``, ``rmse``, ``rmse_error``, ``runner_up``, ``zero`` (the error
    of answering 0), ``causal`` (coverage), ``length`` and, of the published method, ``ratio`` of
    lengths; ``plan``, the route that a plan chose, ``plan_rmse`` and its ``plan_error``, and
    ``known_rmse``, the least of the routes that a plan knows.
    """
    measured = published()
    chosen = plans[plans["best"]].set_index(["data", "estimand", "epsilon"])["route"]
    found = []
    for key, cell in rows.groupby(["data", "estimand", "epsilon"], sort=False):
        data, estimand, epsilon = key
        if cell["causal"].isna().all():
            continue
        cell = common(cell)
        if cell.empty:
            continue
        errors = {name: group["mean"] - group["causal"] for name, group in cell.groupby("route")}
        order = sorted(errors, key=lambda name: rms(errors[name]))
        best = cell[cell["route"] == order[0]]
        length = _length(best)
        theirs = _theirs(measured, str(data), str(estimand), float(epsilon))
        plan = chosen.get(key, "")
        found.append(
            {
                "data": data,
                "estimand": estimand,
                "epsilon": epsilon,
                "runs": len(best),
                "best": order[0],
                "rmse": rms(errors[order[0]]),
                "rmse_error": rms_error(errors[order[0]]),
                "runner_up": order[1] if len(order) > 1 else "",
                "zero": rms(best["causal"]),
                "causal": covered(best, "super", "causal"),
                "length": length,
                "ratio": length / theirs["median_len"] if theirs is not None else np.nan,
                "plan": plan,
                "plan_rmse": rms(errors[plan]) if plan in errors else np.nan,
                "plan_error": rms_error(errors[plan]) if plan in errors else np.nan,
                "known_rmse": min(
                    (rms(errors[name]) for name in order if name in PLANNED), default=np.nan
                ),
            }
        )
    return pd.DataFrame(found)


def common(cell: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one estimand and budget that every route has, so that all had one noise.

    A route with less than a first round is left out.
    """
    numbers = {name: set(group["seed"]) for name, group in cell.groupby("route")}
    able = {name: seeds for name, seeds in numbers.items() if len(seeds) >= FIRST_ROUND}
    shared = set.intersection(*able.values()) if able else set()
    return cell[cell["route"].isin(able) & cell["seed"].isin(shared)]


def _told(found: pd.DataFrame) -> Iterator[dict[str, str]]:
    for row in found.to_dict("records"):
        fifth = "" if np.isnan(row["ratio"]) else _yes(row["ratio"] <= FIFTH)
        yield {
            "data": row["data"],
            "": row["estimand"].upper(),
            "epsilon": f"{row['epsilon']:g}",
            "runs": str(row["runs"]),
            "best": row["best"],
            "RMSE": f"{number(row['rmse'])} ± {number(row['rmse_error'], 2)}",
            "next": row["runner_up"],
            "answering 0": number(row["zero"]),
            "below it": _yes(row["rmse"] < row["zero"]),
            "causal in reported": percent(row["causal"]),
            "length": number(row["length"]),
            "of na_mi's": "" if np.isnan(row["ratio"]) else f"1/{1 / row['ratio']:.1f}",
            "a fifth at most": fifth,
            "a plan chose": row["plan"],
            "its RMSE": number(row["plan_rmse"]),
            "agrees": _yes(row["plan"] == row["best"]),
        }


def _routes(data: str, rows: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Yield a line for each budget and route of one estimand."""
    measured, estimand = published(), rows["estimand"].iloc[0]
    for epsilon, cell in rows.groupby("epsilon"):
        errors = {
            name: rms(group["mean"] - group["causal"])
            for name, group in common(cell).groupby("route")
        }
        best = min(errors, key=lambda name: errors[name], default="")
        theirs = _theirs(measured, data, estimand, float(epsilon))
        for route, group in cell.groupby("route", sort=False):
            causal, declared = (group["mean"] - group[name] for name in ("causal", "declared"))
            marked = route == best and bool(np.isfinite(errors[best]))
            line = {
                "epsilon": f"{epsilon:g}",
                "route": f"**{route}** (best)" if marked else str(route),
                "runs": str(len(group)),
                "RMSE": f"{number(rms(causal))} ± {number(rms_error(causal), 2)}",
                "bias": number(causal.mean()),
                "RMSE declared": number(rms(declared)),
                "bias declared": number(declared.mean()),
                "declared in table's": percent(covered(group, "table", "declared")),
                "declared in reported": percent(covered(group, "super", "declared")),
                "causal in reported": percent(covered(group, "super", "causal")),
                "median length": number(_length(group)),
                "seconds": f"{group['seconds'].median():.2g}",
                "divergences": str(int(group["divergences"].sum())),
                "answering 0": number(rms(group["causal"])),
            }
            if group["causal"].isna().all():
                line |= {"RMSE": "", "causal in reported": "not known"}
            shown = dict.fromkeys(("na_mi RMSE", "na_mi covers", "na_mi length"), "")
            if theirs is not None:
                shown = {
                    "na_mi RMSE": number(theirs["rmse"]),
                    "na_mi covers": percent(theirs["coverage"]),
                    "na_mi length": number(theirs["median_len"]),
                }
            yield line | shown


def _own(rows: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Yield how well the declared estimand is covered, over all budgets.

    Errors are in standard deviations of the table's posterior: 0 and 1 are ideal.
    """
    for (data, estimand, route), group in rows.groupby(["data", "estimand", "route"], sort=False):
        low, high = group["table_low"], group["table_high"]
        error = ((low + high) / 2 - group["declared"]) / (high - low) * 2 * NORMAL
        table = covered(group, "table", "declared")
        yield {
            "data": str(data),
            "": str(estimand).upper(),
            "route": str(route),
            "runs": str(len(group)),
            "declared in table's": _with_error(table, len(group)),
            "in reported": percent(covered(group, "super", "declared")),
            "table's within 90 to 99 %": _yes(within(table, len(group))),
            "mean error, sd": f"{error.mean():+.2f}",
            "sd of error, sd": f"{error.std():.2f}",
            "table's length, of the reported": number(
                float(((high - low) / (group["super_high"] - group["super_low"])).median()), 2
            ),
            "divergences a run": f"{group['divergences'].mean():.2g}",
            "median seconds": f"{group['seconds'].median():.2g}",
        }


def _left(known: pd.DataFrame, rows: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Yield what no budget takes away, root mean squares over replications."""
    known = known[known["causal"].notna()]
    for (data, estimand, route), group in known.groupby(["data", "estimand", "route"], sort=False):
        one = rows[(rows["data"] == data) & (rows["estimand"] == estimand)]
        one = one[(one["route"] == route) & (one["epsilon"] == 1)]
        whole = rms(one["mean"] - one["causal"]) if len(one) else np.nan
        gap = group["declared"] - group["causal"]
        bent = group["bent"] - group["causal"]
        share = (rms(one["declared"] - one["causal"]) / whole) ** 2
        yield {
            "data": str(data),
            "": str(estimand).upper(),
            "route": str(route),
            "declared - causal: mean": number(gap.mean()),
            "root mean square": number(rms(gap)),
            "unclipped - causal": number(rms(group["unclipped"] - group["causal"])),
            "declared - unclipped": number(rms(group["declared"] - group["unclipped"])),
            "with squares and products": number(rms(bent)) if bent.notna().all() else "",
            "rows shrunk": percent(group["shrunk"].mean()) if route == "Gram" else "",
            "of the squared error at epsilon 1": percent(share) if np.isfinite(share) else "",
        }


def _theirs(
    measured: pd.DataFrame | None, data: str, estimand: str, epsilon: float
) -> pd.Series | None:
    """Return the published measurement of a cell, which is of the ATE."""
    place = (PUBLISHED.get(data, ""), epsilon)
    if measured is None or estimand != "ate" or place not in measured.index:
        return None
    return measured.loc[place]


def _length(rows: pd.DataFrame) -> float:
    return float((rows["super_high"] - rows["super_low"]).median())


def _with_error(share: float, runs: int) -> str:
    return f"{100 * share:.0f} ± {100 * share_error(share, runs):.0f} %"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


VERDICTS = """\
The best route by its RMSE about the causal truth, of the releases that all routes have. *A fifth at
most*: whether its reported interval is no longer than a fifth of the published method's. A plan
knows three routes, not MaxEnt; it has public guesses only (`route_plans.py`)."""

DECLARED = """\
All budgets together. Errors are the middle of the table's interval less the declared estimand, in
its own standard deviations: a mean of 0 and a standard deviation of 1 are ideal. Coverage by the
table's interval counts as within 90 to 99 % if it is no more than two of its Monte Carlo errors
outside."""

LEFT = """\
What is known without noise, over replications. *Unclipped - causal* is what covariates that are not
adjusted for, or not as they act, leave; of MaxEnt it is on a wider grid, which is another law.
*With squares and products*: what is left if Gram's regression had those of its columns too, so that
the outcome need not be linear. Its share of the squared error passes 100 % where noise happened to
offset it."""
