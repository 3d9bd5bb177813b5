r"""Coordinates for the log shares of K levels, and what a release says about them beforehand.

A cell's shares are softmax(eta), which does not see a constant added to eta. Log shares are
therefore written :math:`\eta = H \psi`, with orthonormal contrasts H of shape (K, K - 1) whose
first column lies along the scores of the levels: the direction that moves the mean outcome.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.columns import Levels
from dpcausal_bayes.releases import LabelRelease

__all__ = ["LevelSpace", "Pilot", "level_space", "pilot"]


class LevelSpace(NamedTuple):
    """Contrasts and prior covariances of log shares.

    Attributes
    ----------
    score : ndarray, shape (K,)
        Scores of the levels, from -1 to 1.
    contrasts : ndarray, shape (K, K - 1)
        H, orthonormal, each column summing to zero; the first is along ``score``.
    profile_root, shape_root : ndarray, shapes (K - 1, K - 1) and (K - 2, K - 2)
        Lower Cholesky factors of the prior covariance, at unit scale, of a cluster's profile (in
        all contrasts) and of the arms' difference (in all but the first).
    """

    score: NDArray[np.float64]
    contrasts: NDArray[np.float64]
    profile_root: NDArray[np.float64]
    shape_root: NDArray[np.float64]


def level_space(outcome: Levels, correlation_length: float) -> LevelSpace:
    r"""Build the coordinates of an outcome's log shares.

    The covariance of log shares at unit scale is :math:`R_{kl} = e^{-|k-l|/(\text{length} K)}` for
    ordered levels and the identity for unordered ones. A profile has :math:`x x' + z z'` more, for
    the scores x and :math:`z = x^2 - \overline{x^2}`: clusters differ most in where their outcomes
    lie and how far they spread, and what falls off keeps falling where noise drowns the counts.
    """
    n_levels = len(outcome.levels)
    place = np.arange(n_levels)
    values = np.asarray(outcome.values or place, dtype=float)
    if np.ptp(values) == 0:
        raise ValueError(
            f"Levels.values are all {values[0]}: no outcome can differ; give at least two scores"
        )
    middle = (values.max() + values.min()) / 2
    score = (values - middle) / (values.max() - middle)
    columns = np.column_stack([np.ones(n_levels), score, np.eye(n_levels)[:, : n_levels - 2]])
    contrasts = np.linalg.qr(columns)[0][:, 1:]
    contrasts[:, 0] *= np.sign(contrasts[:, 0] @ score)
    distance = np.abs(place[:, None] - place) / (correlation_length * n_levels)
    covariance = np.exp(-distance) if outcome.ordered else np.eye(n_levels)
    spread = score**2 - np.mean(score**2)
    trends = np.outer(score, score) + np.outer(spread, spread)
    profile = contrasts.T @ (covariance + trends) @ contrasts
    shape = contrasts[:, 1:].T @ covariance @ contrasts[:, 1:]
    return LevelSpace(score, contrasts, np.linalg.cholesky(profile), np.linalg.cholesky(shape))


class Pilot(NamedTuple):
    """A first look at the release, which only sets the sampler's coordinates.

    Attributes
    ----------
    log_share : ndarray, shape (C, 2, K)
        Rough log shares.
    information : ndarray, shape (C, 2, K, K)
        Rough Fisher information about the log shares.
    """

    log_share: NDArray[np.float64]
    information: NDArray[np.float64]


def pilot(release: LabelRelease) -> Pilot:
    """Estimate log shares and their information from the noisy counts, or else the labels."""
    mechanism = release.mechanism
    size = release.cell_size[..., None].astype(float)
    law = mechanism.noise_law
    if release.noisy_counts is None or law is None:
        kept = 1 - mechanism.lam
        estimate = (release.label_counts - mechanism.lam * size * release.prior) / kept
        noise = size * release.prior * mechanism.lam / kept**2
    else:
        estimate = release.noisy_counts.astype(float)
        noise = np.full(estimate.shape, law.variance / 2)
    share = np.maximum(estimate, 0) + 1 + 0.1 * np.sqrt(noise)
    share /= share.sum(-1, keepdims=True)
    count = size * share
    weight = count**2 / (count + noise + 1e-12)
    total = weight.sum(-1)[..., None, None] + 1e-12
    outer = weight[..., :, None] * weight[..., None, :] / total
    return Pilot(np.log(share), weight[..., None] * np.eye(share.shape[-1]) - outer)
