r"""Contrasts of mean potential outcomes: over everybody, over the treated, over the controls.

Every estimand is :math:`\sum_{a,s} w_{as}\,(m_{a1s} - m_{a0s})`: over the arms a that units were
assigned to and the strata s, with m the mean potential outcome under treatment and under control.
Contrasts are always treated minus control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np
import xarray as xr

__all__ = ["ATC", "ATE", "ATT", "Estimand", "contrast_of_means", "factors_of"]


class Estimand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `estimate` computes: draws of one contrast, or one for each level of a factor."""

    if TYPE_CHECKING:

        @property
        def by(self) -> str | None:
            """The factor whose levels each have an effect, if any."""

        @property
        def words(self) -> str:
            """What is estimated, without the direction of the contrast."""

    @property
    def name(self) -> str:
        """Name of the variable in the groups that `estimate` makes."""
        raise NotImplementedError

    @property
    def row(self) -> str:
        """Name of its row in a report; a split has its levels behind it, in brackets."""
        return self.name

    def describe(self) -> str:
        """Say in words what is estimated."""
        raise NotImplementedError

    def weights(self, means: xr.Dataset) -> xr.DataArray:
        """Return the weight of each group of units, (assigned, stratum)."""
        raise NotImplementedError

    def contrast(self, means: xr.Dataset) -> xr.DataArray:
        """Return the draws of the estimand, (chain, draw) and a split's factor if there is.

        Parameters
        ----------
        means : Dataset
            As in `dpcausal_bayes.potential`: with ``mean`` (chain, draw, assigned, arm, stratum),
            which may lack ``assigned``, and ``weight`` (assigned, stratum).
        """
        return contrast_of_means(means, self.weights(means))

    def support(self, means: xr.Dataset) -> xr.DataArray:
        """Return which share of the weight is on strata that have both arms."""
        return self.weights(means).dot(means["supported"], dim=["assigned", "stratum"])


def contrast_of_means(means: xr.Dataset, weights: xr.DataArray) -> xr.DataArray:
    """Return treated minus control under weights of groups of units, draw by draw.

    Parameters
    ----------
    means : Dataset
    weights : DataArray (assigned, stratum)
    """
    mean = means["mean"]
    effect = mean.sel(arm="treated", drop=True) - mean.sel(arm="control", drop=True)
    effect = effect.drop_vars([name for name in effect.coords if name not in effect.dims])
    drawn = xr.dot(effect, weights, dim=["assigned", "stratum"])
    return drawn.transpose("chain", "draw", ...)


def factors_of(means: xr.Dataset) -> list[str]:
    """Return the names of what strata are told apart by."""
    return [
        str(name)
        for name, coord in means.coords.items()
        if coord.dims == ("stratum",) and name != "stratum"
    ]


class _Average(Estimand, frozen=True):
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

    @property
    def row(self) -> str:
        """Name of its row in a report."""
        return self.short

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
        factors = factors_of(means)
        if self.by not in factors:
            raise ValueError(
                f"{type(self).__name__}.by is {self.by!r}: this model can split by {factors}"
            )
        label = means[self.by].values
        levels = [level for level in dict.fromkeys(label) if level != ""]
        member = (np.array(levels)[:, None] == label[None, :]).astype(float)
        coords = {self.by: levels, "stratum": means["stratum"].values}
        return xr.DataArray(member, dims=(self.by, "stratum"), coords=coords)


class ATE(_Average, frozen=True, tag=True):
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


class ATT(_Average, frozen=True, tag=True):
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


class ATC(_Average, frozen=True, tag=True):
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
