"""Tables of the study of selected groups, in Markdown."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

__all__ = ["summary"]

TITLES = {
    "ihdp": "IHDP, replications 1 to 10 in public units (n = 747)",
    "acic": "ACIC 2016, parameter set 7, replications 1 to 5 (n = 4,802)",
    "twins": "Twins, a new draw of which twin is seen each time (n = 11,400)",
}
ANALYSES = {"quick": "normal approximation", "model": "the model itself"}
HEAD = (
    "release | runs | RMSE causal (its Monte Carlo error) | bias causal | causal covered | "
    "RMSE declared | declared covered | median length | strata"
)


def summary(rows: pd.DataFrame) -> str:
    """Return a table a data set and analysis, over the tables that every release was made of."""
    methods = rows["method"].nunique()
    parts = []
    for (data, title), (analysis, how) in product(TITLES.items(), ANALYSES.items()):
        mine = rows[(rows["data"] == data) & (rows["analysis"] == analysis)]
        whole = mine.groupby("number")["method"].transform("nunique") == methods
        if not whole.any():
            continue
        lines = [
            _line(method, group) for method, group in mine[whole].groupby("method", sort=False)
        ]
        rule = " | ".join(["---"] * (HEAD.count("|") + 1))
        parts.append("\n".join([f"## {title}: {how}", "", f"| {HEAD} |", f"| {rule} |", *lines]))
    return "\n\n".join(parts)


def _line(method: str, group: pd.DataFrame) -> str:
    error = group["estimate"] - group["causal"]
    declared = group["estimate"] - group["declared"]
    square = error**2
    rmse = np.sqrt(square.mean())
    mc = square.std() / np.sqrt(len(square)) / (2 * rmse)
    strata = group["strata"].value_counts()
    shown = ", ".join(f"{name} {count}" for name, count in strata.items())
    cells = [
        method,
        f"{len(group)}",
        f"{rmse:.3g} ({mc:.2g})",
        f"{error.mean():+.3g}",
        _share(group, "causal"),
        f"{np.sqrt((declared**2).mean()):.3g}",
        _share(group, "declared"),
        f"{(group['high'] - group['low']).median():.3g}",
        shown if len(strata) > 1 or method == "selected" else strata.index[0],
    ]
    return f"| {' | '.join(cells)} |"


def _share(group: pd.DataFrame, truth: str) -> str:
    inside = (group["low"] <= group[truth]) & (group[truth] <= group["high"])
    return f"{100 * inside.mean():.0f} %"
