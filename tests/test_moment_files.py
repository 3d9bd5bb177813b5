"""Files of moment releases: cut short, altered, of another kind."""

import json
import re

import msgspec
import pytest

from dpcausal_bayes import release_files
from dpcausal_bayes.columns import Arm, Levels
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.releases import LabelRelease, ReleaseError, load_release
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release
from moment_examples import make, table_of


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
