"""Run the package's own calibration studies and write what they found.

``make calibrate`` does all of them with 500 releases each and goes on where it was stopped;
``python case_studies/calibration/run.py --only prior --releases 100 strata`` one kind, and those
whose name holds a word.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import arviz as az
import matplotlib
import pandas as pd
from studies import CELL, Study, fixed, from_prior, varied

import dpcausal_bayes as dpc

HERE = Path(__file__).parent
OUTPUTS = Path("outputs/calibration")
KINDS = {"prior": from_prior, "fixed": fixed, "varied": varied}
COLUMNS = ["releases", "cover_50", "cover_80", "cover_95", "p_uniform", "bias", "bias_se"]
COLUMNS += ["rmse", "sd", "length_95", "diverged", "seconds"]


def main() -> None:
    """Run, then write the tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only studies whose name holds one of these")
    parser.add_argument("--only", choices=list(KINDS), help="one kind of studies")
    parser.add_argument("--releases", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tables", action="store_true", help="of what is there; nothing is run")
    options = parser.parse_args()
    matplotlib.use("agg")
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    for kind in [options.only] if options.only else KINDS:
        chosen = [
            s for s in KINDS[kind]() if not options.words or any(w in s.name for w in options.words)
        ]
        if options.tables:
            chosen = [study for study in chosen if _path(study).exists()]
        found = {study.name: _run(study, options) for study in chosen}
        if found and not options.words:
            (_write_cells if kind == "varied" else _write)(kind, found, options)
        for name, one in found.items():
            print(f"\n{name}\n{one.table[[c for c in COLUMNS if c in one.table]].round(4)}")


def _path(study: Study) -> Path:
    return OUTPUTS / f"{study.name.replace(' ', '_').replace(',', '')}.csv"


def _run(study: Study, options: argparse.Namespace) -> dpc.Calibration:
    print(f"{study.name}", flush=True)
    start = time.perf_counter()
    path, releases = _path(study), options.releases
    if options.tables:
        releases = pd.read_csv(path, skiprows=1)["replication"].nunique()
    found = dpc.calibrate(
        study.design,
        study.truth,
        estimands=study.estimands,
        releases=releases,
        path=path,
        workers=options.workers,
        draws=600,
    )
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    return found


def _write_cells(kind: str, found: dict[str, dpc.Calibration], options: argparse.Namespace) -> None:
    """Write one row for each cell of a grid: coverage of the 95 % intervals."""
    rows = []
    for name, one in found.items():
        row: dict[str, object] = dict(zip(CELL, name.split(), strict=True))
        row["releases"] = int(one.table["releases"].iloc[0])
        for population, table in one.table.groupby("population"):
            table = table.droplevel("population")
            split = table[table.index.str.contains("[", regex=False)]
            for estimand in ("ate", "att"):
                row[f"{estimand}, {population}"] = f"{table['cover_95'][estimand]:.3f}"
            if len(split):
                cover = split["cover_95"]
                row[f"subgroups, {population}"] = f"{cover.mean():.3f} ({cover.min():.3f})"
        ate = one.table.loc["super", "ate"]
        row["bias / sd"] = f"{ate['bias'] / ate['sd']:.2f}"
        row |= {"rmse": f"{ate['rmse']:.4f}", "length": f"{ate['length_95']:.4f}"}
        row |= {"diverged": f"{ate['diverged']:.3f}", "seconds": f"{ate['seconds']:.1f}"}
        rows.append(row)
    table = pd.DataFrame(rows).fillna("")
    intro = (
        "Each release is of a table of another population; 95 % intervals. Subgroups: mean and "
        "worst over the levels of two covariates. Bias over posterior sd, root-mean-square error, "
        "median length: of the super-population's ATE, outcome between 0 and 1."
    )
    _markdown(kind, "Another population for each release", intro, table, options)


def _markdown(
    kind: str, head: str, intro: str, table: pd.DataFrame, options: argparse.Namespace
) -> None:
    command = f"python case_studies/calibration/run.py --only {kind} --releases 500"
    rows = ["| " + " | ".join(map(str, row)) + " |" for row in table.to_numpy()]
    header = "| " + " | ".join(table.columns) + " |"
    rule = "|" + " --- |" * len(table.columns)
    made = f"`{command}`; the column releases says how many of them are there."
    lines = [f"# {head}", "", made, "", intro, "", header, rule, *rows]
    (HERE / f"{kind}.md").write_text("\n".join(lines) + "\n")


def _write(kind: str, found: dict[str, dpc.Calibration], options: argparse.Namespace) -> None:
    """Write one Markdown table and the figures of a kind of study."""
    tables = []
    for name, one in found.items():
        table = one.table.reset_index()
        table.insert(0, "study", name)
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    shown = table[["study", "population", "estimand", *(c for c in COLUMNS if c in table)]].copy()
    for p in ("50", "80", "95"):
        low, high = table[f"cover_{p}_low"], table[f"cover_{p}_high"]
        shown[f"cover_{p}"] = [
            f"{value:.3f} ({a:.2f}, {b:.2f})"
            for value, a, b in zip(table[f"cover_{p}"], low, high, strict=True)
        ]
    for column in shown.select_dtypes(float).columns:
        shown[column] = [f"{value:.3g}" for value in shown[column]]
    head = "Truths from the prior" if kind == "prior" else "One population each"
    intro = "Coverage of 50, 80 and 95 % intervals, with its own 95 % interval in brackets."
    _markdown(kind, head, intro, shown, options)
    for name, one in found.items():
        stem = name.replace(" ", "_").replace(",", "")
        one.coverage_figure().savefig(HERE / f"{stem}_coverage.png", dpi=80)
        if kind == "prior":
            with az.rc_context({"plot.max_subplots": 40}):
                one.rank_figure().savefig(HERE / f"{stem}_ranks.png", dpi=80)


if __name__ == "__main__":
    main()
