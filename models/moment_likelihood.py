r"""The likelihood of a moment release given the law of a record, the confidential moments out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.models.measurement import Pooling, pooling
from dpcausal_bayes.models.moment_noise import draw_noise, noise_blocks, noise_labels
from dpcausal_bayes.models.noise import low_rank_normal_logp
from dpcausal_bayes.models.stratum_density import bounded_moments_logp
from dpcausal_bayes.models.stratum_laws import StratumLaw, outcome_moments, record_moments
from dpcausal_bayes.moment_releases import MomentRelease

__all__ = ["draw_moments", "moment_likelihood"]


def moment_likelihood(
    release: MomentRelease, group: int, law: StratumLaw, data: dict[str, Any], *, noise_aware: bool
) -> Any:
    r"""Add the observed node ``release`` (query) to the model on the context stack.

    .. math:: \hat a \sim N\big( n m, \; n C + D - U U' \big)

    with m and C the mean and covariance of what a record contributes, see
    `dpcausal_bayes.models.stratum_laws`, and the rest from `dpcausal_bayes.models.measurement`.
    Laplace noise is normal given the exponential variables ``noise_mixing`` (noise), see
    `dpcausal_bayes.models.moment_noise`, so that D is a function of them.

    Parameters
    ----------
    release : MomentRelease
    group : int
        The group whose strata are modelled.
    law : StratumLaw
        Tensors.
    data : dict
        ``released`` and ``noise_variance`` of the pooled moments, and ``records``.
    noise_aware : bool
        False takes the noisy moments for true ones. As noisy masses do not sum to n, they then
        count as independent: C keeps its blocks and loses the outer product of the mean.

    Returns
    -------
    tensor
        The observed variable.
    """
    model = pm.modelcontext(None)
    pm.Data("noise_aware", float(noise_aware))
    workload, pooled = release.causal_workload, pooling(release, group)
    own = workload.split(np.arange(workload.n_queries))[0][group].ravel()
    squares = workload.queries[len(workload.queries) - len(pooled.variance) + own.size :]
    model.add_coord("query", [*(workload.queries[j] for j in own), *squares])
    scored = _Scored(release, group, pooled, noise_aware)
    parameters = [
        law.share,
        law.mean,
        pm.Data("records", data["records"]),
        pm.Data("noise_variance", data["noise_variance"], dims="query"),
    ]
    signature = "(a,s),(a,s),(),(q)"
    if law.dispersion is not None:
        parameters.append(law.dispersion)
        signature += ",(a)"
    if scored.mixed:
        model.add_coord("noise", noise_labels(workload, group))
        parameters.append(pm.Exponential("noise_mixing", 1, dims="noise"))
        signature += ",(q)"
    return pm.CustomDist(
        "release",
        *parameters,
        logp=scored.logp,
        random=scored.replicate,
        signature=f"{signature}->(q)",
        observed=pm.Data("released", data["released"], dims="query"),
        dims="query",
    )


class _Scored:
    """Log-density and replication of pooled moments."""

    def __init__(
        self, release: MomentRelease, group: int, pooled: Pooling, noise_aware: bool
    ) -> None:
        workload = release.causal_workload
        self.n_strata, self.binary = workload.n_strata(group), workload.binary
        self.noise_aware = noise_aware
        self.mixed = noise_aware and isinstance(release.mechanism, LaplaceMechanism)
        # noise that is ignored has no redundancy either
        self.redundancy = pooled.redundancy if noise_aware else pooled.redundancy[:, :0]

    def logp(
        self, value: Any, share: Any, mean: Any, records: Any, noise_variance: Any, *others: Any
    ) -> Any:
        mixing = others[-1] if self.mixed else None
        if not self.binary:
            noise = noise_blocks(noise_variance, mixing, 2, pt)
            data = (value, records, noise, self.redundancy)
            return bounded_moments_logp(share, mean, others[0], *data, self.noise_aware)
        moments = record_moments(StratumLaw(share, mean, None), self.n_strata, pt)
        blocks = records * moments.blocks + noise_blocks(noise_variance, mixing, 1, pt)
        factors = np.zeros((len(self.redundancy), 0))
        if self.noise_aware:
            factors = pt.concatenate([pt.sqrt(records) * moments.factors, self.redundancy], axis=-1)
        residual = value - records * moments.mean
        signs = -np.ones(self.redundancy.shape[1] + 1 if self.noise_aware else 0)
        return low_rank_normal_logp(residual[None], blocks[None], factors[None], signs)[0]

    def replicate(
        self,
        share: Any,
        mean: Any,
        records: Any,
        noise_variance: Any,
        *others: Any,
        rng: np.random.Generator,
        size: Any = None,
    ) -> NDArray[np.float64]:
        dispersion = None if self.binary else others[0]
        moments = draw_moments(share, mean, dispersion, int(records), rng)
        if self.mixed:  # noise is drawn afresh: the mixing is that of the release at hand
            fresh = rng.exponential(size=noise_variance.shape)
            blocks = noise_blocks(noise_variance, fresh, 1 if self.binary else 2, np)
            return moments + draw_noise(blocks, rng)
        if self.noise_aware:
            noise = np.diag(noise_variance) - self.redundancy @ self.redundancy.T
            moments = moments + np.linalg.cholesky(noise) @ rng.standard_normal(len(noise))
        return moments


def draw_moments(
    share: NDArray[np.float64],
    mean: NDArray[np.float64],
    dispersion: NDArray[np.float64] | None,
    n: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw the moments of a table of n records: (..., p), as `record_moments` orders them.

    Masses are multinomial, counts of two levels too. Outcome sums and squares are normal given the
    masses, with the moments of the beta law.

    Parameters
    ----------
    share, mean : ndarray, shape (..., 2, S)
    dispersion : ndarray, shape (..., 2), or None
    n : int
    rng : numpy.random.Generator
    """
    shape = share.shape
    flat = share.reshape(*shape[:-2], -1)
    mass = rng.multinomial(n, flat / flat.sum(-1, keepdims=True)).reshape(shape)
    if dispersion is None:
        high = rng.binomial(mass, (1 + mean) / 2)
        return np.stack([mass - high, high], axis=-1).reshape(*shape[:-2], -1).astype(float)
    r = dispersion[..., None]
    y2, _, y4 = outcome_moments(mean, r)
    variance = r * (1 - mean**2)
    slope = 2 * mean * (1 - r) / (1 + r)  # of the square on the outcome: (E y^3 - E y E y^2) / v
    left = np.maximum(y4 - y2**2 - slope**2 * variance, 0)
    deviation = np.sqrt(mass * variance) * rng.standard_normal(shape)
    outcome = mass * mean + deviation
    square = mass * (y2 - 0.5) + slope * deviation
    square = square + np.sqrt(mass * left) * rng.standard_normal(shape)
    cells = np.stack([mass, outcome], axis=-1).reshape(*shape[:-2], -1)
    return np.concatenate([cells, square.sum(-1)], axis=-1)
