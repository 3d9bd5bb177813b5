"""Estimands from trees whose answer is known by hand."""

import itertools

import arviz as az
import numpy as np
import pytest
import xarray as xr

from dpcausal_bayes import label_potential as module
from dpcausal_bayes.estimands import ATC, ATE, ATT, estimate
from label_trees import fixed_counts, make_release, make_schema, make_tree

KINDS = (ATE, ATT, ATC)
EVERY = [kind(by=by) for kind in KINDS for by in (None, "cluster")]

# (cluster, arm, level): 10 and 40 units in the north, 30 and 20 in the south
COUNTS = np.array([[[5, 3, 2], [10, 10, 20]], [[10, 10, 10], [5, 10, 5]]])
SHARES = np.array([[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], [[0.4, 0.4, 0.2], [0.3, 0.4, 0.3]]])
# by hand, with scores 0, 1, 2
SUPER = {"north": 1.3 - 0.7, "south": 1.0 - 0.8}
TABLE = {"north": 50 / 40 - 7 / 10, "south": 20 / 20 - 30 / 30}


@pytest.fixture(autouse=True)
def _known_counts(monkeypatch):
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(COUNTS))


@pytest.fixture
def release():
    return make_release(make_schema(), COUNTS)


def tree_of(release, shares=SHARES, chains=2, draws=30):
    shares = np.asarray(shares)
    return make_tree(release, np.broadcast_to(shares, (chains, draws, *shares.shape)))


@pytest.fixture
def tree(release):
    return tree_of(release)


def values(tree, name, group="estimands"):
    return tree[group][name].values


def test_superpopulation_effects_are_those_of_the_shares(tree):
    new = estimate(tree, EVERY, population="super")
    expected = {"ate": (50, 50), "att": (40, 20), "atc": (10, 30)}
    for name, (north, south) in expected.items():
        effect = (north * SUPER["north"] + south * SUPER["south"]) / (north + south)
        np.testing.assert_allclose(values(new, name), effect, rtol=1e-12)
        split = new["estimands"][f"{name}_by_cluster"]
        for label, of_cluster in SUPER.items():
            np.testing.assert_allclose(split.sel(cluster=label), of_cluster, rtol=1e-12)


def test_confidential_effects_are_those_of_the_counts(tree):
    for population in ("super", "sample"):
        new = estimate(tree, EVERY, population=population)
        for name, (north, south) in {"ate": (50, 50), "att": (40, 20), "atc": (10, 30)}.items():
            effect = (north * TABLE["north"] + south * TABLE["south"]) / (north + south)
            got = values(new, name, "confidential_estimands")
            np.testing.assert_allclose(got, effect, rtol=1e-12)


def test_sample_effects_are_exact_where_the_missing_outcomes_are_certain(release):
    # shares of one: whoever lacks an outcome under treatment would have had the top level
    certain = np.zeros((2, 2, 3))
    certain[:, 0, 0] = certain[:, 1, 2] = 1
    new = estimate(tree_of(release, certain), EVERY, population="sample")
    att = (40 * 50 / 40 + 20 * 20 / 20) / 60  # observed treated minus zero
    atc = (10 * (2 - 7 / 10) + 30 * (2 - 1)) / 40
    np.testing.assert_allclose(values(new, "att"), att, rtol=1e-12)
    np.testing.assert_allclose(values(new, "atc"), atc, rtol=1e-12)
    np.testing.assert_allclose(values(new, "ate"), 0.6 * att + 0.4 * atc, rtol=1e-12)


def test_sample_effects_have_the_variance_of_the_missing_outcomes(release):
    new = estimate(tree_of(release, draws=20_000), [ATT(), ATE()], population="sample")
    v = np.arange(3)
    mean = SHARES @ v
    variance = SHARES @ v**2 - mean**2
    att = (50 - 40 * mean[0, 0] + 20 - 20 * mean[1, 0]) / 60
    att_sd = np.sqrt(40 * variance[0, 0] + 20 * variance[1, 0]) / 60
    ate_sd = np.sqrt(variance.T.ravel() @ [40, 20, 10, 30]) / 100
    n = values(new, "att").size
    assert abs(values(new, "att").mean() - att) < 5 * att_sd / np.sqrt(n)
    assert abs(values(new, "att").std() / att_sd - 1) < 5 / np.sqrt(2 * n)
    assert abs(values(new, "ate").std() / ate_sd - 1) < 5 / np.sqrt(2 * n)


@pytest.mark.parametrize("population", ["super", "sample"])
def test_all_is_a_weighted_sum_of_its_parts(release, population):
    rng = np.random.default_rng(2)
    tree = make_tree(release, rng.dirichlet(np.ones(3), size=(2, 50, 2, 2)))
    new = estimate(tree, EVERY, population=population)
    for group in ("estimands", "confidential_estimands", "prior_estimands"):
        ate, att, atc = (values(new, name, group) for name in ("ate", "att", "atc"))
        np.testing.assert_allclose(ate, 0.6 * att + 0.4 * atc, rtol=1e-9, atol=1e-12)
        weights = {"ate": [50, 50], "att": [40, 20], "atc": [10, 30]}
        for name, weight in weights.items():
            split = values(new, f"{name}_by_cluster", group)
            total = split @ np.array(weight) / sum(weight)
            np.testing.assert_allclose(total, values(new, name, group), rtol=1e-9, atol=1e-12)


def test_prior_estimands_come_from_the_prior(release):
    prior = np.broadcast_to(SHARES, (1, 500, 2, 2, 3))
    flat = np.full((2, 30, 2, 2, 3), 1 / 3)
    new = estimate(make_tree(release, flat, prior), [ATE()], population="super")
    np.testing.assert_allclose(values(new, "ate"), 0, atol=1e-12)
    effect = (SUPER["north"] + SUPER["south"]) / 2
    np.testing.assert_allclose(values(new, "ate", "prior_estimands"), effect, rtol=1e-12)
    assert new["prior_estimands"].sizes == {"chain": 1, "draw": 500}


def empty_cells(monkeypatch, counts):
    counts = np.asarray(counts)
    monkeypatch.setattr(module, "confidential_counts", fixed_counts(counts))
    rng = np.random.default_rng(4)
    release = make_release(make_schema(), counts)
    return make_tree(release, rng.dirichlet(np.ones(3), size=(2, 40, 2, 2)))


@pytest.mark.parametrize("population", ["super", "sample"])
def test_an_arm_without_units_in_a_cluster(monkeypatch, population):
    counts = COUNTS.copy()
    counts[0, 1] = 0  # nobody treated in the north
    tree = empty_cells(monkeypatch, counts)
    new = estimate(tree, EVERY, population=population)
    for group, name in itertools.product(
        ("estimands", "confidential_estimands", "prior_estimands"), (one.name for one in EVERY)
    ):
        assert np.isfinite(values(new, name, group)).all()
    south = new["estimands"]["att_by_cluster"].sel(cluster="south")
    np.testing.assert_allclose(values(new, "att"), south)  # the treated are all there
    support = new["estimand_support"]
    assert support["att"].item() == 1
    assert support["ate"].item() == pytest.approx(50 / 60)
    assert support["atc_by_cluster"].values.tolist() == [0, 1]
    # the north's treated are no units: their effect is the superpopulation's
    effect = tree["posterior"]["share"].values @ np.arange(3)
    north = new["estimands"]["att_by_cluster"].sel(cluster="north")
    np.testing.assert_allclose(north, effect[..., 0, 1] - effect[..., 0, 0])


@pytest.mark.parametrize("population", ["super", "sample"])
def test_a_cluster_without_units_has_no_weight(monkeypatch, population):
    counts = COUNTS.copy()
    counts[1] = 0
    new = estimate(empty_cells(monkeypatch, counts), EVERY, population=population)
    for kind in KINDS:
        split = new["estimands"][f"{kind.short}_by_cluster"]
        assert np.isfinite(split).all()
        np.testing.assert_allclose(values(new, kind.short), split.sel(cluster="north"))
        assert new["estimand_support"][kind.short].item() == pytest.approx(1)


def test_an_empty_cell_adds_no_variance_to_the_table(monkeypatch):
    counts = COUNTS.copy()
    counts[0, 1] = 0
    new = estimate(empty_cells(monkeypatch, counts), [ATE()], population="super")
    assert values(new, "ate", "confidential_estimands").std() < 1e-12
    assert values(new, "ate").std() > 0.01


def test_nobody_treated_at_all_is_an_error_for_the_treated(monkeypatch):
    counts = COUNTS.copy()
    counts[:, 1] = 0
    tree = empty_cells(monkeypatch, counts)
    with pytest.raises(ValueError, match="att: no unit was assigned to treated"):
        estimate(tree, [ATT()], population="super")
    assert np.isfinite(values(estimate(tree, [ATE()], population="sample"), "ate")).all()


def test_names_dims_coordinates_and_attributes(tree):
    new = estimate(tree, EVERY, population="sample")
    added = set(new.children) - set(tree.children)
    assert added == {
        "estimands",
        "confidential_estimands",
        "prior_estimands",
        "estimand_support",
    }
    names = ["ate", "ate_by_cluster", "att", "att_by_cluster", "atc", "atc_by_cluster"]
    for group in added - {"estimand_support"}:
        data = new[group].to_dataset()
        assert list(data.data_vars) == names
        assert set(data.coords) == {"chain", "draw", "cluster"}
        assert data["ate"].dims == ("chain", "draw")
        assert data["ate_by_cluster"].dims == ("chain", "draw", "cluster")
        assert data["cluster"].values.tolist() == ["north", "south"]
        assert data.attrs["population"] == "sample"
        assert data.attrs["contrast"] == "treated minus control"
        assert data.attrs["units"] == "score of 'y'"
        assert "independent given its cluster" in data.attrs["assumption"]
    assert "assumption" not in estimate(tree, EVERY, population="super")["estimands"].attrs
    assert new.attrs == tree.attrs


def test_the_input_is_left_as_it_is(tree):
    before = tree.copy(deep=True)
    new = estimate(tree, EVERY, population="sample")
    xr.testing.assert_identical(tree, before)
    again = estimate(new, [ATE()], population="super")  # replaces what was there
    assert list(again["estimands"].data_vars) == ["ate"]
    assert list(new["estimands"].data_vars) != ["ate"]


def test_draws_are_determined_by_the_fit_or_by_a_seed(tree):
    def ate(**kwargs):
        return values(estimate(tree, [ATE()], population="sample", **kwargs), "ate")

    np.testing.assert_array_equal(ate(), ate())
    np.testing.assert_array_equal(ate(random_seed=3), ate(random_seed=3))
    assert (ate() != ate(random_seed=3)).any()


def test_arviz_reads_the_group(tree):
    new = estimate(tree, EVERY, population="sample")
    summary = az.summary(new, group="estimands")
    assert "ate" in summary.index
    assert "ate_by_cluster[north]" in summary.index
    az.plot_forest(new, group="estimands")


def test_text_levels_need_scores(monkeypatch):
    schema = make_schema(levels=("low", "mid", "high"))
    release = make_release(schema, COUNTS)
    with pytest.raises(ValueError, match=r"\['low', 'mid', 'high'\] have no scores.*values="):
        estimate(tree_of(release), [ATE()], population="super")
    scored = make_schema(levels=("low", "mid", "high"), values=(0, 10, 20))
    new = estimate(tree_of(make_release(scored, COUNTS)), [ATE()], population="super")
    np.testing.assert_allclose(values(new, "ate"), 10 * sum(SUPER.values()) / 2)


@pytest.mark.parametrize(
    ("estimands", "error", "message"),
    [
        ([], ValueError, "empty"),
        (ATE(), TypeError, "must be a list"),
        ("ate", TypeError, "must be a list"),
        ([ATE], TypeError, r"estimands\[0\]"),
        (["ate"], TypeError, r"estimands\[0\] is 'ate'"),
        ([ATE(), ATE()], ValueError, "'ate' twice"),
        ([ATE(by="district")], ValueError, r"ATE.by is 'district': .* \['cluster'\]"),
    ],
)
def test_wrong_estimands(tree, estimands, error, message):
    with pytest.raises(error, match=message):
        estimate(tree, estimands, population="super")


def test_a_factor_is_named_not_passed():
    with pytest.raises(TypeError, match="name the factor as text"):
        ATE(by=np.array(["north", "south"]))


@pytest.mark.parametrize("population", ["units", None, "Sample"])
def test_another_population(tree, population):
    with pytest.raises(ValueError, match=r'must be "super" .* or "sample"'):
        estimate(tree, [ATE()], population=population)
