"""Synthetic tables: rows of the law that the posterior says, in the schema's own values."""

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Binned, Categories
from dpcausal_bayes.models.maxent_laws import maxent_law
from dpcausal_bayes.models.stratum_laws import outcome_moments
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.synthesis import synthesize
from dpcausal_bayes.synthetic_columns import beta_draws, level_column
from dpcausal_bayes.synthetic_gram import _levels, _numbers, _population, _steps
from label_trees import make_release as make_label_release
from label_trees import make_schema
from moment_examples import WORKLOADS as CAUSAL
from moment_examples import make as make_moments
from moment_trees import make_release, make_tree, make_workload
from synthetic_examples import (
    DISPERSION,
    MEAN,
    SHARE,
    STRATA,
    WORKLOADS,
    codes,
    gram_release,
    gram_tree,
    maxent_tree,
    stratified_tree,
    study,
)


@pytest.fixture(scope="module")
def second_order():
    release = gram_release(n=4_000, epsilon=2.0)
    return gram_tree(release), release


def near(found, expected, sd, rows):
    """Within five standard errors."""
    assert np.all(np.abs(np.asarray(found) - expected) < 5 * sd / np.sqrt(rows))


def test_strata_have_the_shares_and_the_beta_laws_of_the_draw():
    tree, release = stratified_tree()
    rows = 400_000
    table = synthesize(tree, release, tables=1, rows=rows)[0]
    assert table.columns.tolist() == ["t", "sex", "age", "y"]
    assert table["y"].between(0, 10).all()
    assert table["age"].between(0, 80).all()
    arm, stratum = codes(table)
    scaled = (table["y"] - 5) / 5
    for t, s in np.ndindex(2, STRATA):
        own = scaled[(arm == t) & (stratum == s)]
        near(len(own) / rows, SHARE[t, s], 0.5, rows)
        second, third, fourth = outcome_moments(MEAN[t, s], DISPERSION[t])
        assert second - MEAN[t, s] ** 2 == pytest.approx(DISPERSION[t] * (1 - MEAN[t, s] ** 2))
        for k, moment in enumerate((MEAN[t, s], second, third, fourth), 1):
            near((own**k).mean(), moment, 1.0, len(own))


def test_a_binary_outcome_has_the_means_of_the_draw_as_scores():
    tree, release = stratified_tree(binary=True)
    table = synthesize(tree, release, tables=1, rows=200_000)[0]
    assert set(table["y"]) == {2.0, 5.0}
    arm, stratum = codes(table)
    for t, s in np.ndindex(2, STRATA):
        own = table["y"][(arm == t) & (stratum == s)]
        near(own.mean(), 2 + 3 * (1 + MEAN[t, s]) / 2, 1.5, len(own))


def test_maximum_entropy_rows_follow_the_law():
    tree, release, form = maxent_tree(draws=1, chains=1)
    rows = 200_000
    table = synthesize(tree, release, tables=1, rows=rows)[0]
    assert table.columns.tolist() == ["t", "sex", "town", "y"]
    law = maxent_law(form, tree["posterior"]["coefficient"].values[0, 0])
    for (t, y), level in np.ndenumerate(law.cell):
        own = table[(table["t"] == t) & (table["y"] == y)]
        near(len(own) / rows, level, 0.5, rows)
        for g, (name, values) in enumerate([("sex", "fm"), ("town", "abc")]):
            shares = own[name].value_counts(normalize=True).reindex(list(values))
            near(shares.to_numpy(), law.level[t, g, : len(values), y], 0.5, len(own))


def test_numbers_are_uniform_within_their_bins():
    rng = np.random.default_rng(1)
    covariate = Binned("age", [0, 40, 50], other="unknown")
    level = rng.integers(0, 3, 60_000)
    drawn = level_column(covariate, level, rng)
    assert np.isnan(drawn[level == 2]).all()
    for bin_, (low, high) in enumerate([(0, 40), (40, 50)]):
        own = drawn[level == bin_]
        assert own.min() >= low
        assert own.max() < high
        near(own.mean(), (low + high) / 2, (high - low) / np.sqrt(12), len(own))


def test_levels_keep_their_kind():
    rng, level = np.random.default_rng(1), np.array([1, 0])
    assert level_column(Categories("a", [10, 7]), level, rng).tolist() == [7, 10]
    with_other = level_column(Categories("a", [10, 7], other="else"), np.array([2, 0]), rng)
    assert with_other.tolist() == ["else", 10]


@pytest.mark.parametrize("name", WORKLOADS)
def test_rows_have_the_second_moments_of_the_release(name):
    """By way of hardly any noise: the table's moments are the release's, entry by entry."""
    workload, n, rows = WORKLOADS[name], 300_000, 300_000
    release = gram_release(name, n=n, epsilon=60.0)
    tables = synthesize(gram_tree(release, draws=2, chains=1), release, tables=1, rows=rows)
    table = tables[0]
    assert table.columns.tolist() == ["t", *workload.covariates, workload.schema.outcome.column]
    assert table["age"].between(18, 78).all()
    outcome = workload.schema.outcome.column
    assert table[outcome].isin([2, 5]).all() if name == "binary" else True
    asked = table.assign(won=(table[outcome] == 5).astype(int)) if name == "binary" else table
    again = simulate_moments(asked, workload, release.mechanism, seed=2)
    # sd of a product of columns in [-1, 1] is at most 1: of the table, of the posterior's draw
    np.testing.assert_allclose(
        again.noisy / rows, release.noisy / n, atol=4 * np.sqrt(1 / n + 1 / rows)
    )
    assert sum(table.attrs["moved"].values()) < 0.01


def test_the_population_is_drawn_around_the_confidential_moments():
    """Intercepts, slopes and scales of normal regressions with the reference prior."""
    rng = np.random.default_rng(5)
    steps = _steps(WORKLOADS["bounded"])
    assert [step.column for step in steps] == ["sex", "town", "age", "wage", "y"]
    records, p = 50.0, 7
    root = np.tril(rng.normal(size=(p, p)), -1) * 0.2 + np.diag(rng.uniform(0.2, 0.9, p))
    order = np.concatenate([step.columns for step in steps])
    covariance, mean = np.empty((p, p)), np.empty(p)
    covariance[np.ix_(order, order)] = root @ root.T
    mean[order] = np.linspace(-0.5, 0.5, p)
    draws = 20_000
    laws = [_population(mean, covariance, records, steps, rng) for _ in range(draws)]
    scale = np.array([law.scale for law in laws]) ** 2
    degrees = records - 1 - np.arange(p)
    np.testing.assert_allclose(
        (1 / scale).mean(0) * np.diagonal(root) ** 2, degrees / records, rtol=0.02
    )
    error = np.diagonal(root) * np.sqrt(1 / (degrees - 2))  # of one column's residuals
    intercept = np.array([law.intercept for law in laws])
    near(intercept.mean(0), mean[order], error, draws)
    single = [0, 4, 5, 6]  # town has three columns, whose residuals go together
    np.testing.assert_allclose(intercept.std(0)[single], error[single], rtol=0.03)
    town = slice(1, 4)
    found = np.cov(intercept[:, town].T) * records
    np.testing.assert_allclose(found, root[town, town] @ root[town, town].T, rtol=0.15, atol=0.02)
    slopes = np.array([law.slopes for law in laws])
    near(slopes[:, 6, :6].mean(0), root[6, :6], error[6], draws)
    np.testing.assert_allclose(slopes[:, 6, :6].std(0), error[6], rtol=0.03)
    assert abs(np.corrcoef(slopes[:, 6, 2], intercept[:, 6])[0, 1]) < 0.04


def test_levels_and_numbers_have_the_means_and_variances_asked_for():
    rng = np.random.default_rng(3)
    rows = 100_000
    level, bent = _levels(np.tile([-0.4, -0.8], (rows, 1)), rng)
    near(np.bincount(level) / rows, [0.6, 0.3, 0.1], 0.5, rows)
    assert not bent.any()
    values, bent = _numbers(np.full(rows, 0.6), 0.2, rng)
    near([values.mean(), values.var()], [0.6, 0.2], 0.6, rows)
    assert not bent.any()


def test_impossible_laws_are_moved_and_marked():
    rng = np.random.default_rng(3)
    level, bent = _levels(np.tile([0.4, -1.2], (10_000, 1)), rng)
    assert bent.all()
    assert set(level) == {0, 1}  # shares 0.4, 0.7 and -0.1, the last moved to 0
    near(level.mean(), 0.7 / 1.1, 0.5, 10_000)
    values, bent = _numbers(np.array([0.9, 1.3, 0.0] * 1000), 0.3, rng)
    assert bent.tolist() == [True, True, False] * 1000
    assert np.abs(values).max() <= 1
    assert (values[1::3] == 1).all()


def test_beta_draws_at_the_edges():
    rng = np.random.default_rng(4)
    mean = np.array([-1.0, 1.0, 0.0, 0.0])
    drawn = beta_draws(np.tile(mean, 100), np.tile([0.5, 0.5, 1.0, 1e-12], 100), rng)
    assert np.isfinite(drawn).all()
    assert set(drawn[0::4]) == {-1.0}
    assert set(drawn[1::4]) == {1.0}
    assert set(np.round(np.abs(drawn[2::4]), 6)) == {1.0}
    np.testing.assert_allclose(drawn[3::4], 0, atol=1e-4)


def test_moved_rows_are_told():
    """A small table behind much noise: linear probabilities leave [0, 1]."""
    release = gram_release(n=400, epsilon=0.5)
    tables = synthesize(gram_tree(release), release, tables=1, rows=5_000)
    with pytest.warns(UserWarning, match=r"more than 5 % of rows the model's law of \['"):
        table = tables[0]
    moved = table.attrs["moved"]
    assert moved
    assert set(moved) <= set(table.columns)
    assert all(0 < share <= 1 for share in moved.values())


def test_an_iterable_of_the_same_tables(second_order, capsys):
    tree, release = second_order
    tables = synthesize(tree, release, tables=3, rows=50)
    assert len(tables) == 3
    assert repr(tables) == "SyntheticTables(3 tables of 50 rows)"
    first, second = list(tables), list(tables)
    assert "synthesizing" in capsys.readouterr().out
    for k in range(3):
        pd.testing.assert_frame_equal(first[k], second[k])
        pd.testing.assert_frame_equal(first[k], tables[k])
    assert not first[0].equals(first[1])
    again = synthesize(tree, release, tables=3, rows=50, progressbar=False)
    pd.testing.assert_frame_equal(again[2], first[2])
    assert capsys.readouterr().out == ""
    other = synthesize(tree, release, tables=3, rows=50, random_seed=5)
    assert not other[2].equals(first[2])
    with pytest.raises(IndexError):
        tables[3]


def test_every_table_has_a_draw_of_its_own_from_every_chain(second_order):
    tree, release = second_order
    for tables in (1, 3, 64, 399, 400):
        places = synthesize(tree, release, tables=tables, rows=1)._places
        assert len(set(places)) == tables
        chains = np.bincount([chain for chain, _ in places], minlength=2)
        assert abs(chains[0] - chains[1]) <= 1
        draws = sorted(draw for chain, draw in places if chain == 0)
        assert max(draws) < 200
        assert np.diff([-1, *draws, 200]).max() <= -(-400 // tables) + 200 / tables


def test_groups_that_were_not_modelled_have_no_columns():
    workload = make_workload(groups=(("sex",), ("age",)))
    release = make_release(workload, np.full(workload.n_queries, 10.0), 100)
    share = np.full((1, 4, 2, 2), 0.25)
    tree = make_tree(release, share, 0 * share, np.full((1, 4, 2), 0.3), group=1)
    assert synthesize(tree, release, tables=1)[0].columns.tolist() == ["t", "age", "y"]


def test_no_covariates_at_all():
    release = make_moments(CAUSAL["none"])
    share = np.full((1, 4, 2, 1), 0.5)
    tree = make_tree(release, share, 0 * share, np.full((1, 4, 2), 0.3))
    table = synthesize(tree, release, tables=1)[0]
    assert table.shape == (release.n, 2)


def test_a_table_can_be_released_again():
    tree, release = stratified_tree()
    table = synthesize(tree, release, tables=1)[0]
    again = simulate_moments(table, release.workload, release.mechanism, seed=1)
    assert again.workload == release.workload


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": 0}, "tables is 0: it must be a whole number, at least 1"),
        ({"tables": 2.0}, r"tables is 2\.0"),
        ({"tables": True}, "tables is True"),
        ({"tables": 101}, "tables is 101, but the posterior has 100 draws in all"),
        ({"tables": 2, "rows": 0}, "rows is 0: it must be a whole number"),
        ({"tables": 2, "rows": "all"}, "rows is 'all'"),
    ],
)
def test_refusals(options, message):
    tree, release = stratified_tree()
    with pytest.raises(ValueError, match=message):
        synthesize(tree, release, **options)


def test_other_releases_are_refused():
    tree, _ = stratified_tree()
    other = stratified_tree(n=999)[1]
    with pytest.raises(ValueError, match="pass the release that the tree was fitted to"):
        synthesize(tree, other, tables=1)
    with pytest.raises(TypeError, match="release is a pandas DataFrame: it must be a MomentRel"):
        synthesize(tree, study(10), tables=1)
    labels = make_label_release(make_schema(), np.full((2, 2, 3), 5))
    with pytest.raises(TypeError, match=r"impute\(tree, release\), then imputed_tables"):
        synthesize(tree, labels, tables=1)
