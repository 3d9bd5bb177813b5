"""The posterior of one stratum against importance sampling of a density written by hand."""

import numpy as np
import pymc as pm
import pytest
from scipy import optimize
from scipy.stats import multivariate_normal, multivariate_t, norm

from dpcausal_bayes import models
from moment_oracle import dense_moments, make_release, one_stratum_law

PRIORS = models.MomentPriors(
    propensity_sd=1.5, mean_sd=1.0, effect_sd=1.0, dispersion_centre=-2.0, dispersion_sd=1.5
)


def log_posterior(release, coefficient):
    """Of odds, baseline, effect and the two dispersions, under PRIORS."""
    prior = norm([0, 0, 0, -2, -2], [1.5, 1, 1, 1.5, 1.5]).logpdf(coefficient).sum()
    mean, covariance = dense_moments(*one_stratum_law(coefficient))
    noise = np.diag(release.noise_scale**2)
    law = multivariate_normal(release.n * mean, release.n * covariance + noise)
    return prior + law.logpdf(release.noisy)


@pytest.mark.slow
def test_posterior_of_one_stratum_is_that_of_importance_sampling():
    release = make_release({}, n=300, epsilon=0.3, seed=3)
    start = np.array([0.0, 0.0, 0.0, -2.0, -2.0])
    top = optimize.minimize(lambda c: -log_posterior(release, c), start, method="BFGS")
    proposal = multivariate_t(top.x, 1.5 * top.hess_inv, df=5)
    drawn = proposal.rvs(6000, random_state=1)
    weight = np.array([log_posterior(release, c) for c in drawn]) - proposal.logpdf(drawn)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 2000  # draws that these are worth

    model = models.stratified_moments(release, priors=PRIORS)
    tree = pm.sample(
        1000, tune=500, chains=4, model=model, random_seed=1, progressbar=False, target_accept=0.95
    )
    posterior = tree["posterior"]
    means = np.array([one_stratum_law(c)[1][:, 0] for c in drawn])
    treated = np.array([one_stratum_law(c)[0][1, 0] for c in drawn])
    for found, by_hand in [
        (posterior["mean"].sel(stratum="all").diff("arm"), means[:, 1] - means[:, 0]),
        (posterior["mean"].sel(stratum="all", arm="control"), means[:, 0]),
        (posterior["share"].sel(stratum="all", arm="treated"), treated),
        (posterior["coefficient"].sel(term="dispersion 1"), drawn[:, 3]),
        (posterior["coefficient"].sel(term="dispersion 2"), drawn[:, 4]),
    ]:
        centre = weight @ by_hand
        sd = np.sqrt(weight @ (by_hand - centre) ** 2)
        assert abs(float(found.mean()) - centre) < 0.1 * sd
        assert abs(float(found.std()) / sd - 1) < 0.08
    assert int(tree["sample_stats"]["diverging"].sum()) == 0
