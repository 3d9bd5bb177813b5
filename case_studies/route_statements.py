"""What the route study says, in plain sentences made from its rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from study_tables import covered, number, percent, share_error

__all__ = ["FIFTH", "FIRST_ROUND", "statements", "within"]

FIFTH = 1 / 5  # of the published length
LEAST, MOST = 0.90, 0.99  # coverage of the declared estimand
FIRST_ROUND = 10  # releases: routes with less are not judged
ENOUGH = 1.0  # the least budget that is judged


def within(share: float, runs: int) -> bool:
    """Return whether a coverage is from 90 to 99 %, or no more than two standard errors outside."""
    error = 2 * share_error(share, runs)
    return LEAST <= share + error and share - error <= MOST


def statements(found: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Return a list in Markdown.

    Parameters
    ----------
    found : pandas.DataFrame
        Of `route_summary.verdicts`.
    rows : pandas.DataFrame
        Of the study.
    """
    judged = found[found["epsilon"] >= ENOUGH]
    measured = judged[judged["ratio"].notna()]
    return "\n".join(
        [
            _said(
                f"From epsilon {ENOUGH:g} on the best route's interval is at most a fifth of the "
                "published method's",
                measured,
                measured["ratio"] <= FIFTH,
                lambda row: f"1/{1 / row['ratio']:.1f}",
            ),
            _said(
                f"From epsilon {ENOUGH:g} on its RMSE is below that of answering 0",
                judged,
                judged["rmse"] < judged["zero"],
                lambda row: f"{number(row['rmse'])} against {number(row['zero'])}",
            ),
            _own(rows),
            _said(
                "The best route's reported interval covers the causal truth in 90 % of runs",
                found,
                found["causal"] >= LEAST,
                lambda row: f"{row['best']} {percent(row['causal'])}",
            ),
            _said(
                "The plan's choice is the best of the three routes that it knows, or within two "
                "Monte Carlo errors of it",
                found[found["plan"] != ""],
                found["plan_rmse"] <= found["known_rmse"] + 2 * found["plan_error"],
                lambda row: (
                    f"{row['plan']} {number(row['plan_rmse'])}, best {number(row['known_rmse'])}"
                ),
            ),
        ]
    )


def _own(rows: pd.DataFrame) -> str:
    groups = rows.groupby(["data", "estimand", "route"], sort=False)
    cells = [
        (f"{data} {str(estimand).upper()} {route}", covered(group, "table", "declared"), len(group))
        for (data, estimand, route), group in groups
        if len(group) >= FIRST_ROUND
    ]
    outside = [f"{name} {percent(share)}" for name, share, runs in cells if not within(share, runs)]
    text = (
        "The table's interval covers the declared estimand in 90 to 99 % of runs, all budgets "
        f"together, within two Monte Carlo errors: {len(cells) - len(outside)} of {len(cells)} "
        "routes and data sets"
    )
    return f"- {text}" + (f". Not: {'; '.join(outside)}." if outside else ".")


def _said(
    claim: str, found: pd.DataFrame, holds: pd.Series, shown: Callable[[pd.Series], str]
) -> str:
    """Return a claim, in how many cells it holds, and those in which it does not."""
    holds = holds.reindex(found.index).astype(bool)
    failing = [
        f"{row['data']} {row['estimand'].upper()} at {row['epsilon']:g} ({shown(row)})"
        for _, row in found[~holds].iterrows()
    ]
    text = f"- {claim}: {int(np.sum(holds))} of {len(found)} cells"
    return f"{text}. Not: {'; '.join(failing)}." if failing else f"{text}."
