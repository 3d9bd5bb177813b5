r"""AIM: marginals chosen where they are worst modelled for their noise, with an annealed budget.

The workload is all pairs of columns. The columns' own marginals are measured first. Then, round by
round, the exponential mechanism chooses a marginal r of the workload or of its columns, with score

.. math::
    w_r \left( \| M_r(D) - M_r(\hat p) \|_1 - \sqrt{2/\pi}\,\sigma\, n_r \right), \qquad
    w_r = \sum_{s \in W} |r \cap s|,

among those that keep the model small; it is measured, and the model refitted. Where a measurement
changed the model less than its noise would, sigma is halved and the choice's epsilon doubled. The
rounds begin as if there were 16 d of them, a tenth of the budget for choices; the last takes what
is left.

**Privacy.** See `comparators.graphical`. A score moves by at most 2 max w when a record is
replaced, as sigma, weights and the model are public. Spending is added up as it goes and ends at
rho.

McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data", arXiv:2201.12677.
"""

from __future__ import annotations

import math

import numpy as np

from comparators.graphical import Clique, Log, comparator, marginal, pairs
from comparators.noise import exponential_mechanism

__all__ = ["AIM", "adaptive"]

SHARE = 0.9  # of a round's budget, for the measurement
ROUNDS_A_COLUMN = 16
LARGEST_MODEL = 80.0  # megabytes, by the end
PROOF = (
    "zCDP: marginals with Gaussian noise (L2 sqrt 2), rounds by the exponential mechanism "
    "(sensitivity 2 max w), spent and stopped at rho."
)


def adaptive(log: Log, rho: float) -> None:
    """Measure the columns, then round after round what is worst."""
    names, counts = log.counts.names, log.counts
    weight = _weights(names)
    rounds = ROUNDS_A_COLUMN * len(names)
    sigma = log.adjacency.l2 * math.sqrt(rounds / (2 * SHARE * rho))
    epsilon = math.sqrt(8 * (1 - SHARE) * rho / rounds)
    for name in names:
        log.measure((name,), sigma)
    expected = log.fit()
    last = False
    while not last:
        left = rho - log.rho
        price = log.adjacency.l2**2 / (2 * sigma**2) + epsilon**2 / 8
        if left < 2 * price:
            last = True
            sigma = log.adjacency.l2 / math.sqrt(2 * SHARE * left)
            epsilon = math.sqrt(8 * (1 - SHARE) * left)
            price = left
        small = _small(log, weight, LARGEST_MODEL * (log.rho + price) / rho)
        clique = _worst(log, small, expected, sigma, epsilon)
        log.measure(clique, sigma)
        before, expected = expected, log.fit()
        moved = np.abs(marginal(expected, names, clique) - marginal(before, names, clique)).sum()
        if moved <= math.sqrt(2 / math.pi) * sigma * counts.cells(clique):
            sigma, epsilon = sigma / 2, 2 * epsilon


def _weights(names: tuple[str, ...]) -> dict[Clique, float]:
    """Return the weight of every candidate: how much of the workload it tells."""
    workload = pairs(names)
    candidates: list[Clique] = [(name,) for name in names] + workload
    return {r: float(sum(len(set(r) & set(s)) for s in workload)) for r in candidates}


def _small(log: Log, weight: dict[Clique, float], limit: float) -> dict[Clique, float]:
    """Return the candidates that keep the model within a size, or are in it already."""
    import mbi

    domain = mbi.Domain(list(log.counts.size), list(log.counts.size.values()))
    had = log.cliques

    def fits(clique: Clique) -> bool:
        if any(set(clique) <= set(one) for one in had):
            return True
        return bool(mbi.junction_tree.hypothetical_model_size(domain, [*had, clique]) <= limit)

    return {clique: w for clique, w in weight.items() if fits(clique)}


def _worst(
    log: Log, weight: dict[Clique, float], expected: np.ndarray, sigma: float, epsilon: float
) -> Clique:
    names, cliques = log.counts.names, list(weight)
    score = [
        weight[r]
        * (
            np.abs(marginal(log.counts.joint, names, r) - marginal(expected, names, r)).sum()
            - math.sqrt(2 / math.pi) * sigma * log.counts.cells(r)
        )
        for r in cliques
    ]
    sensitivity = log.adjacency.l1 * max(weight.values())
    log.rho += epsilon**2 / 8
    return cliques[exponential_mechanism(np.array(score), epsilon, sensitivity, log.rng)]


AIM = comparator("AIM, naive AIPW", PROOF, adaptive)
