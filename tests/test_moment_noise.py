"""Noise as a mixture of normals: against dense matrices, quadrature and Monte Carlo."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy.linalg import block_diag
from scipy.special import logsumexp
from scipy.stats import laplace, qmc

from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.models.moment_likelihood import draw_moments
from dpcausal_bayes.models.moment_noise import draw_noise, noise_blocks, noise_labels
from dpcausal_bayes.models.stratified_moments import stratified_moments
from dpcausal_bayes.moments import LATTICE, make_moment_release
from dpcausal_bayes.populations.crossed import stratified_population
from dpcausal_bayes.simulate import SeededNoise, simulate_moments
from dpcausal_bayes.workloads import CausalWorkload
from moment_oracle import dense_moments, make_schema, random_law
from test_moment_likelihood import check_moments, model_of

INTERPRETED = Mode(linker="py", optimizer="fast_compile")
TURN = np.array([[1.0, 1.0], [-1.0, 1.0]])  # low and high end to mass and outcome sum
SCALE, OF_SQUARES = 3.0, 7.0


def make_release(covariates, *, binary, n=300, epsilon=0.5, seed=1):
    workload = CausalWorkload(make_schema(covariates, binary=binary), strata=list(covariates))
    study = stratified_population(covariates=covariates, n=n, binary=binary, spread=0.1)
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=epsilon)
    return simulate_moments(study.draw(seed), workload, mechanism, seed=seed)


def variances(n_strata, order):
    """Of the queries' noise, for ends of scale SCALE."""
    if order == 1:
        return np.full(4 * n_strata, 2 * SCALE**2)
    return np.concatenate([np.full(4 * n_strata, 4 * SCALE**2), np.full(2, 2 * OF_SQUARES**2)])


def dense_noise(mixing, order):
    """Covariance of the queries' noise given E, from that of the numbers that are noisy."""
    if order == 1:
        return np.diag(2 * SCALE**2 * mixing)
    turn = block_diag(*[TURN] * ((len(mixing) - 2) // 2), np.eye(2))
    own = np.append(np.full(len(mixing) - 2, SCALE), [OF_SQUARES] * 2)
    return turn @ np.diag(2 * own**2 * mixing) @ turn.T


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("n_strata", [1, 3])
def test_blocks_are_those_of_the_dense_covariance(n_strata, order):
    variance = variances(n_strata, order)
    mixing = np.random.default_rng(0).exponential(size=(5, len(variance)))
    blocks = noise_blocks(np.broadcast_to(variance, mixing.shape), mixing, order, np)
    assert blocks.shape == (5, len(variance) // order, order, order)
    for block, one in zip(blocks, mixing, strict=True):
        np.testing.assert_allclose(block_diag(*block), dense_noise(one, order), atol=1e-12)
    graph = noise_blocks(pt.as_tensor(variance), pt.as_tensor(mixing[0]), order, pt)
    np.testing.assert_allclose(graph.eval(mode=INTERPRETED), blocks[0])
    for xp, given in ((np, variance), (pt, pt.as_tensor(variance))):
        plain = noise_blocks(given, None, order, xp)
        plain = plain if xp is np else plain.eval(mode=INTERPRETED)
        np.testing.assert_allclose(block_diag(*plain), np.diag(variance))


@pytest.mark.parametrize("order", [1, 2])
def test_draws_have_the_covariance_of_the_blocks(order):
    variance = variances(2, order)
    mixing = np.random.default_rng(0).exponential(size=len(variance))
    blocks = noise_blocks(variance, mixing, order, np)
    many = np.broadcast_to(blocks, (40_000, *blocks.shape))
    drawn = draw_noise(many, np.random.default_rng(1))
    check_moments(drawn, np.zeros(len(variance)), dense_noise(mixing, order))


STEP = 0.05
ROOT = np.exp(np.arange(-8, 2, STEP))  # E = s^2, in equal steps of log s: smooth, nil at both ends
WEIGHT = 2 * ROOT**2 * np.exp(-(ROOT**2)) * STEP


@pytest.mark.parametrize("x", [0.7, -3.0, 25.0])
def test_a_count_s_noise_is_laplace_once_the_mixing_is_integrated_out(x):
    variance = np.full((len(ROOT), 4), 2 * SCALE**2)
    blocks = noise_blocks(variance, np.repeat(ROOT[:, None] ** 2, 4, axis=1), 1, np)
    own = blocks[:, 2, 0, 0]
    density = np.exp(-(x**2) / (2 * own)) / np.sqrt(2 * np.pi * own)
    assert WEIGHT @ density == pytest.approx(laplace(scale=SCALE).pdf(x), rel=1e-8)


@pytest.mark.parametrize("ends", [(0.7, 2.0), (-4.0, 1.0), (9.0, -12.0)])
def test_both_ends_of_a_cell_have_laplace_noise(ends):
    """A double integral, over the mixing of either end; and a single one for a square."""
    low, high = ends
    k = len(ROOT)
    mixing = np.ones((k * k, 6))
    mixing[:, 2], mixing[:, 3] = np.repeat(ROOT**2, k), np.tile(ROOT**2, k)
    mixing[:, 4] = mixing[:, 3]
    variance = np.broadcast_to(variances(1, 2), mixing.shape)
    blocks = noise_blocks(variance, mixing, 2, np)
    z = np.array([low + high, high - low])
    precise = np.linalg.inv(blocks[:, 1])
    density = np.exp(-0.5 * np.einsum("i,kij,j->k", z, precise, z)) / (2 * np.pi)
    density *= np.sqrt(np.linalg.det(precise))
    law = laplace(scale=SCALE)
    # two to one is the determinant of the turn from ends to mass and outcome sum
    wanted = law.pdf(low) * law.pdf(high) / 2
    assert np.outer(WEIGHT, WEIGHT).ravel() @ density == pytest.approx(wanted, rel=1e-7)
    own = blocks[:k, 2, 0, 0]
    density = np.exp(-(high**2) / (2 * own)) / np.sqrt(2 * np.pi * own)
    assert WEIGHT @ density == pytest.approx(laplace(scale=OF_SQUARES).pdf(high), rel=1e-7)


def log_laplace(noise, release):
    """Exact log-density of the noise of every query, (..., Q), written for mass and outcome sum."""
    scale, weights = release.mechanism.scale, release.workload.weights
    if release.workload.binary:
        return laplace(scale=scale / weights[0]).logpdf(noise).sum(-1)
    mass, outcome = noise[..., :-2:2], noise[..., 1:-2:2]
    end = laplace(scale=scale / weights[0])
    squares = laplace(scale=4 * scale / weights[-1]).logpdf(noise[..., -2:]).sum(-1)
    low, high = end.logpdf((mass - outcome) / 2), end.logpdf((mass + outcome) / 2)
    return (low + high - np.log(2)).sum(-1) + squares


def mean_of_exponentials(logs):
    """Logarithm of a mean (repeats, points), and the standard error of that from the repeats."""
    each = logsumexp(logs, axis=1) - np.log(logs.shape[1])
    return logsumexp(each) - np.log(len(each)), each.std(ddof=1) / np.sqrt(len(each))


@pytest.mark.parametrize("epsilon", [0.7, 1.5])
@pytest.mark.parametrize("binary", [False, True])
def test_the_density_is_the_convolution_with_laplace_noise(binary, epsilon):
    """Average over the mixing, of the model, and over confidential moments, of exact noise.

    Both by scrambled Sobol points, where neither sampling nor noise is much the larger; each of 16
    scrambles is one estimate, and their spread the error of the mean.
    """
    law, n = random_law(1, binary=binary), 30
    workload = CausalWorkload(make_schema({}, binary=binary))
    exact = np.rint(draw_moments(*law, n, np.random.default_rng(0)) * LATTICE).astype(np.int64)
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=epsilon)
    release = make_moment_release(
        workload, mechanism, exact, n, source=SeededNoise(1), non_private=True
    )
    model = model_of(release, 0, law)
    logp = model.compile_fn(model.logp(vars=[model["release"]]), mode=INTERPRETED)
    mean, covariance = dense_moments(*law)
    value, vector = np.linalg.eigh(n * covariance)
    root = vector * np.sqrt(np.maximum(value, 0))  # masses sum to n
    by_mixing, by_moments = [], []
    for seed in range(16):
        mixing = -np.log1p(-qmc.Sobol(len(mean), rng=seed).random(128))
        by_mixing.append([logp({"noise_mixing_log__": np.log(e)}) for e in mixing])
        normal = qmc.MultivariateNormalQMC(np.zeros(len(mean)), rng=seed).random(2**14)
        by_moments.append(log_laplace(release.noisy - n * mean - normal @ root.T, release))
    found, error = mean_of_exponentials(np.array(by_mixing))
    wanted, other = mean_of_exponentials(np.array(by_moments))
    assert max(error, other) < 0.04
    assert abs(found - wanted) < 4 * np.hypot(error, other)


@pytest.mark.parametrize("binary", [False, True])
def test_names(binary):
    release = make_release({"a": 2}, binary=binary)
    model = model_of(release, 0, random_law(2, binary=binary))
    labels = model.coords["noise"]
    assert labels == tuple(noise_labels(release.workload, 0))
    assert len(set(labels)) == release.workload.n_queries
    ends = ("0", "1") if binary else ("low end", "high end")
    assert labels[:4] == tuple(f"a={s}|control|{end}" for s in (0, 1) for end in ends)
    assert model.named_vars_to_dims["noise_mixing"] == ("noise",)
    assert [variable.name for variable in model.free_RVs] == ["noise_mixing"]
    blind = model_of(release, 0, random_law(2, binary=binary), noise_aware=False)
    assert blind.free_RVs == []


@pytest.mark.parametrize("binary", [False, True])
def test_replicated_releases_have_fresh_laplace_noise(binary):
    """Of the release's size whatever the mixing is, and with a Laplace law's heavy tails."""
    release = make_release({"a": 2}, n=400, epsilon=0.02, binary=binary)
    law = random_law(2, binary=binary)
    model = pm.do(model_of(release, 0, law), {"noise_mixing": np.full(release.values.size, 1e-3)})
    draws = pm.draw(model["release"], 6000, random_seed=1, mode=INTERPRETED)
    mean, covariance = dense_moments(*law)
    noise = release.n * covariance + np.diag(release.noise_scale**2)
    z = (draws - release.n * mean) / np.sqrt(np.diag(noise))
    assert np.all(np.abs(z.mean(0)) < 5 / np.sqrt(len(z)))
    kurtosis = np.where(np.arange(z.shape[1]) < 8, 6.0 if binary else 4.5, 6.0)
    assert np.all(np.abs(z.var(0) - 1) < 5 * np.sqrt((kurtosis - 1) / len(z)))
    correlation = np.corrcoef(draws.T) - noise / np.sqrt(np.outer(np.diag(noise), np.diag(noise)))
    assert np.abs(correlation).max() < 5 / np.sqrt(len(z))
    np.testing.assert_allclose((z**4).mean(0), kurtosis, rtol=0.35)  # 3 were it normal


@pytest.mark.parametrize("epsilon", [1e-5, 1e4])
@pytest.mark.parametrize("binary", [False, True])
def test_of_one_record_density_and_gradient_are_finite_at_the_start(binary, epsilon):
    model = stratified_moments(make_release({}, binary=binary, epsilon=epsilon, n=1))
    evaluate = model.compile_fn([model.logp(), model.dlogp()], mode=INTERPRETED)
    for found in evaluate(model.initial_point()):
        assert np.isfinite(found).all()
