"""One small trial as a table of every kind."""

import pandas as pd
import polars as pl
import pyarrow as pa

from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.schema import Schema

SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1),
    outcome=Levels("y", [0, 1, 2]),
    cluster=Categories("c", ["a", "b", "nobody"]),
)
COLUMNS = {
    "t": [0, 1, 0, 1, 1, 0, 0, 1],
    "y": [0, 1, 2, 0, 1, 1, 0, 0],
    "c": ["a", "b", "b", "a", "a", "b", "a", "b"],
}
CODES = ([0, 1, 1, 0, 0, 1, 0, 1], COLUMNS["t"], COLUMNS["y"])
MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def pandas_table(**change):
    return pd.DataFrame({**COLUMNS, **change})
