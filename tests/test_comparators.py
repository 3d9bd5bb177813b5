"""Each comparator's sensitivity by brute force, and its answer against a closed form."""

import doctest
import importlib
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from comparators import covariate_balancing as balancing
from comparators import private_aipw
from comparators.aipw import AIPW
from comparators.contract import Comparator, Estimate, NoEstimateError
from comparators.covariate_balancing import COVARIATE_BALANCING
from comparators.features import box, records
from comparators.horvitz_thompson import horvitz_thompson, scores
from comparators.noise import exponential_mechanism, mean_of_bounded, noise_sd, rho_for
from comparators.noisy_histogram import L1, L2, NOISY_HISTOGRAM, counts
from comparators.posterior_table import posterior_table, synthetic_rows
from comparators.private_aipw import MOMENT_SENSITIVITY, PRIVATE_AIPW, Nuisances
from comparators.tau_q import CLUSTER_DP, CLUSTER_FREE_DP, UNIFORM_PRIOR_DP, label_release
from scipy.special import expit, softmax

from dpcausal_bayes.accounting import epsilon_from_rho
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

ARM = Arm("t", control=0, treated=1)
SCHEMA = Schema(
    arm=ARM,
    outcome=Bounded("y", 0, 10),
    cluster=Categories("site", [0, 1, 2]),
    covariates=[
        Bounded("x", -2, 2),
        Categories("c", ["a", "b"], other="z"),
        Binned("g", [0, 1, 2]),
    ],
)
BINARY = Schema(arm=ARM, outcome=Levels("y", [0, 1]), covariates=[Categories("c", ["a", "b"])])


def people(n, seed, *, effect=2.0):
    """Rows of a randomised trial."""
    rng = np.random.default_rng(seed)
    t, x = rng.integers(0, 2, n), rng.normal(size=n)
    return pd.DataFrame(
        {
            "t": t,
            "x": x,
            "c": rng.choice(["a", "b", "q"], n),
            "g": rng.uniform(0, 2, n),
            "site": rng.integers(0, 3, n),
            "y": 4 + effect * t + 0.5 * x + rng.normal(size=n),
        }
    )


def any_record(rng):
    """A record as odd as the schema allows, and beyond its bounds."""
    return {
        "t": rng.integers(0, 2),
        "x": rng.choice([-9.0, -2.0, 0.0, 2.0, 9.0]),
        "c": rng.choice(["a", "b", "q"]),
        "g": rng.choice([0.0, 1.0, 2.0]),
        "site": rng.integers(0, 3),
        "y": rng.choice([-5.0, 0.0, 5.0, 10.0, 50.0]),
    }


def neighbours(seed, number=300, n=4):
    """Pairs of small tables that differ in one record."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        rows = [any_record(rng) for _ in range(n + 1)]
        yield pd.DataFrame(rows[:n]), pd.DataFrame([*rows[1:n], rows[n]])


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


# --- closed forms ---------------------------------------------------------------------------------


def run(comparator, table, schema=SCHEMA, *, epsilon=1.0, seed=0):
    return comparator(table, schema, epsilon=epsilon, delta=1e-6, rng=np.random.default_rng(seed))


def test_aipw_on_one_binary_covariate_is_the_stratified_difference():
    rng = np.random.default_rng(9)
    c = rng.choice(["a", "b"], 500)
    t = (rng.random(500) < np.where(c == "a", 0.3, 0.6)).astype(int)
    table = pd.DataFrame({"t": t, "c": c, "y": (rng.random(500) < 0.4 + 0.2 * t).astype(int)})
    means = table.groupby(["c", "t"])["y"].mean().unstack()
    expected = ((means[1] - means[0]) * table["c"].value_counts(normalize=True)).sum()
    found = run(AIPW, table, BINARY)
    assert found.estimate == pytest.approx(expected, abs=1e-6)
    assert found.private == "none"


def test_aipw_interval_is_the_neyman_one_without_covariates():
    table = people(400, 10)
    plain = Schema(arm=ARM, outcome=SCHEMA.outcome)
    y = table["y"].clip(0, 10)
    arms = [y[table["t"] == t] for t in (0, 1)]
    low, high = run(AIPW, table, plain).interval
    neyman = math.sqrt(sum(arm.var(ddof=0) / len(arm) for arm in arms))
    assert (high - low) / (2 * 1.959964) == pytest.approx(neyman, rel=2e-3)


def test_aipw_is_right_where_only_the_propensity_is():
    rng = np.random.default_rng(20)
    x = rng.uniform(-2, 2, 20_000)
    t = (rng.random(20_000) < expit(x - 0.7)).astype(int)
    table = pd.DataFrame({"t": t, "x": x, "y": 1 + 2 * t + x**2 + rng.normal(size=20_000) / 2})
    found = run(AIPW, table, Schema(arm=ARM, outcome=Bounded("y", -9, 19), covariates=[
        Bounded("x", -2, 2)]))  # fmt: skip
    low, high = found.interval
    assert found.estimate == pytest.approx(2.0, abs=4 * (high - low) / 3.92)
    lines = [np.polyfit(x[t == arm], table["y"][t == arm], 1) for arm in (0, 1)]
    naive = np.mean(np.polyval(lines[1], x) - np.polyval(lines[0], x))
    assert abs(naive - 2.0) > 5 * (high - low) / 3.92  # which regression alone would not be


@pytest.mark.parametrize(
    "comparator", [horvitz_thompson(0.5), NOISY_HISTOGRAM, PRIVATE_AIPW, COVARIATE_BALANCING]
)
def test_with_a_budget_that_hides_nothing_the_effect_is_found(comparator):
    table = people(20_000, 11)
    found = run(comparator, table, epsilon=100.0)
    low, high = found.interval
    # bins and shrinkage cost a tenth at most
    assert found.estimate == pytest.approx(2.0, abs=0.1 + 4 * (high - low) / 4)
    assert high - low < 0.5


@pytest.mark.parametrize("comparator", [horvitz_thompson(0.5), NOISY_HISTOGRAM])
def test_the_interval_knows_its_noise(comparator):
    table = people(400, 12)
    runs = [run(comparator, table, epsilon=0.5, seed=seed) for seed in range(400)]
    exact = run(comparator, table, epsilon=500.0)
    centre = np.array([one.estimate for one in runs])
    half = np.array([(one.interval[1] - one.interval[0]) / 2 for one in runs])
    assert centre.mean() == pytest.approx(exact.estimate, abs=4 * centre.std() / 20)
    # the noise's part of the interval's variance is that of the estimates
    own = np.median(half) ** 2 - ((exact.interval[1] - exact.interval[0]) / 2) ** 2
    assert math.sqrt(own) / 1.96 == pytest.approx(centre.std(), rel=0.2)


def test_horvitz_thompson_noise_has_its_closed_form():
    table = people(500, 13)
    exact = scores(records(table, SCHEMA), 0.3).sum() * 5 / (500 * 0.3)
    runs = [run(horvitz_thompson(0.3), table, seed=seed).estimate for seed in range(2_000)]
    sd = 2 * math.sqrt(2) * 5 / (500 * 0.3)  # Laplace noise of scale 2 on the sum
    assert np.mean(runs) == pytest.approx(exact, abs=4 * sd / math.sqrt(2_000))
    assert np.std(runs) == pytest.approx(sd, rel=4 * math.sqrt(5 / 4 / 2_000))


def test_balancing_weights_balance_the_covariates():
    rows = records(people(2_000, 14), SCHEMA)
    theta = balancing.perturbed_minimiser(rows, np.zeros(rows.design.shape[1]), 1e-9)
    e = expit(rows.design @ theta)
    weight = np.where(rows.treated, 1 / e, -1 / (1 - e))
    np.testing.assert_allclose(rows.design.T @ weight / 2_000, 0, atol=1e-4)


def posterior(share, mean, dispersion):
    """A tree of one draw."""
    cells = ("chain", "draw", "arm", "stratum")
    draw = xr.Dataset({"share": (cells, [[share]]), "mean": (cells, [[mean]])})
    if dispersion is not None:
        draw["dispersion"] = (cells[:3], [[dispersion]])
    return xr.DataTree.from_dict({"posterior": draw})


@pytest.mark.parametrize("dispersion", [(0.1, 0.4), None])
def test_rows_of_a_posterior_have_its_shares_means_and_variances(dispersion):
    share, mean = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[-0.5, 0.0], [0.2, 0.6]])
    tree, n = posterior(share, mean, dispersion), 200_000
    rows = synthetic_rows(tree, n, 3.0, np.random.default_rng(21))
    assert rows.half == 3.0
    for arm, stratum in itertools.product((0, 1), (0, 1)):
        cell = (rows.treated == arm) & (rows.design[:, stratum] == 1)
        assert cell.mean() == pytest.approx(share[arm, stratum], abs=4 * 0.5 / math.sqrt(n))
        y, m = rows.outcome[cell], mean[arm, stratum]
        variance = (1 - m**2) * (1.0 if dispersion is None else dispersion[arm])
        assert y.mean() == pytest.approx(m, abs=4 * math.sqrt(variance / cell.sum()))
        assert y.var() == pytest.approx(variance, rel=0.03)


def test_the_posterior_table_is_made_of_a_release_within_the_budget():
    seen = []

    def fit(release, seed):
        seen.append(release.mechanism.loss())
        return posterior([[0.5], [0.5]], [[0.0], [0.4]], [0.1, 0.1])

    plain = Schema(arm=ARM, outcome=SCHEMA.outcome)
    one = posterior_table(CausalWorkload(plain), fit)
    found = run(one, people(5_000, 22), plain)
    assert (seen[0].epsilon, seen[0].delta) == (pytest.approx(1.0), 1e-6)
    low, high = found.interval
    assert found.estimate == pytest.approx(0.4 * 5, abs=4 * (high - low) / 3.92)


@pytest.mark.parametrize("comparator", [CLUSTER_DP, CLUSTER_FREE_DP, UNIFORM_PRIOR_DP])
def test_debiased_labels_are_unbiased_and_their_interval_covers(comparator):
    table = people(3_000, 15)
    runs = [run(comparator, table, epsilon=4.0, seed=seed) for seed in range(60)]
    centre = np.array([one.estimate for one in runs])
    assert comparator.protects == "label"
    assert centre.mean() == pytest.approx(2.0, abs=0.2 + 4 * centre.std() / math.sqrt(60))
    covered = np.mean([one.interval[0] <= 2.0 <= one.interval[1] for one in runs])
    assert covered > 0.85


# --- the contract ---------------------------------------------------------------------------------


def test_a_method_without_an_answer_is_an_outcome_that_says_why():
    def fails(*given):
        raise NoEstimateError("an arm is empty")

    found = run(Comparator("fails", "record", "Nothing is released.", fails), people(5, 16))
    assert math.isnan(found.estimate)
    assert found.interval is None
    assert found.failure == "an arm is empty"


def test_an_error_that_is_no_outcome_is_raised():
    with pytest.raises(ValueError, match="declaration does not name"):
        run(AIPW, people(5, 17).assign(g=7.0))
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        horvitz_thompson(1.0)


@pytest.mark.parametrize("name", ["contract", "noise"])
def test_examples_run(name):
    module = importlib.import_module(f"comparators.{name}")
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_a_seed_repeats_a_run_and_noise_differs_by_seed():
    table = people(300, 18)
    for one in (PRIVATE_AIPW, COVARIATE_BALANCING, NOISY_HISTOGRAM, CLUSTER_DP):
        same, again, other = (run(one, table, seed=seed).estimate for seed in (1, 1, 2))
        assert same == again != other


def test_every_private_comparator_states_a_proof():
    for one in itertools.chain(
        (horvitz_thompson(0.5), NOISY_HISTOGRAM, PRIVATE_AIPW, COVARIATE_BALANCING),
        (CLUSTER_DP, CLUSTER_FREE_DP, UNIFORM_PRIOR_DP),
    ):
        assert one.private != "none"
        assert isinstance(run(one, people(400, 19), epsilon=2.0).estimate, float)
    assert Estimate(1.0, None).interval is None
