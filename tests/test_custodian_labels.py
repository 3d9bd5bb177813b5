"""The label release: what it draws on, when it draws, and what it lets out."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest

from chi_square import assert_law
from custodian_tables import COLUMNS, MAKERS, SCHEMA, pandas_table
from dpcausal_bayes import custodian
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.custodian import Ledger, LedgerError, labels
from dpcausal_bayes.custodian.labels import release_labels
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.release_files import to_json
from dpcausal_bayes.releases import load_release
from dpcausal_bayes.schema import Schema

MECHANISMS = {
    "laplace": ClusterDP.calibrated(SCHEMA, epsilon=1.0),
    "gaussian": ClusterDP.calibrated(SCHEMA, epsilon=1.0, noise=Gaussian, delta=1e-6),
    "uniform": ClusterDP.calibrated(SCHEMA, epsilon=1.0, floor=1),
}


class FixedNoise:
    """The same answers at every call: what a test needs and a release must never have."""

    name = "operating system"

    def integers(self, law, shape):
        return np.random.default_rng(1).integers(-3, 4, shape)

    def words(self, n):
        return np.random.default_rng(2).integers(0, 2**64, n, dtype=np.uint64)


class Untouchable:
    """A source that must not be reached."""

    name = "untouchable"

    def integers(self, law, shape):
        raise AssertionError("noise was drawn")

    words = integers


def fixed(table, schema=SCHEMA, mechanism=MECHANISMS["laplace"]):
    return labels._release(table, schema, mechanism, Ledger(epsilon=1.0, delta=1e-6), FixedNoise())


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("library", MAKERS)
def test_a_release_from_every_library(tmp_path, library, name):
    ledger = Ledger(epsilon=1.0, delta=1e-6)
    release = custodian.release_labels(
        MAKERS[library](COLUMNS), SCHEMA, MECHANISMS[name], ledger=ledger
    )
    assert release.noise_source == "operating system"
    assert not release.non_private
    assert release.mechanism == MECHANISMS[name]
    assert release.loss == MECHANISMS[name].loss()
    assert release.cell_size.tolist() == [[2, 2], [2, 2], [0, 0]]
    assert (release.noisy_counts is None) == (name == "uniform")
    assert ledger.spent[0] == pytest.approx(1.0)
    assert ledger.entries[0].what == "labels of 'y'"
    release.save(tmp_path / "r.json")
    assert load_release(tmp_path / "r.json") == release


def test_two_releases_differ():
    ledger = Ledger(epsilon=2.0)
    table = pd.concat([pandas_table()] * 50, ignore_index=True)
    one, two = (
        release_labels(table, SCHEMA, MECHANISMS["laplace"], ledger=ledger) for _ in range(2)
    )
    assert np.any(one.noisy_counts != two.noisy_counts)
    assert np.any(one.label != two.label)
    assert len(ledger.entries) == 2


def test_arms_in_any_dress_and_library_give_identical_releases():
    releases = [
        fixed(make({**COLUMNS, "t": [dress(value) for value in COLUMNS["t"]]}))
        for make, dress in itertools.product(MAKERS.values(), (int, float, bool))
    ]
    releases += [
        fixed(pandas_table().astype({"t": "bool"}).astype({"t": dtype}))
        for dtype in ("boolean", "category", "object", "bool[pyarrow]", "Int64", "float32")
    ]
    assert len({release.digest for release in releases}) == 1


def test_counts_are_counts_plus_noise_and_rows_keep_their_order():
    mechanism = ClusterDP(lam=2.0**-64, sigma=1.0, gamma=0.1)  # labels are kept
    release = labels._release(pandas_table(), SCHEMA, mechanism, Ledger(epsilon=100), FixedNoise())
    counts = np.zeros((3, 2, 3), int)
    for t, y, c in zip(*(COLUMNS[name] for name in "tyc"), strict=True):
        counts[SCHEMA.clusters.index(c), t, y] += 1
    noise = FixedNoise().integers(None, (6, 3)).reshape(3, 2, 3)
    np.testing.assert_array_equal(release.noisy_counts, counts + noise)
    assert release.label.tolist() == COLUMNS["y"]
    assert release.arm.tolist() == COLUMNS["t"]


REFUSED = [
    pandas_table(y=[np.nan] * 8),
    pandas_table(y=[0, 1, 2, 0, 1, 2, 0, 3]),
    pandas_table(y=[0, 1, 2, 0, 1, 2, 0, np.inf]),
    pandas_table(t=[0, 1, 2, 0, 1, 0, 0, 0]),
    pandas_table(c=list("abxabaab")),
    pandas_table().iloc[:0],
    pandas_table().drop(columns="y"),
    COLUMNS,
]


@pytest.mark.parametrize("table", REFUSED, ids=str)
def test_bad_tables_release_and_cost_nothing(table):
    ledger = Ledger(epsilon=1.0)
    with pytest.raises((TypeError, ValueError)):
        labels._release(table, SCHEMA, MECHANISMS["laplace"], ledger, Untouchable())
    assert ledger.entries == ()


def test_an_overspend_is_refused_before_noise_is_drawn(tmp_path):
    ledger = Ledger(epsilon=0.5, path=tmp_path / "ledger.json")
    with pytest.raises(LedgerError, match="refused"):
        labels._release(pandas_table(), SCHEMA, MECHANISMS["laplace"], ledger, Untouchable())
    assert ledger.entries == ()


def test_the_charge_is_on_the_disk_before_noise_is_drawn(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = Ledger(epsilon=1.0, path=path)
    with pytest.raises(AssertionError, match="noise was drawn"):
        labels._release(pandas_table(), SCHEMA, MECHANISMS["laplace"], ledger, Untouchable())
    assert Ledger(epsilon=1.0, path=path).spent[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"schema": None}, TypeError, "schema is a NoneType: it must be a Schema"),
        ({"mechanism": 1.0}, TypeError, "mechanism is a float: it must be a ClusterDP"),
        ({"ledger": 2.0}, TypeError, "ledger is a float: it must be a Ledger"),
        (
            {"mechanism": ClusterDP(lam=0.5, sigma=1.0, gamma=0.4)},
            ValueError,
            "ClusterDP.gamma is 0.4",
        ),
        (
            {"mechanism": ClusterDP(lam=0.5, sigma=1.0, gamma=0.1, noise=Gaussian)},
            ValueError,
            "set delta above 0",
        ),
    ],
)
def test_bad_arguments_are_named(change, error, says):
    ledger = Ledger(epsilon=1.0)
    given = {"schema": SCHEMA, "mechanism": MECHANISMS["laplace"], "ledger": ledger, **change}
    with pytest.raises(error, match=says):
        release_labels(pandas_table(), **given)
    assert ledger.entries == ()


def test_the_ledger_cannot_be_left_out():
    with pytest.raises(TypeError, match="ledger"):
        release_labels(pandas_table(), SCHEMA, MECHANISMS["laplace"])


@pytest.mark.parametrize("epsilon", [1e-3, 1e4])
@pytest.mark.parametrize("noise", [Laplace, Gaussian])
def test_extreme_budgets_release(epsilon, noise):
    delta = 1e-6 if noise is Gaussian else None
    mechanism = ClusterDP.calibrated(SCHEMA, epsilon=epsilon, noise=noise, delta=delta)
    table = pd.concat([pandas_table()] * 100, ignore_index=True)
    release = release_labels(table, SCHEMA, mechanism, ledger=Ledger(epsilon=epsilon, delta=1e-6))
    if epsilon > 1:
        np.testing.assert_array_equal(release.label, table["y"])
        np.testing.assert_array_equal(release.noisy_counts.sum(axis=2), release.cell_size)
    else:
        assert np.mean(release.label == table["y"]) < 0.6
        assert np.abs(release.noisy_counts).max() > 300


# What the file may depend on.


def other_outcomes():
    return pandas_table(y=[2, 2, 0, 1, 0, 2, 2, 1])


def masked(path):
    """The file's bytes with the released answers, and the hash of them, blotted out."""
    text = path.read_bytes()
    for field in (rb'"label":\[[\d,]*\]', rb'"noisy_counts":\[[-\d,\[\]]*\]', rb'"sha256":"\w*"'):
        text, count = re.subn(field, b"", text)
        assert count == 1
    return text


def test_files_of_two_tables_differ_in_the_answers_alone(tmp_path):
    fixed(pandas_table()).save(tmp_path / "one.json")
    fixed(other_outcomes()).save(tmp_path / "two.json")
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert one.read_bytes() != two.read_bytes()
    assert masked(one) == masked(two)


def test_files_of_two_tables_are_identical_if_the_answers_are(tmp_path, monkeypatch):
    def answers(mechanism, codes, cells, n_cells, n_levels, source):
        return np.arange(n_cells * n_levels).reshape(n_cells, n_levels) - 5, np.arange(8) % 3

    monkeypatch.setattr("dpcausal_bayes.privatise.privatise_labels", answers)
    files = []
    for i, table in enumerate((pandas_table(), other_outcomes(), pandas_table(secret=[0.123] * 8))):
        fixed(table).save(tmp_path / f"{i}.json")
        files.append((tmp_path / f"{i}.json").read_bytes())
    assert files[0] == files[1] == files[2]


def floats_in(document):
    """Every number that JSON writes as a float."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return set().union(*(floats_in(part) for part in document))
    return {document} if isinstance(document, float) else set()


def test_no_float_of_the_table_is_in_the_file(tmp_path):
    """All floats in the file are declared: levels, parameters of the mechanism, and its loss."""
    levels = [0.125, 3.7, 12.0625]
    schema = Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=Levels("y", levels),
        cluster=Categories("c", ["a", "b"]),
    )
    rng = np.random.default_rng(3)
    n = 400
    table = pd.DataFrame(
        {
            "t": rng.integers(0, 2, n),
            "c": rng.choice(["a", "b"], n),
            "y": rng.choice(levels, n),
            "income": rng.lognormal(10, 1, n),
            "score": rng.normal(size=n),
        }
    )
    mechanism = ClusterDP(lam=0.625, sigma=3.5, gamma=0.21, delta=1e-7)
    release_labels(table, schema, mechanism, ledger=Ledger(epsilon=9.0)).save(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    loss = mechanism.loss()
    declared = {*levels, 0.625, 3.5, 0.21, 1e-7, loss.pure_epsilon, loss.rho, loss.epsilon}
    assert floats_in(json.loads(text)) == declared
    for column in ("income", "score"):
        assert not any(repr(value) in text for value in table[column].tolist())


def shape_of(release):
    """All that a release shows but for the answers themselves."""
    document = json.loads(to_json(release))
    return {
        **document,
        "label": len(document["label"]),
        "noisy_counts": np.shape(document["noisy_counts"]),
    }


def test_neighbouring_tables_give_releases_of_one_shape():
    """Random designs; a neighbour may lose the last unit of a level, and nothing shows it."""
    rng = np.random.default_rng(8)
    for _ in range(40):
        n, n_levels, n_clusters = rng.integers(1, 12), rng.integers(2, 6), rng.integers(1, 4)
        schema = Schema(
            arm=Arm("t", control=0, treated=1),
            outcome=Levels("y", list(range(n_levels))),
            cluster=Categories("c", list(range(n_clusters))),
        )
        table = pd.DataFrame(
            {
                "t": rng.integers(0, 2, n),
                "y": rng.integers(0, n_levels, n),
                "c": rng.integers(0, n_clusters, n),
            }
        )
        neighbour = table.copy()
        row = rng.integers(n)
        neighbour.loc[row, "y"] = (neighbour.loc[row, "y"] + 1) % n_levels
        mechanism = ClusterDP.calibrated(schema, epsilon=1.0)
        one, two = (
            shape_of(release_labels(each, schema, mechanism, ledger=Ledger(epsilon=1.0)))
            for each in (table, neighbour)
        )
        assert one == two


def test_labels_of_a_real_release_follow_the_channel():
    n = 120_000
    schema = Schema(arm=SCHEMA.arm, outcome=SCHEMA.outcome)
    table = pd.DataFrame({"t": np.arange(n) % 2, "y": np.arange(n) // 2 % 3})
    for mechanism in (
        ClusterDP(lam=0.6, sigma=2.0, gamma=0.1),
        ClusterDP.calibrated(schema, epsilon=1.0, floor=1),
    ):
        release = release_labels(table, schema, mechanism, ledger=Ledger(epsilon=5.0))
        channel = mechanism.channel(release.prior)
        for arm, true in np.ndindex(2, 3):
            seen = release.label[(table["t"] == arm) & (table["y"] == true)]
            assert_law(seen, channel[0, arm, :, true])
