"""Combining rules: the published formulas, variances that are never negative, coverage."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpcausal_bayes.combining import PooledEstimate, pool

ESTIMATES, VARIANCES = [0.9, 1.1, 1.3, 0.7], [0.01, 0.01, 0.02, 0.02]
B, V = 0.2 / 3, 0.015


@pytest.mark.parametrize(
    ("rule", "total", "degrees"),
    [
        ("fully_synthetic", 1.25 * B - V, 3 * (1 - V / (1.25 * B)) ** 2),
        ("partially_synthetic", V + B / 4, 3 * (1 + V / (B / 4)) ** 2),
        ("rubin", V + 1.25 * B, 3 * (1 + V / (1.25 * B)) ** 2),
    ],
)
def test_formulas(rule, total, degrees):
    found = pool(ESTIMATES, VARIANCES, rule=rule)
    assert (found.estimate, found.between) == (pytest.approx(1.0), pytest.approx(B))
    assert found.within == pytest.approx(V)
    assert found.variance == pytest.approx(total)
    assert found.standard_error == pytest.approx(math.sqrt(total))
    assert found.degrees_of_freedom == pytest.approx(degrees)
    assert (found.rule, found.tables, found.note) == (rule, 4, "")
    low, high = found.interval(0.9)
    reach = stats.t.ppf(0.95, degrees) * math.sqrt(total)
    assert (low, high) == (pytest.approx(1 - reach), pytest.approx(1 + reach))


def test_a_negative_variance_goes_on_its_bound_with_degrees_of_freedom_of_its_own():
    found = pool([1.0, 1.1, 0.9], [0.04, 0.04, 0.04])
    assert 4 / 3 * 0.01 - 0.04 < 0
    assert found.variance == pytest.approx(0.01 * (1 / 2 + 1 / 3))
    assert found.degrees_of_freedom == 2
    assert found.note.startswith("the variance fell below")
    assert "(it was negative)" in found.note
    assert found.note in repr(found)
    fewer_rows = pool([1.0, 1.1, 0.9], [0.04, 0.04, 0.04], size_ratio=0.25)
    assert fewer_rows.variance == pytest.approx(0.01 * (1 / 5 + 1 / 3))


def test_a_variance_close_to_zero_has_no_endless_interval():
    found = pool([1.0, 1.1, 0.9], [0.0132] * 3)
    assert 0 < 4 / 3 * 0.01 - 0.0132 < 0.001
    assert "negative" not in found.note
    assert found.note
    low, high = found.interval()
    assert high - low < 1


def test_the_bound_changes_nothing_above_it():
    edge = 0.01 * (1 / 2)  # within variance at which the difference meets the bound
    assert pool([1.0, 1.1, 0.9], [0.99 * edge] * 3).note == ""
    assert pool([1.0, 1.1, 0.9], [1.01 * edge] * 3).note


def test_several_estimands_are_pooled_one_by_one():
    rng = np.random.default_rng(1)
    q, v = rng.normal(size=(6, 2, 3)), rng.uniform(0.1, 2.0, size=(6, 2, 3))
    for rule in ("fully_synthetic", "partially_synthetic", "rubin"):
        found = pool(q, v, rule=rule)
        for place in np.ndindex(2, 3):
            one = pool(q[:, *place], v[:, *place], rule=rule)
            for name in ("estimate", "variance", "degrees_of_freedom", "between", "within"):
                assert getattr(found, name)[place] == pytest.approx(getattr(one, name))
            assert [end[place] for end in found.interval()] == pytest.approx(one.interval())
    assert "of 6 variances" in pool(q, v).note


def test_a_list_of_series_is_an_array():
    q = [pd.Series([1.0, 2.0]), pd.Series([1.5, 2.1])]
    assert pool(q, np.full((2, 2), 0.01)).estimate.tolist() == [1.25, 2.05]


def test_tables_that_agree_have_the_within_variance():
    found = pool([1.0, 1.0], [0.04, 0.04], rule="rubin")
    assert (found.variance, found.degrees_of_freedom) == (0.04, math.inf)
    assert found.interval()[1] == pytest.approx(1 + 1.959964 * 0.2)


@pytest.mark.parametrize(
    ("q", "v", "options", "message"),
    [
        ([1.0], [0.1], {}, r"estimates is of shape \(1,\): .* two tables at least"),
        (1.0, 0.1, {}, r"estimates is of shape \(\): combining needs"),
        ([1.0, np.nan], [0.1, 0.1], {}, r"estimates\[1\] is nan"),
        ([1.0, 2.0], [0.1, np.inf], {}, r"variances\[1\] is inf"),
        ([1.0, 2.0], [0.1, -0.2], {}, r"variances\[1\] is -0\.2: .*squared standard errors"),
        ([1.0, 2.0], [0.1, 0.2, 0.3], {}, r"variances has shape \(3,\) and estimates \(2,\)"),
        ([[1.0], [2.0, 3.0]], [0.1, 0.2], {}, r"estimates is a list that is no array"),
        (["a", "b"], [0.1, 0.2], {}, r"estimates is a list that is no array"),
        ([1.0, 2.0], [0.1, 0.2], {"rule": "reiter"}, r"rule is 'reiter': it must be one of fully_"),
        ([1.0, 2.0], [0.1, 0.2], {"size_ratio": 0}, r"size_ratio is 0: it must be above 0"),
        ([1.0, 2.0], [0.1, 0.2], {"size_ratio": True}, r"size_ratio is True"),
        ([1.0, 1.0], [0.1, 0.2], {}, r"estimates are the same in all 2 tables"),
        ([[1, 3], [2, 3]], [[1, 1], [1, 1]], {}, r"estimates\[1\] are the same in all 2 tables"),
    ],
)
def test_refusals(q, v, options, message):
    with pytest.raises(ValueError, match=message):
        pool(q, v, **options)


@pytest.mark.parametrize("level", [0, 1, 95, True, "0.95"])
def test_an_interval_needs_a_probability(level):
    with pytest.raises(ValueError, match=f"level is {level!r}"):
        pool(ESTIMATES, VARIANCES).interval(level)


def test_it_is_frozen_and_shown_in_short():
    found = pool(np.arange(20.0).reshape(2, 10), np.ones((2, 10)))
    with pytest.raises(AttributeError):
        found.estimate = 0
    assert isinstance(found, PooledEstimate)
    assert len(repr(found)) < 500


def coverage(tables, posterior_variance, rng, runs=20_000, rule="fully_synthetic"):
    """How often intervals hold Q ~ N(0, B), of tables whose own rows add the variance 1."""
    truth = rng.normal(0, posterior_variance**0.5, runs)
    q = rng.normal(0, (posterior_variance + 1) ** 0.5, (tables, runs))
    low, high = pool(q, np.ones((tables, runs)), rule=rule).interval()
    return np.mean((low < truth) & (truth < high))


@pytest.mark.parametrize("tables", [3, 10, 50])
@pytest.mark.parametrize("posterior_variance", [1.0, 2.0, 8.0])
def test_intervals_cover_what_they_say(tables, posterior_variance):
    """A normal posterior with a flat prior: its variance is known, so coverage is exact."""
    rng = np.random.default_rng([tables, int(posterior_variance)])
    assert 0.925 < coverage(tables, posterior_variance, rng) < 0.97


def test_other_rules_do_not_cover_fully_synthetic_tables():
    rng = np.random.default_rng(1)
    assert coverage(50, 8.0, rng, rule="partially_synthetic") < 0.6
    assert coverage(50, 1.0, rng, rule="rubin") > 0.985


def test_conjugate_oracle():
    """A normal mean from normal rows: the pooled variance is the posterior's, from rows alone."""
    rng = np.random.default_rng(2)
    n, rows, sigma, noise = 400, 400, 2.0, 0.15
    released = 1.0 + rng.normal(0, sigma / n**0.5) + rng.normal(0, noise)
    posterior = sigma**2 / n + noise**2  # flat prior, noise counted
    tables = rng.normal(released, posterior**0.5, 4_000)[:, None] + sigma * rng.standard_normal(
        (4_000, rows)
    )
    found = pool(tables.mean(1), tables.var(1, ddof=1) / rows)
    assert found.estimate == pytest.approx(released, abs=4 * (found.between / 4_000) ** 0.5)
    error = found.between * (2 / 3_999) ** 0.5  # Monte Carlo error of the variance between
    assert abs(found.variance - posterior) < 4 * error
    assert abs(pool(tables.mean(1), tables.var(1) / rows, rule="rubin").variance - posterior) > (
        10 * error
    )
