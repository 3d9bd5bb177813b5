"""Pooling of groups against generalised least squares on the whole table."""

import numpy as np
import pytest

from dpcausal_bayes.models.measurement import pooling
from moment_oracle import dense_pooling, make_release

COVARIATES = {"a": 2, "b": 3, "c": 2}
WEIGHTS = {"group_weights": [0.7, 1.5, 0.4, 1.0]}

# groups, which one is modelled, weights
DESIGNS = {
    "subset of the strata's covariates": (["b", ["a", "b"]], 1, {}),
    "superset of them": (["b", ["a", "b"]], 0, {}),
    "partly overlapping": ([["a", "b"], ["b", "c"]], 0, {}),
    "disjoint": (["a", "b", "c"], 1, {}),
    "the strata's covariates in another order": ([["a", "c"], ["c", "b", "a"]], 0, {}),
    "many, weighted": (["c", ["c", "b"], ["a", "b", "c"], ["a", "c"]], 2, WEIGHTS),
    "many, the first of them": (["c", ["c", "b"], ["a", "b", "c"], ["a", "c"]], 0, WEIGHTS),
    "others that overlap each other": ([["a", "b"], ["b", "c"], ["c", "a"]], 0, {}),
    "own group hardly measured": (["a", ["b", "c"]], 1, {"group_weights": [50.0, 0.1]}),
    "others hardly measured": (["a", ["b", "c"]], 1, {"group_weights": [0.005, 1.0]}),
}


@pytest.fixture(params=DESIGNS)
def design(request):
    return DESIGNS[request.param]


def noise_of(pooled):
    return np.diag(pooled.variance) - pooled.redundancy @ pooled.redundancy.T


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("covariates", [{}, {"a": 2}, COVARIATES])
def test_one_group_is_taken_as_it_is(covariates, binary):
    release = make_release(covariates, binary=binary)
    pooled = pooling(release, 0)
    measured = pooled.measurement(release.noisy)
    np.testing.assert_array_equal(pooled.weights, np.eye(len(release.noisy)))
    np.testing.assert_array_equal(measured.value, release.noisy)
    np.testing.assert_array_equal(measured.noise, np.diag(release.noise_scale**2))
    assert pooled.redundancy.shape == (len(release.noisy), 0)


@pytest.mark.parametrize("binary", [False, True])
def test_several_groups_are_pooled_by_least_squares(design, binary):
    groups, group, weights = design
    release = make_release(COVARIATES, groups=groups, binary=binary, **weights)
    pooled = pooling(release, group)
    estimator, covariance, *_ = dense_pooling(release, group)
    scale = np.sqrt(np.diag(covariance))
    measured = pooled.measurement(release.noisy)
    error = (measured.value - estimator @ release.noisy) / scale
    np.testing.assert_allclose(error, 0, atol=1e-7)
    relative = np.outer(scale, scale)
    np.testing.assert_allclose(measured.noise / relative, covariance / relative, atol=1e-7)
    spread = pooled.weights * release.noise_scale  # the noise of what is really reported
    np.testing.assert_allclose(spread @ spread.T / relative, covariance / relative, atol=1e-7)


@pytest.mark.parametrize("binary", [False, True])
def test_pooled_moments_are_unbiased(design, binary):
    groups, group, weights = design
    release = make_release(COVARIATES, groups=groups, binary=binary, **weights)
    *_, whole, asked = dense_pooling(release, group)
    tables = np.random.default_rng(0).normal(size=(whole.shape[1], 5))
    found = pooling(release, group).weights @ (whole @ tables)  # queries without noise
    np.testing.assert_allclose(found, asked @ tables, atol=1e-8)


def test_arm_totals_are_known_from_all_groups_together(design):
    groups, group, weights = design
    release = make_release(COVARIATES, groups=groups, **weights)
    pooled, workload = pooling(release, group), release.workload
    total = np.zeros(len(pooled.variance))
    total[: 2 * workload.n_strata(group) : 2] = 1  # the mass of the control arm
    variances = [
        workload.n_strata(g) * (release.mechanism.scale / weight) ** 2
        for g, weight in enumerate(workload.group_weights)
    ]
    together = total @ noise_of(pooled) @ total
    np.testing.assert_allclose(together, 1 / sum(1 / v for v in variances), rtol=1e-5)


@pytest.mark.parametrize(
    ("groups", "group", "columns"),
    [
        (["a", ["a", "b"]], 1, 8),  # arm, level of a, part
        (["a", "b"], 0, 4),  # the arm totals
        ([["a", "b"], ["b", "c"], "c"], 0, 12),
        (["a", ["a", "b"]], 0, 0),  # known as a whole, twice
        (["a", ["a", "b"], "c"], 0, 4),
    ],
)
def test_redundancy_has_no_more_columns_than_what_is_measured_again(groups, group, columns):
    release = make_release(COVARIATES, groups=groups)
    assert pooling(release, group).redundancy.shape[1] == columns


def test_what_is_pooled_away_says_nothing_more():
    """Twice the drop in log-likelihood from the best table to the best with given moments."""
    release = make_release(COVARIATES, groups=[["a", "b"], ["b", "c"], "c"])
    measured = pooling(release, 0).measurement(release.noisy)
    *_, whole, asked = dense_pooling(release, 0)
    rng = np.random.default_rng(1)
    precise = whole / release.noise_scale[:, None]
    data = release.noisy / release.noise_scale

    def misfit(moments=None):
        """Least squares over tables whose moments are given."""
        if moments is None:
            free, fixed = np.eye(whole.shape[1]), np.zeros(whole.shape[1])
        else:
            fixed = np.linalg.pinv(asked) @ moments
            free = np.linalg.svd(asked)[2][np.linalg.matrix_rank(asked) :].T
        residual = data - precise @ fixed
        inside = precise @ free
        return np.sum((residual - inside @ np.linalg.lstsq(inside, residual)[0]) ** 2)

    for _ in range(4):
        moments = measured.value + rng.multivariate_normal(0 * measured.value, 4 * measured.noise)
        away = moments - measured.value
        np.testing.assert_allclose(
            misfit(moments) - misfit(), away @ np.linalg.solve(measured.noise, away), rtol=1e-8
        )


@pytest.mark.parametrize("square_weight", [1e-5, 1e5])
def test_the_squares_own_weight_does_not_drown_what_the_groups_share(square_weight):
    release = make_release(COVARIATES, groups=["a", "b"], scale=9.0, square_weight=square_weight)
    _, covariance, *_ = dense_pooling(release, 0)
    scale = np.sqrt(np.diag(covariance))
    relative = np.outer(scale, scale)
    found = pooling(release, 0).measurement(release.noisy).noise
    np.testing.assert_allclose(found / relative, covariance / relative, atol=1e-7)
