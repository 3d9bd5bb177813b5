r"""Mean potential outcomes of a maximum-entropy model: exact means over its law of covariates.

In the superpopulation those assigned to a have under t the mean outcome
:math:`\mathrm{E}[\,\mathrm{E}(y \mid t, x) \mid a]` over the law's own covariates of arm a, for all
of them and for each level of each group: exactly, see `dpcausal_bayes.tilted_means`.

What the confidential table says of these means is taken from its moments a, drawn given the
release: with :math:`\bar c` the coefficients' posterior mean, J the derivative of the moments and
:math:`\Lambda` the prior's precision, a table would have led to

.. math:: \bar c + (n J' C^+ J + \Lambda)^{-1} J' C^+ (a - n\,m(\bar c)),

and the means follow linearly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.maxent_laws import MaxentForm, maxent_form, maxent_law
from dpcausal_bayes.models.maxent_pilot import maxent_jacobian
from dpcausal_bayes.models.maxent_records import MaxentRecords, maxent_records
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.moment_potential import DROWNED, in_units
from dpcausal_bayes.potential import Population, Potentials
from dpcausal_bayes.tilted_means import stratum_means
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["maxent_potentials", "maxent_table", "tree_form"]

Array = NDArray[np.float64]

CHUNK = 200  # draws at a time
STEP = 1e-4  # of a coefficient in its prior scales, for central differences


def tree_form(tree: xr.DataTree) -> MaxentForm:
    """Return how coefficients make laws, in a tree of a `maxent_moments` model.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    """
    workload: CausalWorkload = read_manifest(tree)["workload"]
    grid = tree["constant_data"]["grid"].values
    return maxent_form(workload, MaxentPriors(), grid)  # the layout; priors play no part


def maxent_potentials(
    tree: xr.DataTree, population: Population, rng: np.random.Generator
) -> Potentials:
    """Return the mean potential outcomes of a `maxent_moments` model.

    The strata are all records, and each stratum of each group.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    population : "super"
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        The population "sample": moments of groups apart do not say which covariates these very
        units have together.
    """
    if population != "super":
        raise ValueError(
            'population is "sample", but moments of separate groups do not say which covariates '
            'these units have together: ask for population="super", or model one joint group with '
            "stratified_moments"
        )
    workload: CausalWorkload = read_manifest(tree)["workload"]
    form, coords = tree_form(tree), _coords(workload)
    shape = tuple(tree["posterior"].sizes[dim] for dim in ("chain", "draw"))
    c = _coefficients(tree, "posterior")
    drawn, prior = stratum_means(form, c), stratum_means(form, _coefficients(tree, "prior"))
    table = _of_table(tree, form, c, rng)
    supported = _supported(tree, workload, drawn.weight.mean(0))

    def data_set(mean: Array, weight: Array, shape: tuple[int, ...]) -> xr.Dataset:
        dims = ("chain", "draw", "assigned")
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
        posterior=data_set(drawn.mean, drawn.weight, shape),
        table=data_set(*table, shape),
        prior=data_set(
            prior.mean,
            prior.weight,
            tuple(tree["prior"].sizes[dim] for dim in ("chain", "draw")),
        ),
        stratum="stratum",
        notes={
            "assumption": "given arm and outcome the groups of covariates are independent; means "
            f"over covariates are exact to {drawn.error:.0e} of the outcome's half width"
        },
    )


def maxent_table(
    tree: xr.DataTree, form: MaxentForm, c: Array, rng: np.random.Generator
) -> tuple[MaxentRecords, Array]:
    """Draw the confidential moments (N, Q) given the release, one table for each draw.

    From the normal law that the likelihood uses: see
    `dpcausal_bayes.models.noise.low_rank_normal_draw`. A naive model has the noisy ones.

    Parameters
    ----------
    tree : xarray.DataTree
    form : MaxentForm
    c : ndarray, shape (N, K)
        Coefficients of each draw.
    rng : numpy.random.Generator
    """
    manifest, constant = read_manifest(tree), tree["constant_data"].to_dataset()
    records, n = maxent_records(manifest["workload"], form), int(manifest["n"])
    released, variance = constant["released"].values, constant["noise_variance"].values
    if not manifest["noise_aware"]:
        return records, np.broadcast_to(released, (len(c), len(released)))
    parts = []
    for first in range(0, len(c), CHUNK):
        law = maxent_law(form, c[first : first + CHUNK])
        drawn = records.draw(law, n, rng)
        noise = np.sqrt(variance) * rng.standard_normal(drawn.shape)
        covariance = n * records.covariance(law)
        gap = (released - drawn - noise)[..., None]
        solved = np.linalg.solve(covariance + np.diag(variance), gap)
        parts.append(drawn + (covariance @ solved)[..., 0])
    return records, np.concatenate(parts)


def _coefficients(tree: xr.DataTree, group: str) -> Array:
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


def _of_table(
    tree: xr.DataTree, form: MaxentForm, c: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return what draws of the table say of the strata's means and weights, to first order."""
    n, centre = float(read_manifest(tree)["n"]), c.mean(0)
    records, table = maxent_table(tree, form, c, rng)
    law = maxent_law(form, centre)
    covariance = records.covariance(law)
    jacobian = maxent_jacobian(form, records, centre)
    weighted = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ jacobian
    spread = tree["posterior"]["spread"].mean(["chain", "draw"]).values
    scale = form.scale * np.append(spread / form.median, 1.0)[form.spread_of]
    gain = np.linalg.solve(n * jacobian.T @ weighted + np.diag(scale**-2), weighted.T)
    moved = (table - n * records.mean(law)) @ gain.T
    step = STEP * form.scale
    ahead, behind = (stratum_means(form, centre + way * np.diag(step)) for way in (1, -1))
    here = stratum_means(form, centre[None])
    found = []
    for name in ("mean", "weight"):
        slope = getattr(ahead, name) - getattr(behind, name)
        slope = slope / (2 * step).reshape(-1, *[1] * (slope.ndim - 1))
        found.append(getattr(here, name) + np.tensordot(moved, slope, axes=1))
    return found[0], found[1]


def _supported(tree: xr.DataTree, workload: CausalWorkload, share: Array) -> NDArray[np.bool_]:
    """Return which strata have both arms: expected masses that stand out from the noise."""
    manifest = read_manifest(tree)
    scale = workload.split(manifest["mechanism"].scale / workload.weights)[0]
    noise = [(s**2).sum(-1) ** 0.5 if workload.binary else s[..., 0] for s in scale]
    noise = [part * manifest["noise_aware"] for part in noise]
    total = min(np.sqrt((part**2).sum(-1).max()) for part in noise)
    sd = np.concatenate([np.full((2, 1), total), *noise], axis=1)
    return (manifest["n"] * share >= np.maximum(DROWNED * sd, 0.5)).all(0)
