"""The L2 sensitivity of a workload, by brute force over pairs of records.

Each record is a table of one row that goes through the very code that makes releases, so layout,
weights and rounding are covered too.
"""

import itertools

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import MARGIN
from dpcausal_bayes.moments import LATTICE, table_moments
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.sensitivity import bounded_sensitivity
from dpcausal_bayes.workloads import CausalWorkload

COVARIATES = {
    "a": Categories("a", [0, 1]),
    "b": Binned("b", [0, 1, 2], other="else"),
    "c": Categories("c", ["only"]),
}
VALUES = {"a": [0, 1], "b": [0.5, 2.0, 7.0], "c": ["only"]}
STEPS = 40  # the outcome's grid: both bounds, the centre, and points between


def schema_of(outcome):
    return Schema(
        arm=Arm("t", control=0, treated=1), outcome=outcome, covariates=list(COVARIATES.values())
    )


BOUNDED = schema_of(Bounded("y", 0, STEPS))
BINARY = schema_of(Levels("y", [0, 1]))


def furthest_pair(workload):
    """Largest distance between the weighted answers of two one-record tables, in records."""
    named = sorted(set(itertools.chain(*workload.groups)))
    outcomes = [0, 1] if workload.binary else range(STEPS + 1)
    rows = itertools.product([0, 1], outcomes, *(VALUES[name] for name in named))
    tables = (pd.DataFrame([row], columns=["t", "y", *named]) for row in rows)
    answers = np.array([table_moments(table, workload) for table in tables])
    points = answers / LATTICE * workload.weights
    norm = np.sum(points**2, axis=1)
    return np.sqrt(np.max(norm[:, None] + norm - 2 * points @ points.T))


GROUPS = {
    "none": None,
    "one": ["a"],
    "joint": [["a", "b"]],
    "two": ["a", "b"],
    "nested": ["a", ["a", "b"]],
    "constant": ["c"],
    "constant among others": ["a", "c"],
}


@pytest.mark.parametrize("square_weight", [0.3, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("groups", GROUPS)
def test_bounded_sensitivity_is_reached_and_not_passed(groups, square_weight):
    groups = GROUPS[groups]
    weights = None if groups is None else [1.0, 0.6][: len(groups)]
    workload = CausalWorkload(
        BOUNDED, groups=groups, group_weights=weights, square_weight=square_weight
    )
    found = furthest_pair(workload)
    assert found <= workload.sensitivity * (1 + MARGIN / 2)
    # where the worst outcome is an interior one, the grid only comes near it
    assert found >= workload.sensitivity * (1 - 5e-4)


@pytest.mark.parametrize("groups", GROUPS)
def test_binary_sensitivity_is_reached_and_not_passed(groups):
    groups = GROUPS[groups]
    weights = None if groups is None else [1.0, 0.6][: len(groups)]
    workload = CausalWorkload(BINARY, groups=groups, group_weights=weights)
    assert furthest_pair(workload) == pytest.approx(workload.sensitivity, rel=1e-9)


@pytest.mark.parametrize("n_groups", [1, 2, 3, 5])
def test_closed_form_of_groups_that_can_move(n_groups):
    for w in (0.5, 1.0, 2.0, 4.0):
        expected = max(4 * n_groups + w**2 / 2, 3 * n_groups + w**2)
        assert bounded_sensitivity(n_groups, 0.0, w) ** 2 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("moving", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("fixed", [0.3, 1.0])
@pytest.mark.parametrize("w", [0.5, 1.0, 1.9, 2.5, 6.0])
def test_outcomes_inside_the_bounds_are_searched(moving, fixed, w):
    """A fine grid over both outcomes, in either arm, from the distances themselves."""
    y = np.linspace(-1, 1, 2001)
    one, other = y[:, None], y[None, :]
    arm_changes = (moving + fixed) * (2 + one**2 + other**2) + w**2 * (
        (one**2 - 0.5) ** 2 + (other**2 - 0.5) ** 2
    )
    arm_stays = (
        moving * (2 + one**2 + other**2)
        + fixed * (one - other) ** 2
        + w**2 * (one**2 - other**2) ** 2
    )
    found = max(arm_changes.max(), arm_stays.max())
    claimed = bounded_sensitivity(moving, fixed, w) ** 2
    assert found <= claimed * (1 + 1e-12)
    assert found == pytest.approx(claimed, rel=1e-5)


def test_an_interior_worst_case_exists():
    """Else the cubic would be idle: here no pair of ends or centres is the furthest."""
    w, t = 6.0, np.array([0.0, 1.0])
    ends = np.max((1 + t) ** 2 + w**2 * (1 - t**2) ** 2)
    assert bounded_sensitivity(0.0, 1.0, w) ** 2 > ends + 1e-3


def test_rounding_to_the_lattice_is_within_the_margin():
    """Random pairs, outcomes between lattice points: whole-number distances against the claim."""
    workload = CausalWorkload(BOUNDED, groups=["a"], square_weight=3.0)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(300):
        near_zero, near_end = rng.normal(0, 1e-5), rng.uniform(0, 1e-6)
        y = [STEPS / 2 * (1 + near_zero), STEPS * (1 - near_end)]
        pair = [
            table_moments(pd.DataFrame({"t": [0], "a": [i], "y": [y[i]]}), workload) for i in (0, 1)
        ]
        distance = np.linalg.norm((pair[0] - pair[1]) * workload.weights) / LATTICE
        worst = max(worst, distance / workload.sensitivity)
    assert 1 - 1e-5 < worst <= 1 + MARGIN
