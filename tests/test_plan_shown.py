"""A plan as it is printed and drawn, and what it refuses."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from dpcausal_bayes import custodian
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.estimands import ATE, ATT
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

SCHEMA = Schema(
    arm=Arm("treat", control=0, treated=1),
    outcome=Bounded("re78", 0, 40_000),
    covariates=[Categories("nodegree", [0, 1]), Binned("age", [17, 25, 35, 56])],
)
WORKLOAD = CausalWorkload(SCHEMA, strata=["nodegree", "age"])
BINARY = Schema(
    arm=SCHEMA.arm, outcome=Levels("y", ["yes", "no"], values=[3, 1]), covariates=SCHEMA.covariates
)
Z = 1.959963984540054
PLANNED = custodian.plan(WORKLOAD, n=445, epsilon=[0.5, 1, 2], delta=5e-6)


def test_the_example_prints():
    text = str(PLANNED)
    assert "Expected width of the 95 % interval of the effect on re78" in text
    assert "n = 445, delta = 5e-06" in text
    for word in ("epsilon 0.5", "epsilon 2", "nodegree, age", "without privacy noise"):
        assert word in text
    assert "Best (*): no strata at every epsilon." in text
    assert "Narrowest is best only where nothing is confounded" in text
    assert "outcome mean 20,000 and standard deviation 10,000" in " ".join(text.split("\n"))
    assert max(map(len, text.splitlines())) <= 110
    assert repr(PLANNED) == text
    assert "<table" in PLANNED._repr_html_()
    assert "nodegree, age" in PLANNED._repr_html_()


def test_the_figure_shows_every_choice():
    planned = custodian.plan(  # at the last epsilon the widths are nearly the same
        WORKLOAD, n=445, epsilon=[0.5, 1, 20], delta=5e-6, estimands=[ATE(), ATT()]
    )
    figure = planned.figure()
    figure.draw_without_rendering()
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert [panel.get_title() for panel in panels] == ["ate", "att"]
    for panel in panels:
        assert panel.get_xlabel() == "epsilon"
        labels = [text.get_text() for text in panel.texts]
        assert sorted(labels) == sorted(
            ["no strata", "nodegree", "age", "nodegree, age", "no privacy noise"]
        )
        heights = sorted(text.xy[1] for text in panel.texts)
        assert np.all(np.diff(np.log(heights)) > 0.05)  # no label lies on another
        lines = [line for line in panel.lines if len(line.get_xdata()) == 3]
        np.testing.assert_allclose(
            lines[0].get_ydata(),
            planned.table.query("strata == 'none' and estimand == 'ate'").width,
        )
        (band,) = panel.patches
        rows = planned.table[planned.table["estimand"] == panel.get_title()]
        floors = 2 * Z * rows["sampling_sd"]
        low, high = band.get_y(), band.get_y() + band.get_height()
        assert 0.98 * floors.min() < low < floors.min()
        assert floors.max() < high < 1.02 * floors.max()
    assert panels[0].get_ylabel() == "width of the 95 % interval\n(unit of re78)"
    seven = custodian.plan(
        WORKLOAD, n=445, epsilon=1, delta=5e-6, candidates=[["age"]],
        estimands=[kind(by="age") for kind in (ATE, ATT)],
    ).figure()  # fmt: skip
    assert len(seven.axes) == 6
    plt.close("all")


BAD = [
    ({"workload": SCHEMA}, TypeError, "workload is a Schema: it must be a CausalWorkload"),
    ({"n": 0}, ValueError, "n is 0"),
    ({"n": 1}, ValueError, "n is 1"),
    ({"n": 44.5}, ValueError, r"n is 44\.5"),
    ({"n": True}, ValueError, "n is True"),
    ({"n": "445"}, ValueError, "n is '445'"),
    ({"epsilon": 0}, ValueError, "budgets must be above 0"),
    ({"epsilon": [1, -1]}, ValueError, "budgets must be above 0"),
    ({"epsilon": []}, ValueError, "at least one"),
    ({"epsilon": "1"}, TypeError, "give a number or a list"),
    ({"epsilon": ["1"]}, TypeError, "epsilon is '1': it must be a number"),
    ({"epsilon": np.nan}, ValueError, "epsilon is nan"),
    ({"delta": 0}, ValueError, "delta is 0"),
    ({"delta": 1}, ValueError, "delta is 1"),
    ({"candidates": "age"}, TypeError, "candidates is a str: give a list of lists"),
    ({"candidates": []}, ValueError, "candidates is empty"),
    ({"candidates": [["sex"]]}, ValueError, "no covariate of the schema"),
    ({"candidates": [["age", "nodegree"], ["nodegree", "age"]]}, ValueError, "twice"),
    ({"candidates": [3]}, TypeError, r"candidates\[0\] is 3: give a list of covariates"),
    ({"estimands": []}, TypeError, "must be a list such as"),
    ({"estimands": "ate"}, TypeError, "must be a list such as"),
    ({"estimands": ["ate"]}, TypeError, "holds 'ate': it must be one of the analyst's objects"),
    ({"estimands": [ATE]}, TypeError, "it must be one of the analyst's objects"),
    ({"population": "all"}, ValueError, 'must be "super" or "sample"'),
    ({"ci_prob": 95}, ValueError, "ci_prob is 95"),
    ({"treated": 1}, ValueError, "treated is 1"),
    ({"treated": "half"}, TypeError, "treated is 'half'"),
    ({"mean": -1}, ValueError, "mean is -1: it must lie strictly between 0 and 40000"),
    ({"sd": 0}, ValueError, "sd is 0"),
    ({"sd": 25_000}, ValueError, "above 0, and 20000 at most"),
    ({"sd": [5_000, -1]}, ValueError, "sd is -1"),
    ({"sd": [1, 2, 3]}, TypeError, "give a number, or two"),
    ({"sd": "big"}, TypeError, "give a number, or two"),
    ({"shares": [0.5, 0.5]}, TypeError, "shares is a list: give a dict"),
    ({"shares": {"sex": [0.5, 0.5]}}, ValueError, "shares names 'sex'"),
    ({"shares": {"age": [0.5, 0.5]}}, ValueError, "2 shares for 3 levels"),
    ({"shares": {"age": [0.5, 0.3, 0.3]}}, ValueError, "add up to 1"),
    ({"shares": {"age": [0.5, 0.5, 0]}}, ValueError, "must be above 0"),
    ({"shares": {"age": 0.5}}, TypeError, "give a list, a share for each level"),
    ({"confounding": 3}, TypeError, "confounding is a int"),
    ({"confounding": {"sex": 3}}, ValueError, "confounding names 'sex'"),
    ({"confounding": {"age": -3}}, ValueError, "give its size"),
    ({"confounding": {"age": np.inf}}, ValueError, "must be finite"),
    (
        {"workload": CausalWorkload(BINARY), "sd": 1.0},
        ValueError,
        "follows from its mean; leave it out",
    ),
]


@pytest.mark.parametrize(("change", "kind", "says"), BAD)
def test_bad_input(change, kind, says):
    options = {"workload": WORKLOAD, "n": 445, "epsilon": 1.0, "delta": 5e-6} | change
    with pytest.raises(kind, match=says):
        custodian.plan(options.pop("workload"), **options)
