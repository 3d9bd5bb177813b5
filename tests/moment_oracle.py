"""A moment model's pieces written once more: records enumerated, matrices dense, nothing shared."""

import math
from itertools import product

import numpy as np
from scipy.linalg import block_diag, eigh_tridiagonal

from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.populations.crossed import stratified_population
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

STRATA = {1: {}, 2: {"a": 2}, 6: {"a": 3, "b": 2}}  # covariates, by number of strata


def make_schema(covariates, *, binary=False):
    return Schema(
        arm=Arm("treated", control=0, treated=1),
        outcome=Levels("y", (0, 1)) if binary else Bounded("y", 0, 1),
        covariates=[Categories(name, list(range(k))) for name, k in covariates.items()],
    )


def make_release(  # defaults: all covariates as one group
    covariates, *, groups=None, n=500, epsilon=1.0, binary=False, seed=1, scale=None, **weights
):
    """Simulate a release of a confounded population."""
    confounding = 0.5 if covariates else 0.0
    study = stratified_population(
        covariates=covariates, n=n, confounding=confounding, binary=binary, spread=0.1
    )
    groups = [list(covariates)] if groups is None and covariates else groups
    workload = CausalWorkload(make_schema(covariates, binary=binary), groups=groups, **weights)
    if scale is None:
        mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=1e-6)
    else:
        mechanism = GaussianMechanism(scale=scale, sensitivity=workload.sensitivity, delta=1e-6)
    return simulate_moments(study.draw(seed), workload, mechanism, seed=seed)


def random_law(n_strata, *, binary, seed=0):
    """Shares, means and dispersions (None if binary) that no two cells have alike."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(2 * n_strata, 3.0)).reshape(2, n_strata)
    return share, rng.uniform(-0.9, 0.9, (2, n_strata)), None if binary else np.array([0.15, 0.6])


def beta_nodes(mean, r):
    """Four points and probabilities with the first seven moments of a beta law on [-1, 1].

    By the three-term recurrence of Jacobi polynomials (Golub and Welsch 1969); unlike SciPy's rule
    it takes any r.
    """
    a, b = (1 / r - 1) * (1 - mean) / 2 - 1, (1 / r - 1) * (1 + mean) / 2 - 1
    k = np.arange(1, 4)
    total = 2 * k + a + b
    diagonal = [mean, *((b - a) * (b + a) / (total * (total + 2)))]
    beside = 4 * k * (k + a) * (k + b) / (total**2 * (total + 1))
    beside[1:] *= (k[1:] + a + b) / (total[1:] - 1)  # 1 for k = 1
    nodes, vectors = eigh_tridiagonal(diagonal, np.sqrt(beside))
    return nodes, vectors[0] ** 2


def dense_moments(share, mean, dispersion):
    """Mean and covariance of a record's contribution, from all the records there may be.

    A bounded outcome's are the nodes of a Gauss rule for its beta law, exact for what is asked.
    """
    n_strata = share.shape[1]
    length = 4 * n_strata + (0 if dispersion is None else 2)
    first, second = np.zeros(length), np.zeros((length, length))
    for arm, s in product(range(2), range(n_strata)):
        if dispersion is None:
            outcomes = np.array([-1.0, 1.0])
            weights = (1 + outcomes * mean[arm, s]) / 2
        else:
            outcomes, weights = beta_nodes(mean[arm, s], dispersion[arm])
        for y, weight in zip(outcomes, weights, strict=True):
            record = np.zeros(length)
            at = 2 * (arm * n_strata + s)
            if dispersion is None:
                record[at + (y > 0)] = 1
            else:
                record[at : at + 2] = 1, y
                record[4 * n_strata + arm] = y**2 - 0.5
            first += share[arm, s] * weight * record
            second += share[arm, s] * weight * np.outer(record, record)
    return first, second - np.outer(first, first)


def dense_pooling(release, group):
    """Generalised least squares for a group's moments: estimator (p, Q) and covariance (p, p).

    The unknown is the whole table: arm by all covariates by part, and the squares.
    """
    workload = release.workload
    names = [covariate.column for covariate in workload.schema.covariates]
    sizes = [len(covariate.labels) for covariate in workload.schema.covariates]
    cells = list(product(*(range(k) for k in sizes)))
    squares = [] if workload.binary else [np.eye(2)]

    def margin(asked):
        """From the whole table to a group's queries: arm, stratum, part."""
        places = [names.index(name) for name in asked]
        strata = list(product(*(range(sizes[k]) for k in places)))
        rows = [[tuple(c[k] for k in places) == s for c in cells] for s in strata]
        return np.kron(np.eye(2), np.kron(np.array(rows, float), np.eye(2)))

    whole = block_diag(np.concatenate([margin(asked) for asked in workload.groups]), *squares)
    asked = block_diag(margin(workload.groups[group]), *squares)
    precise = whole / release.noise_scale[:, None]
    solve = np.linalg.pinv(precise, rcond=1e-12)
    return asked @ solve / release.noise_scale, asked @ solve @ solve.T @ asked.T, whole, asked


def one_stratum_law(coefficient):
    """The law of one stratum of a bounded outcome: odds, baseline, effect, two dispersions."""
    odds, baseline, effect, *log_odds = coefficient
    treated = 1 / (1 + math.exp(-odds))
    mean = np.tanh([[baseline - effect / 2], [baseline + effect / 2]])
    return np.array([[1 - treated], [treated]]), mean, 1 / (1 + np.exp(-np.array(log_odds)))
