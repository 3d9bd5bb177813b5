r"""Errors of tau_Q in the experiments of the Cluster-DP paper, in closed form, without releases.

Trials are randomised within clusters. The effect is that of the population, so an error holds both
the sampling of the units and the noise of privacy; each is returned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import dpcausal_bayes as dpc
from dpcausal_bayes import accounting
from dpcausal_bayes.laws import Laplace
from dpcausal_bayes.populations.labels import Population, outcome_values
from dpcausal_bayes.simulate import SeededNoise


class Error(NamedTuple):
    """A mean squared error, by parts, and the Monte Carlo error of its privacy part."""

    sampling: float
    privacy: float
    monte_carlo: float

    @property
    def total(self) -> float:
        """Sampling and privacy together."""
        return self.sampling + self.privacy

    @property
    def rmse(self) -> float:
        """Root of the total."""
        return float(np.sqrt(self.total))


def at_budget(
    n_levels: int, epsilon: float, *, floor: float = 0.5, share: float = 0.5, delta: float = 0.0
) -> dpc.ClusterDP:
    """Return the mechanism of a proved (epsilon, delta), with the smallest lambda that holds.

    Parameters
    ----------
    n_levels : int
    epsilon : float
    floor : float
        gamma in units of 1/K; at 1 the prior is uniform and there is no histogram.
    share : float
        Part of epsilon for the histogram. At 0 it is free: a bound for comparison, not a mechanism
        that could be had, since the loss of the histogram is left out.
    delta : float
    """
    gamma = 1 / n_levels if floor == 1 else floor / n_levels
    sigma = None if floor == 1 else 2 / (share * epsilon) if share else 1e-3
    left = epsilon if floor == 1 else (1 - share) * epsilon
    if delta == 0:
        return dpc.ClusterDP(lam=accounting.lam_for(left, gamma), sigma=sigma, gamma=gamma)
    paid = sigma is not None and share > 0
    histogram = accounting.laplace_losses(sigma) if paid else accounting.NO_LOSS

    def holds(lam: float) -> bool:
        losses = accounting.compose(histogram, accounting.channel_losses(lam, gamma))
        return accounting.delta_at(losses, epsilon) <= delta

    low, high = accounting.SMALLEST_LAM, accounting.lam_for(left, gamma)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return dpc.ClusterDP(lam=high, sigma=sigma, gamma=gamma)


def stated_epsilon(mechanism: dpc.ClusterDP) -> float:
    """Return epsilon as a summary of the paper prints it, half the proved price of a histogram."""
    if mechanism.sigma is None:
        return mechanism.epsilon_label
    return min(1 / mechanism.sigma, 2 / mechanism.gamma) + mechanism.epsilon_label


def debiased_error(
    population: Population,
    mechanism: dpc.ClusterDP,
    *,
    clustered: bool = True,
    tables: int = 200,
    seed: int = 1,
) -> Error:
    r"""Return the mean squared error of tau_Q for the population's effect, over everything.

    Given a table and the released prior the variance of tau_Q has a closed form
    (`dpcausal_bayes.table_variances.debiased_variance`); here it is averaged over tables and
    histogram noise, in one array. The variance of the difference in means is added exactly.

    Parameters
    ----------
    population : Population
    mechanism : ClusterDP
    clustered : bool
        False puts all units into one cluster (Cluster-Free-DP), in the same trial, still randomised
        within clusters. Cells of unequal arms then cost a bias, which the sampling part holds.
    tables : int
        Over which the privacy part is averaged.
    seed : int
    """
    rng = np.random.default_rng(seed)
    counts = np.array(
        [rng.multinomial(population.cell_size, population.shares) for _ in range(tables)]
    )
    if not clustered:
        counts = counts.sum(axis=1, keepdims=True)
    noisy = None
    if mechanism.sigma is not None:
        noisy = counts + SeededNoise(rng).integers(Laplace(mechanism.sigma), counts.shape)
    size = counts.sum(axis=-1)
    prior = mechanism.prior(noisy, size)
    privacy = debiased_variances(outcome_values(population.schema), mechanism, counts, prior)
    error = float(np.std(privacy, ddof=1) / np.sqrt(tables))
    return Error(_sampling(population, clustered), float(privacy.mean()), error)


def debiased_variances(
    values: NDArray[np.float64],
    mechanism: dpc.ClusterDP,
    counts: NDArray[np.int64],
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the variance of tau_Q given label counts and prior, (..., C, 2, K): shape (...)."""
    lam = mechanism.lam
    size = counts.sum(axis=-1)
    weight = size.sum(axis=-1) / size.sum(axis=(-2, -1))[..., None]
    square = (values - (prior @ values)[..., None]) ** 2
    spread = (1 - lam) * (square * counts).sum(-1) / size + (square * prior).sum(-1)
    of_cell = lam / (1 - lam) ** 2 * spread / size
    return (weight**2 * of_cell.sum(axis=-1)).sum(axis=-1)


def histogram_error(population: Population, mechanism: dpc.ClusterDP) -> Error:
    """Return the mean squared error of the centred histogram contrast: exact."""
    values = outcome_values(population.schema)
    size = population.cell_size
    law = mechanism.noise_law
    if law is None:
        raise ValueError("mechanism.sigma is None: it releases no histogram to contrast")
    noise = law.variance * np.sum((values - values.mean()) ** 2) / size**2
    return Error(_sampling(population, True), float(_weight(size) ** 2 @ noise.sum(axis=1)), 0.0)


def _sampling(population: Population, clustered: bool) -> float:
    """Mean squared error of the difference in means, without privacy."""
    values, size = outcome_values(population.schema), population.cell_size
    mean = population.shares @ values
    variance = population.shares @ values**2 - mean**2
    weight = _weight(size)[:, None] if clustered else size / size.sum(axis=0)
    weight = np.broadcast_to(weight, size.shape)
    found = np.sum(weight * mean * [-1, 1])
    bias = found - float(population.truth(dpc.ATE()))
    return float(np.sum(weight**2 * variance / size) + bias**2)


def _weight(size: NDArray[np.int64]) -> NDArray[np.float64]:
    return size.sum(axis=1) / size.sum()
