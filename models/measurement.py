r"""What all groups of a workload say together about the moments of one group's strata.

Let a be the confidential moments by arm and stratum of the group that is modelled. Its own queries
measure a; every other group's, summed over covariates that the strata do not have, measure sums of
a: at least the arm totals. Weighted least squares pools them,

.. math:: \hat a = V \sum_g A_g' D_g^{-1} q_g, \qquad
          V = \Big(\sum_g A_g' D_g^{-1} A_g\Big)^{-1} = D - U U',

with D diagonal and U of few columns: D is the noise of the group's own queries, or less where
another group has all of its covariates. For normal noise :math:`\hat a` holds all that the release
says of a.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["Measurement", "Pooling", "pooling"]


class Measurement(NamedTuple):
    """Pooled moments (p,) and the covariance (p, p) of their noise, in records."""

    value: NDArray[np.float64]
    noise: NDArray[np.float64]


class Pooling(NamedTuple):
    """How queries are pooled: constants of a workload and its noise.

    Attributes
    ----------
    weights : ndarray, shape (p, Q)
        From released queries to pooled moments.
    variance : ndarray, shape (p,)
        D.
    redundancy : ndarray, shape (p, r)
        U; no columns where there is one group.
    """

    weights: NDArray[np.float64]
    variance: NDArray[np.float64]
    redundancy: NDArray[np.float64]

    def measurement(self, noisy: NDArray[np.float64]) -> Measurement:
        """Pool a release's queries (Q,)."""
        noise = np.diag(self.variance) - self.redundancy @ self.redundancy.T
        return Measurement(self.weights @ noisy, noise)


def pooling(release: MomentRelease, group: int) -> Pooling:
    """Return how a release's queries are pooled for one of its groups.

    Parameters
    ----------
    release : MomentRelease
    group : int
    """
    workload = release.causal_workload
    variances = workload.split(release.noise_scale**2)
    size = variances[0][group].size
    n_moments = size + (0 if workload.binary else 2)
    own = np.zeros((n_moments, workload.n_queries))  # from queries to the group's own
    first = sum(variance.size for variance in variances[0][:group])
    own[np.arange(size), first + np.arange(size)] = 1
    own[size:, workload.n_queries - n_moments + size :] = np.eye(n_moments - size)
    variance = own @ release.noise_scale**2
    others = [other for other in range(len(workload.groups)) if other != group]
    if not others:
        return Pooling(own, variance, np.zeros((n_moments, 0)))
    sums, ways = [np.eye(n_moments)], [own]
    for other in others:
        from_moments, from_queries = _common_sums(workload, group, other)
        sums.append(np.pad(from_moments, ((0, 0), (0, n_moments - size))))
        before = sum(variance.size for variance in variances[0][:other])
        after = workload.n_queries - before - from_queries.shape[1]
        ways.append(np.pad(from_queries, ((0, 0), (before, after))))
    design, way = np.concatenate(sums), np.concatenate(ways)
    weighted = design / (way**2 @ release.noise_scale**2)[:, None]
    pooled = np.linalg.inv(design.T @ weighted)
    # Strata that another group tells apart too are known better, all alike: so U has fewer columns.
    variance[:size] = np.linalg.eigvalsh(pooled[:size, :size])[-1]
    # in units of each query's own noise, as the squares may have a very different one
    sd = np.sqrt(variance)
    value, vector = np.linalg.eigh(np.eye(n_moments) - pooled / np.outer(sd, sd))
    keep = value > 1e-9
    redundancy = sd[:, None] * vector[:, keep] * np.sqrt(value[keep])
    return Pooling(pooled @ weighted.T @ way, variance, redundancy)


def _common_sums(
    workload: CausalWorkload, group: int, other: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sums that two groups both measure: of the first's moments, of the second's.

    They are by arm, part and the covariates that both groups have.
    """
    factors = workload.factors(group), workload.factors(other)
    shared = [name for name in factors[0] if name in factors[1]]
    labels = [
        list(zip(*(factor[name] for name in shared), strict=True)) or [()] * workload.n_strata(g)
        for factor, g in zip(factors, (group, other), strict=True)
    ]
    cells = list(dict.fromkeys(labels[0]))
    member = [np.array([[cell == label for label in row] for cell in cells]) for row in labels]
    first, second = (np.kron(np.eye(2), np.kron(m, np.eye(2))) for m in member)
    return np.asarray(first), np.asarray(second)
