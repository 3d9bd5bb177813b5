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


# The release's noise is real, so no seed keeps ArviZ from a rare warning.
@pytest.mark.filterwarnings("default")
def test_examples_run_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 2
    names = {"table": small_trial()}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "The average treatment effect in the population" in printed
    assert (tmp_path / "trial.json").is_file()
    assert list(az.summary(names["tree"], group="estimands").index) == [
        "ate",
        "att",
        *(f"ate_by_cluster[{district}]" for district in ("north", "east", "south")),
    ]


def test_every_module_is_on_the_map():
    listed = re.findall(r"^\| `(dpcausal_bayes[\w.]*)` \|", TEXT, re.M)
    assert sorted(listed) == sorted(module_files())


def test_named_files_exist():
    for name in re.findall(r"`(case_studies/\S+?)`", TEXT):
        assert (ROOT / name).is_file(), name
