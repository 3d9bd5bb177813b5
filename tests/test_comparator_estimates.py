"""Each comparator's answer against a closed form, and the contract that all keep."""

import doctest
import importlib
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from comparators import covariate_balancing as balancing
from comparators.aipw import AIPW
from comparators.contract import Comparator, Estimate, NoEstimateError
from comparators.covariate_balancing import COVARIATE_BALANCING
from comparators.features import records
from comparators.horvitz_thompson import horvitz_thompson, scores
from comparators.noisy_histogram import NOISY_HISTOGRAM
from comparators.posterior_table import posterior_table, synthetic_rows
from comparators.private_aipw import PRIVATE_AIPW
from comparators.tau_q import CLUSTER_DP, CLUSTER_FREE_DP, UNIFORM_PRIOR_DP
from scipy.special import expit

from comparator_tables import ARM, BINARY, SCHEMA, people, run
from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

# --- closed forms ---------------------------------------------------------------------------------


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
    assert (seen[0].epsilon, seen[0].delta) == (pytest.approx(1.0), 0.0)
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
