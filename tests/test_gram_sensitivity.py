"""The L2 sensitivity of second-order workloads: pairs of records are gone through."""

import itertools

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import MARGIN
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.moments import LATTICE, table_moments
from dpcausal_bayes.schema import Schema


def workload_of(two_levels, more_levels, numeric, radius, binary):
    covariates = [Bounded(f"x{j}", -1, 1) for j in range(numeric)]
    levels = [2] * two_levels + list(more_levels)
    covariates += [Categories(f"c{k}", list(range(size))) for k, size in enumerate(levels)]
    outcome = Levels("y", [-1, 1]) if binary else Bounded("y", -1, 1)
    schema = Schema(arm=Arm("t", control=0, treated=1), outcome=outcome, covariates=covariates)
    return GramWorkload(schema, radius=radius)


def level_columns(workload):
    """All combinations of levels, as columns of -1 and +1."""
    levels = [len(f.labels) for f in workload.fields if not isinstance(f, Bounded)]
    rows = [
        np.concatenate(
            [np.where(np.arange(1, n) == k, 1.0, -1.0) for n, k in zip(levels, row, strict=True)]
        )
        if row
        else np.zeros(0)
        for row in itertools.product(*(range(n) for n in levels))
    ]
    return np.array(rows)


def answers(workload, x, b, y):
    """Queries of one arm, of records (numbers, columns of levels, outcome)."""
    v = np.concatenate([np.ones_like(y)[..., None], x, b, y[..., None]], axis=-1)
    first, second = workload.pairs.T
    return v[..., first] * v[..., second]


def furthest(workload, points):
    """Largest squared distance of two records, in one arm or two, with all levels and outcomes."""
    levels = level_columns(workload)
    y = np.array([-1.0, 1.0] if workload.binary else [-1.0, 0.3, 1.0])
    i, k, m = (part.ravel() for part in np.indices((len(points), len(levels), len(y))))
    q = answers(workload, points[i], levels[k], y[m])
    size = (q**2).sum(-1)
    same = size[:, None] + size - 2 * q @ q.T
    return max(same.max(), 2 * size.max())


CUBES = [
    (two, more, numeric, binary)
    for two in range(4)
    for more in ([], [3], [4, 3])
    for numeric in range(3)
    for binary in (False, True)
    if two + numeric + len(more) < 5
]
CUBES += [(0, [7], 0, False), (1, [6], 0, True), (6, [], 0, False)]


@pytest.mark.parametrize(("two_levels", "more_levels", "numeric", "binary"), CUBES)
def test_cube_is_reached_and_not_passed(two_levels, more_levels, numeric, binary):
    """All corners, and some points between them."""
    workload = workload_of(two_levels, more_levels, numeric, None, binary)
    grid = np.array(list(itertools.product([-1.0, 0.5, 1.0], repeat=numeric)))
    assert furthest(workload, grid) == pytest.approx(workload.sensitivity**2, rel=1e-12)


def ball_points(numeric, radius2, rng):
    """The vertices that the proof names, and points on the ball's surface and inside."""
    whole, rest = int(radius2), radius2 % 1
    sizes = np.array([1.0] * whole + [rest**0.5] + [0.0] * (numeric - whole))[:numeric]
    corners = {
        tuple(np.array(order) * np.array(signs))
        for order in itertools.permutations(sizes)
        for signs in itertools.product([-1, 1], repeat=numeric)
    }
    points = rng.normal(size=(60, numeric))
    points = np.clip(points / np.linalg.norm(points, axis=1, keepdims=True) * radius2**0.5, -1, 1)
    points[::3] *= rng.random((20, 1))
    return np.vstack([sorted(corners), points])


@pytest.mark.parametrize(
    ("two_levels", "more_levels", "numeric", "radius2", "binary"),
    [
        (0, [], 2, 0.5, False),
        (0, [], 3, 1.3, False),
        (1, [], 3, 2.2, False),
        (2, [], 2, 1.0, False),
        (0, [3], 2, 1.5, False),
        (0, [], 2, 1.2, True),
        (3, [], 2, 1.0, False),
        (4, [], 2, 1.6, True),
        (1, [4], 3, 1.2, False),
    ],
)
def test_ball_is_not_passed(two_levels, more_levels, numeric, radius2, binary):
    workload = workload_of(two_levels, more_levels, numeric, np.sqrt(radius2), binary)
    found = furthest(workload, ball_points(numeric, radius2, np.random.default_rng(0)))
    claimed = workload.sensitivity**2
    assert found <= claimed * (1 + 1e-9)
    n_columns = two_levels + sum(n - 1 for n in more_levels)
    exact = n_columns <= 2 and not (more_levels or binary)
    assert found >= claimed - (1e-9 if exact else radius2 + 1)


@pytest.mark.parametrize("numeric", [1, 3, 6, 12])
def test_closed_forms(numeric):
    for radius2 in (0.22 * numeric, 0.5 * numeric):
        workload = workload_of(0, [], numeric, np.sqrt(radius2), False)
        ball = (2 + radius2) ** 2 + 2 + radius2 // 1 + (radius2 % 1) ** 2
        assert workload.sensitivity**2 == pytest.approx(ball)
    cube = workload_of(0, [], numeric, None, False)
    assert cube.sensitivity**2 == pytest.approx((numeric + 2) * (numeric + 3))
    signs = workload_of(numeric, [], 0, None, True)
    assert signs.sensitivity**2 == pytest.approx(4 * ((numeric + 2) ** 2 // 4))


def test_rounding_to_the_lattice_is_within_the_margin():
    """Random pairs near the furthest, between lattice points: whole numbers against the claim."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for numeric, radius2 in ((8, 1.0), (8, 8.0), (20, 2.5)):
        workload = workload_of(0, [], numeric, np.sqrt(radius2), False)
        names = [f"x{j}" for j in range(numeric)]
        for _ in range(20):
            x = rng.uniform(0.9, 1, (2, numeric))  # shrunk onto the ball
            x[:, : int(radius2)] = 1 if radius2 < numeric else x[:, : int(radius2)]
            if radius2 < numeric:
                x[:, int(radius2) :] = rng.normal(0, 1e-4, (2, numeric - int(radius2)))
            table = pd.DataFrame(x, columns=names).assign(t=[0, 1], y=1 - rng.uniform(0, 1e-6, 2))
            pair = [table_moments(table.iloc[[i]], workload) for i in (0, 1)]
            distance = np.linalg.norm(pair[0] - pair[1]) / LATTICE
            worst = max(worst, distance / workload.sensitivity)
    assert 0.99 < worst <= 1 + MARGIN
