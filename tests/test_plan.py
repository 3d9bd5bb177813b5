"""Plans: the closed form is that of dense algebra and of the estimator; guesses are checked."""

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import custodian
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian.confounding import left_in_bins
from dpcausal_bayes.custodian.widths import variances
from dpcausal_bayes.direct.moments import plug_in
from dpcausal_bayes.estimands import ATC, ATE, ATT, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.laplace_mechanism import LaplaceMechanism, least_noise
from dpcausal_bayes.models.stratified_moments import stratified_moments
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
Z = 1.959963984540054
PLANNED = custodian.plan(WORKLOAD, n=445, epsilon=[0.5, 1, 2], delta=5e-6)


def row(planned, **where):
    table = planned.table
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_the_table_says_what_follows_from_what():
    table = PLANNED.table
    assert list(table.columns) == [
        "epsilon", "strata", "n_strata", "estimand", "width", "sd", "sampling_sd", "privacy_sd",
        "confounding_left", "smallest_cell", "noise", "noise_in_records", "rough", "best",
    ]  # fmt: skip
    np.testing.assert_allclose(table["width"], 2 * Z * table["sd"], rtol=0.06)
    np.testing.assert_allclose(table["sd"], np.hypot(table["sampling_sd"], table["privacy_sd"]))
    assert list(dict.fromkeys(table["strata"])) == ["none", "nodegree", "age", "nodegree, age"]
    assert list(table["n_strata"][:4]) == [1, 2, 3, 6]
    np.testing.assert_allclose(table["smallest_cell"], 445 / 2 / table["n_strata"])
    for strata, columns in (("none", []), ("nodegree, age", ["nodegree", "age"])):
        workload = CausalWorkload(SCHEMA, strata=columns)
        mechanism = LaplaceMechanism.calibrated(workload, epsilon=1.0)
        found = row(PLANNED, epsilon=1.0, strata=strata)
        assert found["noise"] == "Laplace"
        assert found["noise_in_records"] == pytest.approx(mechanism.noise_sd(workload)[0])
    # more budget is better; more strata cost, but for the luck of the simulation
    widths = table.pivot_table(index="strata", columns="epsilon", values="width", sort=False)
    assert np.all(np.diff(np.log(widths), axis=0) > -0.02)
    assert np.all(np.log(widths.iloc[-1] / widths.iloc[0]) > 0.1)
    assert np.all(np.diff(widths, axis=1) < 0)
    assert list(PLANNED.best["strata"]) == ["none"] * 3


@pytest.mark.parametrize("binary", [False, True], ids=["bounded", "binary"])
@pytest.mark.parametrize("covariates", [{}, {"a": 3, "b": 2}], ids=["1 stratum", "6 strata"])
def test_where_noise_is_small_it_is_the_closed_forms_interval(binary, covariates):
    study = stratified_population(
        covariates=covariates, n=20_000, treated=0.4, binary=binary, spread=0.1, seed=3
    )
    workload = study.workload
    mechanism = least_noise(workload, epsilon=0.2, delta=1e-6)
    widths = []
    for seed in range(40):
        release = simulate_moments(study.draw(seed), workload, mechanism, seed=seed)
        low, high = plug_in(release).interval()
        widths.append(high - low)
    sd = None if binary else np.sqrt(0.2 * 0.25)  # dispersion 0.2, means near the middle
    planned = custodian.plan(
        workload,
        n=20_000,
        epsilon=0.2,
        delta=1e-6,
        candidates=[list(covariates)],
        treated=0.4,
        sd=sd,
    )
    found = planned.table
    assert len(found) == 1
    assert 0.1 < (found["privacy_sd"] / found["sd"])[0] < 0.95
    assert found["width"][0] == pytest.approx(np.median(widths), rel=0.07)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_it_predicts_the_models_intervals_where_noise_is_large(epsilon):
    study = stratified_population(n=500, effect=0.05, spread=0.1, seed=3)
    workload = study.workload
    mechanism = least_noise(workload, epsilon=epsilon, delta=1e-6)
    widths, fitter = [], None
    for seed in range(12):
        release = simulate_moments(study.draw(seed), workload, mechanism, seed=seed)
        fitter = fitter or Fitter(stratified_moments(release))
        tree = fitter.fit(release, random_seed=seed, draws=500, chains=2, progressbar=False)
        tree = estimate(tree, [ATE()], population="super")
        low, high = np.quantile(tree["estimands"]["ate"], [0.025, 0.975])
        widths.append(high - low)
    planned = custodian.plan(
        workload, n=500, epsilon=epsilon, delta=1e-6, candidates=[["a", "b"]], sd=np.sqrt(0.05)
    )
    assert planned.table["width"][0] == pytest.approx(np.median(widths), rel=0.2)
    # the closed form would not do
    masses = np.full((2, 6), 500 / 12)
    closed = variances(
        workload, 0, masses, np.ones(6, dtype=bool), ("control", "treated"),
        planned.guesses, mechanism.noise_sd(workload)[0], "super",
    )  # fmt: skip
    if epsilon < 1:
        found = np.array([planned.table["width"][0], 2 * Z * np.sqrt(sum(closed))])
        off = np.abs(np.log(found / np.median(widths)))
        assert off[0] < off[1]


def test_estimands_are_the_analysts_objects():
    planned = custodian.plan(
        WORKLOAD,
        n=4450,
        epsilon=1,
        delta=5e-6,
        candidates=[["age"], ["age", "nodegree"]],
        estimands=[ATE(), ATC(), ATT(by="age")],
        treated=0.3,
        shares={"age": [0.5, 0.3, 0.2]},
    )
    names = ["ate", "atc", "att[[17, 25)]", "att[[25, 35)]", "att[[35, 56]]"]
    assert list(planned.table["estimand"][:5]) == names
    size = 4450 * np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(planned.table["smallest_cell"][2:5], 0.3 * size)
    sampling = planned.table["sampling_sd"][2:5]
    alone = 10_000 * np.sqrt(1 / (0.3 * size) + 1 / (0.7 * size))
    assert np.all(sampling < alone)  # effects are pooled a little
    assert np.all(sampling > 0.8 * alone)
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
        epsilon=[0.05, 0.5, 10],
        delta=1e-6,
        confounding={"age": 1500, "nodegree": 100},
    )
    in_bins = 1500 * left_in_bins([1, 1, 1])  # of a number cut in three a fifth is left
    left = {"none": 1600, "nodegree": 1500, "age": 100 + in_bins, "nodegree, age": in_bins}
    assert planned.table["confounding_left"].tolist() == list(left.values()) * 3
    error = np.hypot(planned.table["sd"], planned.table["confounding_left"])
    for epsilon in (0.05, 0.5, 10):
        rows = planned.table["epsilon"] == epsilon
        assert error[rows & planned.table["best"]].item() == error[rows].min()
    assert list(planned.best["strata"]) == ["none", "age", "nodegree, age"]
    text = " ".join(str(planned).split())
    assert "no strata at epsilon 0.05; age at epsilon 0.5; nodegree, age at epsilon 10." in text
    assert "confounding left" in text
    assert "Narrowest is best only" not in text


def test_a_workload_of_several_groups_is_planned_as_it_is():
    groups = CausalWorkload(SCHEMA, groups=["age", ["age", "nodegree"]], group_weights=[1, 2])
    planned = custodian.plan(groups, n=445, epsilon=1, delta=5e-6)
    assert list(planned.table["strata"]) == ["age", "age, nodegree"]
    scale = GaussianMechanism.calibrated(groups, epsilon=1, delta=5e-6).scale
    np.testing.assert_allclose(planned.table["noise_in_records"], [scale, scale / 2])
    options = {"n": 445, "epsilon": 1, "delta": 5e-6}
    assert planned.table["width"][1] < planned.table["width"][0] * 1.1  # twice the weight helps
    even = CausalWorkload(SCHEMA, groups=["age", ["age", "nodegree"]])
    assert planned.table["width"][1] < custodian.plan(even, **options).table["width"][1]
    alone = custodian.plan(groups, candidates=["age"], **options)
    assert alone.table["noise_in_records"][0] < scale


def test_the_squares_weight_is_kept():
    heavy = CausalWorkload(SCHEMA, strata=["age"], square_weight=3.0)
    planned = custodian.plan(heavy, n=445, epsilon=1, candidates=[["age"]])
    noise = LaplaceMechanism.calibrated(heavy, epsilon=1).noise_sd(heavy)
    assert planned.table["noise_in_records"][0] == pytest.approx(noise[0])
    assert "Best" not in str(planned)  # there is nothing to choose


def test_very_many_strata_get_the_closed_form_and_a_mark():
    many = Schema(
        arm=SCHEMA.arm,
        outcome=SCHEMA.outcome,
        covariates=[Categories("town", range(61)), Categories("sex", [0, 1])],
    )
    workload = CausalWorkload(many, strata=["town"])
    planned = custodian.plan(workload, n=445, epsilon=1, delta=5e-6, candidates=["town", "sex"])
    rough, fine = str(planned).splitlines()[3:5]
    assert "~" in rough
    assert "~" not in fine
    assert "~ More than 60 strata are not simulated" in str(planned)
    assert "~" not in str(PLANNED)
    found = row(planned, strata="town")
    sampling = 10_000**2 * 4 / 445
    noise = (20_000 * found["noise_in_records"]) ** 2 * 61 * 8 / 445**2
    assert found["sampling_sd"] == pytest.approx(np.sqrt(sampling))
    assert found["privacy_sd"] == pytest.approx(np.sqrt(noise))
    assert found["width"] == pytest.approx(2 * Z * np.sqrt(sampling + noise))


def test_a_wider_interval_and_these_very_records():
    options = {"n": 445, "epsilon": 1, "delta": 5e-6, "candidates": [[]]}
    wide = custodian.plan(WORKLOAD, ci_prob=0.99, population="sample", **options)
    plain = row(PLANNED, epsilon=1.0, strata="none")
    assert "99 % interval" in str(wide)
    assert "on these very records" in str(wide)
    assert wide.table["privacy_sd"][0] == pytest.approx(plain["privacy_sd"])
    assert wide.table["sampling_sd"][0] == pytest.approx(plain["sampling_sd"] / np.sqrt(2))
    assert wide.table["width"][0] == pytest.approx(2 * 2.5758293 * wide.table["sd"][0], rel=0.06)


def test_the_seed_moves_widths_a_little():
    options = {"n": 445, "epsilon": 1, "delta": 5e-6, "candidates": [["age"]]}
    one, same, other = (
        custodian.plan(WORKLOAD, random_seed=seed, **options).table["width"][0]
        for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other
    assert one == pytest.approx(other, rel=0.1)


def test_arms_may_differ_in_spread():
    options = {"n": 2000, "epsilon": 20, "delta": 1e-6, "candidates": [[]], "treated": 0.2}
    planned = custodian.plan(WORKLOAD, sd=(3_000, 9_000), estimands=[ATT(), ATC()], **options)
    wanted = np.sqrt(3_000**2 / 1600 + 9_000**2 / 400)
    assert planned.table["sampling_sd"].tolist() == pytest.approx([wanted] * 2, rel=0.04)
    assert "3,000 (controls) and 9,000 (treated)" in " ".join(str(planned).split())
    sample = custodian.plan(
        WORKLOAD, sd=(3_000, 9_000), estimands=[ATT(), ATC()], population="sample", **options
    )
    unknown = np.array([3_000, 9_000]) * np.sqrt(1 / 1600 + 1 / 400)  # of the other arm
    assert sample.table["sampling_sd"].tolist() == pytest.approx(list(unknown), rel=0.04)


def test_two_records_and_one_stratum_make_a_plan():
    schema = Schema(arm=SCHEMA.arm, outcome=BINARY.outcome)
    planned = custodian.plan(CausalWorkload(schema), n=2, epsilon=1, delta=0.1)
    assert len(planned.table) == 1
    assert np.isfinite(planned.table.select_dtypes(float).to_numpy()).all()
    assert planned.guesses.sd == (1.0, 1.0)
    constant = Schema(
        arm=SCHEMA.arm, outcome=SCHEMA.outcome, covariates=[Categories("x", ["only"])]
    )
    planned = custodian.plan(CausalWorkload(constant, strata=["x"]), n=99, epsilon=1, delta=1e-3)
    one, two = planned.table["width"]
    assert one == pytest.approx(two, rel=0.1)
    assert isinstance(planned.best, pd.DataFrame)


def test_gaussian_noise_can_be_asked_for():
    options = {"n": 445, "epsilon": 1, "candidates": [["age"]]}
    planned = custodian.plan(WORKLOAD, delta=5e-6, noise="Gaussian", **options)
    one = CausalWorkload(SCHEMA, strata=["age"])
    scale = GaussianMechanism.calibrated(one, epsilon=1.0, delta=5e-6).scale
    assert planned.table["noise"][0] == "Gaussian"
    assert planned.table["noise_in_records"][0] == pytest.approx(scale)
    assert "Noise: Gaussian." in str(planned)
    least = custodian.plan(WORKLOAD, **options)
    assert least.table["width"][0] < 0.85 * planned.table["width"][0]
    assert "Noise: Laplace, which spends no delta." in str(least)
    with pytest.raises(ValueError, match="noise is 'Laplace'"):
        custodian.plan(WORKLOAD, delta=5e-6, noise="Laplace", **options)
    with pytest.raises(ValueError, match="delta is None"):
        custodian.plan(WORKLOAD, noise="Gaussian", **options)
