"""What a release says, with names for its dimensions: the tree's ``constant_data``."""

from __future__ import annotations

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.models.label_likelihood import release_data
from dpcausal_bayes.models.measurement import pooling
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.releases import LabelRelease

__all__ = ["modelled_group", "public_facts", "released_values"]


def public_facts(release: LabelRelease | MomentRelease, model: pm.Model) -> xr.Dataset:
    """Return what a release says, as far as a model of it uses it.

    Parameters
    ----------
    release : LabelRelease or MomentRelease
    model : pymc.Model
    """
    if isinstance(release, LabelRelease):
        facts = _label_facts(release)
    elif isinstance(release.workload, GramWorkload):
        facts = _gram_facts(release)
    elif "grid" in model.coords:
        facts = _maxent_facts(release, model)
    else:
        facts = _moment_facts(release, modelled_group(release, model))
    return facts.assign(noise_aware=float(model["noise_aware"].get_value()))


def released_values(release: LabelRelease | MomentRelease, model: pm.Model) -> NDArray[np.float64]:
    """Return what the model's data ``released`` must hold if it was built from the release."""
    if isinstance(release, LabelRelease):
        return release_data(release)["released"]
    if isinstance(release.workload, GramWorkload):
        return release.noisy
    if "grid" in model.coords:
        return release.noisy[_query_order(release, model)]
    pooled = pooling(release, modelled_group(release, model))
    return pooled.measurement(release.noisy).value


def modelled_group(release: MomentRelease, model: pm.Model) -> int:
    """Return which group of a workload holds the strata of a model.

    Raises
    ------
    ValueError
        None does: the model is of another release.
    """
    strata, workload = tuple(model.coords.get("stratum") or ()), release.causal_workload
    for group in range(len(workload.groups)):
        if workload.strata(group) == strata:
            return group
    raise ValueError("model has other strata than release: build the model from this release")


def _label_facts(release: LabelRelease) -> xr.Dataset:
    schema = release.schema
    dims = ("cluster", "arm", "level")
    facts = {
        "cell_size": (dims[:2], release.cell_size),
        "label_count": (dims, release.label_counts),
        "label_prior": (dims, release.prior),
    }
    if release.noisy_counts is not None:
        facts["noisy_count"] = (dims, release.noisy_counts)
    values = schema.label_outcome.values
    if values is not None:
        facts["level_value"] = (dims[2:], np.array(values, dtype=float))
    coords = {
        "cluster": list(schema.clusters),
        "arm": list(schema.arms),
        "level": list(schema.level_labels),
    }
    return xr.Dataset(facts, coords=coords)


def _gram_facts(release: MomentRelease) -> xr.Dataset:
    facts = {"released": ("query", release.noisy), "noise_scale": ("query", release.noise_scale)}
    coords = {"query": list(release.workload.queries), "arm": list(release.schema.arms)}
    return xr.Dataset(facts, coords=coords)


def _maxent_facts(release: MomentRelease, model: pm.Model) -> xr.Dataset:
    order = _query_order(release, model)
    facts = {
        "released": ("query", release.noisy[order]),
        "noise_variance": ("query", release.noise_scale[order] ** 2),
    }
    names = ("query", "arm", "group", "grid")
    return xr.Dataset(facts, coords={name: list(model.coords[name]) for name in names})


def _query_order(release: MomentRelease, model: pm.Model) -> NDArray[np.int64]:
    """Return the place in the release of each query of a model, or raise."""
    place = {query: j for j, query in enumerate(release.causal_workload.queries)}
    queries = model.coords["query"]
    if set(queries) != set(place):
        raise ValueError("model has other queries than release: build the model from this release")
    return np.array([place[query] for query in queries])


def _moment_facts(release: MomentRelease, group: int) -> xr.Dataset:
    workload, pooled = release.causal_workload, pooling(release, group)
    scale = workload.split(release.noise_scale)[0][group]
    mass_scale = np.sqrt((scale**2).sum(-1)) if workload.binary else scale[..., 0]
    cells = release.cells(group)
    facts = {
        "released": ("query", pooled.measurement(release.noisy).value),
        "noise_variance": ("query", pooled.variance),
        "redundancy": (("query", "repeat"), pooled.redundancy),
        "noisy_mass": (("arm", "stratum"), cells.sum(-1) if workload.binary else cells[..., 0]),
        "mass_noise": (("arm", "stratum"), mass_scale),
    }
    coords = {
        "arm": list(workload.schema.arms),
        "stratum": list(workload.strata(group)),
        **{name: ("stratum", list(labels)) for name, labels in workload.factors(group).items()},
    }
    return xr.Dataset(facts, coords=coords)
