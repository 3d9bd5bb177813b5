r"""How precise tau_Q is, from the table itself: for studies on simulated tables.

None of this can be computed from a release, and none of it belongs into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dpcausal_bayes.columns import Scalar
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.populations.labels import outcome_values
from dpcausal_bayes.schema import Schema

__all__ = ["cluster_homogeneity", "debiased_variance"]


def cluster_homogeneity(table: pd.DataFrame, schema: Schema) -> pd.Series:
    r"""Return the homogeneity of the clusters, for each arm: small where outcomes are alike.

    .. math:: \phi_a = \sum_c \frac{n_c^2}{n^2} \frac{S^2(Y_c(a))}{n_{ca}}

    with :math:`S^2(Y_c(a))` the variance (divisor :math:`n_c - 1`) of the potential outcomes under
    arm a of all units of cluster c. Over assignments with fixed :math:`n_{ca}`, a stratified
    difference in means without privacy has a variance of at most :math:`\phi_0 + \phi_1`. Labels
    redrawn from the histogram itself (no noise, no floor) add, in each cell,
    :math:`\left(\frac{1}{(1-\lambda)^2} - 1\right) \frac{n_{ca} - 1}{n_{ca}}` times its term of
    :math:`\phi_a`; noise and floor add more.

    Parameters
    ----------
    table : pandas.DataFrame
        With the schema's arm and cluster columns, and both potential outcomes in ``y0`` and ``y1``,
        as `Population.draw` makes it.
    schema : Schema

    Returns
    -------
    pandas.Series
        ``control`` and ``treated``, in squared units of the outcome.

    Raises
    ------
    ValueError
        No potential outcomes; a value that is not declared; a cluster with units in one arm only.

    References
    ----------
    Javanmard, Mirrokni and Pouget-Abadie (2025), "Improving the variance of differentially private
    randomized experiments through clustering", arXiv:2308.00957.

    Examples
    --------
    >>> from dpcausal_bayes.populations.labels import mixture_population
    >>> trial = mixture_population(units=60_000)
    >>> phi = cluster_homogeneity(trial.draw(1), trial.schema)
    >>> (phi * 60_000).round().to_dict()  # about twice the variance within a cluster, which is 1
    {'control': 2.0, 'treated': 2.0}
    """
    missing = [column for column in ("y0", "y1") if column not in table.columns]
    if missing:
        raise ValueError(
            f"table has no column {missing[0]!r}: homogeneity is about both potential outcomes, "
            "which only a simulated table has"
        )
    values = outcome_values(schema)
    counts = [_label_counts(table, schema, column) for column in ("y0", "y1")]
    size, weight = _design(counts[0], schema)
    found = []
    for arm, count in enumerate(counts):
        of_cluster = count.sum(axis=1)[:, None]  # all units of the cluster, whatever their arm
        n = of_cluster.sum(axis=-1)
        squares = (_centred(values, of_cluster) ** 2 * of_cluster).sum(axis=-1)
        variance = (squares / np.maximum(n - 1, 1))[:, 0]
        used = weight > 0
        found.append(np.sum(weight[used] ** 2 * variance[used] / size[used, arm]))
    return pd.Series(found, index=list(schema.arms), name="homogeneity")


def debiased_variance(
    table: pd.DataFrame, schema: Schema, mechanism: ClusterDP, prior: ArrayLike
) -> float:
    r"""Return the exact variance of tau_Q given the table and the released prior.

    Only the randomisation of the labels is random. With :math:`m = v \cdot \tilde q` and
    :math:`s^2` the mean and variance of the values under the prior :math:`\tilde q` of the cell,

    .. math:: \mathrm{Var}(\hat\tau_Q) = \sum_c \frac{n_c^2}{n^2} \sum_a
              \frac{\lambda}{(1-\lambda)^2 n_{ca}}
              \left[ (1-\lambda) \frac{1}{n_{ca}} \sum_i (Y_i - m)^2 + s^2 \right]

    As tau_Q is unbiased given table and prior, its variance given the table alone is the mean of
    this over the noise of the histogram; with the variance of the stratified difference in means
    over assignments added, it is that over everything.

    Parameters
    ----------
    table : pandas.DataFrame
        With the schema's arm, outcome and cluster columns.
    schema : Schema
    mechanism : ClusterDP
    prior : array_like, shape (C, 2, K)
        `LabelRelease.prior`.

    Returns
    -------
    float
        In squared units of the outcome.

    Raises
    ------
    ValueError
        A prior of the wrong shape; a value that is not declared; a cluster with units in one arm
        only.

    References
    ----------
    Javanmard, Mirrokni and Pouget-Abadie (2025), "Improving the variance of differentially private
    randomized experiments through clustering", arXiv:2308.00957.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Levels
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]))
    >>> table = pd.DataFrame({"t": [0, 0, 1, 1], "y": [0, 1, 1, 1]})
    >>> mechanism = ClusterDP(lam=0.5, sigma=None, gamma=0.5)
    >>> debiased_variance(table, schema, mechanism, [[[0.5, 0.5], [0.5, 0.5]]])
    0.75
    """
    values = outcome_values(schema)
    counts = _label_counts(table, schema, schema.outcome.column)
    prior = np.asarray(prior, dtype=float)
    if prior.shape != counts.shape:
        raise ValueError(
            f"prior has shape {prior.shape}: it must be {counts.shape}, as a release's"
        )
    size, weight = _design(counts, schema)
    lam = mechanism.lam
    square = (values - (prior @ values)[..., None]) ** 2  # (Y - m)^2, for each level
    some = np.maximum(size, 1)
    spread = (1 - lam) * (square * counts).sum(axis=-1) / some + (square * prior).sum(axis=-1)
    of_cell = lam / (1 - lam) ** 2 * spread / some
    return float(np.sum(weight**2 * of_cell.sum(axis=1)))


def _centred(values: NDArray[np.float64], counts: NDArray[Any]) -> NDArray[np.float64]:
    size = np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    return values - (counts @ values)[..., None] / size


def _design(
    counts: NDArray[np.int64], schema: Schema
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cell sizes (C, 2) and the clusters' weights (C,)."""
    size = counts.sum(axis=-1)
    n = size.sum(axis=1)
    lonely = np.flatnonzero((size.min(axis=1) == 0) & (n > 0))
    if len(lonely):
        raise ValueError(
            f"cluster {schema.clusters[lonely[0]]!r} has units in one arm only (so have "
            f"{len(lonely)} in all): there is no contrast in it; leave its rows out"
        )
    return size, n / n.sum()


def _label_counts(table: pd.DataFrame, schema: Schema, outcome: str) -> NDArray[np.int64]:
    """Count the labels of one outcome column in each cell, (C, 2, K)."""
    cell = _codes(table, schema.arm.column, schema.arm.levels)
    if schema.cluster is not None:
        cell = cell + 2 * _codes(table, schema.cluster.column, schema.cluster.levels)
    place = cell * schema.n_levels + _codes(table, outcome, schema.label_outcome.levels)
    shape = (schema.n_clusters, 2, schema.n_levels)
    return np.bincount(place, minlength=int(np.prod(shape))).reshape(shape)


def _codes(table: pd.DataFrame, column: str, levels: Sequence[Scalar]) -> NDArray[np.int64]:
    if column not in table.columns:
        raise ValueError(f"table has no column {column!r}: it has {list(table.columns)}")
    place = {level: code for code, level in enumerate(levels)}
    column_values = table[column].astype(object)
    codes = column_values.map(place)
    if codes.isna().any():
        value = column_values[codes.isna()].iloc[0]
        raise ValueError(f"column {column!r} holds {value!r}, which is not among {list(levels)}")
    return codes.to_numpy(np.int64)
