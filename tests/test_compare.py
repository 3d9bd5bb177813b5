"""The comparison goes on after it was stopped, and its tables say what they should."""

import compare
import compare_summary
import numpy as np
import pandas as pd
import pytest
from comparators.aipw import AIPW
from comparators.noisy_histogram import NOISY_HISTOGRAM
from compare_designs import DESIGNS, SIMULATED


def runs(number=3):
    return [
        compare.Run(SIMULATED, method, 1.0, i)
        for method in (AIPW, NOISY_HISTOGRAM)
        for i in range(number)
    ]


def results(path):
    return pd.read_csv(path).drop(columns="seconds")


def test_a_comparison_that_was_killed_goes_on(tmp_path):
    whole, torn = tmp_path / "whole.csv", tmp_path / "torn.csv"
    compare.work(runs(), whole, 60, str)
    compare.work(runs()[:4], torn, 60, str)
    with torn.open("a") as file:
        file.write("simulated,noisy hist")  # killed while it wrote
    compare.work(runs(), torn, 60, str)
    pd.testing.assert_frame_equal(results(whole), results(torn))
    before = torn.read_text()
    compare.work(runs(), torn, 60, str)  # nothing is left to do
    assert torn.read_text() == before


def test_a_header_alone_that_was_torn_is_no_result(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("data,meth")
    assert compare.finished(path) == set()
    compare.work(runs(1), path, 60, str)
    assert len(results(path)) == 2


def test_no_run_is_planned_twice_and_tables_do_not_depend_on_the_method():
    planned = [run.key for run in compare.plan([SIMULATED])]
    assert len(planned) == len(set(planned))
    one, other = SIMULATED.table(3), SIMULATED.table(3)
    pd.testing.assert_frame_equal(one.rows, other.rows)


def test_time_that_is_up_ends_it(tmp_path):
    said = []
    compare.work(runs(), tmp_path / "results.csv", 0.0, said.append)
    assert said == ["0 minutes are up: 0 of 6"]


def lines(method, protects, error, half_length, *, runs=20, seed=0):
    rng = np.random.default_rng(seed)
    estimate = 1.0 + error * rng.choice([-1.0, 1.0], runs)
    return pd.DataFrame(
        {
            "data": "simulated",
            "method": method,
            "epsilon": 1.0,
            "run": range(runs),
            "protects": protects,
            "estimate": estimate,
            "low": estimate - half_length,
            "high": estimate + half_length,
            "truth": 1.0,
            "seconds": 0.1,
        }
    )


def test_the_best_protects_records_and_covers():
    rows = pd.concat(
        [
            lines("wide", "record", 0.3, 0.5),
            lines("narrow", "record", 0.1, 0.05),  # covers nothing
            lines("labels", "label", 0.01, 0.5),
            lines("AIPW, not private", "nothing", 0.01, 0.5),
        ]
    )
    facts = compare_summary.measured(compare_summary.comparable(rows))
    assert compare_summary.best(facts)["method"] == "wide"
    wide = facts.set_index("method").loc["wide"]
    assert wide["rmse"] == pytest.approx(0.3)
    assert wide["rmse_se"] == pytest.approx(0, abs=1e-12)
    assert (wide["coverage"], wide["length"]) == (1.0, pytest.approx(1.0))


def test_a_run_without_an_estimate_does_not_cover_and_is_counted():
    rows = lines("fails", "record", 0.1, 0.5)
    rows.loc[:4, ["estimate", "low", "high"]] = np.nan
    facts = compare_summary.measured(compare_summary.comparable(rows)).iloc[0]
    assert (facts["failed"], facts["coverage"], facts["runs"]) == (5, 0.75, 20)
    assert facts["rmse"] == pytest.approx(0.1)


def test_methods_are_compared_on_the_same_tables():
    many, fewer, few = (
        lines(name, "record", 0.1, 0.5, runs=n) for name, n in (("a", 20), ("b", 16), ("c", 15))
    )
    many.loc[16:, "estimate"] = 100.0  # tables that only the first was given
    facts = compare_summary.measured(compare_summary.comparable(pd.concat([many, fewer, few])))
    facts = facts.set_index("method")
    assert facts["runs"].to_dict() == {"a": 16, "b": 16, "c": 15}
    assert facts["fair"].to_dict() == {"a": True, "b": True, "c": False}
    assert facts.loc["a", "rmse"] == pytest.approx(0.1)


def test_the_parts_of_the_error_add_up():
    rng = np.random.default_rng(1)
    reference = lines("AIPW, not private", "nothing", 0.0, 0.1, runs=400)
    reference["estimate"] += 0.3 * rng.standard_normal(400)
    own = lines("dpcausal_bayes, strata", "record", 0.0, 1.0, runs=400)
    own["declared"] = reference["estimate"] + 0.2
    own["estimate"] = own["declared"] + 0.5 * rng.standard_normal(400)
    own["privacy_sd"], own["monte_carlo_sd"] = 0.4, 0.3
    (found,) = compare_summary._parts(pd.concat([reference, own]), "simulated")
    assert float(found["sampling"]) == pytest.approx(0.3, abs=0.05)
    assert (found["workload"], found["privacy"], found["Monte Carlo"]) == ("0.2", "0.4", "0.3")
    # noise of 0.5 is what 0.4 and 0.3 explain
    assert abs(float(found["calibration"])) < 0.2


def test_every_data_set_has_strata_within_its_schema_and_a_reference():
    for design in (*DESIGNS, SIMULATED):
        assert design.workload(stratified=False).n_strata() == 1
        assert design.workload(stratified=True).n_strata() > 1
        names = [method.name for method in compare.methods(design)]
        assert compare_summary.REFERENCE in names
        assert len(names) == len(set(names))
        assert ("noisy Horvitz-Thompson" in names) == (design.probability is not None)


def test_every_data_set_that_is_there_can_be_read(data_dir):
    for design in DESIGNS:
        if not design.absent():
            table = design.table(1)
            assert compare.carry_out(compare.Run(design, AIPW, 1.0, 1))["truth"] == table.truth
