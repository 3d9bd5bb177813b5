"""Routes beside each other: what they declare without noise, the order of runs, the page."""

import numpy as np
import pandas as pd
import pytest
import route_plans
import route_study
import route_summary
from real_data_sets import missing
from route_declared import bent_regression, maximum_entropy, reach_of, regression, stratified
from route_designs import DESIGNS, ROUTES
from route_statements import statements
from study_runs import scaled

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

ARM = Arm("t", control=0, treated=1)
BOUNDED, BINARY = Bounded("outcome", -1, 1), Levels("outcome", [0, 1])
SITE, OLD = Categories("site", ["a", "b", "c"]), Binned("age", [20, 40, 60])


def study(outcome, n=4_000, seed=1):
    rng = np.random.default_rng(seed)
    site, age = rng.integers(0, 3, n), rng.uniform(15, 65, n)
    pull = 0.6 * (site - 1) + 0.03 * (age - 40) * (site == 1) - 0.8
    t = (rng.random(n) < 1 / (1 + np.exp(-pull))).astype(int)
    y = 0.15 * t + 0.2 * pull + 0.01 * (age - 40) * t + 0.3 * rng.standard_normal(n)
    if outcome is BINARY:
        y = (y > 0.1).astype(int)
    table = pd.DataFrame({"t": t, "site": np.array(["a", "b", "c"])[site], "outcome": y})
    return table.assign(age=age)


def declare(outcome, *covariates):
    return Schema(arm=ARM, outcome=outcome, covariates=list(covariates))


@pytest.mark.parametrize("outcome", [BOUNDED, BINARY])
def test_second_moments_declare_least_squares_on_clipped_and_shrunk_rows(outcome):
    table = study(outcome).assign(bmi=lambda rows: 20 + rows["age"] / 5)
    numbers = Bounded("age", 20, 60), Bounded("bmi", 22, 32)
    workload = GramWorkload(declare(outcome, *numbers, SITE), radius=1.0)
    x = np.column_stack([(table["age"] - 40) / 20, (table["bmi"] - 27) / 5]).clip(-1, 1)
    length = np.sqrt((x**2).sum(1))
    assert (length > 1).mean() > 0.1  # of the rows the ball moves some
    x = x / np.maximum(length, 1)[:, None]
    design = np.column_stack([np.ones(len(x)), x, table["site"] == "b", table["site"] == "c"])
    y, t = table["outcome"].clip(-1, 1), table["t"].to_numpy()
    fitted = [design @ np.linalg.lstsq(design[t == a], y[t == a], rcond=None)[0] for a in (0, 1)]
    effect = fitted[1] - fitted[0]
    found = regression(table, workload)
    assert found["ate"] == pytest.approx(effect.mean(), abs=1e-5)
    assert found["att"] == pytest.approx(effect[t == 1].mean(), abs=1e-5)
    assert found["ate"] != pytest.approx(found["att"], abs=1e-3)
    assert route_study.outside(table, workload) == pytest.approx((length > 1).mean())


@pytest.mark.parametrize("outcome", [BOUNDED, BINARY])
def test_of_one_group_the_law_of_largest_entropy_declares_the_contrast_of_its_strata(outcome):
    """It has as many coefficients as moments, so that strata's means are the table's."""
    table = study(outcome)
    workload = CausalWorkload(declare(outcome, SITE), groups=["site"])
    assert maximum_entropy(table, workload) == pytest.approx(stratified(table, workload), abs=1e-4)


def enumerated(table, grid):
    """Effects of the law of largest entropy over all cells of (t, site, age, y), by its dual.

    Outcomes lie on the grid. Newton's method on log sum exp(features lambda) - moments lambda.
    """
    t, site, old, y = (
        part.ravel() for part in np.meshgrid([0, 1], [0, 1, 2], [0, 1], grid, indexing="ij")
    )

    def features(t, site, old, y):
        level = [site == 1, site == 2, old == 1]
        own = np.column_stack([np.ones_like(y), y, y**2, *level, *(one * y for one in level)])
        return np.column_stack([own * (t == 0)[:, None], own * (t == 1)[:, None]])

    row_site = table["site"].map({"a": 0, "b": 1, "c": 2}).to_numpy()
    row_old = (table["age"] >= 40).to_numpy().astype(int)
    moments = features(
        table["t"].to_numpy(), row_site, row_old, table["outcome"].to_numpy(float)
    ).mean(0)
    cells = features(t, site, old, y)
    weight = np.zeros(cells.shape[1])
    for _ in range(60):
        p = np.exp(cells @ weight - (cells @ weight).max())
        p /= p.sum()
        mean = p @ cells
        hessian = (cells * p[:, None]).T @ cells - np.outer(mean, mean)
        step = np.linalg.lstsq(hessian, moments - mean, rcond=1e-10)[0]
        weight += min(1.0, 1.0 / np.abs(step).max()) * step
    assert np.abs(p @ cells - moments).max() < 1e-10
    p = p.reshape(2, 3, 2, len(grid))
    given = (p @ grid) / p.sum(-1)
    effect, share = given[1] - given[0], p.sum(-1)
    return {
        "ate": (effect * share.sum(0)).sum(),
        "att": (effect * share[1]).sum() / share[1].sum(),
    }


@pytest.mark.parametrize("outcome", [BOUNDED, BINARY])
def test_of_two_groups_it_declares_what_enumeration_finds(outcome):
    table = study(outcome).assign(age=lambda rows: rows["age"].clip(20, 60))
    grid = np.array([0.0, 1.0])
    if outcome is BOUNDED:
        grid = np.linspace(-1, 1, 33)
        nearest = np.abs(table["outcome"].to_numpy()[:, None] - grid).argmin(1)
        table["outcome"] = grid[nearest]
    workload = CausalWorkload(declare(outcome, SITE, OLD), groups=["site", "age"])
    found = maximum_entropy(table, workload)
    assert found == pytest.approx(enumerated(table, grid), abs=2e-5)
    joint = CausalWorkload(workload.schema, strata=["site", "age"])
    assert found["ate"] != pytest.approx(stratified(table, joint)["ate"], abs=5e-3)


def test_an_outcome_that_hardly_varies_is_met_on_a_finer_grid():
    table = study(BOUNDED).assign(outcome=lambda rows: 0.03 + 0.02 * rows["outcome"])
    workload = CausalWorkload(declare(BOUNDED, SITE), groups=["site"])
    assert maximum_entropy(table, workload) == pytest.approx(stratified(table, workload), abs=1e-4)


def test_rows_of_a_stratum_without_an_arm_are_left_out():
    table = study(BOUNDED)
    table = table[(table["site"] != "a") | (table["t"] == 0)]
    workload = CausalWorkload(declare(BOUNDED, SITE), groups=["site"])
    assert maximum_entropy(table, workload) == pytest.approx(stratified(table, workload), abs=1e-4)


def test_a_reach_beyond_every_outcome_clips_none():
    table = study(BOUNDED).assign(outcome=lambda rows: 3 * rows["outcome"])
    reach = reach_of(table)
    assert reach == int(np.ceil(table["outcome"].abs().max())) > 2
    means = table.groupby("t")["outcome"].mean()
    every = CausalWorkload(declare(BOUNDED), strata=[])
    assert stratified(table, every, reach)["ate"] == pytest.approx(means[1] - means[0], abs=1e-4)
    assert abs(stratified(table, every, 1)["ate"] - (means[1] - means[0])) > 0.05
    one = CausalWorkload(declare(BOUNDED, SITE), groups=["site"])
    whole = stratified(table, one, reach)
    assert maximum_entropy(table, one, reach) == pytest.approx(whole, abs=1e-3)


def test_squares_and_products_take_a_bend_away():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, 20_000)
    t = (rng.random(20_000) < 0.2 + 0.6 * (x > 0)).astype(int)
    y = 0.1 * t + 0.5 * x**2 * (1 - t) + 0.4 * x + 0.05 * rng.standard_normal(20_000)
    table = pd.DataFrame({"t": t, "age": 40 + 20 * x, "outcome": y})
    workload = GramWorkload(declare(BOUNDED, Bounded("age", 20, 60)))
    truth = np.mean(0.1 - 0.5 * x**2)
    assert bent_regression(table, workload)["ate"] == pytest.approx(truth, abs=0.004)
    assert abs(regression(table, workload)["ate"] - truth) > 0.01


def test_a_round_looks_at_every_cell_alike():
    planned = list(route_study.plan())
    assert len(planned) == len(set(planned))
    cells = pd.DataFrame(planned).groupby(["data", "route", "epsilon"])
    assert (cells.size() == route_study.ROUNDS[-1]).all()
    first = planned[: len(cells) * route_study.ROUNDS[0]]
    assert (pd.DataFrame(first).groupby(["data", "route", "epsilon"]).size() == 10).all()
    assert {run.epsilon for run in planned if run.data == "acic_rep1"} == {1.0}
    seeds = {run.route: [] for run in planned}
    for run in planned:
        seeds[run.route].append(run.seed)
    assert len(set(map(tuple, seeds.values()))) == 1  # routes differ in what is released only


@pytest.mark.parametrize("data", DESIGNS)
def test_every_route_can_release_and_declare_every_data_set(data, data_dir):
    if missing(data):
        pytest.skip(f"no data of {data}")
    design = DESIGNS[data]
    table, _, _ = scaled(data, 1, design.bounds)
    for route in ROUTES:
        workload = route.workload(design)
        assert len(table_moments(table, workload)) == workload.n_queries
        effects = route.declare(table, workload, 1)
        assert all(-2 < effect < 2 for effect in effects.values())


def test_facts_without_noise(data_dir):
    if missing("lalonde"):
        pytest.skip("no LaLonde data")
    facts = route_study.facts_of("lalonde", 1, "no strata")["ate"]
    assert facts["unclipped"] == pytest.approx(facts["causal"], abs=0.1)
    assert facts["declared"] < facts["causal"] - 50  # the highest earnings are clipped


def rows_of(route, error, half_length, *, data="lalonde", runs=40, causal=1_000.0, seed=1):
    rng = np.random.default_rng(seed)
    mean = 1_000.0 + error * rng.choice([-1.0, 1.0], runs)
    facts = {"declared": 1_000.0, "unclipped": 1_000.0, "causal": causal, "shrunk": 0.0}
    frame = pd.DataFrame({"data": data, "rep": 1, "route": route, "epsilon": 1.0, "mean": mean})
    frame["seed"] = range(runs)
    for name in ("super", "table"):
        frame[f"{name}_low"], frame[f"{name}_high"] = mean - half_length, mean + half_length
    frame = frame.assign(**facts, half=20_000.0, seconds=0.5, divergences=0)
    return pd.concat([frame.assign(estimand=one) for one in ("ate", "att")], ignore_index=True)


def test_verdicts(monkeypatch):
    measured = pd.DataFrame(
        {"rmse": 5_000.0, "median_len": 50_000.0, "coverage": 1.0},
        index=pd.MultiIndex.from_tuples([("lalonde", 1.0)]),
    )
    monkeypatch.setattr(route_summary, "published", lambda: measured)
    near, far = rows_of("no strata", 500.0, 2_000.0), rows_of("Gram", 3_000.0, 2_000.0)
    unknown = rows_of("Gram", 500.0, 2_000.0, data="lalonde_cps", causal=np.nan)
    rows = pd.concat([far, near, unknown], ignore_index=True)
    plans = pd.DataFrame({"data": "lalonde", "estimand": ["ate", "att"], "epsilon": 1.0})
    plans = plans.assign(route=["no strata", "Gram"], best=True)
    found = route_summary.verdicts(rows, plans)
    assert found[["data", "estimand", "best", "runner_up", "plan"]].to_numpy().tolist() == [
        ["lalonde", "ate", "no strata", "Gram", "no strata"],
        ["lalonde", "att", "no strata", "Gram", "Gram"],
    ]
    ate = found.iloc[0]
    assert (ate["rmse"], ate["zero"], ate["length"]) == pytest.approx((500, 1_000, 4_000))
    assert ate["ratio"] == pytest.approx(4_000 / 50_000)
    assert np.isnan(found.iloc[1]["ratio"])  # the published method has no ATT
    known = rows.assign(bent=np.nan)
    page = route_summary.page(rows, known, plans, "By hand.")
    assert "By hand." in page
    assert "**no strata** (best)" in page
    assert "1/12.5" in page
    assert "not known" in page
    said = statements(found, rows).splitlines()
    assert said[0].endswith("published method's: 1 of 1 cells.")
    assert said[1].endswith("answering 0: 2 of 2 cells.")
    assert "lalonde ATT Gram 0 %" in said[2]
    assert said[3].endswith("of runs: 2 of 2 cells.")
    assert said[4].endswith("Not: lalonde ATT at 1 (Gram 3,000, best 500).")
    told = {line["route"]: line for line in route_summary._own(rows[rows["data"] == "lalonde"])}
    assert told["no strata"]["table's within 90 to 99 %"] == "yes"  # all of 40
    assert told["Gram"]["table's within 90 to 99 %"] == "no"


def test_routes_are_compared_on_the_same_releases():
    many, fewer, few = (
        rows_of(name, 500.0, 2_000.0, runs=runs)
        for name, runs in (("no strata", 40), ("Gram", 12), ("MaxEnt", 9))
    )
    rows = pd.concat([many, fewer, few], ignore_index=True)
    found = route_summary.common(rows[rows["estimand"] == "ate"])
    assert found.groupby("route").size().to_dict() == {"no strata": 12, "Gram": 12}
    assert route_summary.common(few).empty


def test_a_plan_chooses_among_three_routes(monkeypatch):
    monkeypatch.setattr(route_plans, "EPSILONS", (1.0,))
    monkeypatch.setattr(route_plans, "GUESSES", {"acic": route_plans.GUESSES["acic"]})
    found = route_plans.chosen()
    assert set(found["route"]) == {"no strata", "strata", "Gram"}
    assert set(found["data"]) == {"acic", "acic_rep1"}
    assert found.groupby(["data", "estimand"])["best"].sum().eq(1).all()
