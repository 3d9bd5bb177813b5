"""From a table of any size to the exact second-order moments of a workload, by one query.

Each record becomes integer columns, and each pair of columns that is asked for an integer product;
the query sums them by arm. Bad values are counted by the same query, column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.custodian.aggregates import answer_of, lazy_frames, refuse
from dpcausal_bayes.custodian.digits import (
    DECLARED,
    MISSING,
    STRAY,
    Column,
    digit_of,
    lattice_steps,
)
from dpcausal_bayes.gaussian_mechanism import LATTICE
from dpcausal_bayes.gram_workloads import GramWorkload

__all__ = ["exact_gram"]

CELLS = 2**24  # rows times columns of intermediate results, of a table whose queries run at once

Integers = NDArray[np.int64]


def exact_gram(table: Any, workload: GramWorkload) -> tuple[Integers, int]:
    """Return the workload's answers without noise, and the number of records.

    Parameters
    ----------
    table : pandas, polars, pyarrow, DuckDB, Dask or Spark table
        Confidential. Columns that the workload does not name are not read.
    workload : GramWorkload

    Returns
    -------
    exact : ndarray of int64, shape (Q,)
        In lattice steps, in the order of ``workload.queries``. Confidential.
    n : int

    Raises
    ------
    TypeError, ValueError
        As `exact_moments` has them.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10),
    ...                 covariates=[Bounded("x", 0, 4)])
    >>> table = pd.DataFrame({"t": [0, 0, 1], "x": [1, 4, 3], "y": [0, 5, 12]})
    >>> exact, n = exact_gram(table, GramWorkload(schema))
    >>> n, (exact / LATTICE).tolist()
    (3, [2.0, 0.5, -1.0, 1.25, 0.5, 1.0, 1.0, 0.5, 1.0, 0.25, 0.5, 1.0])
    """
    schema = workload.schema
    fields = [schema.arm, *workload.fields, schema.outcome]
    pairs = workload.pairs[1:]
    chunk = max(CELLS // (2 * workload.n_queries), 1)
    totals, n = np.zeros((2, 1 + len(pairs)), np.int64), 0
    for frame in lazy_frames(table, fields, chunk):
        answer = answer_of(_query(frame, workload, fields))
        for place, field in enumerate(fields):
            bad = [code for code in (MISSING, STRAY) if answer[f"bad {place} {code}"].sum() > 0]
            refuse(field, np.array(bad, dtype=np.int64))
        arm = answer["arm"] - DECLARED
        np.add.at(totals[:, 0], arm, answer["count"] * LATTICE)
        for k in range(len(pairs)):
            np.add.at(totals[:, 1 + k], arm, answer[f"product {k}"])
        n += int(answer["count"].sum())
    if n == 0:
        raise ValueError("table has no rows: there is nothing to release")
    return totals.ravel(), n


def _query(
    frame: nw.LazyFrame[Any], workload: GramWorkload, fields: Sequence[Column]
) -> nw.LazyFrame[Any]:
    """Write the one query: by arm, a count of records and of bad values, and sums of products."""
    dtypes = frame.collect_schema()
    digits = [
        digit_of(field, dtypes[field.column]).alias(f"digit {place}")
        for place, field in enumerate(fields)
    ]
    steps = [
        lattice_steps(field, LATTICE).cast(nw.Float64).alias(f"steps {place}")
        for place, field in enumerate(fields)
        if isinstance(field, Bounded)
    ]
    query = frame.select(*digits, *steps)
    if workload.shrinks:
        query = _shrunk(query, workload)
    last = len(fields) - 1
    sources = [(feature.covariate + 1, feature.level) for feature in workload.features]
    sources.append((last, 1 if workload.binary else None))
    columns = [nw.lit(float(LATTICE)), *(_column(*source) for source in sources)]
    query = query.select(
        *(nw.col(f"digit {place}") for place in range(len(fields))),
        *(column.alias(f"column {i}") for i, column in enumerate(columns)),
    )
    bad = [
        (nw.col(f"digit {place}") == code).cast(nw.Int64).alias(f"bad {place} {code}")
        for place in range(len(fields))
        for code in (MISSING, STRAY)
    ]
    products = [
        _product(nw.col(f"column {i}"), nw.col(f"column {j}")).alias(f"product {k}")
        for k, (i, j) in enumerate(workload.pairs[1:].tolist())
    ]
    query = query.select(nw.col("digit 0").alias("arm"), *bad, *products)
    names = [name for name in query.collect_schema().names() if name != "arm"]
    query = query.group_by("arm").agg(
        nw.len().alias("count"), *(nw.col(name).sum() for name in names)
    )
    return query.select(nw.all().cast(nw.Int64))  # DuckDB sums to 128 bits


def _column(place: int, level: int | None) -> nw.Expr:
    """Return a column of v in lattice steps: a number's, or -1 or +1 for a level."""
    if level is None:
        return nw.col(f"steps {place}")
    inside = nw.col(f"digit {place}") == DECLARED + level
    return nw.when(inside).then(nw.lit(float(LATTICE))).otherwise(nw.lit(-float(LATTICE)))


def _product(first: nw.Expr, second: nw.Expr) -> nw.Expr:
    """Return a product in lattice steps, rounded: exact in 64-bit floats."""
    return (first * second / float(LATTICE) + 0.5).floor().cast(nw.Int64)


def _shrunk(query: nw.LazyFrame[Any], workload: GramWorkload) -> nw.LazyFrame[Any]:
    """Shrink the numeric covariates of each row onto the ball; see `dpcausal_bayes.moments`."""
    assert workload.radius is not None
    reach = workload.radius * LATTICE
    places = [place for place, field in enumerate(workload.fields, 1) if isinstance(field, Bounded)]
    numbers = [nw.col(f"steps {place}") for place in places]
    length = sum((x * x for x in numbers[1:]), numbers[0] * numbers[0]).sqrt()
    query = query.with_columns(length.alias("length"))
    ratio = (
        nw.when(nw.col("length") > reach)
        .then(nw.lit(reach) / nw.col("length"))
        .otherwise(nw.lit(1.0))
    )
    query = query.with_columns(ratio.alias("ratio"))
    return query.with_columns(
        *(
            nw.when(x < 0)
            .then(-(-x * nw.col("ratio")).floor())
            .otherwise((x * nw.col("ratio")).floor())
            .alias(f"steps {place}")
            for place, x in zip(places, numbers, strict=True)
        )
    )
