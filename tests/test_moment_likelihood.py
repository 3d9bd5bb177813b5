"""The density of a moment release against SciPy's on dense matrices, and draws against moments."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy.stats import multivariate_normal

from dpcausal_bayes.models.measurement import pooling
from dpcausal_bayes.models.moment_likelihood import draw_moments, moment_likelihood
from dpcausal_bayes.models.stratum_laws import StratumLaw
from moment_oracle import STRATA, dense_moments, dense_pooling, make_release, random_law

INTERPRETED = Mode(linker="py", optimizer="fast_compile")
GROUPS = {
    "one": ({"a": 3, "b": 2}, None, 0),
    "no covariates": ({}, None, 0),
    "two strata": ({"a": 2}, None, 0),
    "several": ({"a": 3, "b": 2}, ["a", ["b", "a"], "b"], 1),
    "several, the first": ({"a": 3, "b": 2}, ["a", ["b", "a"], "b"], 0),
}
BINARY = [False, True]


def make(design, **options):
    covariates, groups, group = GROUPS[design]
    return make_release(covariates, groups=groups, **options), group


def model_of(release, group, law, *, noise_aware=True):
    """A model of nothing but the likelihood, at a fixed law."""
    law = StratumLaw(*(None if part is None else pt.as_tensor(part) for part in law))
    pooled = pooling(release, group)
    data = {
        "released": pooled.weights @ release.noisy,
        "noise_variance": noise_aware * pooled.variance,
        "records": float(release.n),
    }
    with pm.Model() as model:
        moment_likelihood(release, group, law, data, noise_aware=noise_aware)
    return model


def logp_of(model):
    return float(model.compile_logp(mode=INTERPRETED)({}))


def laws(release, group, seeds=range(3)):
    workload = release.workload
    return [random_law(workload.n_strata(group), binary=workload.binary, seed=s) for s in seeds]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("binary", BINARY)
@pytest.mark.parametrize("design", GROUPS)
def test_density_is_the_dense_normal_s(design, binary, epsilon):
    release, group = make(design, binary=binary, epsilon=epsilon)
    estimator, noise, *_ = dense_pooling(release, group)
    for law in laws(release, group):
        mean, covariance = dense_moments(*law)
        wanted = multivariate_normal(release.n * mean, release.n * covariance + noise).logpdf(
            estimator @ release.noisy
        )
        found = logp_of(model_of(release, group, law))
        np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.parametrize("binary", BINARY)
@pytest.mark.parametrize("design", GROUPS)
def test_the_noise_blind_density_takes_noisy_moments_for_independent_true_ones(design, binary):
    release, group = make(design, binary=binary)
    estimator, *_ = dense_pooling(release, group)
    for law in laws(release, group):
        mean, covariance = dense_moments(*law)
        wanted = multivariate_normal(
            release.n * mean, release.n * (covariance + np.outer(mean, mean))
        ).logpdf(estimator @ release.noisy)
        model = model_of(release, group, law, noise_aware=False)
        np.testing.assert_allclose(logp_of(model), wanted, rtol=1e-8)


@pytest.mark.parametrize("noise_aware", [True, False])
@pytest.mark.parametrize("binary", BINARY)
def test_names_and_data(binary, noise_aware):
    release, group = make("several", binary=binary)
    model = model_of(release, group, laws(release, group)[0], noise_aware=noise_aware)
    queries = release.workload.queries[12:36]  # of the second group
    squares = () if binary else ("square|control", "square|treated")
    assert model.coords["query"] == (*queries, *squares)
    assert model.named_vars_to_dims["release"] == ("query",)
    assert [variable.name for variable in model.observed_RVs] == ["release"]
    assert model.free_RVs == []
    pooled = pooling(release, group)
    value = {name: model[name].get_value() for name in ("records", "released", "noise_aware")}
    assert value["records"] == release.n
    assert value["noise_aware"] == noise_aware
    np.testing.assert_allclose(value["released"], pooled.weights @ release.noisy)
    variance = model["noise_variance"].get_value()
    np.testing.assert_allclose(variance, noise_aware * release.noise_scale[0] ** 2)


def check_moments(draws, mean, covariance):
    """Means, variances and covariances within five standard errors; one in 100,000 would fail."""
    n, sd = len(draws), np.sqrt(np.diag(covariance))
    known = sd > 0
    assert np.all(draws[:, ~known] == mean[~known])
    assert np.all(np.abs(draws.mean(0) - mean)[known] < 5 * sd[known] / np.sqrt(n))
    found = np.cov(draws.T, ddof=0).reshape(covariance.shape)
    error = np.sqrt((np.outer(sd, sd) ** 2 + covariance**2) / n)
    assert np.all(np.abs(found - covariance) <= 5 * error + 1e-9)


@pytest.mark.parametrize("binary", BINARY)
@pytest.mark.parametrize("n_strata", STRATA)
def test_drawn_moments_have_the_moments_of_the_records(n_strata, binary):
    law = random_law(n_strata, binary=binary)
    n, mean, covariance = 400, *dense_moments(*law)
    batch = [None if part is None else np.broadcast_to(part, (40_000, *part.shape)) for part in law]
    draws = draw_moments(*batch, n, np.random.default_rng(1))
    check_moments(draws, n * mean, n * covariance)
    mass = draws[:, : 4 * n_strata] if binary else draws[:, : 4 * n_strata : 2]
    np.testing.assert_array_equal(mass.sum(1), n)
    assert np.all((mass >= 0) & (mass == np.round(mass)))


@pytest.mark.parametrize("binary", BINARY)
def test_a_batch_of_laws_gives_each_its_own_draw(binary):
    several = [random_law(2, binary=binary, seed=s) for s in range(6)]
    parts = [None if binary and k == 2 else np.array([law[k] for law in several]) for k in range(3)]
    batch = [None if part is None else part.reshape(2, 3, *part.shape[1:]) for part in parts]
    n = 10**9  # so many that a draw is its mean
    draws = draw_moments(*batch, n, np.random.default_rng(0))
    wanted = np.array([dense_moments(*law)[0] for law in several])
    np.testing.assert_allclose(draws.reshape(6, -1) / n, wanted, atol=1e-3)


@pytest.mark.parametrize("r", [1e-300, 1e-16, 1e-9, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("edge", [0.0, 0.5, 1 - 1e-9, 1.0])
def test_extreme_laws_give_finite_draws(edge, r):
    share = np.array([[1.0, 0.0], [0.0, 0.0]])
    mean = np.array([[edge, -edge], [edge, 0.0]])
    rng = np.random.default_rng(0)
    draw = draw_moments(share, mean, np.array([r, r]), 1000, rng)
    assert np.isfinite(draw).all()
    np.testing.assert_array_equal(draw[[0, 2, 4, 6]], [1000, 0, 0, 0])
    np.testing.assert_array_equal(draw[[3, 5, 7, 9]], 0)  # nobody there
    sd = np.sqrt(1000 * r * (1 - edge**2))
    assert abs(draw[1] - 1000 * edge) <= 5 * sd + 1e-9


@pytest.mark.parametrize("noise_aware", [True, False])
@pytest.mark.parametrize("binary", BINARY)
@pytest.mark.parametrize("design", ["two strata", "several, the first"])
def test_replicated_releases_have_sampling_and_pooled_noise(design, binary, noise_aware):
    release, group = make(design, n=400, scale=12.0, binary=binary)
    law = laws(release, group)[0]
    model = model_of(release, group, law, noise_aware=noise_aware)
    with model:
        draws = pm.draw(model["release"], 3000, random_seed=1, mode=INTERPRETED)
    mean, covariance = dense_moments(*law)
    noise = noise_aware * dense_pooling(release, group)[1]
    check_moments(draws, release.n * mean, release.n * covariance + noise)
