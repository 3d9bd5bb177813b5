"""Exact moments against a loop over records, and the noise that is added to them."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from chi_square import assert_law
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moments import LATTICE, make_moment_release, table_moments
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise, simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

ARM = Arm("t", control="no", treated="yes")
COVARIATES = [
    Categories("deg", [0, 1]),
    Binned("age", [17, 25, 35, 56], other="unknown"),
    Categories("town", ["x", "y"], other="else"),
    Binned("score", [0, 0.5, 1]),
]
SCHEMA = Schema(arm=ARM, outcome=Bounded("y", -2, 10), covariates=COVARIATES)
BINARY = Schema(arm=ARM, outcome=Levels("y", ["b", "a"], values=[0, 1]), covariates=COVARIATES)
WORKLOADS = {
    "none": {},
    "joint": {"strata": ["age", "deg"]},
    "groups": {"groups": ["town", ["score", "age"], "deg"], "group_weights": [1, 2, 0.5]},
}


def table_of(n=400, seed=0, binary=False):
    rng = np.random.default_rng(seed)
    ages = np.array([17.0, 24.99, 25.0, 35.0, 56.0, 16.9, 56.1, np.nan])
    y = rng.choice([-2, 10, 4, -5, 1e9], n) * 1.0
    y = np.where(rng.random(n) < 0.7, rng.normal(4, 5, n), y)
    return pd.DataFrame(
        {
            "t": rng.choice(["no", "yes"], n),
            "y": rng.choice(["a", "b"], n) if binary else y,
            "deg": rng.integers(0, 2, n),
            "age": rng.choice(ages, n),
            "town": rng.choice(["x", "y", "z", None], n),
            "score": rng.choice([0, 0.25, 0.5, 0.75, 1.0], n),
            "unused": rng.normal(size=n),
        },
        index=rng.permutation(n),
    )


def label_of(covariate, value):
    """Return a value's label by comparing it with every level or bin, one after the other."""
    if isinstance(covariate, Categories):
        found = [str(level) for level in covariate.levels if level == value]
    else:
        bins = list(zip(covariate.edges, covariate.edges[1:], covariate.labels, strict=False))
        found = [label for low, high, label in bins if low <= value < high]
        if value == covariate.edges[-1]:
            found = [bins[-1][2]]
    return found[0] if found else covariate.other


def slow_moments(table, workload):
    """Sum over records by the queries' labels, in exact fractions where there is a choice."""
    totals = dict.fromkeys(workload.queries, 0)
    outcome = workload.schema.outcome
    for _, row in table.iterrows():
        arm = {"no": "control", "yes": "treated"}[row["t"]]
        if workload.binary:
            parts = {row["y"]: LATTICE}
        else:
            y = min(max((row["y"] - outcome.centre) / outcome.half, -1.0), 1.0)
            whole = math.floor(Fraction(y) * LATTICE + Fraction(1, 2))
            parts = {"mass": LATTICE, "outcome": whole}
            square = Fraction(whole * whole, LATTICE) - Fraction(LATTICE, 2)
            totals[f"square|{arm}"] += math.floor(square + Fraction(1, 2))
        for group in workload.groups:
            names = {c.column: label_of(c, row[c.column]) for c in COVARIATES if c.column in group}
            stratum = ", ".join(f"{name}={names[name]}" for name in group) or "all"
            for part, value in parts.items():
                totals[f"{stratum}|{arm}|{part}"] += value
    return list(totals.values())


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", WORKLOADS)
def test_moments_are_those_of_a_loop(name, binary):
    workload = CausalWorkload(BINARY if binary else SCHEMA, **WORKLOADS[name])
    table = table_of(binary=binary)
    exact = table_moments(table, workload)
    assert exact.dtype == np.int64
    assert exact.tolist() == slow_moments(table, workload)


def test_moments_mean_what_they_say():
    table = table_of(20_000)
    workload = CausalWorkload(SCHEMA, strata=["deg"])
    (cells,), squares = workload.split(table_moments(table, workload) / LATTICE)
    y = (np.clip(table["y"], -2, 10) - 4) / 6
    for arm, deg in np.ndindex(2, 2):
        inside = (table["t"] == ("no", "yes")[arm]) & (table["deg"] == deg)
        assert cells[arm, deg, 0] == inside.sum()
        assert cells[arm, deg, 1] == pytest.approx(y[inside].sum(), abs=20_000 / LATTICE)
    for arm in (0, 1):
        inside = table["t"] == ("no", "yes")[arm]
        assert squares[arm] == pytest.approx(np.sum(y[inside] ** 2 - 0.5), abs=0.05)


def test_outcomes_beyond_a_bound_count_as_the_bound():
    workload = CausalWorkload(SCHEMA)
    table = table_of(50)
    inside = table.assign(y=table["y"].clip(-2, 10))
    assert not inside.equals(table)
    np.testing.assert_array_equal(table_moments(table, workload), table_moments(inside, workload))


def test_numeric_columns_of_zero_and_one_keep_both_levels():
    """Rare ones too: no quantile of the data decides what the levels are."""
    table = table_of(200).assign(deg=0)
    table.iloc[7, table.columns.get_loc("deg")] = 1
    workload = CausalWorkload(SCHEMA, strata=["deg"])
    expected = table_moments(table, workload)
    (cells,), _ = workload.split(expected)
    assert cells[:, :, 0].sum(axis=0).tolist() == [199 * LATTICE, LATTICE]
    for dtype in ("bool", "float64", "Int64", "Float64", "boolean", "category", "object", "int8"):
        other = table_moments(table.astype({"deg": dtype}), workload)
        np.testing.assert_array_equal(other, expected)


@pytest.mark.parametrize("dtype", ["Float64", "float32", "object"])
def test_numbers_in_any_dress(dtype):
    table = table_of(100).assign(age=20.0, y=np.arange(100) % 13)
    workload = CausalWorkload(SCHEMA, strata=["age"])
    if dtype == "object":
        with pytest.raises(TypeError, match="column 'age' has dtype object, but Binned needs"):
            table_moments(table.astype({"age": "object"}), workload)
        return
    dressed = table.astype({"age": dtype, "y": dtype})
    np.testing.assert_array_equal(table_moments(dressed, workload), table_moments(table, workload))


def test_a_covariate_that_never_varies_keeps_its_cells():
    workload = CausalWorkload(SCHEMA, strata=["town"])
    (cells,), _ = workload.split(table_moments(table_of(80).assign(town="x"), workload))
    assert cells.shape == (2, 3, 2)
    assert cells[:, 1:].tolist() == [[[0, 0]] * 2] * 2


@pytest.mark.parametrize("n", [1, 2])
def test_a_table_of_one_or_two_records_is_fine(n):
    workload = CausalWorkload(SCHEMA, strata=["deg"])
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    release = simulate_moments(table_of(5).head(n), workload, mechanism, seed=1)
    assert release.n == n
    (cells,), _ = workload.split(table_moments(table_of(5).head(n), workload))
    assert cells[..., 0].sum() == n * LATTICE


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"t": "maybe"}, ValueError, "column 't' has values outside its declared levels"),
        ({"t": None}, ValueError, "column 't' has values outside"),
        ({"deg": 2}, ValueError, "'deg' has values outside .* declare other='other'"),
        ({"deg": np.nan}, ValueError, "'deg' has values outside .* or missing ones"),
        ({"deg": "0"}, ValueError, "'deg' has values outside"),
        ({"score": 1.5}, ValueError, "'score' has values outside its declared bins"),
        ({"score": -1e-9}, ValueError, "'score' has values outside its declared bins"),
        ({"score": np.nan}, ValueError, "'score' has values outside its declared bins"),
        ({"score": "a"}, TypeError, "column 'score' has dtype .*, but Binned needs numbers"),
        ({"y": np.nan}, ValueError, "column 'y' has values that are missing or not finite"),
        ({"y": np.inf}, ValueError, "column 'y' has values that are missing or not finite"),
        ({"y": "3"}, TypeError, "column 'y' has dtype .*, but Bounded needs numbers"),
        ({"y": 1j}, TypeError, "column 'y' has dtype complex128"),
    ],
)
def test_values_without_a_place_are_refused(change, error, says):
    workload = CausalWorkload(SCHEMA, groups=["deg", "score"])
    with pytest.raises(error, match=says) as caught:
        table_moments(table_of(10).assign(**change), workload)
    assert "maybe" not in str(caught.value)


def test_tables_that_are_none():
    workload = CausalWorkload(SCHEMA, strata=["deg"])
    with pytest.raises(ValueError, match="no rows: there is nothing to release"):
        table_moments(table_of(5).head(0), workload)
    with pytest.raises(ValueError, match="one column 'deg'"):
        table_moments(table_of(5).drop(columns="deg"), workload)
    with pytest.raises(ValueError, match="one column 'y'"):
        table_moments(pd.concat([table_of(5), table_of(5)[["y"]]], axis=1), workload)
    with pytest.raises(TypeError, match="must be a pandas DataFrame"):
        table_moments({"y": [1]}, workload)


def test_columns_that_are_not_asked_for_are_not_looked_at():
    table = table_of(50).drop(columns=["town", "score", "unused"]).assign(deg="odd")
    table_moments(table, CausalWorkload(SCHEMA, strata=["age"]))


def test_noise_follows_the_law_of_its_weight():
    """Rounded to a coarse grid, as the lattice has more points than draws."""
    workload = CausalWorkload(
        SCHEMA, groups=["deg", ["age"]], group_weights=[2, 0.5], square_weight=3
    )
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    exact = table_moments(table_of(100), workload)
    source = SeededNoise(5)
    draws = [
        make_moment_release(workload, mechanism, exact, 100, source=source, non_private=True)
        for _ in range(4000)
    ]
    noise = np.array([draw.noisy for draw in draws]) - exact / LATTICE
    scaled = noise / draws[0].noise_scale
    np.testing.assert_array_equal(
        draws[0].noise_scale, mechanism.scale / np.array([2.0] * 8 + [0.5] * 16 + [3.0] * 2)
    )
    for column in (scaled[:, :8], scaled[:, 8:24], scaled[:, 24:]):
        assert_law(np.round(8 * column.ravel()).astype(int), Gaussian(8.0))
    correlation = np.corrcoef(scaled.T)
    assert np.max(np.abs(correlation - np.eye(26))) < 6 / math.sqrt(4000)


class Recorder:
    """A source that says which laws were asked of it, and adds nothing."""

    name = "a test"

    def __init__(self):
        self.asked = []

    def integers(self, law, shape):
        self.asked.append((law.scale, shape))
        return np.zeros(shape, dtype=np.int64)

    def words(self, n):
        raise AssertionError("moments need no words")


def test_one_call_for_each_weight():
    workload = CausalWorkload(SCHEMA, groups=["deg", ["age"]], group_weights=[2, 1])
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    exact = table_moments(table_of(100), workload)
    source = Recorder()
    release = make_moment_release(workload, mechanism, exact, 100, source=source, non_private=True)
    np.testing.assert_array_equal(release.values, exact)
    step = mechanism.scale * LATTICE
    assert source.asked == [(step, (18,)), (step / 2, (8,))]


def test_noise_is_refused_where_it_does_not_fit():
    workload, other = CausalWorkload(SCHEMA), CausalWorkload(SCHEMA, square_weight=2)
    mechanism = GaussianMechanism.calibrated(other, epsilon=1.0, delta=1e-6)
    exact = table_moments(table_of(10), workload)
    source = Recorder()
    with pytest.raises(ValueError, match="calibrate the mechanism for this workload"):
        make_moment_release(workload, mechanism, exact, 10, source=source, non_private=True)
    with pytest.raises(TypeError, match="mechanism is a dpcausal_bayes ClusterDP"):
        simulate_moments(table_of(10), workload, ClusterDP(lam=0.5, sigma=1, gamma=0.1), seed=1)
    with pytest.raises(TypeError, match="workload is a dpcausal_bayes Schema: moments need a Caus"):
        simulate_moments(table_of(10), SCHEMA, mechanism, seed=1)
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    for wrong in (exact[1:], exact.astype(float)):
        with pytest.raises(ValueError, match="must hold the workload's 6 answers as int64"):
            make_moment_release(workload, mechanism, wrong, 10, source=source, non_private=True)
    assert source.asked == []
