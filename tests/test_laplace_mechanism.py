"""Laplace noise on moments: how far a record moves them, what that costs, what the noise is."""

import itertools

import msgspec
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpcausal_bayes.accounting import REPLACE_ONE_RECORD, epsilon_from_rho
from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism
from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise, simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

STEPS = 4  # to a record, of the coarse lattice


def workload_of(*, binary=False, strata=("a",), levels=2, **weights):
    outcome = Levels("y", [0, 1], values=(5, 2)) if binary else Bounded("y", -STEPS, STEPS)
    schema = Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=outcome,
        covariates=[Categories("a", range(levels))],
    )
    return CausalWorkload(schema, strata=list(strata), **weights)


WORKLOADS = {
    "bounded": workload_of(),
    "one stratum": workload_of(strata=()),
    "weights": workload_of(square_weight=3.0, group_weights=[0.7]),
    "heavy squares": workload_of(square_weight=20.0),
    "binary": workload_of(binary=True),
    "binary, weight": workload_of(binary=True, group_weights=[2.5]),
}


class NoNoise:
    """A source whose noise is zero, which remembers whose it was to be."""

    name = "operating system"

    def __init__(self):
        self.laws = []

    def integers(self, law, shape):
        self.laws += [law] * int(np.prod(shape))
        return np.zeros(shape, np.int64)

    def words(self, n):
        raise AssertionError("a moment release needs no words")


def measured(values, workload):
    """What has noise of its own, from what is released: low and high end by cell, squares."""
    if workload.binary:
        return values
    mass, outcome = values[..., :-2:2], values[..., 1:-2:2]
    ends = np.stack([mass - outcome, mass + outcome], axis=-1)
    assert not np.any(ends % 2)
    ends = ends.reshape(*values.shape[:-1], -1) // 2
    return np.concatenate([ends, values[..., -2:]], axis=-1)


def before_noise(exact, mechanism, workload):
    """The numbers that noise is added to, and the laws of their noise."""
    source = NoNoise()
    values = mechanism.randomised(exact, workload, source)
    return measured(values, workload), source.laws


def records(workload):
    """Every record there is on the coarse lattice."""
    outcomes = [0, 1] if workload.binary else range(-STEPS, STEPS + 1)
    return list(itertools.product([0, 1], outcomes, [0, 1]))


def table_of(rows):
    return pd.DataFrame(rows, columns=["t", "y", "a"])


@pytest.fixture
def coarse(monkeypatch):
    """A lattice on which all tables of a few records can be listed."""
    monkeypatch.setattr("dpcausal_bayes.moments.LATTICE", STEPS)
    monkeypatch.setattr("dpcausal_bayes.laplace_mechanism.LATTICE", STEPS)


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.usefixtures("coarse")
def test_no_two_neighbours_are_further_apart_than_the_loss(name, others):
    """All pairs of tables that differ in one record, beside a few of those that they share."""
    workload = WORKLOADS[name]
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=0.8)
    listed = records(workload)
    rng = np.random.default_rng(0)
    shared = [[listed[i] for i in rng.integers(len(listed), size=others)] for _ in range(9)]
    if others == 1:  # sums of every size and parity
        shared = [[record] for record in listed if record[0] == 0]
    furthest = 0.0
    for rows in shared if others else [[]]:
        base = table_moments(table_of(rows), workload) if rows else 0
        one = np.array([table_moments(table_of([record]), workload) for record in listed])
        found = [before_noise(base + alone, mechanism, workload) for alone in one]
        if rows:  # sums of sums are those of the table
            whole = table_moments(table_of([*rows, listed[-1]]), workload)
            np.testing.assert_array_equal(base + one[-1], whole)
        numbers = np.array([number for number, _ in found])
        scale = np.array([law.scale for law in found[0][1]])
        cost = np.abs((numbers[:, None] - numbers) / scale).sum(-1)
        furthest = max(furthest, cost.max())
        assert furthest <= mechanism.pure_epsilon * (1 + 1e-12)
    assert furthest == pytest.approx(0.8, rel=1e-9)


@pytest.mark.parametrize("name", WORKLOADS)
def test_nor_are_they_on_the_lattice_that_is_used(name):
    workload = WORKLOADS[name]
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=1.3)
    rng = np.random.default_rng(1)

    def record():
        if workload.binary:
            return [*rng.integers(2, size=3)]
        steps = rng.choice([-1, 1, 0, 1 / LATTICE, -1 / LATTICE, 1 - 1 / LATTICE, rng.uniform()])
        return [rng.integers(2), STEPS * steps, rng.integers(2)]

    for n in rng.integers(1, 5, size=100):
        rows = [record() for _ in range(n)]
        pair = [table_moments(table_of([*rows, record()]), workload) for _ in range(2)]
        (one, laws), (other, _) = (before_noise(exact, mechanism, workload) for exact in pair)
        cost = sum(abs(int(d)) / law.scale for d, law in zip(one - other, laws, strict=True))
        assert cost <= mechanism.pure_epsilon * (1 + 1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", ["bounded", "heavy squares", "binary"])
def test_no_output_tells_neighbours_apart_by_more_than_epsilon(name, n):
    """The exact probabilities of outputs drawn from one of them."""
    workload = WORKLOADS[name]
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=1.0)
    # the worst pair: another arm, and an outcome at an end for one in the middle
    middle = 1 if workload.binary else 0.0
    rows = [(0, 1, 1)] * (n - 1)
    pair = [
        table_moments(table_of([*rows, record]), workload)
        for record in [(0, 1 if workload.binary else STEPS, 0), (1, middle, 1)]
    ]
    inside, laws = before_noise(pair[0], mechanism, workload)
    outside, _ = before_noise(pair[1], mechanism, workload)
    source, largest = SeededNoise(n), -np.inf
    for _ in range(300):
        output = measured(mechanism.randomised(pair[0], workload, source), workload)
        ratio = sum(
            float(law.log_pmf(x - a) - law.log_pmf(x - b))
            for law, x, a, b in zip(laws, output, inside, outside, strict=True)
        )
        assert abs(ratio) <= 1.0 + 1e-8
        largest = max(largest, ratio)
    if name == "bounded" or workload.binary:
        assert largest > 1 - 1e-6


def test_sums_are_kept_to_half_a_step():
    """Without noise masses are as they were, and outcome sums or one step less."""
    workload = workload_of()
    exact = np.array([3, -3, 5, 2, 0, 0, 7, -6, 1, -2]) * 1
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=1.0)
    values = mechanism.randomised(exact, workload, NoNoise())
    np.testing.assert_array_equal(values[:-2:2], exact[:-2:2])
    np.testing.assert_array_equal(values[1:-2:2], [-3, 1, 0, -7])
    np.testing.assert_array_equal(values[-2:], exact[-2:])


MANY = workload_of(levels=10_000)


@pytest.fixture(scope="module")
def noise():
    """The noise of 20,000 cells, in records: mass and outcome, (20000, 2)."""
    mechanism = LaplaceMechanism.calibrated(MANY, epsilon=0.5)
    zeros = np.zeros(MANY.n_queries, np.int64)
    values = mechanism.randomised(zeros, MANY, SeededNoise(3))
    np.testing.assert_array_equal(values, mechanism.randomised(zeros, MANY, SeededNoise(3)))
    return values / LATTICE, mechanism


def test_the_two_ends_have_independent_laplace_noise(noise):
    values, mechanism = noise
    low, high = measured(values * LATTICE, MANY)[:-2].reshape(-1, 2).T / LATTICE
    for end in (low, high):
        assert stats.kstest(end, stats.laplace(scale=mechanism.scale).cdf).pvalue > 1e-3
    for one, other in ((low, high), (np.abs(low), np.abs(high))):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(low))


def test_masses_and_outcome_sums_are_uncorrelated_and_not_independent(noise):
    values, mechanism = noise
    sd = mechanism.noise_sd(MANY)
    cells = values[:-2].reshape(-1, 2) / sd[:-2].reshape(-1, 2)
    assert np.all(np.abs(cells.mean(0)) < 4 / np.sqrt(len(cells)))
    # a sum of two Laplace variables has kurtosis 4.5, which makes the error of a variance
    assert np.all(np.abs(cells.var(0) - 1) < 4 * np.sqrt(3.5 / len(cells)))
    mass, outcome = cells.T
    assert abs(np.corrcoef(mass, outcome)[0, 1]) < 4 / np.sqrt(len(cells))
    # 6/14 by the moments of the Laplace law; 0 were the noise on masses and sums themselves
    assert np.corrcoef(mass**2, outcome**2)[0, 1] == pytest.approx(6 / 14, abs=0.08)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_query_has_the_noise_that_is_stated(name):
    workload = WORKLOADS[name]
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=0.7)
    zeros, source = np.zeros(workload.n_queries, np.int64), SeededNoise(5)
    drawn = [mechanism.randomised(zeros, workload, source) for _ in range(2000)]
    drawn = np.array(drawn) / LATTICE / mechanism.noise_sd(workload)
    assert np.all(np.abs(drawn.mean(0)) < 4.5 / np.sqrt(2000))
    assert np.all(np.abs(drawn.var(0) - 1) < 4.5 * np.sqrt(5 / 2000))  # kurtosis 6 at most


def test_the_loss_is_pure():
    workload = workload_of()
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=0.5)
    loss = mechanism.loss()
    assert loss.adjacency == REPLACE_ONE_RECORD
    assert (loss.pure_epsilon, loss.epsilon, loss.delta) == (pytest.approx(0.5),) * 2 + (0.0,)
    assert loss.rho == mechanism.rho == pytest.approx(0.5 * np.tanh(0.25))
    assert mechanism.sensitivity == 2.25  # two cells, and a quarter for the squares
    assert LaplaceMechanism.calibrated(WORKLOADS["binary"], epsilon=0.5).sensitivity == 2
    small = LaplaceMechanism.calibrated(workload, epsilon=0.01).loss(1e-2)
    assert small.epsilon == epsilon_from_rho(small.rho, 1e-2) < small.pure_epsilon
    assert mechanism.loss(1e-9).epsilon == loss.epsilon
    assert "scale 4.5 records" in mechanism.note
    assert "0.5-DP" in mechanism.note
    assert msgspec.json.decode(msgspec.json.encode(mechanism), type=LaplaceMechanism) == mechanism


@pytest.mark.parametrize(
    ("epsilon", "error", "says"),
    [
        (0, ValueError, "epsilon is 0: the budget must be positive"),
        (-1, ValueError, "epsilon is -1"),
        (float("inf"), ValueError, "epsilon is inf"),
        ("1", TypeError, "epsilon is '1'"),
        (None, TypeError, "epsilon is None"),
        (1e-6, ValueError, "more than 64-bit integers hold.*raise epsilon"),
        (1e6, ValueError, "2.25e-06 records, less than 0.0001, protects nobody; lower epsilon"),
    ],
)
def test_bad_budgets_are_named(epsilon, error, says):
    with pytest.raises(error, match=says):
        LaplaceMechanism.calibrated(WORKLOADS["bounded"], epsilon=epsilon)


@pytest.mark.parametrize("field", ["scale", "sensitivity"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), "1", True])
def test_bad_parameters_are_named(field, value):
    with pytest.raises((TypeError, ValueError), match=f"LaplaceMechanism.{field} is "):
        LaplaceMechanism(**{"scale": 1.0, "sensitivity": 2.0, field: value})


@pytest.mark.parametrize("delta", [-0.1, 1.0, float("nan")])
def test_bad_deltas_are_named(delta):
    with pytest.raises(ValueError, match="delta is "):
        LaplaceMechanism(scale=1.0, sensitivity=2.0).loss(delta)


@pytest.mark.parametrize("epsilon", [1e-5, 1e3])
@pytest.mark.parametrize("name", WORKLOADS)
def test_one_record_at_the_ends_of_the_budget(name, epsilon):
    workload = WORKLOADS[name]
    mechanism = LaplaceMechanism.calibrated(workload, epsilon=epsilon)
    release = simulate_moments(table_of([(0, 1, 1)]), workload, mechanism, seed=1)
    assert release.n == 1
    assert release.loss.epsilon == pytest.approx(epsilon, rel=1e-9)
    np.testing.assert_array_equal(release.noise_scale, mechanism.noise_sd(workload))
    exact = table_moments(table_of([(0, 1, 1)]), workload) / LATTICE
    assert np.all(np.abs(release.noisy - exact) < 20 * release.noise_scale)


def test_its_noise_is_half_the_gaussian_s():
    """At the same epsilon, and a delta that is small: why it is there."""
    for name, least in (("bounded", 0.5), ("binary", 0.5)):
        workload = WORKLOADS[name]
        gaussian = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
        laplace = LaplaceMechanism.calibrated(workload, epsilon=1.0)
        ratio = laplace.noise_sd(workload)[0] / gaussian.noise_sd(workload)[0]
        assert ratio < least + 0.05
