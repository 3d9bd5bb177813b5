"""Plans: the closed form is that of dense algebra and of the estimator; guesses are checked."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import custodian
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian.guesses import Guesses
from dpcausal_bayes.custodian.widths import expected_masses, variances
from dpcausal_bayes.direct.moments import plug_in
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.populations.crossed import stratified_population
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
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
GUESSES = Guesses(
    treated=0.2,
    mean=5_000.0,
    sd=7_000.0,
    shares={"age": (0.5, 0.3, 0.2), "nodegree": (0.25, 0.75)},
    confounding={},
)
Z = 1.959963984540054
PLANNED = custodian.plan(WORKLOAD, n=445, epsilon=[0.5, 1, 2], delta=5e-6)


def row(planned, **where):
    table = planned.table
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


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


def test_the_table_says_what_follows_from_what():
    table = PLANNED.table
    assert list(table.columns) == [
        "epsilon", "strata", "n_strata", "estimand", "width", "sd", "sampling_sd", "privacy_sd",
        "confounding_left", "smallest_cell", "noise_in_records", "best",
    ]  # fmt: skip
    np.testing.assert_allclose(table["width"], 2 * Z * table["sd"])
    np.testing.assert_allclose(table["sd"], np.hypot(table["sampling_sd"], table["privacy_sd"]))
    assert list(dict.fromkeys(table["strata"])) == ["none", "nodegree", "age", "nodegree, age"]
    assert list(table["n_strata"][:4]) == [1, 2, 3, 6]
    np.testing.assert_allclose(table["smallest_cell"], 445 / 2 / table["n_strata"])
    for strata, columns in (("none", []), ("nodegree, age", ["nodegree", "age"])):
        workload = CausalWorkload(SCHEMA, strata=columns)
        mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=5e-6)
        found = row(PLANNED, epsilon=1.0, strata=strata)
        assert found["noise_in_records"] == pytest.approx(mechanism.scale)
    # more budget is better, more strata cost
    widths = table.pivot_table(index="strata", columns="epsilon", values="width", sort=False)
    assert np.all(np.diff(widths, axis=0) > 0)
    assert np.all(np.diff(widths, axis=1) < 0)
    assert list(PLANNED.best["strata"]) == ["none"] * 3


def dense(workload, masses, members, assigned, guesses, noise):
    """Return the variance of the contrast, given that the masses sum to n: dense algebra."""
    n, outcome = masses.sum(), workload.schema.outcome
    binary = workload.binary
    values = np.array(outcome.values) if binary else None
    mean = guesses.mean if binary else (guesses.mean - outcome.centre) / outcome.half
    blocks, queries = [], []
    for mass in masses.ravel():
        if binary:
            counts = mass * np.array([mean - values[1], values[0] - mean]) / (values[0] - values[1])
            queries.append(counts)
            blocks.append(np.diag(counts))
        else:
            square = mean**2 + (guesses.sd / outcome.half) ** 2
            queries.append(mass * np.array([1, mean]))
            blocks.append(mass * np.array([[1, mean], [mean, square]]))
    queries = np.concatenate(queries)
    size = len(queries)
    covariance = np.zeros((size, size))
    for i, block in enumerate(blocks):
        covariance[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    covariance -= np.outer(queries, queries) / n

    def contrast(q):
        cells = q.reshape(2, -1, 2)
        mass = cells.sum(axis=-1) if binary else cells[..., 0]
        total = cells @ values if binary else outcome.centre * mass + outcome.half * cells[..., 1]
        weight = sum(mass[arm] for arm in assigned) * members
        return weight @ (total[1] / mass[1] - total[0] / mass[0]) / weight.sum()

    step = 1e-4 * np.eye(size)
    gradient = np.array([(contrast(queries + h) - contrast(queries - h)) / 2e-4 for h in step])
    of_n = np.ones(size) if binary else np.tile([1.0, 0.0], size // 2)
    whole = covariance + noise**2 * np.eye(size)
    known = whole @ of_n
    whole = whole - np.outer(known, known) / (of_n @ known)
    return gradient @ covariance @ gradient, gradient @ whole @ gradient


@pytest.mark.parametrize("schema", [SCHEMA, BINARY], ids=["bounded", "binary"])
@pytest.mark.parametrize("estimand", [ATE(), ATT(), ATC()], ids=lambda one: one.name)
@pytest.mark.parametrize("part", [False, True], ids=["all", "some strata"])
def test_variance_is_that_of_dense_algebra_given_n(schema, estimand, part):
    workload = CausalWorkload(schema, strata=["nodegree", "age"])
    guesses = GUESSES
    if schema is BINARY:
        guesses = Guesses(0.2, 1.5, np.sqrt(0.75), GUESSES.shares, {})
    masses = expected_masses(workload, 0, 2000, guesses)
    np.testing.assert_allclose(masses[:, 1], 2000 * 0.25 * 0.3 * np.array([0.8, 0.2]))
    members = np.arange(6) % 3 > 0 if part else np.ones(6, dtype=bool)
    found = variances(workload, 0, masses, members, estimand.assigned, guesses, 7.0, "super")
    arms = [("control", "treated").index(arm) for arm in estimand.assigned]
    sampling, both = dense(workload, masses, members, arms, guesses, 7.0)
    assert found[0] == pytest.approx(sampling, rel=1e-5)
    assert sum(found) == pytest.approx(both, rel=1e-5)


@pytest.mark.parametrize("estimand", [ATE(), ATT(), ATC()], ids=lambda one: one.name)
def test_for_these_very_records_only_the_other_arms_outcomes_are_unknown(estimand):
    workload = CausalWorkload(SCHEMA, strata=["nodegree"])
    masses = np.array([[50.0, 30.0], [20.0, 60.0]])
    members = np.ones(2, dtype=bool)
    sampling = variances(
        workload, 0, masses, members, estimand.assigned, GUESSES, 7.0, "sample"
    )[0]  # fmt: skip
    rng = np.random.default_rng(1)
    draws, sd = 100_000, GUESSES.sd
    total = np.zeros(draws)
    units = sum(masses[("control", "treated").index(arm)].sum() for arm in estimand.assigned)
    for arm in estimand.assigned:
        a = ("control", "treated").index(arm)
        for s in range(2):  # the seen mean is known; the other is a posterior draw, and new draws
            other = rng.normal(0, sd / np.sqrt(masses[1 - a, s]), draws)
            other += rng.normal(0, sd / np.sqrt(masses[a, s]), draws)
            total += (1 if a == 0 else -1) * masses[a, s] / units * other
    assert total.var() == pytest.approx(sampling, rel=4 * np.sqrt(2 / draws))
    whole = variances(workload, 0, masses, members, estimand.assigned, GUESSES, 7.0, "super")
    assert (sampling < whole[0] * (1 - 1e-9)) == (estimand.name == "ate")


@pytest.mark.parametrize("binary", [False, True], ids=["bounded", "binary"])
@pytest.mark.parametrize("covariates", [{}, {"a": 3, "b": 2}], ids=["1 stratum", "6 strata"])
def test_it_predicts_the_closed_forms_own_intervals(binary, covariates):
    study = stratified_population(
        covariates=covariates, n=4000, treated=0.4, binary=binary, spread=0.1, seed=3
    )
    workload = study.workload
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    widths = []
    for seed in range(60):
        release = simulate_moments(study.draw(seed), workload, mechanism, seed=seed)
        low, high = plug_in(release).interval()
        widths.append(high - low)
    sd = None if binary else np.sqrt(0.2 * 0.25)  # dispersion 0.2, means near the middle
    planned = custodian.plan(
        workload, n=4000, epsilon=1.0, delta=1e-6, candidates=[list(covariates)], treated=0.4, sd=sd
    )
    found = planned.table
    assert len(found) == 1
    assert 0.15 < (found["privacy_sd"] / found["sd"])[0] < 0.95
    assert found["width"][0] == pytest.approx(np.median(widths), rel=0.03)


def test_estimands_are_the_analysts_objects():
    planned = custodian.plan(
        WORKLOAD,
        n=445,
        epsilon=1,
        delta=5e-6,
        candidates=[["age"], ["age", "nodegree"]],
        estimands=[ATE(), ATC(), ATT(by="age")],
        treated=0.3,
        shares={"age": [0.5, 0.3, 0.2]},
    )
    names = ["ate", "atc", "att[[17, 25)]", "att[[25, 35)]", "att[[35, 56]]"]
    assert list(planned.table["estimand"][:5]) == names
    sampling = planned.table["sampling_sd"][2:5] ** 2
    size = 445 * np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(sampling, 10_000**2 * (1 / (0.3 * size) + 1 / (0.7 * size)))
    # by default, the choices that can answer
    options = {"n": 445, "epsilon": 1, "delta": 5e-6, "estimands": [ATE(), ATE(by="age")]}
    planned = custodian.plan(WORKLOAD, **options)
    assert list(dict.fromkeys(planned.table["strata"])) == ["age", "nodegree, age"]
    with pytest.raises(ValueError, match=r"ate by 'age', which strata of \['nodegree'\] cannot"):
        custodian.plan(WORKLOAD, candidates=[["age"], ["nodegree"]], **options)
    with pytest.raises(ValueError, match="by 'sex', a covariate that the workload does not have"):
        custodian.plan(WORKLOAD, **(options | {"estimands": [ATE(by="sex")]}))


def test_confounding_is_weighed_against_precision():
    planned = custodian.plan(
        WORKLOAD,
        n=2000,
        epsilon=[0.1, 1, 5],
        delta=1e-6,
        confounding={"age": 1500, "nodegree": 400},
    )
    left = {"none": 1900, "nodegree": 1500, "age": 400, "nodegree, age": 0}
    assert planned.table["confounding_left"].tolist() == list(left.values()) * 3
    error = np.hypot(planned.table["sd"], planned.table["confounding_left"])
    for epsilon in (0.1, 1, 5):
        rows = planned.table["epsilon"] == epsilon
        assert error[rows & planned.table["best"]].item() == error[rows].min()
    assert list(planned.best["strata"]) == ["none", "age", "nodegree, age"]
    text = " ".join(str(planned).split())
    assert "no strata at epsilon 0.1; age at epsilon 1; nodegree, age at epsilon 5." in text
    assert "confounding left" in text
    assert "Narrowest is best only" not in text


def test_a_workload_of_several_groups_is_planned_as_it_is():
    groups = CausalWorkload(SCHEMA, groups=["age", ["age", "nodegree"]], group_weights=[1, 2])
    planned = custodian.plan(groups, n=445, epsilon=1, delta=5e-6)
    assert list(planned.table["strata"]) == ["age", "age, nodegree"]
    scale = GaussianMechanism.calibrated(groups, epsilon=1, delta=5e-6).scale
    np.testing.assert_allclose(planned.table["noise_in_records"], [scale, scale / 2])
    options = {"n": 445, "epsilon": 1, "delta": 5e-6}
    ratio = planned.table["privacy_sd"] / planned.table["noise_in_records"]
    both = custodian.plan(groups, candidates=["age", ["age", "nodegree"]], **options).table
    np.testing.assert_allclose(ratio, both["privacy_sd"] / both["noise_in_records"])
    alone = custodian.plan(groups, candidates=["age"], **options)
    assert alone.table["noise_in_records"][0] < scale


def test_the_squares_weight_is_kept():
    heavy = CausalWorkload(SCHEMA, strata=["age"], square_weight=3.0)
    scale = GaussianMechanism.calibrated(heavy, epsilon=1, delta=5e-6).scale
    planned = custodian.plan(heavy, n=445, epsilon=1, delta=5e-6, candidates=[["age"]])
    assert planned.table["noise_in_records"][0] == pytest.approx(scale)
    assert "Best" not in str(planned)  # there is nothing to choose


def test_rough_widths_are_marked():
    assert "~" in str(PLANNED)
    planned = custodian.plan(WORKLOAD, n=20_000, epsilon=1, delta=5e-6)
    assert "~" not in str(planned)


def test_a_wider_interval_and_these_very_records():
    options = {"n": 445, "epsilon": 1, "delta": 5e-6, "candidates": [[]]}
    wide = custodian.plan(WORKLOAD, ci_prob=0.99, population="sample", **options)
    plain = row(PLANNED, epsilon=1.0, strata="none")
    assert "99 % interval" in str(wide)
    assert "on these very records" in str(wide)
    assert wide.table["privacy_sd"][0] == pytest.approx(plain["privacy_sd"])
    assert wide.table["sampling_sd"][0] == pytest.approx(plain["sampling_sd"] / np.sqrt(2))
    assert wide.table["width"][0] == pytest.approx(2 * 2.5758293 * wide.table["sd"][0])


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
        floor = 2 * Z * planned.table["sampling_sd"][0]
        assert any(np.allclose(line.get_ydata(), floor) for line in panel.lines)
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


def test_two_records_and_one_stratum_make_a_plan():
    schema = Schema(arm=SCHEMA.arm, outcome=BINARY.outcome)
    planned = custodian.plan(CausalWorkload(schema), n=2, epsilon=1, delta=0.1)
    assert len(planned.table) == 1
    assert np.isfinite(planned.table.select_dtypes(float).to_numpy()).all()
    assert planned.guesses.sd == 1.0
    constant = Schema(
        arm=SCHEMA.arm, outcome=SCHEMA.outcome, covariates=[Categories("x", ["only"])]
    )
    planned = custodian.plan(CausalWorkload(constant, strata=["x"]), n=99, epsilon=1, delta=1e-3)
    one, two = planned.table["width"]
    assert one == pytest.approx(two)
    assert isinstance(planned.best, pd.DataFrame)
