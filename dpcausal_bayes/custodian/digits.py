"""A column as digits: an expression that any engine runs, one digit a declared level.

Digit 0 stands for a missing value, digit 1 for one that is not declared, and digit 2 + k for the
k-th label: level, bin, or the declared ``other`` level, which takes what would be 0 or 1. A bounded
outcome has one label, a finite number. Levels, bins and bounds come from the schema, never from the
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels, Scalar

__all__ = ["digit_of", "lattice_steps", "plain_pandas", "radix"]

MISSING, STRAY, DECLARED = 0, 1, 2

_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)

Column = Arm | Levels | Bounded | Categories | Binned


def radix(field: Column) -> int:
    """Return how many digits a column has."""
    if isinstance(field, Bounded):
        return DECLARED + 1
    if isinstance(field, Arm | Levels):
        return DECLARED + len(field.levels)
    return DECLARED + len(field.labels)


def digit_of(field: Column, dtype: Any) -> nw.Expr:
    """Write a column's digit as an expression.

    Parameters
    ----------
    field : Arm, Levels, Bounded, Categories or Binned
    dtype : narwhals dtype
        Of the table's column: it decides how values are compared.

    Raises
    ------
    TypeError
        A column of another kind than its levels.
    """
    numeric = _is_numeric(field, dtype)
    value = _number(field.column) if numeric else nw.col(field.column).cast(nw.String)
    if isinstance(field, Bounded):
        tests = [value.is_finite()]
    elif isinstance(field, Binned):
        tests = _bins(value, _as_stored(field.column, field.edges, dtype))
    else:
        levels = _as_stored(field.column, field.levels, dtype) if numeric else field.levels
        tests = [value == level for level in levels]
    missing = value.is_null() | value.is_nan() if numeric else nw.col(field.column).is_null()
    lost, stray = MISSING, STRAY
    if isinstance(field, Categories | Binned) and field.other is not None:
        lost = stray = DECLARED + len(tests)
    # NaN is looked for first: some engines hold it to be above every number
    return nw.coalesce(
        nw.when(missing).then(nw.lit(lost)),
        *(nw.when(test).then(nw.lit(DECLARED + k)) for k, test in enumerate(tests)),
        nw.lit(stray),
    ).cast(nw.Int64)


def lattice_steps(field: Bounded, lattice: int) -> nw.Expr:
    r"""Write a bounded outcome in lattice steps, an integer between -lattice and lattice.

    .. math:: \left\lfloor \text{lattice} \cdot
        \operatorname{clip}\left(\frac{y - \text{centre}}{\text{half}}, -1, 1\right)
        + \tfrac12 \right\rfloor

    Every step is one operation on 64-bit floats, so that all engines give the same integer. Values
    that are no finite numbers give zero; their digit tells them.
    """
    value = _number(field.column)
    # clipped before it is divided, so that nothing overflows
    unit = (value - field.centre).clip(-field.half, field.half) / field.half
    # engines round halves in different ways, and all floors are alike
    steps = (unit * float(lattice) + 0.5).floor()
    return nw.when(value.is_finite()).then(steps).otherwise(nw.lit(0.0)).cast(nw.Int64)


def plain_pandas(series: pd.Series) -> pd.Series:
    """Turn pandas objects and categories into text or 64-bit floats, missing values kept.

    Raises
    ------
    TypeError
        Text mixed with numbers, or objects that are neither.
    """
    try:
        codes, distinct = pd.factorize(series)
        values = list(distinct)
        # the code of a missing value is -1, which is the place of the last
        if values and all(isinstance(value, str) for value in values):
            plain = np.array([*values, None], dtype=object)[codes]
            return pd.Series(plain, index=series.index, dtype="str")
        if all(isinstance(value, _NUMBERS) for value in values):
            plain = np.array([*values, np.nan], dtype=float)[codes]
            return pd.Series(plain, index=series.index)
    except (TypeError, OverflowError):  # lists, say, cannot be compared; 10**400 is no float
        pass
    raise TypeError(
        f"column {series.name!r} holds objects that are not all numbers or all text: convert it "
        "first"
    )


def _is_numeric(field: Column, dtype: Any) -> bool:
    """Say whether a column holds numbers or text, or refuse it."""
    column = field.column
    numeric = (dtype.is_numeric() and not dtype.is_decimal()) or dtype == nw.Boolean
    if not numeric and dtype not in (nw.String, nw.Categorical, nw.Enum):
        raise TypeError(
            f"column {column!r} has dtype {dtype}: only numbers, booleans, text and categories can "
            "be read; convert it first"
        )
    if isinstance(field, Bounded | Binned):
        if not numeric:
            raise TypeError(
                f"column {column!r} holds text, but {type(field).__name__} needs numbers: convert "
                "the column"
            )
    elif numeric == isinstance(field.levels[0], str):
        found, wanted = ("numbers", "text") if numeric else ("text", "numbers")
        raise TypeError(
            f"column {column!r} holds {found}, but its declared levels are {wanted}: convert the "
            "column or declare its levels anew"
        )
    return numeric


def _number(column: str) -> nw.Expr:
    """Return the column as 64-bit floats, which hold every level that can be declared."""
    return nw.col(column).cast(nw.Float64)


def _as_stored(column: str, levels: Sequence[Scalar], dtype: Any) -> list[float]:
    """Round levels or edges as the column's own values were: 0.1 in 32 bits is not 0.1 in 64."""
    numbers = [float(level) for level in levels]
    if dtype == nw.Float32:
        numbers = [float(np.float32(number)) for number in numbers]
        if len(set(numbers)) < len(numbers):
            raise TypeError(
                f"column {column!r} has dtype {dtype}, too coarse to tell its levels apart: "
                "convert it first"
            )
    return numbers


def _bins(value: nw.Expr, edges: Sequence[float]) -> list[nw.Expr]:
    """Say which bin a value is in: [low, high), the last one closed."""
    pairs = list(pairwise(edges))
    last = len(pairs) - 1
    return [
        (value >= low) & ((value <= high) if k == last else (value < high))
        for k, (low, high) in enumerate(pairs)
    ]
