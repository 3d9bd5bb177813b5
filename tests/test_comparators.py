"""Each comparator's noise and sensitivity, by brute force."""

import math

import numpy as np
import pandas as pd
import pytest
from comparators import covariate_balancing as balancing
from comparators import private_aipw
from comparators.features import box, records
from comparators.horvitz_thompson import scores
from comparators.noise import exponential_mechanism, mean_of_bounded, noise_sd, rho_for
from comparators.noisy_histogram import L1, L2, counts
from comparators.private_aipw import MOMENT_SENSITIVITY, Nuisances
from comparators.tau_q import label_release
from scipy.special import softmax

from comparator_tables import SCHEMA, any_record, neighbours, people
from dpcausal_bayes.accounting import epsilon_from_rho

# --- shared noise ---------------------------------------------------------------------------------


def test_a_bounded_sum_and_its_squares_move_by_two_at_most():
    u = np.linspace(-1, 1, 401)
    moved = np.stack([u[:, None] - u, (u[:, None] ** 2 - u**2) / 2])
    assert np.abs(moved).sum(axis=0).max() == pytest.approx(2, abs=1e-12)
    assert np.sqrt((moved**2).sum(axis=0)).max() == pytest.approx(2, abs=1e-12)


def test_noise_is_the_smaller_of_two_laws_and_has_the_spread_it_says():
    assert noise_sd(2, math.sqrt(2), 1.0, 1e-6) == (pytest.approx(2 * math.sqrt(2)), True)
    assert noise_sd(60, math.sqrt(2), 1.0, 1e-6)[1] is False
    score = np.linspace(-0.5, 0.5, 50)
    means = [
        mean_of_bounded(score, -1.0, 1.0, 1.0, 1e-6, np.random.default_rng(seed))[0]
        for seed in range(4_000)
    ]
    sd = 2 * math.sqrt(2) / 50
    assert np.mean(means) == pytest.approx(0, abs=4 * sd / math.sqrt(4_000))
    # a Laplace law's variance is known to a part in sqrt(5 / runs)
    assert np.var(means) == pytest.approx(sd**2, rel=4 * math.sqrt(5 / 4_000))


def test_a_budget_in_zcdp_is_the_largest_that_holds():
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-9), (5.0, 1e-5)):
        rho = rho_for(epsilon, delta)
        assert epsilon_from_rho(rho, delta) <= epsilon < epsilon_from_rho(rho * 1.00001, delta)


def test_the_exponential_mechanism_chooses_as_its_formula_says():
    score, rng = np.array([0.0, 3.0, 4.0]), np.random.default_rng(1)
    chosen = [exponential_mechanism(score, 1.0, 2.0, rng) for _ in range(20_000)]
    share = np.bincount(chosen) / 20_000
    np.testing.assert_allclose(share, softmax(score / 4), atol=4 * 0.5 / math.sqrt(20_000))


# --- sensitivities --------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.7])
def test_horvitz_thompson_scores_stay_in_their_range(probability):
    for table, other in neighbours(1):
        u, v = (scores(records(one, SCHEMA), probability) for one in (table, other))
        assert max(np.abs(u).max(), np.abs(v).max()) <= 1
        moved = [u.sum() - v.sum(), (u @ u - v @ v) / 2]
        assert np.abs(moved).sum() <= L1 + 1e-12


def test_a_record_moves_two_counts_of_the_histogram():
    moved = [counts(one, SCHEMA) - counts(other, SCHEMA) for one, other in neighbours(2)]
    assert max(np.abs(m).sum() for m in moved) == L1
    assert max(np.sqrt((m**2).sum()) for m in moved) == pytest.approx(L2)


def test_moments_of_the_private_nuisances_move_by_their_sensitivity_at_most():
    moved = 0.0
    for one, other in neighbours(3, number=500, n=2):
        first, second = (private_aipw.moments(records(table, SCHEMA)) for table in (one, other))
        moved = max(moved, float(np.sqrt(((first - second) ** 2).sum())))
    assert moved <= MOMENT_SENSITIVITY
    # the bound itself is reached by unit rows half aligned, with opposite outcomes
    z, w = np.array([1.0, 0.0]), np.array([0.5, math.sqrt(0.75)])
    whole = np.concatenate([(np.outer(z, z) - np.outer(w, w)).ravel(), z + w])
    assert np.linalg.norm(whole) == pytest.approx(MOMENT_SENSITIVITY)


def test_ridge_logistic_coefficients_move_by_their_sensitivity_at_most():
    n, penalty, moved = 4, 2.0, 0.0  # a large one, so that the bound is nearly reached
    for one, other in neighbours(4, n=n):
        beta, other_beta = (
            private_aipw.logistic(records(table, SCHEMA), penalty) for table in (one, other)
        )
        moved = max(moved, float(np.linalg.norm(beta - other_beta)))
    assert 0.3 * 2 / (n * penalty) < moved <= 2 / (n * penalty)


def test_no_record_has_a_score_outside_the_public_range():
    rng = np.random.default_rng(5)
    low, high = box(SCHEMA)
    for _ in range(200):
        known = Nuisances(rng.normal(0, 1, (2, len(low))), rng.normal(0, 1, len(low)))
        table = pd.DataFrame([any_record(rng) for _ in range(200)])
        least, most = private_aipw.score_range(known, low, high)
        score = private_aipw.scores(records(table, SCHEMA), known)
        assert least - 1e-12 <= score.min()
        assert score.max() <= most + 1e-12


def test_the_public_range_of_scores_is_reached_where_covariates_do_not_matter():
    known = Nuisances(np.array([[0.4] + [0] * 4, [-0.6] + [0] * 4]), np.array([1.0] + [0] * 4))
    table = pd.DataFrame(
        [{"t": t, "y": y, "x": 0.0, "c": "a", "g": 0.0} for t in (0, 1) for y in (0, 10)]
    )
    score = private_aipw.scores(records(table, SCHEMA), known)
    assert private_aipw.score_range(known, *box(SCHEMA)) == (
        pytest.approx(score.min()),
        pytest.approx(score.max()),
    )


def test_the_balancing_loss_has_the_slope_and_curvature_that_its_proof_needs():
    linear = np.linspace(-6, 6, 2_001)
    for treated in (False, True):
        arm = np.full(len(linear), treated)
        value, slope, curvature = balancing.loss_terms(linear, arm)
        assert np.abs(slope).max() <= balancing.SLOPE + 1e-12
        assert 0 <= curvature.min() <= curvature.max() <= balancing.CURVATURE + 1e-12
        np.testing.assert_allclose(np.gradient(value, linear)[1:-1], slope[1:-1], atol=0.02)
        bent = np.abs(np.abs(linear) - balancing.REACH) > 0.01
        np.testing.assert_allclose(
            np.gradient(slope, linear)[bent][1:-1], curvature[bent][1:-1], atol=0.1
        )


def test_the_perturbation_spends_its_epsilon():
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-6), (5.0, 1e-3)):
        sd, penalty = balancing.perturbation(epsilon, delta)
        plane = sd * math.sqrt(-2 * math.log(delta))  # what two normal coordinates pass with delta
        slopes = 2 * balancing.SLOPE
        spent = (2 * slopes * plane + slopes**2) / (2 * sd**2)
        spent += math.log1p(balancing.CURVATURE / penalty)
        assert spent == pytest.approx(epsilon, rel=1e-9)


def test_the_perturbed_objective_loses_more_than_epsilon_with_probability_delta_at_most():
    epsilon, delta = 1.0, 0.05
    sd, penalty = balancing.perturbation(epsilon, delta)
    # so many controls that a treated record has the steepest slope there is
    last = {"t": 0, "x": 0.0, "c": "a", "g": 0.0, "y": 0.0}
    base = [last] * 3_000
    one, other = (
        records(pd.DataFrame([*base, end]), SCHEMA) for end in (last, last | {"t": 1, "x": 2.0})
    )

    def log_density(rows, theta):
        _, slope, curvature = balancing.loss_terms(rows.design @ theta, rows.treated)
        noise = -(rows.design.T @ slope) - penalty * theta
        hessian = (rows.design * curvature[:, None]).T @ rows.design
        size = np.linalg.slogdet(hessian + penalty * np.eye(len(theta)))[1]
        return float(-(noise @ noise) / (2 * sd**2) + size)

    for first, second in ((one, other), (other, one)):
        rng, losses = np.random.default_rng(7), []
        for _ in range(1_000):
            noise = rng.normal(0, sd, first.design.shape[1])
            theta = balancing.perturbed_minimiser(first, noise, penalty)
            losses.append(log_density(first, theta) - log_density(second, theta))
        share = np.mean(np.array(losses) > epsilon)
        assert share <= delta + 4 * math.sqrt(delta * (1 - delta) / 1_000)
        assert np.max(losses) > 0.3 * epsilon  # a pair that the noise must hide


@pytest.mark.parametrize("floor", [0.5, 1.0])
def test_labels_are_released_at_the_budget(floor):
    table = people(60, 8)
    for epsilon in (0.1, 1.0, 5.0):
        release = label_release(
            table, SCHEMA, epsilon, clustered=True, floor=floor, rng=np.random.default_rng(1)
        )
        assert release.mechanism.loss().pure_epsilon == pytest.approx(epsilon, rel=1e-9)
