"""Seeded noise against its laws, and the simulator against the mechanism."""

import numpy as np
import pandas as pd
import pytest

from chi_square import assert_law
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.privatise import privatise_labels
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise, simulate_release

SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1),
    outcome=Levels("y", [0, 1, 2]),
    cluster=Categories("c", ["a", "b"]),
)
MECHANISM = ClusterDP.calibrated(SCHEMA, epsilon=2.0)


def table_of(n=500, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"t": rng.integers(0, 2, n), "y": rng.integers(0, 3, n), "c": rng.choice(["a", "b"], n)}
    )


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.5, 300.0])
@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_seeded_noise_follows_its_law(kind, scale):
    law = kind(scale)
    noise = SeededNoise(11).integers(law, (300, 1000))
    assert noise.shape == (300, 1000)
    assert noise.dtype == np.int64
    assert_law(noise.ravel(), law)


def test_seeded_noise_of_one_law_is_not_that_of_another():
    with pytest.raises(AssertionError):
        assert_law(SeededNoise(11).integers(Laplace(7.5), (300_000,)), Laplace(7.7))
    with pytest.raises(AssertionError):
        assert_law(SeededNoise(11).integers(Laplace(2.0), (300_000,)), Gaussian(2.8))


def test_same_seed_same_release():
    one = simulate_release(table_of(), SCHEMA, MECHANISM, seed=3)
    assert one == simulate_release(table_of(), SCHEMA, MECHANISM, seed=3)
    assert one != simulate_release(table_of(), SCHEMA, MECHANISM, seed=4)
    assert one == simulate_release(table_of(), SCHEMA, MECHANISM, seed=np.random.default_rng(3))


def test_simulated_release_is_stamped():
    release = simulate_release(table_of(), SCHEMA, MECHANISM, seed=3)
    assert release.non_private
    assert release.noise_source == "seeded simulation"
    assert release.loss == MECHANISM.loss()


def test_public_columns_pass_unchanged_and_arms_agree_in_any_dress():
    table = table_of()
    release = simulate_release(table, SCHEMA, MECHANISM, seed=3)
    np.testing.assert_array_equal(release.arm, table["t"])
    np.testing.assert_array_equal(release.cluster, table["c"].map({"a": 0, "b": 1}))
    for dtype in ("bool", "float64", "Int64", "category", "object"):
        assert release == simulate_release(table.astype({"t": dtype}), SCHEMA, MECHANISM, seed=3)


def test_released_labels_follow_the_channel():
    """A chi-square of released labels given the true one and the released histogram."""
    rng = np.random.default_rng(5)
    n, n_cells, n_levels = 400_000, 3, 5
    labels, cells = rng.integers(0, n_levels, n), rng.integers(0, n_cells, n)
    mechanism = ClusterDP(lam=0.7, sigma=3.0, gamma=0.05)
    noisy, released = privatise_labels(mechanism, labels, cells, n_cells, n_levels, SeededNoise(6))
    channel = mechanism.channel(mechanism.prior(noisy, np.bincount(cells)))
    for cell, true in np.ndindex(n_cells, n_levels):
        seen = released[(cells == cell) & (labels == true)]
        assert_law(seen, channel[cell, :, true])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"y": 3}, ValueError, "column 'y' holds"),
        ({"y": np.nan}, ValueError, "column 'y' holds"),
        ({"t": 2}, ValueError, "column 't' holds"),
        ({"c": "z"}, ValueError, "column 'c' holds 'z'"),
    ],
)
def test_values_outside_the_levels_are_named(change, error, says):
    with pytest.raises(error, match=says):
        simulate_release(table_of().assign(**change), SCHEMA, MECHANISM, seed=1)


def test_tables_that_are_none():
    with pytest.raises(ValueError, match="no rows"):
        simulate_release(table_of(0), SCHEMA, MECHANISM, seed=1)
    with pytest.raises(ValueError, match="no column 'y'"):
        simulate_release(table_of().drop(columns="y"), SCHEMA, MECHANISM, seed=1)
    with pytest.raises(TypeError, match="must be a pandas DataFrame"):
        simulate_release({"y": [1]}, SCHEMA, MECHANISM, seed=1)


def test_chunks_are_seamless():
    """More units than a chunk, and every unit is handled once."""
    n = 600_001
    labels = np.arange(n) % 3
    mechanism = ClusterDP(lam=2.0**-64, sigma=1.0, gamma=0.1)  # labels are kept
    noisy, released = privatise_labels(mechanism, labels, np.zeros(n, int), 1, 3, SeededNoise(1))
    np.testing.assert_array_equal(released, labels)
    assert abs(noisy.sum() - n) < 200
