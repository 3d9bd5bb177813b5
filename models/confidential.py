"""Draws of the confidential label counts, given the model's parameters and the release."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.models.label_likelihood import count_moments, noise_variance, routes
from dpcausal_bayes.models.noise import low_rank_normal_draw
from dpcausal_bayes.models.small_cells import Cells, exact_cells

__all__ = ["confidential_counts"]


def confidential_counts(tree: xr.DataTree, rng: np.random.Generator) -> xr.DataArray:
    r"""Draw the confidential counts N of each cell, one table for each posterior draw.

    In a cell with few possible tables, from :math:`P(N \mid p, \text{release})` exactly: whole
    numbers. Elsewhere from the normal law that the likelihood uses, given p, the released labels
    and the noise's exponential variable: real numbers, which may fall below zero. Where the noise
    is negligible, the noisy counts. A model that reads released labels as true has those.

    Parameters
    ----------
    tree : xarray.DataTree
        From `dpcausal_bayes.fit`: its groups ``posterior`` and ``constant_data``, and its manifest.
    rng : numpy.random.Generator

    Returns
    -------
    xarray.DataArray
        Dims (chain, draw, cluster, arm, level), in units. Cells of no units hold zeros.
    """
    posterior, constant = tree["posterior"].dataset, tree["constant_data"].dataset
    dims = ("cluster", "arm", "level")
    share = posterior["share"].transpose("chain", "draw", *dims)
    cells = _cells(constant, read_manifest(tree)["mechanism"], dims)
    flat = share.values.reshape(-1, len(cells.size), share.sizes["level"])
    if not float(constant["noise_aware"]):
        counts = np.broadcast_to(cells.released.astype(float), flat.shape)
    else:
        mixing = None
        if "noise_mixing" in posterior:
            mixing = posterior["noise_mixing"].transpose("chain", "draw", "cell", "level").values
            mixing = mixing.reshape(len(flat), -1, share.sizes["level"])
        counts = _draw(cells, flat, mixing, rng)
    return share.copy(data=counts.reshape(share.shape)).rename("confidential_count")


def _cells(constant: xr.Dataset, mechanism: ClusterDP, dims: tuple[str, ...]) -> Cells:
    """Lay the release's counts, as a tree holds them, out by cell."""
    n_levels = constant.sizes["level"]

    def flat(name: str) -> NDArray[Any]:
        return np.asarray(constant[name].transpose(*dims).values.reshape(-1, n_levels))

    noisy = flat("noisy_count").astype(np.int64) if "noisy_count" in constant else None
    size = constant["cell_size"].transpose(*dims[:2]).values.ravel()
    return Cells(mechanism, size, noisy, flat("label_count"), flat("label_prior"))


def _draw(
    cells: Cells,
    share: NDArray[np.float64],
    mixing: NDArray[np.float64] | None,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw counts (draws, cells, levels), each cell by its own route."""
    found = routes(cells)
    counts = np.zeros(share.shape)
    if cells.noisy is not None:
        counts[:, found.known] = cells.noisy[found.known]
    counts[:, found.labels_only] = _given_labels(cells, share, found.labels_only, rng)
    if len(found.exact):
        exact = exact_cells(cells)
        for row, j in enumerate(exact.cell):
            if j in found.exact:
                counts[:, j] = _table(exact.counts[row], exact.log_weight[row], share[:, j], rng)
    if len(found.normal):
        noisy = np.asarray(cells.noisy, dtype=float)[found.normal]
        counts[:, found.normal] = _normal(cells, share, noisy, found.normal, mixing, rng)
    return counts


def _table(
    counts: NDArray[np.float64],
    log_weight: NDArray[np.float64],
    share: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw one of the tables (T, K) for each row of shares (draws, K)."""
    log_share = np.log(np.maximum(share, np.finfo(float).tiny))
    log_weight = log_share @ counts.T + log_weight
    weight = np.exp(log_weight - logsumexp(log_weight, axis=-1, keepdims=True))
    choice = (rng.random(len(share))[:, None] > weight.cumsum(-1)).sum(-1)
    return counts[np.minimum(choice, len(counts) - 1)]


def _given_labels(
    cells: Cells, share: NDArray[np.float64], index: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw counts given the released labels and the shares, without the histogram: exactly.

    Each unit kept its label, or has a true label drawn from the shares.
    """
    share, released, prior = share[:, index], cells.released[index], cells.prior[index]
    lam = cells.mechanism.lam
    kept_share = (1 - lam) * share / ((1 - lam) * share + lam * prior)
    kept = rng.binomial(released, kept_share)
    redrawn = (released - kept).sum(-1)
    # float rounding in the draws can leave a sum of shares just above one
    share = share / share.sum(-1, keepdims=True)
    return np.asarray(kept + rng.multinomial(redrawn, share), dtype=float)


def _normal(
    cells: Cells,
    share: NDArray[np.float64],
    noisy: NDArray[np.float64],
    index: NDArray[np.int64],
    mixing: NDArray[np.float64] | None,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw counts given labels, shares and histogram, by the normal law of the likelihood."""
    shape = share[:, index].shape
    noise = np.broadcast_to(noise_variance(cells.mechanism.noise_law, mixing), shape)
    moments = count_moments(
        share[:, index], cells.released[index], cells.prior[index], cells.mechanism.lam
    )

    def rows(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.broadcast_to(x, shape).reshape(-1, shape[-1])

    drawn = low_rank_normal_draw(
        rows(_given_labels(cells, share, index, rng)),
        rows(np.sqrt(noise) * rng.standard_normal(shape)),
        np.ascontiguousarray(rows(noisy)),
        np.ascontiguousarray(rows(moments.variance)[:, :, None, None]),
        np.stack([rows(moments.plus), rows(moments.minus)], axis=-1),
        np.array([1.0, -1.0]),
        rows(noise)[:, :, None, None],
    )
    return drawn.reshape(shape)
