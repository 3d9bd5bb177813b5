"""One compilation, many releases: what a refit gives is what a fit gives."""

import numpy as np
import pymc as pm
import pytest

from dpcausal_bayes import models
from dpcausal_bayes.estimands import ATE, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.fitting import fit
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.populations import binary_population, stratified_population
from dpcausal_bayes.simulate import simulate_moments, simulate_release
from dpcausal_bayes.workloads import CausalWorkload

STUDY = stratified_population(covariates={}, n=2000)
WORKLOAD = CausalWorkload(STUDY.schema)
SETTINGS = {"draws": 500, "tune": 300, "chains": 4, "progressbar": False}


def release_of(seed, epsilon=1.0, workload=WORKLOAD):
    mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=1e-6)
    return simulate_moments(STUDY.draw(seed), workload, mechanism, seed=seed)


@pytest.fixture(scope="module")
def fitter():
    return Fitter(models.stratified_moments(release_of(0)))


def layout(tree):
    """Names, dims and sizes of every variable of every group."""
    return {
        node.name: {str(k): (v.dims, v.shape) for k, v in node.variables.items()}
        for node in tree.children.values()
    }


def test_a_refit_is_a_fit_of_that_release(fitter):
    release = release_of(1, epsilon=0.5)
    fitter.fit(release_of(2), random_seed=1, **SETTINGS)
    again = fitter.fit(release, random_seed=1, **SETTINGS)
    alone = fit(models.stratified_moments(release), release, random_seed=2, **SETTINGS)
    posterior, expected = again["posterior"].dataset, alone["posterior"].dataset
    assert layout(again) == layout(alone)
    for name in ("share", "mean", "dispersion"):
        sd = expected[name].std(["chain", "draw"])
        difference = posterior[name].mean(["chain", "draw"]) - expected[name].mean(
            ["chain", "draw"]
        )
        # two means of at least 500 effective draws each
        assert float((abs(difference) / sd).max()) < 4.5 * np.sqrt(2 / 500)
    effects = [estimate(tree, [ATE()], population="sample") for tree in (again, alone)]
    assert [tree["estimands"]["ate"].dims for tree in effects] == [("chain", "draw")] * 2
    assert again.attrs["manifest"] != alone.attrs["manifest"]  # the seed
    np.testing.assert_array_equal(
        again["observed_data"]["release"], alone["observed_data"]["release"]
    )


def test_replicated_releases_can_be_left_out(fitter):
    whole, short = (
        fitter.fit(release_of(3), random_seed=7, replicates=replicates, **SETTINGS)
        for replicates in (True, False)
    )
    assert set(whole.children) - set(short.children) == {"posterior_predictive"}
    np.testing.assert_array_equal(whole["posterior"]["mean"], short["posterior"]["mean"])


def test_equal_seeds_give_equal_draws(fitter):
    first, _, third = (
        fitter.fit(release_of(seed), random_seed=7, **SETTINGS) for seed in (3, 4, 3)
    )
    np.testing.assert_array_equal(first["posterior"]["mean"], third["posterior"]["mean"])
    np.testing.assert_array_equal(
        first["posterior_predictive"]["release"], third["posterior_predictive"]["release"]
    )


def test_a_release_of_another_design_is_refused(fitter):
    other = CausalWorkload(STUDY.schema, square_weight=0.5)
    with pytest.raises(ValueError, match="another design"):
        fitter.fit(release_of(1, workload=other), **SETTINGS)
    with pytest.raises(ValueError, match="another design"):
        fitter.fit("release", **SETTINGS)


def test_models_that_no_factory_made_are_refused():
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(ValueError, match=r"factory in dpcausal_bayes\.models"):
        Fitter(model)
    with pytest.raises(TypeError, match=r"pass a pymc\.Model"):
        Fitter("model")


def test_backends(fitter):
    with pytest.raises(ValueError, match="backend is 'c'"):
        Fitter(fitter.model, backend="c")
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match="cannot compile this model"):
        Fitter(fitter.model, backend="jax")


@pytest.mark.slow
def test_jax_gives_the_same_posterior():
    pytest.importorskip("jax")
    trial = binary_population(clusters=3, units_per_cluster=200)
    mechanism = ClusterDP.calibrated(trial.schema, epsilon=1.0)
    releases = [
        simulate_release(trial.draw(seed), trial.schema, mechanism, seed=seed) for seed in (1, 2)
    ]
    means, sds = [], []
    for backend in ("numba", "jax"):
        refit = Fitter(models.cluster_labels(releases[0]), backend=backend)
        share = refit.fit(releases[1], random_seed=1, **SETTINGS)["posterior"]["share"]
        means.append(share.mean(["chain", "draw"]))
        sds.append(share.std(["chain", "draw"]))
    difference = abs(means[0] - means[1]) / sds[0]
    assert float(difference.max()) < 4.5 * np.sqrt(2 / 500)
