"""Populations of strata: what they draw follows what they state, and the truth is the truth."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from chi_square import assert_law
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.populations.crossed import stratified_population
from dpcausal_bayes.populations.strata import StratifiedPopulation
from dpcausal_bayes.schema import Schema

SCHEMA = Schema(
    arm=Arm("seg", control="none", treated="mail"),
    outcome=Levels("answer", ["yes", "no"], values=[3, 1]),
    covariates=[Categories("town", [7, 9]), Categories("sex", ["f", "m"])],
)
SHARE = [0.1, 0.2, 0.3, 0.4]
PROPENSITY = [0.2, 0.5, 0.75, 0.6]
YES = np.array([[0.1, 0.3, 0.5, 0.2], [0.4, 0.35, 0.9, 0.1]])  # probability of the value 3
SMALL = StratifiedPopulation(
    schema=SCHEMA, n=3, share=SHARE, propensity=PROPENSITY, mean=1 + 2 * YES
)
BOUNDED = stratified_population(
    covariates={"a": 3, "b": 2}, n=200_000, confounding=1.0, effect=6.0, heterogeneity=5.0,
    low=-20.0, high=60.0, dispersion=0.3, seed=5,
)  # fmt: skip
EACH = [kind(by=by) for kind in (ATE, ATT, ATC) for by in (None, "town", "sex")]
ARMS = {"ate": ["none", "mail"], "att": ["mail"], "atc": ["none"]}


def units_of(estimand, table, arm, arms):
    return table[table[arm].isin(arms[estimand.short])]


def mean_effects(estimand, units):
    """Return the mean of the column ``effect``, of all or by a column, from pandas."""
    if estimand.by is None:
        return units["effect"].mean()
    return units.groupby(estimand.by)["effect"].mean().to_numpy()


@pytest.mark.parametrize("estimand", EACH, ids=lambda one: one.name)
def test_truth_is_the_exact_expectation(estimand):
    """Enumerate stratum, arm and both potential outcomes of a record."""
    rows = []
    for s, (town, sex) in enumerate(itertools.product([7, 9], ["f", "m"])):
        for arm, y0, y1 in itertools.product([0, 1], [0, 1], [0, 1]):
            p = SHARE[s] * (PROPENSITY[s] if arm else 1 - PROPENSITY[s])
            p *= YES[0, s] if y0 else 1 - YES[0, s]
            p *= YES[1, s] if y1 else 1 - YES[1, s]
            rows.append((town, sex, ["none", "mail"][arm], p, 2 * (y1 - y0)))
    law = pd.DataFrame(rows, columns=["town", "sex", "seg", "p", "effect"])
    assert law["p"].sum() == pytest.approx(1)
    units = units_of(estimand, law, "seg", ARMS)
    groups = [units] if estimand.by is None else [part for _, part in units.groupby(estimand.by)]
    wanted = [np.average(part["effect"], weights=part["p"]) for part in groups]
    truth = SMALL.truth(estimand)
    assert truth.name == estimand.name
    assert truth.dims == (() if estimand.by is None else (estimand.by,))
    np.testing.assert_allclose(np.atleast_1d(truth), wanted, rtol=1e-12)


@pytest.mark.parametrize("estimand", EACH, ids=lambda one: one.name)
def test_sample_truth_is_the_mean_effect_on_these_records(estimand):
    table = StratifiedPopulation(
        schema=SCHEMA, n=500, share=SHARE, propensity=PROPENSITY, mean=1 + 2 * YES
    ).draw(3)
    table = table.sample(frac=1, random_state=1)  # order does not matter
    value = {"yes": 3, "no": 1}
    table["effect"] = table["y1"].map(value) - table["y0"].map(value)
    wanted = mean_effects(estimand, units_of(estimand, table, "seg", ARMS))
    np.testing.assert_allclose(SMALL.sample_truth(estimand, table), wanted, rtol=1e-12)


@pytest.mark.parametrize("kind", [ATE, ATT, ATC], ids=lambda kind: kind.short)
@pytest.mark.parametrize("by", [None, "a", "b"])
def test_truth_against_a_huge_draw(kind, by):
    table = BOUNDED.draw(1)
    table["effect"] = table["y1"] - table["y0"]
    arms = {"ate": [0, 1], "att": [1], "atc": [0]}
    units = units_of(kind(), table, "treated", arms)
    wanted = mean_effects(kind(by=by), units)
    error = units["effect"].sem() if by is None else units.groupby(by)["effect"].sem().to_numpy()
    assert np.all(np.abs(BOUNDED.truth(kind(by=by)) - wanted) < 4.5 * error)
    np.testing.assert_allclose(BOUNDED.sample_truth(kind(by=by), table), wanted, rtol=1e-9)


def test_a_draw_follows_the_stated_law():
    table = BOUNDED.draw(2)
    assert list(table.columns) == ["treated", "y", "a", "b", "y0", "y1"]
    assert_law((2 * table["a"] + table["b"]).to_numpy(), BOUNDED.share)
    cells = table.groupby(["a", "b"])
    error = np.sqrt(BOUNDED.propensity * (1 - BOUNDED.propensity) / cells.size())
    assert np.all(np.abs(cells["treated"].mean() - BOUNDED.propensity) < 4.5 * error)
    assert table["y"].between(-20, 60).all()
    for a, name in enumerate(["y0", "y1"]):
        assert np.all(np.abs(cells[name].mean() - BOUNDED.mean[a]) < 4.5 * cells[name].sem())
        scaled = (BOUNDED.mean[a] - 20) / 40
        np.testing.assert_allclose(cells[name].var(), 1600 * 0.3 * (1 - scaled**2), rtol=0.05)
    # both potential outcomes and the arm are independent of each other, given the stratum
    within = table[["treated", "y0", "y1"]] - cells[["treated", "y0", "y1"]].transform("mean")
    off = within.corr().to_numpy()[np.triu_indices(3, 1)]
    assert np.all(np.abs(off) < 4.5 / np.sqrt(len(table)))


def test_binary_outcomes_have_the_stated_probabilities():
    table = StratifiedPopulation(
        schema=SCHEMA, n=100_000, share=SHARE, propensity=PROPENSITY, mean=1 + 2 * YES
    ).draw(4)
    cells = table.assign(yes=table["y1"] == "yes").groupby(["town", "sex"])["yes"]
    error = np.sqrt(YES[1] * (1 - YES[1]) / cells.size())
    assert np.all(np.abs(cells.mean() - YES[1]) < 4.5 * error)
    assert set(table["answer"]) == {"yes", "no"}


def test_the_outcome_is_the_potential_outcome_of_the_records_arm():
    table = BOUNDED.draw(1)
    assert (table["y"] == table["y1"].where(table["treated"] == 1, table["y0"])).all()
    assert (table["y0"] != table["y1"]).any()


def test_the_seed_decides():
    pd.testing.assert_frame_equal(SMALL.draw(1), SMALL.draw(np.random.default_rng(1)))
    assert not BOUNDED.draw(1).equals(BOUNDED.draw(2))
    one, two = (stratified_population(seed=seed) for seed in (1, 2))
    assert not np.array_equal(one.share, two.share)
    assert not np.array_equal(one.mean, two.mean)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tables_of_nearly_nothing(n):
    study = stratified_population(n=n)
    table = study.draw(1)
    assert len(table) == n
    split = study.sample_truth(ATE(by="b"), table)
    np.testing.assert_allclose(study.truth(ATE()), 0.1)
    present = table["b"].unique()
    for level in {0, 1} - set(present):  # nobody: the superpopulation's
        members = np.array(study.workload.factors()["b"]) == str(level)
        np.testing.assert_allclose(split.sel(b=str(level)), study.effects[members].mean())


def moments_of(study, x):
    """Return mean and standard deviation over the population."""
    mean = study.share @ x
    return mean, np.sqrt(study.share @ (x - mean) ** 2)


def test_a_design_is_what_it_says():
    study = stratified_population(
        covariates={"a": 5, "b": 3, "c": 2}, treated=0.3, confounding=0.7, baseline=0.4,
        spread=0.1, effect=0.2, heterogeneity=0.05, seed=3,
    )  # fmt: skip
    assert len(study.strata) == 30
    odds = special.logit(study.propensity)

    np.testing.assert_allclose(moments_of(study, odds), [special.logit(0.3), 0.7])
    np.testing.assert_allclose(moments_of(study, study.mean[0]), [0.4, 0.05])
    np.testing.assert_allclose(moments_of(study, study.effects), [0.2, 0.05])
    np.testing.assert_allclose(study.truth(ATE()), 0.2)
    # arm and baseline move together across strata, and so, less strictly, do the effects
    assert np.corrcoef(odds, study.mean[0])[0, 1] > 0.999
    together = study.share @ ((odds - special.logit(0.3)) * (study.effects - 0.2))
    np.testing.assert_allclose(together, 0.6 * 0.7 * 0.05)
    assert study.truth(ATT()) > 0.21 > 0.2 > study.truth(ATC())
    two = stratified_population(covariates={"a": 2}, confounding=1.0, heterogeneity=0.1)
    np.testing.assert_allclose(moments_of(two, two.effects), [0.1, 0.1])


def test_an_experiment_is_not_confounded():
    study = stratified_population(treated=0.25, heterogeneity=0.1)
    np.testing.assert_allclose(study.propensity, 0.25)
    np.testing.assert_allclose(study.truth(ATT()), study.truth(ATE()))
    assert stats.variation(study.mean[0]) > 0.1
    assert np.all(stratified_population().propensity == 0.5)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("covariates", [{}, {"a": 1}, {"a": 6}, {"a": 5, "b": 3, "c": 2}])
def test_any_number_of_strata(binary, covariates):
    study = stratified_population(covariates=covariates, binary=binary, n=50)
    strata = int(np.prod(list(covariates.values())))
    assert len(study.strata) == strata
    assert len(study.draw(1)) == 50
    np.testing.assert_allclose(study.truth(ATE()), 0.1)
    assert f"strata={strata}, outcome={'binary' if binary else 'bounded'}" in repr(study)


BOUNDS = Schema(arm=SCHEMA.arm, outcome=Bounded("y", 0, 10), covariates=SCHEMA.covariates)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"share": SHARE[:3]}, r"share has shape \(3,\): it must be \(4,\).*town=7, sex=f"),
        ({"share": [0.1, 0.2, 0.3, 0.5]}, r"share sums to 1\.1"),
        ({"share": [-0.1, 0.4, 0.3, 0.4]}, r"share runs from -0\.1"),
        ({"propensity": [0.2, 0.5, 1.2, 0.6]}, r"propensity runs from 0\.2 to 1\.2"),
        ({"propensity": [0.2, 0.5, np.nan, 0.6]}, "propensity runs from nan"),
        ({"mean": 2 * YES}, r"mean runs from .* between 1 and 3"),
        ({"schema": BOUNDS, "mean": 10 * (YES > 0.3)}, "strictly between 0 and 10"),
        ({"schema": BOUNDS, "dispersion": 1.0}, r"dispersion is 1\.0"),
        ({"schema": BOUNDS, "dispersion": np.nan}, "dispersion is nan"),
        ({"n": -1}, "n is -1"),
        ({"n": 2.5}, r"n is 2\.5"),
        ({"n": True}, "n is True"),
        (
            {"schema": Schema(arm=SCHEMA.arm, outcome=Bounded("y0", 0, 1))},
            "column 'y0': y0 and y1 are the names of the potential outcomes",
        ),
    ],
)
def test_what_is_no_population(change, says):
    parts = {f: getattr(SMALL, f) for f in ("schema", "n", "share", "propensity", "mean")}
    with pytest.raises(ValueError, match=says):
        StratifiedPopulation(**(parts | change))


@pytest.mark.parametrize(
    "covariate", [Binned("age", [0, 5, 9]), Categories("town", [7, 9], other="else")]
)
def test_levels_that_cannot_be_drawn(covariate):
    schema = Schema(arm=SCHEMA.arm, outcome=SCHEMA.outcome, covariates=[covariate])
    with pytest.raises(TypeError, match=f"draws levels, and covariate '{covariate.column}'"):
        StratifiedPopulation(schema=schema, n=1, share=[1], propensity=[1], mean=[[1], [1]])


def test_other_bad_input():
    with pytest.raises(ValueError, match="there is one stratum: confounding"):
        stratified_population(covariates={"a": 1}, confounding=1.0)
    with pytest.raises(ValueError, match=r"there is one stratum.*heterogeneity"):
        stratified_population(covariates={}, heterogeneity=0.1)
    with pytest.raises(ValueError, match="a binary outcome is 0 or 1"):
        stratified_population(binary=True, high=2.0)
    with pytest.raises(ValueError, match=r"treated is 1\.0"):
        stratified_population(treated=1.0)
    with pytest.raises(ValueError, match=r"mean runs from .* strictly between 0 and 1"):
        stratified_population(spread=0.9)
    with pytest.raises(ValueError, match="column 'town' of table has values"):
        SMALL.sample_truth(ATE(), SMALL.draw(1).assign(town=8))
    with pytest.raises(ValueError, match="can split by"):
        SMALL.truth(ATE(by="age"))
    with pytest.raises(ValueError, match="read-only"):
        SMALL.share[0] = 0
