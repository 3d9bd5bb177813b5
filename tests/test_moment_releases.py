"""The moment release object and its file."""

import copy
import json
import pickle
import re

import msgspec
import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import release_files
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.moments import make_moment_release, table_moments
from dpcausal_bayes.releases import LabelRelease, ReleaseError, load_release
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise, simulate_moments, simulate_release
from dpcausal_bayes.workloads import CausalWorkload

COVARIATES = [Categories("deg", [0, 1]), Binned("age", [17, 25, 56], other="unknown")]
SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10), covariates=COVARIATES
)
BINARY = msgspec.structs.replace(SCHEMA, outcome=Levels("y", [0, 1]))
WORKLOADS = {
    "joint": CausalWorkload(SCHEMA, strata=["deg", "age"]),
    "groups": CausalWorkload(SCHEMA, groups=["deg", "age"], group_weights=[1, 0.5]),
    "none": CausalWorkload(SCHEMA, square_weight=2.0),
    "binary": CausalWorkload(BINARY, strata=["age"]),
}


def table_of(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "t": rng.integers(0, 2, n),
            "y": rng.integers(0, 2, n),
            "deg": rng.integers(0, 2, n),
            "age": rng.integers(10, 60, n),
        }
    )


def make(asked=WORKLOADS["groups"], **change):
    """A release that claims to be real, so that files of it are accepted."""
    mechanism = GaussianMechanism.calibrated(asked, epsilon=1.0, delta=1e-6)
    release = simulate_moments(table_of(), asked, mechanism, seed=4)
    return msgspec.structs.replace(
        release, **{"non_private": False, "noise_source": "operating system", **change}
    )


@pytest.fixture
def saved(tmp_path):
    """A release and the path of its file."""
    release = make()
    release.save(tmp_path / "release.json")
    return release, tmp_path / "release.json"


def rewrite(path, change):
    """Change the file's content and give it the hash that belongs to the change."""
    document = json.loads(path.read_text())
    change(document["release"])
    content = msgspec.json.encode(document["release"])
    document["sha256"] = release_files._hash(content)
    path.write_text(json.dumps(document))


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


@pytest.mark.parametrize("keep", [0, 1, 50, 500, -2])
def test_truncated_file(saved, keep):
    _, path = saved
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ReleaseError, match="damaged or cut short"):
        load_release(path)


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r'"values":\[-?\d', lambda m: m[0][:-1] + str((int(m[0][-1]) + 1) % 10)),
        (r'"n":60', lambda m: '"n":61'),
        (r'"high":10.0', lambda m: '"high":100.0'),
        (r"\[17.0,25.0,56.0\]", lambda m: "[17.0,26.0,56.0]"),
        (r'"other":"unknown"', lambda m: '"other":"missing"'),
    ],
)
def test_altered_files(saved, pattern, new):
    _, path = saved
    text, count = re.subn(pattern, new, path.read_text(), count=1)
    assert count == 1
    path.write_text(text)
    with pytest.raises(ReleaseError, match="was altered"):
        load_release(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"format_version":1', '"format_version":2', "upgrade dpcausal_bayes"),
        ("bayes/moment-release", "bayes/ledger", "label-release or .*moment-release file"),
        ("bayes/moment-release", "bayes/label-release", "valid release: .*'MomentRelease'"),
    ],
)
def test_wrong_head(saved, old, new, says):
    _, path = saved
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ReleaseError, match=says):
        load_release(path)


def test_each_kind_is_loaded_as_itself(tmp_path):
    make().save(tmp_path / "moments.json")
    schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]))
    mechanism = ClusterDP.calibrated(schema, epsilon=1.0)
    labels = simulate_release(table_of(), schema, mechanism, seed=1)
    labels.save(tmp_path / "labels.json", allow_non_private=True)
    assert isinstance(load_release(tmp_path / "moments.json"), MomentRelease)
    loaded = load_release(tmp_path / "labels.json", allow_non_private=True)
    assert isinstance(loaded, LabelRelease)
    text = (tmp_path / "labels.json").read_text()
    (tmp_path / "wrong.json").write_text(text.replace("label-release", "moment-release", 1))
    with pytest.raises(ReleaseError, match=r"valid release: .*'LabelRelease'"):
        load_release(tmp_path / "wrong.json", allow_non_private=True)


def group(release, places):
    release["workload"]["groups"] = places


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r["mechanism"].update(scale=-4.0), r"scale is -4.*\$\.mechanism"),
        (lambda r: r["mechanism"].update(scale=1.0), "MomentRelease.loss states rho"),
        (lambda r: r["mechanism"].update(sensitivity=9.0), "MomentRelease.mechanism does not fit"),
        (lambda r: r["mechanism"].pop("delta"), "delta"),
        (lambda r: r["loss"].update(epsilon=0.01), "MomentRelease.loss states epsilon 0.01"),
        (lambda r: r["loss"].update(pure_epsilon=1.0), "MomentRelease.loss states pure_epsilon"),
        (lambda r: r["loss"].update(delta=1e-7), "MomentRelease.loss states epsilon"),
        (lambda r: r["loss"].update(delta=0.0, pure_epsilon=1.0), "MomentRelease.loss states del"),
        (lambda r: r["loss"].update(adjacency="replace one label"), "MomentRelease.adjacency is"),
        (lambda r: r.update(adjacency="add or remove"), "MomentRelease.adjacency is"),
        (lambda r: r["values"].pop(), r"MomentRelease.values has shape \(21,\).* \(22,\)"),
        (lambda r: r["values"].__setitem__(0, 0.5), r"whole numbers.*\$\.values"),
        (lambda r: r["values"].__setitem__(0, None), r"whole numbers.*\$\.values"),
        (lambda r: r.update(lattice=1024), "MomentRelease.lattice is 1024: it must be 1048576"),
        (lambda r: r.update(n=0), "MomentRelease.n is 0: it must be at least 1"),
        (lambda r: r.update(n=1.5), "n"),
        (lambda r: r.update(secret=[1.5]), "secret"),
        (lambda r: r["workload"].update(secret=1), "secret"),
        (lambda r: group(r, [["deg"], ["sex"]]), "'sex', which is no covariate"),
        (lambda r: group(r, [["deg"]]), "2 weights for 1 groups"),
        (lambda r: r["workload"]["schema"]["outcome"].update(low=11.0), "reversed"),
        (lambda r: r.pop("noise_source"), "noise_source"),
        (lambda r: r.update(type="LabelRelease"), "LabelRelease"),
    ],
)
def test_wrong_content_with_a_right_hash_is_named(saved, change, says):
    _, path = saved
    rewrite(path, change)
    with pytest.raises(ReleaseError, match=says):
        load_release(path)


def test_rewrite_alone_is_harmless(saved):
    release, path = saved
    rewrite(path, lambda content: None)
    assert load_release(path) == release


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


def test_nothing_else_is_in_the_file(saved):
    """The list of fields is part of the promise: a new one needs a reason."""
    _, path = saved
    document = json.loads(path.read_text())
    assert list(document) == ["format", "format_version", "sha256", "release"]
    assert list(document["release"]) == [
        "type",
        "workload",
        "mechanism",
        "values",
        "lattice",
        "n",
        "loss",
        "noise_source",
        "non_private",
        "package_version",
        "adjacency",
    ]


def test_noise_of_a_simulation_is_that_of_its_seed():
    workload = WORKLOADS["none"]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    one = simulate_moments(table_of(), workload, mechanism, seed=np.random.default_rng(3))
    exact = table_moments(table_of(), workload)
    other = make_moment_release(
        workload, mechanism, exact, 60, source=SeededNoise(3), non_private=True
    )
    assert one == other
