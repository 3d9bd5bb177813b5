"""From a fitted regression to mean potential outcomes: see `dpcausal_bayes.gram_means`."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.gram_means import (
    ConfidentialGram,
    DrawnMeans,
    Levels,
    draw_means,
    means_by_level,
)
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.gram_laws import covariance, gram_form, gram_law
from dpcausal_bayes.models.priors import GramPriors
from dpcausal_bayes.moment_potential import DROWNED, in_units
from dpcausal_bayes.potential import Column, Population, Potentials

__all__ = ["ConfidentialGram", "confidential_gram", "gram_potentials", "means_of"]


def confidential_gram(tree: xr.DataTree, group: str = "posterior") -> ConfidentialGram:
    """Return the confidential moments of each draw, chain by chain.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, of a `gram_regression`.
    group : "posterior" or "prior"
    """
    manifest = read_manifest(tree)
    form = gram_form(manifest["workload"], GramPriors())  # the layout; priors play no part
    c = tree[group]["coefficient"].transpose("chain", "draw", "term").values
    law = gram_law(form, c.reshape(-1, c.shape[-1]), np)
    return ConfidentialGram(float(manifest["n"]) * law.share, law.mean, covariance(form, law))


def gram_potentials(
    tree: xr.DataTree, population: Population, rng: np.random.Generator
) -> Potentials:
    """Return the mean potential outcomes of a `gram_regression`.

    The strata are all records, and each level of each covariate that has levels.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    population : "sample" or "super"
    rng : numpy.random.Generator
    """
    workload: GramWorkload = read_manifest(tree)["workload"]
    levels = Levels(workload)
    supported = _supported(tree, levels)

    def data_set(group: str, drawn: DrawnMeans) -> xr.Dataset:
        shape = tuple(tree[group].sizes[dim] for dim in ("chain", "draw"))
        return means_of(drawn, workload, levels, shape).assign(supported=("stratum", supported))

    table = confidential_gram(tree)
    own = draw_means(table, levels, population, rng)
    prior = draw_means(confidential_gram(tree, "prior"), levels, population, rng)
    return Potentials(
        posterior=data_set("posterior", own),
        table=data_set("posterior", draw_means(table, levels, "table", rng)),
        prior=data_set("prior", prior),
        stratum="covariates",
        notes=_notes(workload),
    )


def means_of(
    drawn: DrawnMeans, workload: GramWorkload, levels: Levels, shape: tuple[int, ...]
) -> xr.Dataset:
    """Return draws as a data set of potential outcomes, but for which strata are supported.

    Parameters
    ----------
    drawn : DrawnMeans
    workload : GramWorkload
    levels : Levels
    shape : tuple of int
        Chains and draws.
    """
    mean, weight, line, slope, centre = (part.reshape(*shape, *part.shape[1:]) for part in drawn)
    per_unit = in_units(np.ones(()), workload) - in_units(np.zeros(()), workload)
    each = ("chain", "draw")
    return xr.Dataset(
        {
            "mean": ((*each, "assigned", "arm", "stratum"), in_units(mean, workload)),
            "weight": ((*each, "assigned", "stratum"), weight),
            "regression_mean": ((*each, "arm"), in_units(line, workload)),
            "regression_slope": (
                (*each, "arm", "feature"),
                per_unit * slope,
                {"features": _columns(workload)},
            ),
            "regression_centre": ((*each, "feature"), centre),
        },
        coords=levels.coords,
    )


def _columns(workload: GramWorkload) -> tuple[Column, ...]:
    """Return what each column of the covariates is."""
    found = []
    for feature in workload.features:
        field = workload.fields[feature.covariate]
        if feature.level is None:
            assert isinstance(field, Bounded)
            found.append(Column(field.column, None, field.low, field.high))
        else:
            assert not isinstance(field, Bounded)
            found.append(Column(field.column, field.labels[feature.level], -1.0, 1.0))
    return tuple(found)


def _supported(tree: xr.DataTree, levels: Levels) -> NDArray[np.bool_]:
    """Return which strata have both arms: masses that stand out from the noise."""
    table = confidential_gram(tree)
    mass = (table.records[..., None] * means_by_level(table, levels)[0]).mean(0)
    noise = float(tree["constant_data"]["noise_scale"].max())
    noise_of = noise * np.sqrt((levels.rows**2).sum(-1))
    return (mass >= np.maximum(DROWNED * noise_of, 0.5)).all(0)


def _notes(workload: GramWorkload) -> dict[str, str]:
    """Say what was assumed, and what was done to the covariates."""
    notes = {
        "assumption": "in each arm the outcome is linear in the covariates, with errors of one "
        "variance; a unit's two potential outcomes are independent given its covariates"
    }
    bounds = [
        f"{field.column!r} to {field.low:g} and {field.high:g}"
        for field in workload.fields
        if isinstance(field, Bounded)
    ]
    if bounds:
        notes["covariates"] = f"are clipped: {', '.join(bounds)}"
        if workload.shrinks:
            notes["covariates"] += (
                "; rows outside the public ball of radius "
                f"{workload.radius:.4g} (in half widths of the bounds) are shrunk onto it"
            )
    return notes
