"""What many covariates cost: maximum entropy of many groups, regression from second moments.

Run by `make bench`. Prints, and writes to outputs/bench_many.json: log-density and gradient at 128
and 512 queries, and their ratio; then for each design the seconds of two processes one after the
other, the first of which finds nothing compiled: a first fit (imports, compiling, 4 chains x 1,000
draws on two cores, effects) and a refit.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pymc.blocking import DictToArrayBijection

import dpcausal_bayes as dpc

OUTPUT = Path(__file__).resolve().parents[1] / "outputs" / "bench_many.json"
N, EPSILON, DELTA, LEVELS = 20_000, 1.0, 1e-8, 4
SETTINGS: dict[str, Any] = {
    "draws": 1000,
    "tune": 500,
    "chains": 4,
    "cores": 2,
    "progressbar": False,
}
TIMES = 200  # evaluations of a density


class Design(NamedTuple):
    """Covariates, their kind, and the outcome's."""

    covariates: int
    second_order: bool
    binary: bool

    @property
    def workload(self) -> Any:
        """What is released."""
        names = [f"x{j}" for j in range(self.covariates)]
        outcome: Any = dpc.Levels("y", [0, 1]) if self.binary else dpc.Bounded("y", -1, 1)
        kinds: list[Any] = [
            dpc.Bounded(name, -3, 3)
            if self.second_order
            else dpc.Categories(name, list(range(LEVELS)))
            for name in names
        ]
        schema = dpc.Schema(
            arm=dpc.Arm("t", control=0, treated=1), outcome=outcome, covariates=kinds
        )
        if self.second_order:
            return dpc.GramWorkload(schema, radius=np.sqrt(0.22 * self.covariates))
        return dpc.CausalWorkload(schema, groups=names)

    @property
    def release(self) -> dpc.MomentRelease:
        """A release of a table in which the first covariate confounds."""
        rng = np.random.default_rng(1)
        if self.second_order:
            x = rng.normal(size=(N, self.covariates))
            score = x[:, 0]
        else:
            x = rng.integers(0, LEVELS, (N, self.covariates))
            score = x[:, 0] - (LEVELS - 1) / 2
        t = (rng.random(N) < 1 / (1 + np.exp(-0.5 * score))).astype(int)
        mean = 0.1 * t + 0.1 * score
        y = mean + 0.2 * rng.normal(size=N)
        if self.binary:
            y = (rng.random(N) < (1 + mean) / 2).astype(int)
        names = [f"x{j}" for j in range(self.covariates)]
        table = pd.DataFrame(x, columns=names).assign(t=t, y=y)
        workload = self.workload
        mechanism = dpc.GaussianMechanism.calibrated(workload, epsilon=EPSILON, delta=DELTA)
        return dpc.simulate_moments(table, workload, mechanism, seed=1)

    def model(self, release: dpc.MomentRelease) -> Any:
        """Its model."""
        factory = dpc.models.gram_regression if self.second_order else dpc.models.maxent_moments
        return factory(release)


DESIGNS = {
    "maximum entropy, bounded, 8 groups": Design(8, second_order=False, binary=False),
    "maximum entropy, bounded, 32 groups": Design(32, second_order=False, binary=False),
    "maximum entropy, binary, 8 groups": Design(8, second_order=False, binary=True),
    "maximum entropy, binary, 32 groups": Design(32, second_order=False, binary=True),
    "second moments, 30 numbers": Design(30, second_order=True, binary=False),
}
FITTED = [name for name in DESIGNS if "32" not in name]


def density(design: Design) -> dict[str, float]:
    """Time the log-density and its gradient at the start."""
    release = design.release
    model = design.model(release)
    evaluate = model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
    point = DictToArrayBijection.map(model.initial_point())
    evaluate(point)
    took = []
    for _ in range(TIMES):
        start = time.perf_counter()
        evaluate(point)
        took.append(time.perf_counter() - start)
    return {"queries": len(release.workload.queries), "milliseconds": 1e3 * min(took)}


def one_fit(name: str) -> None:
    """Fit a design twice, and print as JSON what it took."""
    start = time.perf_counter()
    release = DESIGNS[name].release
    fitter = dpc.Fitter(DESIGNS[name].model(release))
    found = {"queries": len(release.workload.queries)}
    for part in ("first fit s", "refit s"):
        tree = fitter.fit(release, random_seed=1, **SETTINGS)
        tree = dpc.estimate(tree, [dpc.ATE(), dpc.ATT()], population="super")
        found[part] = time.perf_counter() - start
        start = time.perf_counter()
    stats = tree["sample_stats"]
    found |= {
        "leaves": float(stats["n_steps"].mean()),
        "divergences": int(stats["diverging"].sum()),
    }
    print(json.dumps(found))


def fits() -> pd.DataFrame:
    """Fit each design in processes of its own."""
    rows = {}
    for name in FITTED:
        with tempfile.TemporaryDirectory() as cache:
            flags = {"PYTENSOR_FLAGS": f"base_compiledir={cache}"}
            for compiled in ("nothing", "before"):
                start = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, __file__, "fit", name],
                    check=True, capture_output=True, text=True, env={**os.environ, **flags},
                )  # fmt: skip
                took = time.perf_counter() - start
                row = json.loads(done.stdout.splitlines()[-1])
                row["to first effects s"] = took - row["refit s"]
                rows[f"{name}, compiled {compiled}"] = row
                print(name, row, flush=True)
    return pd.DataFrame(rows).T


def densities() -> pd.DataFrame:
    """Time log-density and gradient of each design."""
    table = pd.DataFrame({name: density(design) for name, design in DESIGNS.items()}).T
    for outcome in ("bounded", "binary"):
        few, many = (f"maximum entropy, {outcome}, {groups} groups" for groups in (8, 32))
        ratio = table.loc[many, "milliseconds"] / table.loc[few, "milliseconds"]
        table.loc[many, "of 8 groups"] = ratio
    return table


def main() -> None:
    """Answer both questions, print them, keep them."""
    logging.disable(logging.WARNING)
    tables = {}
    for job in (densities, fits):
        print(f"\n{(job.__doc__ or '').splitlines()[0]}", flush=True)
        table = job()
        print(table.to_string(float_format="{:.3g}".format), flush=True)
        tables[job.__name__] = table.to_dict(orient="index")
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["fit"]:
        one_fit(sys.argv[2])
    else:
        main()
