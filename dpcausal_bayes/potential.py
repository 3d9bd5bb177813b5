r"""Mean potential outcomes by stratum: what every estimand is a weighted sum of.

A model family supplies three data sets, `Potentials`. Their variables:

``mean`` (chain, draw, assigned, arm, stratum)
    Mean outcome under ``arm`` of the units that were assigned to ``assigned``, in the outcome's
    units. Without ``assigned`` where that makes no difference.
``weight`` (assigned, stratum)
    Their share of the population; sums to one. With ``chain`` and ``draw`` where it is not public.
``supported`` (stratum)
    Whether both arms have units there; elsewhere a contrast rests on the prior.

A regression adds, for effects at a profile, its line in the columns of the covariates:

``regression_mean`` (chain, draw, arm)
    Under ``arm``, of units with the population's mean columns, in the outcome's units.
``regression_slope`` (chain, draw, arm, feature)
    For each unit of a column; its attribute ``features`` is a tuple of `Column`.
``regression_centre`` (chain, draw, feature)
    The population's mean columns.

Each factor that an estimand may be split by is a coordinate along ``stratum``. Its label is empty
where a stratum is of no level. Strata may divide the population more than once, by different
factors, if the divisions agree on its effects.
"""

from __future__ import annotations

import hashlib
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

__all__ = ["POPULATIONS", "Column", "Population", "Potentials", "generator"]

Population = Literal["sample", "super"]
POPULATIONS = typing.get_args(Population)


class Column(NamedTuple):
    """A column of a regression: a number between bounds, scaled to [-1, 1], or one level's +1."""

    covariate: str
    level: str | None
    low: float
    high: float


class Potentials(NamedTuple):
    """Mean potential outcomes of a fitted model.

    Attributes
    ----------
    posterior : xarray.Dataset
        Of the population asked for.
    table : xarray.Dataset
        What the confidential table itself says.
    prior : xarray.Dataset
        Of the population, before the release.
    stratum : str
        What a stratum is called in sentences.
    notes : dict
        What a report must say of the model: ``assumption`` and, of what was done to covariates,
        ``covariates``.
    """

    posterior: xr.Dataset
    table: xr.Dataset
    prior: xr.Dataset
    stratum: str
    notes: Mapping[str, str] = MappingProxyType({})


def generator(
    manifest: dict[str, Any], purpose: str, random_seed: int | np.random.Generator | None
) -> np.random.Generator:
    """Return the random numbers of one step: the caller's, or those the fit determines.

    Parameters
    ----------
    manifest : dict
        Of the fit: its release's digest and its seed.
    purpose : str
        Different steps use different numbers.
    random_seed : int, numpy.random.Generator or None
    """
    if random_seed is not None:
        return np.random.default_rng(random_seed)
    text = f"{manifest['release_digest']} {manifest['random_seed']} {purpose}"
    return np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
