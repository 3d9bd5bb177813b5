r"""The debiased estimator of randomised labels, for three mechanisms, at a proved budget.

For a trial that is randomised within public clusters, with public arms: :math:`\hat\tau_Q` of
Javanmard, Mirrokni and Pouget-Abadie (2025), arXiv:2308.00957, with

- **Cluster-DP**: a noisy histogram in each cluster and arm, towards which labels are randomised;
- **Cluster-Free-DP**: the same with one cluster for all;
- **Uniform-Prior-DP**: labels randomised towards the uniform law, no histogram.

Mechanisms and estimator are the package's own (`ClusterDP`, `direct.debiased`). A bounded outcome
is cut into ten equal bins between its bounds. Budgets are split as `ClusterDP.calibrated` does by
default: half for the histogram, the floor at 1/(2K).

**Privacy.** Replacing one *label* moves two counts of one cell by one, so the histogram costs
2/sigma; the unit's own randomised label costs :math:`\log(1 + (1-\lambda)/(\lambda\gamma))`. The
sum is at most epsilon; delta is not used. **Arms and clusters are public here**, a weaker promise
than that of the comparators that protect records.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from comparators.contract import Comparator, Estimate, NoEstimateError, central
from comparators.features import codes, domain, outcome_range, records_of_codes
from dpcausal_bayes import direct
from dpcausal_bayes.columns import Levels
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release

__all__ = ["CLUSTER_DP", "CLUSTER_FREE_DP", "UNIFORM_PRIOR_DP", "label_release"]

LEVEL = "level"
PROOF = (
    "Pure epsilon = 2/sigma + log(1 + (1-lam)/(lam gamma)) for replacing one label; arms and "
    "clusters are public."
)


def label_release(
    table: pd.DataFrame,
    schema: Schema,
    epsilon: float,
    *,
    clustered: bool,
    floor: float,
    rng: np.random.Generator,
) -> LabelRelease:
    """Cut the outcome into levels and release the labels, with seeded noise.

    Parameters
    ----------
    table : pandas.DataFrame
    schema : Schema
        Its ``cluster`` is used if ``clustered``.
    epsilon : float
    clustered : bool
    floor : float
        Of the prior, in units of 1/K; at 1 there is no histogram.
    rng : numpy.random.Generator
    """
    size = domain(schema)[schema.outcome.column]
    every = {name: np.zeros(size, dtype=np.int64) for name in domain(schema)}
    rows = records_of_codes(every | {schema.outcome.column: np.arange(size)}, schema)
    labels = Schema(
        arm=schema.arm,
        outcome=Levels(LEVEL, list(range(size)), values=[*map(float, rows.outcome)]),
        cluster=schema.cluster if clustered else None,
    )
    mechanism = ClusterDP.calibrated(labels, epsilon=epsilon, floor=floor)
    coded = table.assign(**{LEVEL: codes(table, schema)[schema.outcome.column]})
    return simulate_release(coded, labels, mechanism, seed=rng)


def _comparator(name: str, *, clustered: bool, floor: float) -> Comparator:
    def method(
        table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
    ) -> Estimate:
        release = label_release(table, schema, epsilon, clustered=clustered, floor=floor, rng=rng)
        clusters = direct.usable_clusters(release)
        if not clusters:
            raise NoEstimateError("no cluster has two units in each arm")
        found = direct.debiased(release, clusters=clusters)
        _, half = outcome_range(schema)
        if found.variance < 0:
            return Estimate(half * found.estimate, None)
        return central(half * found.estimate, half**2 * found.variance)

    return Comparator(name, "label", PROOF, method)


CLUSTER_DP = _comparator("tau_Q, Cluster-DP", clustered=True, floor=0.5)
CLUSTER_FREE_DP = _comparator("tau_Q, Cluster-Free-DP", clustered=False, floor=0.5)
UNIFORM_PRIOR_DP = _comparator("tau_Q, Uniform-Prior-DP", clustered=True, floor=1.0)
