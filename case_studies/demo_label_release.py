"""The demo's first half: a confidential trial, a private release, a calibrated interval.

Thornton (2008) offered people in rural Malawi a random cash incentive to learn the result of their
HIV test. Whether a person came for the result is the sensitive outcome.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from causaldata import thornton_hiv

import dpcausal_bayes as dpc
from dpcausal_bayes import custodian

DISTRICTS = 12
OUTPUTS = Path("outputs")


def confidential_table() -> tuple[pd.DataFrame, list[str]]:
    """Return the complete rows, with a public district, and the districts in order.

    Rows: those that have an outcome, an arm and a village.

    Districts: villages in the order of their number, cut into 12 runs of about as many people. The
    villages themselves are too small to be clusters: the noise on a cell's counts is the same
    however few units the cell has. The rule looks at village numbers only, never at an outcome.
    """
    everyone = thornton_hiv.load_pandas().data
    table = everyone.dropna(subset=["got", "any", "villnum"])
    people = table.groupby("villnum").size()
    run = (DISTRICTS * (people.cumsum() - people) // len(table)).rename("run")
    villages = run.reset_index().groupby("run")["villnum"].agg(["min", "max"]).astype(int)
    districts = [f"villages {first}-{last}" for first, last in villages.to_numpy()]
    district = np.array(districts, dtype=object)[table["villnum"].map(run)]
    print(
        f"{len(table):,} of {len(everyone):,} rows have an outcome, an arm and a village. "
        f"{table['villnum'].nunique()} villages make {len(districts)} districts."
    )
    return table[["any", "got"]].assign(district=district), districts


def release_of(table: pd.DataFrame, districts: list[str], path: Path) -> None:
    """Release the labels once: the custodian's half, beside the confidential table."""
    schema = dpc.Schema(
        arm=dpc.Arm("any", control=0, treated=1),
        outcome=dpc.Levels("got", [0, 1]),
        cluster=dpc.Categories("district", districts),
    )
    mechanism = dpc.ClusterDP.calibrated(schema, epsilon=1.0)
    ledger = custodian.Ledger(epsilon=2.0, delta=1e-6)
    release = custodian.release_labels(table, schema, mechanism, ledger=ledger)
    release.save(path)
    smallest, largest = release.cell_size.min(), release.cell_size.max()
    print(f"Cells (district, arm) hold {smallest} to {largest} people.")
    print(f"\nThe custodian\n  {mechanism.note}\n  loss: {release.loss}\n  {ledger}")


def analyse(path: Path) -> dpc.Report:
    """Estimate effects from the file alone: the analyst's half."""
    print(f"\nThe analyst reads {path.as_posix()}")
    release = dpc.load_release(path)
    model = dpc.models.cluster_labels(release)
    tree = dpc.fit(model, release, random_seed=1)
    tree = dpc.impute(tree, release, draws=50)
    tree = dpc.estimate(tree, [dpc.ATE(), dpc.ATT(), dpc.ATE(by="cluster")], population="super")
    return dpc.report(tree)


def without_privacy(table: pd.DataFrame) -> tuple[float, float]:
    """Return what the confidential data say: plain difference in means, and within districts."""
    complete = thornton_hiv.load_pandas().data.dropna(subset=["got", "any"])
    plain = complete.groupby("any")["got"].mean()
    means = table.groupby(["district", "any"])["got"].mean().unstack()
    people = table.groupby("district").size()
    return plain[1] - plain[0], float(np.average(means[1] - means[0], weights=people))


def draw(report: dpc.Report, within: float, path: Path) -> None:
    """Write the forest plot, with what the confidential table itself says."""
    plot = report.figure(figure_kwargs={"figsize": (13, 5.5)})
    axis = plot.viz["plot"].sel(column="forest").item()
    axis.axvline(within, color="C1", linestyle=":", label="ATE without privacy")
    axis.legend(loc="upper left", bbox_to_anchor=(0.08, 1.0), frameon=False)
    axis.set_title("Incentive's effect on coming for the result, from a private release")
    plot.savefig(path, bbox_inches="tight")


def main() -> None:
    """Run both halves, print the report and write the figure."""
    OUTPUTS.mkdir(exist_ok=True)
    table, districts = confidential_table()
    path = OUTPUTS / "thornton_release.json"
    release_of(table, districts, path)
    report = analyse(path)
    print(f"\n{report}\n")
    plain, within = without_privacy(table)
    print(
        "Without privacy, the difference in means of all who have an outcome and an arm is "
        f"{plain:+.4f};\nwithin districts, averaged over people as the ATE above is, {within:+.4f}."
    )
    figure = OUTPUTS / "thornton_effects.png"
    draw(report, within, figure)
    print(f"Forest plot: {figure.as_posix()}.")


if __name__ == "__main__":
    main()
