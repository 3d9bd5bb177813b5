r"""MST: a maximum spanning tree of pairs, chosen privately, measured, and modelled.

A third of rho each: all columns' marginals; the d - 1 edges of a spanning tree over the columns,
one at a time by the exponential mechanism, whose score is the L1 distance between a pair's counts
and what the first model expects; and the marginals of these pairs. Domains here are small, so that
the published program's merging of rare levels is left out.

**Privacy.** See `comparators.graphical`. A score is an L1 distance to something public: it moves by
at most 2 when a record is replaced.

McKenna, Miklau and Sheldon (2021), "Winning the NIST contest", arXiv:2108.04978.
"""

from __future__ import annotations

import math

import numpy as np

from comparators.graphical import Clique, Log, comparator, marginal, pairs
from comparators.noise import exponential_mechanism

__all__ = ["MST", "spanning_tree"]

PROOF = (
    "zCDP: marginals with Gaussian noise (L2 sqrt 2), edges by the exponential mechanism "
    "(sensitivity 2); a third of rho each."
)


def spanning_tree(log: Log, rho: float) -> None:
    """Measure, choose, measure, and fit."""
    names = log.counts.names
    sigma = log.adjacency.l2 * math.sqrt(len(names) * 3 / (2 * rho))
    for name in names:
        log.measure((name,), sigma)
    edges = _edges(log, rho / 3)
    sigma = log.adjacency.l2 * math.sqrt(len(edges) * 3 / (2 * rho))
    for edge in edges:
        log.measure(edge, sigma)
    log.fit()


def _edges(log: Log, rho: float) -> list[Clique]:
    """Choose the tree's edges, each between parts that are not yet joined."""
    names, expected = log.counts.names, log.fit()
    far = {
        pair: float(
            np.abs(marginal(log.counts.joint, names, pair) - marginal(expected, names, pair)).sum()
        )
        for pair in pairs(names)
    }
    part = {name: name for name in names}
    epsilon = math.sqrt(8 * rho / (len(names) - 1))
    chosen: list[Clique] = []
    while len(chosen) < len(names) - 1:
        open_pairs = [pair for pair in far if part[pair[0]] != part[pair[1]]]
        score = np.array([far[pair] for pair in open_pairs])
        edge = open_pairs[exponential_mechanism(score, epsilon, log.adjacency.l1, log.rng)]
        log.rho += epsilon**2 / 8
        joined = part[edge[1]]
        part = {name: part[edge[0]] if own == joined else own for name, own in part.items()}
        chosen.append(edge)
    return chosen


MST = comparator("MST, naive AIPW", PROOF, spanning_tree)
