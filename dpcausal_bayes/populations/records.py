"""What populations of records share: checks, outcomes by level, effects on the very records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.populations.contrasts import Contrast, weigh
from dpcausal_bayes.schema import Schema

__all__ = ["check_records", "keep", "sample_contrast"]


def check_records(owner: str, schema: Schema, n: Any) -> None:
    """Raise unless tables of n records with both potential outcomes can be drawn.

    Parameters
    ----------
    owner : str
        Whose fields these are.
    schema : Schema
    n : int
    """
    twice = {"y0", "y1"} & set(schema.columns)
    if twice:
        raise ValueError(
            f"{owner}.schema has a column {min(twice)!r}: y0 and y1 are the names of the potential "
            "outcomes; rename it"
        )
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ValueError(f"{owner}.n is {n!r}: it must be a whole number, 0 or more")


def keep(owner: Any, field: str, value: Any) -> None:
    """Keep an array as a field of a frozen struct, read-only."""
    value.flags.writeable = False
    force_setattr(owner, field, value)


def sample_contrast(
    estimand: Contrast,
    table: pd.DataFrame,
    schema: Schema,
    stratum: NDArray[np.int64],
    expected: NDArray[np.float64],
    factors: Mapping[str, Sequence[str]],
) -> xr.DataArray:
    """Return the effect on the very records of a table, from both their potential outcomes.

    Parameters
    ----------
    estimand : ATE, ATT or ATC
    table : pandas.DataFrame, n rows
    schema : Schema
    stratum : ndarray of int, shape (n,)
    expected : ndarray, shape (2, L)
        Mean outcome by arm and stratum: what nobody's mean is taken to be. It has no weight, but in
        a split by a covariate.
    factors : mapping of str to sequence of str
        Of each column that strata are told apart by, its label in each stratum.
    """
    treated = (table[schema.arm.column] == schema.arm.treated).to_numpy(np.int64)
    cell = treated * expected.shape[1] + stratum
    size = np.bincount(cell, minlength=expected.size)
    total = np.stack(
        [np.bincount(cell, _values(table[y], schema), len(size)) for y in ("y0", "y1")]
    )
    mean = np.where(size > 0, total / np.maximum(size, 1), np.tile(expected, 2))
    mean = mean.reshape(2, 2, -1).swapaxes(0, 1)  # assigned, arm, stratum
    return weigh(estimand, mean, size.reshape(2, -1), factors)


def _values(column: pd.Series, schema: Schema) -> NDArray[np.float64]:
    """Return outcomes as numbers; a bounded one is its own value."""
    outcome: Any = schema.outcome
    if not isinstance(outcome, Bounded):
        column = column.map(dict(zip(outcome.levels, outcome.values, strict=True)))
    return column.to_numpy(float)
