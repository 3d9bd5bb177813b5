"""The stratified model's posterior in no time: normal around its mode, in NumPy.

The model is the one that plans assume (`dpcausal_bayes.custodian.beliefs`), a restatement of the
analyst's default one; the covariance of the queries is held at the mode.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.custodian.beliefs import Beliefs, covariance, moments
from dpcausal_bayes.custodian.simulated import posterior_mode
from dpcausal_bayes.models.measurement import pooling
from dpcausal_bayes.moment_releases import MomentRelease

__all__ = ["quick_effects"]

DRAWS = 2_000
PASSES = 2  # the queries' covariance is taken at the mode that the pass before found


def quick_effects(release: MomentRelease, seed: int) -> tuple[NDArray[np.float64], int]:
    """Return draws of the ATE on the outcome's scaled unit, by the strata of the first group.

    The second number, of divergences, is 0: nothing is sampled step by step.
    """
    workload, n = release.causal_workload, release.n
    pooled = pooling(release, 0).measurement(release.noisy)
    levels = tuple(len(covariate.labels) for covariate in workload.covariates(0))
    beliefs = Beliefs(levels, workload.binary)
    z, root = np.zeros(beliefs.size), np.zeros((beliefs.size, 0))
    for _ in range(PASSES):
        law = beliefs.law(z)
        spread = n * covariance(law, binary=workload.binary) + pooled.noise
        unit = np.linalg.inv(np.linalg.cholesky(spread))
        z, root = posterior_mode(
            lambda z, unit=unit: n * moments(beliefs.law(z), binary=workload.binary) @ unit.T,
            unit @ pooled.value,
            z,
        )
    noise = np.random.default_rng(seed).normal(size=(DRAWS, root.shape[1]))
    drawn = beliefs.law(z + noise @ root.T)
    share = drawn.share.sum(axis=-2)
    effects = (share * (drawn.mean[..., 1, :] - drawn.mean[..., 0, :])).sum(axis=-1)
    # of two levels, -1 and 1 here, the values are 0 and 1
    return effects / (2 if workload.binary else 1), 0
