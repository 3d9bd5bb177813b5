"""Spark frames give the same integers, where pyspark and Java are installed."""

import os
import sys

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Categories
from dpcausal_bayes.custodian import Ledger, release_moments
from dpcausal_bayes.custodian.aggregates import exact_moments
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload
from moment_tables import ARM, COLUMNS, SCHEMA, WORKLOADS

# pyspark's own: it reaches for parts of pandas and Python that are about to go
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

TYPES = "t int, y double, won boolean, sex string, age float, degree bigint"
NAMES = [each.split()[0] for each in TYPES.split(", ")]


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for address in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(address, "localhost")
    session = builder.getOrCreate()
    yield session
    session.stop()


def spark_table(spark, columns):
    table = {name: columns[name] for name in NAMES}
    table["won"] = [None if won is None else bool(won) for won in table["won"]]
    table["age"] = [float(age) for age in table["age"]]
    return spark.createDataFrame(list(zip(*table.values(), strict=True)), TYPES)


@pytest.mark.parametrize("name", WORKLOADS)
def test_spark_gives_the_same_integers(spark, name):
    exact, n = exact_moments(spark_table(spark, COLUMNS), WORKLOADS[name])
    np.testing.assert_array_equal(exact, table_moments(pd.DataFrame(COLUMNS), WORKLOADS[name]))
    assert n == 200


def test_spark_frames_release(spark):
    ledger = Ledger(epsilon=1.0, delta=1e-6)
    table = spark_table(spark, COLUMNS)
    release = release_moments(table, WORKLOADS["joint"], epsilon=1.0, delta=1e-6, ledger=ledger)
    assert release.n == 200


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("sex", None, "a missing value"),
        ("y", float("nan"), "a missing value"),
        ("y", float("inf"), "an infinite value"),
        ("age", 56.25, "a value outside its bins"),
        ("sex", "x", "a value that is not among its declared levels"),
        ("won", None, "a missing value"),
    ],
)
def test_bad_values_in_spark(spark, column, value, says):
    table = spark_table(spark, {**COLUMNS, column: [*COLUMNS[column][:-1], value]})
    with pytest.raises(ValueError, match=f"column '{column}' has {says}"):
        exact_moments(table, WORKLOADS["binary" if column == "won" else "joint"])


def test_other_levels_in_spark(spark):
    sex = Categories("sex", ["f"], other="rest")
    workload = CausalWorkload(
        Schema(arm=ARM, outcome=SCHEMA.outcome, covariates=[sex]), strata=["sex"]
    )
    columns = {**COLUMNS, "sex": [None, *COLUMNS["sex"][1:]]}
    exact, _ = exact_moments(spark_table(spark, columns), workload)
    np.testing.assert_array_equal(exact, table_moments(pd.DataFrame(columns), workload))
