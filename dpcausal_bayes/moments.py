r"""Moments of a table in whole numbers, and the noise that makes a release of them.

All sums are of integers in units of 1/L of a record, L = ``LATTICE``, so that no engine, order or
chunk changes a digit: a record counts L in its cells; its outcome is
:math:`\lfloor L\,\mathrm{clip}((y - \text{centre})/\text{half}, -1, 1) + 1/2 \rfloor`; and its
square, with that integer i, :math:`\lfloor i^2/L + 1/2 \rfloor - L/2`. Columns of a second-order
workload are such integers too, -L or L where they have two values, and a product of two is
:math:`\lfloor i j/L + 1/2 \rfloor`. Numeric covariates are scaled as the outcome is; then a row
with :math:`\sqrt{\sum_j i_j^2} > R L` has each i multiplied by R L over that root, and rounded
towards zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.columns import Binned, Bounded, Categories, Levels, Scalar
from dpcausal_bayes.gaussian_mechanism import LATTICE
from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.laplace_mechanism import MomentMechanism
from dpcausal_bayes.laws import NoiseSource
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["LATTICE", "make_moment_release", "record_strata", "table_moments"]


def table_moments(table: pd.DataFrame, workload: Workload) -> NDArray[np.int64]:
    """Return the exact answers to a workload, for a simulated table: confidential numbers.

    Parameters
    ----------
    table : pandas.DataFrame, n rows
        With the arm, the outcome and the workload's covariates.
    workload : CausalWorkload or GramWorkload

    Returns
    -------
    ndarray of int64, shape (Q,)
        In lattice units.

    Raises
    ------
    TypeError, ValueError
        No rows, a column that is missing or of the wrong kind, a value that the schema has no
        place for, an outcome that is missing or not finite.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10))
    >>> table = pd.DataFrame({"t": [0, 1, 1], "y": [5, 10, 12]})
    >>> (table_moments(table, CausalWorkload(schema)) / LATTICE).tolist()
    [1.0, 0.0, 2.0, 2.0, -0.5, 1.0]
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table is a {type(table).__name__}: it must be a pandas DataFrame")
    _check_kind(workload, Workload, "workload")
    if len(table) == 0:
        raise ValueError("table has no rows: there is nothing to release")
    schema = workload.schema
    arm = _places(_column(table, schema.arm.column), schema.arm.levels, None, "Arm")
    if isinstance(workload, GramWorkload):
        columns = _gram_columns(table, workload)
        products = [np.floor(columns[i] * columns[j] / LATTICE + 0.5) for i, j in workload.pairs]
        return np.stack([_sums(arm, product, 2) for product in products], axis=1).ravel()
    parts = _parts(table, schema)
    sums = []
    for group in range(len(workload.groups)):
        n_strata = workload.n_strata(group)
        cell = arm * n_strata + record_strata(table, workload, group)
        totals = [_sums(cell, part, 2 * n_strata) for part in parts]
        sums.append(np.stack(totals, axis=-1).ravel())
    if not workload.binary:
        square = np.floor(parts[1] ** 2 / LATTICE + 0.5) - LATTICE // 2
        sums.append(_sums(arm, square, 2))
    return np.concatenate(sums)


def record_strata(
    table: pd.DataFrame, workload: CausalWorkload, group: int = 0
) -> NDArray[np.int64]:
    """Return each record's stratum in a group: the last covariate runs fastest.

    Parameters
    ----------
    table : pandas.DataFrame, n rows
    workload : CausalWorkload
    group : int

    Returns
    -------
    ndarray of int64, shape (n,)

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]),
    ...                 covariates=[Categories("sex", ["f", "m"]), Binned("age", [0, 40, 90])])
    >>> table = pd.DataFrame({"sex": ["f", "m", "m"], "age": [40, 2, 90]})
    >>> record_strata(table, CausalWorkload(schema, strata=["sex", "age"])).tolist()
    [1, 2, 3]
    """
    stratum = np.zeros(len(table), dtype=np.int64)
    for covariate in workload.covariates(group):
        stratum = stratum * len(covariate.labels) + _place(table, covariate)
    return stratum


def make_moment_release(
    workload: Workload,
    mechanism: MomentMechanism,
    exact: NDArray[np.int64],
    n: int,
    *,
    source: NoiseSource,
    non_private: bool,
) -> MomentRelease:
    """Add noise to exact answers and wrap the sums.

    Parameters
    ----------
    workload : CausalWorkload or GramWorkload
    mechanism : GaussianMechanism or LaplaceMechanism
        Calibrated for this workload.
    exact : ndarray of int64, shape (Q,)
        In lattice units; confidential, and used for nothing but the sums with noise.
    n : int
        Number of records, public.
    source : NoiseSource
    non_private : bool
        Whether the source can be repeated.

    Returns
    -------
    MomentRelease

    Raises
    ------
    TypeError
        A workload or mechanism of another kind.
    ValueError
        A mechanism of another workload, or answers of the wrong shape.
    """
    from dpcausal_bayes import __version__  # not at the top: the package imports this module

    _check_kind(workload, Workload, "workload")
    _check_kind(mechanism, MomentMechanism, "mechanism")
    mechanism.check(workload)
    if exact.shape != (workload.n_queries,) or exact.dtype != np.int64:
        raise ValueError(
            f"exact has shape {exact.shape} and dtype {exact.dtype}: it must hold the workload's "
            f"{workload.n_queries} answers as int64"
        )
    return MomentRelease(
        workload=workload,
        mechanism=mechanism,
        values=mechanism.randomised(exact, workload, source),  # type: ignore[arg-type]
        lattice=LATTICE,
        n=n,
        loss=mechanism.loss(),
        noise_source=source.name,
        non_private=non_private,
        package_version=__version__,
    )


def _check_kind(value: object, kind: Any, name: str) -> None:
    if not isinstance(value, kind):
        wanted = " or a ".join(one.__name__ for one in getattr(kind, "__args__", (kind,)))
        raise TypeError(f"{name} is a {kind_of(value)}: moments need a {wanted}")


def _sums(place: NDArray[np.int64], part: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Sum whole numbers by place; floats hold them exactly up to 2^53, or 2^33 records."""
    return np.bincount(place, weights=part, minlength=size).astype(np.int64)


def _parts(table: pd.DataFrame, schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what each record adds to the two parts of its cells, in lattice units."""
    outcome = schema.outcome
    column = _column(table, outcome.column)
    if isinstance(outcome, Levels):
        high = _places(column, outcome.levels, None, "Levels")
        counted = np.eye(2)[high] * LATTICE
        return counted[:, 0], counted[:, 1]
    steps = _steps(column, outcome)
    return np.full(len(steps), float(LATTICE)), steps


def _steps(column: pd.Series, bounded: Bounded) -> NDArray[np.float64]:
    """Return a numeric column clipped, scaled to [-1, 1], in lattice units."""
    value = _numbers(column, "Bounded")
    if not np.all(np.isfinite(value)):
        raise ValueError(
            f"column {bounded.column!r} has values that are missing or not finite: leave such "
            "rows out, by a decision of your own"
        )
    # clipped before it is divided, so that nothing overflows
    scaled = np.clip(value - bounded.centre, -bounded.half, bounded.half) / bounded.half
    steps: NDArray[np.float64] = np.floor(LATTICE * scaled + 0.5)
    return steps


def _gram_columns(table: pd.DataFrame, workload: GramWorkload) -> list[NDArray[np.float64]]:
    """Return the columns (1, phi, y) of every record, in lattice units."""
    columns = []
    for field in workload.fields:
        if isinstance(field, Bounded):
            columns.append(_steps(_column(table, field.column), field))
        else:
            place = _place(table, field)
            columns += [_signs(place == level) for level in range(1, len(field.labels))]
    if workload.shrinks:
        assert workload.radius is not None
        numeric = [j for j, feature in enumerate(workload.features) if feature.level is None]
        reach = workload.radius * LATTICE
        length = np.sqrt(sum(columns[j] ** 2 for j in numeric))
        for j in numeric:
            # inside the ball the ratio is 1, and nothing changes
            shrunk = np.floor(np.abs(columns[j]) * (reach / np.maximum(length, reach)))
            columns[j] = np.sign(columns[j]) * shrunk
    outcome = workload.schema.outcome
    column = _column(table, outcome.column)
    if isinstance(outcome, Levels):
        y = _signs(_places(column, outcome.levels, None, "Levels") == 1)
    else:
        y = _steps(column, outcome)
    return [np.full(len(y), float(LATTICE)), *columns, y]


def _signs(inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(inside, float(LATTICE), -float(LATTICE))


def _place(table: pd.DataFrame, covariate: Categories | Binned) -> NDArray[np.int64]:
    column = _column(table, covariate.column)
    if isinstance(covariate, Categories):
        return _places(column, covariate.levels, covariate.other, "Categories")
    return _bins(column, covariate)


def _bins(column: pd.Series, binned: Binned) -> NDArray[np.int64]:
    value = _numbers(column, "Binned")
    edges = np.array(binned.edges)
    place = np.searchsorted(edges, value, side="right") - 1
    place[value == edges[-1]] = len(edges) - 2  # the last bin holds its upper edge
    outside = ~((value >= edges[0]) & (value <= edges[-1]))  # missing values too
    return _with_other(place, outside, binned.other, len(edges) - 1, binned.column, "Binned")


def _places(
    column: pd.Series, levels: tuple[Scalar, ...], other: str | None, owner: str
) -> NDArray[np.int64]:
    """Return the place of each value among the levels; True, 1 and 1.0 are one value."""
    codes, distinct = pd.factorize(column)
    known = {level: place for place, level in enumerate(levels)}
    place = np.array([*(known.get(value, -1) for value in distinct), -1], dtype=np.int64)[codes]
    return _with_other(place, place < 0, other, len(levels), str(column.name), owner)


def _with_other(
    place: NDArray[np.int64],
    outside: NDArray[np.bool_],
    other: str | None,
    last: int,
    column: str,
    owner: str,
) -> NDArray[np.int64]:
    if other is None and outside.any():
        allowed = "bins" if owner == "Binned" else "levels"
        remedy = "declare other='other' to keep them in a level of their own, or "
        raise ValueError(
            f"column {column!r} has values outside its declared {allowed}, or missing ones: "
            f"{remedy if owner in ('Binned', 'Categories') else ''}correct {owner}"
        )
    place[outside] = last
    return place


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    if list(table.columns).count(name) != 1:
        raise ValueError(
            f"table must have one column {name!r}: its columns are {list(table.columns)}"
        )
    return table[name]


def _numbers(column: pd.Series, owner: str) -> NDArray[np.float64]:
    """Return a numeric column as floats, missing values as NaN; text is never read as numbers."""
    if not pd.api.types.is_numeric_dtype(column.dtype) or column.dtype.kind == "c":
        raise TypeError(
            f"column {column.name!r} has dtype {column.dtype}, but {owner} needs numbers: convert "
            "it first"
        )
    return column.to_numpy(dtype=float, na_value=np.nan)
