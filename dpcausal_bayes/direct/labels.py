r"""Closed-form contrasts of a label release, with standard errors: companions of the models.

All are stratified differences in means, :math:`\sum_c \frac{n_c}{n} (\hat m_{c1} - \hat m_{c0})`,
and differ in how they estimate the mean outcome of a cell. Each is unbiased given the confidential
table, and so is its variance for the superpopulation. The part of the privacy noise is known for a
histogram and estimated for labels. The estimate's table has a row a cluster with ``weight``,
``control``, ``treated``, ``estimate``, ``variance``, ``noise_variance`` and ``standard_error`` (NaN
where the variance is negative); clusters without units, or left out by ``clusters=``, are excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpcausal_bayes.direct.estimates import DirectEstimate
from dpcausal_bayes.populations.labels import outcome_values
from dpcausal_bayes.releases import LabelRelease

__all__ = [
    "centred_histogram_contrast",
    "debiased",
    "histogram_contrast",
    "usable_clusters",
]

_LEAST = 2  # units that a cell needs to show a spread


def debiased(release: LabelRelease, *, clusters: Sequence[str] | None = None) -> DirectEstimate:
    r"""Contrast the released labels, with the randomisation undone: :math:`\hat\tau_Q`.

    With the channel :math:`Q = (1-\lambda) I + \lambda \tilde q 1'` a released label
    :math:`y'` counts

    .. math:: (v' Q^{-1})_{y'} = \frac{v_{y'} - \lambda\, v \cdot \tilde q}{1 - \lambda},

    whose mean, given the true label y, is :math:`v_y`. The variance is that of these scores within
    each cell. The noisy histogram enters through :math:`\tilde q` alone: at small budgets the
    labels are much less precise than the histogram.

    Parameters
    ----------
    release : LabelRelease
    clusters : sequence of str, optional
        The clusters to use, by label. By default all that have units.

    Returns
    -------
    DirectEstimate

    Raises
    ------
    ValueError
        A cluster with fewer than two units in an arm; levels without values.

    References
    ----------
    Javanmard, Mirrokni and Pouget-Abadie (2025), "Improving the variance of differentially private
    randomized experiments through clustering", arXiv:2308.00957.

    Examples
    --------
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.populations.labels import mixture_population
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> trial = mixture_population()
    >>> mechanism = ClusterDP.calibrated(trial.schema, epsilon=8.0)
    >>> release = simulate_release(trial.draw(1), trial.schema, mechanism, seed=1)
    >>> debiased(release)
    labels, debiased: 0.49... (standard error 0.07...)
    """
    values = outcome_values(release.schema)
    used = _used(release, clusters)
    lam, prior = release.mechanism.lam, release.prior[used]
    size = release.cell_size[used].astype(float)
    counts = release.label_counts[used]
    centre = prior @ values
    spread = (values - centre[..., None]) ** 2
    score = (values - lam * centre[..., None]) / (1 - lam)
    mean = (score * counts).sum(axis=-1) / size
    variance = ((score - mean[..., None]) ** 2 * counts).sum(axis=-1) / (size * (size - 1))
    noise = (spread * counts).sum(axis=-1) / size + (1 - lam) * (spread * prior).sum(axis=-1)
    noise *= lam / ((1 - lam) ** 2 * size)
    return _contrast(release, used, "labels, debiased", mean, variance, noise)


def histogram_contrast(
    release: LabelRelease, *, clusters: Sequence[str] | None = None
) -> DirectEstimate:
    r"""Contrast the means of the noisy histograms, :math:`v \cdot q`, as they are.

    The noise e adds :math:`\mathrm{Var}(e) \sum_k v_k^2 / n_{ca}^2` to the variance of a cell's
    mean: measured from the origin of the values, so that shifting all values changes the estimate.
    `centred_histogram_contrast` is never less precise.

    Parameters
    ----------
    release : LabelRelease
        With noisy counts.
    clusters : sequence of str, optional
        As in `debiased`.

    Returns
    -------
    DirectEstimate

    Raises
    ------
    ValueError
        A release without a histogram; otherwise as `debiased`.

    Examples
    --------
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.populations.labels import binary_population
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> trial = binary_population(units_per_cluster=200)
    >>> mechanism = ClusterDP.calibrated(trial.schema, epsilon=1.0)
    >>> release = simulate_release(trial.draw(1), trial.schema, mechanism, seed=1)
    >>> histogram_contrast(release)
    histogram: 0.17... (standard error 0.016...)
    """
    values = outcome_values(release.schema)
    return _histogram(release, clusters, "histogram", values, 0.0)


def centred_histogram_contrast(
    release: LabelRelease, *, clusters: Sequence[str] | None = None
) -> DirectEstimate:
    r"""Contrast the means of the noisy histograms, given that each cell's shares sum to one.

    The cell's mean is :math:`\bar v + (v - \bar v) \cdot q` with :math:`\bar v` the plain average
    of the K values. The true counts sum to the public size of the cell, so this is unbiased too;
    its noise, :math:`\mathrm{Var}(e) \sum_k (v_k - \bar v)^2 / n_{ca}^2`, is the smallest of all
    linear estimators of the mean, and does not change when all values are shifted. For a 0/1
    outcome the noise variance is half that of `histogram_contrast`; for values symmetric about zero
    they are the same.

    Parameters
    ----------
    release : LabelRelease
        With noisy counts.
    clusters : sequence of str, optional
        As in `debiased`.

    Returns
    -------
    DirectEstimate

    Raises
    ------
    ValueError
        As `histogram_contrast`.

    Examples
    --------
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.populations.labels import binary_population
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> trial = binary_population(units_per_cluster=200)
    >>> mechanism = ClusterDP.calibrated(trial.schema, epsilon=1.0)
    >>> release = simulate_release(trial.draw(1), trial.schema, mechanism, seed=1)
    >>> centred_histogram_contrast(release)
    histogram, centred: 0.18... (standard error 0.013...)
    """
    values = outcome_values(release.schema)
    return _histogram(release, clusters, "histogram, centred", values, values.mean())


def usable_clusters(release: LabelRelease) -> tuple[str, ...]:
    """Return the clusters with at least two units in each arm: what ``clusters=`` may name.

    Parameters
    ----------
    release : LabelRelease

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.populations.labels import Population
    >>> from dpcausal_bayes.columns import Arm, Categories, Levels
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]),
    ...                 cluster=Categories("town", ["a", "b"]))
    >>> trial = Population(schema=schema, shares=[[[0.5, 0.5]] * 2] * 2, cell_size=[[9, 1], [9, 8]])
    >>> mechanism = ClusterDP.calibrated(schema, epsilon=8.0)
    >>> release = simulate_release(trial.draw(1), schema, mechanism, seed=1)
    >>> clusters = usable_clusters(release)
    >>> clusters, debiased(release, clusters=clusters).excluded
    (('b',), ('a',))
    """
    usable = np.all(release.cell_size >= _LEAST, axis=1)
    return tuple(np.array(release.schema.clusters)[usable].tolist())


def _used(release: LabelRelease, clusters: Sequence[str] | None) -> NDArray[np.intp]:
    """Return the clusters to use, or say which ones cannot be."""
    known = release.schema.clusters
    if clusters is None:
        wanted = [c for c, cell in enumerate(release.cell_size) if cell.any()]
    else:
        if isinstance(clusters, str):
            raise TypeError(f"clusters is the text {clusters!r}: give a list of labels")
        unknown = [label for label in clusters if label not in known]
        if unknown or not len(clusters):
            raise ValueError(f"clusters is {list(clusters)!r}: it must name some of {list(known)}")
        wanted = [c for c, label in enumerate(known) if label in clusters]
    thin = [known[c] for c in wanted if release.cell_size[c].min() < _LEAST]
    if thin:
        raise ValueError(
            f"cluster {', '.join(map(repr, thin[:5]))}{' and more' * (len(thin) > 5)} has fewer "
            "than two units in an arm, so there is no contrast, or no spread, to be seen there. "
            "The model can do with it; here, pass clusters=usable_clusters(release), and the "
            "effect is that in those clusters only"
        )
    return np.array(wanted, dtype=np.intp)


def _histogram(
    release: LabelRelease,
    clusters: Sequence[str] | None,
    method: str,
    values: NDArray[np.float64],
    origin: float,
) -> DirectEstimate:
    law, shares = release.mechanism.noise_law, release.shares
    if law is None or shares is None:
        raise ValueError(
            "release.noisy_counts is None: a mechanism with a uniform prior (gamma = 1/K) releases "
            "no histogram; use debiased(release)"
        )
    used = _used(release, clusters)
    size = release.cell_size[used].astype(float)
    q = shares[used]
    noise = law.variance * np.sum((values - origin) ** 2) / size**2
    mean = origin + q @ (values - origin)
    # the variance within a cell is always estimated from the centred values
    u = values - values.mean()
    square = np.mean(u**2) + q @ (u**2 - np.mean(u**2))
    of_mean = law.variance * np.sum(u**2) / size**2
    within = (square - (q @ u) ** 2 + of_mean) / (size - 1)
    return _contrast(release, used, method, mean, within + noise, noise)


def _contrast(
    release: LabelRelease,
    used: NDArray[np.intp],
    method: str,
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    noise: NDArray[np.float64],
) -> DirectEstimate:
    """Weigh the clusters. Each array has the shape (clusters used, 2)."""
    labels = np.array(release.schema.clusters)
    size = release.cell_size[used].sum(axis=1)
    weight = size / size.sum()
    total = variance.sum(axis=1)
    columns: dict[str, Any] = {
        "weight": weight,
        "control": mean[:, 0],
        "treated": mean[:, 1],
        "estimate": mean[:, 1] - mean[:, 0],
        "variance": total,
        "noise_variance": noise.sum(axis=1),
        "standard_error": np.sqrt(np.where(total >= 0, total, np.nan)),
    }
    table = pd.DataFrame(columns, index=pd.Index(labels[used], name="cluster"))
    return DirectEstimate(
        method=method,
        estimate=float(weight @ table["estimate"]),
        variance=float(weight**2 @ table["variance"]),
        noise_variance=float(weight**2 @ table["noise_variance"]),
        table=table,
        excluded=tuple(np.delete(labels, used).tolist()),
    )
