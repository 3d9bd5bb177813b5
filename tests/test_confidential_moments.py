"""Draws of the confidential moments against dense conditioning of normals."""

import numpy as np
import pytest

from dpcausal_bayes.models.confidential_moments import confidential_moments
from dpcausal_bayes.models.measurement import pooling
from dpcausal_bayes.models.stratum_laws import StratumLaw, record_moments
from moment_trees import make_release, make_tree, make_workload
from test_moment_potential import MEAN, SHARE, answers, constant

N = 200
DISPERSION = np.array([0.2, 0.3])


def dense_posterior(release, group, dispersion):
    moments = record_moments(StratumLaw(SHARE, MEAN, dispersion), 4, np)
    covariance = (moments.factors * moments.signs) @ moments.factors.T
    order = moments.blocks.shape[-1]
    for j, block in enumerate(moments.blocks):
        own = slice(j * order, (j + 1) * order)
        covariance[own, own] += block
    pooled = pooling(release, group).measurement(release.noisy)
    gain = np.linalg.solve(N * covariance + pooled.noise, N * covariance).T
    mean = N * moments.mean + gain @ (pooled.value - N * moments.mean)
    return mean, N * covariance - gain @ (N * covariance)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("groups", [(("sex", "age"),), (("sex", "age"), ("sex",))])
def test_draws_have_the_conditional_mean_and_covariance(binary, groups):
    workload = make_workload(binary, groups)
    exact = answers(binary)
    if len(groups) > 1:
        cells = exact[:16].reshape(2, 2, 2, 2).sum(2).ravel()
        exact = np.concatenate([exact[:16], cells, exact[16:]])
    release = make_release(workload, exact + 3.0, n=N)
    draws = dict(chains=4, draws=5000)
    dispersion = None if binary else constant(DISPERSION, **draws)
    tree = make_tree(release, constant(SHARE, **draws), constant(MEAN, **draws), dispersion)
    drawn = confidential_moments(tree, np.random.default_rng(1))
    assert drawn.dims == ("chain", "draw", "arm", "stratum", "part")
    mean, covariance = dense_posterior(release, 0, None if binary else DISPERSION)
    if binary:
        turn = np.kron(np.eye(8), np.array([[1.0, 1.0], [-1.0, 1.0]]))
        mean, covariance = turn @ mean, turn @ covariance @ turn.T
    cells = drawn.values.reshape(-1, 16)
    sd = np.sqrt(np.diag(covariance)[:16])
    assert np.abs((cells.mean(0) - mean[:16]) / sd).max() < 5 / np.sqrt(len(cells))
    ratio = np.cov(cells.T) - covariance[:16, :16]
    # the error of a covariance is at most sd sd sqrt(2 / draws)
    assert np.abs(ratio / np.outer(sd, sd)).max() < 5 * np.sqrt(2 / len(cells))
    np.testing.assert_allclose(drawn.sel(part="mass").sum(["arm", "stratum"]), N, rtol=1e-9)


def test_a_model_that_ignores_the_noise_has_the_noisy_moments():
    release = make_release(make_workload(), answers(), n=N)
    tree = make_tree(
        release, constant(SHARE), constant(MEAN), constant(DISPERSION), noise_aware=False
    )
    drawn = confidential_moments(tree, np.random.default_rng(1))
    np.testing.assert_allclose(drawn.values[0, 0].ravel(), release.noisy[:16])
