"""What a posterior costs, and how near it comes to what can be known: ratios, all in one run.

Run by `make bench`. Prints a table for each question and writes all of them to outputs/bench.json:
a refit against compiling anew; time against the number of records and of cells; effective draws a
second against pm.sample as it comes; the custodian's records a second; and the interval against
that of an ideal release, which would answer the ATE alone at the same budget.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

import dpcausal_bayes as dpc
from dpcausal_bayes import custodian
from dpcausal_bayes.populations import mixture_population, stratified_population

EPSILON, DELTA = 1.0, 1e-8
SETTINGS: dict[str, Any] = {"draws": 1000, "tune": 500, "chains": 4, "progressbar": False}
STRATA = {1: {}, 12: {"a": 4, "b": 3}, 30: {"a": 5, "b": 3, "c": 2}, 96: {"a": 8, "b": 6, "c": 2}}
STUDIES = 25  # releases from which an error is estimated
OUTPUT = Path(__file__).resolve().parents[1] / "outputs" / "bench.json"


def moment_release(cells: int, n: int, seed: int = 0) -> Any:
    """Release a confounded study's moments, simulated."""
    crossed = {"confounding": 0.7, "heterogeneity": 0.05} if cells > 1 else {}
    study = stratified_population(covariates=STRATA[cells], n=n, **crossed)
    workload = dpc.CausalWorkload(study.schema, strata=list(STRATA[cells]))
    mechanism = dpc.GaussianMechanism.calibrated(workload, epsilon=EPSILON, delta=DELTA)
    return dpc.simulate_moments(study.draw(seed), workload, mechanism, seed=seed)


def label_release(clusters: int, n: int, levels: int, seed: int = 0) -> Any:
    """Release a trial's labels, simulated."""
    separation = 2.0 if clusters == 3 else 0.1
    trial = mixture_population(clusters=clusters, units=n, levels=levels, separation=separation)
    mechanism = dpc.ClusterDP.calibrated(trial.schema, epsilon=EPSILON)
    return dpc.simulate_release(trial.draw(seed), trial.schema, mechanism, seed=seed)


def seconds(job: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time that a job takes, and what it returns."""
    start = time.perf_counter()
    found = job()
    return time.perf_counter() - start, found


def fitted(fitter: dpc.Fitter, release: Any) -> dict[str, float]:
    """Time one refit and look at its chains."""
    took, tree = seconds(lambda: fitter.fit(release, random_seed=1, **SETTINGS))
    return {"refit s": took, **_chains(tree), "ess/s": _ess(tree) / took}


def _chains(tree: Any) -> dict[str, float]:
    stats = tree["sample_stats"]
    return {
        "ess(ate)": _ess(tree),
        "leaves": float(stats["n_steps"].mean()),
        "divergences": int(stats["diverging"].sum()),
    }


def _ess(tree: Any) -> float:
    estimated = dpc.estimate(tree, [dpc.ATE()], population="super")
    return float(az.ess(estimated["estimands"]["ate"]))


def by_size() -> pd.DataFrame:
    """Refit designs of several sizes, at several n."""
    rows = {}
    for cells, sizes in (
        (12, (10**3, 10**5, 10**7)),
        (1, (10**5,)),
        (30, (10**5,)),
        (96, (10**5,)),
    ):
        compiled, fitter = seconds(
            lambda cells=cells: dpc.Fitter(
                dpc.models.stratified_moments(moment_release(cells, 1000))
            )
        )
        fitter.fit(moment_release(cells, 1000), random_seed=1, **SETTINGS)  # draws the prior, once
        for n in sizes:
            name = f"moments, {cells} strata, n = {n:,}"
            rows[name] = {"compile s": compiled, **fitted(fitter, moment_release(cells, n))}
    for clusters, levels, sizes in ((3, 12, (10**3, 10**6)), (50, 8, (50_000,))):
        for n in sizes:
            release = label_release(clusters, n, levels)
            compiled, fitter = seconds(
                lambda release=release: dpc.Fitter(dpc.models.cluster_labels(release))
            )
            fitter.fit(release, random_seed=1, **SETTINGS)
            name = f"labels, {clusters} clusters, {levels} levels, n = {n:,}"
            rows[name] = {"compile s": compiled, **fitted(fitter, release)}
    return pd.DataFrame(rows).T


def against_fit() -> pd.DataFrame:
    """Compare a refit with compiling and fitting anew, and with pm.sample as it comes."""
    release = moment_release(12, 10**5, seed=1)
    model = dpc.models.stratified_moments(release)
    anew, _ = seconds(lambda: dpc.fit(model, release, random_seed=1, **SETTINGS))
    plain, tree = seconds(lambda: pm.sample(model=model, random_seed=1, progressbar=False))
    tree = dpc.fitting.assemble(model, release, tree, dpc.fitting.prior_draws(model, 1), 1)
    fitter = dpc.Fitter(dpc.models.stratified_moments(moment_release(12, 10**5)))
    fitter.fit(moment_release(12, 10**5), random_seed=1, **SETTINGS)
    again = fitted(fitter, release)
    rows = {
        "fit, compiling": {"seconds": anew},
        "pm.sample defaults, compiling": {"seconds": plain, "ess/s": _ess(tree) / plain},
        "Fitter.fit": {"seconds": again["refit s"], "ess/s": again["ess/s"]},
    }
    table = pd.DataFrame(rows).T
    table["of Fitter.fit"] = table["seconds"] / table.loc["Fitter.fit", "seconds"]
    return table


def custodian_throughput(n: int = 10**7) -> pd.DataFrame:
    """Time real releases of a table in memory."""
    study = stratified_population(covariates=STRATA[30], n=n)
    workload = dpc.CausalWorkload(study.schema, strata=list(STRATA[30]))
    trial = mixture_population(clusters=3, units=n, levels=12)
    mechanism = dpc.ClusterDP.calibrated(trial.schema, epsilon=EPSILON)
    ledger = custodian.Ledger(epsilon=10 * EPSILON, delta=1e-6)
    people, units = study.draw(1).drop(columns=["y0", "y1"]), trial.draw(1)
    options = {"epsilon": EPSILON, "delta": DELTA}
    jobs = {
        "labels": lambda: custodian.release_labels(units, trial.schema, mechanism, ledger=ledger),
        "moments, 30 strata": lambda: custodian.release_moments(
            people, workload, ledger=ledger, **options
        ),
    }
    rows = {name: {"records": n, "seconds": seconds(job)[0]} for name, job in jobs.items()}
    return pd.DataFrame(rows).T.assign(per_second=lambda t: t["records"] / t["seconds"])


def ideal_sd(study: Any, epsilon: float) -> float:
    """Return the error of a release of the ATE alone, by somebody who knows the propensities.

    The mean of the score T y / e - (1 - T) y / (1 - e), y scaled to [-1, 1], with Gaussian noise
    for what one record may move; its sampling variance is the least there can be, that of AIPW.
    """
    e, share = study.propensity, study.share
    scaled = 2 * study.mean - 1
    variance = study.dispersion * (1 - scaled**2)
    effect = scaled[1] - scaled[0]
    within = variance[1] / e + variance[0] / (1 - e)
    sampling = (share @ (within + (effect - share @ effect) ** 2)) / study.n
    largest = max(1 / e.min(), 1 / (1 - e.max()))
    noise = dpc.gaussian_accounting.gaussian_scale_for(epsilon, DELTA) * 2 * largest / study.n
    return float(np.sqrt(sampling + noise**2) / 2)


def information() -> pd.DataFrame:
    """Compare error and interval with the ideal release's and with the closed forms'."""
    rows = {}
    for cells, n in ((1, 500), (1, 50_000), (12, 5_000), (12, 50_000)):
        crossed = {"confounding": 0.7, "heterogeneity": 0.05} if cells > 1 else {}
        study = stratified_population(covariates=STRATA[cells], n=n, **crossed)
        workload = dpc.CausalWorkload(study.schema, strata=list(STRATA[cells]))
        mechanism = dpc.GaussianMechanism.calibrated(workload, epsilon=EPSILON, delta=DELTA)
        errors, lengths, closed, fitter = [], [], [], None
        for seed in range(STUDIES):
            release = dpc.simulate_moments(study.draw(seed), workload, mechanism, seed=seed)
            fitter = fitter or dpc.Fitter(dpc.models.stratified_moments(release))
            tree = fitter.fit(release, random_seed=seed, replicates=False, **SETTINGS)
            effect = dpc.estimate(tree, [dpc.ATE()], population="super")["estimands"]["ate"]
            truth = float(study.truth(dpc.ATE()))
            errors.append(float(effect.mean()) - truth)
            lengths.append(float(np.diff(np.quantile(effect, [0.025, 0.975]))[0]))
            closed.append(dpc.direct.plug_in(release).estimate - truth)
        ideal = ideal_sd(study, EPSILON)
        rows[f"{cells} strata, n = {n:,}"] = {
            "rmse": _rms(errors),
            "closed form's": _rms(closed),
            "ideal sd": ideal,
            "rmse / ideal": _rms(errors) / ideal,
            "rmse / closed form's": _rms(errors) / _rms(closed),
            "length / ideal's": float(np.median(lengths)) / (2 * 1.96 * ideal),
        }
    return pd.DataFrame(rows).T


def _rms(errors: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def main() -> None:
    """Answer each question, print it, keep it."""
    logging.disable(logging.WARNING)
    tables = {}
    for job in (against_fit, by_size, custodian_throughput, information):
        print(f"\n{job.__doc__.splitlines()[0]}", flush=True)
        table = job()
        print(table.to_string(float_format="{:.3g}".format), flush=True)
        tables[job.__name__] = table.to_dict(orient="index")
    sizes = tables["by_size"]
    flat = {
        "moments": ("moments, 12 strata, n = {:,}", 10**3, 10**7),
        "labels": ("labels, 3 clusters, 12 levels, n = {:,}", 10**3, 10**6),
    }
    for kind, (name, small, large) in flat.items():
        ratio = sizes[name.format(large)]["refit s"] / sizes[name.format(small)]["refit s"]
        tables[f"{kind}: time at n = {large:,} over n = {small:,}"] = ratio
        print(f"{kind}: time at n = {large:,} over n = {small:,}: {ratio:.2f}")
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(tables, indent=1))
    print(f"written: {OUTPUT.name}")


if __name__ == "__main__":
    main()
