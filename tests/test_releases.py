"""The release object and its file."""

import json
import re

import msgspec
import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import release_files
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.releases import LabelRelease, ReleaseError, load_release
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release

SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1),
    outcome=Levels("y", ["low", "mid", "high"], values=[0, 1, 2.5]),
    cluster=Categories("c", ["north", "south", "nobody"]),
)
MECHANISMS = {
    "laplace": ClusterDP.calibrated(SCHEMA, epsilon=1.0),
    "gaussian": ClusterDP.calibrated(SCHEMA, epsilon=1.0, noise=Gaussian, delta=1e-6),
    "uniform": ClusterDP.calibrated(SCHEMA, epsilon=1.0, floor=1),
    "tight": ClusterDP(lam=0.5, sigma=2.0, gamma=0.1, delta=1e-5, note="by hand"),
}


def table_of(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "t": rng.integers(0, 2, n),
            "y": rng.choice(["low", "mid", "high"], n),
            "c": rng.choice(["north", "south"], n),
        }
    )


def make(made_by=MECHANISMS["laplace"], **change):
    """A release that claims to be real, so that files of it are accepted."""
    release = simulate_release(table_of(), SCHEMA, made_by, seed=4)
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
    content = json.dumps(document["release"], separators=(",", ":")).encode()
    document["sha256"] = release_files._hash(content)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", MECHANISMS)
def test_file_round_trip(tmp_path, name):
    release = make(MECHANISMS[name])
    release.save(tmp_path / "release.json")
    loaded = load_release(str(tmp_path / "release.json"))
    assert loaded == release
    assert hash(loaded) == hash(release)
    assert loaded.digest == release.digest
    for field in ("schema", "mechanism", "loss", "noise_source", "package_version", "adjacency"):
        assert getattr(loaded, field) == getattr(release, field)
    for field in ("cluster", "arm", "label", "noisy_counts"):
        np.testing.assert_array_equal(getattr(loaded, field), getattr(release, field))


def test_counts_and_shares_are_those_of_the_codes():
    release = make()
    for c, a in np.ndindex(3, 2):
        cell = (release.cluster == c) & (release.arm == a)
        assert release.cell_size[c, a] == cell.sum()
        for y in range(3):
            assert release.label_counts[c, a, y] == (release.label[cell] == y).sum()
    assert release.n == 60
    full = release.cell_size > 0
    expected = release.noisy_counts[full] / release.cell_size[full][:, None]
    np.testing.assert_array_equal(release.shares[full], expected)
    assert np.all(np.isnan(release.shares[~full]))
    np.testing.assert_array_equal(
        release.prior, release.mechanism.prior(release.noisy_counts, release.cell_size)
    )


def test_uniform_prior_has_no_counts():
    release = make(MECHANISMS["uniform"])
    assert release.noisy_counts is None
    assert release.shares is None
    assert np.all(release.prior == 1 / 3)


def test_a_declared_cluster_without_units_has_its_cells():
    release = make()
    assert release.cell_size[2].tolist() == [0, 0]
    assert release.noisy_counts.shape == (3, 2, 3)
    assert np.any(release.noisy_counts[2] != 0)  # zero plus noise, like any other


def test_negative_counts_stay():
    counts = np.full((3, 2, 3), -7)
    release = make(noisy_counts=counts)
    np.testing.assert_array_equal(release.noisy_counts, counts)


def test_release_is_frozen():
    release = make()
    with pytest.raises(AttributeError):
        release.label = release.arm
    for name in ("cluster", "arm", "label", "noisy_counts", "cell_size", "label_counts", "prior"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(release, name)[...] = 0


def test_release_does_not_share_the_callers_arrays():
    label = np.zeros(60, dtype=np.int32)
    release = make(label=label)
    label[:] = 2
    assert np.all(release.label == 0)


def test_white_space_does_no_harm(saved):
    release, path = saved
    path.write_text(json.dumps(json.loads(path.read_text()), indent=3))
    assert load_release(path) == release


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_saving_replaces_the_file_whole(saved, monkeypatch, step):
    _, path = saved
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(release_files.os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        make(MECHANISMS["tight"]).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_simulated_releases_are_refused_both_ways(tmp_path):
    release = simulate_release(table_of(), SCHEMA, MECHANISMS["laplace"], seed=4)
    path = tmp_path / "release.json"
    with pytest.raises(ReleaseError, match="not saved where a real release is wanted"):
        release.save(path)
    assert not path.exists()
    release.save(path, allow_non_private=True)
    with pytest.raises(ReleaseError, match="allow_non_private=True"):
        load_release(path)
    assert load_release(path, allow_non_private=True) == release


@pytest.mark.parametrize("keep", [0, 1, 50, 500, -2])
def test_truncated_file(saved, keep):
    _, path = saved
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ReleaseError, match="damaged or cut short"):
        load_release(path)


def test_tampered_labels(saved):
    _, path = saved
    text = path.read_text()
    start = text.index('"label":[') + len('"label":[')
    path.write_text(text[:start] + str((int(text[start]) + 1) % 3) + text[start + 1 :])
    with pytest.raises(ReleaseError, match="was altered"):
        load_release(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"format_version":1', '"format_version":2', "upgrade dpcausal_bayes"),
        ('"format_version":1', '"format_version":0', "format_version 0"),
        ('"format_version":1', '"format_version":true', "format_version True"),
        ('"format_version":1', '"format_version":"x"', "format_version 'x'"),
        ("dpcausal_bayes/label-release", "dpcausal_bayes/ledger", "its field 'format' is"),
        ('"sha256":', '"hash":', "unknown field|missing required field"),
        ('"format":', '"extra":1,"format":', "extra"),
    ],
)
def test_wrong_head(saved, old, new, says):
    _, path = saved
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ReleaseError, match=says):
        load_release(path)


@pytest.mark.parametrize("content", [b"[]", b"3", b"{}", b"\xff\xfe", b"null", b'{"format":null}'])
def test_files_of_something_else(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ReleaseError, match=r"x\.json"):
        load_release(tmp_path / "x.json")


def test_a_missing_file_is_just_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_release(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r["mechanism"].update(sigma=-4.0), r"sigma is -4.*\$\.mechanism"),
        (lambda r: r["mechanism"].update(lam=1.0), "lam is 1"),
        (lambda r: r["mechanism"].update(noise="Cauchy"), "noise is 'Cauchy'"),
        (lambda r: r["mechanism"].pop("sigma"), "sigma"),
        (lambda r: r["mechanism"].update(gamma=0.4), "LabelRelease.mechanism does not fit"),
        (lambda r: r["mechanism"].update(sigma=8.0), "LabelRelease.loss states"),
        (lambda r: r["loss"].update(pure_epsilon=0.01, epsilon=0.01), "LabelRelease.loss states"),
        (lambda r: r["loss"].update(rho=-1.0), "rho is -1"),
        (lambda r: r.update(secret=[1.5]), "secret"),
        (lambda r: r.pop("noise_source"), "noise_source"),
        (lambda r: r["label"].__setitem__(3, 3), "LabelRelease.label has codes outside 0 to 2"),
        (lambda r: r["arm"].__setitem__(3, -1), "LabelRelease.arm has codes outside 0 to 1"),
        (lambda r: r["cluster"].pop(), "LabelRelease.arm has 60 units"),
        (lambda r: r["label"].pop(), "LabelRelease.label has 59 units"),
        (lambda r: r["label"].__setitem__(3, 0.5), r"whole numbers.*\$\.label"),
        (lambda r: r["label"].__setitem__(3, None), r"whole numbers.*\$\.label"),
        (lambda r: r["label"].__setitem__(3, True), r"\$\.label|altered"),
        (lambda r: r.update(label=[]), "LabelRelease.label has 0 units"),
        (lambda r: r.update(noisy_counts=None), "LabelRelease.noisy_counts is None"),
        (lambda r: r["noisy_counts"].pop(), r"shape \(2, 2, 3\).*shape \(3, 2, 3\)"),
        (lambda r: r["noisy_counts"][0].pop(), r"ragged.*\$\.noisy_counts"),
        (lambda r: r["schema"]["outcome"]["levels"].append("mid"), "'mid' twice"),
        (lambda r: r.update(adjacency="add or remove"), "LabelRelease.adjacency"),
        (lambda r: r.update(type="MomentRelease"), "MomentRelease"),
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
        ({"label": np.zeros(60)}, "LabelRelease.label has dtype float64"),
        ({"label": np.zeros((60, 1), int)}, "LabelRelease.label has 2 dimensions"),
        ({"label": None}, "LabelRelease.label has dtype object"),
        ({"schema": None}, "LabelRelease.schema is a NoneType"),
        ({"mechanism": "x"}, "LabelRelease.mechanism is a str"),
        ({"non_private": 0}, "LabelRelease.non_private is a int"),
        ({"noisy_counts": np.zeros((3, 2, 3))}, "noisy_counts has dtype float64"),
        ({"mechanism": MECHANISMS["uniform"]}, "LabelRelease.noisy_counts is given"),
    ],
)
def test_contradictions_are_named(change, says):
    with pytest.raises(ReleaseError, match=says):
        make(**change)


def test_repr_says_what_matters():
    assert re.search(r"n=60, clusters=3, levels=3, loss: 1-DP.*operating system\)", repr(make()))
    assert "NON-PRIVATE" in repr(make(non_private=True))


def test_releases_compare_by_content():
    assert make() == make()
    assert make() != make(package_version="9")
    assert make() != 3
    assert isinstance(make(), LabelRelease)


def test_nothing_else_is_in_the_file(saved):
    """The list of fields is part of the promise: a new one needs a reason."""
    _, path = saved
    document = json.loads(path.read_text())
    assert list(document) == ["format", "format_version", "sha256", "release"]
    assert list(document["release"]) == [
        "type",
        "schema",
        "mechanism",
        "cluster",
        "arm",
        "label",
        "noisy_counts",
        "loss",
        "noise_source",
        "non_private",
        "package_version",
        "adjacency",
    ]


def test_json_has_no_room_for_other_objects():
    with pytest.raises(NotImplementedError, match="no place in a release"):
        release_files.to_json({"table": table_of()})
