"""From codes and scaled numbers back to columns as the schema names them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.columns import Binned, Bounded, Categories
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

__all__ = [
    "arm_column",
    "beta_draws",
    "group_columns",
    "level_column",
    "number_column",
    "row_columns",
    "stratum_columns",
]

LEAST_SHAPE = 1e-9  # of a beta law: at less it is two points for every purpose


def arm_column(schema: Schema, treated: NDArray[Any]) -> NDArray[Any]:
    """Return the arms' values, from 0 for control and 1 for treated."""
    return _values(schema.arm.levels)[treated]


def row_columns(
    schema: Schema,
    arm: NDArray[Any],
    covariates: dict[str, NDArray[Any]],
    outcome: NDArray[np.float64],
) -> dict[str, NDArray[Any]]:
    """Return the columns of rows, each as the schema names and writes it.

    Parameters
    ----------
    schema : Schema
    arm : ndarray of int
        0 for control, 1 for treated.
    covariates : dict of str to ndarray
        Columns that are written already.
    outcome : ndarray
        On [-1, 1]; of two levels -1 and 1.
    """
    arms = {schema.arm.column: arm_column(schema, arm)}
    return arms | covariates | {schema.outcome.column: _outcome(schema, outcome)}


def level_column(
    covariate: Categories | Binned, level: NDArray[Any], rng: np.random.Generator
) -> NDArray[Any]:
    """Return a covariate's values, from places in its labels.

    Parameters
    ----------
    covariate : Categories or Binned
    level : ndarray of int
    rng : numpy.random.Generator
        For `Binned`: a number is drawn uniformly from its bin, of which the release tells no more.
        The level ``other`` of bins is written as NaN, which such a release counts there.
    """
    if isinstance(covariate, Categories):
        extra = () if covariate.other is None else (covariate.other,)
        return _values((*covariate.levels, *extra))[level]
    edges = np.append(covariate.edges, np.nan)  # after the last bin: other
    low = np.where(level < len(covariate.edges) - 1, edges[level], np.nan)
    high = np.where(level < len(covariate.edges) - 1, edges[level + 1], np.nan)
    drawn = low + (high - low) * rng.random(len(level))
    return np.where(drawn < high, drawn, low)  # rounding may reach the next bin's edge


def stratum_columns(
    workload: CausalWorkload, group: int, stratum: NDArray[Any], rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Return the columns of a group's covariates, from places in its strata."""
    covariates = workload.covariates(group)
    sizes = [len(covariate.labels) for covariate in covariates]
    levels = np.array(list(np.ndindex(*sizes)), dtype=int).T  # the last runs fastest
    return {
        covariate.column: level_column(covariate, level[stratum], rng)
        for covariate, level in zip(covariates, levels, strict=True)
    }


def group_columns(
    workload: CausalWorkload, stratum: NDArray[Any], rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Return the columns of all groups' covariates, from places (n, G) in each group's strata."""
    found: dict[str, NDArray[Any]] = {}
    for group, own in enumerate(stratum.T):
        found |= stratum_columns(workload, group, own, rng)
    return found


def number_column(covariate: Bounded, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers in a column's units, from [-1, 1]."""
    found = covariate.centre + covariate.half * scaled
    return np.clip(found, covariate.low, covariate.high)  # of rounding


def _outcome(schema: Schema, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return outcomes in their units, from [-1, 1]: of two levels their scores, from -1 and +1."""
    outcome: Any = schema.outcome
    if isinstance(outcome, Bounded):
        return number_column(outcome, scaled)
    return np.array(outcome.values, dtype=float)[(scaled > 0).astype(int)]


def beta_draws(
    mean: NDArray[np.float64], dispersion: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    r"""Draw from beta laws on [-1, 1] of given means and variances :math:`r (1 - \mu^2)`.

    Parameters
    ----------
    mean : ndarray
        In [-1, 1].
    dispersion : ndarray
        r, in (0, 1]: 1 is a law on the two ends.
    rng : numpy.random.Generator
    """
    size = 1 / np.asarray(dispersion) - 1
    a, b = (np.maximum((1 + way * mean) / 2 * size, LEAST_SHAPE) for way in (1, -1))
    return 2 * rng.beta(a, b) - 1


def _values(levels: tuple[Any, ...]) -> NDArray[Any]:
    """Return levels as an array: of objects, unless all are numbers or all are true or false."""
    plain = not any(isinstance(level, str) for level in levels)
    if plain:
        return np.array(levels)
    found = np.empty(len(levels), dtype=object)
    found[:] = levels
    return found
