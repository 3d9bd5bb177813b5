"""The demo's second half: a job training trial, planned, released as moments, and analysed.

The National Supported Work Demonstration gave people who could hardly find a job a year of paid
training, by lot (LaLonde 1986). What they earned in 1978 is the sensitive outcome.
"""

from pathlib import Path

import pandas as pd
from causaldata import nsw_mixtape

import dpcausal_bayes as dpc
from dpcausal_bayes import custodian

OUTPUTS = Path("outputs")
EPSILON = 2.0

# Public facts: written down beforehand, never read off the table.
SCHEMA = dpc.Schema(
    arm=dpc.Arm("treat", control=0, treated=1),
    outcome=dpc.Bounded("re78", 0, 40_000),
    covariates=[dpc.Categories("nodegree", [0, 1]), dpc.Binned("age", [17, 25, 35, 56])],
)
WORKLOAD = dpc.CausalWorkload(SCHEMA, strata=["nodegree", "age"])


def plan(n: int) -> custodian.Plan:
    """Say how wide the analyst's interval will be, from public facts and guesses."""
    return custodian.plan(
        WORKLOAD,
        n=n,
        epsilon=[0.5, 1, EPSILON],
        treated=0.4,
        mean=5_000,
        sd=6_000,
        shares={"nodegree": [0.25, 0.75], "age": [0.5, 0.35, 0.15]},
    )


def release_of(table: pd.DataFrame, path: Path) -> None:
    """Release the moments once: the custodian's half, beside the confidential table."""
    ledger = custodian.Ledger(epsilon=EPSILON)
    release = custodian.release_moments(table, WORKLOAD, epsilon=EPSILON, ledger=ledger)
    release.save(path)
    print(f"The custodian\n  {release}\n  {release.mechanism.note}\n  {ledger}")


def analyse(path: Path) -> dpc.Report:
    """Estimate effects from the file alone: the analyst's half."""
    print(f"\nThe analyst reads {path.as_posix()}")
    release = dpc.load_release(path)
    model = dpc.models.stratified_moments(release)
    tree = dpc.fit(model, release, random_seed=1)
    strata = dpc.overlap(tree)
    shown = ["share", "propensity", "noisy_controls", "noisy_treated", "noise_sd", "seen"]
    print(f"\n{strata[shown].round(2).to_string()}")
    share = 100 * strata.attrs["supported_share"]
    print(f"{share:.0f} % of the population is in strata where both arms are seen.")
    effects = [dpc.ATE(), dpc.ATT(), dpc.ATE(by="nodegree"), dpc.ATE(by="age")]
    return dpc.report(dpc.estimate(tree, effects, population="super"))


def draw(report: dpc.Report, exact: float, path: Path) -> None:
    """Write the forest plot, with what the confidential table itself says."""
    plot = report.figure(figure_kwargs={"figsize": (12, 5)})
    axis = plot.viz["plot"].sel(column="forest").item()
    axis.axvline(exact, color="C1", linestyle=":")
    axis.annotate(
        "ATE without privacy",
        (exact, 1),
        (0, 2),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        color="C1",
    )
    axis.set_title("Training's effect on earnings in 1978 (dollars), released privately", pad=20)
    plot.savefig(path, bbox_inches="tight")


def main() -> None:
    """Plan, release and analyse, print the report and write the figure."""
    OUTPUTS.mkdir(exist_ok=True)
    table = nsw_mixtape.load_pandas().data
    print(plan(len(table)), end="\n\n")
    path = OUTPUTS / "job_training_release.json"
    release_of(table, path)
    report = analyse(path)
    print(f"\n{report}\n")
    ate, att = (
        float(dpc.populations.table_contrast(one, table, WORKLOAD))
        for one in (dpc.ATE(), dpc.ATT())
    )
    print(f"Without privacy the same strata give an ATE of {ate:,.0f} and an ATT of {att:,.0f}.")
    figure = OUTPUTS / "job_training_effects.png"
    draw(report, ate, figure)
    print(f"Forest plot: {figure.as_posix()}.")


if __name__ == "__main__":
    main()
