r"""Balance: how far apart the arms are in each covariate, as the release tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.gram_potential import confidential_gram
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.maxent_potential import coefficient_draws, tree_form
from dpcausal_bayes.maxent_table import cell_moments, maxent_table
from dpcausal_bayes.models.confidential_moments import confidential_moments
from dpcausal_bayes.potential import generator
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["balance", "love_plot"]

CONCERN = 0.1  # a common rule of thumb for a difference that wants adjusting

Array = NDArray[np.float64]


def balance(tree: xr.DataTree, *, ci_prob: float = 0.95) -> pd.DataFrame:
    r"""Return the standardised difference between the arms, covariate by covariate.

    Of the confidential table, drawn given the release: with means and variances of a column in the
    two arms,

    .. math:: \frac{\bar x_1 - \bar x_0}{\sqrt{(s_1^2 + s_0^2) / 2}} ,

    where a level of a covariate counts as a column of 0 and 1.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit` or a later step, of a moment release with covariates; left as it is.
    ci_prob : float
        Probability of the interval, equal-tailed.

    Returns
    -------
    pandas.DataFrame
        A row per column: ``mean``, ``sd``, the interval's bounds ``low`` and ``high``, and
        ``p_concern``, the probability of a difference of more than 0.1 either way.

    Raises
    ------
    ValueError
        A tree of another kind of release, or without covariates; a probability out of range.

    References
    ----------
    Austin (2009), "Balance diagnostics for comparing the distribution of baseline covariates
    between treatment groups in propensity-score matched samples".

    Examples
    --------
    ``love_plot(balance(tree))`` after ``tree = fit(models.gram_regression(release), release)``.
    """
    if isinstance(ci_prob, bool) or not isinstance(ci_prob, int | float) or not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob is {ci_prob!r}: it must be a number between 0 and 1, as in 0.95")
    manifest = read_manifest(tree)
    workload = manifest.get("workload")
    if workload is None:
        raise ValueError(
            "the tree is of a label release, which holds no covariates: balance needs a moment "
            "release"
        )
    rng = generator(manifest, "balance", None)
    if isinstance(workload, GramWorkload):
        labels, mean, variance = _of_gram(tree, workload)
    elif "grid" in tree["constant_data"].coords:
        labels, mean, variance = _of_levels(_maxent_shares(tree, workload, rng))
    else:
        labels, mean, variance = _of_levels([_stratum_shares(tree, rng)])
    if not labels:
        raise ValueError("the release has no covariates: name some in its workload")
    pooled = np.sqrt(np.maximum(variance.mean(1), 1e-12))
    drawn = (mean[:, 1] - mean[:, 0]) / pooled
    low, high = np.quantile(drawn, [(1 - ci_prob) / 2, (1 + ci_prob) / 2], axis=0)
    table = pd.DataFrame(
        {
            "mean": drawn.mean(0),
            "sd": drawn.std(0, ddof=1),
            "low": low,
            "high": high,
            "p_concern": (np.abs(drawn) > CONCERN).mean(0),
        },
        index=pd.Index(labels, name="covariate"),
    )
    table.attrs = {"ci_prob": ci_prob, "contrast": "treated minus control"}
    return table


def love_plot(table: pd.DataFrame) -> Any:
    """Draw standardised differences with their intervals, the largest on top.

    Parameters
    ----------
    table : pandas.DataFrame
        From `balance`.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``.savefig("balance.png")``.

    Examples
    --------
    >>> table = pd.DataFrame({"mean": [0.3], "low": [0.2], "high": [0.4]}, index=["age"])
    >>> table.attrs["ci_prob"] = 0.95
    >>> love_plot(table).axes[0].get_xlabel().splitlines()[0]
    'standardised difference, treated minus control'
    """
    from matplotlib.figure import Figure

    ordered = table.iloc[np.argsort(np.abs(table["mean"].to_numpy()))]
    figure = Figure(figsize=(6, 1.2 + 0.28 * len(ordered)), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(ordered))
    for line in (-CONCERN, CONCERN):
        axis.axvline(line, color="0.8", linestyle="--", linewidth=1)
    axis.axvline(0, color="0.5", linewidth=1)
    axis.hlines(places, ordered["low"], ordered["high"], color="C0")
    axis.plot(ordered["mean"], places, "o", color="C0")
    axis.set_yticks(places, [str(label) for label in ordered.index])
    axis.set_xlabel(
        "standardised difference, treated minus control\n"
        f"({100 * table.attrs['ci_prob']:g} % intervals)"
    )
    return figure


def _of_gram(tree: xr.DataTree, workload: GramWorkload) -> tuple[list[str], Array, Array]:
    """Return labels, means (S, 2, columns) and variances of a second-order model."""
    table = confidential_gram(tree)
    variance = np.diagonal(table.covariance, axis1=-2, axis2=-1)[..., :-1]
    return [feature.label for feature in workload.features], table.mean[..., :-1], variance


def _of_levels(
    groups: Sequence[tuple[Array, Mapping[str, Sequence[str]]]],
) -> tuple[list[str], Array, Array]:
    """Return the same of covariates' levels, from shares of strata (S, 2, L) and their labels."""
    labels: list[str] = []
    found = []
    for share, factors in groups:
        for name, factor in factors.items():
            for level in dict.fromkeys(factor):
                labels.append(f"{name}={level}")
                found.append(share @ (np.asarray(factor) == level).astype(float))
    mean = np.stack(found, axis=-1) if found else np.empty((*groups[0][0].shape[:-1], 0))
    return labels, mean, np.maximum(mean * (1 - mean), 0)


def _maxent_shares(
    tree: xr.DataTree, workload: CausalWorkload, rng: np.random.Generator
) -> list[tuple[Array, Mapping[str, Sequence[str]]]]:
    """Return each group's, of a model of several."""
    form, c = tree_form(tree), coefficient_draws(tree, "posterior")
    mass = cell_moments(workload, maxent_table(tree, form, c, rng))[0][..., 1:]
    groups = np.split(mass, np.cumsum(form.sizes)[:-1], axis=-1)
    return [(own / own.sum(-1, keepdims=True), workload.factors(g)) for g, own in enumerate(groups)]


def _stratum_shares(
    tree: xr.DataTree, rng: np.random.Generator
) -> tuple[Array, Mapping[str, Sequence[str]]]:
    """Return those of the one group that a model has."""
    mass = confidential_moments(tree, rng).sel(part="mass", drop=True)
    mass = mass.transpose("chain", "draw", "arm", "stratum").sel(arm=["control", "treated"])
    share = (mass / mass.sum("stratum")).values.reshape(-1, *mass.shape[2:])
    factors = {
        str(name): coord.sel(stratum=mass["stratum"].values).values
        for name, coord in tree["constant_data"].to_dataset().coords.items()
        if coord.dims == ("stratum",) and name != "stratum"
    }
    return share, factors
