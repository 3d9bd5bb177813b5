"""Run the package's own calibration studies and write what they found.

``make calibrate`` does all of them with 500 releases each and goes on where it was stopped;
``python case_studies/calibration/run.py --releases 100 strata`` those whose name holds a word.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import arviz as az
import matplotlib
import pandas as pd
from studies import Study, fixed, from_prior

import dpcausal_bayes as dpc

HERE = Path(__file__).parent
OUTPUTS = Path("outputs/calibration")
COLUMNS = ["releases", "cover_50", "cover_80", "cover_95", "p_uniform", "bias", "bias_se"]
COLUMNS += ["rmse", "sd", "length_95", "diverged", "seconds"]


def main() -> None:
    """Run, then write the tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only studies whose name holds one of these")
    parser.add_argument("--releases", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    matplotlib.use("agg")
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    for kind, studies in (("prior", from_prior()), ("fixed", fixed())):
        chosen = [
            s for s in studies if not options.words or any(w in s.name for w in options.words)
        ]
        found = {study.name: _run(study, options) for study in chosen}
        if found and not options.words:
            _write(kind, found, options)
        for name, one in found.items():
            print(f"\n{name}\n{one.table[[c for c in COLUMNS if c in one.table]].round(4)}")


def _run(study: Study, options: argparse.Namespace) -> dpc.Calibration:
    print(f"{study.name}", flush=True)
    start = time.perf_counter()
    path = OUTPUTS / f"{study.name.replace(' ', '_').replace(',', '')}.csv"
    found = dpc.calibrate(
        study.design,
        study.truth,
        estimands=study.estimands,
        releases=options.releases,
        path=path,
        workers=options.workers,
    )
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    return found


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
    command = f"make calibrate RELEASES={options.releases}"
    rows = ["| " + " | ".join(map(str, row)) + " |" for row in shown.to_numpy()]
    rule = "|" + " --- |" * len(shown.columns)
    lines = [
        f"# {head}",
        "",
        f"`{command}`",
        "",
        "| " + " | ".join(shown.columns) + " |",
        rule,
        *rows,
    ]
    (HERE / f"{kind}.md").write_text("\n".join(lines) + "\n")
    for name, one in found.items():
        stem = name.replace(" ", "_").replace(",", "")
        one.coverage_figure().savefig(HERE / f"{stem}_coverage.png", dpi=80)
        if kind == "prior":
            with az.rc_context({"plot.max_subplots": 40}):
                one.rank_figure().savefig(HERE / f"{stem}_ranks.png", dpi=80)


if __name__ == "__main__":
    main()
