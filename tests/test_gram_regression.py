"""From a second-order release to a report: one fit that several tests look at."""

import arviz as az
import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import ATC, ATE, ATT, CATE, CATESlope, Fitter, estimate, models, report
from dpcausal_bayes.balance import balance, love_plot
from dpcausal_bayes.columns import Arm, Bounded, Categories
from dpcausal_bayes.facts import public_facts
from dpcausal_bayes.fitting import fit
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments

pytestmark = pytest.mark.slow

WORKLOAD = GramWorkload(
    Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=Bounded("y", -4, 6),
        covariates=[Bounded("x", -3, 3), Bounded("z", -3, 3), Categories("sex", ["f", "m"])],
    ),
    radius=1.2,
)
MECHANISM = GaussianMechanism.calibrated(WORKLOAD, epsilon=1.0, delta=1e-6)
EFFECT = {"f": 1.0, "m": 0.4}


def table_of(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    male = rng.random(n) < 0.4
    t = rng.random(n) < 1 / (1 + np.exp(-x - 0.5 * male))
    effect = np.where(male, EFFECT["m"], EFFECT["f"])
    y = 0.7 * x + 0.3 * male + effect * t + 0.5 * rng.normal(size=n)
    return pd.DataFrame({"t": t, "x": x, "z": z, "sex": np.where(male, "m", "f"), "y": y})


RELEASES = [simulate_moments(table_of(seed=s), WORKLOAD, MECHANISM, seed=s) for s in range(2)]
OPTIONS = {"draws": 500, "tune": 300, "chains": 2, "random_seed": 1, "progressbar": False}
ESTIMANDS = [ATE(), ATT(), ATC(), ATE(by="sex"), CATE(at={"sex": "m", "x": 1}), CATESlope("x")]


@pytest.fixture(scope="module")
def fitter():
    return Fitter(models.gram_regression(RELEASES[0]))


@pytest.fixture(scope="module")
def tree(fitter):
    return fitter.fit(RELEASES[0], **OPTIONS)


@pytest.mark.parametrize("population", ["super", "sample"])
def test_known_effects_are_recovered(tree, population):
    shown = report(estimate(tree, ESTIMANDS, population=population)).table
    assert shown.index.tolist() == [
        "ate", "att", "atc", "ate[f]", "ate[m]", "cate(sex=m, x=1)", "cate_slope(x)"
    ]  # fmt: skip
    truth = [0.76, 0.74, 0.78, 1.0, 0.4, 0.4, 0.0]
    assert np.all(np.abs(shown["mean"] - truth) < 3.5 * shown["sd"])
    assert np.all(shown["sd"] < 0.08)
    assert np.all(shown["privacy_share"] > 0.3)
    assert not shown["prior_driven"].any()
    naive = 0.76 + 0.7  # and more: confounding is not small
    assert shown["eti95_ub"]["ate"] < naive - 0.5


def test_draws_are_good(tree):
    assert int(tree["sample_stats"]["diverging"].sum()) == 0
    assert float(tree["sample_stats"]["n_steps"].mean()) < 20
    summary = az.summary(tree, var_names=["share", "mean"], round_to="none")
    assert (summary["r_hat"] < 1.02).all()
    assert dict(tree["posterior"].sizes) == {
        "chain": 2, "draw": 500, "term": 27, "arm": 2, "column": 4
    }  # fmt: skip


def test_replicated_releases_look_like_the_release(tree):
    replicated = tree["posterior_predictive"]["release"].mean(["chain", "draw"])
    far = (RELEASES[0].noisy - replicated) / RELEASES[0].noise_scale
    assert float(np.abs(far).max()) < 5
    assert tree["prior_predictive"]["release"].sizes["query"] == WORKLOAD.n_queries


def test_report_says_what_is_assumed(tree):
    said = report(estimate(tree, [ATE()], population="super")).legend
    assert "linear in the covariates, with errors of one variance" in said
    assert "Covariates are clipped: 'x' to -3 and 3, 'z' to -3 and 3; rows outside" in said
    assert "ball of radius 1.2 " in said


def test_effects_by_a_number_are_refused_with_what_there_is(tree):
    with pytest.raises(ValueError, match=r"can split by \['sex'\]"):
        estimate(tree, [ATE(by="x")], population="super")


def test_tree_holds_what_the_release_says(tree):
    constant = tree["constant_data"]
    np.testing.assert_array_equal(constant["released"], RELEASES[0].noisy)
    np.testing.assert_array_equal(constant["noise_scale"], RELEASES[0].noise_scale)
    assert read_manifest(tree)["workload"] == WORKLOAD
    facts = public_facts(RELEASES[0], models.gram_regression(RELEASES[0]))
    assert facts["query"].values.tolist() == list(WORKLOAD.queries)


def test_a_compiled_model_fits_another_release(fitter, tree):
    other = fitter.fit(RELEASES[1], **OPTIONS)
    np.testing.assert_array_equal(other["constant_data"]["released"], RELEASES[1].noisy)
    effects = [estimate(each, [ATE()], population="super") for each in (tree, other)]
    means = [float(each["estimands"]["ate"].mean()) for each in effects]
    assert means[0] != means[1]
    assert abs(means[1] - 0.76) < 0.1


def test_a_model_of_another_release_is_refused(tree):
    with pytest.raises(ValueError, match="other released values"):
        fit(models.gram_regression(RELEASES[0]), RELEASES[1], draws=10, chains=1)


def test_balance_is_that_of_the_table(tree):
    table = table_of(seed=0)
    columns = pd.DataFrame(
        {"x": table["x"].clip(-3, 3), "z": table["z"].clip(-3, 3), "sex=m": table["sex"] == "m"}
    ).astype(float)
    arms = [columns[table["t"] == bool(a)] for a in (0, 1)]
    truth = (arms[1].mean() - arms[0].mean()) / np.sqrt((arms[0].var() + arms[1].var()) / 2)
    found = balance(tree)
    assert found.index.tolist() == ["x", "z", "sex=m"]
    assert np.all(np.abs(found["mean"] - truth) < 4 * found["sd"] + 0.01)
    assert found.loc["x", "p_concern"] > 0.999
    assert found.loc["z", "p_concern"] < 0.05
    assert np.all((found["low"] < found["mean"]) & (found["mean"] < found["high"]))
    figure = love_plot(found)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()][-1] == "x"
    with pytest.raises(ValueError, match="ci_prob is 2"):
        balance(tree, ci_prob=2)


def test_naive_analysis_fails_where_the_noise_aware_one_covers():
    """Of 40 releases, whose noise is larger than the sampling error."""
    fitters, covered = {}, {True: 0, False: 0}
    for run in range(40):
        release = simulate_moments(table_of(seed=run), WORKLOAD, MECHANISM, seed=run)
        for aware in covered:
            if aware not in fitters:
                fitters[aware] = Fitter(models.gram_regression(release, noise_aware=aware))
            drawn = fitters[aware].fit(
                release, draws=500, tune=300, chains=1, random_seed=run, progressbar=False
            )
            effect = estimate(drawn, [ATE()], population="super")["estimands"]["ate"]
            low, high = np.quantile(effect, [0.025, 0.975])
            covered[aware] += low < 0.76 < high
    assert covered[True] >= 34  # of 40 at 95 %: fewer once in 1,000
    assert covered[False] <= 30
