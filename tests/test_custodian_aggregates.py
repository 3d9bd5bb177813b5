"""From a table to exact moments: the same integers from every engine, and no bad value lost."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpcausal_bayes.columns import Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian import aggregates
from dpcausal_bayes.custodian.aggregates import exact_moments
from dpcausal_bayes.gaussian_mechanism import LATTICE
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload
from moment_tables import ARM, COLUMNS, ENGINES, SCHEMA, WORKLOADS, columns, duckdb_table

PANDAS = pd.DataFrame(COLUMNS)
EXACT = {name: table_moments(PANDAS, workload) for name, workload in WORKLOADS.items()}


def assert_exact(table, name="joint"):
    exact, n = exact_moments(table, WORKLOADS[name])
    assert exact.dtype == np.int64
    np.testing.assert_array_equal(exact, EXACT[name])
    assert n == len(PANDAS)


def test_moments_by_hand():
    table = pd.DataFrame({"t": [0, 1, 1], "y": [5.0, -3.0, 99.0], "age": [17, 56, 25]})
    exact, n = exact_moments(table, CausalWorkload(SCHEMA, strata=["age"]))
    mass = [[1, 0, 0], [0, 1, 1]]
    total = [[0.5, 0, 0], [0, 1, -1]]  # -1 to 7 becomes -1 to 1, and 99 is clipped
    squares = [0.25 - 0.5, 1 - 0.5 + 1 - 0.5]
    cells = np.stack([mass, total], axis=-1).ravel()
    np.testing.assert_array_equal(exact, LATTICE * np.array([*cells, *squares]))
    assert n == 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_engine_gives_the_same_integers(engine, name):
    assert_exact(ENGINES[engine](COLUMNS), name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pass_for_each_group_gives_the_same_integers(engine, name, monkeypatch):
    monkeypatch.setattr(aggregates, "MOST_KEYS", 1)
    assert len(aggregates._passes(WORKLOADS[name])) == len(WORKLOADS[name].groups)
    assert_exact(ENGINES[engine](COLUMNS), name)


def test_groups_share_a_pass_as_long_as_keys_are_few(monkeypatch):
    workload = WORKLOADS["groups"]
    assert [each.groups for each in aggregates._passes(workload)] == [[0, 1, 2]]
    keys = 4 * 3 * 4  # arm, outcome and degree, each with two digits for bad values
    monkeypatch.setattr(aggregates, "MOST_KEYS", keys * 5)
    assert [each.groups for each in aggregates._passes(workload)] == [[0, 2], [1]]
    monkeypatch.setattr(aggregates, "MOST_KEYS", 1)  # what is counted anyway costs nothing
    nested = CausalWorkload(SCHEMA, groups=[["age", "sex"], "sex"])
    assert [each.groups for each in aggregates._passes(nested)] == [[0, 1]]
    exact, _ = exact_moments(PANDAS, nested)
    np.testing.assert_array_equal(exact, table_moments(PANDAS, nested))


@pytest.mark.parametrize("engine", ["pandas", "pyarrow"])
def test_chunks_add_up(engine, monkeypatch):
    monkeypatch.setattr(aggregates, "CHUNK", 37)
    for name in WORKLOADS:
        assert_exact(ENGINES[engine](COLUMNS), name)


@pytest.mark.parametrize("engine", ENGINES)
def test_outcomes_half_way_between_lattice_steps(engine):
    """Engines round halves to even, or away from zero: none of that may be seen."""
    workload = CausalWorkload(Schema(arm=ARM, outcome=Bounded("y", -LATTICE, LATTICE)))
    steps = [k + 0.5 for k in range(-6, 6)] + [0.49999999999999994, -0.5, LATTICE - 0.5]
    table = {"t": [0] * len(steps), "y": steps}
    exact = exact_moments(ENGINES[engine](table), workload)[0]
    np.testing.assert_array_equal(exact, table_moments(pd.DataFrame(table), workload))
    assert exact[1] == sum(range(-5, 7)) + 1 + 0 + LATTICE


@pytest.mark.parametrize("engine", ENGINES)
def test_outcomes_at_and_beyond_the_bounds(engine):
    workload = CausalWorkload(Schema(arm=ARM, outcome=Bounded("y", 0.1, 0.3)))
    table = {"t": [0] * 8, "y": [0.1, 0.3, 0.2, 1e308, -1e308, 5e-324, 0.30000000000000004, -0.0]}
    exact = exact_moments(ENGINES[engine](table), workload)[0]
    np.testing.assert_array_equal(exact, table_moments(pd.DataFrame(table), workload))
    assert abs(exact[1] + LATTICE) <= 1


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_far_above_32_bits(engine):
    rows = 5_000
    table = {"t": [1] * rows, "y": [7.0] * rows}
    exact = exact_moments(ENGINES[engine](table), CausalWorkload(SCHEMA))[0]
    assert exact.tolist() == [0, 0, rows * LATTICE, rows * LATTICE, 0, rows * LATTICE // 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_zero_one_columns_keep_both_levels(engine):
    """Almost constant, constant, boolean or float: cells come from the schema alone."""
    schema = Schema(arm=ARM, outcome=SCHEMA.outcome, covariates=[Categories("degree", [0, 1])])
    workload = CausalWorkload(schema, strata=["degree"])
    for dress in (int, float, bool):
        for ones in (0, 1, 9, 10):
            degree = [dress(k < ones) for k in range(10)]
            table = {"t": [0] * 10, "y": [3.0] * 10, "degree": degree}
            exact = exact_moments(ENGINES[engine](table), workload)[0]
            cells = workload.split(exact)[0][0]
            assert cells[0, :, 0].tolist() == [(10 - ones) * LATTICE, ones * LATTICE]
            assert not cells[1].any()


NUMBERS = ["int8", "uint8", "Int64", "UInt16", "float32", "Float64", "category", "object"]


@pytest.mark.parametrize("dtype", [*NUMBERS, "int64[pyarrow]", "double[pyarrow]"])
@pytest.mark.parametrize("column", ["t", "age", "degree", "won"])
def test_pandas_numbers_of_every_type(column, dtype):
    table = PANDAS.astype({column: dtype})
    assert_exact(table, "binary")
    assert_exact(table, "joint")


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]", "category", "object"])
def test_pandas_booleans_of_every_type(dtype):
    kinds = {"t": dtype, "degree": dtype, "won": dtype}
    assert_exact(PANDAS.astype(dict.fromkeys(kinds, "bool")).astype(kinds), "binary")


@pytest.mark.parametrize(
    "dtype",
    [
        "str",
        "object",
        "string",
        "string[pyarrow]",
        "category",
        pd.CategoricalDtype(["m", "unused", "f"]),
        pd.ArrowDtype(pa.string()),
        pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_pandas_text_of_every_type(dtype):
    assert_exact(PANDAS.astype({"sex": dtype}))


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]", "object"])
def test_pandas_outcomes_of_every_type(dtype):
    assert_exact(PANDAS.astype({"y": dtype}))


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["m", "unused", "f"])])
def test_polars_types(dtype):
    kinds = {"sex": dtype, "t": pl.Boolean, "age": pl.UInt8, "degree": pl.Int128, "y": pl.Float64}
    assert_exact(pl.DataFrame(COLUMNS).cast(kinds))
    assert_exact(pl.LazyFrame(COLUMNS).cast(kinds))


def test_pyarrow_types():
    table = pa.table(
        {
            **COLUMNS,
            "sex": pa.array(COLUMNS["sex"]).dictionary_encode(),
            "t": pa.array([bool(t) for t in COLUMNS["t"]]),
            "age": pa.array(COLUMNS["age"], pa.uint8()),
        }
    )
    assert_exact(table)
    assert_exact(pa.concat_tables([table.slice(0, 3), table.slice(3)]))


def test_duckdb_types():
    source = duckdb_table(COLUMNS)
    assert_exact(
        source.select(
            "y, t::boolean as t, sex::enum('m', 'unused', 'f') as sex, age::hugeint as age, "
            "degree::utinyint as degree"
        )
    )


def test_dask_types():
    kinds = {"sex": "category", "t": "boolean", "age": "Int64", "degree": "float32"}
    assert_exact(dd.from_pandas(PANDAS.astype(kinds), npartitions=4))


@pytest.mark.parametrize("kinds", [{}, {"sex": "category", "t": "object"}])
def test_the_index_is_of_no_account(kinds):
    table = PANDAS.astype(kinds).set_index(pd.Index(np.arange(200) % 7))
    assert_exact(table, "groups")
    assert_exact(dd.from_pandas(table.astype({"t": int}).sort_index(), npartitions=3), "groups")


def test_32_bit_floats_are_matched_as_such():
    schema = Schema(
        arm=ARM,
        outcome=Levels("y", [0.1, 0.7]),
        covariates=[Categories("c", [0.3, 0.9]), Binned("x", [0.1, 0.2, 0.3])],
    )
    columns = {"y": [0.1, 0.7, 0.7], "c": [0.9, 0.3, 0.3], "x": [0.1, 0.2, 0.3]}
    table = pd.DataFrame(columns, dtype="float32").assign(t=[0, 1, 1])
    workload = CausalWorkload(schema, groups=["c", "x"])
    for each in (table, pl.from_pandas(table), duckdb_table(pa.Table.from_pandas(table))):
        by_c, by_x = workload.split(exact_moments(each, workload)[0] // LATTICE)[0]
        assert by_c.tolist() == [[[0, 0], [1, 0]], [[0, 2], [0, 0]]]
        assert by_x.tolist() == [[[1, 0], [0, 0]], [[0, 0], [0, 2]]]


@pytest.mark.parametrize("engine", ENGINES)
def test_other_levels_take_all_other_values(engine):
    schema = Schema(
        arm=ARM,
        outcome=SCHEMA.outcome,
        covariates=[
            Categories("c", ["a", "b"], other="rest"),
            Binned("x", [0, 1, 2], other="unknown"),
            Categories("k", [1], other="not 1"),
        ],
    )
    table = {
        "t": [0, 0, 0, 1, 1, 1],
        "y": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "c": ["a", None, "z", "b", "", "rest"],
        "x": [0.0, float("nan"), None, 2.0, -1.0, float("inf")],
        "k": [1, 2, None, 1, 0, -1],
    }
    workload = CausalWorkload(schema, groups=["c", "x", "k"])
    groups = workload.split(exact_moments(ENGINES[engine](table), workload)[0] // LATTICE)[0]
    masses = [cells[..., 0].tolist() for cells in groups]
    assert masses[0] == [[1, 0, 2], [0, 1, 2]]
    assert masses[1] == [[1, 0, 2], [0, 1, 2]]
    assert masses[2] == [[1, 2], [1, 2]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_rows(engine, n):
    table = columns(n)
    exact, found = exact_moments(ENGINES[engine](table), WORKLOADS["joint"])
    assert found == n
    np.testing.assert_array_equal(exact, table_moments(pd.DataFrame(table), WORKLOADS["joint"]))


def test_other_columns_may_hold_anything():
    assert_exact(PANDAS.assign(other=np.nan, lists=[[1]] * len(PANDAS)))
    assert_exact(duckdb_table(COLUMNS).select("*, [1] as key, null as count, 'x' as outcome"))


def test_the_engine_runs_one_query(monkeypatch):
    collected = []
    collect = pl.LazyFrame.collect

    def note(frame, **how):
        collected.append(how)
        return collect(frame, **how)

    monkeypatch.setattr(pl.LazyFrame, "collect", note)
    assert_exact(pl.LazyFrame(COLUMNS), "groups")
    assert collected == [{"engine": "streaming"}]
