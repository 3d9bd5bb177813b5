"""The shared likelihood against dense linear algebra."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from dpcausal_bayes.models.noise import low_rank_normal_draw, low_rank_normal_logp

INTERPRETED = "FAST_COMPILE"
# order of the blocks, signs of the factors
SHAPES = [(1, [1, -1]), (2, [-1]), (3, [1, 1, -1]), (2, []), (1, [1, 1, 1, 1, -1])]


def problem(order, signs, seed=0):
    rng = np.random.default_rng(seed)
    n, groups, rank = 3, 4, len(signs)
    p = order * groups
    root = rng.normal(size=(n, groups, order, order))
    blocks = root @ np.swapaxes(root, -1, -2) + 2 * np.eye(order)
    signs = np.array(signs, dtype=float)
    factors = rng.normal(size=(n, p, rank)) * np.where(signs > 0, 1.0, 0.2)
    return rng.normal(size=(n, p)), blocks, factors, signs


def dense(blocks, factors, signs):
    pairs = zip(blocks, factors, strict=True)
    return np.array([block_diag(*b) + u @ np.diag(signs) @ u.T for b, u in pairs])


def dense_logp(residual, blocks, factors, signs):
    covariances = dense(blocks, factors, signs)
    return np.array(
        [
            multivariate_normal(np.zeros(len(r)), c).logpdf(r)
            for r, c in zip(residual, covariances, strict=True)
        ]
    )


@pytest.fixture(scope="module")
def compiled():
    r, b, u, s = pt.matrix(), pt.tensor4(), pt.tensor3(), pt.vector()
    logp = low_rank_normal_logp(r, b, u, s)
    gradients = pt.grad(logp.sum(), [r, b, u])
    return pytensor.function([r, b, u, s], [logp, *gradients], mode=INTERPRETED)


@pytest.mark.parametrize(("order", "signs"), SHAPES)
def test_density_is_the_dense_one(compiled, order, signs):
    args = problem(order, signs)
    np.testing.assert_allclose(compiled(*args)[0], dense_logp(*args), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("order", "signs"), SHAPES)
def test_gradient_is_that_of_the_dense_density(compiled, order, signs):
    *args, signs = problem(order, signs)
    gradients = compiled(*args, signs)[1:]
    rng, step = np.random.default_rng(1), 1e-5
    for place, gradient in enumerate(gradients):
        direction = rng.normal(size=gradient.shape)
        if place == 1:  # a covariance's blocks are symmetric
            direction = direction + np.swapaxes(direction, -1, -2)
        ahead, behind = ([*args] for _ in range(2))
        ahead[place] = args[place] + step * direction
        behind[place] = args[place] - step * direction
        slope = (dense_logp(*ahead, signs) - dense_logp(*behind, signs)).sum() / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("order", "signs"), SHAPES)
def test_draw_is_the_dense_conditional(order, signs):
    x, blocks, factors, signs = problem(order, signs)
    rng = np.random.default_rng(2)
    root = rng.normal(size=blocks.shape)
    noise_blocks = root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(order)
    before, noise = rng.normal(size=(2, *x.shape))
    drawn = low_rank_normal_draw(before, noise, x, blocks, factors, signs, noise_blocks)
    covariances = dense(blocks, factors, signs)
    for j, c in enumerate(covariances):
        d = block_diag(*noise_blocks[j])
        gain = c @ np.linalg.inv(c + d)
        wanted = before[j] + gain @ (x[j] - before[j] - noise[j])
        np.testing.assert_allclose(drawn[j], wanted, atol=1e-10)
        # which has the conditional covariance, since before and noise are independent
        shrunk = np.eye(len(c)) - gain
        law = shrunk @ c @ shrunk.T + gain @ d @ gain.T
        np.testing.assert_allclose(law, c - gain @ c, atol=1e-10)


def test_a_covariance_that_is_not_positive_definite_has_no_density(compiled):
    r, b, u, s = problem(1, [-1])
    assert np.isnan(compiled(r, b, 100 * u, s)[0]).all()


def test_wrong_dimensions_are_refused():
    with pytest.raises(ValueError, match="dimensions"):
        low_rank_normal_logp(np.zeros(3), np.ones((1, 3, 1, 1)), np.zeros((1, 3, 0)), np.zeros(0))
