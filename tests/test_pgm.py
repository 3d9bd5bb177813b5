"""Private-PGM beside what is known: the released counts, precision weights, the posterior."""

import sys

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import models
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.fitting import fit
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.maxent_potential import tree_form
from dpcausal_bayes.models.maxent_laws import maxent_law
from dpcausal_bayes.pgm import GraphicalModel, _check_result, private_pgm
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload
from moment_examples import WORKLOADS, make
from synthetic_examples import gram_release

SCHEMA = Schema(
    arm=Arm("t", control="no", treated="yes"),
    outcome=Levels("won", [0, 1], values=[2, 5]),
    covariates=[Categories("sex", ["f", "m"]), Categories("town", ["a", "b", "c"])],
)
WORKLOAD = CausalWorkload(SCHEMA, groups=["sex", "town"], group_weights=[1, 0.4])


def release_of(n=20_000, epsilon=1.0, workload=WORKLOAD):
    rng = np.random.default_rng(1)
    town = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    male = rng.random(n) < 0.4 + 0.1 * town
    treated = rng.random(n) < 0.3 + 0.1 * town + 0.2 * male
    won = rng.random(n) < 0.2 + 0.2 * treated + 0.1 * town + 0.1 * male
    table = pd.DataFrame(
        {
            "t": np.where(treated, "yes", "no"),
            "sex": np.where(male, "m", "f"),
            "town": np.array(["a", "b", "c"])[town],
            "won": won.astype(int),
        }
    )
    mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=1e-6)
    return simulate_moments(table, workload, mechanism, seed=2)


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("mbi", reason="the extra pgm is not installed", exc_type=ImportError)
    return private_pgm(release_of())


def test_shared_totals_are_weighted_by_precision(model):
    """Arm and outcome are measured by both groups: least squares, with the total known."""
    release = release_of()
    totals = np.array([release.cells(g).sum(1) for g in range(2)])
    precision = np.array([1**2 / 2, 0.4**2 / 3])  # of a sum over 2, and over 3, noisy counts
    mean = np.tensordot(precision / precision.sum(), totals, axes=1)
    expected = mean - (mean.sum() - release.n) / 4
    for share in model.shares:
        np.testing.assert_allclose(share.sum(1) * release.n, expected, atol=0.02)


def test_groups_agree_on_what_they_share(model):
    first, second = (share.sum(1) for share in model.shares)
    np.testing.assert_allclose(first, second, atol=1e-9)
    assert [share.shape for share in model.shares] == [(2, 2, 2), (2, 3, 2)]
    assert model.shares[0].sum() == pytest.approx(1)


def test_rows_follow_the_model(model):
    rows = 200_000
    table = model.draw(rows, random_seed=1)
    assert table.columns.tolist() == ["t", "sex", "town", "won"]
    for share, name, levels in zip(model.shares, ("sex", "town"), ("fm", "abc"), strict=True):
        found = table.groupby(["t", name, "won"]).size() / rows
        for (t, s, y), expected in np.ndenumerate(share):
            place = ("yes" if t else "no", levels[s], 5.0 if y else 2.0)
            assert abs(found[place] - expected) < 5 * np.sqrt(expected / rows)
    assert len(model.draw(random_seed=1)) == 20_000


def test_the_callers_precision_stays(model):
    import jax

    before = jax.config.jax_enable_x64
    again = private_pgm(release_of())
    assert jax.config.jax_enable_x64 == before
    np.testing.assert_array_equal(again.shares[0], model.shares[0])
    assert again.shares[0].dtype == float


@pytest.mark.slow
def test_it_agrees_with_the_posterior_where_noise_is_small():
    pytest.importorskip("mbi", reason="the extra pgm is not installed", exc_type=ImportError)
    workload = CausalWorkload(SCHEMA, groups=["sex", "town"])
    release = release_of(n=100_000, epsilon=30.0, workload=workload)
    found = private_pgm(release)
    tree = fit(
        models.maxent_moments(release),
        release,
        draws=500,
        chains=2,
        random_seed=1,
        progressbar=False,
    )
    c = tree["posterior"]["coefficient"].transpose("chain", "draw", "term").values
    law = maxent_law(tree_form(tree), c.reshape(-1, c.shape[-1]))
    for g, share in enumerate(found.shares):
        # (draw, arm, level, outcome)
        drawn = law.cell[:, :, None] * law.level[:, :, g, : share.shape[1]]
        gap = np.abs(drawn.mean(0) - share)
        assert np.all(gap < 4 * drawn.std(0) / np.sqrt(200) + 1e-4)


def test_results_that_are_no_law_are_refused():
    good = [np.full((2, 1, 2), 25.0)]
    _check_result([good, good], [1.0], 100.0)
    for bad in (np.nan, -1.0, 24.0):
        worse = [np.where(np.arange(4).reshape(2, 1, 2) == 0, bad, 25.0)]
        with pytest.raises(RuntimeError, match="no law of 100 records"):
            _check_result([good, worse], [1.0], 100.0)
    moved = [good[0] + np.array([0.2, -0.2])]
    with pytest.raises(RuntimeError, match=r"by 0\.2 standard deviations"):
        _check_result([good, moved], [1.0], 100.0)


def test_refusals(monkeypatch):
    with pytest.raises(TypeError, match="release is a str"):
        private_pgm("release")
    for other in (make(WORKLOADS["joint"]), gram_release("binary", n=500)):
        with pytest.raises(ValueError, match="has no counts by outcome"):
            private_pgm(other)
    twice = CausalWorkload(SCHEMA, groups=["sex", ["sex", "town"]])
    with pytest.raises(ValueError, match="several groups with the covariate 'sex'"):
        private_pgm(release_of(n=500, workload=twice))
    with pytest.raises(ValueError, match="iterations is 5"):
        private_pgm(release_of(n=500), iterations=5)
    with pytest.raises(ValueError, match="rows is 0"):
        GraphicalModel(WORKLOAD, 10, (np.full((2, 2, 2), 0.125),)).draw(0, random_seed=1)
    monkeypatch.setitem(sys.modules, "mbi", None)
    with pytest.raises(ImportError, match=r"dpcausal_bayes\[pgm\]"):
        private_pgm(release_of(n=500))
