"""Tables of the comparison on real data, in Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from real_data_sets import BASELINE
from study_tables import covered, markdown, number, percent, published, rms

HEAVY = 0.05
NORMAL = 1.96
DESIGN = ["bounds", "strata", "aware", "epsilon"]
TITLES = {
    "lalonde": "LaLonde, NSW (n = 445, randomised), dollars",
    "ihdp": "IHDP, replications 1 to 10 (n = 747)",
    "acic": "ACIC 2016, parameter set 7, replications 1 to 5 (n = 4,802)",
    "acic_rep1": "ACIC 2016, parameter set 7, replication 1 alone, as in the published measurement",
}
PUBLISHED = {"lalonde": "lalonde", "ihdp": "ihdp", "acic": "acic_dgp7", "acic_rep1": "acic_dgp7"}


def summary(rows: pd.DataFrame) -> str:
    """Return a section for each data set: releases beside the published method, and confounding."""
    measured = published()
    parts = []
    for data, title in TITLES.items():
        own = rows[rows["data"] == data]
        if own.empty:
            continue
        table = [_line(data, key, group, measured) for key, group in _designs(own)]
        parts += [f"## {title}", markdown(table)]
        parts += ["All budgets together:", markdown(_pooled(own))]
        parts += ["Without privacy:", markdown(_left(own))]
    if measured is None:
        parts.append(f"No published measurements: there is no {BASELINE.name}.")
    return "\n\n".join(parts)


def _designs(rows: pd.DataFrame) -> list[tuple[Any, pd.DataFrame]]:
    """Return the releases by estimand and design: designs as first made, budgets ascending."""
    made = rows[DESIGN[:-1]].drop_duplicates().reset_index(drop=True)
    place = made.assign(place=made.index)
    ordered = rows.merge(place, on=DESIGN[:-1]).sort_values(
        ["place", "epsilon", "estimand"], kind="stable"
    )
    return list(ordered.groupby(["estimand", *DESIGN], sort=False))


def _line(
    data: str, key: tuple[Any, ...], rows: pd.DataFrame, measured: pd.DataFrame | None
) -> dict[str, str]:
    estimand, bounds, strata, aware, epsilon = key
    declared, causal = (rows["mean"] - rows[name] for name in ("declared", "causal"))
    length = float((rows["super_high"] - rows["super_low"]).median())
    line = {
        "": estimand.upper(),
        "bounds": bounds,
        "strata": strata,
        "noise": "known" if aware else "ignored",
        "epsilon": f"{epsilon:g}",
        "runs": str(len(rows)),
        "RMSE declared": number(rms(declared)),
        "bias declared": number(declared.mean()),
        "RMSE causal": number(rms(causal)),
        "bias causal": number(causal.mean()),
        "declared in table's interval": percent(covered(rows, "table", "declared")),
        "declared in reported": percent(covered(rows, "super", "declared")),
        "causal in reported": percent(covered(rows, "super", "causal")),
        "median length": number(length),
    }
    names = ("na_mi RMSE", "na_mi covers", "na_mi length", "RMSE ratio", "length ratio")
    beside = ("", "", "", "", "")
    place = (PUBLISHED[data], epsilon)
    if measured is not None and estimand == "ate" and place in measured.index:
        theirs = measured.loc[place]
        beside = (
            number(theirs["rmse"]),
            percent(theirs["coverage"]),
            number(theirs["median_len"]),
            f"1/{theirs['rmse'] / rms(causal):.1f}",
            f"1/{theirs['median_len'] / length:.1f}",
        )
    return line | dict(zip(names, beside, strict=True))


def _left(rows: pd.DataFrame) -> list[dict[str, str]]:
    """Return what no budget takes away: confounding that the strata leave, and clipping.

    Both are known without noise, one number a replication. Their share is that of the mean squared
    error against the causal truth at epsilon 1.
    """
    table = []
    for (estimand, bounds, strata), group in rows[rows["aware"]].groupby(
        ["estimand", "bounds", "strata"], sort=False
    ):
        once = group.drop_duplicates("rep")
        confounding = once["unclipped"] - once["causal"]
        clipping = once["declared"] - once["unclipped"]
        one = group[group["epsilon"] == 1]
        gap, error = one["declared"] - one["causal"], one["mean"] - one["causal"]
        table.append(
            {
                "": estimand.upper(),
                "bounds": bounds,
                "strata": strata,
                "confounding left: mean": number(confounding.mean()),
                "root mean square": number(rms(confounding)),
                "clipping: mean": number(clipping.mean()),
                "its root mean square": number(rms(clipping)),
                "both, of the squared error at epsilon 1": ""
                if one.empty
                else percent(np.mean(gap**2) / rms(error) ** 2),
            }
        )
    return table


def _pooled(rows: pd.DataFrame) -> list[dict[str, str]]:
    """Return how well the table's interval covers the declared estimand, over all budgets.

    Replications whose contrast clipping moves by more than a twentieth of half the bounds stand
    apart. The errors are in standard deviations of their own posterior: 0 and 1 are ideal. Where
    noise is ignored the table counts as known, and its interval has no length.
    """
    moved = (rows["declared"] - rows["unclipped"]).abs() > HEAVY * rows["half"]
    rows = rows.assign(clipping=np.where(moved, "heavy", "light"))
    table = []
    for key, group in rows.groupby(
        ["estimand", "bounds", "strata", "aware", "clipping"], sort=False
    ):
        estimand, bounds, strata, aware, clipping = key
        low, high = group["table_low"], group["table_high"]
        length = (high - low).where(high > low)
        error = ((low + high) / 2 - group["declared"]) / length * 2 * NORMAL
        table.append(
            {
                "": estimand.upper(),
                "bounds": bounds,
                "strata": strata,
                "noise": "known" if aware else "ignored",
                "clipping": clipping,
                "replications": str(group["rep"].nunique()),
                "runs": str(len(group)),
                "declared in table's interval": percent(covered(group, "table", "declared")),
                "declared in reported": percent(covered(group, "super", "declared")),
                "mean error, sd": f"{error.mean():+.2f}" if aware else "",
                "sd of error, sd": f"{error.std():.2f}" if aware else "",
                "divergences a run": f"{group['divergences'].mean():.2g}",
                "most": str(group["divergences"].max()),
                "median seconds": f"{group['seconds'].median():.1f}",
            }
        )
    return table
