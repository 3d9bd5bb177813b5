"""Public facts: one form for each, and no room for data."""

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.schema import Schema

ARM = Arm("any", control=0, treated=1)
OUTCOME = Levels("got", [0, 1])


@pytest.mark.parametrize(
    ("control", "treated"),
    [(False, True), (0.0, 1.0), (np.bool_(False), np.bool_(True)), (np.int8(0), np.float32(1))],
)
def test_arms_of_equal_value_are_equal(control, treated):
    arm = Arm("any", control=control, treated=treated)
    assert arm == ARM
    assert hash(arm) == hash(ARM)
    assert [type(level) for level in arm.levels] == [int, int]


def test_levels_of_equal_value_are_equal():
    assert Levels("got", [False, True]) == Levels("got", (0.0, 1.0)) == OUTCOME
    assert Levels("got", range(3)).values == (0.0, 1.0, 2.0)
    assert Categories("c", ["1"]) != Categories("c", [1])


def test_text_levels_have_values_only_when_given():
    assert Levels("a", ["no", "yes"]).values is None
    assert Levels("a", ["no", "yes"], values=[-1, 0.5]).values == (-1.0, 0.5)
    assert Levels("a", [3, 1], values=[0, 10]).values == (0.0, 10.0)


def test_labels_are_unique_text_in_declared_order():
    schema = Schema(arm=ARM, outcome=Levels("y", [2, 0.5]), cluster=Categories("c", [10, 999, 7]))
    assert schema.clusters == ("10", "999", "7")
    assert schema.level_labels == ("2", "0.5")
    assert schema.arms == ("control", "treated")
    assert (schema.n_clusters, schema.n_levels) == (3, 2)


def test_without_clusters_there_is_one():
    schema = Schema(arm=ARM, outcome=OUTCOME)
    assert schema.clusters == ("all",)
    assert schema.columns == ("any", "got")


def test_schema_is_frozen_and_hashable():
    schema = Schema(arm=ARM, outcome=OUTCOME, covariates=[Categories("x", [0, 1])])
    assert (
        len({schema, Schema(arm=ARM, outcome=OUTCOME, covariates=(Categories("x", [0, 1]),))}) == 1
    )
    with pytest.raises(AttributeError):
        schema.outcome = OUTCOME


def test_schema_survives_json():
    schema = Schema(
        arm=Arm("a", control="no", treated="yes"),
        outcome=Levels("y", [0.5, 1, 2], ordered=False),
        cluster=Categories("c", ["x"]),
        covariates=[Categories("z", [0, 1])],
    )
    assert msgspec.json.decode(msgspec.json.encode(schema), type=Schema) == schema


def test_json_with_an_unknown_field_is_refused():
    text = msgspec.json.encode(ARM).replace(b'"control"', b'"secret":1,"control"')
    with pytest.raises(msgspec.ValidationError, match="secret"):
        msgspec.json.decode(text, type=Arm)


@pytest.mark.parametrize("given", [{"treated": "x"}, {"control": "x"}, {}])
def test_arms_are_never_guessed(given):
    with pytest.raises(
        TypeError, match=r"is missing and never guessed: write Arm\('seg', control="
    ):
        Arm("seg", **given)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([0, 1], name="any"),
        np.array([0, 1]),
        pl.Series("any", [0, 1]),
        ["any"],
        pd.DataFrame(),
    ],
)
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("Arm", lambda column: Arm(column, control=0, treated=1)),
        ("Levels", lambda column: Levels(column, [0, 1])),
        ("Categories", lambda column: Categories(column, [0, 1])),
    ],
)
def test_data_where_a_name_belongs_shows_the_right_call(column, kind, make):
    with pytest.raises(TypeError, match=rf"{kind}.column is a .* write {kind}\("):
        make(column)


def test_the_right_call_uses_the_name_of_the_series():
    with pytest.raises(TypeError, match=r"write Arm\('dose', control=0, treated=1\)"):
        Arm(pd.Series([0, 1], name="dose"), control=0, treated=1)


@pytest.mark.parametrize(
    "levels", [pd.Series([0, 1]), np.array([0, 1]), pd.Index([0, 1]), {0, 1}, "01", {0: 1}, 3]
)
def test_levels_are_declared_not_read_off_data(levels):
    for kind in (Levels, Categories):
        with pytest.raises(TypeError, match="declared, not read off the data"):
            kind("y", levels)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Arm("a", control=1, treated=True), ValueError, "both 1"),
        (lambda: Arm("a", control=0, treated="x"), TypeError, "mixes text and numbers"),
        (lambda: Arm("a", control=0, treated=float("nan")), ValueError, "Arm.treated is nan"),
        (lambda: Arm("a", control=None, treated=1), TypeError, "Arm.control is a NoneType"),
        (lambda: Arm("", control=0, treated=1), ValueError, "Arm.column is empty"),
        (lambda: Arm(3, control=0, treated=1), TypeError, "Arm.column is a int"),
        (lambda: Levels("y", [0]), ValueError, "1 levels: at least 2"),
        (lambda: Levels("y", [0, 1, False]), ValueError, "0 twice"),
        (lambda: Levels("y", [0, "a"]), TypeError, "mixes text and numbers"),
        (lambda: Levels("y", [0, float("inf")]), ValueError, r"Levels.levels\[1\] is inf"),
        (lambda: Levels("y", [0, 2**53]), ValueError, "declare the level as text"),
        (lambda: Levels("y", [0, 1j]), TypeError, r"Levels.levels\[1\] is a complex"),
        (lambda: Levels("y", [0, 1], values=[1]), ValueError, "1 scores for 2 levels"),
        (lambda: Levels("y", [0, 1], values=[1, "a"]), TypeError, "scores are numbers"),
        (lambda: Levels("y", [0, 1], values=[1, float("nan")]), ValueError, r"values\[1\] is nan"),
        (lambda: Levels("y", [0, 1], values=np.ones(2)), TypeError, "write the scores as a list"),
        (lambda: Levels("y", [0, 1], ordered=1), TypeError, "Levels.ordered is 1"),
        (lambda: Categories("c", []), ValueError, "0 levels: at least 1"),
        (lambda: Schema(arm="any", outcome=OUTCOME), TypeError, "Schema.arm is a str"),
        (lambda: Schema(arm=ARM, outcome=[0, 1]), TypeError, "Schema.outcome is a list"),
        (
            lambda: Schema(arm=ARM, outcome=OUTCOME, cluster="c"),
            TypeError,
            "Schema.cluster is a str",
        ),
        (lambda: Schema(arm=ARM, outcome=OUTCOME, covariates="x"), TypeError, "Schema.covariates"),
        (lambda: Schema(arm=ARM, outcome=OUTCOME, covariates=["x"]), TypeError, r"covariates\[0\]"),
        (
            lambda: Schema(arm=ARM, outcome=OUTCOME, cluster=Categories("got", [0])),
            ValueError,
            "column 'got' twice",
        ),
    ],
)
def test_bad_facts_are_named(make, error, says):
    with pytest.raises(error, match=says):
        make()
