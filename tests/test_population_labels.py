"""Populations: what they draw follows what they state, and the stated truth is the truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from chi_square import assert_law
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.populations.labels import Population, binary_population, mixture_population
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release

SCHEMA = Schema(
    arm=Arm("seg", control="none", treated="mail"),
    outcome=Levels("answer", ["no", "maybe", "yes"], values=[0, 1, 4]),
    cluster=Categories("town", [7, 9]),
)
# unequal clusters, unequal arms
UNEVEN = Population(
    schema=SCHEMA,
    shares=[[[0.5, 0.3, 0.2], [0.1, 0.4, 0.5]], [[0.2, 0.2, 0.6], [0.25, 0.5, 0.25]]],
    cell_size=[[30_000, 10_000], [20_000, 60_000]],
)
EFFECTS = np.array([0.4 + 2.0 - 0.3 - 0.8, 0.5 + 1.0 - 0.2 - 2.4])


def test_a_draw_has_the_public_design_and_the_stated_law():
    table = UNEVEN.draw(1)
    assert list(table.columns) == ["seg", "answer", "town", "y0", "y1"]
    cell = table.groupby(["town", "seg"], observed=True)
    np.testing.assert_array_equal(
        cell.size().unstack()[["none", "mail"]], [[30_000, 10_000], [20_000, 60_000]]
    )
    codes = table[["y0", "y1"]].apply(lambda y: y.map({"no": 0, "maybe": 1, "yes": 2}))
    for c, town in enumerate([7, 9]):
        here = (table["town"] == town).to_numpy()
        for arm in ("none", "mail"):
            mask = here & (table["seg"] == arm).to_numpy()
            # both potential outcomes, in both arms, independent of each other
            joint = np.outer(*UNEVEN.shares[c]).ravel()
            assert_law((3 * codes["y0"] + codes["y1"])[mask].to_numpy(), joint)


def test_the_outcome_is_the_potential_outcome_of_the_units_arm():
    table = UNEVEN.draw(1)
    treated = table["seg"] == "mail"
    assert (table["answer"] == table["y1"].where(treated, table["y0"])).all()
    assert (table["y0"] != table["y1"]).any()


def test_treatment_is_at_random_within_a_cluster():
    treated = mixture_population(clusters=1, units=6).draw
    seen = np.mean([treated(seed)["treated"] for seed in range(2000)], axis=0)
    assert np.all(np.abs(seen - 0.5) < 5 * 0.5 / np.sqrt(2000))


def test_the_seed_decides():
    pd.testing.assert_frame_equal(UNEVEN.draw(1), UNEVEN.draw(1))
    pd.testing.assert_frame_equal(UNEVEN.draw(1), UNEVEN.draw(np.random.default_rng(1)))
    assert not UNEVEN.draw(1).equals(UNEVEN.draw(2))


@pytest.mark.parametrize(
    ("estimand", "weights"), [(ATE, [4, 8]), (ATT, [1, 6]), (ATC, [3, 2])], ids=str
)
def test_truth_weighs_clusters_by_the_units_it_is_about(estimand, weights):
    np.testing.assert_allclose(UNEVEN.effects, EFFECTS)
    truth = UNEVEN.truth(estimand())
    assert truth.dims == ()
    assert truth.name == estimand().name
    np.testing.assert_allclose(truth, np.average(EFFECTS, weights=weights))
    by_cluster = UNEVEN.truth(estimand(by="cluster"))
    assert list(by_cluster["cluster"].values) == ["7", "9"]
    np.testing.assert_allclose(by_cluster, EFFECTS)


@pytest.mark.parametrize(
    ("estimand", "arms"), [(ATE, ["none", "mail"]), (ATT, ["mail"]), (ATC, ["none"])], ids=str
)
def test_sample_truth_is_the_mean_effect_on_these_units(estimand, arms):
    table = UNEVEN.draw(4).sample(frac=1, random_state=1)  # order does not matter
    value = {"no": 0, "maybe": 1, "yes": 4}
    table["effect"] = table["y1"].map(value) - table["y0"].map(value)
    units = table[table["seg"].isin(arms)]
    np.testing.assert_allclose(UNEVEN.sample_truth(estimand(), table), units["effect"].mean())
    np.testing.assert_allclose(
        UNEVEN.sample_truth(estimand(by="cluster"), table),
        units.groupby("town", observed=True)["effect"].mean(),
    )
    # and it is near the superpopulation's: sd of an effect is below 4
    gap = UNEVEN.sample_truth(estimand(), table) - UNEVEN.truth(estimand())
    assert 0 < abs(gap) < 4 * 5 / np.sqrt(len(units))


def test_empty_and_one_armed_clusters():
    sizes = [[0, 0], [5, 0]]
    trial = Population(schema=SCHEMA, shares=UNEVEN.shares, cell_size=sizes)
    table = trial.draw(3)
    assert len(table) == 5
    np.testing.assert_allclose(trial.truth(ATE()), EFFECTS[1])
    assert np.isfinite(trial.sample_truth(ATE(), table))
    np.testing.assert_allclose(trial.sample_truth(ATE(by="cluster"), table)[0], EFFECTS[0])
    with pytest.raises(ValueError, match="no unit was assigned"):
        trial.truth(ATT())


def test_mixture_is_a_normal_cut_at_midpoints():
    trial = mixture_population()
    assert trial.cell_size.tolist() == [[584, 583], [584, 583], [583, 583]]
    values = np.array(trial.schema.outcome.levels)
    np.testing.assert_allclose(values, -4.5 + np.arange(12) * 9 / 11)
    rng = np.random.default_rng(1)
    for c, a in np.ndindex(3, 2):
        y = rng.normal(2 * (c - 1) + 0.5 * (a - 0.5), 1, 50_000)
        nearest = np.abs(y[:, None] - values).argmin(axis=1)
        assert_law(nearest, trial.shares[c, a])
    np.testing.assert_allclose(trial.truth(ATE()), 0.49817, atol=1e-5)
    np.testing.assert_allclose(mixture_population(effect=0).effects, 0, atol=1e-12)


def test_binary_rates_have_the_stated_spread():
    trial = binary_population(rate=0.3, effect=0.1, spread=0.05, heterogeneity=0.02)
    control = trial.shares[:, 0, 1]
    np.testing.assert_allclose([control.mean(), control.std()], [0.3, 0.05])
    np.testing.assert_allclose([trial.effects.mean(), trial.effects.std()], [0.1, 0.02])
    assert abs(np.corrcoef(control, trial.effects)[0, 1]) < 0.15
    assert stats.shapiro(control).pvalue > 0.9
    np.testing.assert_allclose(trial.truth(ATE()), 0.1)
    assert np.all(trial.cell_size == 15)
    np.testing.assert_allclose(binary_population(effect=0, heterogeneity=0).effects, 0, atol=1e-12)
    assert binary_population(clusters=1, units_per_cluster=3).cell_size.tolist() == [[2, 1]]


def test_a_million_units_go_through_the_simulator():
    trial = mixture_population(units=1_000_000)
    mechanism = ClusterDP.calibrated(trial.schema, epsilon=1.0)
    release = simulate_release(trial.draw(1), trial.schema, mechanism, seed=1)
    np.testing.assert_array_equal(release.cell_size, trial.cell_size)


def test_without_a_cluster_column():
    schema = Schema(arm=SCHEMA.arm, outcome=SCHEMA.outcome)
    trial = Population(schema=schema, shares=UNEVEN.shares[:1], cell_size=[[10, 20]])
    table = trial.draw(1)
    assert list(table.columns) == ["seg", "answer", "y0", "y1"]
    assert trial.sample_truth(ATE(by="cluster"), table)["cluster"].item() == "all"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shares": UNEVEN.shares[:1]}, "shares has shape"),
        ({"shares": UNEVEN.shares * 1.1}, "must be probabilities"),
        ({"shares": UNEVEN.shares - [0.3, 0, -0.3]}, "must be probabilities"),
        ({"shares": np.full((2, 2, 3), np.nan)}, "must be probabilities"),
        ({"cell_size": [[1, 2], [3, -1]]}, "whole numbers, none negative"),
        ({"cell_size": [[1.0, 2.0], [3.0, 1.0]]}, "whole numbers"),
        ({"cell_size": [1, 2]}, "whole numbers"),
    ],
)
def test_what_is_no_population(change, says):
    parts = {"schema": SCHEMA, "shares": UNEVEN.shares, "cell_size": UNEVEN.cell_size}
    with pytest.raises(ValueError, match=says):
        Population(**(parts | change))


def test_other_bad_input():
    with pytest.raises(ValueError, match=r"beyond \[0, 1\]: lower spread"):
        binary_population(rate=0.9, spread=0.1)
    scoreless = Schema(arm=SCHEMA.arm, outcome=Levels("answer", ["no", "maybe", "yes"]))
    trial = Population(schema=scoreless, shares=UNEVEN.shares[:1], cell_size=[[3, 3]])
    assert len(trial.draw(1)) == 6
    with pytest.raises(ValueError, match=r"declare them, Levels\(..., values"):
        trial.truth(ATE())
    with pytest.raises(ValueError, match="read-only"):
        UNEVEN.shares[0] = 0
