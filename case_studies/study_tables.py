"""Numbers and tables of studies, in Markdown."""

from __future__ import annotations

import numpy as np
import pandas as pd
from real_data_sets import BASELINE

__all__ = [
    "covered",
    "markdown",
    "number",
    "percent",
    "published",
    "rms",
    "rms_error",
    "share_error",
]


def published() -> pd.DataFrame | None:
    """Return the published method's measurements by data set and epsilon, if they are there."""
    if not BASELINE.exists():
        return None
    measured = pd.read_csv(BASELINE)
    return measured[measured["method"] == "causal_na_mi"].set_index(["dataset", "epsilon"])


def covered(rows: pd.DataFrame, interval: str, truth: str) -> float:
    """Return the share of runs whose interval holds what stands in a column."""
    low, high = rows[f"{interval}_low"], rows[f"{interval}_high"]
    return float(((low <= rows[truth]) & (rows[truth] <= high)).mean())


def rms(errors: pd.Series) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(errors**2)))


def rms_error(errors: pd.Series) -> float:
    """Return the root mean square's Monte Carlo standard error."""
    if len(errors) < 2:
        return np.nan
    return float(np.std(errors**2, ddof=1) / (2 * rms(errors) * np.sqrt(len(errors))))


def share_error(share: float, runs: int) -> float:
    """Return a share's standard error, that of half a success more and half a failure more."""
    shrunk = (share * runs + 0.5) / (runs + 1)
    return float(np.sqrt(shrunk * (1 - shrunk) / runs))


def number(value: float, digits: int = 3) -> str:
    """Write some digits, and all of those before the point; nothing if there is no number."""
    if not np.isfinite(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def percent(value: float) -> str:
    """Write a share."""
    return f"{100 * value:.0f} %"


def markdown(lines: list[dict[str, str]]) -> str:
    """Return a table of lines that have the same columns."""
    if not lines:
        return "No runs."
    head = list(lines[0])
    rows = [head, ["---"] * len(head), *([line[name] for name in head] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
