"""The main table of a paper on causal workloads: its implementation's rows beside this package's.

    python case_studies/causal_workload_table.py  # writes causal_workload_table.csv

Nothing is fitted here. This package's rows are those of ``outputs/real_data_study.csv``, which
``real_data_study.py`` makes; the published implementation's were measured elsewhere, on the same
tables, epsilons and deltas. Its file lies beside the optional data folder that DPCAUSAL_DATA names.
Where a file is not there the table stays as it is. ``05_causal_workload_paper.ipynb`` reads it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from real_data_sets import BASELINE, ROOT
from real_data_study import RESULTS

TABLE = Path(__file__).with_suffix(".csv")
HERE, THERE = "this package", "published"

# One replication of ACIC was measured elsewhere, so that it is a data set of its own.
PUBLISHED_DATA = {"lalonde": "lalonde", "ihdp": "ihdp", "acic_dgp7": "acic_rep1"}
PUBLISHED_METHODS = {
    "causal_na_mi": "NA+MI",
    "causal_aim_na_mi": "Causal-AIM, NA+MI",
    "causal_naive": "causal workload, naive",
    "mst_naive": "MST, naive",
    "aim_naive": "AIM, naive",
    "private_dr": "doubly robust, noise on the result",
    "dp_covbal": "covariate balancing, noise on the result",
    "PrivATE_proxy": "PrivATE, by proxy",
    "OhnishiAwan_proxy": "Ohnishi and Awan, by proxy",
    "non_private_dr": "doubly robust, not private",
}


def own_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each design of the real-data study and budget, about the ATE.

    Parameters
    ----------
    runs : pandas.DataFrame
        Rows of ``real_data_study.csv``.

    Returns
    -------
    pandas.DataFrame
        ``rmse``, its Monte Carlo error, ``bias`` and ``coverage`` of the reported interval are
        about the causal truth. ``declared_coverage`` is how often the table's interval holds what
        the strata define without privacy. What lies between the two, confounding and clipping, no
        budget takes away: ``left`` is its size in the median replication, ``most_left`` in the
        worst.
    """
    found = []
    runs = runs[runs["estimand"] == "ate"]
    design = ["data", "bounds", "strata", "aware", "epsilon"]
    for (data, bounds, strata, aware, epsilon), group in runs.groupby(design, sort=False):
        error = group["mean"] - group["causal"]
        once = group.drop_duplicates("rep")
        left = (once["declared"] - once["causal"]).abs()
        rmse = float(np.sqrt(np.mean(error**2)))
        found.append(
            {
                "data": data,
                "epsilon": float(epsilon),
                "source": HERE,
                "method": own_name(bounds, strata, aware),
                "runs": len(group),
                "rmse": rmse,
                "rmse_se": float(np.std(error**2, ddof=1)) / (2 * rmse * np.sqrt(len(group))),
                "bias": float(error.mean()),
                "coverage": _held(group, "super", "causal"),
                "length": float((group["super_high"] - group["super_low"]).median()),
                "declared_coverage": _held(group, "table", "declared") if aware else np.nan,
                "left": float(left.median()),
                "most_left": float(left.max()),
            }
        )
    return pd.DataFrame(found)


def own_name(bounds: str, strata: str, aware: bool) -> str:
    """Return what a design of the real-data study is called in the table."""
    parts = ["no strata" if strata == "none" else f"strata: {strata}"]
    if bounds == "public":
        parts.append("public bounds")
    if not aware:
        parts.append("noise ignored")
    return ", ".join(parts)


def published_rows(measured: pd.DataFrame) -> pd.DataFrame:
    """Return the published implementation's rows under the names of the table."""
    chosen = measured[
        measured["dataset"].isin(PUBLISHED_DATA) & measured["method"].isin(PUBLISHED_METHODS)
    ]
    return pd.DataFrame(
        {
            "data": chosen["dataset"].map(PUBLISHED_DATA),
            "epsilon": chosen["epsilon"],
            "source": THERE,
            "method": chosen["method"].map(PUBLISHED_METHODS),
            "runs": chosen["n_rep"].astype(int),
            "rmse": chosen["rmse"],
            "bias": chosen["bias"],
            "coverage": chosen["coverage"],
            "length": chosen["median_len"],
        }
    )


def _held(rows: pd.DataFrame, interval: str, truth: str) -> float:
    low, high = rows[f"{interval}_low"], rows[f"{interval}_high"]
    return float(((low <= rows[truth]) & (rows[truth] <= high)).mean())


def main() -> None:
    """Write the table."""
    for path, remedy in ((RESULTS, "run real_data_study.py"), (BASELINE, "set DPCAUSAL_DATA")):
        if not path.exists():
            sys.exit(f"{TABLE.name} stays as it is: there is no {path.name}; {remedy} first")
    rows = pd.concat([own_rows(pd.read_csv(RESULTS)), published_rows(pd.read_csv(BASELINE))])
    rows.to_csv(TABLE, index=False, float_format="%.4g")
    print(f"{len(rows)} rows in {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
