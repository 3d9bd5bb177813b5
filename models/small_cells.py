r"""The exact likelihood of a cell with few possible tables of confidential counts.

In a cell of n units the counts N of K levels take one of :math:`\binom{n+K-1}{K-1}` values. Given
the release, what does not depend on the shares p is a constant of each value,

.. math:: w(N) = \frac{n!}{\prod_y N_y!} \prod_y P(e = \hat N_y - N_y) \; P(M \mid N),

and the likelihood is :math:`\sum_N w(N) \prod_y p_y^{N_y}`. No normal approximation is made, and
the noise has its exact law on the integers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import binom, poisson

from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.releases import LabelRelease

__all__ = [
    "MOST_TABLES",
    "Cells",
    "ExactCells",
    "cells_of",
    "compositions",
    "exact_cells",
    "few_tables",
    "log_label_likelihood",
]

MOST_TABLES = 256


class ExactCells(NamedTuple):
    """Tables of confidential counts of the cells that are handled exactly, padded to one number.

    Attributes
    ----------
    cell : ndarray of int, shape (J,)
        The cells, in the order of a flattened (C, 2) array.
    counts : ndarray, shape (J, T, K)
        Possible counts; zero where padded.
    log_weight : ndarray, shape (J, T)
        log w(N); minus infinity where padded.
    """

    cell: NDArray[np.int64]
    counts: NDArray[np.float64]
    log_weight: NDArray[np.float64]


class Cells(NamedTuple):
    """What a release says of its J = 2 C cells, clusters first, then arms.

    Attributes
    ----------
    mechanism : ClusterDP
    size : ndarray of int, shape (J,)
    noisy : ndarray of int, shape (J, K), or None
        Noisy counts, if the mechanism releases them.
    released : ndarray of int, shape (J, K)
        Counts of the randomised labels.
    prior : ndarray, shape (J, K)
        What lost labels were redrawn from.
    """

    mechanism: ClusterDP
    size: NDArray[np.int64]
    noisy: NDArray[np.int64] | None
    released: NDArray[np.int64]
    prior: NDArray[np.float64]


def cells_of(release: LabelRelease) -> Cells:
    """Lay a release out by cell."""
    n_levels = release.schema.n_levels
    noisy = release.noisy_counts
    return Cells(
        release.mechanism,
        release.cell_size.ravel(),
        None if noisy is None else noisy.reshape(-1, n_levels),
        release.label_counts.reshape(-1, n_levels),
        release.prior.reshape(-1, n_levels),
    )


def few_tables(cells: Cells) -> NDArray[np.int64]:
    """Find the cells that have units and at most `MOST_TABLES` tables of counts."""
    extra = cells.released.shape[1] - 1
    few = [0 < n and math.comb(int(n) + extra, extra) <= MOST_TABLES for n in cells.size]
    return np.flatnonzero(few)


def exact_cells(cells: Cells) -> ExactCells:
    """Enumerate the tables of every cell that has few."""
    n_levels = cells.released.shape[1]
    index = few_tables(cells)
    tables = {int(n): compositions(int(n), n_levels) for n in np.unique(cells.size[index])}
    most = max((len(table) for table in tables.values()), default=0)
    counts = np.zeros((len(index), most, n_levels))
    log_weight = np.full((len(index), most), -np.inf)
    law = cells.mechanism.noise_law
    for row, j in enumerate(index):
        table = tables[int(cells.size[j])]
        weight = gammaln(cells.size[j] + 1) - gammaln(table + 1).sum(-1)
        if cells.noisy is not None and law is not None:
            weight += law.log_pmf(cells.noisy[j] - table).sum(-1)
        weight += log_label_likelihood(cells.mechanism, table, cells.released[j], cells.prior[j])
        counts[row, : len(table)] = table
        log_weight[row, : len(table)] = weight
    return ExactCells(index, counts, log_weight)


def compositions(total: int, parts: int) -> NDArray[np.int64]:
    """List every way to write ``total`` as an ordered sum of ``parts`` counts: (T, parts)."""
    if parts == 1:
        return np.array([[total]])
    blocks = []
    for first in range(total + 1):
        rest = compositions(total - first, parts - 1)
        blocks.append(np.column_stack([np.full(len(rest), first), rest]))
    return np.concatenate(blocks)


def log_label_likelihood(
    mechanism: ClusterDP,
    counts: NDArray[np.int64],
    released: NDArray[np.int64],
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    r"""Return log P(M | N): the randomised labels of a cell given its true counts.

    Let S of the N units of each level keep their label. The other :math:`r = n - \sum S` draw
    theirs from the prior, so that

    .. math:: P(M \mid N) = \sum_S \prod_y \mathrm{Bin}(S_y; N_y, 1 - \lambda)\;
              \mathrm{Mult}(M - S; r, \tilde q),

    and :math:`\mathrm{Mult}(B; r, \tilde q) = r!\, e^t t^{-r} \prod_y
    \mathrm{Poi}(B_y; t \tilde q_y)` for any t: a convolution over
    levels, then a sum over :math:`\sum S`.

    Parameters
    ----------
    mechanism : ClusterDP
    counts : ndarray of int, shape (T, K)
        N, one row a table; each sums to n.
    released : ndarray of int, shape (K,)
        M.
    prior : ndarray, shape (K,)

    Returns
    -------
    ndarray, shape (T,)
    """
    n = int(released.sum())
    t = max(mechanism.lam * n, 1e-3)
    kept_total = np.zeros((len(counts), n + 1))
    kept_total[:, 0] = 1.0
    for y, m in enumerate(released):
        kept = np.arange(int(m) + 1)
        term = binom.pmf(kept, counts[:, y, None], 1 - mechanism.lam)
        term = term * poisson.pmf(m - kept, t * prior[y])
        longer = np.zeros_like(kept_total)
        for s in kept:
            longer[:, s:] += term[:, s, None] * kept_total[:, : n + 1 - s]
        kept_total = longer
    redrawn = n - np.arange(n + 1)
    log_factor = gammaln(redrawn + 1) + t - redrawn * math.log(t)
    with np.errstate(divide="ignore"):
        return np.asarray(
            np.logaddexp.reduce(np.log(kept_total) + log_factor, axis=-1), dtype=np.float64
        )
