"""Coordinates that suit the sampler leave the prior as it is."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy.stats import norm

from dpcausal_bayes.models.triangular import upper_matvec
from dpcausal_bayes.models.whitening import GivenWhitening, matvec, whitener

INTERPRETED = Mode(linker="py", optimizer="fast_compile")
MEAN, SD = np.array([0.3, -1.0, 2.0, 0.0]), np.array([0.5, 2.0, 1e-3, 10.0])


def precision(seed=0, p=4):
    root = np.random.default_rng(seed).normal(size=(p, p))
    return root @ root.T + 0.1 * np.eye(p)


def add_normals(sd, location, scale):
    """Add plain normals, seen by the sampler through coordinates that are data."""

    def logp(value, sd, location, scale):
        return pm.logp(pm.Normal.dist(MEAN, sd), value).sum()

    pm.CustomDist(
        "y",
        sd,
        pm.Data("location", location),
        pm.Data("scale", scale),
        logp=logp,
        random=lambda sd, location, scale, rng, size=None: rng.normal(MEAN, sd),
        support_point=lambda rv, size, sd, location, scale: location,
        signature="(p),(p),(p,p)->(p)",
        default_transform=GivenWhitening(),
    )


def make(location=None, scale=None):
    location = np.zeros(4) if location is None else location
    with pm.Model() as model:
        add_normals(SD, location, whitener(precision()) if scale is None else scale)
    return model


def test_whitener_is_an_upper_triangular_root_of_the_inverse():
    several = np.array([precision(seed) for seed in range(3)])
    found = whitener(several)
    np.testing.assert_array_equal(np.tril(found, -1), 0)
    assert np.all(np.diagonal(found, axis1=-2, axis2=-1) > 0)
    np.testing.assert_allclose(found @ found.swapaxes(-1, -2) @ several, [np.eye(4)] * 3, atol=1e-9)


def test_matvec_is_matrix_times_vector():
    rng = np.random.default_rng(0)
    matrix, vector = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4))
    np.testing.assert_allclose(matvec(matrix, vector), np.einsum("cab,cb->ca", matrix, vector))


@pytest.mark.parametrize("seed", range(3))
def test_the_density_is_that_of_plain_normals_wherever_the_coordinates_lie(seed):
    rng = np.random.default_rng(seed)
    location, scale = rng.normal(size=4), whitener(precision(seed))
    model = make(location, scale)
    z = rng.normal(size=4)
    y = location + scale @ z
    wanted = norm(MEAN, SD).logpdf(y).sum()
    point = {"y_whitening__": z}
    plain = model.compile_logp(jacobian=False, mode=INTERPRETED)
    moved = model.compile_logp(mode=INTERPRETED)
    np.testing.assert_allclose(plain(point), wanted, rtol=1e-12)
    stretch = np.linalg.slogdet(scale)[1]
    np.testing.assert_allclose(moved(point), wanted + stretch, rtol=1e-12)
    # other data, same y: only the stretch is another one
    model.set_data("location", location + 1)
    model.set_data("scale", 2 * scale)
    point = {"y_whitening__": np.linalg.solve(2 * scale, y - location - 1)}
    np.testing.assert_allclose(plain(point), wanted, rtol=1e-9)
    np.testing.assert_allclose(moved(point), wanted + stretch + 4 * np.log(2), rtol=1e-9)


def test_forward_and_back_is_where_it_was():
    model = make(location=np.arange(4.0))
    y = model["y"]
    transform, z = model.rvs_to_transforms[y], pt.vector()
    there = transform.backward(z, *y.owner.inputs)
    back = transform.forward(there, *y.owner.inputs)
    point = np.array([1.0, -2.0, 0.5, 3.0])
    np.testing.assert_allclose(back.eval({z: point}, mode=INTERPRETED), point, rtol=1e-12)


def test_a_scale_that_is_itself_unknown_keeps_its_density():
    with pm.Model() as model:
        spread = pm.LogNormal("spread", 0.0, 1.0)
        add_normals(SD * spread, np.ones(4), whitener(precision()))
    z, log_spread = np.array([0.5, -1.0, 0.2, 1.5]), -0.7
    y = np.ones(4) + whitener(precision()) @ z
    wanted = norm(MEAN, SD * np.exp(log_spread)).logpdf(y).sum()
    wanted += norm(0, 1).logpdf(log_spread) - log_spread
    found = model.compile_logp(jacobian=False, mode=INTERPRETED)
    point = {"spread_log__": np.array(log_spread), "y_whitening__": z}
    np.testing.assert_allclose(found(point), wanted, rtol=1e-12)


@pytest.mark.parametrize("mode", [INTERPRETED, "NUMBA"])
def test_upper_product_and_its_gradient(mode):
    """Against numpy; what is below the diagonal plays no part, and a plain layout is not needed."""
    rng = np.random.default_rng(0)
    matrix, vector, weight = rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=5)
    w, x = pt.matrix(), pt.vector()
    product = upper_matvec(w, x)
    gradient = pt.grad((weight * product).sum(), x)
    compute = pytensor.function([w, x], [product, gradient], mode=mode)
    for given in (matrix, np.asfortranarray(matrix), matrix[::-1, ::-1]):
        found = compute(given, vector)
        np.testing.assert_allclose(found[0], np.triu(given) @ vector)
        np.testing.assert_allclose(found[1], np.triu(given).T @ weight)


def test_upper_product_refuses_other_dimensions():
    with pytest.raises(ValueError, match="got 1 and 1 dimensions: a matrix and a vector"):
        upper_matvec(np.ones(3), np.ones(3))
