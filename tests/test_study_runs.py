"""A study of releases goes on after it was stopped, and its rows say what the posterior says."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import real_data_study
import study_runs
import xarray as xr
from real_data_sets import DATA_SETS, load, missing
from study_tables import covered, markdown, number, rms, rms_error


class Run(NamedTuple):
    data: str
    rep: int
    epsilon: float
    seed: int


RUNS = [Run("lalonde", 1, epsilon, seed) for epsilon in (0.5, 1.0) for seed in range(3)]


@pytest.fixture
def there(monkeypatch):
    monkeypatch.setattr(study_runs, "missing", lambda data: data == "ihdp")


def carried_out(made):
    def carry_out(run):
        made.append(run)
        return [run._asdict() | {"estimand": name, "mean": 1.5} for name in ("ate", "att")]

    return carry_out


@pytest.mark.parametrize(
    "torn",
    [
        "lalonde,1,1.0,0,ate,1.5\n",  # one of two estimands
        "lalonde,1,1.0,0,ate,1.5\nlalonde,1,1.0,0,at",
        "lalo",
    ],
)
def test_a_study_that_was_killed_goes_on(tmp_path, there, torn):
    whole, path = tmp_path / "whole.csv", tmp_path / "torn.csv"
    study_runs.work(RUNS, whole, carried_out([]))
    study_runs.work(RUNS[:3], path, carried_out([]))
    with path.open("a") as file:
        file.write(torn)
    made = []
    study_runs.work(RUNS, path, carried_out(made))
    assert made == RUNS[3:]
    assert path.read_text() == whole.read_text()
    assert study_runs.finished(path, Run) == set(RUNS)


def test_what_two_processes_made_is_kept_and_counts_once(tmp_path, there):
    path = tmp_path / "results.csv"
    study_runs.work(RUNS, path, carried_out([]))
    once = path.read_text()
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in once.split("\n")[1:5]))
    both = path.read_text()
    assert study_runs.finished(path, Run) == set(RUNS)
    assert path.read_text() == both
    assert len(study_runs.results(path, Run)) == 2 * len(RUNS)


def test_a_file_of_nothing_but_a_torn_head_is_no_run(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("data,re")
    assert study_runs.finished(path, Run) == set()
    assert not path.exists()


def test_a_data_set_that_is_not_there_is_skipped_and_named(tmp_path, there, capsys):
    made = []
    study_runs.work([*RUNS, RUNS[0]._replace(data="ihdp")], tmp_path / "a.csv", carried_out(made))
    assert made == RUNS
    assert "ihdp: skipped" in capsys.readouterr().out


def test_no_two_releases_have_one_seed():
    seeds = [
        study_runs.seed_of(data, epsilon, number)
        for data in DATA_SETS
        for epsilon in study_runs.EPSILONS
        for number in (0, 39)
    ]
    assert len(set(seeds)) == len(seeds)
    assert study_runs.seed_of("acic", 1.0, 7) == 201_007  # as in the files that are there


def test_numbers_of_a_posterior():
    rng = np.random.default_rng(1)
    table = xr.DataArray(rng.normal(2.0, 3.0, (1, 20_000)), dims=("chain", "draw"))
    own = table + 4.0 * rng.standard_normal(table.shape)
    found = study_runs._numbers({"super": own, "sample": own, "table": table})
    assert found["mean"] == pytest.approx(2.0, abs=0.1)
    assert found["sd"] == pytest.approx(5.0, rel=0.02)
    assert found["privacy_sd"] == pytest.approx(3.0, rel=0.03)
    assert found["table_high"] - found["table_low"] == pytest.approx(2 * 1.96 * 3, rel=0.03)
    assert found["sample_low"] == found["super_low"]


def test_the_real_data_study_plans_no_run_twice():
    planned = list(real_data_study.plan())
    assert len(planned) == len(set(planned)) == 2080


def test_what_strata_say_of_a_clipped_table(data_dir):
    if missing("lalonde"):
        pytest.skip("no LaLonde data")
    design = real_data_study.design_of("lalonde", 1, "baseline", "none")
    assert design.unclipped["ate"] == pytest.approx(1794.34, abs=0.1)
    outcome = load("lalonde", 1).table["outcome"]
    assert design.half == pytest.approx(5 * outcome.std())
    cut = outcome.clip(upper=outcome.mean() + design.half)
    arms = cut.groupby(load("lalonde", 1).table["treat"]).mean()
    assert design.declared["ate"] == pytest.approx(arms[1] - arms[0], abs=0.1)


def test_survey_controls_beside_the_trials_treated(data_dir):
    if missing("lalonde_cps"):
        pytest.skip("no LaLonde data")
    table, truth = load("lalonde_cps", 1)
    assert table["treat"].value_counts().to_dict() == {0: 15_992, 1: 185}
    assert np.isnan(truth["ate"])  # of the survey's men nobody knows
    assert truth["att"] == pytest.approx(1794.34, abs=0.01)
    assert not table.isna().any().any()


def test_tables_of_studies():
    error = pd.Series([3.0, -4.0])
    assert rms(error) == pytest.approx(np.sqrt(12.5))
    assert rms_error(error) == pytest.approx(np.std([9, 16], ddof=1) / 2 / rms(error) / np.sqrt(2))
    rows = pd.DataFrame({"super_low": [0.0, 2.0], "super_high": [1.0, 3.0], "truth": 0.5})
    assert covered(rows, "super", "truth") == 0.5
    assert [number(x) for x in (12_345.6, 0.01234, np.nan)] == ["12,346", "0.0123", ""]
    assert markdown([{"a": "1", "b": "2"}]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
