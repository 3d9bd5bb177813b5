"""Draws of the confidential moments, given the model's parameters and the release."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.moment_likelihood import draw_moments
from dpcausal_bayes.models.moment_noise import draw_noise, noise_blocks
from dpcausal_bayes.models.noise import low_rank_normal_draw
from dpcausal_bayes.models.stratum_laws import StratumLaw, record_moments

__all__ = ["confidential_moments"]

CHUNK = 1000  # draws at a time


def confidential_moments(tree: xr.DataTree, rng: np.random.Generator) -> xr.DataArray:
    r"""Draw the confidential masses and outcome sums, one table for each posterior draw.

    From the normal law that the likelihood uses, exactly: mean
    :math:`n m + n C (n C + D)^{-1} (\hat a - n m)`, of Laplace noise given its mixing. Masses are
    real numbers that sum to n over all cells; that of a cell with hardly any units may fall below
    zero. A model that takes the noisy moments for true has those.

    Parameters
    ----------
    tree : xarray.DataTree
        From `dpcausal_bayes.fit`: its groups ``posterior`` and ``constant_data``, and its manifest.
    rng : numpy.random.Generator

    Returns
    -------
    xarray.DataArray
        Dims (chain, draw, arm, stratum, part), with parts ``mass`` and ``outcome``: units, and the
        sum of their outcomes scaled to [-1, 1].

    Raises
    ------
    ValueError
        A tree of `maxent_moments`, which has no strata.
    """
    posterior, constant = tree["posterior"].dataset, tree["constant_data"].dataset
    if "grid" in constant.coords:
        raise ValueError(
            "the tree is of a maxent_moments model, whose groups have no strata in common: model "
            "one group with stratified_moments"
        )
    share = posterior["share"].transpose("chain", "draw", "arm", "stratum")
    shape = (-1, *share.shape[2:])
    mean = posterior["mean"].transpose(*share.dims).values.reshape(shape)
    dispersion = None
    if "dispersion" in posterior:
        dispersion = posterior["dispersion"].transpose("chain", "draw", "arm").values
        dispersion = dispersion.reshape(-1, 2)
    mixing = None
    if "noise_mixing" in posterior:
        mixing = posterior["noise_mixing"].transpose("chain", "draw", "noise").values
        mixing = mixing.reshape(len(mean), -1)
    released = constant["released"].values
    laws = StratumLaw(share.values.reshape(shape), mean, dispersion)
    if float(constant["noise_aware"]):
        n = int(read_manifest(tree)["n"])
        parts = [slice(first, first + CHUNK) for first in range(0, len(mean), CHUNK)]
        moments = np.concatenate(
            [_draw(_some(laws, p), _part(mixing, p), constant, n, rng) for p in parts]
        )
    else:
        moments = np.broadcast_to(released, (len(mean), len(released)))
    cells = moments[:, : 2 * share[0, 0].size].reshape(*share.shape, 2)
    if dispersion is None:  # counts of two levels
        cells = np.stack([cells.sum(-1), cells[..., 1] - cells[..., 0]], axis=-1)
    drawn = share.expand_dims(part=["mass", "outcome"], axis=-1)
    return drawn.copy(data=cells).rename("confidential_moment")


def _some(laws: StratumLaw, rows: slice) -> StratumLaw:
    return StratumLaw(*(_part(array, rows) for array in laws))


def _part(array: NDArray[np.float64] | None, rows: slice) -> NDArray[np.float64] | None:
    return None if array is None else array[rows]


def _draw(
    laws: StratumLaw,
    mixing: NDArray[np.float64] | None,
    constant: xr.Dataset,
    n: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw moments (draws, p) given the laws, and the noise's mixing, of as many draws."""
    moments = record_moments(laws, laws.share.shape[-1], np)
    shape = (len(laws.share), constant.sizes["query"])
    variance = np.broadcast_to(constant["noise_variance"].values, shape)
    redundancy = constant["redundancy"].values
    noise = noise_blocks(variance, mixing, moments.blocks.shape[-1], np)
    if redundancy.shape[1]:
        root = np.linalg.cholesky(np.diag(variance[0]) - redundancy @ redundancy.T)
        noise_draw = rng.standard_normal(shape) @ root.T
    else:
        noise_draw = draw_noise(noise, rng)
    return low_rank_normal_draw(
        draw_moments(laws.share, laws.mean, laws.dispersion, n, rng),
        noise_draw,
        np.broadcast_to(constant["released"].values, shape),
        n * moments.blocks,
        n**0.5 * moments.factors,
        moments.signs,
        noise,
        redundancy,
    )
