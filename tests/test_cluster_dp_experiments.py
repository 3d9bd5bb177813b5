"""The closed-form errors behind the Cluster-DP experiments, against simulated releases."""

import cluster_dp_errors as errors
import cluster_dp_experiments as study
import numpy as np
import pandas as pd
import pytest
import youtube_trial

import dpcausal_bayes as dpc
from dpcausal_bayes import direct
from dpcausal_bayes.populations.labels import mixture_population, outcome_values
from dpcausal_bayes.simulate import simulate_release
from dpcausal_bayes.table_variances import debiased_variance

TRIAL = mixture_population(separation=2.0, units=600, levels=5)
FIXED = dpc.ClusterDP(lam=0.6, sigma=4.0, gamma=0.06)


def unclustered(schema: dpc.Schema) -> dpc.Schema:
    return dpc.Schema(arm=schema.arm, outcome=schema.outcome)


def test_variances_in_one_array_are_those_of_the_package():
    table = TRIAL.draw(1)
    release = simulate_release(table, TRIAL.schema, FIXED, seed=2)
    counts = table.groupby(["cluster", "treated", "y"], observed=False).size()
    counts = counts.unstack("y", fill_value=0).to_numpy().reshape(3, 2, 5)
    found = errors.debiased_variances(
        outcome_values(TRIAL.schema), FIXED, np.stack([counts] * 2), np.stack([release.prior] * 2)
    )
    expected = debiased_variance(table, TRIAL.schema, FIXED, release.prior)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("mechanism", "clustered"),
    [(FIXED, True), (FIXED, False), (dpc.ClusterDP(lam=0.6, sigma=None, gamma=0.2), True)],
    ids=["Cluster-DP", "Cluster-Free-DP", "Uniform-Prior-DP"],
)
def test_error_is_that_of_simulated_releases(mechanism, clustered):
    rng = np.random.default_rng(3)
    schema = TRIAL.schema if clustered else unclustered(TRIAL.schema)
    estimates = [
        direct.debiased(simulate_release(TRIAL.draw(rng), schema, mechanism, seed=rng)).estimate
        for _ in range(250)
    ]
    square = (np.array(estimates) - float(TRIAL.truth(dpc.ATE()))) ** 2
    expected = errors.debiased_error(TRIAL, mechanism, clustered=clustered)
    error = square.std() / np.sqrt(len(square))
    assert abs(square.mean() - expected.total) < 4 * np.hypot(error, expected.monte_carlo)
    assert error < 0.15 * expected.total


def test_unequal_arms_cost_the_cluster_free_contrast_a_bias():
    size = TRIAL.cell_size + np.array([[0, 100], [0, 0], [0, 0]])
    skewed = type(TRIAL)(schema=TRIAL.schema, shares=TRIAL.shares, cell_size=size)
    stratified = errors.debiased_error(skewed, FIXED, tables=2)
    pooled = errors.debiased_error(skewed, FIXED, clustered=False, tables=2)
    assert pooled.sampling > 1.5 * stratified.sampling


def test_histogram_error_is_the_noise_and_the_sampling_of_a_contrast():
    release = simulate_release(TRIAL.draw(1), TRIAL.schema, FIXED, seed=2)
    found = errors.histogram_error(TRIAL, FIXED)
    expected = direct.centred_histogram_contrast(release)
    assert found.privacy == pytest.approx(expected.noise_variance)
    assert found.sampling == pytest.approx(errors.debiased_error(TRIAL, FIXED).sampling)


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05])
@pytest.mark.parametrize("floor", [0.2, 1.0])
def test_a_budget_is_spent_and_not_exceeded(floor, delta):
    mechanism = errors.at_budget(12, 1.0, floor=floor, share=0.3, delta=delta)
    assert mechanism.gamma == pytest.approx(floor / 12)
    assert mechanism.loss(delta).epsilon == pytest.approx(1.0, abs=1e-6)
    assert mechanism.loss(delta).epsilon <= 1.0 + 1e-9


def test_default_budget_is_the_packages_own():
    ours = errors.at_budget(TRIAL.schema.n_levels, 1.0)
    package = dpc.ClusterDP.calibrated(TRIAL.schema, epsilon=1.0)
    assert (ours.lam, ours.sigma, ours.gamma) == (package.lam, package.sigma, package.gamma)


@pytest.mark.parametrize("separation", [0.0, 4.5])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_no_floor_beats_the_uniform_prior_even_with_a_free_histogram(separation, epsilon):
    trial = mixture_population(separation=separation)
    floored = [
        errors.debiased_error(trial, errors.at_budget(12, epsilon, floor=f, share=0.0), tables=20)
        for f in (0.02, 0.3, 0.95)
    ]
    uniform = errors.debiased_error(trial, errors.at_budget(12, epsilon, floor=1), tables=20)
    assert uniform.total < min(error.total for error in floored)


def test_summary_counts_errors_and_coverage():
    rows = pd.DataFrame(
        {
            "design": "a",
            "truth": 0.5,
            "mean": [0.6, 0.3],
            "sd": [0.1, 0.1],
            "low": [0.4, 0.1],
            "high": [0.8, 0.45],
            "tau_q": [1.5, 1.5],
            "histogram": [0.5, 0.5],
            "divergences": [1, 2],
            "seconds": [1.0, 3.0],
        }
    )
    line = study.summary(rows).loc["a"]
    assert line["rmse"] == pytest.approx(np.sqrt((0.01 + 0.04) / 2))
    assert (line["covered"], line["tau_q_rmse"], line["divergences"]) == (1, 1.0, 3)


def test_a_torn_row_is_carried_out_again(tmp_path):
    path = tmp_path / "runs.csv"
    assert study.finished(path) == set()
    for run in (0, 1):
        study.append({"design": "a", "run": run, "mean": 1 / 3}, path)
    whole = path.read_text()
    path.write_text(whole + "a,2")  # killed while it wrote
    assert study.finished(path) == {("a", 0), ("a", 1)}
    assert path.read_text() == whole


def test_youtube_trial_is_the_papers(data_dir):
    trial = youtube_trial.youtube_population()
    assert (trial.n, trial.schema.n_clusters, trial.schema.n_levels) == (22_179, 50, 8)
    assert trial.cell_size.sum(axis=1).max() == 2217
    assert trial.cell_size.sum(axis=1).min() == 199
