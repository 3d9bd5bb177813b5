"""From a table of any library to exact second-order moments, and their release."""

import msgspec
import numpy as np
import pytest

from dpcausal_bayes.columns import Bounded, Categories
from dpcausal_bayes.custodian import gram_aggregates
from dpcausal_bayes.custodian.gram_aggregates import exact_gram
from dpcausal_bayes.custodian.ledger import Ledger
from dpcausal_bayes.custodian.moments import release_moments
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.release_files import ReleaseError
from dpcausal_bayes.releases import load_release
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload
from gram_examples import ARM, COLUMNS, PANDAS, SCHEMA, WORKLOADS
from moment_tables import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_engine_gives_the_same_integers(engine, name):
    exact, n = exact_gram(ENGINES[engine](COLUMNS), WORKLOADS[name])
    assert exact.dtype == np.int64
    np.testing.assert_array_equal(exact, table_moments(PANDAS, WORKLOADS[name]))
    assert n == len(PANDAS)


def test_moments_by_hand():
    schema = Schema(
        arm=ARM,
        outcome=Bounded("y", 0, 2),
        covariates=[Bounded("a", -1, 1), Bounded("b", -1, 1), Categories("c", ["u", "v"])],
    )
    table = PANDAS[:1].assign(t=1, y=1.5, a=-0.6, b=0.8, c="v")
    steps = gram_aggregates.LATTICE
    exact = exact_gram(table, GramWorkload(schema, radius=0.5))[0].reshape(2, -1) / steps
    a, b = -0.3, 0.4  # shrunk from length 1 to 1/2
    by_hand = [1, a, b, 1, 0.5, a * a, a * b, a, a / 2, b * b, b, b / 2, 0.5, 0.25]
    np.testing.assert_allclose(exact, [np.zeros(14), by_hand], atol=2 / steps)


@pytest.mark.parametrize("engine", ["pandas", "pyarrow"])
def test_chunks_add_up(engine, monkeypatch):
    monkeypatch.setattr(gram_aggregates, "CELLS", 20 * 2 * WORKLOADS["ball"].n_queries)
    exact, n = exact_gram(ENGINES[engine](COLUMNS), WORKLOADS["ball"])
    np.testing.assert_array_equal(exact, table_moments(PANDAS, WORKLOADS["ball"]))
    assert n == len(PANDAS)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("t", 2, "column 't' has a value that is not among its declared levels"),
        ("t", None, "column 't' has a missing value"),
        ("y", float("inf"), "column 'y' has an infinite value"),
        ("y", None, "column 'y' has a missing value"),
        ("age", None, "column 'age' has a missing value"),
        ("age", -float("inf"), "column 'age' has an infinite value"),
        ("sex", "q", "column 'sex' has a value that is not among its declared levels"),
        ("sex", None, "column 'sex' has a missing value"),
        ("size", 9, "column 'size' has a value outside its bins"),
    ],
)
def test_bad_values_are_refused_and_not_printed(engine, column, value, says):
    values = list(COLUMNS[column])
    values[7] = value
    if column in ("y", "age", "size"):
        values = [None if each is None else float(each) for each in values]
    with pytest.raises(ValueError, match=says) as error:
        exact_gram(ENGINES[engine]({**COLUMNS, column: values}), WORKLOADS["cube"])
    assert "nothing is released" in str(error.value)
    assert not any(secret in str(error.value) for secret in ("9", "'q'"))


def test_other_takes_what_is_not_declared():
    table = PANDAS.assign(town=[None, "z"] * 100)
    exact = exact_gram(table, WORKLOADS["cube"])[0]
    np.testing.assert_array_equal(exact, exact_gram(PANDAS.assign(town="z"), WORKLOADS["cube"])[0])


def test_no_rows_and_missing_columns():
    with pytest.raises(ValueError, match="table has no rows"):
        exact_gram(PANDAS[:0], WORKLOADS["cube"])
    with pytest.raises(ValueError, match=r"no column 'age'.*Bounded\.column"):
        exact_gram(PANDAS.drop(columns="age"), WORKLOADS["cube"])


def test_release_is_charged_saved_and_read_again(tmp_path):
    ledger = Ledger(epsilon=2.0, delta=1e-6)
    workload = WORKLOADS["ball"]
    release = release_moments(PANDAS, workload, ledger=ledger, epsilon=1.0, delta=1e-6)
    assert "spent (1, 1e-06)" in repr(ledger)
    assert release.n == len(PANDAS)
    assert not release.non_private
    assert "columns=8, radius=0.8, queries=76" in repr(release)
    release.save(tmp_path / "gram.json")
    again = load_release(tmp_path / "gram.json")
    assert again == release
    assert again.workload == workload
    gram = release.gram()
    assert gram.shape == (2, 9, 9)
    np.testing.assert_array_equal(gram, np.swapaxes(gram, 1, 2))
    np.testing.assert_array_equal(gram, workload.gram(release.noisy))


def test_noise_has_the_mechanisms_scale():
    workload = WORKLOADS["cube"]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    exact = table_moments(PANDAS, workload)
    noise = np.array(
        [simulate_moments(PANDAS, workload, mechanism, seed=s).values - exact for s in range(40)]
    )
    relative = noise / gram_aggregates.LATTICE / mechanism.scale
    assert relative.std() == pytest.approx(1, abs=4 / np.sqrt(2 * noise.size))
    assert abs(relative.mean()) < 4 / np.sqrt(noise.size)


def test_each_kind_of_release_names_the_others_moments():
    mechanism = GaussianMechanism.calibrated(WORKLOADS["cube"], epsilon=1.0, delta=1e-6)
    gram = simulate_moments(PANDAS, WORKLOADS["cube"], mechanism, seed=1)
    for read in (gram.cells, lambda: gram.squares):
        with pytest.raises(TypeError, match=r"GramWorkload; use gram\(\)"):
            read()
    causal = CausalWorkload(SCHEMA, strata=["sex"])
    mechanism = GaussianMechanism.calibrated(causal, epsilon=1.0, delta=1e-6)
    with pytest.raises(TypeError, match=r"use cells\(\)"):
        simulate_moments(PANDAS, causal, mechanism, seed=1).gram()
    with pytest.raises(ReleaseError, match=r"MomentRelease\.workload is a str"):
        msgspec.structs.replace(gram, workload="gram")
