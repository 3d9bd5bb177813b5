"""The README's examples run as printed, and its map of modules is complete."""

import re

import arviz as az
import numpy as np
import pandas as pd
import pytest

from layout import ROOT, module_files

TEXT = (ROOT / "README.md").read_text("utf-8")


def small_trial(units: int = 240) -> pd.DataFrame:
    """Return a table with the columns that the example declares."""
    rng = np.random.default_rng(1)
    treated = rng.permutation(units) % 2
    return pd.DataFrame(
        {
            "any": treated,
            "got": (rng.random(units) < np.where(treated == 1, 0.8, 0.4)).astype(int),
            "district": np.array(["north", "east", "south"])[np.arange(units) % 3],
        }
    )


def small_study(records: int = 445) -> pd.DataFrame:
    """Return a table with the columns that the second example declares."""
    rng = np.random.default_rng(2)
    treated = rng.integers(0, 2, records)
    return pd.DataFrame(
        {
            "treat": treated,
            "re78": rng.gamma(1.0, 5_000 + 2_000 * treated),
            "nodegree": rng.integers(0, 2, records),
            "age": rng.integers(17, 57, records),
        }
    )


# The release's noise is real, so no seed keeps ArviZ from a rare warning.
@pytest.mark.filterwarnings("default")
def test_examples_run_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 4
    labels, moments, tools, pooling = (compile(block, "README.md", "exec") for block in blocks)
    names = {"table": small_trial(), "people": small_study()}
    exec(labels, names)
    assert "The average treatment effect in the population" in capsys.readouterr().out
    assert (tmp_path / "trial.json").is_file()
    assert list(az.summary(names["tree"], group="estimands").index) == [
        "ate",
        "att",
        *(f"ate_by_cluster[{district}]" for district in ("north", "east", "south")),
    ]
    exec(moments, names)
    printed = capsys.readouterr().out
    for part in ("Expected width", "both arms", "clipped to 0 and 40000"):
        assert part in printed
    assert (tmp_path / "training.json").is_file()
    exec(tools, names)
    assert list(az.summary(names["tree"], group="estimands").index) == [
        "ate",
        "att",
        *(f"ate_by_age[{band}]" for band in ("[17, 25)", "[25, 35)", "[35, 56]")),
    ]
    exec(pooling, names)
    assert "fully_synthetic, 200 tables" in capsys.readouterr().out


def test_every_module_is_on_the_map():
    listed = re.findall(r"^\| `(dpcausal_bayes[\w.]*)` \|", TEXT, re.M)
    assert sorted(listed) == sorted(module_files())


def test_named_files_exist():
    for name in re.findall(r"`(case_studies/\S+?)`", TEXT):
        assert (ROOT / name).is_file(), name
