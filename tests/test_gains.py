"""What a group is expected to gain, and the refit that says so."""

import numpy as np
import pytest

from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.custodian.beliefs import Law, moments
from dpcausal_bayes.custodian.gains import outlook
from dpcausal_bayes.custodian.refits import refit
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

ARM = Arm("t", control=0, treated=1)
COVARIATES = [Categories("a", [0, 1, 2])]


def schema_of(outcome):
    return Schema(arm=ARM, outcome=outcome, covariates=COVARIATES)


def law_of(mean, sd, treated=0.3):
    """Return a law without strata, its outcomes on [-1, 1]."""
    mean, sd = np.reshape(mean, (2, 1)), np.array(sd)
    return Law(np.array([[1 - treated], [treated]]), mean, sd**2 / (1 - mean[:, 0] ** 2))


def test_wider_bounds_change_what_noise_costs_and_nothing_else():
    near = outlook(schema_of(Bounded("y", -10, 10)), law_of([0.1, 0.2], [0.1, 0.12]), 1_000)
    far = outlook(schema_of(Bounded("y", -100, 100)), law_of([0.01, 0.02], [0.01, 0.012]), 1_000)
    for seen in (near, far):
        assert (seen.schema.outcome.low, seen.schema.outcome.high) == pytest.approx((-2.0, 5.0))
        assert (seen.treated, seen.mean) == pytest.approx((0.3, 1.3))
        assert seen.sd == pytest.approx((1.0, 1.2))
        assert seen.weight == pytest.approx(1_000 * 0.3 * 0.7)
        assert seen.residuals.most_outcome == pytest.approx(1.2 / 3.5)
    assert near.residuals.influence == pytest.approx(far.residuals.influence)
    errors = [
        [seen.error(CausalWorkload(schema_of(Bounded("y", -end, end))), scale) for scale in (0, 9)]
        for seen, end in ((near, 10), (far, 100))
    ]
    assert errors[0][0] == pytest.approx(errors[1][0])  # sampling
    noise = [np.sqrt(noisy**2 - exact**2) for exact, noisy in errors]
    assert noise[1] == pytest.approx(10 * noise[0], rel=0.05)


def test_errors_of_more_strata_grow_as_their_root():
    schema = schema_of(Bounded("y", -1, 1))
    seen = outlook(schema, law_of([0.0, 0.0], [1e-3, 1e-3]), 10_000)
    errors = [seen.error(CausalWorkload(schema, groups=[group]), 10.0) for group in ((), ("a",))]
    # without strata both arms' totals have noise: 10 sqrt(p² + (1 - p)²), in units of the bounds
    half = seen.schema.outcome.half
    assert errors[0] * half == pytest.approx(10 * np.hypot(0.3, 0.7), rel=0.01)
    assert errors[1] / errors[0] == pytest.approx(np.sqrt(3), rel=0.01)


@pytest.mark.parametrize("values", [[0, 1], [5, 3]])
def test_two_levels_have_their_own_units(values):
    schema = schema_of(Levels("y", ["no", "yes"], values=values))
    law = Law(np.array([[0.5], [0.5]]), np.array([[-0.6], [-0.2]]), np.ones(2))
    seen = outlook(schema, law, 400)
    assert seen.schema is schema
    assert seen.mean == pytest.approx(values[0] + 0.3 * (values[1] - values[0]))
    assert seen.residuals.most_outcome == pytest.approx(np.sqrt(1 - 0.2**2))
    sampling = seen.error(CausalWorkload(schema), 0.0)
    # W times the standard error, where the outcome is -1 or 1
    assert sampling == pytest.approx(100 * np.sqrt((1 - 0.4**2) * 4 / 400), rel=1e-6)


@pytest.mark.parametrize("binary", [False, True])
def test_a_refit_of_exact_moments_is_what_made_them(binary):
    law = Law(
        np.array([[0.2, 0.3, 0.1], [0.1, 0.1, 0.2]]),
        np.array([[-0.3, 0.1, 0.2], [-0.2, 0.15, 0.4]]),
        np.ones(2) if binary else np.array([0.1, 0.2]),
    )
    n = 10**8
    noisy = n * moments(law, binary=binary)
    found = refit([3], noisy, np.full(len(noisy), 5.0), n, binary=binary)
    for one, truth in zip(found, law, strict=True):
        np.testing.assert_allclose(one, truth, rtol=0.01)


def test_a_refit_of_noise_stays_within_bounds():
    noisy = np.array([-40.0, 90.0, 30.0, -80.0, 500.0, -300.0])
    found = refit([], noisy, np.full(6, 60.0), 50, binary=False)
    assert np.all(found.share > 0)
    assert np.all(np.abs(found.mean) < 1)
    assert np.all((found.dispersion > 0) & (found.dispersion < 1))
