"""Closed forms of a causal release: pandas' answers without noise, and honest standard errors."""

import functools

import numpy as np
import pytest

from dpcausal_bayes.columns import Arm, Levels
from dpcausal_bayes.direct.moments import aipw, ipw, plug_in
from dpcausal_bayes.direct.sampling import within_variance
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.populations.crossed import stratified_population
from dpcausal_bayes.populations.labels import binary_population
from dpcausal_bayes.populations.strata import StratifiedPopulation
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments, simulate_release
from dpcausal_bayes.workloads import CausalWorkload

CLIP = (0.3, 0.6)
ESTIMANDS = [ATE(), ATT(), ATC()]
BOUNDED = stratified_population(
    covariates={"a": 3, "b": 2}, n=3000, confounding=0.8, effect=6.0, heterogeneity=5.0,
    low=-20.0, high=60.0, seed=5,
)  # fmt: skip
BINARY = StratifiedPopulation(
    schema=Schema(
        arm=Arm("treated", control=0, treated=1),
        outcome=Levels("y", ["yes", "no"], values=[3, 1]),
        covariates=BOUNDED.schema.covariates,
    ),
    n=3000,
    share=BOUNDED.share,
    propensity=BOUNDED.propensity,
    mean=2 + (BOUNDED.mean - 20) / 40,
)
STUDIES = pytest.mark.parametrize("study", [BOUNDED, BINARY], ids=["bounded", "binary"])
EACH = pytest.mark.parametrize("estimand", ESTIMANDS, ids=lambda one: one.name)


def release_of(values, workload, n, scale):
    """Wrap values, in records, as a release whose noise has some scale."""
    mechanism = GaussianMechanism(scale=scale, sensitivity=workload.sensitivity, delta=1e-6)
    table = stratified_population(covariates={}, n=2).draw(1)
    one = CausalWorkload(stratified_population(covariates={}).schema)
    blank = simulate_moments(
        table, one, GaussianMechanism.calibrated(one, epsilon=1, delta=0.1), seed=1
    )
    fields = {field: getattr(blank, field) for field in blank.__struct_fields__}
    fields |= {"workload": workload, "mechanism": mechanism, "n": n, "loss": mechanism.loss()}
    fields["values"] = np.round(np.asarray(values) * LATTICE).astype(np.int64)
    return type(blank)(**fields)


def exact_release(study, seed=1, scale=1e-3):
    """Return a table and the release of its exact moments."""
    table, workload = study.draw(seed), study.workload
    exact = table_moments(table, workload) / LATTICE
    return table, release_of(exact, workload, len(table), scale)


def scored(table):
    """Return arm, outcome and stratum of each record, as numbers."""
    value = table["y"].map({"yes": 3.0, "no": 1.0}) if table["y"].dtype == "str" else table["y"]
    return table.assign(y=value.to_numpy(float), stratum=2 * table["a"] + table["b"])


def records_of(estimand, arm):
    """Return the weight of each record in the estimand."""
    return {"ate": np.ones(len(arm)), "att": arm, "atc": 1 - arm}[estimand.name]


def by_records(method, table, estimand, clip):
    """Estimate from the records themselves, with least squares for the regression."""
    table = scored(table)
    arm, y = table["treated"].to_numpy(float), table["y"].to_numpy()
    w = records_of(estimand, arm)
    if method is plug_in:
        mean = table.pivot_table(index="stratum", columns="treated", values="y")
        return np.average((mean[1] - mean[0]).loc[table["stratum"]], weights=w)
    e = table.groupby("stratum")["treated"].transform("mean").clip(*clip).to_numpy()
    target = {"ate": 1, "att": e, "atc": 1 - e}[estimand.name]
    r1, r0 = arm * target / e, (1 - arm) * target / (1 - e)
    if method is ipw:
        return np.average(y, weights=r1) - np.average(y, weights=r0)
    design = np.stack([np.ones(len(y)), table["a"] == 1, table["a"] == 2, table["b"]], axis=1)
    design = design.astype(float)
    fit = [design @ np.linalg.lstsq(design[arm == t], y[arm == t])[0] for t in (0, 1)]
    score = w * (fit[1] - fit[0]) + r1 * (y - fit[1]) - r0 * (y - fit[0])
    return score.sum() / w.sum()


@STUDIES
@EACH
@pytest.mark.parametrize("method", [plug_in, ipw, aipw], ids=lambda method: method.__name__)
@pytest.mark.parametrize("clip", [(0.0, 1.0), CLIP], ids=["whole", "clipped"])
def test_without_noise_it_is_the_records_answer(study, estimand, method, clip):
    table, release = exact_release(study)
    options = {} if method is plug_in else {"clip": clip}
    found = method(release, estimand=estimand, **options)
    assert found.estimate == pytest.approx(by_records(method, table, estimand, clip), rel=2e-6)
    assert found.estimand == estimand.name
    assert found.excluded == ()
    if method is not plug_in:
        assert found.table["clipped"].sum() == (4 if clip == CLIP else 0)


@STUDIES
@EACH
def test_plug_in_is_what_the_strata_define(study, estimand):
    table, release = exact_release(study)
    wanted = float(table_contrast(estimand, table, study.workload))
    assert plug_in(release, estimand=estimand).estimate == pytest.approx(wanted, rel=1e-9)


@STUDIES
@EACH
def test_the_three_agree_where_nothing_is_clipped(study, estimand):
    mechanism = GaussianMechanism.calibrated(study.workload, epsilon=2.0, delta=1e-6)
    release = simulate_moments(study.draw(2), study.workload, mechanism, seed=2)
    plain = plug_in(release, estimand=estimand)
    for method in (ipw, aipw):
        found = method(release, estimand=estimand)
        assert not found.table["clipped"].any()
        got = [found.estimate, found.variance, found.noise_variance]
        np.testing.assert_allclose(
            got, [plain.estimate, plain.variance, plain.noise_variance], rtol=1e-8
        )
    found = {method: method(release, estimand=estimand, clip=CLIP) for method in (ipw, aipw)}
    gap = {method: abs(one.estimate - plain.estimate) for method, one in found.items()}
    assert gap[ipw] > gap[aipw] > 0


def test_aipw_with_one_covariate_is_the_plug_in_even_when_clipped():
    workload = CausalWorkload(BOUNDED.schema, strata=["a"])
    mechanism = GaussianMechanism.calibrated(workload, epsilon=2.0, delta=1e-6)
    release = simulate_moments(BOUNDED.draw(2), workload, mechanism, seed=2)
    found, plain = aipw(release, clip=(0.49, 0.51)), plug_in(release)
    assert found.table["clipped"].sum() >= 2
    assert found.estimate == pytest.approx(plain.estimate)
    assert found.variance == pytest.approx(plain.variance)


@STUDIES
@EACH
def test_sampling_variance_by_hand(study, estimand):
    table, release = exact_release(study)
    found = plug_in(release, estimand=estimand)
    table = scored(table)
    w = table.assign(w=records_of(estimand, table["treated"])).groupby("stratum")["w"].sum()
    cells = table.groupby(["stratum", "treated"])["y"]
    effect = cells.mean().unstack()[1] - cells.mean().unstack()[0]
    if study is BINARY:
        within = cells.var(ddof=0).unstack()
    else:  # one variance an arm
        residual = table["y"] - cells.transform("mean")
        squares = (residual**2).groupby(table["treated"]).sum()
        within = squares / (table.groupby("treated").size() - 6)
    share, size = w / w.sum(), cells.size().unstack()
    wanted = (share**2 * (within / size).sum(axis=1)).sum()
    # which strata the records fall into is random too
    wanted += (share * (effect - found.estimate) ** 2).sum() / w.sum()
    assert found.variance == pytest.approx(wanted, rel=2e-5)
    assert found.noise_variance < 1e-6 * wanted


def test_noise_variance_by_hand():
    workload = CausalWorkload(BOUNDED.schema)
    # 60 controls of mean 30, 40 treated of mean 0: scaled 0.25 and -0.5
    release = release_of([60, 15, 40, -20, -10, 0], workload, 100, 3.0)
    noise = 40**2 * 9 * ((1 + 0.25**2) / 60**2 + (1 + 0.5**2) / 40**2)
    found = plug_in(release)
    assert found.estimate == pytest.approx(-30)
    assert found.noise_variance == pytest.approx(noise)
    workload = CausalWorkload(BINARY.schema)
    release = release_of([15, 45, 30, 10], workload, 100, 3.0)  # yes is 3, no is 1
    found = plug_in(release)
    assert found.estimate == pytest.approx(1.0)
    noise = 9 * (1.5**2 + 0.5**2) * (1 / 60**2 + 1 / 40**2)
    assert found.noise_variance == pytest.approx(noise)
    sampling = 4 * 0.25 * 0.75 * (1 / 60 + 1 / 40)
    assert found.variance == pytest.approx(sampling + noise)


def test_each_group_has_its_own_noise_and_strata():
    groups = CausalWorkload(BOUNDED.schema, groups=["a", ["b", "a"]], group_weights=[1, 2])
    mechanism = GaussianMechanism.calibrated(groups, epsilon=4.0, delta=1e-6)
    table = BOUNDED.draw(2)
    release = simulate_moments(table, groups, mechanism, seed=2)
    for group, strata in enumerate([["a"], ["b", "a"]]):
        found = plug_in(release, group=group)
        assert tuple(found.table.index) == groups.strata(group)
        alone = CausalWorkload(BOUNDED.schema, strata=strata)
        exact = float(table_contrast(ATE(), table, alone))
        assert abs(found.estimate - exact) < 4 * found.noise_variance**0.5
    assert not np.isclose(exact, found.estimate, rtol=1e-6)
    double = release_of(release.noisy, groups, release.n, 2 * mechanism.scale)
    assert plug_in(double, group=1).noise_variance == pytest.approx(4 * found.noise_variance)


RUNS = 300
METHODS = {
    "plug_in": plug_in,
    "ipw": functools.partial(ipw, clip=CLIP),
    "aipw": functools.partial(aipw, clip=CLIP),
}


@functools.cache
def studied(binary):
    """Return estimates and variances, (runs, method, estimand, 3), of new tables and noise."""
    study = BINARY if binary else BOUNDED
    mechanism = GaussianMechanism.calibrated(study.workload, epsilon=2.0, delta=1e-6)
    rows = []
    for seed in range(RUNS):
        release = simulate_moments(study.draw(seed), study.workload, mechanism, seed=seed + 10_000)
        found = [[f(release, estimand=one) for one in ESTIMANDS] for f in METHODS.values()]
        rows.append(
            [[(one.estimate, one.variance, one.noise_variance) for one in row] for row in found]
        )
    return np.array(rows)


def expected(study, method, estimand):
    """Return the method's answer to the population's own moments."""
    cells = study.n * study.share * np.stack([1 - study.propensity, study.propensity])
    if study is BINARY:
        yes = (study.mean - 1) / 2
        parts = [cells * yes, cells * (1 - yes)]
        squares = []
    else:
        parts = [cells, cells * (study.mean - 20) / 40]
        squares = [0.0, 0.0]
    values = [*np.stack(parts, axis=-1).ravel(), *squares]
    return method(release_of(values, study.workload, study.n, 1e-3), estimand=estimand).estimate


@STUDIES
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("estimand", range(3), ids=[one.name for one in ESTIMANDS])
def test_standard_errors_are_the_spread_of_the_estimates(study, method, estimand):
    runs = studied(study is BINARY)[:, list(METHODS).index(method), estimand]
    wanted = expected(study, METHODS[method], ESTIMANDS[estimand])
    spread = runs[:, 0].std(ddof=1)
    assert abs(runs[:, 0].mean() - wanted) < 4 * spread / np.sqrt(RUNS)
    if method == "plug_in":
        truth = float(study.truth(ESTIMANDS[estimand]))
        assert wanted == pytest.approx(truth, rel=1e-4)
    if study is BOUNDED and method == "plug_in":  # judged where noise matters
        assert 0.3 < runs[:, 2].mean() / runs[:, 1].mean() < 0.7
    # four Monte Carlo errors of a standard deviation, and 3 % for what the delta method leaves out
    stated = np.sqrt(runs[:, 1].mean())
    assert abs(stated / spread - 1) < 4 / np.sqrt(2 * RUNS) + 0.03


def test_the_variance_within_strata_is_freed_of_noise():
    table, exact = exact_release(BOUNDED)
    wanted = within_variance(exact, 0)
    mechanism = GaussianMechanism.calibrated(BOUNDED.workload, epsilon=1.0, delta=1e-6)
    found = [
        within_variance(simulate_moments(table, BOUNDED.workload, mechanism, seed=seed), 0)
        for seed in range(400)
    ]
    gap = np.mean(found, axis=0) - wanted
    assert np.all(np.abs(gap) < 4 * np.std(found, axis=0) / 20 + 0.01 * wanted)
    # strata with too few records for a mean of their own are taken to have the arm's
    crossed = stratified_population(covariates={"a": 6, "b": 5}, n=1000, spread=0.0)
    mechanism = GaussianMechanism.calibrated(crossed.workload, epsilon=1.0, delta=1e-6)
    found = [
        within_variance(simulate_moments(crossed.draw(s), crossed.workload, mechanism, seed=s), 0)
        for s in range(200)
    ]
    wanted = 0.2 * (1 - ((crossed.mean[:, 0] - 0.5) / 0.5) ** 2)
    assert np.all(np.abs(np.mean(found, axis=0) - wanted) < 4 * np.std(found, axis=0) / 14)


def test_an_unknown_variance_is_the_largest_there_can_be():
    workload = CausalWorkload(BOUNDED.schema)
    release = release_of([60, 15, 40, -20, -20, -8], workload, 100, 9.0)
    within = within_variance(release, 0)
    noise = 81 * (1 + 0.25**2) / 60
    assert within[0] == pytest.approx((-20 + 30 - 60 * 0.25**2 + noise) / 59)
    assert within[1] == 1.0
    one_each = release_of([1, 0.5, 1, 0.5, -0.25, -0.25], workload, 2, 1e-3)
    assert within_variance(one_each, 0).tolist() == [1.0, 1.0]


def test_strata_that_noise_leaves_without_an_arm_are_named():
    workload = CausalWorkload(BOUNDED.schema, strata=["a"])
    cells = [[[50, 10], [20, 5], [30, 3]], [[40, 20], [-2, 4], [35, 7]]]
    release = release_of([*np.ravel(cells), 0, 0], workload, 173, 2.0)
    effect = 40 * np.array([20 / 40 - 10 / 50, 7 / 35 - 3 / 30])
    for estimand, weight in ((ATE(), [90, 65]), (ATT(), [40, 35]), (ATC(), [50, 30])):
        for method in (plug_in, ipw, aipw):
            found = method(release, estimand=estimand)
            assert found.excluded == ("a=1",)
            assert list(found.table.index) == ["a=0", "a=2"]
            assert found.estimate == pytest.approx(np.average(effect, weights=weight))
            assert "; 1 strata left out" in repr(found)
            assert np.isfinite(found.standard_error)
    drowned = release_of(-np.abs([*np.ravel(cells), 0, 0]), workload, 173, 2.0)
    for method in (plug_in, ipw, aipw):
        with pytest.raises(ValueError, match="none of the 3 strata has a positive noisy mass"):
            method(drowned)


def test_a_stratum_less_makes_the_regression_no_worse():
    workload = CausalWorkload(BOUNDED.schema, strata=["a", "b"])
    mass = np.array([[50, 20, 30, 0, 25, 0], [40, 30, 35, -1, 20, -3.0]])  # b = 1 but for a = 0
    total = mass * np.array([[0.1, 0.2, 0.3, 0, 0.5, 0], [0.3, 0.1, 0.4, 0, 0.2, 0]])
    release = release_of([*np.stack([mass, total], axis=-1).ravel(), 0, 0], workload, 250, 1.0)
    found = aipw(release, clip=CLIP)
    assert found.excluded == ("a=1, b=1", "a=2, b=1")
    assert found.estimate == pytest.approx(plug_in(release).estimate)


@pytest.mark.parametrize("method", [plug_in, ipw, aipw], ids=lambda method: method.__name__)
def test_bad_input(method):
    release = exact_release(BOUNDED)[1]
    with pytest.raises(TypeError, match="estimand is 'ate': it must be ATE"):
        method(release, estimand="ate")
    with pytest.raises(TypeError, match="estimand is <class"):
        method(release, estimand=ATE)
    with pytest.raises(ValueError, match="'ate_by_a': a closed form gives one number"):
        method(release, estimand=ATE(by="a"))
    for group in (1, -1, True, "a", None):
        with pytest.raises(ValueError, match="the workload's groups are 0 to 0"):
            method(release, group=group)
    trial = binary_population()
    labels = simulate_release(
        trial.draw(1), trial.schema, ClusterDP.calibrated(trial.schema, epsilon=1.0), seed=1
    )
    with pytest.raises(TypeError, match="it must be a MomentRelease; the closed forms of a label"):
        method(labels)


@pytest.mark.parametrize("method", [ipw, aipw], ids=lambda method: method.__name__)
def test_bad_clipping(method):
    release = exact_release(BOUNDED)[1]
    for clip in ((0.9, 0.1), (-0.1, 0.9), (0.1, 1.1), (0.5, 0.5), (np.nan, 0.9)):
        with pytest.raises(ValueError, match="0 <= low < high <= 1"):
            method(release, clip=clip)
    for clip in (0.1, (0.1, 0.2, 0.3), None, ("a", "b")):
        with pytest.raises((TypeError, ValueError), match="must be two numbers"):
            method(release, clip=clip)
