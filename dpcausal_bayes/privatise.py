"""Cluster-DP carried out, once, for the custodian and for the simulator alike."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.laws import NoiseSource
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.schema import Schema

__all__ = ["make_release", "privatise_labels"]

CHUNK = 2**18  # units handled at a time: the working set stays in cache
_WORD = 2**64
_FINE = 2.0**52  # resolution at which the shares above the floor become integers


def privatise_labels(
    mechanism: ClusterDP,
    labels: NDArray[np.integer],
    cells: NDArray[np.integer],
    n_cells: int,
    n_levels: int,
    source: NoiseSource,
) -> tuple[NDArray[np.int64] | None, NDArray[np.int32]]:
    r"""Release noisy counts and randomised labels.

    Words are compared with integer thresholds, so the probabilities are exact multiples of
    :math:`2^{-64}`, and each is rounded so that the loss is never above the claim.

    Parameters
    ----------
    mechanism : ClusterDP
    labels : ndarray of int, shape (n,)
        Confidential label codes, 0 to K - 1.
    cells : ndarray of int, shape (n,)
        Public cell codes, 0 to n_cells - 1.
    n_cells, n_levels : int
    source : NoiseSource

    Returns
    -------
    noisy_counts : ndarray of int64, shape (n_cells, K), or None
        ``None`` with a uniform prior.
    released : ndarray of int32, shape (n,)
        Randomised label codes.
    """
    mechanism.check(n_levels)
    counts, size = _count(labels, cells, n_cells, n_levels)
    law = mechanism.noise_law
    noisy = None if law is None else counts + source.integers(law, counts.shape)
    keep, starts = thresholds(mechanism, mechanism.excess(noisy, size))
    released = np.empty(len(labels), dtype=np.int32)
    for first in range(0, len(labels), CHUNK):
        part = slice(first, first + CHUNK)
        chosen = labels[part].astype(np.int32)
        lost = np.flatnonzero(source.words(len(chosen)) >= keep)
        chosen[lost] = _draw(starts, cells[part][lost], source.words(len(lost)), n_levels)
        released[part] = chosen
    return noisy, released


def make_release(
    schema: Schema,
    mechanism: ClusterDP,
    cluster: NDArray[np.int32],
    arm: NDArray[np.int32],
    labels: NDArray[np.int32],
    *,
    source: NoiseSource,
    non_private: bool,
) -> LabelRelease:
    """Run the mechanism on coded columns and wrap its answers.

    Parameters
    ----------
    schema : Schema
    mechanism : ClusterDP
    cluster, arm : ndarray of int32, shape (n,)
        Public codes.
    labels : ndarray of int32, shape (n,)
        Confidential codes; they go into the mechanism and nowhere else.
    source : NoiseSource
    non_private : bool
        Whether the source can be repeated.

    Returns
    -------
    LabelRelease
    """
    from dpcausal_bayes import __version__  # not at the top: the package imports this module

    n_cells = 2 * schema.n_clusters
    noisy, released = privatise_labels(
        mechanism, labels, 2 * cluster + arm, n_cells, schema.n_levels, source
    )
    return LabelRelease(
        schema=schema,
        mechanism=mechanism,
        cluster=cluster,
        arm=arm,
        label=released,
        noisy_counts=None if noisy is None else noisy.reshape(-1, 2, schema.n_levels),
        loss=mechanism.loss(),
        noise_source=source.name,
        non_private=non_private,
        package_version=__version__,
    )


def thresholds(
    mechanism: ClusterDP, excess: NDArray[np.float64]
) -> tuple[np.uint64, NDArray[np.uint64]]:
    r"""Turn the channel into integers.

    With floor :math:`G = \lfloor 2^{64} \min(\gamma, 1/K) \rfloor`, every prior weight is at least
    G and a cell's weights sum to :math:`2^{64}`. A word below ``keep`` keeps the label: the largest
    integer whose keep probability is at most :math:`1 - \lambda` and whose odds against a draw of
    weight G are at most :math:`(1-\lambda)/(\lambda\gamma)`.

    Parameters
    ----------
    mechanism : ClusterDP
    excess : ndarray, shape (n_cells, K)
        From `ClusterDP.excess`.

    Returns
    -------
    keep : uint64
    starts : ndarray of uint64, shape (n_cells, W)
        Where each level's words begin; W is the power of two from K on, padded with the last word.
    """
    n_cells, n_levels = excess.shape
    lam, gamma = Fraction(mechanism.lam), Fraction(mechanism.gamma)
    floor = min(int(gamma * _WORD), _WORD // n_levels)
    odds = (1 - lam) / (lam * gamma) * floor
    keep = min(int((1 - lam) * _WORD), int(odds / (1 + odds / _WORD)))
    width = 1 << (n_levels - 1).bit_length()
    starts = np.full((n_cells, width), _WORD - 1, dtype=np.uint64)
    above = _WORD - n_levels * floor
    for cell in range(n_cells):
        parts = [int(part) for part in excess[cell] * _FINE]
        total = sum(parts)
        weights = [floor + above * part // total for part in parts]
        weights[parts.index(max(parts))] += _WORD - sum(weights)
        begin = 0
        for level, weight in enumerate(weights):
            # a start of 2^64 would mean levels of no weight, and the floor forbids those
            starts[cell, level] = begin
            begin += weight
    return np.uint64(keep), starts


def _count(
    labels: NDArray[np.integer], cells: NDArray[np.integer], n_cells: int, n_levels: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count labels per cell, in chunks: (n_cells, K) and (n_cells,)."""
    counts = np.zeros(n_cells * n_levels, dtype=np.int64)
    for first in range(0, len(labels), CHUNK):
        part = slice(first, first + CHUNK)
        place = cells[part].astype(np.int64) * n_levels + labels[part]
        counts += np.bincount(place, minlength=counts.size)
    table = counts.reshape(n_cells, n_levels)
    return table, table.sum(axis=1)


def _draw(
    starts: NDArray[np.uint64],
    cells: NDArray[np.integer],
    words: NDArray[np.uint64],
    n_levels: int,
) -> NDArray[np.int64]:
    """Find the level whose words contain each word: a binary search in all rows at once."""
    width = starts.shape[1]
    flat = starts.ravel()
    base = cells.astype(np.int64) * width
    place = base.copy()
    step = width // 2
    while step:
        place += step * (words >= flat[place + step])
        step //= 2
    return np.minimum(place - base, n_levels - 1)
