"""Noise laws on the integers: exact identities."""

import numpy as np
import pytest
from scipy import stats

from dpcausal_bayes.laws import Gaussian, Laplace

SCALES = [1e-3, 0.05, 0.3, 0.99, 1.0, 2.5, 40.0]


def support(scale):
    reach = int(60 * scale) + 60
    return np.arange(-reach, reach + 1)


def brute_force_log_pmf(law, k):
    kernel = -np.abs(k) / law.scale if isinstance(law, Laplace) else -0.5 * (k / law.scale) ** 2
    return kernel - np.logaddexp.reduce(kernel)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_log_pmf_is_the_normalised_kernel(kind, scale):
    k = support(scale)
    np.testing.assert_allclose(
        kind(scale).log_pmf(k), brute_force_log_pmf(kind(scale), k), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("scale", [0.05, 1.0, 40.0])
def test_laplace_agrees_with_scipy(scale):
    k = np.arange(-30, 31)
    expected = stats.dlaplace(1 / scale)
    np.testing.assert_allclose(
        Laplace(scale).log_pmf(k), expected.logpmf(k), rtol=1e-10, atol=1e-12
    )
    assert Laplace(scale).variance == pytest.approx(expected.var(), rel=1e-10)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_variance_is_that_of_the_discrete_law(kind, scale):
    k = support(scale)
    exact = np.sum(np.exp(brute_force_log_pmf(kind(scale), k)) * k.astype(float) ** 2)
    assert kind(scale).variance == pytest.approx(exact, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_log_pmf_is_stable_far_out(kind):
    assert np.all(np.isfinite(kind(1e12).log_pmf([0, 10**15])))
    assert np.all(np.isfinite(kind(1e-9).log_pmf([0, 10**15])))
    assert kind(1e-9).log_pmf(0) == 0
    assert kind(1e12).variance == pytest.approx(1e24 * (2 if kind is Laplace else 1))


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_noise_lives_on_the_integers(kind):
    with pytest.raises(TypeError, match="whole numbers"):
        kind(1.0).log_pmf([0.5])
    np.testing.assert_array_equal(kind(1.0).log_pmf([2.0]), kind(1.0).log_pmf([2]))


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), 1e-10, 1e13])
def test_bad_scales_are_named(kind, scale):
    with pytest.raises(ValueError, match=f"{kind.__name__}.scale is"):
        kind(scale)
