r"""MWEM on a graphical model: round after round, the pair that is worst modelled is measured.

As many rounds as columns, each a tenth for the choice by the exponential mechanism, whose score is
the L1 distance between a pair's counts and the model's less its number of cells, and nine tenths
for the measurement; the model of greatest entropy takes the place of multiplicative weights.

**Privacy.** See `comparators.graphical`. A score moves by at most 2 when a record is replaced.

Hardt, Ligett and McSherry (2012), "A simple and practical algorithm for differentially private data
release"; with Private-PGM: McKenna, Sheldon and Miklau (2019), arXiv:1901.09136.
"""

from __future__ import annotations

import math

import numpy as np

from comparators.graphical import Log, comparator, marginal, pairs
from comparators.noise import exponential_mechanism

__all__ = ["MWEM", "multiplicative"]

SHARE = 0.9
PROOF = (
    "zCDP: pairs with Gaussian noise (L2 sqrt 2), each chosen by the exponential mechanism "
    "(sensitivity 2); equal rounds."
)


def multiplicative(log: Log, rho: float) -> None:
    """Choose, measure, refit."""
    names, counts = log.counts.names, log.counts
    workload = pairs(names)
    each = rho / len(names)
    sigma = log.adjacency.l2 / math.sqrt(2 * SHARE * each)
    epsilon = math.sqrt(8 * (1 - SHARE) * each)
    expected = np.full_like(counts.joint, counts.n / counts.joint.size)
    for _ in names:
        score = np.array(
            [
                np.abs(marginal(counts.joint, names, pair) - marginal(expected, names, pair)).sum()
                - counts.cells(pair)
                for pair in workload
            ]
        )
        chosen = workload[exponential_mechanism(score, epsilon, log.adjacency.l1, log.rng)]
        log.rho += epsilon**2 / 8
        log.measure(chosen, sigma)
        expected = log.fit()


MWEM = comparator("MWEM, naive AIPW", PROOF, multiplicative)
