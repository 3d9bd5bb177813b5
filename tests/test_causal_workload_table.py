"""The table of a paper's experiments says what its runs say, and the committed one is whole."""

import causal_workload_table as tables
import numpy as np
import pandas as pd
import pytest


def runs(errors, *, half_length=1.0, aware=True, bounds="baseline", strata="none"):
    """Return rows of the real-data study: the declared effect is 2, the causal one 1."""
    mean = 2.0 + np.asarray(errors)
    frame = pd.DataFrame({"rep": 1, "mean": mean, "declared": 2.0, "causal": 1.0})
    for name, half in (("super", 2 * half_length), ("table", half_length)):
        frame = frame.assign(**{f"{name}_low": mean - half, f"{name}_high": mean + half})
    facts = {"data": "ihdp", "bounds": bounds, "strata": strata, "aware": aware, "epsilon": 1.0}
    return frame.assign(estimand="ate", **facts)


def test_errors_are_about_the_causal_effect_and_coverage_about_both():
    rows = pd.concat([runs([0.5, -0.5, 1.5, -2.0]), runs([9.0]).assign(estimand="att")])
    row = tables.own_rows(rows).iloc[0]
    assert (row["method"], row["runs"]) == ("no strata", 4)
    assert row["rmse"] == pytest.approx(np.sqrt((1.5**2 + 0.5**2 + 2.5**2 + 1.0) / 4))
    assert row["bias"] == pytest.approx(1 - 0.125)
    assert row["coverage"] == 0.75  # the reported interval reaches 2 on either side
    assert row["declared_coverage"] == 0.5  # the table's reaches 1
    assert row["length"] == 4.0


def test_what_no_budget_takes_away_counts_a_replication_once():
    rows = runs([0.0] * 6).assign(rep=[1, 1, 1, 1, 2, 3], causal=[1.0] * 4 + [4.0, 5.0])
    row = tables.own_rows(rows).iloc[0]
    assert (row["left"], row["most_left"]) == (2.0, 3.0)


def test_the_monte_carlo_error_is_that_of_repeated_studies():
    rng = np.random.default_rng(1)
    errors = rng.normal(size=(100, 40)) - 1  # about the causal effect: standard normal
    found = [tables.own_rows(runs(one)).iloc[0] for one in errors]
    seen = np.std([row["rmse"] for row in found])
    assert np.mean([row["rmse_se"] for row in found]) == pytest.approx(seen, rel=0.3)


def test_designs_have_names_of_their_own():
    rows = pd.concat(
        [
            runs([0.0, 0.1]),
            runs([0.0, 0.1], bounds="public"),
            runs([0.0, 0.1], aware=False),
            runs([0.0, 0.1], strata="schooling"),
        ]
    )
    found = tables.own_rows(rows).set_index("method")
    names = ["no strata", "public bounds", "noise ignored"]
    names = [names[0], *(f"no strata, {name}" for name in names[1:]), "strata: schooling"]
    assert list(found.index) == names
    assert np.isnan(found.loc["no strata, noise ignored", "declared_coverage"])


def test_published_rows_are_renamed_and_others_left_out():
    facts = {"n_rep": 40.0, "rmse": 2.0, "bias": 1.0, "coverage": 1.0, "median_len": 9.0}
    measured = pd.DataFrame(
        [
            {"dataset": "acic_dgp7", "epsilon": 1.0, "method": "causal_na_mi", **facts},
            {"dataset": "acic_dgp7", "epsilon": 1.0, "method": "another", **facts},
            {"dataset": "another", "epsilon": 1.0, "method": "causal_na_mi", **facts},
        ]
    )
    found = tables.published_rows(measured)
    assert len(found) == 1
    row = found.iloc[0]
    assert (row["data"], row["method"], row["runs"]) == ("acic_rep1", "NA+MI", 40)
    assert (row["source"], row["length"]) == (tables.THERE, 9.0)


def test_the_table_stays_where_results_are_missing(tmp_path, monkeypatch):
    table = tmp_path / "table.csv"
    table.write_text("kept")
    monkeypatch.setattr(tables, "TABLE", table)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "none.csv")
    with pytest.raises(SystemExit, match=r"stays as it is: there is no none\.csv"):
        tables.main()
    assert table.read_text() == "kept"


def test_the_committed_table_has_both_sides_of_every_comparison():
    rows = pd.read_csv(tables.TABLE)
    key = ["data", "epsilon", "source", "method"]
    assert not rows.duplicated(key).any()
    assert rows[["runs", "rmse", "bias", "coverage", "length"]].notna().all(axis=None)
    assert rows["coverage"].between(0, 1).all()
    own = rows[rows["source"] == tables.HERE]
    mi = rows[rows["method"] == "NA+MI"]
    kept = own.loc[own["method"] == "no strata", ["data", "epsilon"]]
    paired = mi[mi["epsilon"] <= 5].merge(kept, on=["data", "epsilon"])
    assert len(paired) == (mi["epsilon"] <= 5).sum() > 0
