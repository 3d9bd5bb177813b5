"""Closed-form contrasts: unbiased, their standard errors right, and clear about where they end."""

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.direct.estimates import DirectEstimate
from dpcausal_bayes.direct.labels import (
    centred_histogram_contrast,
    debiased,
    histogram_contrast,
    usable_clusters,
)
from dpcausal_bayes.estimands import ATE
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.populations.labels import Population, binary_population, mixture_population
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release

ALL = [debiased, histogram_contrast, centred_histogram_contrast]
HISTOGRAMS = ALL[1:]
SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1),
    outcome=Levels("y", [0, 1, 5]),
    cluster=Categories("c", ["a", "b"]),
)
SHARES = [[[0.5, 0.3, 0.2], [0.1, 0.4, 0.5]], [[0.2, 0.2, 0.6], [0.25, 0.5, 0.25]]]
TRIAL = Population(schema=SCHEMA, shares=SHARES, cell_size=[[20, 12], [9, 40]])
MECHANISM = ClusterDP(lam=0.4, sigma=2.0, gamma=0.1)


def release_of(trial=TRIAL, mechanism=MECHANISM, seed=1):
    return simulate_release(trial.draw(seed), trial.schema, mechanism, seed=seed + 10_000)


def table_contrast(table):
    """The stratified difference in means without privacy."""
    mean = table.groupby(["c", "t"], observed=True)["y"].mean().unstack()
    weight = table.groupby("c", observed=True).size() / len(table)
    return float(weight @ (mean[1] - mean[0]))


def within(draws, wanted, errors=4.5):
    """Compare the mean of draws with a number, in Monte Carlo errors: (draws, ...) and (...)."""
    draws = np.asarray(draws)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return np.all(np.abs(draws.mean(axis=0) - wanted) < errors * error)


def test_scores_are_those_of_the_inverted_channel():
    release = release_of()
    channel = MECHANISM.channel(release.prior)
    score = np.array([0, 1, 5]) @ np.linalg.inv(channel)
    mean = (score * release.label_counts).sum(axis=-1) / release.cell_size
    found = debiased(release)
    np.testing.assert_allclose(found.table[["control", "treated"]], mean)
    assert found.estimate == pytest.approx(np.average(mean[:, 1] - mean[:, 0], weights=[32, 49]))


def test_debiased_variance_is_that_of_the_units_scores():
    release = release_of()
    score = np.array([0, 1, 5]) @ np.linalg.inv(MECHANISM.channel(release.prior))
    cell = pd.DataFrame({"c": release.cluster, "t": release.arm})
    cell["score"] = score[release.cluster, release.arm, release.label]
    error = cell.groupby(["c", "t"])["score"].sem().unstack()
    np.testing.assert_allclose(
        debiased(release).table["variance"], (error**2).sum(axis=1).to_numpy()
    )


def test_histogram_contrast_by_hand():
    release = release_of()
    q = release.noisy_counts / release.cell_size[..., None]
    mean = q @ [0, 1, 5]
    found = histogram_contrast(release)
    np.testing.assert_allclose(found.table[["control", "treated"]], mean)
    assert found.estimate == pytest.approx(np.average(mean[:, 1] - mean[:, 0], weights=[32, 49]))
    variance = MECHANISM.noise_law.variance * 26 / release.cell_size**2
    np.testing.assert_allclose(found.table["noise_variance"], variance.sum(axis=1))
    # the known total shared out evenly: another way to say centred
    even = q + (1 - q.sum(axis=-1, keepdims=True)) / 3
    centred = centred_histogram_contrast(release)
    np.testing.assert_allclose(centred.table[["control", "treated"]], even @ [0, 1, 5])
    np.testing.assert_allclose(centred.table["noise_variance"], (variance / 26 * 14).sum(axis=1))


def test_plain_and_centred_agree_where_values_are_symmetric_and_halve_where_binary():
    symmetric = release_of(mixture_population(units=200), ClusterDP(lam=0.5, sigma=1.0, gamma=0.04))
    plain, centred = histogram_contrast(symmetric), centred_histogram_contrast(symmetric)
    assert plain.estimate == pytest.approx(centred.estimate)
    assert plain.variance == pytest.approx(centred.variance)
    binary = release_of(binary_population())
    plain, centred = histogram_contrast(binary), centred_histogram_contrast(binary)
    assert centred.noise_variance == pytest.approx(plain.noise_variance / 2)
    # what is not noise is the same estimate of the same thing
    assert centred.variance - centred.noise_variance == pytest.approx(
        plain.variance - plain.noise_variance
    )


@pytest.mark.parametrize("contrast", [debiased, centred_histogram_contrast])
def test_shifting_all_values_changes_nothing(contrast):
    moved = Schema(
        arm=SCHEMA.arm,
        outcome=Levels("y", [0, 1, 5], values=[1000, 1001, 1005]),
        cluster=SCHEMA.cluster,
    )
    release = release_of()
    fields = {field: getattr(release, field) for field in release.__struct_fields__}
    shifted = type(release)(**(fields | {"schema": moved}))
    one, two = contrast(release), contrast(shifted)
    np.testing.assert_allclose(
        [one.estimate, one.variance, one.noise_variance],
        [two.estimate, two.variance, two.noise_variance],
        rtol=1e-6,
    )
    # the plain histogram does change, and says so by its variance
    assert histogram_contrast(shifted).variance > 100 * histogram_contrast(release).variance


@functools.cache
def studied(mechanism, tables, draws):
    """Releases of one table or of a new one each, and all contrasts of each release."""
    rows, sample = [], TRIAL.draw(3)
    for seed in range(draws):
        table = sample if tables == 1 else TRIAL.draw(seed)
        release = simulate_release(table, SCHEMA, mechanism, seed=seed + 10_000)
        rows.append([contrast(release) for contrast in ALL])
    return list(zip(*rows, strict=True))


@pytest.mark.parametrize("contrast", range(3), ids=[contrast.__name__ for contrast in ALL])
@pytest.mark.parametrize(
    "mechanism",
    [MECHANISM, ClusterDP(lam=0.8, sigma=3.0, gamma=0.02, noise=Gaussian, delta=1e-6)],
    ids=["laplace", "gaussian"],
)
def test_unbiased_given_the_table_with_the_stated_noise(contrast, mechanism):
    """One table, many releases: the mean is the table's contrast; noise_variance is its spread."""
    found = studied(mechanism, 1, 1500)[contrast]
    wanted = table_contrast(TRIAL.draw(3))
    estimates = np.array([one.estimate for one in found])
    assert within(estimates, wanted)
    squares = (estimates - wanted) ** 2
    assert within(squares - [one.noise_variance for one in found], 0)
    # the test would see a third more variance
    assert not within(squares * 1.35 - [one.noise_variance for one in found], 0)


@pytest.mark.parametrize("contrast", range(3), ids=[contrast.__name__ for contrast in ALL])
def test_variance_is_right_over_tables_and_releases(contrast):
    """Sampling and noise together: squared errors against estimated variances, by cluster too."""
    found = studied(MECHANISM, 2000, 2000)[contrast]
    estimates = np.array([[one.estimate, *one.table["estimate"]] for one in found])
    variances = np.array([[one.variance, *one.table["variance"]] for one in found])
    wanted = np.array([float(TRIAL.truth(ATE())), *TRIAL.effects])
    assert within(estimates, wanted)
    squares = (estimates - wanted) ** 2
    assert within(squares - variances, 0)
    assert not within(1.35 * squares - variances, 0)
    fine = variances[:, 0] > 0
    assert fine.mean() > 0.99
    # cells are small, and where a noisy mean is far off, its variance is underestimated
    assert 0.9 < np.mean(squares[fine, 0] < 1.96**2 * variances[fine, 0]) < 0.97


def test_sampling_part_of_the_histogram_variance_by_enumeration():
    """Every noise vector on a wide support: the estimated variance has exactly the right mean."""
    schema = Schema(arm=SCHEMA.arm, outcome=Levels("y", [0, 1, 5]))
    table = pd.DataFrame({"t": [0] * 4 + [1] * 3, "y": [0, 5, 1, 1, 5, 0, 0]})
    mechanism = ClusterDP(lam=0.5, sigma=0.4, gamma=0.1)
    release = simulate_release(table, schema, mechanism, seed=1)
    fields = {field: getattr(release, field) for field in release.__struct_fields__}
    truth = np.array([[[1, 2, 1], [2, 0, 1]]])
    noise = np.array(list(itertools.product(range(-9, 10), repeat=3)))
    chance = np.exp(mechanism.noise_law.log_pmf(noise).sum(axis=-1))
    mean = np.zeros(2)
    for e, p in zip(noise, chance, strict=True):
        if p < 1e-13:
            continue
        noisy = truth + np.stack([e, e])[None]
        found = histogram_contrast(type(release)(**(fields | {"noisy_counts": noisy})))
        mean += p * np.array([found.estimate, found.variance - found.noise_variance])
    sampling = table.groupby("t")["y"].var() / [4, 3]
    np.testing.assert_allclose(mean, [5 / 3 - 7 / 4, sampling.sum()], atol=1e-7)


def test_gaussian_and_laplace_state_their_own_noise():
    laplace = histogram_contrast(release_of())
    mechanism = ClusterDP(lam=0.4, sigma=2.0, gamma=0.1, noise=Gaussian, delta=1e-6)
    gaussian = histogram_contrast(release_of(mechanism=mechanism))
    ratio = mechanism.noise_law.variance / MECHANISM.noise_law.variance
    assert gaussian.noise_variance == pytest.approx(laplace.noise_variance * ratio)


def constant_release(extra):
    """All outcomes are no; one count of each cell was raised by ``extra``."""
    schema = Schema(arm=SCHEMA.arm, outcome=Levels("y", [0, 1]))
    table = pd.DataFrame({"t": [0, 1] * 5, "y": [0] * 10})
    release = simulate_release(table, schema, ClusterDP(lam=0.5, sigma=0.5, gamma=0.1), seed=1)
    fields = {field: getattr(release, field) for field in release.__struct_fields__}
    noisy = np.array([[[5 + extra, 0], [5 + extra, 0]]])
    return type(release)(**(fields | {"noisy_counts": noisy}))


def test_a_negative_variance_stays_and_is_refused_as_a_standard_error():
    found = centred_histogram_contrast(constant_release(1))
    assert found.variance < 0 < found.noise_variance
    assert np.isnan(found.table["standard_error"]).all()
    assert found.table["variance"].sum() == pytest.approx(found.variance)
    assert "variance negative" in repr(found)
    for ask in (lambda: found.standard_error, found.interval):
        with pytest.raises(ValueError, match=r"variance is -.*Use larger cells, or the model"):
            ask()
    assert centred_histogram_contrast(constant_release(0)).standard_error > 0


def test_clusters_without_a_contrast_are_named_and_never_dropped():
    schema = Schema(
        arm=SCHEMA.arm, outcome=SCHEMA.outcome, cluster=Categories("c", ["a", "b", "d", "e"])
    )
    sizes = [[5, 5], [4, 1], [0, 0], [3, 6]]
    trial = Population(schema=schema, shares=SHARES * 2, cell_size=sizes)
    release = release_of(trial)
    assert usable_clusters(release) == ("a", "e")
    for contrast in ALL:
        with pytest.raises(ValueError, match="cluster 'b' has fewer than two units in an arm"):
            contrast(release)
        found = contrast(release, clusters=usable_clusters(release))
        assert found.excluded == ("b", "d")
        assert list(found.table.index) == ["a", "e"]
        np.testing.assert_allclose(found.table["weight"], [10 / 19, 9 / 19])
        assert found.estimate == pytest.approx(found.table["weight"] @ found.table["estimate"])
        assert "2 clusters left out" in repr(found)


def test_a_one_armed_cluster_is_not_taken_for_an_empty_one():
    trial = Population(schema=SCHEMA, shares=SHARES, cell_size=[[5, 5], [7, 0]])
    for contrast in ALL:
        with pytest.raises(ValueError, match="cluster 'b' has fewer than two units in an arm"):
            contrast(release_of(trial))


def test_an_empty_cluster_has_no_weight_and_is_listed():
    trial = Population(schema=SCHEMA, shares=SHARES, cell_size=[[5, 5], [0, 0]])
    release = release_of(trial)
    for contrast in ALL:
        assert contrast(release).excluded == ("b",)
        with pytest.raises(ValueError, match="cluster 'b' has fewer"):
            contrast(release, clusters=["a", "b"])


@pytest.mark.parametrize("clusters", [["z"], [], ["a", "z"]])
def test_clusters_must_be_known(clusters):
    with pytest.raises(ValueError, match=r"it must name some of \['a', 'b'\]"):
        debiased(release_of(), clusters=clusters)


def test_clusters_as_text_are_a_slip():
    with pytest.raises(TypeError, match="give a list of labels"):
        debiased(release_of(), clusters="a")


def test_a_uniform_prior_has_labels_only():
    uniform = ClusterDP(lam=0.4, sigma=None, gamma=1 / 3)
    release = release_of(mechanism=uniform)
    assert debiased(release).standard_error > 0
    for contrast in HISTOGRAMS:
        with pytest.raises(ValueError, match=r"releases no histogram; use debiased\(release\)"):
            contrast(release)


@pytest.mark.parametrize("contrast", ALL)
def test_levels_need_values(contrast):
    schema = Schema(arm=SCHEMA.arm, outcome=Levels("y", ["x", "y", "z"]))
    trial = Population(schema=schema, shares=SHARES[:1], cell_size=[[9, 9]])
    with pytest.raises(ValueError, match=r"Levels.values is None for 'y'"):
        contrast(release_of(trial))


def test_interval_is_the_normal_one():
    found = DirectEstimate("by hand", 1.0, 4.0, 0.0, pd.DataFrame(), ())
    np.testing.assert_allclose(found.interval(0.5), stats.norm.interval(0.5, 1, 2))
    for prob in (0, 1, 1.5, np.nan):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            found.interval(prob)
