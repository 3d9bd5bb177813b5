r"""Tables as numbers: outcomes in [-1, 1], covariates in the unit ball, codes for histograms.

Everything follows from the schema; nothing is read off the rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpcausal_bayes.columns import Binned, Bounded, Categories
from dpcausal_bayes.schema import Schema

__all__ = [
    "Records",
    "box",
    "cells",
    "codes",
    "domain",
    "outcome_range",
    "records",
    "records_of_codes",
]

OUTCOME_BINS = 10  # equal ones, between the public bounds
COVARIATE_BINS = 5

Covariate = Categories | Binned | Bounded


class Records(NamedTuple):
    r"""The rows of a table.

    Attributes
    ----------
    treated : ndarray of bool, shape (n,)
    outcome : ndarray, shape (n,)
        Clipped and scaled to [-1, 1].
    design : ndarray, shape (n, 1 + d)
        :math:`(1, \phi) / \sqrt{1 + k}` for k covariates, of which each adds at most 1 to
        :math:`|\phi|^2`: a number is scaled to [-1, 1], a category has an indicator for each level
        but the first. So rows have length at most 1.
    half : float
        Of the outcome, in its units: what scaled effects are multiplied by.
    """

    treated: NDArray[np.bool_]
    outcome: NDArray[np.float64]
    design: NDArray[np.float64]
    half: float


def records(table: pd.DataFrame, schema: Schema) -> Records:
    """Clip and scale a table."""
    centre, half = outcome_range(schema)
    value = table[schema.outcome.column].to_numpy(float)
    parts = [np.ones((len(table), 1))]
    for covariate in schema.covariates:
        column = table[covariate.column]
        if isinstance(covariate, Bounded):
            scaled = (column.to_numpy(float) - covariate.centre) / covariate.half
            parts.append(np.clip(scaled, -1, 1)[:, None])
        else:
            parts.append(_indicators(cells(column, covariate), len(covariate.labels)))
    return Records(
        (table[schema.arm.column] == schema.arm.treated).to_numpy(),
        np.clip((value - centre) / half, -1, 1),
        np.hstack(parts) / np.sqrt(1 + len(schema.covariates)),
        half,
    )


def box(schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and greatest value of each column of the design, over all records."""
    low, high = [1.0], [1.0]
    for covariate in schema.covariates:
        one = isinstance(covariate, Bounded)
        width = 1 if isinstance(covariate, Bounded) else len(covariate.labels) - 1
        low += [-1.0 if one else 0.0] * width
        high += [1.0] * width
    scale = np.sqrt(1 + len(schema.covariates))
    return np.array(low) / scale, np.array(high) / scale


def domain(schema: Schema) -> dict[str, int]:
    """Return how many codes each column has: arm, outcome, covariates."""
    levels = OUTCOME_BINS if isinstance(schema.outcome, Bounded) else 2
    sizes = {schema.arm.column: 2, schema.outcome.column: levels}
    return sizes | {
        one.column: COVARIATE_BINS if isinstance(one, Bounded) else len(one.labels)
        for one in schema.covariates
    }


def codes(table: pd.DataFrame, schema: Schema) -> dict[str, NDArray[np.int64]]:
    """Return every column as codes; numbers are cut into equal bins between their bounds."""
    rows = records(table, schema)
    size = domain(schema)
    coded = {
        schema.arm.column: rows.treated.astype(np.int64),
        schema.outcome.column: _bin(rows.outcome, size[schema.outcome.column]),
    }
    return coded | {one.column: cells(table[one.column], one) for one in schema.covariates}


def records_of_codes(coded: dict[str, NDArray[np.int64]], schema: Schema) -> Records:
    """Return the rows that codes stand for: of a bin its middle."""
    size = domain(schema)
    _, half = outcome_range(schema)
    arm, outcome = coded[schema.arm.column], coded[schema.outcome.column]
    parts = [np.ones((len(arm), 1))]
    for covariate in schema.covariates:
        code, width = coded[covariate.column], size[covariate.column]
        if isinstance(covariate, Bounded):
            parts.append(_middle(code, width)[:, None])
        else:
            parts.append(_indicators(code, width))
    levels = size[schema.outcome.column]
    y = _middle(outcome, levels) if isinstance(schema.outcome, Bounded) else 2.0 * outcome - 1
    design = np.hstack(parts) / np.sqrt(1 + len(schema.covariates))
    return Records(np.asarray(arm) == 1, y, design, half)


def cells(column: pd.Series, covariate: Covariate) -> NDArray[np.int64]:
    """Return the place of each value among a covariate's levels or bins."""
    if isinstance(covariate, Bounded):
        scaled = (column.to_numpy(float) - covariate.centre) / covariate.half
        return _bin(np.clip(scaled, -1, 1), COVARIATE_BINS)
    if isinstance(covariate, Binned):
        value = column.to_numpy(float)
        place = np.full(len(value), -1)
        for code, (low, high) in enumerate(pairwise(covariate.edges)):
            place[(value >= low) & (value < high)] = code
        place[value == covariate.edges[-1]] = len(covariate.edges) - 2
    else:
        known: dict[Any, int] = {level: code for code, level in enumerate(covariate.levels)}
        place = column.map(known).fillna(-1).to_numpy(np.int64)
    if (place < 0).any() and covariate.other is None:
        raise ValueError(
            f"column {covariate.column!r} has values that its declaration does not name: declare "
            "them, or other='other'"
        )
    return np.where(place < 0, len(covariate.labels) - 1, place)


def outcome_range(schema: Schema) -> tuple[float, float]:
    """Return centre and half of the outcome's public range."""
    outcome = schema.outcome
    if isinstance(outcome, Bounded):
        return outcome.centre, outcome.half
    if outcome.values is None or len(outcome.values) != 2:
        raise ValueError(f"outcome {outcome.column!r} must be Bounded, or have two numeric levels")
    low, high = outcome.values
    return (low + high) / 2, (high - low) / 2


def _indicators(code: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    return np.eye(width)[code][:, 1:]


def _bin(scaled: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    return np.minimum((scaled + 1) / 2 * bins, bins - 1).astype(np.int64)


def _middle(code: NDArray[np.int64], bins: int) -> NDArray[np.float64]:
    return (2 * np.asarray(code) + 1) / bins - 1
