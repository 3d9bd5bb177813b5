"""The basis of crossed strata: level, additive part, interaction."""

import numpy as np
import pytest

from dpcausal_bayes.models.strata import stratum_space

SIZES = [[], [1], [2], [5], [1, 1], [3, 2], [2, 1, 3], [2, 3, 4], [4, 2, 2, 3]]


def cells(sizes):
    """Each stratum's level of each covariate, the last running fastest: (S, covariates)."""
    return np.array(list(np.ndindex(*sizes)), dtype=int).reshape(-1, len(sizes))


@pytest.mark.parametrize("sizes", SIZES)
def test_shapes(sizes):
    space = stratum_space(sizes)
    n_strata, n_main = int(np.prod(sizes)), sum(k - 1 for k in sizes)
    assert space.main.shape == (n_strata, n_main)
    assert space.interaction.shape == (n_strata, n_strata - 1 - n_main)


@pytest.mark.parametrize("sizes", SIZES)
def test_columns_are_orthogonal_and_span_everything(sizes):
    space = stratum_space(sizes)
    n_strata = len(space.main)
    basis = np.concatenate([np.ones((n_strata, 1)), *space], axis=1)
    assert basis.shape == (n_strata, n_strata)
    inner = basis.T @ basis
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-12)
    assert np.diag(inner).min() > 0.99


@pytest.mark.parametrize("sizes", SIZES)
def test_interactions_have_unit_norm_and_main_columns_that_of_the_strata_they_repeat_over(sizes):
    space = stratum_space(sizes)
    repeats = [len(space.main) // k for k in sizes for _ in range(k - 1)]
    np.testing.assert_allclose((space.main**2).sum(0), repeats)
    np.testing.assert_allclose((space.interaction**2).sum(0), 1)


@pytest.mark.parametrize("sizes", SIZES)
def test_main_effects_are_additive_sum_to_zero_and_have_the_stated_variance(sizes):
    space, first = stratum_space(sizes), 0
    for k, size in enumerate(sizes):
        own = space.main[:, first : first + size - 1]
        first += size - 1
        level = cells(sizes)[:, k]
        effects = np.array([own[level == j][0] for j in range(size)])
        np.testing.assert_array_equal(own, effects[level])  # of this covariate's level alone
        np.testing.assert_allclose(effects.sum(0), 0, atol=1e-12)
        np.testing.assert_allclose((effects**2).sum(1), 1 - 1 / size, atol=1e-12)
    assert first == space.main.shape[1]


@pytest.mark.parametrize("sizes", SIZES)
def test_interactions_average_out_over_every_other_covariate(sizes):
    space = stratum_space(sizes)
    for k, size in enumerate(sizes):
        level = cells(sizes)[:, k]
        for j in range(size):
            np.testing.assert_allclose(space.interaction[level == j].sum(0), 0, atol=1e-12)
