"""Synthetic tables: rows of the law that the posterior says, in the schema's own values."""

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import models
from dpcausal_bayes.columns import Binned, Categories
from dpcausal_bayes.combining import pool
from dpcausal_bayes.estimands import ATE, ATT, estimate
from dpcausal_bayes.fitting import fit
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
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
from synthetic_examples import WORKLOADS, gram_release, gram_tree, study

SHARE = np.array([[0.1, 0.2, 0.05, 0.15], [0.2, 0.05, 0.15, 0.1]])
MEAN = np.array([[-0.5, 0.1, 0.3, 0.8], [-0.2, 0.4, 0.5, 0.9]])
DISPERSION = np.array([0.2, 0.5])
STRATA = 4


def stratified_tree(binary=False, n=1000, chains=2, draws=50, spread=0.0, seed=0):
    """A tree of four strata whose draws are scattered around the law above."""
    workload = make_workload(binary)
    release = make_release(workload, np.full(workload.n_queries, n / 8), n)
    rng = np.random.default_rng(seed)
    share = SHARE * np.exp(spread * rng.standard_normal((chains, draws, 2, STRATA)))
    share /= share.sum((-1, -2), keepdims=True)
    mean = np.tanh(np.arctanh(MEAN) + spread * rng.standard_normal((chains, draws, 2, STRATA)))
    dispersion = None if binary else np.broadcast_to(DISPERSION, (chains, draws, 2))
    return make_tree(release, share, mean, dispersion), release


@pytest.fixture(scope="module")
def second_order():
    release = gram_release(n=4_000, epsilon=2.0)
    return gram_tree(release), release


def near(found, expected, sd, rows):
    """Within five standard errors."""
    assert np.all(np.abs(np.asarray(found) - expected) < 5 * sd / np.sqrt(rows))


def codes(table):
    return (table["t"] == 1).astype(int), 2 * (table["sex"] == "m") + (table["age"] >= 40)


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
    """Levels that determine each other, seen through noise: linear probabilities leave [0, 1]."""
    release = gram_release(n=400, epsilon=0.5)
    table = synthesize(gram_tree(release), release, tables=1, rows=5_000)[0]
    moved = table.attrs["moved"]
    assert moved
    assert set(moved) <= set(table.columns)
    assert all(0 < share <= 1 for share in moved.values())


def regression(table, workload):
    """The ATE by least squares in each arm, with its variance, the covariates' included."""
    covariates = pd.get_dummies(table[list(workload.covariates)], columns=["sex"], dtype=float)
    town = np.digitize(table["town"], [1, 2, 4])
    x = np.column_stack([covariates[["age", "wage", "sex_m"]]] + [town == k for k in (1, 2, 3)])
    x, y = x - x.mean(0), table["y"].to_numpy()
    effect, variance, slopes = 0.0, 0.0, []
    for sign, arm in ((-1, "no"), (1, "yes")):
        own = (table["t"] == arm).to_numpy()
        design = np.column_stack([np.ones(own.sum()), x[own]])
        inverse = np.linalg.inv(design.T @ design)
        beta = inverse @ design.T @ y[own]
        residual = y[own] - design @ beta
        effect += sign * beta[0]
        variance += inverse[0, 0] * (residual @ residual) / (len(residual) - len(beta))
        slopes.append(beta[1:])
    gap = slopes[1] - slopes[0]
    return effect, variance + gap @ np.cov(x.T) @ gap / len(table)


def strata_contrast(table, workload):
    """The ATE by the strata's differences in means, with its variance."""
    arm, stratum = codes(table)
    cell, y = (STRATA * arm + stratum).to_numpy(), table["y"].to_numpy()
    size, total, square = (
        np.bincount(cell, weights=y**k, minlength=2 * STRATA).reshape(2, STRATA) for k in range(3)
    )
    mean = total / size
    variance = (square / size - mean**2) / (size - 1)
    effects, shares = mean[1] - mean[0], size.sum(0) / len(y)
    effect = shares @ effects
    spread = shares @ (effects - effect) ** 2 / len(y)
    return effect, shares**2 @ variance.sum(0) + spread


def agree(tree, release, estimator):
    """Compare the posterior's own ATE with the pooled one, in Monte Carlo errors."""
    found = [estimator(t, release.workload)
             for t in synthesize(tree, release, tables=200, progressbar=False)]  # fmt: skip
    pooled = pool(*np.array(found).T)
    own = estimate(tree, [ATE()], population="super")["estimands"]["ate"].values.ravel()
    of_means = np.sqrt(pooled.between / 200 + own.var() / own.size)
    assert abs(pooled.estimate - own.mean()) < 4 * of_means
    of_variances = np.sqrt(2 * pooled.between**2 / 199 + 2 * own.var() ** 2 / own.size)
    assert abs(pooled.variance - own.var()) < 4 * of_variances
    assert pooled.within < 0.7 * pooled.between  # so that it matters that it is taken off
    return pooled


def test_pooled_and_own_effects_agree_for_strata():
    tree, release = stratified_tree(n=2_000, spread=0.05, draws=500)
    agree(tree, release, strata_contrast)


def test_pooled_and_own_effects_agree_for_second_moments(second_order):
    tree, release = second_order
    pooled = agree(tree, release, regression)
    low, high = pooled.interval()
    assert low < 2 < high


@pytest.mark.slow
def test_pooled_and_own_effects_agree_after_sampling():
    release = gram_release(n=10_000)
    options = {"draws": 500, "tune": 400, "chains": 4, "random_seed": 1, "progressbar": False}
    tree = fit(models.gram_regression(release), release, **options)
    agree(tree, release, regression)

    rng = np.random.default_rng(1)
    cell = rng.choice(2 * STRATA, size=5_000, p=SHARE.ravel())
    arm, stratum = np.divmod(cell, STRATA)
    scaled = beta_draws(MEAN[arm, stratum], DISPERSION[arm], rng)
    table = pd.DataFrame(
        {
            "t": arm,
            "sex": np.where(stratum >= 2, "m", "f"),
            "age": np.where(stratum % 2, 60, 20),
            "y": 5 + 5 * scaled,
        }
    )
    workload = make_workload()
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    release = simulate_moments(table, workload, mechanism, seed=1)
    tree = fit(models.stratified_moments(release), release, **options)
    agree(tree, release, strata_contrast)


def test_one_table_alone_claims_too_much(second_order):
    tree, release = second_order
    _, variance = regression(synthesize(tree, release, tables=1)[0], release.workload)
    own = estimate(tree, [ATE(), ATT()], population="super")["estimands"]["ate"]
    assert variance < 0.3 * float(own.var())


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
