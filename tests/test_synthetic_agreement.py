"""An outside estimator on synthetic tables, pooled, and the posterior itself say the same."""

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes import models
from dpcausal_bayes.combining import pool
from dpcausal_bayes.estimands import ATE, ATT, estimate
from dpcausal_bayes.fitting import fit
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.synthesis import synthesize
from dpcausal_bayes.synthetic_columns import beta_draws
from moment_trees import make_workload
from synthetic_examples import (
    DISPERSION,
    MEAN,
    SHARE,
    STRATA,
    codes,
    gram_release,
    gram_tree,
    maxent_tree,
    stratified_tree,
)


@pytest.fixture(scope="module")
def second_order():
    release = gram_release(n=4_000, epsilon=2.0)
    return gram_tree(release), release


def regression(table, workload):
    """The ATE by least squares in each arm, with its variance, the covariates' included."""
    covariates = pd.get_dummies(table[list(workload.covariates)], columns=["sex"], dtype=float)
    town = np.digitize(table["town"], [1, 2, 4])
    x = np.column_stack([covariates[["age", "wage", "sex_m"]]] + [town == k for k in (1, 2, 3)])
    x, y = x - x.mean(0), table["y"].to_numpy()
    effect, variance, slopes = 0.0, 0.0, []
    for sign, arm in ((-1, "no"), (1, "yes")):
        own = (table["t"] == arm).to_numpy()
        design = np.column_stack([np.ones(own.sum()), x[own]])
        inverse = np.linalg.inv(design.T @ design)
        beta = inverse @ design.T @ y[own]
        residual = y[own] - design @ beta
        effect += sign * beta[0]
        variance += inverse[0, 0] * (residual @ residual) / (len(residual) - len(beta))
        slopes.append(beta[1:])
    gap = slopes[1] - slopes[0]
    return effect, variance + gap @ np.cov(x.T) @ gap / len(table)


def standardised(arm, stratum, y, strata):
    """The ATE by the strata's differences in means, with its variance."""
    size, total, square = (
        np.bincount(strata * arm + stratum, weights=y**k, minlength=2 * strata).reshape(2, -1)
        for k in range(3)
    )
    mean = total / size
    variance = (square / size - mean**2) / (size - 1)
    effects, shares = mean[1] - mean[0], size.sum(0) / len(y)
    effect = shares @ effects
    spread = shares @ (effects - effect) ** 2 / len(y)
    return effect, shares**2 @ variance.sum(0) + spread


def strata_contrast(table, workload):
    """The same of a table of `stratified_tree`."""
    arm, stratum = codes(table)
    return standardised(arm.to_numpy(), stratum.to_numpy(), table["y"].to_numpy(), STRATA)


def agree(tree, release, estimator):
    """Compare the posterior's own ATE with the pooled one, in Monte Carlo errors."""
    found = [estimator(t, release.workload)
             for t in synthesize(tree, release, tables=200, progressbar=False)]  # fmt: skip
    pooled = pool(*np.array(found).T)
    own = estimate(tree, [ATE()], population="super")["estimands"]["ate"].values.ravel()
    of_means = np.sqrt(pooled.between / 200 + own.var() / own.size)
    assert abs(pooled.estimate - own.mean()) < 4 * of_means
    of_variances = np.sqrt(2 * pooled.between**2 / 199 + 2 * own.var() ** 2 / own.size)
    assert abs(pooled.variance - own.var()) < 4 * of_variances
    assert pooled.within < 0.7 * pooled.between  # so that it matters that it is taken off
    return pooled


def test_pooled_and_own_effects_agree_for_strata():
    tree, release = stratified_tree(n=2_000, spread=0.05, draws=500)
    agree(tree, release, strata_contrast)


def test_pooled_and_own_effects_agree_for_second_moments(second_order):
    tree, release = second_order
    pooled = agree(tree, release, regression)
    low, high = pooled.interval()
    assert low < 2 < high


def crossed_contrast(table, workload):
    """The ATE by differences in means in all crossed strata, with its variance."""
    stratum = 3 * (table["sex"] == "m") + table["town"].map({"a": 0, "b": 1, "c": 2})
    return standardised(table["t"].to_numpy(), stratum.to_numpy(), table["y"].to_numpy(), 6)


def test_pooled_and_own_effects_agree_for_maximum_entropy():
    tree, release, _ = maxent_tree()
    agree(tree, release, crossed_contrast)


@pytest.mark.slow
def test_pooled_and_own_effects_agree_after_sampling():
    release = gram_release(n=10_000)
    options = {"draws": 500, "tune": 400, "chains": 4, "random_seed": 1, "progressbar": False}
    tree = fit(models.gram_regression(release), release, **options)
    agree(tree, release, regression)

    rng = np.random.default_rng(1)
    cell = rng.choice(2 * STRATA, size=5_000, p=SHARE.ravel())
    arm, stratum = np.divmod(cell, STRATA)
    scaled = beta_draws(MEAN[arm, stratum], DISPERSION[arm], rng)
    table = pd.DataFrame(
        {
            "t": arm,
            "sex": np.where(stratum >= 2, "m", "f"),
            "age": np.where(stratum % 2, 60, 20),
            "y": 5 + 5 * scaled,
        }
    )
    workload = make_workload()
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    release = simulate_moments(table, workload, mechanism, seed=1)
    tree = fit(models.stratified_moments(release), release, **options)
    agree(tree, release, strata_contrast)


def test_one_table_alone_claims_too_much(second_order):
    tree, release = second_order
    _, variance = regression(synthesize(tree, release, tables=1)[0], release.workload)
    own = estimate(tree, [ATE(), ATT()], population="super")["estimands"]["ate"]
    assert variance < 0.3 * float(own.var())
