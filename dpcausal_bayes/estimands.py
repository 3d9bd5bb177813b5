"""Treatment effects as draws, from every posterior draw of a fitted model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from dpcausal_bayes.averages import ATC, ATE, ATT, Estimand
from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.conditional import CATE, CATESlope
from dpcausal_bayes.gram_potential import gram_potentials
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.label_potential import label_potentials
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.maxent_potential import maxent_potentials
from dpcausal_bayes.moment_potential import moment_potentials
from dpcausal_bayes.potential import POPULATIONS, Population, Potentials, generator

__all__ = ["ATC", "ATE", "ATT", "CATE", "CATESlope", "estimate"]

ASSUMPTION = (
    "a unit's two potential outcomes are independent given its {0}; each {0}'s missing outcomes "
    "are drawn from its other arm"
)


def estimate(
    tree: xr.DataTree,
    estimands: Sequence[Estimand],
    *,
    population: Population,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataTree:
    r"""Compute estimands from every posterior draw.

    Clusters are weighted by their public sizes: :math:`n_c/n` for the `ATE`,
    :math:`n_{c1}/n_1` for the `ATT`, :math:`n_{c0}/n_0` for the `ATC`. Strata are weighted by their
    share of the population, or of these units; both are drawn given the release.

    With ``population="super"`` the effect is that of the population which the units were drawn
    from; all three estimands then differ by their weights only. With ``"sample"`` it is the effect
    on these very units: each unit's outcome in its own arm is what the confidential table holds,
    drawn given the release, and its outcome in the other arm is drawn from the law of the other arm
    in its cluster or stratum. **That takes a unit's two potential outcomes to be independent given
    its cluster or stratum**; no data say how they go together. Groups of covariates that were
    released apart have no strata in common: there potential outcomes are taken to be independent
    given the covariates, and the mean of missing outcomes as normal given the table's moments (also
    of an outcome of two levels), see `dpcausal_bayes.maxent_units`.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`; left as it is.
    estimands : sequence of ATE, ATT, ATC, CATE or CATESlope
    population : "super" or "sample"
    random_seed : int or numpy.random.Generator, optional
        By default the draws are determined by the release and the fit's own seed.

    Returns
    -------
    xarray.DataTree
        The tree with these groups added, or replaced:

        - ``estimands`` (chain, draw[, by]), in units of the outcome, or of its levels' scores;
        - ``confidential_estimands``: the same contrasts of the confidential table's own cell
          means, drawn given the release: what the table itself would have said;
        - ``prior_estimands``: the same estimands from the prior's draws;
        - ``estimand_support`` ([by]): the share of an estimand's weight on clusters or strata where
          both arms have units, or are seen through the noise. The rest is driven by the prior.

    Raises
    ------
    TypeError, ValueError
        Another population, a factor that the model does not have, levels without scores.

    Examples
    --------
    ``tree = estimate(tree, [ATE(), ATT(), ATE(by="cluster")], population="super")`` after
    ``tree = fit(model, release)``; then ``arviz.summary(tree, group="estimands")``. Of a moment
    release, ``by`` names a covariate of the strata; ``CATE(at={"age": 40})`` is the effect at a
    profile of covariates. The whole way is shown in `report`.
    """
    estimands = _checked(estimands)
    if population not in POPULATIONS:
        raise ValueError(
            f'population is {population!r}: it must be "super" (where the units came from) or '
            '"sample" (these very units)'
        )
    manifest = read_manifest(tree)
    rng = generator(manifest, "estimate", random_seed)
    potentials = _family(tree, manifest)(tree, population, rng)
    groups = {
        "estimands": potentials.posterior,
        "confidential_estimands": potentials.table,
        "prior_estimands": potentials.prior,
    }
    attrs = {"population": population, "contrast": "treated minus control", **_outcome(manifest)}
    if population == "sample":
        attrs["assumption"] = ASSUMPTION.format(potentials.stratum)
    attrs.update(potentials.notes)
    new = tree.copy()
    for group, means in groups.items():
        drawn = {one.name: one.contrast(means).assign_attrs(_facts(one)) for one in estimands}
        new[group] = xr.DataTree(xr.Dataset(drawn, attrs=attrs))
    means = groups["estimands"]
    support = {}
    for one in estimands:
        part = one.support(means)
        support[one.name] = part.mean([dim for dim in ("chain", "draw") if dim in part.dims])
    new["estimand_support"] = xr.DataTree(xr.Dataset(support, attrs=attrs))
    return new


def _family(tree: xr.DataTree, manifest: dict[str, Any]) -> Callable[..., Potentials]:
    """Return what makes mean potential outcomes of the fitted model."""
    if "workload" not in manifest:
        return label_potentials
    if isinstance(manifest["workload"], GramWorkload):
        return gram_potentials
    return maxent_potentials if "grid" in tree["constant_data"].coords else moment_potentials


def _outcome(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the effect's unit and, for a bounded outcome, what was done to it."""
    outcome = manifest["schema"].outcome
    if not isinstance(outcome, Bounded):
        return {"units": f"score of {outcome.column!r}"}
    return {
        "units": f"units of {outcome.column!r}",
        "clipping": f"{outcome.column!r} is clipped to {outcome.low:g} and {outcome.high:g}: the "
        "effect is that of the clipped outcome",
    }


def _facts(estimand: Estimand) -> dict[str, Any]:
    """Return what a report needs to know of an estimand, as flat attributes."""
    return {
        "estimand": estimand.row,
        "words": estimand.words,
        "by": estimand.by or "",
        "description": estimand.describe(),
    }


def _checked(estimands: Any) -> list[Estimand]:
    example = '[ATE(), ATT(), ATE(by="cluster")]'
    if isinstance(estimands, str) or not isinstance(estimands, Sequence):
        raise TypeError(
            f"estimands is a {type(estimands).__name__}: it must be a list such as {example}"
        )
    for i, one in enumerate(estimands):
        if not isinstance(one, Estimand):
            raise TypeError(f"estimands[{i}] is {one!r}: it must be like one of {example}")
    names = [one.name for one in estimands]
    if not names:
        raise ValueError(f"estimands is empty: ask for at least one, such as {example}")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"estimands has {twice[0]!r} twice: ask for each once")
    return list(estimands)
