"""Tables of the comparison, in Markdown: every method, the best, what the errors are made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
from compare_designs import Design
from study_tables import markdown, number, share_error

__all__ = ["page"]

OWN = "dpcausal_bayes"
REFERENCE = "AIPW, not private"
LEAST_COVERAGE = 0.9


def page(rows: pd.DataFrame, designs: list[Design], notes: str = "") -> str:
    """Return the page: how it was made, notes, the best of each cell, tables of each data set."""
    rows = rows.drop_duplicates(["data", "method", "epsilon", "run"])  # of two runs at a time
    facts = measured(comparable(rows[rows["data"].isin([design.name for design in designs])]))
    parts = [
        "# The package beside other private methods",
        HEAD,
        *([notes.strip()] if notes else []),
    ]
    parts += ["## The best of each cell", BEST]
    parts += [markdown(_verdicts(facts))]
    for design in designs:
        own = facts[facts["data"] == design.name]
        if own.empty:
            continue
        units = f", {design.units}" if design.units else ""
        parts += [f"## {design.title}{units}"]
        for epsilon, cell in own.groupby("epsilon"):
            parts += [f"### epsilon {epsilon:g}", markdown(_lines(cell))]
        parts += ["### What the package's errors are made of", markdown(_parts(rows, design.name))]
    return "\n\n".join(parts) + "\n"


def comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """Mark, in a column ``fair``, the rows on which the methods of a cell can be compared.

    Tables differ, so that methods must be held against each other on the same ones: those that all
    methods of the cell were given that were given more than three quarters of the most.
    Of a method with fewer all rows stay, and none is fair. Other rows are left out.
    """
    parts = []
    for _, cell in rows.groupby(["data", "epsilon"], sort=False):
        tables = {name: set(group["run"]) for name, group in cell.groupby("method")}
        most = max(len(given) for given in tables.values())
        able = {name for name, given in tables.items() if 4 * len(given) > 3 * most}
        common = set.intersection(*(tables[name] for name in able))
        fair = cell["method"].isin(able)
        parts.append(cell.assign(fair=fair)[~fair | cell["run"].isin(common)])
    return pd.concat(parts)


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each data set, budget and method, with Monte Carlo errors.

    Runs without an estimate count as not covering, and are left out of error and length; a method
    that gives no interval in some run does not cover there.
    """
    found = []
    for (data, epsilon, method), group in rows.groupby(["data", "epsilon", "method"], sort=False):
        error = (group["estimate"] - group["truth"]).dropna()
        covers = (group["low"] <= group["truth"]) & (group["truth"] <= group["high"])
        excludes = (group["low"] > 0) | (group["high"] < 0)
        rmse = float(np.sqrt(np.mean(error**2))) if len(error) else np.nan
        spread = float(np.std(error**2, ddof=1)) if len(error) > 1 else np.nan
        found.append(
            {
                "data": data,
                "epsilon": epsilon,
                "method": method,
                "protects": group["protects"].iloc[0],
                "fair": bool(group["fair"].iloc[0]),
                "runs": len(group),
                "failed": int(group["estimate"].isna().sum()),
                "rmse": rmse,
                "rmse_se": spread / (2 * rmse * np.sqrt(max(len(error), 1))),
                "bias": float(error.mean()),
                "bias_se": float(error.std() / np.sqrt(max(len(error), 1))),
                "coverage": float(covers.mean()),
                "coverage_se": share_error(float(covers.mean()), len(covers)),
                "length": float((group["high"] - group["low"]).median()),
                "excludes": float(excludes.mean()),
                "seconds": float(group["seconds"].median()),
            }
        )
    return pd.DataFrame(found)


def best(cell: pd.DataFrame) -> pd.Series | None:
    """Return the method of least error among those on fair rows that protect records and cover."""
    able = cell[cell["fair"] & (cell["protects"] == "record")]
    able = able[able["coverage"] >= LEAST_COVERAGE]
    return None if able.empty else able.loc[able["rmse"].idxmin()]


def _lines(cell: pd.DataFrame) -> list[dict[str, str]]:
    first = best(cell)
    lines = []
    ordered = cell.sort_values(["fair", "rmse"], ascending=[False, True], na_position="last")
    for row in ordered.to_dict("records"):
        marked = first is not None and row["method"] == first["method"]
        failed = f" ({row['failed']} failed)" if row["failed"] else ""
        lines.append(
            {
                "method": f"**{row['method']}** (best)" if marked else row["method"],
                "protects": row["protects"],
                "runs": f"{row['runs']}{'' if row['fair'] else ', not all'}{failed}",
                "RMSE": f"{_number(row['rmse'])} ± {_number(row['rmse_se'])}",
                "bias": f"{_number(row['bias'])} ± {_number(row['bias_se'])}",
                "coverage, %": f"{100 * row['coverage']:.0f} ± {100 * row['coverage_se']:.0f}",
                "median length": _number(row["length"]),
                "excludes 0, %": f"{100 * row['excludes']:.0f}",
                "seconds": f"{row['seconds']:.2g}",
            }
        )
    return lines


def _verdicts(facts: pd.DataFrame) -> list[dict[str, str]]:
    lines = []
    for (data, epsilon), cell in facts.groupby(["data", "epsilon"], sort=False):
        own = cell["method"].str.startswith(OWN)
        ours, others = best(cell[own]), best(cell[~own])
        line = {"data": str(data), "epsilon": f"{epsilon:g}"}
        line["runs"] = str(cell.loc[cell["fair"], "runs"].max())
        line |= {"best of this package": _named(ours), "best of the others": _named(others)}
        if ours is not None and others is not None:
            error = np.hypot(ours["rmse_se"], others["rmse_se"])
            gap = ours["rmse"] - others["rmse"]
            line["lower error"] = "undecided" if abs(gap) < 2 * error else (
                "this package" if gap < 0 else "the other"
            )  # fmt: skip
            line["error, ratio"] = f"{ours['rmse'] / others['rmse']:.2f}"
            line["length, ratio"] = f"{ours['length'] / others['length']:.2f}"
        else:
            line |= {"lower error": "", "error, ratio": "", "length, ratio": ""}
        lines.append(line)
    return sorted(lines, key=lambda line: (line["data"], float(line["epsilon"])))


def _named(row: pd.Series | None) -> str:
    if row is None:
        return "none covers 90 %"
    name = str(row["method"]).removeprefix(f"{OWN}, ")
    return f"{name}: {_number(row['rmse'])} ± {_number(row['rmse_se'])}"


def _parts(rows: pd.DataFrame, data: str) -> list[dict[str, str]]:
    """Return root mean squares of each part of the error, with the sign of its mean square."""
    own = rows[rows["data"] == data]
    reference = own.loc[own["method"] == REFERENCE, ["epsilon", "run", "estimate"]]
    own = own[own["method"].str.startswith(OWN)].merge(
        reference.rename(columns={"estimate": "reference"}), on=["epsilon", "run"]
    )
    lines = []
    for (method, epsilon), group in own.groupby(["method", "epsilon"]):
        privacy, chain = (group["privacy_sd"] ** 2).mean(), (group["monte_carlo_sd"] ** 2).mean()
        sampling = ((group["reference"] - group["truth"]) ** 2).mean()
        workload = ((group["declared"] - group["reference"]) ** 2).mean()
        left = ((group["estimate"] - group["declared"]) ** 2).mean() - privacy - chain
        whole = ((group["estimate"] - group["truth"]) ** 2).mean()
        cross = whole - sampling - workload - privacy - chain - left
        lines.append(
            {
                "route": str(method).removeprefix(f"{OWN}, "),
                "epsilon": f"{epsilon:g}",
                "runs": str(len(group)),
                "RMSE": _root(whole),
                "sampling": _root(sampling),
                "workload": _root(workload),
                "privacy": _root(privacy),
                "Monte Carlo": _root(chain),
                "calibration": _root(left),
                "cross terms": _root(cross),
            }
        )
    return lines


def _root(square: float) -> str:
    return _number(float(np.sign(square) * np.sqrt(abs(square))))


def _number(value: float) -> str:
    return number(value, 2)


HEAD = """\
Made by `make compare`. Every method has the same tables, covariates, bounds, epsilon and delta
(1/n²); covariates and strata were chosen by public reasoning (`compare_designs.py`), some of them
after a first run, as the notes say.
Each method's source and proof of privacy are in its file in `comparators/`.

- **Protects**: the *record* (n public), or the *label* only (arms and clusters public too), which
  is a weaker promise at the same epsilon, so that label methods are not marked best.
- **RMSE, bias**: about the average effect, in units of the outcome; ± one Monte Carlo standard
  error. *Coverage* of the 95 % interval; a run without an estimate, or an interval, does not cover.
- **Best**: the least RMSE among methods that protect records and cover at least 90 % of runs.
  Methods of a cell are compared on the same tables; one that was given three quarters of them or
  fewer ("not all") stands last and is not compared.
- *Seconds* are the median of a run, without the package's compiling (25 to 50 s a design, once).
- mbi's mechanisms and the posterior's table are analysed naively: AIPW on one synthetic table."""

BEST = """\
Ratios are this package to the others: below 1 is in its favour. A difference of less than two Monte
Carlo errors is undecided."""
