"""How a report is worded: sentences, legend, warnings, rounded numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import arviz as az
import pandas as pd
import xarray as xr

from dpcausal_bayes.first_order import unseen_confounding

__all__ = [
    "bounds",
    "interval_name",
    "legend",
    "rounded",
    "row_names",
    "sentences",
    "warnings",
]

MOST_R_HAT = 1.01
LEAST_ESS = 400
LEAST_BFMI = 0.3
MOST_SENSITIVITY = 0.05

KINDS = {"eti": "equal-tailed", "hdi": "highest-density"}
_POPULATIONS = {
    "super": "in the population that the units were drawn from",
    "sample": "on these very units",
}


def interval_name(facts: dict[Any, Any]) -> str:
    """Name the interval, such as a 95 % equal-tailed one, from the table's settings."""
    return f"{100 * facts['ci_prob']:g} % {KINDS[facts['ci_kind']]} interval"


def bounds(table: pd.DataFrame) -> list[str]:
    """Return the columns of the interval's bounds, lower first."""
    return [column for column in table.columns if column.endswith(("_lb", "_ub"))]


def row_names(group: xr.Dataset) -> dict[tuple[str, Any], str]:
    """Return the name of each row of a report, by variable and level: ``ate``, ``ate[north]``.

    Where two splits have a level of the same name, their rows name the factor too: ``ate[sex=1]``.
    """
    splits = {name: one.attrs["by"] for name, one in group.data_vars.items()}
    plain = [
        (group[name].attrs["estimand"], level)
        for name, by in splits.items()
        for level in (group[name][by].values.tolist() if by else [None])
    ]
    rows = {}
    for name, by in splits.items():
        kind = group[name].attrs["estimand"]
        levels = group[name][by].values.tolist() if by else [None]
        twice = any(plain.count((kind, level)) > 1 for level in levels)
        for level in levels:
            label = f"{by}={level}" if twice else level
            rows[str(name), level] = f"{kind}[{label}]" if by else kind
    return rows


def sentences(table: pd.DataFrame, group: xr.Dataset) -> str:
    """Return a plain sentence for each estimand that is not split, or for each row if all are."""
    words = {}
    for (name, level), row in row_names(group).items():
        one = group[name].attrs
        words[row] = one["words"] + (f" in {level}" if one["by"] else "")
    whole = {one.attrs["estimand"] for one in group.data_vars.values() if not one.attrs["by"]}
    headline = [row for row in table.index if row in whole] or list(table.index)
    facts = table.attrs
    where = _POPULATIONS[facts["population"]]
    kind = interval_name(facts)
    lines = []
    for row in headline:
        numbers = table.loc[row]
        digits = _digits(numbers["sd"])
        mean, low, high = (f"{numbers[c]:.{digits}f}" for c in ("mean", *bounds(table)))
        lines.append(
            f"The {words[row]} {where} is {mean} ({kind} {low} to {high}), with probability "
            f"{_probability(numbers['p_positive'])} of being above zero; privacy noise makes up "
            f"{100 * numbers['privacy_share']:.0f} % of its variance."
        )
    return "\n".join(lines)


def legend(table: pd.DataFrame, group: xr.Dataset) -> str:
    """Say what the columns mean."""
    facts = table.attrs
    lines = [
        f"Effects are {facts['contrast']}, {_POPULATIONS[facts['population']]}; unit: "
        f"{facts['units']}.",
        "sd^2 = sampling_sd^2 + privacy_sd^2 (law of total variance): sampling_sd would be left if "
        "the confidential table were known, privacy_sd is owed to not knowing it.",
    ]
    if "clipping" in group.attrs:
        lines.append(f"The outcome {group.attrs['clipping']}.")
    if "covariates" in group.attrs:
        lines.append(f"Covariates {group.attrs['covariates']}.")
    if "assumption" in group.attrs:
        lines.append(f"Assumed: {group.attrs['assumption']}.")
    return "\n".join(lines)


def warnings(tree: xr.DataTree, table: pd.DataFrame) -> tuple[str, ...]:
    """Return what a reader must know before believing the table."""
    found = []
    if json.loads(tree.attrs["manifest"])["non_private"]:
        found.append("the release is simulated: its noise protects nobody.")
    if unseen := unseen_confounding(tree):
        found.append(unseen)
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()
    diverging = int(stats["diverging"].sum()) if "diverging" in stats else 0
    if diverging:
        found.append(
            f"{diverging} of {stats['diverging'].size} draws diverged: the posterior may be "
            "incomplete; raise target_accept or tune."
        )
    if "energy" in stats:
        stuck = float(az.bfmi(stats["energy"]).min())
        if stuck < LEAST_BFMI:
            found.append(
                f"the energy's Bayesian fraction of missing information is {stuck:.2f}, below "
                f"{LEAST_BFMI}: the chains hardly reach the tails; raise tune, or draw more."
            )
    unmixed = table.index[table["r_hat"] > MOST_R_HAT]
    if len(unmixed):
        found.append(
            f"r-hat is above {MOST_R_HAT} for {_listed(unmixed)}: the chains disagree; draw more."
        )
    few = table.index[(table["ess_bulk"] < LEAST_ESS) | (table["ess_tail"] < LEAST_ESS)]
    if len(few):
        found.append(
            f"fewer than {LEAST_ESS} effective draws for {_listed(few)}: intervals are rough; "
            "draw more."
        )
    vague = table.index[table["prior_driven"]]
    if len(vague):
        found.append(
            f"{_listed(vague)} {'is' if len(vague) == 1 else 'are'} driven by the prior: the "
            "release says little there, or an arm has no units."
        )
    if "prior_sensitivity" in table:
        moved = table.index[table["prior_sensitivity"] > MOST_SENSITIVITY]
        if len(moved):
            found.append(
                f"{_listed(moved)} would move if the prior were a little stronger or weaker "
                f"(sensitivity above {MOST_SENSITIVITY}): refit with other priors, and compare."
            )
    return tuple(found)


def _listed(rows: pd.Index, most: int = 5) -> str:
    shown = ", ".join(rows[:most])
    return shown if len(rows) <= most else f"{shown} and {len(rows) - most} more"


def _digits(sd: float) -> int:
    """Return how many decimals show two digits of a standard deviation."""
    return min(max(1 - math.floor(math.log10(sd)), 0), 10) if sd > 0 else 3


def _probability(p: float) -> str:
    if p > 0.999:
        return "above 0.999"
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


def rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as it is shown: two digits of each standard deviation."""
    shown = table.astype(object)
    plain = {"mean", "sd", "sampling_sd", "privacy_sd", *bounds(table)} & set(table.columns)
    smallest = table["sd"] if "sd" in table else pd.Series(dtype=float)
    for row in table.index:
        digits = _digits(smallest[row]) if row in smallest else None
        for column in plain if digits is not None else ():
            shown.loc[row, column] = f"{table.loc[row, column]:.{digits}f}"
    formats = {"privacy_share": "{:.2f}", "p_positive": "{:.3f}", "p_rope": "{:.3f}"}
    formats |= {"prior_sensitivity": "{:.3f}", "likelihood_sensitivity": "{:.3f}"}
    formats |= {"r_hat": "{:.3f}", "ess_bulk": "{:.0f}", "ess_tail": "{:.0f}"}
    for column, style in formats.items():
        if column in table:
            shown[column] = [style.format(value) for value in table[column]]
    if "prior_driven" in table:
        shown["prior_driven"] = ["yes" if value else "no" for value in table["prior_driven"]]
    return shown
