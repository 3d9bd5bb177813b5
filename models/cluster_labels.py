"""The model of a label release: shares of each cluster and arm, seen through the mechanism."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from dpcausal_bayes.models.label_likelihood import label_likelihood, release_data
from dpcausal_bayes.models.levels import LevelSpace, level_space, pilot
from dpcausal_bayes.models.priors import LabelPriors
from dpcausal_bayes.models.whitening import Whitening, matvec, whitener
from dpcausal_bayes.releases import LabelRelease

__all__ = ["cluster_labels"]

_ARM_SIGN = np.array([-0.5, 0.5])[None, :, None]  # control, treated


def cluster_labels(
    release: LabelRelease, *, priors: LabelPriors | None = None, noise_aware: bool = True
) -> pm.Model:
    r"""Build the model of a Cluster-DP release.

    Cluster c, arm a, level y; scores x of the levels in [-1, 1]; :math:`s_a = \mp 1/2`.

    .. math::
        p_{ca} &= \mathrm{softmax}(H \psi_c + s_a (x\, T_c + H_{2:} \delta_c)) \\
        \psi_c &\sim N(\bar\psi, \tau_\psi^2 G), \quad
        T_c \sim N(\bar T, \tau_T^2), \quad \delta_c \sim N(0, \sigma_\delta^2 G_{2:}) \\
        N_{ca} &\sim \mathrm{Mult}(n_{ca}, p_{ca}), \quad
        \hat N_{ca} = N_{ca} + e, \quad
        M_{ca} \mid N_{ca}, \hat N_{ca} \sim \text{the label channel}

    The tilt T moves a cell's mean; by the form of an exponential family the fitted mean follows the
    data along it, whatever the pooling of the shapes. Its average over clusters has a wide prior
    and is not pooled, so the effect is not shrunk towards zero.

    N is summed or integrated out. Where a cell has few possible tables, exactly. Elsewhere
    :math:`M \mid p` is exactly multinomial and :math:`\hat N \mid M, p` is taken as normal, with
    its exact mean and covariance (diagonal plus rank two) given p, M and the noise; Laplace noise
    is normal given an exponential variable, :math:`e = \sigma' \sqrt{2E} z`.

    Parameters
    ----------
    release : LabelRelease
    priors : LabelPriors, optional
    noise_aware : bool
        False reads the randomised labels as true labels and ignores the noisy counts: the naive
        analysis, for comparison.

    Returns
    -------
    pymc.Model
        Free variables ``profile_mean`` (contrast), ``profile`` (cluster, contrast),
        ``cluster_sd``, ``tilt_mean``, ``tilt_offset`` (cluster), ``tilt_cluster_sd``,
        ``effect_shape_regressed`` (cluster, shape_contrast) and ``noise_mixing`` (cell, level);
        deterministic ``tilt`` (cluster), ``effect_shape`` (cluster, shape_contrast) and ``share``
        (cluster, arm, level); observed ``release`` (query). With one cluster the variables of the
        hierarchy, with two levels those of the shape, are left out.

    Raises
    ------
    TypeError
        A release of another kind.

    References
    ----------
    Javanmard, Mirrokni and Pouget-Abadie, "Cluster-DP", arXiv:2308.00957, for the mechanism.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.columns import Arm, Levels
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> schema = Schema(arm=Arm("any", control=0, treated=1), outcome=Levels("got", [0, 1]))
    >>> table = pd.DataFrame({"any": [0, 1] * 50, "got": [0, 0, 1, 1, 1] * 20})
    >>> mechanism = ClusterDP.calibrated(schema, epsilon=1.0)
    >>> model = cluster_labels(simulate_release(table, schema, mechanism, seed=1))
    >>> model["share"].eval().shape
    (1, 2, 2)
    """
    if not isinstance(release, LabelRelease):
        raise TypeError(
            f"release is a {type(release).__name__}: cluster_labels models a LabelRelease; read "
            "one with load_release"
        )
    priors = LabelPriors() if priors is None else priors
    space = level_space(release.schema.label_outcome, priors.correlation_length)
    schema = release.schema
    coords = {
        "cluster": schema.clusters,
        "arm": schema.arms,
        "level": schema.level_labels,
        "contrast": [f"contrast {k}" for k in range(1, schema.n_levels)],
        "shape_contrast": [f"contrast {k}" for k in range(2, schema.n_levels)],
    }
    with pm.Model(coords=coords) as model:
        log_share = _log_share(release, space, priors)
        share = pm.Deterministic(
            "share", pt.special.softmax(log_share, axis=-1), dims=("cluster", "arm", "level")
        )
        label_likelihood(release, share, noise_aware=noise_aware)
    model.release_data = _Design(release, frozenset(model.named_vars))
    return model


class _Design(NamedTuple):
    """What another release of the same trial changes in a model: its data."""

    first: LabelRelease
    names: frozenset[str]

    def __call__(self, release: LabelRelease) -> dict[str, Any]:
        public = ("schema", "mechanism")
        same = isinstance(release, LabelRelease) and all(
            getattr(release, field) == getattr(self.first, field) for field in public
        )
        if not same or not np.array_equal(release.cell_size, self.first.cell_size):
            raise ValueError(
                "release has another design than the model: it must be a LabelRelease of the same "
                "schema, mechanism and cell sizes"
            )
        return {k: v for k, v in release_data(release).items() if k in self.names}


def _log_share(release: LabelRelease, space: LevelSpace, priors: LabelPriors) -> Any:
    """Log shares, up to a constant in each cell: (cluster, arm, level)."""
    first_look = pilot(release)
    information = np.einsum(
        "ki,cakl,lj->caij", space.contrasts, first_look.information, space.contrasts
    )
    location = first_look.log_share.mean(1) @ space.contrasts
    profile = _profile(release, space, priors, information.sum(1), location)
    effect = _effect(release, space, priors, information.sum(1) / 4)
    contrasts = space.contrasts[None]
    return matvec(contrasts, profile)[:, None, :] + _ARM_SIGN * effect[:, None, :]


def _profile(
    release: LabelRelease, space: LevelSpace, priors: LabelPriors, information: Any, location: Any
) -> Any:
    """Contrasts of log shares that the arms of a cluster have in common: (cluster, contrast)."""
    root = space.profile_root
    mean = pm.Normal("profile_mean", 0, priors.profile_sd, dims="contrast")
    if release.schema.n_clusters == 1:
        return matvec(root, mean)[None]
    spread = pm.LogNormal("cluster_sd", np.log(priors.cluster_sd_median), priors.cluster_sd_spread)
    # in these coordinates the prior of a row has independent parts
    sd = np.hypot(priors.profile_sd, priors.cluster_sd_median)
    precision = root.T @ information @ root + np.eye(len(root)) / sd**2
    location = np.linalg.solve(root, location[..., None])[..., 0]
    transform = Whitening(location, whitener(precision))
    profile = pm.Normal(
        "profile", mean, spread, dims=("cluster", "contrast"), default_transform=transform
    )
    return matvec(root, profile)


def _effect(release: LabelRelease, space: LevelSpace, priors: LabelPriors, information: Any) -> Any:
    r"""Log shares of the treated minus those of the controls: (cluster, level).

    What the release says of tilt and shape is correlated, so the shape is sampled with its
    regression on the tilt taken out: :math:`\delta_c + k_c T_c` in place of :math:`\delta_c`.
    """
    length = np.linalg.norm(space.score)
    about_tilt = information[:, 0, 0] * length**2
    if release.schema.n_levels == 2:  # then the tilt is all there is
        return _tilt(release, priors, about_tilt)[:, None] * space.score
    root = space.shape_root
    inner, cross = information[:, 1:, 1:], information[:, 1:, 0] * length @ root
    precision = root.T @ inner @ root + np.eye(len(root)) / priors.shape_sd**2
    slope = np.linalg.solve(precision, cross[..., None])[..., 0]
    tilt = _tilt(release, priors, np.maximum(about_tilt - (slope * cross).sum(-1), 0))
    regressed = pm.Normal(
        "effect_shape_regressed",
        slope * tilt[:, None],
        priors.shape_sd,
        dims=("cluster", "shape_contrast"),
        default_transform=Whitening(np.zeros(cross.shape), whitener(precision)),
    )
    shape = pm.Deterministic(
        "effect_shape", regressed - slope * tilt[:, None], dims=("cluster", "shape_contrast")
    )
    return tilt[:, None] * space.score + matvec(space.contrasts[None, :, 1:] @ root, shape)


def _tilt(release: LabelRelease, priors: LabelPriors, information: Any) -> Any:
    r"""Tilt of each cluster, :math:`T_c \sim N(\bar T, \tau^2)`: (cluster,).

    Sampled as :math:`u_c \sim N(w_c \bar T, \tau^{w_c})`, from which
    :math:`T_c = \bar T + \tau^{1 - w_c} (u_c - w_c \bar T)`: centred (w = 1) where the release
    says much about the cluster, non-centred (w = 0) where it says little.
    """
    mean = pm.Normal("tilt_mean", 0, priors.tilt_sd)
    if release.schema.n_clusters == 1:
        return pm.Deterministic("tilt", mean[None], dims="cluster")
    median = priors.tilt_cluster_sd_median
    spread = pm.LogNormal("tilt_cluster_sd", np.log(median), priors.tilt_cluster_sd_spread)
    known = information * median**2
    weight = pm.Data("tilt_centring", known / (1 + known), dims="cluster")
    offset = pm.Normal("tilt_offset", weight * mean, spread**weight, dims="cluster")
    return pm.Deterministic(
        "tilt", mean + spread ** (1 - weight) * (offset - weight * mean), dims="cluster"
    )
