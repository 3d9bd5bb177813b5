r"""Average treatment effects as draws: of everybody, of the treated, of the controls.

Every estimand is :math:`\sum_{a,s} w_{as}\,(m_{a1s} - m_{a0s})`: over the arms a that units were
assigned to and the strata s, with m the mean potential outcome under treatment and under control.
Contrasts are always treated minus control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import xarray as xr

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.gram_potential import gram_potentials
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.label_potential import label_potentials
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.moment_potential import moment_potentials
from dpcausal_bayes.potential import POPULATIONS, Population, Potentials, generator

__all__ = ["ATC", "ATE", "ATT", "estimate"]

ASSUMPTION = (
    "a unit's two potential outcomes are independent given its {0}; each {0}'s missing outcomes "
    "are drawn from its other arm"
)


class _Contrast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Treated minus control, averaged over the units assigned to some arms."""

    by: str | None = None

    short: ClassVar[str]
    words: ClassVar[str]
    assigned: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        if self.by is not None and (not isinstance(self.by, str) or not self.by):
            raise TypeError(
                f"{type(self).__name__}.by is a {type(self.by).__name__}: name the factor as text, "
                f'such as {type(self).__name__}(by="cluster")'
            )

    @property
    def name(self) -> str:
        """Name of the variable in the groups that `estimate` makes."""
        return self.short if self.by is None else f"{self.short}_by_{self.by}"

    def describe(self) -> str:
        """Say in words what is estimated."""
        split = "" if self.by is None else f", separately for each {self.by}"
        return f"{self.words}, treated minus control{split}"

    def weights(self, means: xr.Dataset) -> xr.DataArray:
        """Return the weight of each group of units: (assigned, stratum), and ``by`` if there is.

        Parameters
        ----------
        means : Dataset
            With ``weight`` (assigned, stratum), and each factor as a coordinate along ``stratum``.

        Returns
        -------
        DataArray
            Sums to one over assigned and stratum. A split's level with nobody in it weighs its
            arms and strata alike: its effect is the superpopulation's.

        Raises
        ------
        ValueError
            A factor that is not there, or a population with nobody in it.
        """
        counted = means["assigned"].isin(self.assigned)
        if self.by is None:
            weight = means["weight"].where(counted, 0.0)
            total = weight.sum(["assigned", "stratum"])
            if not bool((total > 0).all()):
                raise ValueError(
                    f"{self.short}: no unit was assigned to {' or '.join(self.assigned)}, so "
                    f"there is no {self.words}; ask for another estimand"
                )
            return weight / total
        within = self._members(means)
        weight = means["weight"].where(counted, 0.0) * within
        total = weight.sum(["assigned", "stratum"])
        alike = counted * within
        alike = alike / alike.sum(["assigned", "stratum"])
        return xr.where(total > 0, weight / total.where(total > 0, 1.0), alike)

    def _members(self, means: xr.Dataset) -> xr.DataArray:
        """Return which stratum belongs to which level of the factor: 0 or 1, (by, stratum)."""
        factors = [
            str(name)
            for name, coord in means.coords.items()
            if coord.dims == ("stratum",) and name != "stratum"
        ]
        if self.by not in factors:
            raise ValueError(
                f"{type(self).__name__}.by is {self.by!r}: this model can split by {factors}"
            )
        label = means[self.by].values
        levels = [level for level in dict.fromkeys(label) if level != ""]
        member = (np.array(levels)[:, None] == label[None, :]).astype(float)
        coords = {self.by: levels, "stratum": means["stratum"].values}
        return xr.DataArray(member, dims=(self.by, "stratum"), coords=coords)

    def contrast(self, means: xr.Dataset) -> xr.DataArray:
        """Return the draws of the estimand, (chain, draw) and ``by`` if there is.

        Parameters
        ----------
        means : Dataset
            With ``mean`` (chain, draw, assigned, arm, stratum), which may lack ``assigned``, and
            ``weight`` (assigned, stratum).
        """
        mean = means["mean"]
        effect = mean.sel(arm="treated", drop=True) - mean.sel(arm="control", drop=True)
        effect = effect.drop_vars([name for name in effect.coords if name not in effect.dims])
        drawn = xr.dot(effect, self.weights(means), dim=["assigned", "stratum"])
        return drawn.transpose("chain", "draw", ...)


class ATE(_Contrast, frozen=True, tag=True):
    """The average treatment effect, over all units.

    Parameters
    ----------
    by : str, optional
        A factor, such as ``"cluster"`` or a covariate of the strata: one effect for each level.

    Examples
    --------
    >>> ATE().name, ATE(by="cluster").name
    ('ate', 'ate_by_cluster')
    >>> ATE(by="cluster").describe()
    'average treatment effect, treated minus control, separately for each cluster'
    """

    short: ClassVar[str] = "ate"
    words: ClassVar[str] = "average treatment effect"
    assigned: ClassVar[tuple[str, ...]] = ("control", "treated")


class ATT(_Contrast, frozen=True, tag=True):
    """The average treatment effect on the treated: over the units assigned to treatment.

    Parameters
    ----------
    by : str, optional
        A factor, such as ``"cluster"`` or a covariate of the strata: one effect for each level.

    Examples
    --------
    >>> ATT().name, ATT(by="cluster").name
    ('att', 'att_by_cluster')
    >>> ATT().describe()
    'average treatment effect on the treated, treated minus control'
    """

    short: ClassVar[str] = "att"
    words: ClassVar[str] = "average treatment effect on the treated"
    assigned: ClassVar[tuple[str, ...]] = ("treated",)


class ATC(_Contrast, frozen=True, tag=True):
    """The average treatment effect on the controls: over the units assigned to control.

    Parameters
    ----------
    by : str, optional
        A factor, such as ``"cluster"`` or a covariate of the strata: one effect for each level.

    Examples
    --------
    >>> ATC().name, ATC(by="cluster").name
    ('atc', 'atc_by_cluster')
    >>> ATC().describe()
    'average treatment effect on the controls, treated minus control'
    """

    short: ClassVar[str] = "atc"
    words: ClassVar[str] = "average treatment effect on the controls"
    assigned: ClassVar[tuple[str, ...]] = ("control",)


def estimate(
    tree: xr.DataTree,
    estimands: Sequence[_Contrast],
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
    its cluster or stratum**; no data say how they go together.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`; left as it is.
    estimands : sequence of ATE, ATT or ATC
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
    release, ``by`` names a covariate of the strata. The whole way is shown in `report`.
    """
    estimands = _checked(estimands)
    if population not in POPULATIONS:
        raise ValueError(
            f'population is {population!r}: it must be "super" (where the units came from) or '
            '"sample" (these very units)'
        )
    manifest = read_manifest(tree)
    rng = generator(manifest, "estimate", random_seed)
    potentials = _family(manifest)(tree, population, rng)
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
        part = one.weights(means).dot(means["supported"], dim=["assigned", "stratum"])
        support[one.name] = part.mean([dim for dim in ("chain", "draw") if dim in part.dims])
    new["estimand_support"] = xr.DataTree(xr.Dataset(support, attrs=attrs))
    return new


def _family(manifest: dict[str, Any]) -> Callable[..., Potentials]:
    """Return what makes mean potential outcomes of the fitted model."""
    if "workload" not in manifest:
        return label_potentials
    gram = isinstance(manifest["workload"], GramWorkload)
    return gram_potentials if gram else moment_potentials


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


def _facts(estimand: _Contrast) -> dict[str, Any]:
    """Return what a report needs to know of an estimand, as flat attributes."""
    return {
        "estimand": estimand.short,
        "words": estimand.words,
        "by": estimand.by or "",
        "description": estimand.describe(),
    }


def _checked(estimands: Any) -> list[_Contrast]:
    example = '[ATE(), ATT(), ATE(by="cluster")]'
    if isinstance(estimands, str) or not isinstance(estimands, Sequence):
        raise TypeError(
            f"estimands is a {type(estimands).__name__}: it must be a list such as {example}"
        )
    for i, one in enumerate(estimands):
        if not isinstance(one, _Contrast):
            raise TypeError(f"estimands[{i}] is {one!r}: it must be like one of {example}")
    names = [one.name for one in estimands]
    if not names:
        raise ValueError(f"estimands is empty: ask for at least one, such as {example}")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"estimands has {twice[0]!r} twice: ask for each once")
    return list(estimands)
