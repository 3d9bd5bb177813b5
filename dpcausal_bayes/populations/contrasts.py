"""What an estimand makes of mean outcomes that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

__all__ = ["Contrast", "weigh"]


class Contrast(Protocol):
    """What `ATE`, `ATT` and `ATC` share: they weigh mean potential outcomes."""

    @property
    def name(self) -> str:
        """What the result is called."""

    @property
    def by(self) -> str | None:
        """The factor whose levels each have an effect, if any."""

    def contrast(self, means: xr.Dataset) -> xr.DataArray:
        """Weigh mean potential outcomes."""


def weigh(
    estimand: Contrast,
    mean: NDArray[np.float64],
    weight: NDArray[Any],
    factors: Mapping[str, Sequence[str]],
) -> xr.DataArray:
    """Let an estimand weigh mean outcomes that are known: one draw, of no error.

    Parameters
    ----------
    estimand : ATE, ATT or ATC
    mean : array, shape (2, 2, L) or (2, L)
        Mean outcome by assigned arm, arm and stratum; without the first where the assigned arm
        makes no difference.
    weight : array, shape (2, L)
        By assigned arm and stratum; need not sum to one.
    factors : mapping of str to sequence of str
        Of each column that strata are told apart by, its label in each stratum.

    Examples
    --------
    >>> from dpcausal_bayes.estimands import ATT
    >>> mean, weight = np.array([[1.0, 2.0], [2.0, 5.0]]), np.array([[3, 1], [1, 1]])
    >>> float(weigh(ATT(), mean, weight, {"sex": ["f", "m"]}))
    2.0
    >>> weigh(ATT(by="sex"), mean, weight, {"sex": ["f", "m"]}).values.tolist()
    [1.0, 3.0]
    """
    arms = ["control", "treated"]
    dims = ("chain", "draw", *(("assigned",) if mean.ndim == 3 else ()), "arm", "stratum")
    labels = {name: ("stratum", list(labels)) for name, labels in factors.items()}
    shares = weight / (weight.sum() or 1.0)
    means = xr.Dataset(
        {"mean": (dims, mean[None, None]), "weight": (("assigned", "stratum"), shares)},
        coords={"assigned": arms, "arm": arms, **labels},
    )
    drawn = estimand.contrast(means).isel(chain=0, draw=0, drop=True)
    return drawn.rename(estimand.name)
