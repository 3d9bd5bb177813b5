"""The price of Gaussian noise: against another library, against sums over the lattice."""

import math

import dp_accounting
import msgspec
import numpy as np
import pytest
from scipy import stats

from dpcausal_bayes.accounting import REPLACE_ONE_RECORD, epsilon_from_rho
from dpcausal_bayes.columns import Arm, Bounded, Levels
from dpcausal_bayes.gaussian_accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_ratio_for,
    gaussian_scale_for,
)
from dpcausal_bayes.gaussian_mechanism import LATTICE, MARGIN, GaussianMechanism
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

SCHEMA = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10))
WORKLOAD = CausalWorkload(SCHEMA)
EPSILONS = [1e-4, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0]
DELTAS = [1e-12, 5e-6, 1e-2, 0.4]


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_scale_agrees_with_dp_accounting(epsilon, delta):
    oracle = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert gaussian_scale_for(epsilon, delta) == pytest.approx(oracle, rel=1e-7)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("ratio", [1e-3, 0.1, 0.5, 1.0, 3.0, 10.0])
def test_epsilon_agrees_with_dp_accounting(ratio, delta):
    oracle = dp_accounting.get_epsilon_gaussian(1 / ratio, delta)
    assert gaussian_epsilon(ratio, delta) == pytest.approx(oracle, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 2.5])
def test_delta_is_the_divergence_of_two_normals(ratio, epsilon):
    """An integral over a fine grid, of what the closed form sums up."""
    x = np.linspace(-12, 15, 400_001)
    excess = stats.norm.pdf(x, ratio) - math.exp(epsilon) * stats.norm.pdf(x)
    expected = np.sum(np.maximum(excess, 0)) * (x[1] - x[0])
    assert gaussian_delta(ratio, epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_calibration_is_rounded_to_the_safe_side(epsilon, delta):
    ratio = gaussian_ratio_for(epsilon, delta)
    assert gaussian_delta(ratio, epsilon) <= delta
    assert gaussian_delta(ratio * (1 + 1e-6), epsilon) > delta
    spent = GaussianMechanism.calibrated(WORKLOAD, epsilon=epsilon, delta=delta).loss()
    assert spent.epsilon <= epsilon * (1 + 1e-9)
    assert spent.epsilon == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


def test_no_noise_can_be_said_of_nothing():
    assert gaussian_epsilon(0.1, 0.4) == 0.0  # the laws differ by less than delta to begin with
    assert gaussian_delta(1e-9, 1.0) == 0.0


def test_calibrated_mechanism_states_its_price():
    mechanism = GaussianMechanism.calibrated(WORKLOAD, epsilon=1.0, delta=5e-6)
    loss = mechanism.loss()
    assert loss.adjacency == REPLACE_ONE_RECORD
    assert loss.pure_epsilon is None
    assert loss.delta == 5e-6
    assert loss.rho == mechanism.rho == pytest.approx(4.5 / 2 / mechanism.scale**2, rel=3e-5)
    assert mechanism.sensitivity == WORKLOAD.sensitivity
    assert mechanism.loss(1e-9).epsilon > loss.epsilon
    oracle = dp_accounting.get_sigma_gaussian(1.0, 5e-6) * math.sqrt(4.5)
    assert mechanism.scale == pytest.approx(oracle * (1 + MARGIN), rel=1e-7)
    assert mechanism.note.startswith("Gaussian noise of 8.23959 records")
    assert "(1, 5e-06)-DP" in mechanism.note


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1, 0.5])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0])
def test_classical_formula_is_valid_and_wasteful(epsilon, delta):
    classical = GaussianMechanism.classical(WORKLOAD, epsilon=epsilon, delta=delta)
    calibrated = GaussianMechanism.calibrated(WORKLOAD, epsilon=epsilon, delta=delta)
    formula = WORKLOAD.sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert classical.scale == pytest.approx(formula, rel=2 * MARGIN)
    assert classical.scale > 1.05 * calibrated.scale
    assert classical.loss().epsilon < epsilon


def test_classical_formula_is_refused_where_it_is_wrong():
    with pytest.raises(ValueError, match="not proved above 1"):
        GaussianMechanism.classical(WORKLOAD, epsilon=1.0001, delta=1e-5)
    # the reason: what it calls 10 is more
    scale = math.sqrt(2 * math.log(1.25e5)) / 10
    assert gaussian_epsilon(1 / scale, 1e-5) > 10.3


@pytest.mark.parametrize("sigma", [40.0, 300.0, 5000.0])
def test_discrete_noise_is_nearly_the_rounded_noise(sigma):
    """The factor between the two laws, up to 24 scales out, is within z^2 / (24 sigma^2)."""
    z = np.arange(-24, 25, 0.5)
    k = np.round(z * sigma)
    below, above = stats.norm.logcdf(-(np.abs(k) + np.array([[0.5], [-0.5]])) / sigma)
    rounded = above + np.log1p(-np.exp(below - above))
    difference = np.abs(np.expm1(Gaussian(sigma).log_pmf(k) - rounded))
    # the closed form cancels digits as sigma grows
    bound = np.maximum(z**2, 1) / (24 * sigma**2)
    assert np.all(difference <= bound * 1.1 + 1e-11 * sigma)
    assert np.max(difference) > np.max(bound) / 2 or sigma > 1000


def lattice_delta(sigma, shift, epsilon):
    """Exact delta of a discrete Gaussian moved by a whole number, summed term by term."""
    reach = int(14 * sigma)
    k = np.arange(-reach, reach + shift + 1)
    law = Gaussian(sigma)
    excess = np.exp(law.log_pmf(k)) * -np.expm1(epsilon + law.log_pmf(k - shift) - law.log_pmf(k))
    return np.sum(excess[excess > 0])


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("ratio", [0.05, 0.25, 1.0, 4.0])
def test_lattice_noise_costs_what_the_formula_says(ratio, epsilon):
    """In one dimension, on a lattice a thousand times coarser than the one that is used."""
    lattice = LATTICE // 1024
    sigma = lattice / ratio
    exact = lattice_delta(sigma, lattice, epsilon)
    formula = gaussian_delta(ratio, epsilon)
    assert exact <= gaussian_delta(ratio * (1 + MARGIN), epsilon)
    assert exact == pytest.approx(formula, rel=1e-3, abs=1e-15)


def test_a_coarse_lattice_would_not_cost_what_the_formula_says():
    """Else the test above could not fail: one step a record is too coarse."""
    excess = [
        lattice_delta(1 / ratio, 1, epsilon) - gaussian_delta(ratio * (1 + MARGIN), epsilon)
        for ratio in (0.5, 1.0, 2.0)
        for epsilon in (0.1, 0.5, 1.0)
    ]
    assert max(excess) > 1e-4


def test_lattice_noise_is_zero_concentrated():
    """Renyi divergences of whole-number moves, at the claimed rho exactly or below."""
    for sigma, shift in ((3.0, 2), (50.0, 40)):
        k = np.arange(-2000, 2001)
        p, q = Gaussian(sigma).log_pmf(k - shift), Gaussian(sigma).log_pmf(k)
        for alpha in (1.5, 2.0, 8.0):
            renyi = np.logaddexp.reduce(alpha * p + (1 - alpha) * q) / (alpha - 1)
            assert renyi <= alpha * shift**2 / (2 * sigma**2) * (1 + 1e-12)


def test_little_noise_falls_back_on_the_bound_of_zcdp():
    mechanism = GaussianMechanism(scale=0.1, sensitivity=WORKLOAD.sensitivity, delta=1e-6)
    assert mechanism.loss().epsilon == epsilon_from_rho(mechanism.rho, 1e-6)
    assert mechanism.loss().epsilon > gaussian_epsilon(mechanism.ratio, 1e-6)


def test_weights_move_noise_between_queries():
    heavy = CausalWorkload(SCHEMA, square_weight=2.0)
    light = CausalWorkload(SCHEMA, square_weight=0.1)
    scales = [
        GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6).scale / workload.weights
        for workload in (heavy, light)
    ]
    assert scales[0][0] > scales[1][0]  # masses pay for the squares
    assert scales[0][-1] < scales[1][-1]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"epsilon": 0}, ValueError, "epsilon is 0: the budget must be positive"),
        ({"epsilon": -1}, ValueError, "epsilon is -1"),
        ({"epsilon": float("inf")}, ValueError, "epsilon is inf"),
        ({"epsilon": float("nan")}, ValueError, "epsilon is nan"),
        ({"epsilon": "1"}, TypeError, "epsilon is '1'"),
        ({"delta": 0}, ValueError, "delta is 0: Gaussian noise needs it above 0"),
        ({"delta": 1}, ValueError, "delta is 1: Gaussian noise"),
        ({"delta": 1.5}, ValueError, "delta is 1.5"),
        ({"delta": -0.1}, ValueError, "delta is -0.1"),
        ({"delta": None}, TypeError, "delta is None"),
        ({"workload": SCHEMA}, TypeError, "workload is a Schema: give a CausalWorkload"),
    ],
)
@pytest.mark.parametrize("make", [GaussianMechanism.calibrated, GaussianMechanism.classical])
def test_bad_budgets_are_named(make, change, error, says):
    given = {"workload": WORKLOAD, "epsilon": 1.0, "delta": 1e-6, **change}
    with pytest.raises(error, match=says):
        make(given.pop("workload"), **given)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scale": 0.0}, "GaussianMechanism.scale is 0"),
        ({"scale": float("inf")}, "GaussianMechanism.scale is inf"),
        ({"sensitivity": -1.0}, "GaussianMechanism.sensitivity is -1"),
        ({"delta": 0.0}, "GaussianMechanism.delta is 0"),
        ({"delta": 0.6}, "GaussianMechanism.delta is 0.6"),
    ],
)
def test_bad_parameters_are_named(change, says):
    with pytest.raises(ValueError, match=says):
        GaussianMechanism(**{"scale": 1.0, "sensitivity": 2.0, "delta": 1e-6, **change})


def test_budgets_beyond_use_are_refused():
    with pytest.raises(ValueError, match="protects nobody; lower epsilon"):
        GaussianMechanism.calibrated(WORKLOAD, epsilon=1000.0, delta=1e-6)
    with pytest.raises(ValueError, match="more than 64-bit integers hold"):
        GaussianMechanism.calibrated(WORKLOAD, epsilon=1e-7, delta=1e-9)


def test_a_mechanism_belongs_to_its_workload():
    mechanism = GaussianMechanism.calibrated(WORKLOAD, epsilon=1.0, delta=1e-6)
    mechanism.check(WORKLOAD)
    binary = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]))
    with pytest.raises(ValueError, match="calibrate the mechanism for this workload"):
        mechanism.check(CausalWorkload(binary))


def test_mechanism_survives_json():
    mechanism = GaussianMechanism.calibrated(WORKLOAD, epsilon=0.3, delta=1e-7)
    assert msgspec.json.decode(msgspec.json.encode(mechanism), type=GaussianMechanism) == mechanism
