"""One small observational table in every library that a moment release reads."""

import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

COVARIATES = [
    Categories("sex", ["f", "m", "nobody"]),
    Binned("age", [17, 25, 35, 56]),
    Categories("degree", [0, 1]),
]
ARM = Arm("t", control=0, treated=1)
SCHEMA = Schema(arm=ARM, outcome=Bounded("y", -1, 7), covariates=COVARIATES)
BINARY = Schema(arm=ARM, outcome=Levels("won", [0, 1]), covariates=COVARIATES)


def columns(n=200, seed=0):
    """Draw outcomes on both sides of the bounds, and ages on every edge."""
    rng = np.random.default_rng(seed)
    return {
        "t": rng.integers(0, 2, n).tolist(),
        "y": rng.normal(3, 4, n).tolist(),
        "won": rng.integers(0, 2, n).tolist(),
        "sex": rng.choice(["f", "m"], n).tolist(),
        "age": rng.choice([17, 24, 25, 34, 35, 55, 56], n).tolist(),
        "degree": rng.integers(0, 2, n).tolist(),
    }


COLUMNS = columns()
WORKLOADS = {
    "nothing": CausalWorkload(SCHEMA),
    "joint": CausalWorkload(SCHEMA, strata=["sex", "age", "degree"]),
    "groups": CausalWorkload(SCHEMA, groups=["degree", ["age", "sex"], ["sex", "degree"]]),
    "binary": CausalWorkload(BINARY, groups=["age", ["degree", "sex"]]),
}


def duckdb_table(given):
    return duckdb.from_arrow(pa.table(given))


def dask_table(given):
    return dd.from_pandas(pd.DataFrame(given), npartitions=3)


ENGINES = {
    "pandas": pd.DataFrame,
    "polars": lambda given: pl.DataFrame(given, strict=False),
    "polars lazy": lambda given: pl.LazyFrame(given, strict=False),
    "pyarrow": pa.table,
    "duckdb": duckdb_table,
    "dask": dask_table,
}
