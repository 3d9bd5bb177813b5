"""Mean potential outcomes of a label model: shares of levels, and confidential counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.models.confidential import confidential_counts
from dpcausal_bayes.potential import Population, Potentials

__all__ = ["label_means", "label_potentials", "prior_label_counts"]


def level_values(tree: xr.DataTree) -> xr.DataArray:
    """Return the score of each level.

    Raises
    ------
    ValueError
        Levels of text without scores.
    """
    constants = tree["constant_data"].to_dataset()
    values = constants.get("level_value")
    if values is None or not np.all(np.isfinite(values)):
        levels = [str(level) for level in constants["level"].values]
        raise ValueError(
            f"the outcome's levels {levels} have no scores, so an effect has no unit: declare "
            f"Levels(..., values=[...]) with {len(levels)} numbers and fit again"
        )
    return values


def label_potentials(
    tree: xr.DataTree, population: Population, rng: np.random.Generator
) -> Potentials:
    """Return the mean potential outcomes of a label model.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    population : "sample" or "super"
    rng : numpy.random.Generator
    """
    share, prior = tree["posterior"]["share"], tree["prior"]["share"]
    counts = confidential_counts(tree, rng)
    prior_counts = prior_label_counts(prior, tree["constant_data"]["cell_size"], rng)
    return Potentials(
        posterior=label_means(tree, share, counts, population, rng),
        table=table_means(tree, share, counts),
        prior=label_means(tree, prior, prior_counts, population, rng),
        stratum="cluster",
    )


def label_means(
    tree: xr.DataTree,
    share: xr.DataArray,
    counts: xr.DataArray,
    population: Population,
    rng: np.random.Generator,
) -> xr.Dataset:
    r"""Return the mean potential outcomes of a label model.

    In the superpopulation they are :math:`\sum_k v_k p_{cak}`, whoever was assigned what: the
    trial is randomised within its clusters. Of these units, those of arm a have the mean
    :math:`\sum_k v_k N_{cak} / n_{ca}` under a; their outcomes under the other arm are drawn from
    :math:`\mathrm{Multinomial}(n_{ca}, p_{c,1-a})`, as if a unit's two potential outcomes were
    independent given its cluster. The units of an empty cell are no units; its means are the
    superpopulation's, and have no weight.

    Parameters
    ----------
    tree : xarray.DataTree
        With the group ``constant_data``.
    share : DataArray (chain, draw, cluster, arm, level)
        p, from the posterior or the prior.
    counts : DataArray (chain, draw, cluster, arm, level)
        N, the confidential counts drawn with it.
    population : "sample" or "super"
    rng : numpy.random.Generator
    """
    values = level_values(tree)
    size = tree["constant_data"]["cell_size"].transpose("cluster", "arm")
    expected = share.dot(values, dim="level").transpose("chain", "draw", "arm", "cluster")
    if population == "super":
        mean = expected
    else:
        mean = _means_of_these_units(share, counts, size, values, expected, rng)
    return _data_set(mean, size)


def table_means(tree: xr.DataTree, share: xr.DataArray, counts: xr.DataArray) -> xr.Dataset:
    """Return what the confidential table says of the means: the observed mean of each cell.

    An empty cell says nothing; its mean is a constant, so that it adds no variance.
    """
    values = level_values(tree)
    size = tree["constant_data"]["cell_size"].transpose("cluster", "arm")
    expected = share.dot(values, dim="level")
    observed = counts.dot(values, dim="level") / size.where(size > 0, 1)
    mean = observed.where(size > 0, expected.mean(["chain", "draw"]))
    return _data_set(mean.transpose("chain", "draw", "arm", "cluster"), size)


def prior_label_counts(
    share: xr.DataArray, size: xr.DataArray, rng: np.random.Generator
) -> xr.DataArray:
    """Draw label counts of cells of the given sizes: what a table would hold, before any release.

    Parameters
    ----------
    share : DataArray (..., cluster, arm, level)
    size : DataArray (cluster, arm)
    rng : numpy.random.Generator
    """
    share = share.transpose(..., "cluster", "arm", "level")
    drawn = _multinomial(size.transpose("cluster", "arm").values, share.values, rng)
    return share.copy(data=drawn)


def _means_of_these_units(
    share: xr.DataArray,
    counts: xr.DataArray,
    size: xr.DataArray,
    values: xr.DataArray,
    expected: xr.DataArray,
    rng: np.random.Generator,
) -> xr.DataArray:
    """Return the mean (chain, draw, assigned, arm, cluster) of observed and missing outcomes."""
    some = size.where(size > 0, 1)
    other = {"arm": size["arm"].values[::-1]}
    swapped = share.sel(other).assign_coords(arm=size["arm"])  # at arm a: the other arm's shares
    missing = prior_label_counts(swapped, size, rng)
    seen = (counts.dot(values, dim="level") / some).where(size > 0)
    unseen = (missing.dot(values, dim="level") / some).where(size > 0)
    rows = []
    for assigned in size["arm"].values:
        own, counterfactual = seen.sel(arm=assigned), unseen.sel(arm=assigned)
        rows.append(xr.where(size["arm"] == assigned, own, counterfactual, keep_attrs=False))
    mean = xr.concat(rows, dim=size["arm"].rename(arm="assigned"), coords="minimal")
    return mean.fillna(expected)


def _data_set(mean: xr.DataArray, size: xr.DataArray) -> xr.Dataset:
    weight = (size / size.sum()).rename(arm="assigned")
    supported = (size > 0).all("arm")
    data = xr.Dataset({"mean": mean, "weight": weight, "supported": supported})
    labels = data["cluster"].values
    data = data.rename(cluster="stratum").assign_coords(cluster=("stratum", labels))
    dims = ("chain", "draw", "assigned", "arm", "stratum")
    return data.transpose(*(dim for dim in dims if dim in data.dims))


def _multinomial(
    size: NDArray[Any], share: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    share = share.astype(float)
    return rng.multinomial(size, share / share.sum(axis=-1, keepdims=True)).astype(float)
