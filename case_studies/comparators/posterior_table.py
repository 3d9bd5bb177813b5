r"""One synthetic table from a posterior, analysed as if it were real.

A moment release is fitted with `stratified_moments`; from its last draw n records are drawn
(stratum and arm from the shares, the outcome from the beta law of the cell's mean and the arm's
dispersion), and `comparators.aipw.doubly_robust` is run on them. Its interval knows neither the
noise nor that the records are synthetic.

**Privacy.** Post-processing of a Laplace mechanism on the workload, at its exact sensitivity. It
shows why one table is not enough: Raghunathan, Reiter and Rubin (2003), "Multiple imputation for
statistical disclosure limitation".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from comparators.aipw import doubly_robust
from comparators.contract import Comparator, Estimate
from comparators.features import Records, outcome_range
from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["posterior_table", "synthetic_rows"]

PROOF = "Post-processing of one Laplace mechanism on the workload's exact L1 sensitivity."

Fit = Callable[[MomentRelease, int], xr.DataTree]


def synthetic_rows(tree: xr.DataTree, n: int, half: float, rng: np.random.Generator) -> Records:
    """Draw n records from the last posterior draw of a stratified model."""
    last: Any = tree["posterior"].dataset.isel(chain=-1, draw=-1)
    share, mean = last["share"].values, last["mean"].values
    strata = share.shape[1]
    cell = rng.choice(share.size, size=n, p=share.ravel() / share.sum())
    arm, stratum = cell // strata, cell % strata
    m = (1 + mean[arm, stratum]) / 2
    if "dispersion" in last:
        r = last["dispersion"].values[arm]
        y = 2 * rng.beta(m * (1 - r) / r, (1 - m) * (1 - r) / r) - 1
    else:
        y = np.where(rng.random(n) < m, 1.0, -1.0)
    return Records(arm == 1, y, np.eye(strata)[stratum], half)


def posterior_table(workload: CausalWorkload, fit: Fit) -> Comparator:
    """Return the comparator for a workload.

    Parameters
    ----------
    workload : CausalWorkload
    fit : callable
        Of a release and a seed; returns the tree of `stratified_moments`.
    """

    def method(
        table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
    ) -> Estimate:
        mechanism = LaplaceMechanism.calibrated(workload, epsilon=epsilon)
        release = simulate_moments(table, workload, mechanism, seed=rng)
        tree = fit(release, int(rng.integers(2**31)))
        _, half = outcome_range(schema)
        return doubly_robust(synthetic_rows(tree, release.n, half, rng))

    return Comparator("one posterior table, naive", "record", PROOF, method)
