"""Privacy loss in closed form, against an independent accountant and against sums."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from dpcausal_bayes import accounting
from dpcausal_bayes.accounting import PrivacyLoss, epsilon_from_rho
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP

CASES = [(4.0, 0.97, 0.04), (1.0, 0.5, 0.1), (20.0, 0.99, 0.25), (0.5, 0.3, 0.04)]


def independent(noise, sigma, lam, gamma, step):
    """The same release in the dp-accounting library, rounded upwards to a grid."""
    if noise is Laplace:
        count = pld.from_discrete_laplace_mechanism(
            1 / sigma, 1, value_discretization_interval=step
        )
    else:
        count = pld.from_discrete_gaussian_mechanism(sigma, 1, value_discretization_interval=step)
    lost = lam * gamma
    kept = 1 - lam + lost
    masses = [kept, lost, lam * (1 - 2 * gamma)]
    channel = pld.from_two_probability_mass_functions(
        dict(enumerate(np.log(masses))),
        dict(enumerate(np.log([masses[1], masses[0], masses[2]]))),
        value_discretization_interval=step,
    )
    return count.compose(count).compose(channel)


@pytest.mark.parametrize("noise", [Laplace, Gaussian])
@pytest.mark.parametrize(("sigma", "lam", "gamma"), CASES)
def test_tight_epsilon_agrees_with_dp_accounting(noise, sigma, lam, gamma):
    mechanism = ClusterDP(lam=lam, sigma=sigma, gamma=gamma, noise=noise)
    other = independent(noise, sigma, lam, gamma, 1e-4)
    for delta in (1e-2, 1e-5, 1e-9):
        ours, theirs = mechanism.loss(delta).epsilon, other.get_epsilon_for_delta(delta)
        assert ours <= theirs + 1e-9  # the grid only rounds up, and it has three of them
        assert ours >= theirs - 4e-4


@pytest.mark.parametrize(("epsilon", "step"), [(1e-3, 1e-6), (1e4, 1.0)])
def test_both_accountants_survive_extreme_budgets(epsilon, step):
    sigma, lam, gamma = 4 / epsilon, accounting.lam_for(epsilon / 2, 0.04), 0.04
    mechanism = ClusterDP(lam=lam, sigma=sigma, gamma=gamma)
    with np.errstate(over="ignore"):  # SciPy's discrete Laplace, inside dp-accounting
        theirs = independent(Laplace, sigma, lam, gamma, step).get_epsilon_for_delta(1e-12)
    assert mechanism.loss(1e-12).epsilon <= theirs + 1e-9
    assert mechanism.loss(1e-12).epsilon == pytest.approx(theirs, abs=4 * step)
    assert mechanism.loss().epsilon == mechanism.loss().pure_epsilon <= epsilon * (1 + 1e-12)


def test_tight_epsilon_is_rounded_up():
    """The stated epsilon holds at the stated delta to the last digit, not nearly."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        losses = accounting.compose(
            accounting.gaussian_losses(rng.uniform(0.5, 9)),
            accounting.channel_losses(rng.uniform(0.1, 0.99), rng.uniform(0.01, 0.5)),
        )
        delta = 10 ** rng.uniform(-9, -1)
        epsilon = accounting.epsilon_at(losses, delta, upper=500.0)
        assert accounting.delta_at(losses, epsilon) <= delta
        assert accounting.delta_at(losses, epsilon * (1 - 1e-9)) > delta


def test_tight_epsilon_falls_with_delta_and_starts_at_the_pure_one():
    mechanism = ClusterDP(lam=0.9, sigma=3.0, gamma=0.05)
    tight = [mechanism.loss(delta).epsilon for delta in (0.0, 1e-15, 1e-9, 1e-4, 1e-2, 0.3, 0.9)]
    assert tight == sorted(tight, reverse=True)
    assert tight[0] == mechanism.epsilon_histogram + mechanism.epsilon_label
    assert tight[1] == pytest.approx(tight[0], rel=1e-6)
    assert tight[-1] == 0


@pytest.mark.parametrize("scale", [0.3, 0.9, 2.0, 5.5])
def test_gaussian_losses_are_those_of_two_shifted_counts(scale):
    k = np.arange(-120, 121)
    log_pmf = Gaussian(scale).log_pmf(k)
    shifted = Gaussian(scale).log_pmf(k - 1)
    one = log_pmf - shifted  # the count moved down; the other one moves up
    other = log_pmf - Gaussian(scale).log_pmf(k + 1)
    total = np.add.outer(one, other).ravel()
    mass = np.exp(np.add.outer(log_pmf, log_pmf).ravel())
    losses = accounting.gaussian_losses(scale)
    for epsilon in (0.0, 0.2, 1.0, 4.0):
        exact = np.sum(mass[total > epsilon] * -np.expm1(epsilon - total[total > epsilon]))
        assert accounting.delta_at(losses, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-40)


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("make", [accounting.laplace_losses, accounting.gaussian_losses])
def test_losses_are_a_law_and_mirror_one(make, scale):
    losses = make(scale)
    assert np.exp(losses.log_mass).sum() == pytest.approx(1, rel=1e-12)
    # the other table's law is p exp(-L), which is a law too
    assert np.exp(losses.log_mass - losses.value).sum() == pytest.approx(1, rel=1e-9)


def test_beyond_the_longest_sum_the_bound_is_still_valid():
    inside = ClusterDP(lam=0.999, sigma=1e4, gamma=0.01, noise=Gaussian).loss(1e-6)
    outside = ClusterDP(lam=0.999, sigma=3e5, gamma=0.01, noise=Gaussian).loss(1e-6)
    assert 0 < outside.epsilon < epsilon_from_rho(outside.rho, 1e-6) * (1 + 1e-12)
    assert inside.epsilon < epsilon_from_rho(inside.rho, 1e-6)


@pytest.mark.parametrize(("sigma", "lam", "gamma"), CASES)
def test_rho_bounds_every_renyi_divergence(sigma, lam, gamma):
    """D_alpha <= rho alpha for the exact worst pairs, and not by much at its worst."""
    for losses, rho in (
        (accounting.channel_losses(lam, gamma), accounting.channel_rho(lam, gamma)),
        (accounting.laplace_losses(sigma), 2 * accounting.randomised_response_rho(1 / sigma)),
        (accounting.gaussian_losses(sigma), 1 / sigma**2),
    ):
        order = np.geomspace(1e-3, 1e3, 2000)  # alpha - 1
        moment = [np.logaddexp.reduce(losses.log_mass + t * losses.value) for t in order]
        ratio = np.array(moment) / order / (1 + order)
        assert ratio.max() <= rho * (1 + 1e-9)
        assert ratio.max() >= rho * 0.9


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0, 5.0, 40.0])
def test_pure_rho_is_at_most_half_epsilon_squared(epsilon):
    assert accounting.randomised_response_rho(epsilon) <= epsilon**2 / 2


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.5, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_conversion_from_rho_is_optimal_and_safe(rho, delta):
    """No alpha does better; and a Gaussian of that rho is within it by its exact formula."""
    found = epsilon_from_rho(rho, delta)
    assert found < rho + 2 * math.sqrt(rho * math.log(1 / delta))  # the plain conversion
    order = np.geomspace(1e-4, 1e6, 200_000)
    alpha = 1 + order
    other = rho * alpha + np.log(order / alpha) - (math.log(delta) + np.log(alpha)) / order
    assert found == pytest.approx(max(other.min(), 0), rel=1e-6)
    losses = accounting.gaussian_losses(1 / math.sqrt(rho)) if rho < 1 else None
    if losses is not None:
        assert accounting.delta_at(losses, found) <= delta


def test_nothing_spent_is_nothing_and_no_delta_is_no_bound():
    assert epsilon_from_rho(0.0, 0.0) == 0
    assert epsilon_from_rho(0.1, 0.0) == math.inf


@pytest.mark.parametrize("gamma", [1e-6, 0.04, 0.5])
@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0, 30.0])
def test_lam_is_the_smallest_that_fits(gamma, epsilon):
    lam = accounting.lam_for(epsilon, gamma)
    assert accounting.channel_epsilon(lam, gamma) <= epsilon
    if lam > accounting.SMALLEST_LAM:
        below = 1 / (1 + (1 - lam) / lam * (1 + 1e-6)) - 4 * math.ulp(lam)
        assert accounting.channel_epsilon(below, gamma) > epsilon


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": -1}, "epsilon is -1"),
        ({"rho": float("nan")}, "rho is nan"),
        ({"delta": 1.0}, "below 1"),
        ({"pure_epsilon": float("inf")}, "pure_epsilon is inf"),
        ({"pure_epsilon": None}, "needs delta > 0"),
        ({"adjacency": ""}, "name the neighbours"),
    ],
)
def test_bad_losses_are_named(change, says):
    with pytest.raises(ValueError, match=says):
        PrivacyLoss(**{"pure_epsilon": 1.0, "rho": 0.1, "epsilon": 1.0, "delta": 0.0, **change})


def test_gaussian_noise_has_no_pure_loss():
    mechanism = ClusterDP(lam=0.5, sigma=1.0, gamma=0.1, noise=Gaussian)
    assert mechanism.epsilon_histogram is None
    with pytest.raises(ValueError, match="set delta above 0, or noise=Laplace"):
        mechanism.loss()
    for delta in (-0.1, 1.0):
        with pytest.raises(ValueError, match="delta is"):
            mechanism.loss(delta)
