"""From a table of any size to the exact moments of a workload, by one query of its own engine.

Each record becomes a key (one digit for the arm, the outcome and each covariate) and integers; the
query counts and sums them by key. Bad values have digits of their own, so the same query finds
them. All sums are of 64-bit integers: no engine, order of rows or number of threads changes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian.digits import (
    DECLARED,
    MISSING,
    STRAY,
    Column,
    digit_of,
    lattice_steps,
    plain_pandas,
    radix,
)
from dpcausal_bayes.custodian.frames import check_columns
from dpcausal_bayes.gaussian_mechanism import LATTICE
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["answer_of", "exact_moments", "lazy_frames", "refuse"]

CHUNK = 2**20  # rows at a time of a pandas or pyarrow table, whose queries run at once
MOST_KEYS = 2**16  # groups share a pass over the table while their keys together are not more

Integers = NDArray[np.int64]

_TWINS = "table has two columns of one name (in SQL, small and capital letters are one): rename one"


def exact_moments(table: Any, workload: CausalWorkload) -> tuple[Integers, int]:
    """Return the workload's answers without noise, and the number of records.

    A lazy frame (polars, DuckDB, Dask, Spark) never comes into memory: its engine runs one query,
    whose answer has a row for each combination of levels. Groups with few combinations are counted
    in one pass over the table.

    Parameters
    ----------
    table : pandas, polars, pyarrow, DuckDB, Dask or Spark table
        Confidential. Columns that the workload does not name are not read.
    workload : CausalWorkload

    Returns
    -------
    exact : ndarray of int64, shape (Q,)
        In lattice steps, in the order of ``workload.queries``. Confidential.
    n : int

    Raises
    ------
    TypeError
        Not such a table, or a column of another kind than its levels.
    ValueError
        No rows, a missing column, a missing or infinite value, or one that is not declared. No
        value is printed, for all are confidential.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10),
    ...                 covariates=[Categories("c", ["a", "b"])])
    >>> table = pd.DataFrame({"t": [0, 0, 1], "c": ["a", "a", "b"], "y": [0, 5, 12]})
    >>> exact, n = exact_moments(table, CausalWorkload(schema, strata=["c"]))
    >>> n, (exact / LATTICE).tolist()
    (3, [2.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.5])
    """
    passes = _passes(workload)
    totals = _Totals(workload)
    schema = workload.schema
    named = set(itertools.chain(*workload.groups))
    needed = [schema.arm, schema.outcome, *(c for c in schema.covariates if c.column in named)]
    for frame in lazy_frames(table, needed):
        totals.add(passes, answer_of(_query(frame, workload, passes)))
    if totals.n == 0:
        raise ValueError("table has no rows: there is nothing to release")
    return totals.vector(), totals.n


class _Pass:
    """Groups that are counted together: by all their covariates at once."""

    def __init__(self, workload: CausalWorkload, group: int) -> None:
        self.workload = workload
        self.groups = [group]
        self.columns = list(workload.groups[group])

    @property
    def fields(self) -> tuple[Column, ...]:
        """Arm, outcome and covariates: the digits of a key, the first one varying fastest."""
        schema = self.workload.schema
        known = {covariate.column: covariate for covariate in schema.covariates}
        return (schema.arm, schema.outcome, *(known[name] for name in self.columns))

    @property
    def n_keys(self) -> int:
        return math.prod(radix(field) for field in self.fields)

    def join(self, group: int) -> bool:
        """Take a further group on, if that does not make too many keys."""
        before = list(self.columns)
        names = self.workload.groups[group]
        self.columns += [name for name in names if name not in before]
        if self.columns != before and self.n_keys > MOST_KEYS:
            self.columns = before
            return False
        self.groups.append(group)
        return True


def _passes(workload: CausalWorkload) -> list[_Pass]:
    passes: list[_Pass] = []
    for group in range(len(workload.groups)):
        if not any(known.join(group) for known in passes):
            passes.append(_Pass(workload, group))
    return passes


def lazy_frames(
    table: Any, needed: Sequence[Column], chunk: int | None = None
) -> Iterator[nw.LazyFrame[Any]]:
    """Check the table's columns, then give it lazily: whole, or in chunks if it runs at once.

    Parameters
    ----------
    table : pandas, polars, pyarrow, DuckDB, Dask or Spark table
    needed : sequence of Arm, Levels, Bounded, Categories or Binned
        Whose columns are read.
    chunk : int, optional
        Rows at a time.
    """
    chunk = CHUNK if chunk is None else chunk
    try:
        frame = nw.from_native(table)
    except TypeError:
        raise TypeError(
            f"table is a {kind_of(table)}: it must be a pandas, polars, pyarrow, DuckDB, Dask or "
            "Spark table"
        ) from None
    except nw.exceptions.DuplicateError:
        raise ValueError(_TWINS) from None
    columns = frame.columns
    engine = frame.implementation
    # SQL takes "y" and "Y" for one name, and would give the first of them
    alike = str.casefold if engine.is_duckdb() or engine.is_spark_like() else str
    if len({alike(column) for column in columns}) < len(columns):
        raise ValueError(_TWINS)
    check_columns(columns, [(type(field).__name__, field.column) for field in needed])
    frame = frame.select([field.column for field in needed])
    if isinstance(frame, nw.LazyFrame) or frame.implementation.is_polars():
        yield frame.lazy()
        return
    for first in range(0, len(frame), chunk):
        yield _plain(frame[first : first + chunk]).lazy()


def _plain(frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
    """Give pandas objects and categories the plain type of what they hold."""
    if not frame.implementation.is_pandas():
        return frame
    native = frame.to_native()
    odd = [
        name
        for name, dtype in frame.schema.items()
        if dtype in (nw.Object, nw.Categorical, nw.Enum) or native[name].dtype == object
    ]
    plain = native.assign(**{name: plain_pandas(native[name]) for name in odd})
    return nw.from_native(plain, eager_only=True)


def _query(
    frame: nw.LazyFrame[Any], workload: CausalWorkload, passes: Sequence[_Pass]
) -> nw.LazyFrame[Any]:
    """Write the one query: a row of sums for each key. Each pass has its own range of keys."""
    dtypes = frame.collect_schema()
    outcome = workload.schema.outcome
    parts = []
    first = 0
    for each in passes:
        key: nw.Expr = nw.lit(first)
        stride = 1
        for field in each.fields:
            key = digit_of(field, dtypes[field.column]) * stride + key
            stride *= radix(field)
        first += stride
        if isinstance(outcome, Bounded):
            part = frame.select(
                key.cast(nw.Int64).alias("key"), lattice_steps(outcome, LATTICE).alias("outcome")
            )
            part = part.with_columns(_square(nw.col("outcome")).alias("square"))
            part = part.group_by("key").agg(
                nw.len().alias("count"), nw.col("outcome").sum(), nw.col("square").sum()
            )
        else:
            part = frame.select(key.cast(nw.Int64).alias("key"))
            part = part.group_by("key").agg(nw.len().alias("count"))
        # DuckDB sums to 128 bits
        parts.append(part.select(nw.all().cast(nw.Int64)))
    return nw.concat(parts) if len(parts) > 1 else parts[0]


def _square(steps: nw.Expr) -> nw.Expr:
    """Return the centred square in lattice steps: exact in 64-bit floats, and never half-way.

    Half-way would need a power of two with an odd exponent in a square of integers.
    """
    value = steps.cast(nw.Float64)
    return ((value * value / float(LATTICE) + 0.5).floor() - LATTICE / 2).cast(nw.Int64)


def answer_of(query: nw.LazyFrame[Any]) -> dict[str, Integers]:
    """Run a query; its columns must be 64-bit integers."""
    if query.implementation.is_polars():
        frame = query.collect(engine="streaming")
    elif query.implementation.is_pyarrow():
        frame = query.collect()
    else:
        frame = query.collect(backend="pandas")  # pyarrow need not be there
    answer = {name: frame[name].to_numpy() for name in frame.columns}
    wrong = [name for name, values in answer.items() if values.dtype != np.int64]
    if wrong:
        raise RuntimeError(
            f"the table's engine gives {wrong[0]!r} as {answer[wrong[0]].dtype}, not as 64-bit "
            "integers: nothing is released; convert the table to another library's"
        )
    return answer


class _Totals:
    """The exact answers, adding up."""

    def __init__(self, workload: CausalWorkload) -> None:
        self.workload = workload
        self.n = 0
        self.cells = [np.zeros(workload.shape(g), np.int64) for g in range(len(workload.groups))]
        self.squares = np.zeros(2, np.int64)

    def vector(self) -> Integers:
        squares = [] if self.workload.binary else [self.squares]
        return np.concatenate([*(cells.ravel() for cells in self.cells), *squares])

    def add(self, passes: Sequence[_Pass], answer: dict[str, Integers]) -> None:
        """Add a query's answer, or refuse the bad values that it shows."""
        first = 0
        counts = []
        for place, each in enumerate(passes):
            inside = (answer["key"] >= first) & (answer["key"] < first + each.n_keys)
            rows = {name: values[inside] for name, values in answer.items()}
            sizes = [radix(field) for field in each.fields]
            digits = list(np.unravel_index(rows.pop("key") - first, sizes, order="F"))
            for field, digit in zip(each.fields, digits, strict=True):
                refuse(field, digit)
            places = [digit - DECLARED for digit in digits]
            for group in each.groups:
                self._add_group(each, group, places, rows)
            if place == 0 and not self.workload.binary:
                np.add.at(self.squares, places[0], rows["square"])
            counts.append(int(rows["count"].sum()))
            first += each.n_keys
        if len(set(counts)) > 1:
            raise ValueError(
                "table gave different rows when it was read again: nothing is released; store it "
                "first, so that it stays as it is"
            )
        self.n += counts[0]

    def _add_group(
        self, each: _Pass, group: int, places: Sequence[Integers], rows: dict[str, Integers]
    ) -> None:
        stratum = np.zeros_like(rows["count"])
        for name in self.workload.groups[group]:
            column = each.columns.index(name) + 2
            stratum = stratum * (radix(each.fields[column]) - DECLARED) + places[column]
        arm, outcome = places[:2]
        cells = self.cells[group]
        if self.workload.binary:
            np.add.at(cells, (arm, stratum, outcome), rows["count"] * LATTICE)
        else:
            np.add.at(cells[..., 0], (arm, stratum), rows["count"] * LATTICE)
            np.add.at(cells[..., 1], (arm, stratum), rows["outcome"])


_REMEDIES = {
    Arm: "filter the table to the two arms first, or name them in Arm(control=, treated=)",
    Levels: "declare every level in Levels.levels, or decide beforehand what becomes of such rows",
    Bounded: "decide beforehand, by a stated rule, what becomes of such rows",
    Categories: "declare it in Categories.levels, or give Categories an `other` level",
    Binned: "widen Binned.edges, or give Binned an `other` level",
}


def refuse(field: Column, digit: Integers) -> None:
    """Say what is wrong with a column, and nothing of its values: they are all confidential."""
    if np.any(digit == MISSING):
        remedy = "decide beforehand, by a stated rule, what becomes of rows without one"
        if isinstance(field, Categories | Binned):
            remedy += f", or give {type(field).__name__} an `other` level"
        _raise(field, "a missing value (None, NaN or NA)", remedy)
    if np.any(digit == STRAY):
        found = {
            Bounded: "an infinite value",
            Binned: "a value outside its bins",
        }.get(type(field), "a value that is not among its declared levels")
        _raise(field, found, _REMEDIES[type(field)])


def _raise(field: Column, found: str, remedy: str) -> NoReturn:
    raise ValueError(f"column {field.column!r} has {found}: nothing is released; {remedy}")
