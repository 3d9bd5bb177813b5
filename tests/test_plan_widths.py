"""The closed form of a plan: dense algebra, and draws of what is unknown of these very records."""

import numpy as np
import pytest

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian.beliefs import Law
from dpcausal_bayes.custodian.guesses import Guesses, guesses_for
from dpcausal_bayes.custodian.predictions import Asked, Predictor
from dpcausal_bayes.custodian.widths import expected_masses, variances
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

SCHEMA = Schema(
    arm=Arm("treat", control=0, treated=1),
    outcome=Bounded("re78", 0, 40_000),
    covariates=[Categories("nodegree", [0, 1]), Binned("age", [17, 25, 35, 56])],
)
BINARY = Schema(
    arm=SCHEMA.arm, outcome=Levels("y", ["yes", "no"], values=[3, 1]), covariates=SCHEMA.covariates
)
GUESSES = Guesses(
    treated=0.2,
    mean=5_000.0,
    sd=(7_000.0, 9_000.0),
    shares={"age": (0.5, 0.3, 0.2), "nodegree": (0.25, 0.75)},
    confounding={},
)


def dense(workload, masses, members, assigned, guesses, noise):
    """Return the variance of the contrast, given that the masses sum to n: dense algebra."""
    n, outcome = masses.sum(), workload.schema.outcome
    binary = workload.binary
    values = np.array(outcome.values) if binary else None
    mean = guesses.mean if binary else (guesses.mean - outcome.centre) / outcome.half
    blocks, queries = [], []
    for mass, sd in zip(masses.ravel(), np.repeat(guesses.sd, len(members)), strict=True):
        if binary:
            counts = mass * np.array([mean - values[1], values[0] - mean]) / (values[0] - values[1])
            queries.append(counts)
            blocks.append(np.diag(counts))
        else:
            square = mean**2 + (sd / outcome.half) ** 2
            queries.append(mass * np.array([1, mean]))
            blocks.append(mass * np.array([[1, mean], [mean, square]]))
    queries = np.concatenate(queries)
    size = len(queries)
    covariance = np.zeros((size, size))
    for i, block in enumerate(blocks):
        covariance[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    covariance -= np.outer(queries, queries) / n

    def contrast(q):
        cells = q.reshape(2, -1, 2)
        mass = cells.sum(axis=-1) if binary else cells[..., 0]
        total = cells @ values if binary else outcome.centre * mass + outcome.half * cells[..., 1]
        weight = sum(mass[arm] for arm in assigned) * members
        return weight @ (total[1] / mass[1] - total[0] / mass[0]) / weight.sum()

    step = 1e-4 * np.eye(size)
    gradient = np.array([(contrast(queries + h) - contrast(queries - h)) / 2e-4 for h in step])
    of_n = np.ones(size) if binary else np.tile([1.0, 0.0], size // 2)
    whole = covariance + noise**2 * np.eye(size)
    known = whole @ of_n
    whole = whole - np.outer(known, known) / (of_n @ known)
    return gradient @ covariance @ gradient, gradient @ whole @ gradient


@pytest.mark.parametrize("schema", [SCHEMA, BINARY], ids=["bounded", "binary"])
@pytest.mark.parametrize("estimand", [ATE(), ATT(), ATC()], ids=lambda one: one.name)
@pytest.mark.parametrize("part", [False, True], ids=["all", "some strata"])
def test_variance_is_that_of_dense_algebra_given_n(schema, estimand, part):
    workload = CausalWorkload(schema, strata=["nodegree", "age"])
    guesses = GUESSES
    if schema is BINARY:
        guesses = Guesses(0.2, 1.5, (np.sqrt(0.75),) * 2, GUESSES.shares, {})
    masses = expected_masses(workload, 0, 2000, guesses)
    np.testing.assert_allclose(masses[:, 1], 2000 * 0.25 * 0.3 * np.array([0.8, 0.2]))
    members = np.arange(6) % 3 > 0 if part else np.ones(6, dtype=bool)
    found = variances(workload, 0, masses, members, estimand.assigned, guesses, 7.0, "super")
    arms = [("control", "treated").index(arm) for arm in estimand.assigned]
    sampling, both = dense(workload, masses, members, arms, guesses, 7.0)
    assert found[0] == pytest.approx(sampling, rel=1e-5)
    assert sum(found) == pytest.approx(both, rel=1e-5)


@pytest.mark.parametrize("estimand", [ATE(), ATT(), ATC()], ids=lambda one: one.name)
def test_for_these_very_records_only_the_other_arms_outcomes_are_unknown(estimand):
    workload = CausalWorkload(SCHEMA, strata=["nodegree"])
    masses = np.array([[50.0, 30.0], [20.0, 60.0]])
    members = np.ones(2, dtype=bool)
    sampling = variances(
        workload, 0, masses, members, estimand.assigned, GUESSES, 7.0, "sample"
    )[0]  # fmt: skip
    rng = np.random.default_rng(1)
    draws = 100_000
    total = np.zeros(draws)
    units = sum(masses[("control", "treated").index(arm)].sum() for arm in estimand.assigned)
    for arm in estimand.assigned:
        a = ("control", "treated").index(arm)
        for s in range(2):  # the seen mean is known; the other is a posterior draw, and new draws
            sd = GUESSES.sd[1 - a]
            other = rng.normal(0, sd / np.sqrt(masses[1 - a, s]), draws)
            other += rng.normal(0, sd / np.sqrt(masses[a, s]), draws)
            total += (1 if a == 0 else -1) * masses[a, s] / units * other
    assert total.var() == pytest.approx(sampling, rel=4 * np.sqrt(2 / draws))


@pytest.mark.parametrize("schema", [SCHEMA, BINARY], ids=["bounded", "binary"])
def test_draws_are_weighed_as_the_estimand_says(schema):
    workload = CausalWorkload(schema, strata=["nodegree"])
    predictor = Predictor(workload, 0, 100, guesses_for(schema, 0.5, None, None, None, None), 0)
    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.ones(4), size=(3, 5)).reshape(3, 5, 2, 2)
    mean = rng.uniform(-1, 1, (3, 5, 2, 2))
    half = 20_000 if schema is SCHEMA else 1  # the values are 3 and 1
    effect = half * (mean[..., 1, :] - mean[..., 0, :])
    for estimand, weight in ((ATE(), share.sum(axis=2)), (ATT(), share[:, :, 1])):
        for members in ([True, True], [False, True]):
            asked = Asked("effect", np.array(members), estimand.assigned)
            found = predictor._contrasts(Law(share, mean, np.ones(2)), asked)
            wanted = np.sum(effect * weight * members, -1) / np.sum(weight * members, -1)
            np.testing.assert_allclose(found, wanted)
