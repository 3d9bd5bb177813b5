"""Cluster-DP: exact identities."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpcausal_bayes.columns import Arm, Levels
from dpcausal_bayes.mechanisms import ClusterDP, Gaussian, Laplace
from dpcausal_bayes.privatise import privatise_labels, thresholds
from dpcausal_bayes.schema import Schema


def schema_of(n_levels):
    return Schema(arm=Arm("a", control=0, treated=1), outcome=Levels("y", list(range(n_levels))))


def adversarial_counts(rng, n_cells, n_levels):
    """Counts that are ordinary, huge, tiny, all negative, all alike, or one against the rest."""
    tables = [
        rng.integers(-50, 50, (n_cells, n_levels)),
        rng.integers(-(10**15), 10**15, (n_cells, n_levels)),
        np.where(rng.random((n_cells, n_levels)) < 0.5, 10**15, 1),
        -rng.integers(0, 9, (n_cells, n_levels)),
        np.eye(n_levels, dtype=int)[rng.integers(0, n_levels, n_cells)] * 10**12,
        np.full((n_cells, n_levels), 7),
        rng.integers(0, 3, (n_cells, n_levels)),
    ]
    return np.concatenate(tables)


@pytest.mark.parametrize("n_levels", [2, 3, 5, 12, 49])
@pytest.mark.parametrize("floor", [1e-9, 0.1, 0.5, 0.999])
def test_prior_holds_the_floor_after_normalising(n_levels, floor):
    rng = np.random.default_rng(n_levels)
    counts = adversarial_counts(rng, 60, n_levels)
    size = rng.integers(0, 200, len(counts))
    mechanism = ClusterDP(lam=0.5, sigma=3.0, gamma=floor / n_levels)
    prior = mechanism.prior(counts, size)
    assert np.all(prior >= mechanism.gamma)
    np.testing.assert_allclose(prior.sum(axis=-1), 1, rtol=0, atol=1e-12)
    assert np.all(prior[size == 0] == pytest.approx(1 / n_levels))
    # the naive rule, on the same counts, does not
    with np.errstate(divide="ignore", invalid="ignore"):
        clipped = np.maximum(counts / size[:, None], mechanism.gamma)
        naive = clipped / clipped.sum(axis=-1, keepdims=True)
    assert np.nanmin(naive) < mechanism.gamma * (1 - 1e-6)


def test_prior_is_the_stated_formula():
    mechanism = ClusterDP(lam=0.5, sigma=3.0, gamma=0.1)
    u = np.array([0.75 - 0.1, 0, 0.35 - 0.1])
    np.testing.assert_allclose(
        mechanism.prior([30, -4, 14], 40), 0.1 + 0.7 * u / u.sum(), rtol=1e-14
    )
    np.testing.assert_allclose(mechanism.prior([1, 1, 1], 40), 1 / 3)


@pytest.mark.parametrize("n_levels", [2, 3, 5, 49])
def test_uniform_prior_needs_no_counts(n_levels):
    mechanism = ClusterDP(lam=0.5, sigma=None, gamma=1 / n_levels)
    prior = mechanism.prior(None, np.array([[3, 0]]))
    assert prior.shape == (1, 2, n_levels)
    assert np.all(prior == 1 / n_levels)


def test_channel_columns_sum_to_one():
    rng = np.random.default_rng(1)
    mechanism = ClusterDP(lam=0.3, sigma=3.0, gamma=0.01)
    prior = mechanism.prior(rng.integers(-9, 90, (4, 2, 7)), np.full((4, 2), 100))
    channel = mechanism.channel(prior)
    assert channel.shape == (4, 2, 7, 7)
    np.testing.assert_allclose(channel.sum(axis=-2), 1, rtol=0, atol=1e-13)
    # released label first: row y' of an off-diagonal entry is lam times the prior of y'
    np.testing.assert_allclose(channel[0, 0, 2, 5], 0.3 * prior[0, 0, 2])
    np.testing.assert_allclose(channel[0, 0, 2, 2], 0.7 + 0.3 * prior[0, 0, 2])


def integer_channel(keep, starts, n_levels):
    """The channel that the sampler's integers carry out, as exact fractions [released, true]."""
    whole = 2**64
    stay = Fraction(int(keep), whole)
    begins = [int(start) for start in starts[:n_levels]] + [whole]
    prior = [Fraction(b - a, whole) for a, b in itertools.pairwise(begins)]
    return [
        [stay * (new == old) + (1 - stay) * prior[new] for old in range(n_levels)]
        for new in range(n_levels)
    ]


@pytest.mark.parametrize("n_levels", [2, 3, 5, 12])
@pytest.mark.parametrize("lam", [2.0**-64, 1e-3, 0.3, 0.97, 1 - 2.0**-53])
@pytest.mark.parametrize("floor", [1e-6, 0.5, 1])
def test_the_sampler_never_exceeds_the_claim(n_levels, lam, floor):
    """Exact arithmetic: rounding to 64-bit words is on the side of privacy, everywhere."""
    sigma = None if floor == 1 else 3.0
    mechanism = ClusterDP(lam=lam, sigma=sigma, gamma=floor / n_levels)
    rng = np.random.default_rng(2)
    counts = adversarial_counts(rng, 3, n_levels)
    excess = mechanism.excess(None if sigma is None else counts, np.full(len(counts), 30))
    keep, starts = thresholds(mechanism, excess)
    claim = 1 + (1 - Fraction(lam)) / (Fraction(lam) * Fraction(mechanism.gamma))
    worst = 0
    for row in starts:
        channel = integer_channel(keep, row, n_levels)
        assert all(sum(column) == 1 for column in zip(*channel, strict=True))
        worst = max(worst, *(max(line) / min(line) for line in channel))
    assert worst <= claim
    assert worst > 1
    if 1e-3 <= lam <= 0.97:  # elsewhere 2^-64 is coarse beside 1 - lam or lam
        assert worst >= claim * (1 - Fraction(1, 10**9))


def test_the_sampler_carries_out_the_stated_channel():
    mechanism = ClusterDP(lam=0.4, sigma=2.0, gamma=0.05)
    counts, size = np.array([[3, -2, 8, 1]]), np.array([12])
    keep, starts = thresholds(mechanism, mechanism.excess(counts, size))
    exact = np.array(integer_channel(keep, starts[0], 4), dtype=float)
    np.testing.assert_allclose(
        exact, mechanism.channel(mechanism.prior(counts, size))[0], rtol=1e-12
    )


class Words:
    """A source whose words are chosen: first the keep decisions, then the draws."""

    name = "chosen"

    def __init__(self, *words):
        self.given = [np.array(each, dtype=np.uint64) for each in words]

    def integers(self, law, shape):
        return np.zeros(shape, dtype=np.int64)

    def words(self, n):
        given = self.given.pop(0)
        assert len(given) == n
        return given


@pytest.mark.parametrize("n_levels", [2, 3, 4, 5, 8])
def test_every_interval_of_words_is_closed_below_and_open_above(n_levels):
    """The word at a threshold belongs to what begins there, and the one before to the other."""
    mechanism = ClusterDP(lam=0.6, sigma=1.0, gamma=0.05)
    n = 2 * n_levels + 2
    labels, cells = np.arange(n) % n_levels, np.zeros(n, dtype=int)
    counts = np.bincount(labels, minlength=n_levels)[None]
    keep, starts = thresholds(mechanism, mechanism.excess(counts, np.array([n])))
    first = [int(start) for start in starts[0, :n_levels]]
    last = [start - 1 for start in first[1:]] + [2**64 - 1]
    stay = [int(keep) - 1, int(keep)]
    source = Words([int(keep)] * (n - 2) + stay, [*first, *last, first[1]])
    _, released = privatise_labels(mechanism, labels, cells, 1, n_levels, source)
    expected = [*range(n_levels), *range(n_levels), labels[n - 2], 1]
    assert released.tolist() == expected


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("floor", [0.1, 0.5])
def test_calibrated_spends_the_budget_and_no_more(epsilon, share, floor):
    mechanism = ClusterDP.calibrated(
        schema_of(12), epsilon=epsilon, histogram_share=share, floor=floor
    )
    assert mechanism.gamma == floor / 12
    assert mechanism.epsilon_histogram == pytest.approx(share * epsilon, rel=1e-14)
    assert mechanism.epsilon_label <= (1 - share) * epsilon
    assert mechanism.loss().pure_epsilon == pytest.approx(epsilon, rel=1e-9)


def test_calibrated_says_how_the_budget_was_split():
    shown = repr(ClusterDP.calibrated(schema_of(2), epsilon=1.0, histogram_share=0.25))
    assert "epsilon 1 split: histogram 0.25 (sigma 8), labels 0.75" in shown
    assert "noise=Laplace" in shown


def test_floor_one_is_the_uniform_prior():
    mechanism = ClusterDP.calibrated(schema_of(3), epsilon=1.0, floor=1)
    assert mechanism.sigma is None
    assert mechanism.noise_law is None
    assert mechanism.epsilon_histogram == 0
    # randomised response: keep against any other label at odds e
    keep = 1 - mechanism.lam + mechanism.lam / 3
    assert keep / (mechanism.lam / 3) == pytest.approx(math.e, rel=1e-12)
    assert mechanism.loss().pure_epsilon == pytest.approx(1.0, rel=1e-12)
    mechanism.check(3)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0, 1e4])
def test_gaussian_calibration_is_tight(epsilon):
    mechanism = ClusterDP.calibrated(schema_of(12), epsilon=epsilon, noise=Gaussian, delta=1e-6)
    assert mechanism.noise_law == Gaussian(mechanism.sigma)
    loss = mechanism.loss()
    assert loss.delta == 1e-6
    assert loss.pure_epsilon is None
    assert loss.epsilon == pytest.approx(epsilon, rel=1e-4)
    assert loss.epsilon <= epsilon * (1 + 1e-9)
    less = ClusterDP(
        lam=mechanism.lam,
        sigma=mechanism.sigma * (1 - 1e-4),
        gamma=mechanism.gamma,
        noise=Gaussian,
        delta=1e-6,
    )
    assert less.loss().epsilon > epsilon


def test_a_huge_budget_stops_at_the_sampler_and_says_so():
    mechanism = ClusterDP.calibrated(schema_of(12), epsilon=1e4)
    assert mechanism.lam == 2.0**-64
    assert "the most that 64-bit words allow" in mechanism.note
    assert mechanism.loss().pure_epsilon < 1e4


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"epsilon": 0}, ValueError, "epsilon is 0"),
        ({"epsilon": -1}, ValueError, "epsilon is -1"),
        ({"epsilon": float("nan")}, ValueError, "epsilon is nan"),
        ({"epsilon": float("inf")}, ValueError, "epsilon is inf"),
        ({"epsilon": "1"}, TypeError, "epsilon is '1'"),
        ({"epsilon": True}, TypeError, "epsilon is True"),
        ({"epsilon": 1e-16}, ValueError, "raise epsilon"),
        ({"histogram_share": 0}, ValueError, "histogram_share is 0"),
        ({"histogram_share": 1}, ValueError, "floor=1 releases no histogram"),
        ({"floor": 0}, ValueError, "floor is 0"),
        ({"floor": 1.1}, ValueError, "floor is 1.1"),
        ({"delta": 1e-6}, ValueError, "leave delta out, or pass noise=Gaussian"),
        ({"delta": 1e-6, "floor": 1}, ValueError, "leave delta out"),
        ({"noise": Gaussian}, ValueError, "delta is missing"),
        ({"noise": Gaussian, "delta": 0.0}, ValueError, "delta is 0"),
        ({"noise": Gaussian, "delta": 1.0}, ValueError, "delta is 1"),
        ({"noise": "gaussian"}, TypeError, "pass the class Laplace"),
    ],
)
def test_bad_budgets_are_named(change, error, says):
    with pytest.raises(error, match=says):
        ClusterDP.calibrated(schema_of(12), **{"epsilon": 1.0, **change})


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"lam": 0}, ValueError, "ClusterDP.lam is 0"),
        ({"lam": 1}, ValueError, "ClusterDP.lam is 1"),
        ({"lam": 1e-30}, ValueError, "2\\*\\*-64"),
        ({"lam": float("nan")}, ValueError, "ClusterDP.lam is nan"),
        ({"lam": None}, TypeError, "ClusterDP.lam is None"),
        ({"sigma": 0}, ValueError, "ClusterDP.sigma is 0"),
        ({"sigma": -2}, ValueError, "ClusterDP.sigma is -2"),
        ({"sigma": float("inf")}, ValueError, "ClusterDP.sigma is inf"),
        ({"gamma": 0}, ValueError, "ClusterDP.gamma is 0"),
        ({"gamma": 0.6}, ValueError, "ClusterDP.gamma is 0.6"),
        ({"noise": Laplace(1.0)}, TypeError, "ClusterDP.noise is"),
        ({"noise": "laplace"}, TypeError, "ClusterDP.noise is"),
        ({"delta": 1}, ValueError, "ClusterDP.delta is 1"),
        ({"note": 3}, TypeError, "ClusterDP.note is 3"),
    ],
)
def test_bad_parameters_are_named(change, error, says):
    with pytest.raises(error, match=says):
        ClusterDP(**{"lam": 0.5, "sigma": 1.0, "gamma": 0.1, **change})


@pytest.mark.parametrize(
    ("sigma", "gamma", "says"),
    [
        (1.0, 0.3, "floor above 1/K"),
        (1.0, 0.25, "no histogram is released at gamma = 1/K"),
        (None, 0.2, "pass gamma=1/4, or a sigma"),
        (None, 0.5, "floor above 1/K"),
    ],
)
def test_a_mechanism_that_does_not_fit_the_levels_is_refused(sigma, gamma, says):
    with pytest.raises(ValueError, match=says):
        ClusterDP(lam=0.5, sigma=sigma, gamma=gamma).check(4)


def test_prior_refuses_shapes_and_values_that_make_no_sense():
    mechanism = ClusterDP(lam=0.5, sigma=1.0, gamma=0.1)
    for counts, size, says in [
        (None, [3], "noisy_counts is None"),
        ([1, 2, 3], [3], "one more axis"),
        ([[1, np.nan]], [3], "finite"),
        ([[1, 2]], [-3], "not negative"),
        ([[1] * 11], [3], "floor above 1/K"),
    ]:
        with pytest.raises(ValueError, match=says):
            mechanism.prior(counts, size)
