"""Bounded outcomes, bins, and the declared level for all other values."""

import msgspec
import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release

ARM = Arm("t", control=0, treated=1)


def test_bounds_have_one_form():
    assert Bounded("y", 0, 40_000) == Bounded("y", 0.0, np.float64(40_000))
    outcome = Bounded("y", -1, 3)
    assert (outcome.centre, outcome.half) == (1.0, 2.0)
    assert [type(outcome.low), type(outcome.high)] == [float, float]


def test_wide_bounds_do_not_overflow():
    outcome = Bounded("y", -1.5e308, 1.5e308)
    assert (outcome.centre, outcome.half) == (0.0, 1.5e308)


def test_bins_have_labels_in_order():
    assert Binned("age", [17, 25.5, 35]).labels == ("[17, 25.5)", "[25.5, 35]")
    assert Binned("age", range(0, 30, 10)).edges == (0.0, 10.0, 20.0)
    assert Binned("age", [-1, 0]).labels == ("[-1, 0]",)
    assert len(set(Binned("x", [0, 0.1, 0.1 + 1e-16 + 2e-17, 1]).labels)) == 3


def test_other_is_the_last_label():
    assert Binned("age", [17, 25], other="old").labels == ("[17, 25]", "old")
    assert Categories("c", [1, 0], other="else").labels == ("1", "0", "else")
    assert Categories("c", [1, 0]) != Categories("c", [1, 0], other="else")


def test_a_level_other_leaves_earlier_files_as_they_were():
    assert msgspec.json.encode(Categories("c", ["a"])) == (
        b'{"type":"Categories","column":"c","levels":["a"]}'
    )


def test_new_columns_survive_json():
    schema = Schema(
        arm=ARM,
        outcome=Bounded("y", -1, 2.5),
        covariates=[
            Binned("age", [17, 25, 35], other="unknown"),
            Categories("c", ["a", "b"], other="else"),
        ],
    )
    assert msgspec.json.decode(msgspec.json.encode(schema), type=Schema) == schema
    assert len({schema, msgspec.structs.replace(schema)}) == 1
    assert schema.columns == ("t", "y", "age", "c")


def test_labels_need_levels():
    schema = Schema(arm=ARM, outcome=Bounded("y", 0, 1))
    says = "without levels: labels need Levels. Release its moments with a CausalWorkload"
    for ask in (
        lambda: schema.n_levels,
        lambda: schema.level_labels,
        lambda: schema.label_outcome,
        lambda: ClusterDP.calibrated(schema, epsilon=1.0),
        lambda: simulate_release(
            pd.DataFrame({"t": [0, 1], "y": [0.5, 1]}),
            schema,
            ClusterDP(lam=0.5, sigma=1.0, gamma=0.1),
            seed=1,
        ),
    ):
        with pytest.raises(TypeError, match=says):
            ask()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Bounded("y", 3, 1), ValueError, r"reversed; write Bounded\('y', 1, 3\)"),
        (lambda: Bounded("y", 1, 1), ValueError, "equal, or too close"),
        (lambda: Bounded("y", 0, 5e-324), ValueError, "equal, or too close"),
        (lambda: Bounded("y", 0, float("inf")), ValueError, "Bounded.high is inf"),
        (lambda: Bounded("y", float("nan"), 1), ValueError, "Bounded.low is nan"),
        (lambda: Bounded("y", "0", 1), TypeError, "Bounded.low is a str: it must be a number"),
        (lambda: Bounded("y", None, 1), TypeError, "Bounded.low is a NoneType"),
        (lambda: Bounded(pd.Series([1], name="y"), 0, 1), TypeError, r"Bounded\('y', 0, 100\)"),
        (lambda: Binned("x", [1]), ValueError, "1 edges: one bin needs two"),
        (lambda: Binned("x", [0, 2, 1]), ValueError, r"edges\[2\] is 1, which is not above .* 2:"),
        (lambda: Binned("x", [0, 0]), ValueError, "increasing order"),
        (lambda: Binned("x", [0, float("inf")]), ValueError, r"Binned.edges\[1\] is inf"),
        (lambda: Binned("x", ["a", "b"]), TypeError, r"Binned.edges\[0\] is a str"),
        (lambda: Binned("x", np.arange(3)), TypeError, "declared, not read off the data"),
        (lambda: Binned("x", pd.Series([0, 1])), TypeError, "declared, not read off the data"),
        (lambda: Binned("x", "01"), TypeError, "declared, not read off the data"),
        (lambda: Binned("x", [0, 1], other=""), TypeError, "Binned.other is ''"),
        (lambda: Binned("x", [0, 1], other="[0, 1]"), ValueError, "is a declared level too"),
        (lambda: Categories("x", [0, 1], other="1"), ValueError, "is a declared level too"),
        (lambda: Categories("x", [0, 1], other=True), TypeError, "Categories.other is True"),
        (
            lambda: Schema(
                arm=ARM, outcome=Levels("y", [0, 1]), cluster=Categories("c", [1], other="z")
            ),
            ValueError,
            "Schema.cluster has other='z'",
        ),
        (
            lambda: Schema(arm=ARM, outcome=Levels("y", [0, 1]), cluster=Binned("c", [1, 2])),
            TypeError,
            "Schema.cluster is a dpcausal_bayes Binned",
        ),
        (
            lambda: Schema(arm=ARM, outcome=Categories("y", [0, 1])),
            TypeError,
            r"Schema.outcome .* Levels\('column', \[0, 1\]\) or Bounded\('column', 0, 100\)",
        ),
        (
            lambda: Schema(arm=ARM, outcome=Bounded("y", 0, 1), covariates=[Binned("y", [0, 1])]),
            ValueError,
            "column 'y' twice",
        ),
    ],
)
def test_bad_facts_are_named(make, error, says):
    with pytest.raises(error, match=says):
        make()
