"""From a table of any library to codes: each value's place among its declared levels.

Levels come from the schema, never from the table. Columns are read in chunks and in row order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpcausal_bayes.columns import Scalar
from dpcausal_bayes.schema import Schema

__all__ = ["read_codes"]

CHUNK = 2**20

Codes = NDArray[np.int32]


def read_codes(table: Any, schema: Schema) -> tuple[Codes, Codes, Codes]:
    """Read and check the cluster, arm and outcome columns.

    Parameters
    ----------
    table : pandas, polars or pyarrow table
    schema : Schema

    Returns
    -------
    cluster, arm, label : ndarray of int32, shape (n,)
        The label codes are confidential.

    Raises
    ------
    TypeError
        Not such a table, or a column of another kind than its levels.
    ValueError
        No rows, a missing column, a missing value, or a value that is not declared. A confidential
        value is never printed.
    """
    frame = _frame(table)
    if len(frame) == 0:
        raise ValueError("table has no rows: there is nothing to release")
    needed = [("Arm", schema.arm.column), ("Levels", schema.outcome.column)]
    if schema.cluster is not None:
        needed.append(("Categories", schema.cluster.column))
    check_columns(frame.columns, needed)
    cluster = np.zeros(len(frame), dtype=np.int32)
    if schema.cluster is not None:
        cluster = _Column(
            frame, schema.cluster.column, schema.cluster.levels, "declare it in Categories.levels"
        ).codes()
    arm = _Column(
        frame,
        schema.arm.column,
        schema.arm.levels,
        "filter the table to the two arms first, or name them in Arm(control=, treated=)",
    ).codes()
    label = _Column(
        frame,
        schema.outcome.column,
        schema.label_outcome.levels,
        "declare every level in Levels.levels, or decide beforehand what becomes of such rows",
        confidential=True,
    ).codes()
    return cluster, arm, label


def check_columns(columns: Sequence[str], needed: Sequence[tuple[str, str]]) -> None:
    """Refuse a table without a declared column; ``needed`` holds (part of the schema, column)."""
    for part, column in needed:
        if column not in columns:
            raise ValueError(
                f"table has no column {column!r}: its columns are {list(columns)}; correct "
                f"{part}.column in the schema"
            )


def _frame(table: Any) -> nw.DataFrame[Any]:
    try:
        return nw.from_native(table, eager_only=True)
    except TypeError:
        remedy = "; call its .collect() first" if hasattr(table, "collect") else ""
        raise TypeError(
            f"table is a {type(table).__module__.partition('.')[0]} {type(table).__name__}: it "
            f"must be a pandas, polars or pyarrow table{remedy}"
        ) from None
    except nw.exceptions.DuplicateError:
        raise ValueError("table has two columns of one name: rename one") from None


class _Column:
    """One column on its way to codes."""

    def __init__(
        self,
        frame: nw.DataFrame[Any],
        name: str,
        levels: tuple[Scalar, ...],
        remedy: str,
        *,
        confidential: bool = False,
    ) -> None:
        self.series = frame[name]
        self.name, self.levels, self.remedy = name, levels, remedy
        self.confidential = confidential
        self.textual = isinstance(levels[0], str)

    def codes(self) -> Codes:
        """Return the place of each value among the levels, or say where one has none."""
        dtype = self.series.dtype
        pandas_like = self.series.implementation.is_pandas_like()
        if (dtype.is_numeric() and not dtype.is_decimal()) or dtype == nw.Boolean:
            find = self._numbers
        elif pandas_like and dtype in (nw.String, nw.Object, nw.Categorical, nw.Enum):
            find = self._pandas
        elif dtype in (nw.String, nw.Categorical, nw.Enum):
            find = self._text
        else:
            raise TypeError(
                f"column {self.name!r} has dtype {dtype}: only numbers, booleans, text and "
                "categories have levels; convert it first"
            )
        out = np.empty(len(self.series), dtype=np.int32)
        for first in range(0, len(out), CHUNK):
            part = self.series[first : first + CHUNK]
            self._refuse_missing(part, first)
            out[first : first + CHUNK] = find(part, first)
        return out

    def _numbers(self, part: nw.Series[Any], first: int) -> Codes:
        if self.textual:
            self._wrong_kind("numbers", "text")
        # nullable booleans would otherwise become objects
        values = (part.cast(nw.Int8) if part.dtype == nw.Boolean else part).to_numpy()
        levels = np.array(self.levels)
        if values.dtype.kind == "f":  # 0.1 in 32 bits is not 0.1 in 64
            levels = levels.astype(values.dtype)
            if len(np.unique(levels)) < len(levels):
                raise TypeError(
                    f"column {self.name!r} has dtype {part.dtype}, too coarse to tell its levels "
                    "apart: convert it first"
                )
        order = np.argsort(levels)
        place = np.searchsorted(levels[order], values)
        np.minimum(place, len(levels) - 1, out=place)
        self._refuse_strays(levels[order][place] == values, values, first)
        return order[place].astype(np.int32)

    def _pandas(self, part: nw.Series[Any], first: int) -> Codes:
        # pandas finds the distinct values once, whatever the dtype; True, 1 and 1.0 are one of them
        try:
            codes, distinct = pd.factorize(part.to_native())
        except TypeError:  # lists, dictionaries and the like cannot be compared
            self._wrong_kind("objects", "text" if self.textual else "numbers")
        table = {level: code for code, level in enumerate(self.levels)}
        values = list(distinct)
        texts = [isinstance(value, str) for value in values]
        if any(text != self.textual for text in texts):
            found, wanted = ("text", "numbers") if not self.textual else ("numbers", "text")
            self._wrong_kind(found, wanted)
        places = np.array([table.get(value, -1) for value in values], dtype=np.int32)
        found_codes: Codes = places[codes]
        self._refuse_strays(found_codes >= 0, part, first)
        return found_codes

    def _text(self, part: nw.Series[Any], first: int) -> Codes:
        if not self.textual:
            self._wrong_kind("text", "numbers")
        text = part.cast(nw.String)
        self._refuse_strays(text.is_in(self.levels).to_numpy(), text, first)
        places = list(range(len(self.levels)))
        return text.replace_strict(list(self.levels), places, return_dtype=nw.Int32).to_numpy()

    def _refuse_missing(self, part: nw.Series[Any], first: int) -> None:
        missing = part.is_null()
        if part.dtype.is_float():
            missing = missing | part.is_nan()
        if missing.any():
            row = first + int(np.argmax(missing.to_numpy()))
            raise ValueError(
                f"column {self.name!r} has a missing value (None, NaN or NA), first in row {row} "
                "counted from 0: nothing is released; decide beforehand, by a stated rule, what "
                "becomes of rows without one"
            )

    def _refuse_strays(self, inside: NDArray[np.bool_], values: Any, first: int) -> None:
        if inside.all():
            return
        place = int(np.argmin(inside))
        shown = "a value" if self.confidential else repr(_plain(values[place]))
        raise ValueError(
            f"column {self.name!r} holds {shown} that is not among its declared levels, first in "
            f"row {first + place} counted from 0: nothing is released; {self.remedy}"
        )

    def _wrong_kind(self, found: str, wanted: str) -> NoReturn:
        raise TypeError(
            f"column {self.name!r} holds {found}, but its declared levels are {wanted}: convert "
            "the column or declare its levels anew"
        )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
