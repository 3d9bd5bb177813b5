"""Did `custodian.plan` foresee the intervals of the real-data study? Predicted over realised width.

    python case_studies/plan_check.py  # after real_data_study.py; prints a Markdown table

Guesses are those of somebody who knows how the bounds were made and no outcome: bounds of mean +- 5
sd give a mean of 0 and a standard deviation of 0.2 on [-1, 1]; public bounds a quarter to a tenth
of the range's half, with trainees' earnings near the lower end. The same standard deviation is
guessed for both arms, no strata differ, and a round share is treated.
"""

from __future__ import annotations

import pandas as pd
from real_data_sets import STRATA, workload_of
from real_data_study import ESTIMANDS, RESULTS

from dpcausal_bayes import custodian

RECORDS = {"lalonde": 445, "ihdp": 747, "acic": 4802}
TREATED = {"lalonde": 0.4, "ihdp": 0.2, "acic": 0.3}
OUTCOME = {
    "baseline": dict.fromkeys(RECORDS, (0.0, 0.2)),
    "public": {"lalonde": (-0.75, 0.3), "ihdp": (0.0, 0.15), "acic": (0.0, 0.1)},
}


def ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Return predicted over realised median width, a row for each design and estimand."""
    runs = runs.assign(width=(runs["super_high"] - runs["super_low"]) / runs["half"])
    realised = runs.groupby(["data", "bounds", "strata", "estimand", "epsilon"])["width"].median()
    found = []
    for (data, bounds, strata), rows in realised.groupby(["data", "bounds", "strata"]):
        mean, sd = OUTCOME[bounds][data]
        planned = custodian.plan(
            workload_of(STRATA[data][strata]),
            n=RECORDS[data],
            epsilon=sorted({float(key[-1]) for key in rows.index}),
            delta=1 / RECORDS[data] ** 2,
            noise="Gaussian",
            candidates=[[covariate.column for covariate in STRATA[data][strata]]],
            estimands=ESTIMANDS,
            treated=TREATED[data],
            mean=mean,
            sd=sd,
        ).table
        expected = planned.set_index(["estimand", "epsilon"])["width"]
        for key, width in rows.items():
            found.append((*key, expected[key[3:]] / width))
    names = ["data", "bounds", "strata", "estimand", "epsilon", "ratio"]
    return pd.DataFrame(found, columns=names).pivot(
        index=names[:4], columns="epsilon", values="ratio"
    )


def main() -> None:
    """Print the table."""
    runs = pd.read_csv(RESULTS)
    runs = runs[runs["aware"].astype(str).eq("True") & runs["data"].isin(list(RECORDS))]
    table = ratios(runs)
    heads = [*table.index.names, *(f"epsilon {e:g}" for e in table.columns)]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    for key, row in table.iterrows():
        cells = [*map(str, key), *("" if pd.isna(x) else f"{x:.2f}" for x in row)]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
