"""The posterior of a Laplace release, and all that is made of it."""

import numpy as np
import pytest
import xarray as xr
from scipy.linalg import block_diag
from scipy.stats import binomtest

from dpcausal_bayes import custodian, models
from dpcausal_bayes.balance import balance
from dpcausal_bayes.calibration import calibrate
from dpcausal_bayes.designs import MomentDesign
from dpcausal_bayes.direct.moments import plug_in
from dpcausal_bayes.estimands import ATE, ATT, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.imputation import impute
from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.models.confidential_moments import confidential_moments
from dpcausal_bayes.models.moment_noise import noise_labels
from dpcausal_bayes.moments import LATTICE, table_moments
from dpcausal_bayes.overlap import overlap
from dpcausal_bayes.populations.crossed import stratified_population
from dpcausal_bayes.report import report
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.synthesis import synthesize
from dpcausal_bayes.workloads import CausalWorkload
from moment_oracle import dense_moments, random_law
from moment_trees import make_tree
from test_moment_likelihood import check_moments
from test_moment_noise import TURN, make_release

SETTINGS = {"draws": 400, "tune": 400, "chains": 2, "progressbar": False}
STUDY = stratified_population(covariates={"a": 3}, n=2000, heterogeneity=0.1)
WORKLOAD = CausalWorkload(STUDY.schema, strata=["a"])
TABLE = STUDY.draw(1)


def released(epsilon, mechanism=LaplaceMechanism, **budget):
    mechanism = mechanism.calibrated(WORKLOAD, epsilon=epsilon, **budget)
    return simulate_moments(TABLE, WORKLOAD, mechanism, seed=2)


@pytest.fixture(scope="module")
def fitter():
    return Fitter(models.stratified_moments(released(1.0)))


@pytest.fixture(scope="module")
def tree(fitter):
    return fitter.fit(released(1.0), random_seed=1, **SETTINGS)


def test_where_noise_is_small_the_confidential_moments_are_the_release_s(fitter):
    """Within the noise, whatever the model says; and the prior of the mixing is left alone."""
    release = released(100.0)
    tree = fitter.fit(release, random_seed=1, **SETTINGS)
    drawn = confidential_moments(tree, np.random.default_rng(1))
    found = drawn.mean(["chain", "draw"]).values
    noise = WORKLOAD.split(release.noise_scale)[0][0]
    exact = WORKLOAD.split(table_moments(TABLE, WORKLOAD) / LATTICE)[0][0]
    assert noise.max() < 0.1
    assert np.abs((found - release.cells()) / noise).max() < 1.5
    assert np.abs((found - exact) / noise).max() < 5
    assert drawn.std(["chain", "draw"]).max() < 3 * noise.max()
    np.testing.assert_allclose(drawn.sel(part="mass").sum(["arm", "stratum"]), STUDY.n)


@pytest.mark.parametrize("binary", [False, True])
def test_given_the_mixing_confidential_moments_are_conditional_normals(binary):
    release = make_release({"a": 2}, binary=binary, epsilon=0.5)
    share, mean, dispersion = random_law(2, binary=binary)
    mixing = np.random.default_rng(3).exponential(size=release.values.size)
    draws = {"chains": 2, "draws": 10_000}

    def constant(array):
        shape = (draws["chains"], draws["draws"], *array.shape)
        return np.broadcast_to(array, shape).copy()

    spread = None if binary else constant(dispersion)
    tree = make_tree(release, constant(share), constant(mean), spread)
    mixed = (("chain", "draw", "noise"), constant(mixing))
    coords = {"noise": noise_labels(release.workload, 0)}
    tree["posterior"] = xr.DataTree(
        tree["posterior"].dataset.assign_coords(coords).assign(noise_mixing=mixed)
    )
    drawn = confidential_moments(tree, np.random.default_rng(1)).values.reshape(-1, 8)

    first, second = dense_moments(share, mean, dispersion)
    own = 2 * release.mechanism.scale**2 * mixing
    turn = np.eye(8)
    if not binary:
        own[-2:] *= 16  # a quarter of the weight
        turn = block_diag(*[TURN] * 4, np.eye(2))
    noise, n = turn @ np.diag(own) @ turn.T, release.n
    gain = n * second @ np.linalg.inv(n * second + noise)
    centre = n * first + gain @ (release.noisy - n * first)
    covariance = n * second - n * gain @ second
    parts = block_diag(*[TURN] * 4) if binary else np.eye(8, 10)  # counts to mass and outcome
    check_moments(drawn, parts @ centre, parts @ covariance @ parts.T)


def test_mixing_is_learnt_from_the_release(tree):
    mixing = tree["posterior"]["noise_mixing"]
    assert mixing.dims == ("chain", "draw", "noise")
    assert mixing.sizes["noise"] == WORKLOAD.n_queries
    assert tuple(mixing["noise"].values) == tuple(noise_labels(WORKLOAD, 0))
    assert np.all(mixing > 0)
    assert 0.3 < float(mixing.mean()) < 3


def test_all_that_is_made_of_a_posterior_is_made_of_this_one(tree):
    release = released(1.0)
    for population in ("super", "sample"):
        done = estimate(tree, [ATE(), ATT(), ATE(by="a")], population=population)
        effects = done["estimands"].dataset
        truth = float(STUDY.truth(ATE()))
        assert abs(float(effects["ate"].mean()) - truth) < 5 * float(effects["ate"].std())
        shown = report(done)
        assert "ate" in str(shown)
        rows = shown.table
        np.testing.assert_allclose(
            rows["sd"] ** 2, rows["sampling_sd"] ** 2 + rows["privacy_sd"] ** 2, rtol=1e-6
        )
        assert np.all(rows["privacy_sd"] > 0)
    assert len(balance(tree)) == 3
    assert overlap(tree)["seen"].all()
    tables = list(synthesize(tree, release, tables=3, random_seed=1, progressbar=False))
    assert [len(table) for table in tables] == [STUDY.n] * 3
    with pytest.raises(TypeError, match="it must be a LabelRelease"):
        impute(tree, release)


def test_replicated_releases_have_the_noise_of_the_release(tree):
    """Their masses vary by sampling, by the posterior and by Laplace noise, fresh each time."""
    drawn = tree["posterior_predictive"]["release"].values.reshape(-1, WORKLOAD.n_queries)
    sd = released(1.0).noise_scale
    share = tree["posterior"]["share"].values.reshape(-1, 6)
    spread = (STUDY.n * share).var(0) + STUDY.n * (share * (1 - share)).mean(0)
    found = drawn[:, :-2:2].var(0)
    np.testing.assert_allclose(found, spread + sd[:-2:2] ** 2, rtol=0.3)


def test_a_model_is_of_one_kind_of_noise(fitter):
    gaussian = released(1.0, GaussianMechanism, delta=1e-6)
    with pytest.raises(ValueError, match="release has a GaussianMechanism, the model is of a Lapl"):
        fitter.fit(gaussian, random_seed=1, **SETTINGS)
    with pytest.raises(ValueError, match="release has a LaplaceMechanism, the model is of a Gaus"):
        models.stratified_moments(gaussian).release_data(released(1.0))


def test_maximum_entropy_refuses_it():
    with pytest.raises(ValueError, match=r"has Laplace noise, .* stratified_moments"):
        models.maxent_moments(released(1.0))


@pytest.mark.slow
def test_truths_from_the_prior_are_covered():
    """Where noise is most of what is unknown: 60 releases of populations from the prior."""
    study = stratified_population(covariates={"a": 3}, n=300)
    workload = CausalWorkload(study.schema, strata=["a"])
    design = MomentDesign(workload, LaplaceMechanism.calibrated(workload, epsilon=0.3), n=300)
    found = calibrate(
        design, estimands=[ATE(), ATT()], releases=60, seed=1, draws=300, tune=300,
        progressbar=False,
    )  # fmt: skip
    for _, row in found.table.iterrows():
        assert binomtest(round(60 * row["cover_95"]), 60, 0.95).pvalue > 1e-3
        assert binomtest(round(60 * row["cover_50"]), 60, 0.5).pvalue > 1e-3
        assert row["p_uniform"] > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True], ids=["bounded", "binary"])
def test_a_plan_without_delta_predicts_the_intervals(binary):
    study = stratified_population(n=500, effect=0.05, spread=0.1, binary=binary, seed=3)
    workload = CausalWorkload(study.schema, strata=["a", "b"])
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=0.7)
    widths, fitter = [], None
    for seed in range(12):
        release = simulate_moments(study.draw(seed), workload, mechanism, seed=seed)
        fitter = fitter or Fitter(models.stratified_moments(release))
        tree = fitter.fit(release, random_seed=seed, draws=500, chains=2, progressbar=False)
        tree = estimate(tree, [ATE()], population="super")
        low, high = np.quantile(tree["estimands"]["ate"], [0.025, 0.975])
        widths.append(high - low)
    sd = None if binary else np.sqrt(0.05)
    planned = custodian.plan(workload, n=500, epsilon=0.7, candidates=[["a", "b"]], sd=sd).table
    assert planned["noise_in_records"][0] == mechanism.noise_sd(workload)[0]
    assert planned["width"][0] == pytest.approx(np.median(widths), rel=0.2)


def test_a_plan_without_delta_is_of_laplace_noise():
    given = {"n": 2000, "candidates": [["a"]]}
    pure = custodian.plan(WORKLOAD, epsilon=[0.5, 1.0], **given).table
    assert list(pure["noise"]) == ["Laplace"] * 2
    noise = [LaplaceMechanism.calibrated(WORKLOAD, epsilon=e).noise_sd(WORKLOAD) for e in (0.5, 1)]
    np.testing.assert_allclose(pure["noise_in_records"], [sd[0] for sd in noise])
    with pytest.raises(ValueError, match=r"2 groups: .*take a GaussianMechanism"):
        custodian.plan(CausalWorkload(STUDY.schema, groups=["a", []]), n=2000, epsilon=1.0)


def test_the_direct_estimator_counts_its_noise():
    """Its intervals are as wide as its error is, over redrawn noise."""
    mechanism = LaplaceMechanism.calibrated(WORKLOAD, epsilon=0.5)
    found = [
        plug_in(simulate_moments(STUDY.draw(seed), WORKLOAD, mechanism, seed=seed))
        for seed in range(200)
    ]
    estimates = np.array([one.estimate for one in found])
    stated = np.median([np.subtract(*one.interval()[::-1]) / (2 * 1.96) for one in found])
    assert estimates.std() == pytest.approx(stated, rel=0.2)
