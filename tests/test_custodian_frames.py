"""From a table to codes: any library, any dress, and no row lost or guessed."""

import datetime
import decimal
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from custodian_tables import CODES, COLUMNS, MAKERS, SCHEMA, pandas_table
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.custodian import frames
from dpcausal_bayes.custodian.frames import read_codes
from dpcausal_bayes.schema import Schema


def assert_read(table, schema=SCHEMA):
    codes = read_codes(table, schema)
    assert [code.tolist() for code in codes] == list(CODES)
    assert {code.dtype for code in codes} == {np.dtype(np.int32)}


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("dress", [int, float, bool])
def test_arms_in_any_dress(library, dress):
    assert_read(MAKERS[library]({**COLUMNS, "t": [dress(value) for value in COLUMNS["t"]]}))


@pytest.mark.parametrize("library", MAKERS)
def test_outcomes_as_floats(library):
    assert_read(MAKERS[library]({**COLUMNS, "y": [float(value) for value in COLUMNS["y"]]}))


@pytest.mark.parametrize(
    "dtype",
    [
        "int8",
        "uint8",
        "Int64",
        "UInt16",
        "float32",
        "Float64",
        "category",
        "object",
        "int64[pyarrow]",
        "double[pyarrow]",
    ],
)
@pytest.mark.parametrize("column", ["t", "y"])
def test_pandas_numbers_of_every_type(column, dtype):
    assert_read(pandas_table().astype({column: dtype}))


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]", "category", "object"])
def test_pandas_booleans_of_every_type(dtype):
    assert_read(pandas_table().astype({"t": "bool"}).astype({"t": dtype}))


@pytest.mark.parametrize(
    "dtype",
    [
        "str",
        "object",
        "string",
        "string[pyarrow]",
        "category",
        pd.CategoricalDtype(["b", "unused", "a"]),
        pd.ArrowDtype(pa.string()),
        pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_pandas_text_of_every_type(dtype):
    assert_read(pandas_table().astype({"c": dtype}))


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["b", "unused", "a"])])
def test_polars_text_of_every_type(dtype):
    assert_read(pl.DataFrame(COLUMNS).cast({"c": dtype}))


def test_pyarrow_dictionaries_and_chunks():
    table = pa.table({**COLUMNS, "c": pa.array(COLUMNS["c"]).dictionary_encode()})
    assert_read(table)
    assert_read(pa.concat_tables([table.slice(0, 3), table.slice(3)]))


def test_the_index_is_of_no_account():
    assert_read(pandas_table().set_index(pd.Index([5, 5, 3, 1, 0, 2, 2, 9])))


def test_other_columns_may_hold_anything():
    assert_read(pandas_table(other=[np.nan] * 8, lists=[[1]] * 8))


@pytest.mark.parametrize("library", MAKERS)
def test_levels_are_matched_by_value_not_by_place(library):
    schema = Schema(
        arm=Arm("t", control="no", treated="a yes"),
        outcome=Levels("y", [2, 0.25, -1]),
        cluster=Categories("c", [10, 999, 7]),
    )
    table = MAKERS[library]({"t": ["no", "a yes", "no"], "y": [-1.0, 2.0, 0.25], "c": [7, 10, 999]})
    assert [code.tolist() for code in read_codes(table, schema)] == [
        [2, 0, 1],
        [0, 1, 0],
        [2, 0, 1],
    ]


def test_32_bit_floats_are_matched_as_such():
    schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0.1, 0.7]))
    table = pd.DataFrame({"t": [0, 1], "y": np.array([0.7, 0.1], dtype="float32")})
    assert read_codes(table, schema)[2].tolist() == [1, 0]
    fine = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0.1, 0.1 + 1e-12]))
    with pytest.raises(TypeError, match="too coarse to tell its levels apart"):
        read_codes(table, fine)


def test_without_clusters_all_units_are_in_one():
    schema = Schema(arm=SCHEMA.arm, outcome=SCHEMA.outcome)
    assert read_codes(pandas_table(), schema)[0].tolist() == [0] * 8


@pytest.mark.parametrize("library", MAKERS)
def test_chunks_are_seamless(library, monkeypatch):
    monkeypatch.setattr(frames, "CHUNK", 3)
    assert_read(MAKERS[library](COLUMNS))


def refused(table, error=ValueError, schema=SCHEMA):
    with pytest.raises(error) as refusal:
        read_codes(table, schema)
    return str(refusal.value)


STRAYS = [np.nan, None, np.inf, -np.inf, 3, -1, 0.5, 1e300]


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("chunk", [2, 2**20])
def test_stray_outcomes_are_located_and_never_printed(library, stray, chunk, monkeypatch):
    monkeypatch.setattr(frames, "CHUNK", chunk)
    values = [float(value) for value in COLUMNS["y"]]
    values[5] = stray
    said = refused(MAKERS[library]({**COLUMNS, "y": values}))
    assert "column 'y'" in said
    assert "first in row 5 counted from 0" in said
    assert "nothing is released" in said
    missing = stray is None or np.isnan(stray)
    assert ("missing value" in said) == missing
    if not missing:
        assert str(stray) not in said.replace("row 5", "")
        assert "a value that is not among its declared levels" in said


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        *itertools.product("ty", ["Int64", "Float64", "category", "object", "int64[pyarrow]"]),
        *itertools.product("c", ["str", "string", "category", "object"]),
    ],
)
def test_missing_values_of_every_type(column, dtype):
    table = pandas_table().astype({column: dtype})
    table.loc[6, column] = None
    assert f"column '{column}' has a missing value" in refused(table)


def test_missing_booleans():
    table = pandas_table().astype({"t": "boolean"})
    table.loc[6, "t"] = pd.NA
    assert "column 't' has a missing value (None, NaN or NA), first in row 6" in refused(table)
    arms = [bool(value) for value in COLUMNS["t"][:7]] + [None]
    assert "first in row 7" in refused(pl.DataFrame({**COLUMNS, "t": arms}))


@pytest.mark.parametrize("library", MAKERS)
def test_an_undeclared_cluster_is_printed_for_it_is_public(library):
    said = refused(MAKERS[library]({**COLUMNS, "c": [*COLUMNS["c"][:7], "elsewhere"]}))
    assert "'elsewhere'" in said
    assert "row 7" in said
    assert "declare it in Categories.levels" in said


@pytest.mark.parametrize("library", MAKERS)
def test_a_third_arm_is_an_error(library):
    said = refused(MAKERS[library]({**COLUMNS, "t": [*COLUMNS["t"][:7], 2]}))
    assert "column 't' holds 2" in said
    assert "filter the table to the two arms first" in said


@pytest.mark.parametrize("library", MAKERS)
def test_text_is_not_a_number(library):
    said = refused(MAKERS[library]({**COLUMNS, "y": [str(y) for y in COLUMNS["y"]]}), TypeError)
    assert "column 'y' holds text, but its declared levels are numbers" in said
    said = refused(MAKERS[library]({**COLUMNS, "c": [1] * 8}), TypeError)
    assert "column 'c' holds numbers, but its declared levels are text" in said


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ([datetime.datetime(2020, 1, 1)] * 8, TypeError, "column 'y' has dtype Datetime"),
        ([[0]] * 8, TypeError, "column 'y' holds objects"),
        ([(0,)] * 8, ValueError, "a value that is not among"),
        ([1j] * 8, TypeError, "column 'y' has dtype"),
        ([0, "x", 1, 0, 0, 0, 0, 0], TypeError, "column 'y' holds text"),
    ],
)
def test_columns_without_levels(values, error, says):
    assert says in refused(pandas_table(y=values), error)


def test_decimals_are_not_guessed_at():
    said = refused(pl.DataFrame({**COLUMNS, "y": [decimal.Decimal(1)] * 8}), TypeError)
    assert "convert it first" in said


@pytest.mark.parametrize("library", MAKERS)
def test_no_rows(library):
    empty = MAKERS[library](COLUMNS)[:0]
    assert "table has no rows" in refused(empty)


@pytest.mark.parametrize(("column", "field"), [("t", "Arm"), ("y", "Levels"), ("c", "Categories")])
def test_a_missing_column_names_the_schemas_field(column, field):
    said = refused(pandas_table().drop(columns=column))
    assert f"no column '{column}'" in said
    assert f"{field}.column" in said


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (COLUMNS, "builtins dict"),
        (np.zeros((8, 3)), "numpy ndarray"),
        (pd.Series([1]), "pandas Series"),
        (pl.LazyFrame(COLUMNS), r"polars LazyFrame: .* call its .collect() first"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_table(table, says):
    said = refused(table, TypeError)
    assert all(part in said for part in says.split(" .* "))


def test_two_columns_of_one_name():
    table = pandas_table()
    assert "two columns of one name" in refused(pd.concat([table, table[["y"]]], axis=1))
