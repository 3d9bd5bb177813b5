"""Fits: against numerical integration, and what a fitted tree holds."""

import json

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.special import expit
from scipy.stats import binom, norm

import dpcausal_bayes as dpc
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.small_cells import cells_of
from test_cluster_labels import trial
from test_small_cells import labels_given_counts

SIZES = [(300, 250), (200, 300), (250, 240)]


@pytest.fixture(scope="module")
def tiny():
    """One cluster, two cells of at most 8 units, two levels."""
    release = trial([(8, 6)], epsilon=2.0, seed=4)
    model = dpc.models.cluster_labels(release)
    return release, dpc.fit(model, release, draws=2000, random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def fitted():
    release = trial(SIZES, n_levels=3, epsilon=2.0)
    model = dpc.models.cluster_labels(release)
    return model, release, dpc.fit(model, release, random_seed=2, progressbar=False)


def integrated(release, priors):
    """Posterior of the two shares of level 1 and of the counts, by a grid and enumeration."""
    # eta_1 - eta_0 of arm a is sqrt(2 G) b + 2 (a - 1/2) T, with G the profile's unit variance
    unit = 1 - np.exp(-1 / (priors.correlation_length * 2)) + 2
    b, t = (
        norm(0, sd).ppf((np.arange(400) + 0.5) / 400) for sd in (priors.profile_sd, priors.tilt_sd)
    )
    cells, shares, likelihood, count_laws = cells_of(release), [], 1.0, []
    for arm in range(2):
        share = expit(np.sqrt(2 * unit) * b[:, None] + (2 * arm - 1) * t)
        n = int(cells.size[arm])
        terms = []
        for ones in range(n + 1):
            counts = np.array([n - ones, ones])
            weight = np.exp(release.mechanism.noise_law.log_pmf(cells.noisy[arm] - counts).sum())
            law = labels_given_counts(release.mechanism, counts, cells.prior[arm])
            terms.append(weight * law[tuple(cells.released[arm])] * binom(n, share).pmf(ones))
        likelihood = likelihood * sum(terms)
        shares.append(share)
        count_laws.append(np.array(terms) / sum(terms))
    posterior = likelihood / likelihood.sum()
    counts = [np.einsum("nij,ij->n", law, posterior) for law in count_laws]
    return shares, posterior, counts


def test_the_posterior_is_that_of_brute_force(tiny):
    release, tree = tiny
    shares, weight, counts = integrated(release, dpc.models.LabelPriors())
    share = tree["posterior"]["share"].sel(level="1")
    for draws, value in (
        (share.sel(arm="control"), shares[0]),
        (share.sel(arm="treated"), shares[1]),
        (share.diff("arm"), shares[1] - shares[0]),
    ):
        draws = draws.squeeze(["cluster", *(d for d in draws.dims if d == "arm")])
        for power in (1, 2):
            wanted = (weight * value**power).sum()
            error = abs(float((draws**power).mean()) - wanted)
            assert error < 5 * float(az.mcse(draws**power)) + 1e-3
    drawn = dpc.estimate(tree, [dpc.ATE()], population="super")
    table = drawn["confidential_estimands"]["ate"]
    mean = sum(
        sign * (law @ np.arange(len(law))) / (len(law) - 1)
        for sign, law in zip((-1, 1), counts, strict=True)
    )
    assert abs(float(table.mean()) - mean) < 5 * float(az.mcse(table))


def test_groups_dimensions_and_coordinates(fitted):
    _, release, tree = fitted
    assert set(tree.children) == {
        "posterior",
        "sample_stats",
        "observed_data",
        "prior",
        "prior_predictive",
        "posterior_predictive",
        "constant_data",
    }
    share = tree["posterior"]["share"]
    assert dict(share.sizes) == {"chain": 4, "draw": 1000, "cluster": 3, "arm": 2, "level": 3}
    assert share["arm"].values.tolist() == ["control", "treated"]
    assert share["cluster"].values.tolist() == ["0", "1", "2"]
    for group in ("observed_data", "prior_predictive", "posterior_predictive"):
        assert tree[group]["release"].dims[-1] == "query"
        assert tree[group]["release"].sizes["query"] == 36
    assert (tree["constant_data"]["cell_size"] == release.cell_size).all()
    assert (tree["constant_data"]["noisy_count"] == release.noisy_counts).all()


def test_the_chains_are_sound(fitted):
    _, _, tree = fitted
    tree = dpc.estimate(tree, [dpc.ATE()], population="super")
    assert float(tree["sample_stats"]["diverging"].mean()) < 0.001
    assert float(az.rhat(tree["estimands"]["ate"])) < 1.01
    assert float(az.ess(tree["estimands"]["ate"])) > 1000


def test_replicated_releases_look_like_the_release(fitted):
    _, release, tree = fitted
    replicated = tree["posterior_predictive"]["release"]
    seen = tree["observed_data"]["release"]
    z = (seen - replicated.mean(("chain", "draw"))) / replicated.std(("chain", "draw"))
    assert float(abs(z).max()) < 4
    labels = replicated.sel(query=[q for q in replicated["query"].values if q.startswith("labels")])
    assert (labels.sum("query") == release.n).all()


def test_the_manifest_says_how_the_tree_came_about(fitted):
    _, release, tree = fitted
    manifest = read_manifest(tree)
    assert manifest["release_digest"] == release.digest
    assert manifest["schema"] == release.schema
    assert manifest["mechanism"] == release.mechanism
    assert manifest["random_seed"] == 2
    assert manifest["non_private"]
    assert manifest["model"]["tilt_mean"] == "tilt_mean ~ Normal(0, 3)"
    assert isinstance(json.loads(tree.attrs["manifest"]), dict)


def test_summary_and_forest_plot_take_the_estimands(fitted):
    _, _, tree = fitted
    tree = dpc.estimate(tree, [dpc.ATE(), dpc.ATE(by="cluster")], population="sample")
    table = az.summary(tree, group="estimands", ci_prob=0.95, ci_kind="eti")
    assert table.index.tolist() == ["ate", *(f"ate_by_cluster[{c}]" for c in range(3))]
    assert "eti95_lb" in table.columns
    az.plot_forest(tree, group="estimands")


@pytest.mark.slow
def test_power_scaling_works(fitted):
    model, _, tree = fitted
    tree = dpc.log_densities(tree, model)
    table = az.psense_summary(tree, var_names=["tilt_mean"])
    assert np.isfinite(table["prior"]).all()


@pytest.mark.slow
def test_equal_seeds_give_equal_draws(fitted):
    model, release, tree = fitted
    again = dpc.fit(model, release, random_seed=2, progressbar=False)
    np.testing.assert_array_equal(again["posterior"]["share"], tree["posterior"]["share"])


def test_a_model_of_another_release_is_refused(fitted):
    model, release, _ = fitted
    other = trial(SIZES, n_levels=3, epsilon=2.0, seed=9)
    with pytest.raises(ValueError, match="other released values"):
        dpc.fit(model, other)
    with pytest.raises(TypeError, match=r"pymc\.Model"):
        dpc.fit(release, release)
    with pytest.raises(TypeError, match="LabelRelease"):
        dpc.fit(model, "trial.json")
    with pm.Model() as plain:
        pm.Normal("x")
    with pytest.raises(ValueError, match="factory"):
        dpc.fit(plain, release)
