"""The moment release: what it draws on, when it draws, and what it lets out."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from chi_square import assert_law
from dpcausal_bayes import custodian
from dpcausal_bayes.accounting import REPLACE_ONE_RECORD
from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.custodian import Ledger, LedgerError, moments, release_labels, release_moments
from dpcausal_bayes.custodian.noise import SystemNoise
from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism
from dpcausal_bayes.laplace_mechanism import least_noise
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.releases import load_release
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload
from moment_tables import ARM, BINARY, COLUMNS, ENGINES, SCHEMA, WORKLOADS, columns

DELTA = 1e-6
PANDAS = pd.DataFrame(COLUMNS)


class FixedNoise:
    """The same answers at every call: what a test needs and a release must never have."""

    name = "operating system"

    def integers(self, law, shape):
        return np.random.default_rng(1).integers(-(10**6), 10**6, shape)

    def words(self, n):
        raise AssertionError("a moment release needs no words")


class Untouchable:
    """A source that must not be reached."""

    name = "untouchable"

    def integers(self, law, shape):
        raise AssertionError("noise was drawn")

    words = integers


def released(table, workload=WORKLOADS["joint"], ledger=None, source=None, **cost):
    ledger = Ledger(epsilon=1.0, delta=DELTA) if ledger is None else ledger
    given = {"epsilon": 1.0, "delta": DELTA, "mechanism": None, **cost}
    return moments._release(
        table, workload, ledger, *given.values(), FixedNoise() if source is None else source
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_release_from_every_engine(tmp_path, engine, name):
    ledger = Ledger(epsilon=1.0, delta=DELTA)
    workload = WORKLOADS[name]
    release = custodian.release_moments(
        ENGINES[engine](COLUMNS), workload, epsilon=1.0, delta=DELTA, ledger=ledger
    )
    assert release.noise_source == "operating system"
    assert not release.non_private
    assert release.workload == workload
    assert release.mechanism == least_noise(workload, epsilon=1.0, delta=DELTA)
    assert release.n == 200
    several = len(workload.groups) > 1  # Laplace noise spends no delta
    assert ledger.spent == (pytest.approx(1.0), pytest.approx(DELTA if several else 0.0))
    assert ledger.adjacency == REPLACE_ONE_RECORD
    assert [entry.what for entry in ledger.entries] == [
        f"moments of {workload.schema.outcome.column!r}"
    ]
    release.save(tmp_path / "r.json")
    assert load_release(tmp_path / "r.json") == release


def test_values_are_exact_sums_plus_noise():
    workload = CausalWorkload(SCHEMA, groups=["age", "sex"], group_weights=[1, 2], square_weight=3)
    release = released(PANDAS, workload)
    noise = np.empty(len(workload.queries), int)
    for weight in (1, 2, 3):
        alike = workload.weights == weight
        noise[alike] = FixedNoise().integers(None, alike.sum())
    np.testing.assert_array_equal(release.values, table_moments(PANDAS, workload) + noise)


def test_noise_follows_its_law():
    """Zero records would be refused: one record, known, is taken off again."""
    workload = CausalWorkload(SCHEMA, strata=["sex", "age", "degree"])
    table = pd.DataFrame(columns(1))
    exact = table_moments(table, workload)
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=DELTA)
    noise = []
    for _ in range(80):
        ledger = Ledger(epsilon=1.0, delta=DELTA)
        release = release_moments(table, workload, mechanism=mechanism, ledger=ledger)
        noise.append(release.values - exact)
    scale = release.mechanism.scale
    coarse = np.floor(np.concatenate(noise) / LATTICE + 0.5).astype(int)
    # the rounded noise has the variance of the fine one, plus that of rounding
    assert_law(coarse, Gaussian(np.sqrt(scale**2 + 1 / 12)))
    pairs = np.corrcoef(np.array(noise).T)
    assert np.abs(pairs[np.triu_indices(len(pairs), 1)]).max() < 0.6


@pytest.mark.parametrize("n", [10**3, 10**8])
def test_noise_of_any_size_is_added_in_64_bits(n):
    """Sums of a hundred million records, and noise of nearly a million of them."""
    workload = CausalWorkload(SCHEMA)
    for scale in (0.75, 900_000.0):
        mechanism = GaussianMechanism(scale=scale, sensitivity=workload.sensitivity, delta=DELTA)
        exact = np.array([n, n, 0, 0, n // 2, 0]) * LATTICE
        release = moments.make_moment_release(
            workload, mechanism, exact, n, source=SystemNoise(), non_private=False
        )
        noise = (release.values - exact) / LATTICE / scale
        assert np.all(np.abs(noise) < 7)
        assert np.std(noise) > 0.1


def test_two_releases_differ():
    ledger = Ledger(epsilon=2.0, delta=2 * DELTA)
    one, two = (
        release_moments(PANDAS, WORKLOADS["joint"], epsilon=1.0, delta=DELTA, ledger=ledger)
        for _ in range(2)
    )
    assert np.all(one.values != two.values)
    assert len(ledger.entries) == 2


def test_a_mechanism_may_be_given():
    mechanism = GaussianMechanism.classical(WORKLOADS["joint"], epsilon=1.0, delta=DELTA)
    ledger = Ledger(epsilon=1.0, delta=DELTA)
    release = release_moments(PANDAS, WORKLOADS["joint"], mechanism=mechanism, ledger=ledger)
    assert release.mechanism == mechanism
    assert ledger.entries[0].loss == mechanism.loss()


def test_tables_in_any_dress_and_engine_give_identical_files(tmp_path):
    releases = [released(make(COLUMNS)) for make in ENGINES.values()]
    for dress in ("boolean", "category", "object", "bool[pyarrow]", "float32"):
        releases.append(released(PANDAS.astype({"t": "bool"}).astype({"t": dress})))
    releases.append(released(PANDAS.sample(frac=1, random_state=1)))  # rows have no order
    assert len({release.digest for release in releases}) == 1
    files = set()
    for i, release in enumerate(releases):
        release.save(tmp_path / f"{i}.json")
        files.add((tmp_path / f"{i}.json").read_bytes())
    assert len(files) == 1


REFUSED = {
    "missing outcome": PANDAS.assign(y=PANDAS["y"].where(PANDAS.index != 5)),
    "infinite outcome": PANDAS.assign(y=PANDAS["y"].where(PANDAS.index != 5, np.inf)),
    "third arm": PANDAS.assign(t=PANDAS["t"].where(PANDAS.index != 5, 2)),
    "new level": PANDAS.assign(sex=PANDAS["sex"].where(PANDAS.index != 5, "x")),
    "out of bins": PANDAS.assign(age=PANDAS["age"].where(PANDAS.index != 5, 16)),
    "no rows": PANDAS[:0],
    "no column": PANDAS.drop(columns="y"),
    "text": PANDAS.assign(y="many"),
    "no table": COLUMNS,
    "lazy": pl.LazyFrame(COLUMNS).with_columns(y=pl.lit(None, pl.Float64)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_bad_tables_release_and_cost_nothing(why):
    ledger = Ledger(epsilon=1.0, delta=DELTA)
    with pytest.raises((TypeError, ValueError)):
        released(REFUSED[why], ledger=ledger, source=Untouchable())
    assert ledger.entries == ()


@pytest.mark.parametrize("budget", [{"epsilon": 0.5, "delta": DELTA}, {"epsilon": 9.0}])
def test_an_overspend_is_refused_before_noise_is_drawn(tmp_path, budget):
    ledger = Ledger(**budget, path=tmp_path / "ledger.json")
    with pytest.raises(LedgerError, match="refused"):
        released(PANDAS, WORKLOADS["groups"], ledger=ledger, source=Untouchable())
    assert ledger.entries == ()


def test_the_charge_is_on_the_disk_before_noise_is_drawn(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = Ledger(epsilon=1.0, delta=DELTA, path=path)
    with pytest.raises(AssertionError, match="noise was drawn"):
        released(PANDAS, ledger=ledger, source=Untouchable())
    assert Ledger(epsilon=1.0, delta=DELTA, path=path).spent[0] == pytest.approx(1.0)


def test_labels_and_moments_share_a_ledger_in_one_order_only():
    labels = ClusterDP.calibrated(BINARY, epsilon=0.5)
    moment = {"epsilon": 0.5, "delta": DELTA}
    ledger = Ledger(epsilon=1.0, delta=DELTA)
    release_labels(PANDAS, BINARY, labels, ledger=ledger)
    release_moments(PANDAS, WORKLOADS["binary"], **moment, ledger=ledger)
    assert ledger.adjacency == "replace one label"
    ledger = Ledger(epsilon=1.0, delta=DELTA)
    release_moments(PANDAS, WORKLOADS["binary"], **moment, ledger=ledger)
    with pytest.raises(LedgerError, match="ledger of its own"):
        release_labels(PANDAS, BINARY, labels, ledger=ledger)


OTHER = GaussianMechanism.calibrated(WORKLOADS["groups"], epsilon=1.0, delta=DELTA)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"workload": SCHEMA}, TypeError, "workload is a Schema: it must be a CausalWorkload"),
        ({"ledger": 2.0}, TypeError, "ledger is a float: it must be a Ledger"),
        ({"epsilon": None}, TypeError, "needs epsilon, with a delta for Gaussian noise, or a mech"),
        (
            {"workload": WORKLOADS["groups"], "delta": None},
            ValueError,
            "workload has [0-9]+ groups",
        ),
        ({"mechanism": OTHER}, TypeError, "not both"),
        (
            {"epsilon": None, "delta": None, "mechanism": ClusterDP(lam=0.5, sigma=1, gamma=0.1)},
            TypeError,
            "mechanism is a ClusterDP",
        ),
        (
            {"epsilon": None, "delta": None, "mechanism": OTHER},
            ValueError,
            "GaussianMechanism.sensitivity",
        ),
        ({"epsilon": 0.0}, ValueError, "epsilon is 0"),
        ({"epsilon": -1.0}, ValueError, "epsilon is -1"),
        ({"epsilon": float("nan")}, ValueError, "epsilon is nan"),
        ({"delta": 0.0}, ValueError, "delta is 0"),
        ({"delta": 1.0}, ValueError, "delta is 1"),
        ({"delta": 1.5}, ValueError, "delta is 1.5"),
    ],
)
def test_bad_arguments_are_named(change, error, says):
    ledger = Ledger(epsilon=9.0, delta=0.5)
    given = {"workload": WORKLOADS["joint"], "epsilon": 1.0, "delta": DELTA, "ledger": ledger}
    with pytest.raises(error, match=says):
        release_moments(PANDAS, **{**given, **change})
    assert ledger.entries == ()


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_tables_release(n):
    release = released(pd.DataFrame(columns(n)), source=SystemNoise())
    assert release.n == n
    assert release.cells()[..., 0].min() < 0  # kept as drawn


def test_a_constant_covariate_and_an_empty_arm_release():
    table = PANDAS.assign(degree=1, t=0)
    workload = WORKLOADS["joint"]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=DELTA)
    release = released(table, epsilon=None, delta=None, mechanism=mechanism)
    np.testing.assert_array_equal(
        release.values - FixedNoise().integers(None, release.values.shape),
        table_moments(table, workload),
    )


# What the file may depend on.


def masked(path):
    """The file's bytes with the released answers, and the hash of them, blotted out."""
    text = path.read_bytes()
    for field in (rb'"values":\[[-\d,]*\]', rb'"sha256":"\w*"'):
        text, count = re.subn(field, b"", text)
        assert count == 1
    return text


def test_files_of_two_tables_differ_in_the_answers_alone(tmp_path):
    for i in (0, 1):
        released(pd.DataFrame(columns(seed=i))).save(tmp_path / f"{i}.json")
    one, two = tmp_path / "0.json", tmp_path / "1.json"
    assert one.read_bytes() != two.read_bytes()
    assert masked(one) == masked(two)


def test_files_of_two_tables_are_identical_if_the_answers_are(tmp_path):
    """Tables with one set of moments: values move within a bin, and beyond a bound."""
    inside = PANDAS["age"].replace({17: 18, 24: 19, 56: 40})
    beyond = PANDAS["y"].where(PANDAS["y"].between(-1, 7), PANDAS["y"] * 10)
    files = []
    for i, table in enumerate((PANDAS, PANDAS.assign(age=inside, y=beyond, secret=0.123))):
        released(table).save(tmp_path / f"{i}.json")
        files.append((tmp_path / f"{i}.json").read_bytes())
    assert files[0] == files[1]


def floats_in(document):
    """Every number that JSON writes as a float."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return set().union(*(floats_in(part) for part in document))
    return {document} if isinstance(document, float) else set()


def test_no_float_of_the_table_is_in_the_file(tmp_path):
    """All floats in the file are declared: bounds, weights, the mechanism's, and its loss."""
    schema = Schema(arm=ARM, outcome=Bounded("y", -1.25, 7.5), covariates=SCHEMA.covariates)
    workload = CausalWorkload(schema, strata=["age"], square_weight=1.5, group_weights=[2.5])
    release = release_moments(
        PANDAS.assign(income=0.123 + PANDAS["y"]),
        workload,
        epsilon=1.0,
        delta=DELTA,
        ledger=Ledger(epsilon=1.0, delta=DELTA),
    )
    release.save(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    mechanism, loss = release.mechanism, release.loss
    declared = {-1.25, 7.5, 17.0, 25.0, 35.0, 56.0, 1.5, 2.5, mechanism.scale, DELTA}
    declared |= {mechanism.sensitivity, loss.rho, loss.epsilon, loss.delta}
    assert floats_in(json.loads(text)) <= declared
    assert not any(repr(value) in text for value in COLUMNS["y"])


def test_neighbouring_tables_give_releases_of_one_shape():
    """Random tables; a neighbour may empty a cell or an arm, and nothing shows it."""
    rng = np.random.default_rng(8)
    for seed, name in itertools.product(range(5), WORKLOADS):
        table = pd.DataFrame(columns(int(rng.integers(1, 6)), seed))
        neighbour = table.copy()
        neighbour.loc[0] = {"t": 1, "y": -50.0, "won": 0, "sex": "nobody", "age": 30, "degree": 1}
        one, two = (released(each, WORKLOADS[name]) for each in (table, neighbour))
        assert one.values.shape == two.values.shape
        assert (one.n, one.loss, one.workload) == (two.n, two.loss, two.workload)
