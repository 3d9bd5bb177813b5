"""Time from a release to a posterior: by the size of the design and of the trial.

Run by `make bench`. Each row compiles its model, then samples 4 chains x 1000 draws; the ratio of
sampling times at a million units and at a thousand says whether the cost grows with n.
"""

from __future__ import annotations

import time

import arviz as az
import numpy as np
import nutpie

import dpcausal_bayes as dpc

DESIGNS = {
    "C=3 K=12 n=1,000": (3, 1_000, 12),
    "C=3 K=12 n=3,500": (3, 3_500, 12),
    "C=3 K=12 n=1,000,000": (3, 1_000_000, 12),
    "C=50 K=8 n=50,000": (50, 50_000, 8),
}


def measure(clusters: int, units: int, levels: int, epsilon: float = 1.0) -> dict[str, float]:
    """Time one fit and look at its chains."""
    separation = 2.0 if clusters == 3 else 0.1
    population = dpc.populations.mixture_population(
        clusters=clusters, units=units, levels=levels, separation=separation
    )
    mechanism = dpc.ClusterDP.calibrated(population.schema, epsilon=epsilon)
    release = dpc.simulate_release(population.draw(1), population.schema, mechanism, seed=1)
    start = time.perf_counter()
    compiled = nutpie.compile_pymc_model(dpc.models.cluster_labels(release))
    built = time.perf_counter()
    tree = nutpie.sample(
        compiled,
        draws=1000,
        tune=500,
        chains=4,
        cores=2,
        seed=1,
        target_accept=0.95,
        progress_bar=False,
    )
    done = time.perf_counter()
    mean = tree["posterior"]["share"].values @ np.array(release.schema.outcome.values)
    weight = release.cell_size.sum(1) / release.n
    effect = (mean[..., 1] - mean[..., 0]) @ weight
    return {
        "compile s": built - start,
        "sample s": done - built,
        "leaves": float(tree["sample_stats"]["n_steps"].mean()),
        "divergences": int(tree["sample_stats"]["diverging"].sum()),
        "r-hat ate": float(az.rhat(effect)),
        "ess ate": float(az.ess(effect)),
    }


def main() -> None:
    """Print a row for each design, then the ratio over n."""
    rows = {}
    for name, design in DESIGNS.items():
        rows[name] = measure(*design)
        print(f"{name:24}", "  ".join(f"{k} {v:.4g}" for k, v in rows[name].items()), flush=True)
    small, large = (rows[f"C=3 K=12 n={n}"]["sample s"] for n in ("1,000", "1,000,000"))
    print(f"sampling time at n = 1,000,000 over n = 1,000: {large / small:.2f}")


if __name__ == "__main__":
    main()
