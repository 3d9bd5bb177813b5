"""The moment release object: checks, views, and nothing confidential in it."""

import copy
import pickle
import re

import numpy as np
import pytest

from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.moments import make_moment_release, table_moments
from dpcausal_bayes.releases import ReleaseError, load_release
from dpcausal_bayes.simulate import SeededNoise, simulate_moments
from moment_examples import SCHEMA, WORKLOADS, make, table_of


@pytest.mark.parametrize("name", WORKLOADS)
def test_file_round_trip(tmp_path, name):
    release = make(WORKLOADS[name])
    release.save(tmp_path / "release.json")
    loaded = load_release(str(tmp_path / "release.json"))
    assert isinstance(loaded, MomentRelease)
    assert loaded == release
    assert hash(loaded) == hash(release)
    fields = ("workload", "mechanism", "lattice", "n", "loss", "noise_source", "package_version")
    for field in fields:
        assert getattr(loaded, field) == getattr(release, field)
    np.testing.assert_array_equal(loaded.values, release.values)
    assert pickle.loads(pickle.dumps(release)) == copy.deepcopy(release) == release


def test_views_are_those_of_the_values():
    release = make()
    assert release.schema is release.workload.schema
    np.testing.assert_array_equal(release.noisy * LATTICE, release.values)
    assert release.cells(1).shape == (2, 3, 2)
    assert release.cells().shape == (2, 2, 2)
    assert release.cells(1)[1, 0, 1] == release.noisy[8 + 6 + 1]
    np.testing.assert_array_equal(release.squares, release.noisy[-2:])
    expected = release.mechanism.scale / release.workload.weights
    np.testing.assert_array_equal(release.noise_scale, expected)
    assert make(WORKLOADS["binary"]).squares is None


def test_negative_masses_stay():
    """Of whole arms too: the release is as it was drawn."""
    values = np.full(22, -7 * LATTICE)
    release = make(values=values)
    np.testing.assert_array_equal(release.values, values)
    assert release.cells()[..., 0].sum() == -28


def test_release_is_frozen():
    release = make()
    for field in ("values", "n", "workload"):
        with pytest.raises(AttributeError):
            setattr(release, field, None)
    for array in (release.values, release.noisy, release.noise_scale, release.cells()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_callers_array_is_copied():
    values = np.zeros(22, dtype=np.int64)
    release = make(values=values)
    values[:] = 5
    assert not release.values.any()


def test_simulated_releases_are_stamped_and_refused(tmp_path):
    workload = WORKLOADS["joint"]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    release = simulate_moments(table_of(), workload, mechanism, seed=1)
    assert release.non_private
    assert release.noise_source == "seeded simulation"
    assert release == simulate_moments(table_of(), workload, mechanism, seed=1)
    assert release != simulate_moments(table_of(), workload, mechanism, seed=2)
    path = tmp_path / "release.json"
    with pytest.raises(ReleaseError, match=r"MomentRelease.non_private .* not saved"):
        release.save(path)
    assert not path.exists()
    release.save(path, allow_non_private=True)
    with pytest.raises(ReleaseError, match="not loaded where a real release is wanted"):
        load_release(path)
    assert load_release(path, allow_non_private=True) == release


class FixedNoise:
    """A source whose answers are known beforehand."""

    name = "fixed"

    def integers(self, law, shape):
        return np.arange(np.prod(shape), dtype=np.int64).reshape(shape) * int(law.scale / 100)

    def words(self, n):
        raise AssertionError("moments need no words")


def test_a_file_holds_nothing_but_the_noisy_answers(tmp_path):
    """Two confidential tables with equal answers: not one byte of their files differs."""
    one = table_of(60).assign(
        y=lambda t: np.where(t["y"] == 1, 10.0, 2.5), other=1, age=lambda t: t["age"] * 1.0
    )
    rng = np.random.default_rng(9)
    other = one.sample(frac=1, random_state=3).assign(
        y=lambda t: np.where(t["y"] == 10, rng.uniform(10, 1e6, 60), t["y"]),  # clipped
        age=lambda t: np.select(
            [t["age"].between(25, 56), t["age"].between(17, 25)],
            [rng.uniform(25, 56, 60), rng.uniform(17, 25, 60)],
            np.nan,
        ),
        other=rng.normal(size=60),
    )
    assert not np.allclose(one["y"], other["y"])
    workload = WORKLOADS["joint"]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    files = []
    for name, table in {"one": one, "other": other}.items():
        exact = table_moments(table, workload)
        release = make_moment_release(
            workload, mechanism, exact, len(table), source=FixedNoise(), non_private=False
        )
        release.save(tmp_path / name)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    # and the noise is what stands between the file and the answers
    assert not np.array_equal(release.values, exact)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"values": np.zeros(22)}, "MomentRelease.values has dtype float64"),
        ({"values": None}, "MomentRelease.values has dtype object"),
        ({"workload": SCHEMA}, "MomentRelease.workload is a Schema"),
        ({"workload": WORKLOADS["binary"]}, "MomentRelease.mechanism does not fit"),
        ({"mechanism": None}, "MomentRelease.mechanism is a NoneType"),
        ({"n": True}, "MomentRelease.n is a bool"),
        ({"n": 60.0}, "MomentRelease.n is a float"),
        ({"non_private": 0}, "MomentRelease.non_private is a int"),
    ],
)
def test_contradictions_are_named(change, says):
    with pytest.raises(ReleaseError, match=says):
        make(**change)


def test_loss_may_be_stated_at_another_delta():
    release = make()
    other = make(loss=release.mechanism.loss(1e-9))
    assert other.loss.epsilon > release.loss.epsilon


def test_repr_says_what_matters():
    shown = repr(make())
    assert re.search(r"n=60, strata=2, 3, queries=22, loss: \(1, 1e-06\)-DP.*system\)", shown)
    assert "NON-PRIVATE" in repr(make(non_private=True))


def test_releases_compare_by_content():
    assert make() == make()
    assert make() != make(package_version="9")
    assert make() != 3


def test_noise_of_a_simulation_is_that_of_its_seed():
    workload = WORKLOADS["none"]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    one = simulate_moments(table_of(), workload, mechanism, seed=np.random.default_rng(3))
    exact = table_moments(table_of(), workload)
    other = make_moment_release(
        workload, mechanism, exact, 60, source=SeededNoise(3), non_private=True
    )
    assert one == other
