"""The bounded likelihood as one operator: density and gradient against dense matrices."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from dpcausal_bayes.models.stratum_density import bounded_moments_logp
from moment_oracle import dense_moments, random_law

INTERPRETED = Mode(linker="py", optimizer="fast_compile")
RECORDS = 300.0


def problem(n_strata, rank, seed=0):
    """A law; the blocks of the noise, moments near what is expected, the noise's redundancy."""
    rng = np.random.default_rng(seed)
    law = random_law(n_strata, binary=False, seed=seed)
    size = 4 * n_strata + 2
    root = rng.normal(scale=3, size=(size // 2, 2, 2))
    noise = root @ np.swapaxes(root, 1, 2) + 20 * np.eye(2)
    redundancy = rng.normal(size=(size, rank))
    value = RECORDS * dense_moments(*law)[0] + 5 * rng.normal(size=size)
    return law, noise, value, redundancy


def dense_logp(law, noise, value, redundancy, centred):
    mean, covariance = dense_moments(*law)
    if not centred:
        covariance = covariance + np.outer(mean, mean)
    noise = block_diag(*noise) - redundancy @ redundancy.T
    return multivariate_normal(RECORDS * mean, RECORDS * covariance + noise).logpdf(value)


def compiled(centred, mode=INTERPRETED):
    law = [pt.matrix(), pt.matrix(), pt.vector()]
    noise, value, redundancy = pt.tensor3(), pt.vector(), pt.matrix()
    logp = bounded_moments_logp(*law, value, RECORDS, noise, redundancy, centred)
    outputs = [logp, *pt.grad(logp, [*law, noise])]
    evaluate = pytensor.function([*law, noise, value, redundancy], outputs, mode=mode)
    return lambda law, *data: evaluate(*law, *data)


@pytest.fixture(scope="module", params=[True, False], ids=["centred", "independent"])
def density(request):
    return compiled(request.param), request.param


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("n_strata", [1, 2, 6])
def test_density_is_the_dense_one(density, n_strata, rank):
    evaluate, centred = density
    for seed in range(3):
        given = problem(n_strata, rank, seed)
        np.testing.assert_allclose(evaluate(*given)[0], dense_logp(*given, centred), rtol=1e-10)


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("n_strata", [1, 2, 6])
def test_gradient_is_that_of_the_dense_density(density, n_strata, rank):
    evaluate, centred = density
    law, *data = problem(n_strata, rank)
    rng, step = np.random.default_rng(1), 1e-6
    noise, *data = data
    parameters = [*law, noise]
    for place, gradient in enumerate(evaluate(law, noise, *data)[1:]):
        assert gradient.shape == parameters[place].shape
        for _ in range(3):
            direction = rng.normal(size=gradient.shape)
            if place == 3:  # blocks of a covariance are symmetric
                direction = direction + np.swapaxes(direction, -1, -2)
            ahead, behind = [*parameters], [*parameters]
            ahead[place] = parameters[place] + step * direction
            behind[place] = parameters[place] - step * direction
            slope = dense_logp(ahead[:3], ahead[3], *data, centred)
            slope -= dense_logp(behind[:3], behind[3], *data, centred)
            slope /= 2 * step
            np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("r", [1e-300, 1e-12, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("edge", [0.0, 1 - 1e-12, 1.0])
def test_at_the_ends_density_and_gradient_are_finite(density, edge, r):
    evaluate, _ = density
    share = np.array([[1.0, 0.0], [1e-300, 0.0]])
    mean = np.array([[edge, -edge], [-edge, 0.0]])
    _, *data = problem(2, 1)
    for part in evaluate([share, mean, np.array([r, r])], *data):
        assert np.isfinite(part).all()


def test_wrong_dimensions_and_second_derivatives_are_refused():
    law, noise, value, redundancy = problem(1, 0)
    with pytest.raises(ValueError, match="dimensions"):
        bounded_moments_logp(*law, value[None], RECORDS, noise, redundancy, True)
    share = pt.matrix()
    logp = bounded_moments_logp(share, *law[1:], value, RECORDS, noise, redundancy, True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        pt.grad(pt.grad(logp, share).sum(), share)


@pytest.mark.slow
def test_what_the_sampler_compiles_is_the_same():
    # both kinds in one process: neither may be taken from the other's cache
    for centred in (True, False):
        given = problem(2, 3)
        in_numba = compiled(centred, mode="NUMBA")(*given)
        for found, wanted in zip(in_numba, compiled(centred)(*given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-10)
