"""Selecting releases: what they measure, what they cost, what they refuse, what they find."""

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpcausal_bayes import custodian
from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.custodian import Ledger, LedgerError, select_moments
from dpcausal_bayes.custodian.schedule import schedule_for
from dpcausal_bayes.custodian.select import carry_out
from dpcausal_bayes.custodian.steps import Answer
from dpcausal_bayes.direct.moments import plug_in
from dpcausal_bayes.gaussian_mechanism import LATTICE
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.releases import load_release
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.selections import Choice, Measured, Selection
from dpcausal_bayes.simulate import SeededNoise

COVARIATES = [Categories("site", [0, 1]), Categories("day", [0, 1, 2]), Categories("sex", [0, 1])]
ARM = Arm("treat", control=0, treated=1)
SCHEMA = Schema(arm=ARM, outcome=Bounded("y", 0, 10), covariates=COVARIATES)
BINARY = Schema(arm=ARM, outcome=Levels("y", ["no", "yes"], values=[0, 1]), covariates=COVARIATES)
CANDIDATES = ["site", "day", "sex", ["site", "day"]]
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def study(n=8_000, seed=1, confounded=True, second=0.0, binary=False):
    """Return a table whose site decides on treatment and outcome, as the sex does a little."""
    rng = np.random.default_rng(seed)
    site, day, sex = (rng.integers(0, k, n) for k in (2, 3, 2))
    pull = 0.5 * (site - 0.5) * confounded + second * (sex - 0.5)
    treat = (rng.random(n) < 0.4 + pull).astype(int)
    y = 4 + 2 * (pull + 0.1 * treat) + 0.5 * rng.normal(size=n)
    if binary:
        y = np.where(y > 4, "yes", "no")
    return pd.DataFrame({"site": site, "day": day, "sex": sex, "treat": treat, "y": y})


TABLE = study()


class Stub:
    """No noise, and the choices it is told: it notes what is asked of it."""

    name = "operating system"

    def __init__(self, *places):
        self.places, self.laws, self.chosen = list(places), [], []

    def integers(self, law, shape):
        self.laws.append(law)
        return np.zeros(shape, dtype=np.int64)

    def choose(self, scores, scale):
        self.chosen.append((scores, scale))
        return self.places.pop(0)


def stubbed(*places, table=TABLE, schema=SCHEMA, rounds=1, ledger=None):
    source = Stub(*places)
    schedule = schedule_for(schema, CANDIDATES, 1.0, None, 1e-6, rounds)
    return carry_out(table, schedule, ledger, source, non_private=False), source


def simulated(table, schema, candidates, seed, epsilon=1.0):
    schedule = schedule_for(schema, candidates, epsilon, None, 1e-6, 1)
    return carry_out(table, schedule, None, SeededNoise(seed), non_private=True)


@pytest.mark.parametrize("schema", [SCHEMA, BINARY], ids=["bounded", "binary"])
def test_a_chosen_group_and_the_totals_are_measured_with_the_noise_that_is_stated(schema):
    table = study(binary=schema is BINARY)
    ledger = Ledger(**BUDGET)
    release, source = stubbed(3, table=table, schema=schema, ledger=ledger)
    assert release.workload.groups == (("site", "day"), ())
    np.testing.assert_array_equal(release.values, table_moments(table, release.workload))
    scales = [law.scale / LATTICE for law in source.laws]  # totals, then the group
    cells, squares = release.workload.split(release.noise_scale)
    np.testing.assert_allclose(cells[0], scales[1], rtol=1e-12)
    np.testing.assert_allclose(cells[1], scales[0], rtol=1e-12)
    assert (squares is None) == (schema is BINARY)
    # each part costs half its own squared sensitivity over its noise, and all parts the mechanism's
    reach = (math.sqrt(2), math.sqrt(2)) if schema is BINARY else (math.sqrt(4.5), 2.0)
    costs = [(d / scale) ** 2 / 2 for d, scale in zip(reach, scales, strict=True)]
    assert sum(costs) == pytest.approx(release.mechanism.rho, rel=1e-4)
    measured = [step.rho for step in release.selection.steps if isinstance(step, Measured)]
    np.testing.assert_allclose(measured, costs, rtol=1e-4)


def test_the_loss_is_that_of_all_steps_and_the_ledger_proves_it(tmp_path):
    ledger = Ledger(**BUDGET)
    release, _ = stubbed(0, ledger=ledger)
    rho = math.fsum(step.rho for step in release.selection.steps)
    assert release.loss.rho == pytest.approx(rho)
    assert release.loss.epsilon == pytest.approx(1.0, abs=1e-6)
    assert release.loss.epsilon <= 1 + 1e-12
    assert release.loss.rho > release.mechanism.rho
    assert [entry.what for entry in ledger.entries] == [
        "moments of 'y', arm totals measured",
        "moments of 'y', choice among 4 groups",
        "moments of 'y', site measured",
    ]
    assert [entry.loss.rho for entry in ledger.entries] == [s.rho for s in release.selection.steps]
    assert ledger.spent == pytest.approx((1.0, 1e-6), abs=1e-6)
    with pytest.raises(LedgerError):
        ledger.charge("more", ledger.entries[0].loss)
    release.save(tmp_path / "release.json")
    assert load_release(tmp_path / "release.json") == release
    assert "selection" in json.loads((tmp_path / "release.json").read_text())["release"]


def test_to_stop_spends_the_rest_on_the_totals():
    release, source = stubbed(4)
    assert release.workload.groups == ((),)
    assert release.selection.steps[1].chosen is None
    precision = sum((law.scale / LATTICE) ** -2 for law in source.laws)
    assert release.mechanism.scale == pytest.approx(precision**-0.5)
    np.testing.assert_array_equal(release.values, table_moments(TABLE, release.workload))
    assert release.loss.epsilon == pytest.approx(1.0, abs=1e-6)
    # what a choice costs, a tenth of the budget, is what the totals lack
    assert release.mechanism.rho == pytest.approx(0.9 * release.loss.rho)


def test_two_measurements_are_pooled_by_their_precisions():
    rng = np.random.default_rng(2)
    draws = [np.rint(rng.normal(0, s, 200_000)).astype(np.int64) for s in (3e6, 4e6)]
    pooled = Answer(draws[0], 3.0).pooled(Answer(draws[1], 4.0))
    assert pooled.scale == pytest.approx(2.4)
    assert pooled.values.std() == pytest.approx(2.4e6, rel=0.01)


def test_later_rounds_ask_what_is_left_to_gain():
    table = study(60_000, second=0.4)
    release, source = stubbed(0, 1, table=table, rounds=2)
    assert release.workload.groups == (("sex",), ("site",), ())
    assert release.selection.steps[3].candidates == (("day",), ("sex",), ("site", "day"))
    (first, _), (second, _) = source.chosen
    site, day, sex, both = first[:4]
    assert max(site, sex, both) > 0 > day
    assert second[1] > 0  # the sex, whose confounding is left
    # what the site explains is no gain any more
    assert second[0] < 0
    assert second[2] < 0


def test_candidates_that_cannot_pay_cost_nothing():
    release, source = stubbed(table=study(60, seed=3))
    assert source.chosen == []
    assert [type(step) for step in release.selection.steps] == [Measured, Measured]
    assert release.mechanism.rho == pytest.approx(release.loss.rho)
    assert release.loss.epsilon == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("binary", [False, True])
def test_it_finds_the_confounder_and_stops_where_there_is_none(binary):
    schema = BINARY if binary else SCHEMA
    found = {
        confounded: [
            simulated(
                study(30_000, seed, confounded, binary=binary), schema, CANDIDATES[:3], seed
            ).selection.steps[1].chosen
            for seed in range(8)
        ]
        for confounded in (True, False)
    }  # fmt: skip
    assert found[True] == [("site",)] * 8
    assert found[False].count(None) >= 6


def test_models_and_direct_estimates_take_it():
    release = simulated(TABLE, SCHEMA, ["site"], seed=1, epsilon=5.0)
    assert release.workload.groups == (("site",), ())
    naive = TABLE.groupby("treat")["y"].mean().diff().iloc[1]
    found = plug_in(release)
    assert abs(found.estimate - 0.2) < 3 * found.standard_error
    assert naive > 0.2 + 5 * found.standard_error


def test_every_engine_gives_the_same_release():
    found = [stubbed(3, table=table)[0] for table in (TABLE, pl.from_pandas(TABLE).lazy())]
    assert found[0] == found[1]


def test_only_noisy_sums_and_choices_depend_on_the_table(tmp_path):
    texts = []
    for seed in (1, 2):
        release, _ = stubbed(0, table=study(seed=seed))
        release.save(tmp_path / "one.json")
        saved = json.loads((tmp_path / "one.json").read_text())["release"]
        assert saved.pop("values") is not None
        texts.append(saved)
    assert texts[0] == texts[1]


REFUSED = [
    ({"candidates": "site"}, TypeError, "candidates is a str"),
    ({"candidates": []}, ValueError, "candidates is empty"),
    ({"candidates": ["site", []]}, ValueError, "empty group"),
    ({"candidates": ["age"]}, ValueError, "no covariate of the schema"),
    ({"candidates": ["site", ["site"]]}, ValueError, "of an earlier group"),
    ({"rounds": 0}, ValueError, "rounds is 0: .* from 1 to 4"),
    ({"rounds": 5}, ValueError, "rounds is 5"),
    ({"rounds": True}, ValueError, "rounds is True"),
    ({"epsilon": None}, TypeError, "epsilon or rho"),
    ({"rho": 0.1}, TypeError, "one of the two"),
    ({"epsilon": -1.0}, ValueError, "epsilon is -1"),
    ({"epsilon": None, "rho": 0.0}, ValueError, "rho is 0"),
    ({"epsilon": 1e-9}, ValueError, "64-bit"),
    ({"delta": 0.0}, ValueError, "delta is 0"),
    ({"table": TABLE.drop(columns="sex")}, ValueError, "sex"),
    ({"table": TABLE.assign(sex=7)}, ValueError, "'sex' has a value that is not among"),
    ({"table": TABLE.assign(y=np.nan)}, ValueError, "missing"),
    ({"epsilon": 1.1}, LedgerError, "is refused"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "says"), REFUSED)
def test_refusals_charge_nothing(change, kind, says):
    ledger = Ledger(**BUDGET)
    given = {"table": TABLE, "schema": SCHEMA, "candidates": CANDIDATES, **BUDGET, **change}
    with pytest.raises(kind, match=says):
        select_moments(**given, ledger=ledger)
    assert ledger.entries == ()


def test_each_step_is_charged_before_it_draws():
    ledger = Ledger(epsilon=0.8, delta=1e-6)  # enough for some steps, had it not been checked
    source = Stub(0)
    schedule = schedule_for(SCHEMA, CANDIDATES, 1.0, None, 1e-6, 1)
    with pytest.raises(LedgerError, match=r"site measured. is refused"):
        carry_out(TABLE, schedule, ledger, source, non_private=False)
    assert len(ledger.entries) == 2
    assert (len(source.laws), len(source.chosen)) == (1, 1)


def test_the_ledger_must_be_one():
    with pytest.raises(TypeError, match="ledger is a dict"):
        custodian.select_moments(TABLE, SCHEMA, CANDIDATES, **BUDGET, ledger={})


def test_a_table_that_changes_between_steps_is_refused(monkeypatch):
    from dpcausal_bayes.custodian import steps

    real, calls = steps.exact_moments, []

    def shrinking(table, workload):
        calls.append(None)
        return real(table[: -len(calls)], workload)

    monkeypatch.setattr(steps, "exact_moments", shrinking)
    with pytest.raises(ValueError, match="another number of rows"):
        stubbed(0)


def test_a_release_must_agree_with_its_selection():
    release, _ = stubbed(0)
    steps = release.selection.steps
    fields = {name: getattr(release, name) for name in release.__struct_fields__}
    for changed, says in (
        (steps[:2], "measured"),
        ((*steps, steps[-1]), "spent .* on measurements"),
        ((steps[0], steps[2]), "loss states rho"),
    ):
        with pytest.raises(ValueError, match=says):
            type(release)(**fields | {"selection": Selection(steps=changed)})
    with pytest.raises(ValueError, match="one of the candidates"):
        Choice(candidates=(("a",),), chosen=("b",), epsilon=1.0)
    with pytest.raises(ValueError, match=r"Measured.rho is 0"):
        Measured(group=(), rho=0.0)
