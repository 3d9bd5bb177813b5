"""The confounding score: what it says of an estimate, and how far one record moves it."""

import itertools

import numpy as np
import pytest

from dpcausal_bayes.custodian.scores import Residuals, confounding_score

WIDE = {"low": -1.0, "high": 1.0}


def sums_of(arm, adjusted, stratum, y, shape):
    """Return counts and outcome sums by arm, stratum adjusted for and stratum of the group."""
    counts, sums = np.zeros((2, *shape)), np.zeros((2, *shape))
    np.add.at(counts, (arm, adjusted, stratum), 1)
    np.add.at(sums, (arm, adjusted, stratum), y)
    return counts, sums


@pytest.mark.parametrize("n_adjusted", [1, 3])
def test_it_is_how_far_least_squares_moves(n_adjusted):
    rng = np.random.default_rng(n_adjusted)
    n, n_strata = 400, 4
    stratum = rng.integers(0, n_strata, n)
    # the strata that are adjusted for are coarser ones of the group
    adjusted = stratum % n_adjusted if n_adjusted == 1 else np.minimum(stratum, n_adjusted - 1)
    arm = (rng.random(n) < 0.2 + 0.15 * stratum).astype(int)
    y = np.clip(0.1 * arm + 0.15 * stratum - 0.3 + 0.2 * rng.normal(size=n), -1, 1)
    counts, sums = sums_of(arm, adjusted, stratum, y, (n_adjusted, n_strata))

    def least_squares(group):
        return np.linalg.lstsq(
            np.column_stack([arm, group[:, None] == np.unique(group)]), y, rcond=None
        )[0]

    def within(values, group):
        return values - np.array([values[group == one].mean() for one in group])

    slopes = least_squares(adjusted)
    without, baselines, with_group = slopes[0], slopes[1:], least_squares(stratum)[0]
    propensity = counts[1].sum(axis=1) / counts.sum(axis=(0, 2))
    residuals = Residuals(
        propensity, baselines + np.array([[0.0], [1.0]]) * without, **WIDE,
        most_arm=1.0, most_outcome=2.0,
    )  # fmt: skip
    total = np.sum(within(arm, adjusted) ** 2)
    left = np.sum(within(arm, stratum) ** 2) / total  # 1 - R²
    found = confounding_score(counts, sums, residuals)
    assert found == pytest.approx(total * left * (without - with_group), rel=1e-9)
    assert abs(found) > 1


def every_change(residuals, n, n_strata, outcomes, score):
    """Return the largest change of a score over all tables of n records and all replacements."""
    records = list(
        itertools.product(range(2), range(len(residuals.propensity)), range(n_strata), outcomes)
    )
    shape = (len(residuals.propensity), n_strata)
    value = {}
    for table in itertools.combinations_with_replacement(range(len(records)), n):
        columns = [np.array(column) for column in zip(*(records[i] for i in table), strict=True)]
        value[table] = score(*sums_of(*columns, shape), residuals)
    return max(
        abs(value[table] - value[tuple(sorted((*table[:i], new, *table[i + 1 :])))])
        for table in value
        for i in range(n)
        for new in range(len(records))
    )


DESIGNS = {
    "unclipped": Residuals(np.array([0.5]), np.zeros((2, 1)), **WIDE, most_arm=0.5, most_outcome=1),
    "clipped": Residuals(
        np.array([0.3]), np.array([[-0.2], [0.4]]), **WIDE, most_arm=0.2, most_outcome=0.3
    ),
    "rare": Residuals(
        np.array([0.9]), np.full((2, 1), -0.9), **WIDE, most_arm=0.25, most_outcome=0.2
    ),
    "adjusted": Residuals(
        np.array([0.2, 0.7]), np.array([[0.3, -0.5], [0.1, 0.2]]), **WIDE,
        most_arm=0.25, most_outcome=0.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DESIGNS)
def test_no_replacement_moves_it_by_more_than_two_influences(name):
    residuals = DESIGNS[name]
    n = 2 if name == "adjusted" else 3
    worst = every_change(residuals, n, 2, (-1.0, 0.3, 1.0), confounding_score)
    assert worst <= 2 * residuals.influence + 1e-12
    assert worst >= 0.2 * residuals.influence


@pytest.mark.parametrize("name", DESIGNS)
def test_large_strata_come_close_to_the_bound_and_stay_below(name):
    """One record more or less, from strata whose means are at and beyond the clips."""
    residuals = DESIGNS[name]
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(4_000):
        counts = np.zeros((2, len(residuals.propensity), 1))
        cell = tuple(rng.integers(0, size) for size in counts.shape)
        counts[cell] = rng.choice([0, 1, 5, 200])
        cell = tuple(rng.integers(0, size) for size in counts.shape)
        counts[cell] += rng.choice([0, 1, 30])
        sums = counts * rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=counts.shape)
        before = confounding_score(counts, sums, residuals)
        cell = tuple(rng.integers(0, size) for size in counts.shape)
        counts[cell] += 1
        sums[cell] += rng.choice([-1.0, 1.0])
        worst = max(worst, abs(confounding_score(counts, sums, residuals) - before))
    assert 0.5 * residuals.influence < worst <= residuals.influence + 1e-9


def test_a_score_without_the_clips_breaks_the_bound_and_so_does_a_plain_contrast():
    residuals = DESIGNS["clipped"]
    free = residuals._replace(most_arm=1.0, most_outcome=2.0)

    def unclipped(counts, sums, _):
        return confounding_score(counts, sums, free)

    def contrast(counts, sums, _):  # n times the difference of the strata's means in the arms
        mean = sums / np.maximum(counts, 1)
        return float(counts.sum() * (mean[1] - mean[0]).sum())

    for broken in (unclipped, contrast):
        worst = every_change(residuals, 3, 2, (-1.0, 0.3, 1.0), broken)
        assert worst > 2 * residuals.influence


def test_empty_strata_and_empty_tables_score_nothing():
    residuals = DESIGNS["adjusted"]
    assert confounding_score(np.zeros((2, 2, 3)), np.zeros((2, 2, 3)), residuals) == 0
