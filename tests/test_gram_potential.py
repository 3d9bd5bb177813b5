"""From confidential moments to effects: against least squares on the rows themselves."""

import numpy as np
import pytest

from dpcausal_bayes.gram_means import ConfidentialGram, Levels, draw_means
from dpcausal_bayes.gram_workloads import GramWorkload
from gram_examples import BINARY, SCHEMA, columns
from test_gram_workloads import vectors_of

DRAWS = 20_000


def table_of(workload, draws=1, n=200):
    """The exact moments of a table, and its rows (arm, covariates, outcome)."""
    rows = columns(n, seed=5)
    rows["y"] = list(np.array(rows["wage"]) + 2.0 * np.array(rows["t"]) + np.array(rows["size"]))
    arm, v = np.array(rows["t"]), vectors_of(workload, rows)[:, 1:]
    parts = [v[arm == a] for a in (0, 1)]
    moments = ConfidentialGram(
        np.array([float(len(part)) for part in parts]),
        np.array([part.mean(0) for part in parts]),
        np.array([np.atleast_2d(np.cov(part.T, bias=True)) for part in parts]),
    )
    return ConfidentialGram(*(np.repeat(each[None], draws, 0) for each in moments)), arm, v


def least_squares(arm, v):
    """Predictions of every row under each arm's regression, (n, 2), and residual scales."""
    design = np.column_stack([np.ones(len(v)), v[:, :-1]])
    slopes = [np.linalg.lstsq(design[arm == a], v[arm == a, -1])[0] for a in (0, 1)]
    return np.column_stack([design @ slope for slope in slopes])


WORKLOADS = {
    "mixed": GramWorkload(SCHEMA),
    "binary": GramWorkload(BINARY, ["wage", "sex", "town"]),
    "none": GramWorkload(SCHEMA, []),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_table_is_least_squares_on_its_rows(name):
    workload = WORKLOADS[name]
    moments, arm, v = table_of(workload)
    mean, weight, *_ = draw_means(moments, Levels(workload), "table", np.random.default_rng(0))
    fitted = least_squares(arm, v)
    expected = np.array([fitted[arm == a].mean(0) for a in (0, 1)])
    np.testing.assert_allclose(mean[0, ..., 0], expected, atol=1e-9)
    np.testing.assert_allclose(weight[0, :, 0], [1 - arm.mean(), arm.mean()], atol=1e-12)


def test_levels_are_those_of_the_rows():
    workload = WORKLOADS["mixed"]
    moments, arm, v = table_of(workload)
    levels = Levels(workload)
    mean, weight, *_ = draw_means(moments, levels, "table", np.random.default_rng(0))
    fitted = least_squares(arm, v)
    rows = columns(200, seed=5)
    for stratum, inside in {
        "sex=m": np.array(rows["sex"]) == "m",
        "town=a": np.array(rows["town"]) == "a",
        "town=else": np.array(rows["town"]) == "z",
        "size=[0, 1)": np.array(rows["size"]) < 1,
    }.items():
        place = levels.coords["stratum"].index(stratum)
        for a in (0, 1):
            those = inside & (arm == a)
            np.testing.assert_allclose(mean[0, a, :, place], fitted[those].mean(0), atol=1e-9)
            assert weight[0, a, place] == pytest.approx(those.mean())
            assert mean[0, a, a, place] == pytest.approx(v[those, -1].mean())


@pytest.mark.parametrize("population", ["table", "sample", "super"])
def test_every_division_gives_the_same_average(population):
    workload = WORKLOADS["mixed"]
    moments = table_of(workload, draws=5)[0]
    levels = Levels(workload)
    mean, weight, *_ = draw_means(moments, levels, population, np.random.default_rng(1))
    total = weight[..., None, :] * mean
    for group in levels.groups[1:]:
        np.testing.assert_allclose(total[..., group].sum(-1), total[..., 0], atol=1e-9)
        np.testing.assert_allclose(weight[..., group].sum(-1), weight[..., 0])
    assert levels.coords["sex"][1] == ["", "f", "m"] + [""] * 6
    assert len(levels.groups) == 4


def test_sampling_sd_is_that_of_least_squares():
    """Of the effect on everybody: the textbook's with and without drawing the rows anew."""
    workload = GramWorkload(SCHEMA, ["wage", "sex"])
    moments, arm, v = table_of(workload, DRAWS)
    n, d = len(v), v.shape[1] - 1
    design = np.column_stack([np.ones(n), v[:, :-1]])
    at = design.mean(0)
    fixed = 0.0
    for a in (0, 1):
        own = design[arm == a]
        residual = v[arm == a, -1] - own @ np.linalg.lstsq(own, v[arm == a, -1])[0]
        sigma2 = (residual**2).sum() / (len(own) - d - 3)  # the mean of the scaled inverse chi^2
        fixed += sigma2 * at @ np.linalg.inv(own.T @ own) @ at
    fitted = least_squares(arm, v)
    effect = fitted[:, 1] - fitted[:, 0]
    rng = np.random.default_rng(2)
    mean, weight, *_ = draw_means(moments, Levels(workload), "super", rng)
    drawn = (weight[..., None, :] * mean)[..., 0].sum(1)
    drawn = drawn[:, 1] - drawn[:, 0]
    assert drawn.mean() == pytest.approx(effect.mean(), abs=4 * drawn.std() / DRAWS**0.5)
    assert drawn.std() == pytest.approx(np.sqrt(fixed + effect.var() / n), rel=0.03)


def test_of_these_units_only_the_missing_outcomes_are_unknown():
    workload = GramWorkload(SCHEMA, [])
    moments, arm, v = table_of(workload, DRAWS)
    mean, weight, *_ = draw_means(moments, Levels(workload), "sample", np.random.default_rng(3))
    n = np.bincount(arm)
    for a in (0, 1):
        assert np.ptp(mean[:, a, a, 0]) == 0
        other = v[arm == 1 - a, -1]
        sd = other.std() * np.sqrt(1 / n[a] + 1 / n[1 - a])
        assert mean[:, a, 1 - a, 0].std() == pytest.approx(sd, rel=0.03)
    assert np.ptp(weight[:, 0, 0]) == 0


def test_means_by_level_vary_as_their_sizes_say():
    workload = GramWorkload(SCHEMA, ["sex", "wage"])
    moments, arm, v = table_of(workload, DRAWS)
    levels = Levels(workload)
    mean = draw_means(moments, levels, "super", np.random.default_rng(4))[0]
    place = levels.coords["stratum"].index("sex=m")
    own = v[(arm == 1) & (v[:, 0] > 0)]
    slope = np.linalg.lstsq(
        np.column_stack([np.ones((arm == 1).sum()), v[arm == 1, :-1]]), v[arm == 1, -1]
    )[0][2]
    spread = mean[:, 1, 1, place].std()
    among = abs(slope) * own[:, 1].std() / np.sqrt(len(own))  # of the covariate's mean
    assert among < spread < 2 * among
