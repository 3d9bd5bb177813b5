"""What a causal workload asks for: layout, labels, weights."""

import copy
import inspect
import pickle

import msgspec
import numpy as np
import pytest

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

ARM = Arm("t", control=0, treated=1)
COVARIATES = [
    Categories("deg", [0, 1]),
    Binned("age", [17, 25, 35, 56], other="unknown"),
    Categories("one", ["x"]),
]
SCHEMA = Schema(arm=ARM, outcome=Bounded("y", 0, 10), covariates=COVARIATES)
BINARY = Schema(arm=ARM, outcome=Levels("y", ["no", "yes"], values=[0, 1]), covariates=COVARIATES)


def test_strata_are_one_joint_group():
    workload = CausalWorkload(SCHEMA, strata=["deg", "age"])
    assert workload.groups == (("deg", "age"),)
    assert workload == CausalWorkload(SCHEMA, groups=[("deg", "age")])
    assert workload.strata()[:2] == ("deg=0, age=[17, 25)", "deg=0, age=[25, 35)")
    assert workload.strata()[3:5] == ("deg=0, age=unknown", "deg=1, age=[17, 25)")
    assert (workload.n_strata(), workload.shape()) == (8, (2, 8, 2))
    assert workload.factors()["deg"] == ("0",) * 4 + ("1",) * 4
    assert workload.factors()["age"] == ("[17, 25)", "[25, 35)", "[35, 56]", "unknown") * 2


def test_order_of_the_names_is_the_order_of_the_strata():
    assert CausalWorkload(SCHEMA, strata=["age", "deg"]).strata()[:2] == (
        "age=[17, 25), deg=0",
        "age=[17, 25), deg=1",
    )


@pytest.mark.parametrize("given", [{}, {"strata": []}, {"strata": ()}])
def test_without_covariates_there_is_one_stratum(given):
    workload = CausalWorkload(SCHEMA, **given)
    assert workload.strata() == ("all",)
    assert workload.factors() == {}
    assert workload.queries == (
        "all|control|mass",
        "all|control|outcome",
        "all|treated|mass",
        "all|treated|outcome",
        "square|control",
        "square|treated",
    )


def test_groups_follow_each_other():
    workload = CausalWorkload(
        SCHEMA, groups=["deg", ["deg", "one"]], group_weights=[2, 0.5], square_weight=3
    )
    assert workload.groups == (("deg",), ("deg", "one"))
    assert workload.queries[7:10] == (
        "deg=1|treated|outcome",
        "deg=0, one=x|control|mass",
        "deg=0, one=x|control|outcome",
    )
    assert workload.weights.tolist() == [2.0] * 8 + [0.5] * 8 + [3.0] * 2
    assert len(set(workload.queries)) == workload.n_queries == 18


def test_binary_outcomes_are_counted():
    workload = CausalWorkload(BINARY, strata=["deg"])
    assert workload.binary
    assert workload.queries == (
        "deg=0|control|no",
        "deg=0|control|yes",
        "deg=1|control|no",
        "deg=1|control|yes",
        "deg=0|treated|no",
        "deg=0|treated|yes",
        "deg=1|treated|no",
        "deg=1|treated|yes",
    )
    groups, squares = workload.split(np.arange(8))
    assert squares is None
    assert groups[0][1, 0].tolist() == [4, 5]


def test_split_cuts_the_last_axis():
    workload = CausalWorkload(SCHEMA, groups=["deg", ["age"]])
    q = workload.n_queries
    values = np.arange(3 * q).reshape(3, q)
    (deg, age), squares = workload.split(values)
    assert (deg.shape, age.shape, squares.shape) == ((3, 2, 2, 2), (3, 2, 4, 2), (3, 2))
    for i, label in enumerate(workload.queries):
        stratum, *rest = label.split("|")
        if stratum == "square":
            place = squares[1, ["control", "treated"].index(rest[0])]
        else:
            group = 0 if stratum.startswith("deg") else 1
            at = workload.strata(group).index(stratum)
            arm, part = ["control", "treated"].index(rest[0]), ["mass", "outcome"].index(rest[1])
            place = (deg, age)[group][1, arm, at, part]
        assert place == values[1, i]
    for wrong in (values[:, 1:], 3.0):
        with pytest.raises(ValueError, match=f"must hold the workload's {q} queries"):
            workload.split(wrong)


@pytest.mark.parametrize(
    "workload",
    [
        CausalWorkload(SCHEMA),
        CausalWorkload(SCHEMA, groups=["deg", ["age", "deg"]], group_weights=(1, 2)),
        CausalWorkload(BINARY, strata=["deg"]),
    ],
)
def test_workloads_survive_json_copies_and_pickles(workload):
    encoded = msgspec.json.encode(workload)
    assert msgspec.json.decode(encoded, type=CausalWorkload) == workload
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=CausalWorkload)) == encoded
    assert pickle.loads(pickle.dumps(workload)) == workload
    assert copy.deepcopy(workload) == copy.copy(workload) == workload
    assert hash(copy.deepcopy(workload)) == hash(workload)
    with pytest.raises(AttributeError):
        workload.groups = ()


def test_json_fields_are_fixed():
    fields = msgspec.json.decode(msgspec.json.encode(CausalWorkload(SCHEMA)))
    assert list(fields) == ["type", "schema", "groups", "square_weight", "group_weights"]


def test_signature_is_that_of_the_call():
    assert list(inspect.signature(CausalWorkload).parameters) == [
        "schema",
        "strata",
        "groups",
        "square_weight",
        "group_weights",
    ]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"strata": ["deg"], "groups": ["deg"]}, TypeError, "not both"),
        ({"strata": "deg"}, TypeError, "CausalWorkload.strata is a str"),
        ({"strata": [["deg"]]}, TypeError, r"strata\[0\] is a list"),
        ({"strata": ["sex"]}, ValueError, r"names 'sex', which is no covariate .*'deg'"),
        ({"strata": ["y"]}, ValueError, "names 'y', which is no covariate"),
        ({"strata": ["deg", "deg"]}, ValueError, "names 'deg' twice"),
        ({"groups": "deg"}, TypeError, "CausalWorkload.groups is a str"),
        ({"groups": []}, ValueError, "groups is empty"),
        (
            {"groups": [[], "deg", []]},
            ValueError,
            r"groups\[2\] has the covariates \[\] of an earl",
        ),
        ({"groups": ["deg", 3]}, TypeError, r"groups\[1\] is a int"),
        ({"groups": ["deg", "deg"]}, ValueError, "of an earlier group"),
        ({"groups": [["deg", "age"], ["age", "deg"]]}, ValueError, "of an earlier group"),
        ({"square_weight": 0}, ValueError, "square_weight is 0: a weight must be above 0"),
        ({"square_weight": -1}, ValueError, "square_weight is -1"),
        ({"square_weight": float("nan")}, ValueError, "square_weight is nan"),
        ({"square_weight": "1"}, TypeError, "square_weight is '1'"),
        ({"group_weights": [1, 1]}, ValueError, "2 weights for 1 groups"),
        ({"group_weights": [0]}, ValueError, r"group_weights\[0\] is 0"),
        ({"group_weights": 1.0}, TypeError, "group_weights is a float"),
    ],
)
def test_bad_workloads_are_named(given, error, says):
    with pytest.raises(error, match=says):
        CausalWorkload(SCHEMA, **given)


def test_bad_schemas_are_named():
    with pytest.raises(TypeError, match="schema is a dict: give a Schema"):
        CausalWorkload({})
    three = Schema(arm=ARM, outcome=Levels("y", [0, 1, 2]))
    with pytest.raises(ValueError, match=r"3 levels: declare two levels.* Bounded\('y', 0, 100\)"):
        CausalWorkload(three)
    text = Schema(arm=ARM, outcome=Levels("y", ["no", "yes"]))
    with pytest.raises(ValueError, match=r"Levels\('y', \['no', 'yes'\], values=\[0, 1\]\)"):
        CausalWorkload(text)
    with pytest.raises(ValueError, match="leave square_weight out"):
        CausalWorkload(BINARY, square_weight=2)


def test_too_many_cells_are_refused():
    wide = [Categories(f"c{i}", range(100)) for i in range(4)]
    schema = Schema(arm=ARM, outcome=Bounded("y", 0, 10), covariates=wide)
    with pytest.raises(ValueError, match="ask for 400000002 numbers"):
        CausalWorkload(schema, strata=[c.column for c in wide])


def test_strata_that_read_alike_are_refused():
    twins = [Categories("a", ["x", "x, b=y"]), Categories("b", ["y, b=z", "z"])]
    schema = Schema(arm=ARM, outcome=Bounded("y", 0, 10), covariates=twins)
    with pytest.raises(ValueError, match="labels read alike"):
        CausalWorkload(schema, strata=["a", "b"])


@pytest.mark.parametrize("name", ["arm", "stratum", "mean"])
def test_a_covariate_may_not_be_called_as_a_dimension_of_trees(name):
    schema = Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=Bounded("y", 0, 1),
        covariates=[Categories(name, ["a", "b"])],
    )
    with pytest.raises(ValueError, match="rename the column"):
        CausalWorkload(schema, strata=[name])
