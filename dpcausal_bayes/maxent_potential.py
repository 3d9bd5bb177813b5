r"""Mean potential outcomes of a maximum-entropy model: exact means over its law of covariates.

In the superpopulation those assigned to a have under t the mean outcome
:math:`\mathrm{E}[\,\mathrm{E}(y \mid t, x) \mid a]` over the law's own covariates of arm a, for all
of them and for each level of each group: exactly, see `dpcausal_bayes.tilted_means`. Of these very
units see `dpcausal_bayes.maxent_units`, of the confidential table `dpcausal_bayes.maxent_table`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.maxent_table import maxent_table, table_means
from dpcausal_bayes.maxent_units import unit_means
from dpcausal_bayes.models.maxent_laws import MaxentForm, maxent_form
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.moment_potential import DROWNED, in_units
from dpcausal_bayes.potential import Population, Potentials
from dpcausal_bayes.tilted_means import stratum_means
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["coefficient_draws", "maxent_potentials", "tree_form"]

Array = NDArray[np.float64]

APART = "given arm and outcome the groups of covariates are independent"
ASSUMED = {
    "super": APART,
    "sample": f"{APART}; a unit's two potential outcomes are independent given its covariates, and "
    "the sum of those that are missing is normal",
}


def tree_form(tree: xr.DataTree) -> MaxentForm:
    """Return how coefficients make laws, in a tree of a `maxent_moments` model.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    """
    workload: CausalWorkload = read_manifest(tree)["workload"]
    grid = tree["constant_data"]["grid"].values
    return maxent_form(workload, MaxentPriors(), grid)  # the layout; scales only steady table_means


def maxent_potentials(
    tree: xr.DataTree, population: Population, rng: np.random.Generator
) -> Potentials:
    """Return the mean potential outcomes of a `maxent_moments` model.

    The strata are all records, and each stratum of each group. Before the release these units'
    means are taken to be the population's, beside whose spread theirs about them is small.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    population : "sample" or "super"
    rng : numpy.random.Generator
    """
    workload: CausalWorkload = read_manifest(tree)["workload"]
    form, coords = tree_form(tree), _coords(workload)
    c = coefficient_draws(tree, "posterior")
    drawn, prior = stratum_means(form, c), stratum_means(form, coefficient_draws(tree, "prior"))
    table = maxent_table(tree, form, c, rng)
    said = table_means(form, c, table)
    supported = _supported(tree, workload, drawn.weight.mean(0))
    exactness = f"means over covariates are exact to {drawn.error:.0e} of the outcome's half width"
    own = (drawn.mean, drawn.weight)
    if population == "sample":
        own = unit_means(workload, form, c, drawn, table, rng)

    def data_set(group: str, mean: Array, weight: Array) -> xr.Dataset:
        dims = ("chain", "draw", "assigned")
        shape = tuple(tree[group].sizes[dim] for dim in dims[:2])
        mean, weight = (part.reshape(*shape, *part.shape[1:]) for part in (mean, weight))
        return xr.Dataset(
            {
                "mean": ((*dims, "arm", "stratum"), in_units(mean, workload)),
                "weight": ((*dims, "stratum"), weight),
                "supported": ("stratum", supported),
            },
            coords=coords,
        )

    return Potentials(
        posterior=data_set("posterior", *own),
        table=data_set("posterior", said.mean, said.weight),
        prior=data_set("prior", prior.mean, prior.weight),
        stratum="stratum",
        notes={"assumption": f"{ASSUMED[population]}; {exactness}"},
    )


def coefficient_draws(tree: xr.DataTree, group: str) -> Array:
    """Return the coefficients of a group's draws, chain by chain, (N, K)."""
    c = tree[group]["coefficient"].transpose("chain", "draw", "term").values
    return np.ascontiguousarray(c.reshape(-1, c.shape[-1]))


def _coords(workload: CausalWorkload) -> dict[str, Any]:
    """Return coordinates of the strata: everybody, and each group's, with their covariates."""
    arms, groups = list(workload.schema.arms), range(len(workload.groups))
    strata, factors = ["everybody"], {}
    total = 1 + sum(workload.n_strata(g) for g in groups)
    for g in groups:
        for name, labels in workload.factors(g).items():
            rest = total - len(strata) - len(labels)
            factors[name] = ("stratum", [""] * len(strata) + list(labels) + [""] * rest)
        strata += workload.strata(g)
    return {"assigned": arms, "arm": arms, "stratum": strata, **factors}


def _supported(tree: xr.DataTree, workload: CausalWorkload, share: Array) -> NDArray[np.bool_]:
    """Return which strata have both arms: expected masses that stand out from the noise."""
    manifest = read_manifest(tree)
    scale = workload.split(manifest["mechanism"].scale / workload.weights)[0]
    noise = [(s**2).sum(-1) ** 0.5 if workload.binary else s[..., 0] for s in scale]
    noise = [part * manifest["noise_aware"] for part in noise]
    total = min(np.sqrt((part**2).sum(-1).max()) for part in noise)
    sd = np.concatenate([np.full((2, 1), total), *noise], axis=1)
    return (manifest["n"] * share >= np.maximum(DROWNED * sd, 0.5)).all(0)
