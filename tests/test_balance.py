"""Balance of strata: from masses that are known."""

import sys

import numpy as np
import pytest
import xarray as xr

from dpcausal_bayes.balance import balance
from dpcausal_bayes.workloads import CausalWorkload
from moment_examples import SCHEMA

module = sys.modules["dpcausal_bayes.balance"]  # the package has a function of that name


def tree_of(strata, factors):
    coords = {"stratum": strata, **{name: ("stratum", labels) for name, labels in factors.items()}}
    return xr.DataTree.from_dict({"constant_data": xr.Dataset(coords=coords)})


def use_masses(monkeypatch, mass, workload=None):
    """Stand in for the draws of confidential masses: (draw, arm, stratum)."""
    mass = np.asarray(mass, dtype=float)
    labels = [f"s{k}" for k in range(mass.shape[-1])]
    array = xr.DataArray(
        np.stack([mass, 0 * mass], axis=-1)[None],
        dims=("chain", "draw", "arm", "stratum", "part"),
        coords={"arm": ["control", "treated"], "stratum": labels, "part": ["mass", "outcome"]},
    )
    manifest = {"release_digest": "0", "random_seed": 1}
    if workload is not None:
        manifest["workload"] = workload
    monkeypatch.setattr(module, "read_manifest", lambda tree: manifest)
    monkeypatch.setattr(module, "confidential_moments", lambda tree, rng: array)
    return labels


def test_levels_of_crossed_strata(monkeypatch):
    masses = [[[10, 20, 30, 40], [40, 40, 10, 10]], [[25, 25, 25, 25], [25, 25, 25, 25]]]
    workload = CausalWorkload(SCHEMA, strata=["deg"])
    labels = use_masses(monkeypatch, masses, workload)
    tree = tree_of(labels, {"deg": [0, 0, 1, 1], "age": ["young", "old", "young", "old"]})
    found = balance(tree, ci_prob=0.9)
    assert found.index.tolist() == ["deg=0", "deg=1", "age=young", "age=old"]
    first = (0.8 - 0.3) / np.sqrt((0.8 * 0.2 + 0.3 * 0.7) / 2)
    assert found.loc["deg=0", "mean"] == pytest.approx(first / 2)  # the second draw is balanced
    assert found.loc["deg=1", "mean"] == pytest.approx(-first / 2)
    assert found.loc["age=young", "mean"] == pytest.approx(0.1 / np.sqrt(0.245) / 2)
    assert found.loc["deg=0", "p_concern"] == 0.5
    assert found.loc["deg=0", "high"] == pytest.approx(0.95 * first)


def test_refusals(monkeypatch):
    labels = use_masses(monkeypatch, [[[10], [40]]], CausalWorkload(SCHEMA))
    with pytest.raises(ValueError, match="has no covariates"):
        balance(tree_of(labels, {}))
    use_masses(monkeypatch, [[[10], [40]]])
    with pytest.raises(ValueError, match="label release, which holds no covariates"):
        balance(tree_of(labels, {}))
    with pytest.raises(ValueError, match="ci_prob is 1"):
        balance(tree_of(labels, {}), ci_prob=1)
