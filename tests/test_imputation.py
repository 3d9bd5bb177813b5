"""Imputed units: margins, names, dims, and complete tables."""

import itertools

import numpy as np
import pytest
import xarray as xr

from chi_square import assert_law
from dpcausal_bayes import imputation as module
from dpcausal_bayes.columns import Arm, Levels
from dpcausal_bayes.estimands import ATC, ATE, ATT, estimate
from dpcausal_bayes.imputation import impute, imputed_tables
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.models.confidential import confidential_counts
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release
from label_trees import (
    fixed_counts,
    make_release,
    make_schema,
    make_table,
    make_tree,
)

COUNTS = np.array([[[5, 3, 2], [10, 10, 20]], [[10, 10, 10], [0, 20, 0]]])
SHARES = np.array([[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], [[0.4, 0.4, 0.2], [0.0, 0.4, 0.6]]])


@pytest.fixture(autouse=True)
def _known_counts(monkeypatch):
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(COUNTS))


@pytest.fixture
def release():
    return make_release(make_schema(), COUNTS)


@pytest.fixture
def tree(release):
    return make_tree(release, np.broadcast_to(SHARES, (2, 30, *SHARES.shape)))


def run(tree, release, **kwargs):
    return impute(tree, release, progressbar=False, **kwargs)


def cell_counts(codes, release):
    """Return label counts (imputation, cluster, arm, level)."""
    codes = codes.reshape(-1, release.n)
    shape = (len(codes), release.schema.n_clusters, 2, release.schema.n_levels)
    counts = np.zeros(shape, int)
    for i, row in enumerate(codes):
        np.add.at(counts[i], (release.cluster, release.arm, row), 1)
    return counts


def test_margins_are_the_confidential_counts(tree, release):
    new = run(tree, release, draws=20)
    counts = cell_counts(new["imputations"]["true_label"].values, release)
    np.testing.assert_array_equal(counts, np.broadcast_to(COUNTS, counts.shape))


def test_margins_with_counts_that_are_not_whole(tree, release, monkeypatch):
    ragged = COUNTS + np.array([0.3, -0.5, 0.2])
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(ragged))
    new = run(tree, release, draws=60)
    counts = cell_counts(new["imputations"]["true_label"].values, release)
    assert (counts.sum(axis=-1) == release.cell_size).all()
    large = ragged[:1]  # no negative count there
    assert abs(counts[:, :1] - large).max() < 1
    np.testing.assert_allclose(counts[:, :1].mean(axis=0), large, atol=5 * 0.5 / np.sqrt(60))


def test_released_labels_inform_the_true_ones(release, tree):
    # most labels of this release are kept, and then the true label is the released one
    mechanism = ClusterDP(lam=0.05, sigma=1.0, gamma=0.1)
    release = make_release(make_schema(), COUNTS, mechanism)
    tree = make_tree(release, np.broadcast_to(SHARES, (2, 30, *SHARES.shape)))
    new = run(tree, release, draws=20)
    agree = (new["imputations"]["true_label"].values == release.label).mean()
    assert agree > 0.9


def test_a_model_that_is_blind_to_the_noise_reads_released_labels_as_true(monkeypatch, release):
    monkeypatch.setattr(module, "confidential_counts", confidential_counts)
    tree = make_tree(release, np.broadcast_to(SHARES, (1, 5, *SHARES.shape)))
    tree["constant_data"]["noise_aware"] = 0.0
    tree.attrs["manifest"] = tree.attrs["manifest"].replace(
        '"noise_aware": true', '"noise_aware": false'
    )
    new = run(tree, release, draws=5)
    assert (new["imputations"]["true_label"] == release.label).all()


def test_missing_labels_follow_the_other_arm(tree, release):
    new = run(tree, release, draws=60)
    counts = cell_counts(new["imputations"]["missing_label"].values, release)
    expected = release.cell_size[..., None] * SHARES[:, ::-1]
    spread = np.sqrt(np.maximum(expected * (1 - SHARES[:, ::-1]), 1e-12) / 60)
    assert (abs(counts.mean(axis=0) - expected) <= 5 * spread).all()
    # and their place among the units is not tied to the released label
    codes = new["imputations"]["missing_label"].values.reshape(-1, release.n)
    cell = (release.cluster == 0) & (release.arm == 1)
    zero = [codes[:, cell & (release.label == k)] == 0 for k in range(3)]
    for hits in zero:
        assert abs(hits.mean() - 0.5) < 5 * 0.5 / np.sqrt(hits.size)


def test_names_dims_and_coordinates(tree, release):
    new = run(tree, release, draws=5)
    group = new["imputations"].to_dataset()
    assert list(group.data_vars) == ["true_label", "missing_label"]
    assert set(group.coords) == {"chain", "draw", "unit", "level", "level_value"}
    for data in group.data_vars.values():
        assert data.dims == ("chain", "draw", "unit")
        assert data.dtype == np.int8
        assert "level" in data.attrs["values"]
    assert group.sizes["draw"] == 3  # at least five in all, as many from each of two chains
    assert group["draw"].values.tolist() == [5, 15, 25]
    assert group["level"].values.tolist() == ["0", "1", "2"]
    assert group["level_value"].values.tolist() == [0, 1, 2]
    assert group.attrs["release_digest"] == release.digest


def test_every_draw_can_be_imputed(tree, release):
    new = run(tree, release, draws=60)
    assert new["imputations"]["draw"].values.tolist() == list(range(30))


def test_the_input_is_left_as_it_is(tree, release):
    before = tree.copy(deep=True)
    run(tree, release, draws=4)
    xr.testing.assert_identical(tree, before)


def test_draws_are_determined_by_the_fit_or_by_a_seed(tree, release):
    def label(**kwargs):
        return run(tree, release, draws=4, **kwargs)["imputations"]["true_label"].values

    np.testing.assert_array_equal(label(), label())
    np.testing.assert_array_equal(label(random_seed=3), label(random_seed=3))
    assert (label() != label(random_seed=3)).any()


def test_progress_bar_is_shown_and_can_be_turned_off(tree, release, capsys):
    impute(tree, release, draws=2)
    assert "Imputing" in capsys.readouterr().out
    run(tree, release, draws=2)
    assert capsys.readouterr().out == ""


def test_another_release_is_refused(tree, release):
    other = make_release(make_schema(), COUNTS, seed=2)
    new = run(tree, release, draws=2)
    for call in (lambda: run(tree, other), lambda: imputed_tables(new, other)):
        with pytest.raises(ValueError, match="the release that the tree was fitted to"):
            call()
    with pytest.raises(TypeError, match="must be a LabelRelease"):
        run(tree, "release.json")


@pytest.mark.parametrize("draws", [0, -1, 2.5, True, None])
def test_draws_must_be_a_positive_number(tree, release, draws):
    with pytest.raises(ValueError, match="whole number, at least 1"):
        run(tree, release, draws=draws)


def test_more_draws_than_there_are(tree, release):
    with pytest.raises(ValueError, match="has 60 draws in all"):
        run(tree, release, draws=61)


def test_tables_are_complete_and_agree_with_the_imputations(tree, release):
    new = run(tree, release, draws=4)
    tables = list(imputed_tables(new, release))
    assert len(tables) == 4
    public = make_table(release.schema, COUNTS, seed=1)
    codes = new["imputations"]["true_label"].values.reshape(4, -1)
    missing = new["imputations"]["missing_label"].values.reshape(4, -1)
    for i, table in enumerate(tables):
        assert table.columns.tolist() == ["district", "t", "y", "y0", "y1"]
        assert table["district"].tolist() == public["district"].tolist()
        assert table["t"].tolist() == public["t"].tolist()
        treated = table["t"] == 1
        assert table["y"].tolist() == codes[i].tolist()
        assert table["y"].equals(table["y1"].where(treated, table["y0"]))
        unseen = table["y0"].where(treated, table["y1"])
        assert unseen.tolist() == missing[i].tolist()


def test_tables_hold_scores_and_named_arms(monkeypatch):
    schema = Schema(
        arm=Arm("seg", control="old", treated="new"),
        outcome=Levels("answer", ["no", "yes"], values=[-1, 10]),
    )
    table = make_table(make_schema(["all"], [0, 1]), COUNTS[:1, :, :2])
    table = table.assign(
        seg=table["t"].map({0: "old", 1: "new"}), answer=table["y"].map({0: "no", 1: "yes"})
    )
    release = simulate_release(table, schema, ClusterDP.calibrated(schema, epsilon=1), seed=1)
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(COUNTS[:1, :, :2]))
    tree = make_tree(release, np.full((1, 4, 1, 2, 2), 0.5))
    done = next(imputed_tables(run(tree, release, draws=1), release))
    assert done.columns.tolist() == ["seg", "answer", "y0", "y1"]
    assert done["seg"].tolist() == table["seg"].tolist()
    assert set(done["answer"]) == {-1.0, 10.0}


def test_tables_need_imputations_and_free_names(tree, release, monkeypatch):
    with pytest.raises(ValueError, match="call tree = impute"):
        imputed_tables(tree, release)
    schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y1", [0, 1]))
    table = make_table(make_schema(["all"], [0, 1]), COUNTS[:1, :, :2]).rename(columns={"y": "y1"})
    release = simulate_release(table, schema, ClusterDP.calibrated(schema, epsilon=1), seed=1)
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(COUNTS[:1, :, :2]))
    tree = make_tree(release, np.full((1, 4, 1, 2, 2), 0.5))
    with pytest.raises(ValueError, match="'y1' has the name of a potential outcome"):
        imputed_tables(run(tree, release, draws=1), release)


def test_empty_cells_are_no_obstacle(monkeypatch):
    counts = COUNTS.copy()
    counts[0, 1] = counts[1] = 0
    release = make_release(make_schema(), counts)
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(counts))
    tree = make_tree(release, np.broadcast_to(SHARES, (1, 10, *SHARES.shape)))
    new = run(tree, release, draws=3)
    assert new["imputations"].sizes["unit"] == 10


def test_many_levels_take_a_wider_code(monkeypatch):
    schema = make_schema(["all"], range(200))
    counts = np.ones((1, 2, 200), int)
    release = make_release(schema, counts)
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(counts))
    new = run(make_tree(release, np.full((1, 2, 1, 2, 200), 1 / 200)), release, draws=1)
    codes = new["imputations"]["true_label"]
    assert codes.dtype == np.int16
    assert codes.max() == 199


@pytest.mark.parametrize("noise", [Laplace, Gaussian])
@pytest.mark.parametrize(
    ("counts", "shares"),
    [
        ([[[3, 1], [1, 3]]], [[[0.7, 0.3], [0.4, 0.6]]]),
        ([[[2, 1, 1], [0, 2, 1]]], [[[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]]]),
    ],
)
def test_units_against_every_table_that_could_have_been(counts, shares, noise, monkeypatch):
    # the whole way: counts given shares and release, then labels given counts
    monkeypatch.setattr(module, "confidential_counts", confidential_counts)
    counts, shares = np.array(counts), np.array(shares)
    n_levels = counts.shape[-1]
    schema = make_schema(["all"], range(n_levels))
    mechanism = ClusterDP(lam=0.6, sigma=1.5, gamma=0.4 / n_levels, noise=noise, delta=1e-6)
    release = make_release(schema, counts, mechanism, seed=3)
    draws = 10_000
    tree = make_tree(release, np.broadcast_to(shares, (1, draws, *shares.shape)))
    labels = run(tree, release, draws=draws)["imputations"]["true_label"].values[0]
    for arm in range(2):
        units = np.flatnonzero(release.arm == arm)
        channel = mechanism.channel(release.prior[0, arm])
        places, weights = {}, []
        for place in itertools.product(range(n_levels), repeat=len(units)):
            table = np.bincount(place, minlength=n_levels)
            error = release.noisy_counts[0, arm] - table
            weight = shares[0, arm][list(place)].prod()
            weight *= channel[release.label[units], list(place)].prod()
            places[place] = len(places)
            weights.append(weight * np.exp(mechanism.noise_law.log_pmf(error).sum()))
        law = np.array(weights) / np.sum(weights)
        found = np.array([places[tuple(row)] for row in labels[:, units].tolist()])
        assert_law(found, law)
        with pytest.raises(AssertionError, match="p-value"):  # the test can tell laws apart
            assert_law(found, law**1.2 / np.sum(law**1.2))


def test_imputed_effects_are_the_estimands_of_these_units(monkeypatch):
    # two roads to one posterior: mean and spread of the effect on these units
    monkeypatch.setattr(module, "confidential_counts", confidential_counts)
    counts = np.array([[[3, 1, 2], [1, 3, 1]], [[2, 2, 0], [1, 1, 4]]])
    mechanism = ClusterDP(lam=0.6, sigma=1.5, gamma=0.1)
    release = make_release(make_schema(), counts, mechanism)
    shares = np.random.default_rng(2).dirichlet(np.ones(3), size=(2, 2000, 2, 2))
    tree = make_tree(release, shares)
    new = run(estimate(tree, [ATE(), ATT(), ATC()], population="sample"), release, draws=4000)
    group = new["imputations"]
    true, missing = (group[name].values.reshape(4000, -1) for name in group.data_vars)
    effect = np.where(release.arm == 1, 1, -1) * (true.astype(int) - missing)
    for name, who in {"ate": [0, 1], "att": [1], "atc": [0]}.items():
        imputed = effect[:, np.isin(release.arm, who)].mean(axis=1)
        estimated = new["estimands"][name].values.ravel()
        spread = estimated.std() * np.sqrt(2 / 4000)
        assert abs(imputed.mean() - estimated.mean()) < 5 * spread
        assert abs(imputed.std() / estimated.std() - 1) < 5 / np.sqrt(4000)
