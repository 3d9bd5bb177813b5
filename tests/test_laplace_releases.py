"""Releases with Laplace noise: engines, ledger, files, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.custodian import Ledger, LedgerError, moments, release_moments
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.releases import ReleaseError, load_release
from dpcausal_bayes.workloads import CausalWorkload
from moment_tables import COLUMNS, ENGINES
from moment_tables import WORKLOADS as TABLE_WORKLOADS
from test_laplace_mechanism import WORKLOADS, NoNoise, table_of, workload_of
from test_moment_files import rewrite


def test_a_ledger_without_delta_adds_it_up():
    workload, table = workload_of(), table_of([(0, 1, 0), (1, -2, 1)] * 20)
    ledger = Ledger(epsilon=2.0)
    for _ in range(2):
        release_moments(table, workload, epsilon=1.0, ledger=ledger)
    assert ledger.spent == (pytest.approx(2.0), 0.0)
    with pytest.raises(LedgerError, match="refused"):
        release_moments(table, workload, epsilon=0.01, ledger=ledger)
    gaussian = GaussianMechanism.calibrated(workload, epsilon=0.1, delta=1e-6)
    with pytest.raises(LedgerError, match="Give the ledger a delta, or use Laplace noise"):
        release_moments(table, workload, mechanism=gaussian, ledger=Ledger(epsilon=2.0))


def test_it_shares_a_ledger_with_gaussian_noise():
    workload, table = workload_of(), table_of([(0, 1, 0), (1, -2, 1)] * 20)
    ledger = Ledger(epsilon=2.0, delta=1e-6)
    release_moments(table, workload, epsilon=1.0, ledger=ledger)
    assert ledger.spent == (pytest.approx(1.0), 0.0)
    gaussian = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    release_moments(table, workload, mechanism=gaussian, ledger=ledger)
    epsilon, delta = ledger.spent
    assert 1 < epsilon <= 2 * (1 + 1e-9)
    assert delta <= 1e-6


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["nothing", "joint"])
def test_every_engine_gives_the_same_numbers_and_charge(engine, name):
    workload, ledger = TABLE_WORKLOADS[name], Ledger(epsilon=1.0)
    release, expected = (
        moments._release(table, workload, given, 1.0, None, None, NoNoise())
        for table, given in (
            (ENGINES[engine](COLUMNS), ledger),
            (pd.DataFrame(COLUMNS), Ledger(epsilon=1.0)),
        )
    )
    np.testing.assert_array_equal(release.values, expected.values)
    exact = table_moments(pd.DataFrame(COLUMNS), workload)
    assert np.abs(release.values - exact).max() <= 1  # a sum is rounded down to even
    assert release.mechanism == LaplaceMechanism.calibrated(workload, epsilon=1.0)
    assert ledger.spent == (pytest.approx(1.0), 0.0)
    assert [entry.loss for entry in ledger.entries] == [release.loss]


@pytest.fixture
def saved(tmp_path):
    release = release_moments(
        pd.DataFrame(COLUMNS), TABLE_WORKLOADS["joint"], epsilon=1.0, ledger=Ledger(epsilon=1.0)
    )
    release.save(tmp_path / "release.json")
    return release, tmp_path / "release.json"


def test_a_file_is_read_as_it_was_written(saved):
    release, path = saved
    loaded = load_release(path)
    assert isinstance(loaded, MomentRelease)
    assert isinstance(loaded.mechanism, LaplaceMechanism)
    assert loaded == release
    rewrite(path, lambda content: None)
    assert load_release(path) == release


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r["loss"].update(pure_epsilon=0.5), "loss states pure_epsilon 0.5"),
        (lambda r: r["loss"].update(epsilon=0.5), "loss states epsilon 0.5"),
        (lambda r: r["loss"].update(rho=0.1), "loss states rho 0.1"),
        (lambda r: r["loss"].update(pure_epsilon=None, delta=0.1), "loss states pure_epsilon None"),
        (lambda r: r["mechanism"].update(scale=4.5), "loss states pure_epsilon"),
        (lambda r: r["mechanism"].update(scale=-1.0), "scale is -1"),
        (lambda r: r["mechanism"].update(sensitivity=1.0), "mechanism does not fit: .*is 1, but"),
        (
            lambda r: r["mechanism"].update(sensitivity=2.25 * (1 - 1e-10)),
            "mechanism does not fit: ",
        ),
        (lambda r: r["mechanism"].update(delta=1e-6), "delta"),
        (lambda r: r["mechanism"].update(type="GaussianMechanism"), "delta"),
        (lambda r: r["workload"].update(square_weight=2.0), "mechanism does not fit: .*is 2.25"),
        (
            lambda r: r["workload"].update(groups=[["sex"], ["age"]], group_weights=[1.0, 1.0]),
            "mechanism does not fit: workload has 2 groups",
        ),
    ],
)
def test_wrong_content_with_a_right_hash_is_named(saved, change, says):
    _, path = saved
    rewrite(path, change)
    with pytest.raises(ReleaseError, match=says):
        load_release(path)


def test_a_mechanism_belongs_to_its_workload():
    mechanism = LaplaceMechanism.calibrated(WORKLOADS["bounded"], epsilon=1.0)
    mechanism.check(WORKLOADS["one stratum"])  # a record moves those by as much
    for other in ("weights", "binary"):
        with pytest.raises(ValueError, match="calibrate the mechanism for this workload"):
            mechanism.check(WORKLOADS[other])
    with pytest.raises(ValueError, match="calibrate the mechanism for this workload"):
        release_moments(
            table_of([(0, 1, 0)]),
            WORKLOADS["weights"],
            mechanism=mechanism,
            ledger=Ledger(epsilon=1.0),
        )


@pytest.mark.parametrize(
    ("workload", "error", "says"),
    [
        (
            CausalWorkload(WORKLOADS["bounded"].schema, groups=["a", []]),
            ValueError,
            "2 groups: .*release one joint group, or take a GaussianMechanism",
        ),
        (
            GramWorkload(WORKLOADS["bounded"].schema),
            TypeError,
            "workload is a GramWorkload: .*take a GaussianMechanism",
        ),
    ],
)
def test_where_it_does_not_apply_the_remedy_is_named(workload, error, says):
    ledger = Ledger(epsilon=1.0)
    mechanism = LaplaceMechanism(scale=2.0, sensitivity=2.25)
    for cost in ({"epsilon": 1.0}, {"mechanism": mechanism}):
        with pytest.raises(error, match=says):
            release_moments(table_of([(0, 1, 0)]), workload, ledger=ledger, **cost)
    assert ledger.entries == ()
