r"""Effects given covariates: at a profile, and their slope in a number.

With :math:`\tau(x) = \mathrm{E}[Y(1) - Y(0) \mid X = x]` the effect at a profile
:math:`x_A` of some covariates is :math:`\mathrm{E}_{X_B}\,\tau(x_A, X_B)`: **the other covariates
are averaged over the whole population**, as if the profile had been given to everybody, and not
over those only who have it (that is what ``ATE(by=...)`` does). With all covariates in the profile
there is no difference.

Of a regression :math:`\tau` is linear in the columns :math:`\phi` of all its covariates; of strata
it is what they say, each for itself.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from dpcausal_bayes.averages import Estimand, factors_of
from dpcausal_bayes.column_checks import scalar

__all__ = ["CATE", "CATESlope"]


class CATE(Estimand, frozen=True, tag=True):
    r"""The conditional average treatment effect: that at given values of covariates.

    Covariates that are not named are averaged over the population: that which the units were drawn
    from (``population="super"``) or these units (``"sample"``). Of a regression the effect is a
    value of the fitted line in either case; of strata ``"sample"`` is about the units in them.

    Parameters
    ----------
    at : dict of str to (str, int, float or bool)
        A value for each covariate named. Of a number within its bounds; of a covariate with levels
        the level, or its label, such as ``"[17, 25)"`` of bins.

    Raises
    ------
    TypeError, ValueError
        No covariate, a value that is neither text nor a finite number; in `estimate`, a covariate
        that the model does not have, an unknown level, a number outside its bounds.

    Examples
    --------
    >>> CATE(at={"age": 40, "sex": "f"}).name
    'cate(age=40, sex=f)'
    >>> CATE(at={"age": 40}).describe()
    'average treatment effect at age = 40, treated minus control'
    """

    at: dict[str, Any]

    by: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not isinstance(self.at, Mapping) or not self.at:
            raise TypeError(f'CATE.at is {self.at!r}: give a dict such as CATE(at={{"age": 40}})')
        for name, value in self.at.items():
            if not isinstance(name, str):
                raise TypeError(f"CATE.at names {name!r}: name covariates as text")
            real = isinstance(value, numbers.Real) and math.isfinite(value)
            if not real and not isinstance(value, str | np.bool_):
                raise TypeError(
                    f"CATE.at[{name!r}] is {value!r}: it must be one level, or one finite number"
                )

    @property
    def name(self) -> str:
        """Name of the variable in the groups that `estimate` makes, and of its row in a report."""
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self.at.items())
        return f"cate({shown})".replace("/", "|")  # a slash would part groups of a tree

    @property
    def words(self) -> str:
        """What is estimated, without the direction of the contrast."""
        shown = ", ".join(f"{name} = {_shown(value)}" for name, value in self.at.items())
        return f"average treatment effect at {shown}"

    def describe(self) -> str:
        """Say in words what is estimated."""
        return f"{self.words}, treated minus control"

    def contrast(self, means: xr.Dataset) -> xr.DataArray:
        """Return the draws of the estimand, (chain, draw), from means as in `Estimand.contrast`."""
        if "regression_slope" not in means:
            return super().contrast(means)
        centre = means["regression_centre"]
        given = self._columns(means)
        moved = xr.where(given.notnull(), given, centre) - centre
        drawn = _effect(means["regression_mean"]) + xr.dot(
            _effect(means["regression_slope"]), moved, dim="feature"
        )
        return drawn.transpose("chain", "draw")

    def support(self, means: xr.Dataset) -> xr.DataArray:
        """Return which share of the weight is on strata that have both arms."""
        if "regression_slope" in means:  # one line for all: that of everybody
            return means["supported"].isel(stratum=0, drop=True).astype(float)
        return super().support(means)

    def weights(self, means: xr.Dataset) -> xr.DataArray:
        """Weigh the strata of the profile as the population is made up in the other covariates.

        Parameters
        ----------
        means : Dataset
            With ``weight`` (assigned, stratum), and each factor as a coordinate along ``stratum``.
        """
        factors = factors_of(means)
        inside = xr.ones_like(means["stratum"], dtype=bool)
        for name, value in self.at.items():
            if name not in factors:
                raise ValueError(
                    f"CATE.at names {name!r}: this model can tell effects apart by {factors}"
                )
            inside = inside & (means[name] == _level(name, value, means[name].values))
        alike = np.ones((inside.size, inside.size))  # in all other covariates
        for name in [name for name in factors if name not in self.at]:
            alike *= means[name].values[:, None] == means[name].values
        own = means["weight"]
        total = own.sum("assigned").transpose(..., "stratum")
        within = xr.where(total > 0, own / total.where(total > 0, 1.0), 0.5)
        weight = within * total.copy(data=total.values @ alike).where(inside, 0.0)
        return weight / weight.sum(["assigned", "stratum"])

    def _columns(self, means: xr.Dataset) -> xr.DataArray:
        """Return the profile's columns (feature); NaN for covariates that are not named."""
        features = means["regression_slope"].attrs["features"]
        known = list(dict.fromkeys(feature.covariate for feature in features))
        column = np.full(len(features), np.nan)
        for name, value in self.at.items():
            if name not in known:
                raise ValueError(f"CATE.at names {name!r}: this model has the covariates {known}")
            for j, feature in enumerate(features):
                if feature.covariate != name:
                    continue
                if feature.level is None:
                    column[j] = _scaled(name, value, feature.low, feature.high)
                else:
                    level = _level(name, value, means[name].values)
                    column[j] = 1.0 if level == feature.level else -1.0
        return xr.DataArray(column, dims="feature")


class CATESlope(Estimand, frozen=True, tag=True):
    r"""How the effect of treatment changes with a number: the slope of the linear CATE.

    The difference of the two arms' slopes in that covariate, all others held as they are. Only a
    `gram_regression` has it.

    Parameters
    ----------
    covariate : str
        A numeric covariate.

    Examples
    --------
    >>> CATESlope("age").name
    'cate_slope(age)'
    >>> CATESlope("age").describe()
    'change of the average treatment effect for each unit of age, treated minus control'
    """

    covariate: str

    by: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not isinstance(self.covariate, str) or not self.covariate:
            raise TypeError(
                f"CATESlope.covariate is {self.covariate!r}: name a covariate, as in "
                'CATESlope("age")'
            )

    @property
    def name(self) -> str:
        """Name of the variable in the groups that `estimate` makes, and of its row in a report."""
        return f"cate_slope({self.covariate})".replace("/", "|")

    @property
    def words(self) -> str:
        """What is estimated, without the direction of the contrast."""
        return f"change of the average treatment effect for each unit of {self.covariate}"

    def describe(self) -> str:
        """Say in words what is estimated."""
        return f"{self.words}, treated minus control"

    def contrast(self, means: xr.Dataset) -> xr.DataArray:
        """Return the draws of the estimand, (chain, draw), from means as in `Estimand.contrast`."""
        features = (
            means["regression_slope"].attrs["features"] if "regression_slope" in means else ()
        )
        numeric = {f.covariate: j for j, f in enumerate(features) if f.level is None}
        if self.covariate not in numeric:
            raise ValueError(
                f"CATESlope.covariate is {self.covariate!r}: this model has slopes in "
                f"{list(numeric)}; of levels ask for CATE or ATE(by=...)"
            )
        place = numeric[self.covariate]
        half = (features[place].high - features[place].low) / 2
        slope = _effect(means["regression_slope"].isel(feature=place)) / half
        return slope.transpose("chain", "draw")

    def support(self, means: xr.Dataset) -> xr.DataArray:
        """Return which share of the weight is on strata that have both arms."""
        return means["supported"].isel(stratum=0, drop=True).astype(float)


def _effect(by_arm: xr.DataArray) -> xr.DataArray:
    return by_arm.sel(arm="treated", drop=True) - by_arm.sel(arm="control", drop=True)


def _shown(value: Any) -> str:
    return str(scalar(value, "CATE.at"))


def _scaled(name: str, value: Any, low: float, high: float) -> float:
    """Return a number as a column in [-1, 1], or raise."""
    if isinstance(value, str) or not low <= value <= high:
        raise ValueError(
            f"CATE.at[{name!r}] is {value!r}: it must be a number within its bounds, {low:g} to "
            f"{high:g}, as the regression knows nothing beyond"
        )
    return (2 * float(value) - low - high) / (high - low)


def _level(name: str, value: Any, labels: Any) -> str:
    """Return the label of a level, or raise."""
    known = [str(label) for label in dict.fromkeys(labels) if label != ""]
    label = _shown(value)
    if label not in known:
        raise ValueError(f"CATE.at[{name!r}] is {value!r}: its levels are {known}")
    return label
