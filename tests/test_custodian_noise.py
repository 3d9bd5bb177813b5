"""The operating system's randomness, against its laws."""

import numpy as np
import pytest

from chi_square import assert_law
from dpcausal_bayes.custodian import noise as module
from dpcausal_bayes.custodian.noise import SystemNoise
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.simulate import SeededNoise


@pytest.mark.parametrize("scale", [0.4, 2.0, 60.0])
@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_system_noise_follows_its_law(kind, scale):
    noise = SystemNoise().integers(kind(scale), (100, 200))
    assert noise.dtype == np.int64
    assert_law(noise.ravel(), kind(scale))


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e12])
def test_system_noise_at_the_ends_of_its_range(kind, scale):
    noise = SystemNoise().integers(kind(scale), (500,))
    if scale < 1:
        assert np.all(noise == 0)
    else:
        assert 0.7 < noise.std() / np.sqrt(kind(scale).variance) < 1.4


def test_system_noise_refuses_a_sampler_that_costs_more(monkeypatch):
    """If OpenDP's accounting and the law's disagree, nothing is drawn."""

    make = module.dp.m.make_laplace
    monkeypatch.setattr(
        module.dp.m, "make_laplace", lambda domain, metric, scale: make(domain, metric, scale / 2)
    )
    with pytest.raises(RuntimeError, match="nothing is released"):
        SystemNoise().integers(Laplace(2.0), (3,))


def test_system_words_are_uniform():
    words = SystemNoise().words(400_000)
    assert words.dtype == np.uint64
    for shift in (0, 28, 56):
        assert_law((words >> np.uint64(shift) & np.uint64(255)).astype(int), np.full(256, 1 / 256))


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(1)])
def test_choices_follow_the_exponential_mechanism(source):
    scores = np.array([0, 5, 9, -40], dtype=np.int64)
    weight = np.exp(scores / 10.0)
    drawn = np.array([source.choose(scores, 10.0) for _ in range(4_000)])
    assert_law(drawn, weight / weight.sum())


def test_choices_refuse_a_mechanism_that_costs_more(monkeypatch):
    make = module.dp.m.make_noisy_max
    monkeypatch.setattr(module.dp.m, "make_noisy_max", lambda *args: make(*args[:-1], 3.0))
    with pytest.raises(RuntimeError, match="a choice of scale 10 costs"):
        SystemNoise().choose(np.array([0, 1]), 10.0)
