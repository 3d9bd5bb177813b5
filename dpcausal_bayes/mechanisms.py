r"""Noise laws and the Cluster-DP mechanism: parameters, densities, privacy loss.

One object states the law once. The custodian draws from it; the analyst's model scores with it.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from dpcausal_bayes import accounting
from dpcausal_bayes.accounting import PrivacyLoss
from dpcausal_bayes.budget import split_budget
from dpcausal_bayes.laws import Gaussian, Laplace, noise_scale, number
from dpcausal_bayes.schema import Schema

__all__ = ["ClusterDP", "Gaussian", "Laplace", "PrivacyLoss"]


class ClusterDP(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, kw_only=True):
    r"""Cluster-DP: a noisy histogram per cell, then each label randomised towards it.

    In a cell (cluster, arm) of n units with label counts N:

    1. noisy counts :math:`N + e`, with e discrete Laplace or Gaussian of scale sigma;
    2. :math:`q = (N + e)/n` becomes the prior :math:`\tilde q \ge \gamma` (see `prior`);
    3. each unit keeps its label with probability :math:`1-\lambda`, else draws from
       :math:`\tilde q`.

    Released: the noisy counts and the randomised labels. With ``gamma = 1/K`` the prior is uniform
    and no histogram is released or paid for (Uniform-Prior-DP); with one cluster in the schema this
    is Cluster-Free-DP.

    Parameters
    ----------
    lam : float
        Probability lambda that a label is redrawn, in (0, 1).
    sigma : float or None
        Scale of the histogram's noise in counts; ``None`` if and only if ``gamma`` is ``1/K``.
    gamma : float
        Floor of the prior, in (0, 1/K].
    noise : type
        The class `Laplace` (pure differential privacy) or `Gaussian`.
    delta : float
        The delta at which `loss` states the privacy loss unless told otherwise.
    note : str
        How the parameters were chosen; `calibrated` writes it.

    Raises
    ------
    TypeError, ValueError
        A parameter outside its range; the message names it.

    References
    ----------
    Javanmard, Mirrokni and Pouget-Abadie (2025), "Improving the variance of differentially private
    randomized experiments through clustering", arXiv:2308.00957.

    Examples
    --------
    >>> mechanism = ClusterDP(lam=0.5, sigma=4.0, gamma=0.1)
    >>> print(mechanism.loss())
    2.8979-DP, 1.26232-zCDP; neighbours: replace one label
    >>> mechanism.prior([30, -4, 14], 40).round(3)
    array([0.606, 0.1  , 0.294])
    """

    lam: float
    sigma: float | None
    gamma: float
    noise: type = Laplace
    delta: float = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        for field in ("lam", "gamma", "delta"):
            force_setattr(self, field, number(getattr(self, field), f"ClusterDP.{field}"))
        if not accounting.SMALLEST_LAM <= self.lam < 1:
            raise ValueError(
                f"ClusterDP.lam is {self.lam}: it must lie strictly between 0 (labels as they are) "
                "and 1 (no labels), and not below 2**-64, the sampler's resolution"
            )
        if not accounting.SMALLEST_GAMMA <= self.gamma <= 0.5:
            raise ValueError(
                f"ClusterDP.gamma is {self.gamma}: the floor must be in (0, 1/K], with K >= 2 "
                "levels, and at least 2**-40"
            )
        if not 0 <= self.delta < 1:
            raise ValueError(f"ClusterDP.delta is {self.delta}: it must be in [0, 1)")
        if self.noise not in (Laplace, Gaussian):
            raise TypeError(
                f"ClusterDP.noise is {self.noise!r}: pass the class Laplace or the class Gaussian"
            )
        if self.sigma is not None:
            force_setattr(self, "sigma", noise_scale(self.sigma, "ClusterDP.sigma"))
        if not isinstance(self.note, str):
            raise TypeError(f"ClusterDP.note is {self.note!r}: it must be text")

    def __repr__(self) -> str:
        shown = [f"lam={self.lam!r}", f"sigma={self.sigma!r}", f"gamma={self.gamma!r}"]
        if self.sigma is not None:
            shown.append(f"noise={self.noise.__name__}")
        if self.delta:
            shown.append(f"delta={self.delta!r}")
        if self.note:
            shown.append(f"note={self.note!r}")
        return f"ClusterDP({', '.join(shown)})"

    @classmethod
    def calibrated(
        cls,
        schema: Schema,
        *,
        epsilon: float,
        histogram_share: float = 0.5,
        floor: float = 0.5,
        noise: type = Laplace,
        delta: float | None = None,
    ) -> ClusterDP:
        r"""Choose the parameters that spend a total budget.

        The labels get :math:`\varepsilon_\ell` = (1 - share) epsilon, so that
        :math:`\lambda = 1 / (1 + \gamma (e^{\varepsilon_\ell} - 1))`. Laplace noise on the
        histogram gets the rest, :math:`\sigma = 2 / (\text{share}\,\varepsilon)`, and the total is
        pure. Gaussian noise gets the smallest sigma for which the whole release is
        (epsilon, delta)-DP.

        Parameters
        ----------
        schema : Schema
            For the number of levels K.
        epsilon : float
            Total budget, positive.
        histogram_share : float
            Share of the budget for the histogram, in (0, 1). Unused with ``floor=1``.
        floor : float
            ``gamma`` in units of 1/K, in (0, 1]. At 1 the prior is uniform, there is no histogram,
            and the labels get everything.
        noise : type
            `Laplace` or `Gaussian`.
        delta : float, optional
            Total delta; needed by, and only by, Gaussian noise.

        Returns
        -------
        ClusterDP
            Its ``note`` says how the budget was split.

        Examples
        --------
        >>> from dpcausal_bayes.columns import Arm, Levels
        >>> schema = Schema(arm=Arm("any", control=0, treated=1), outcome=Levels("got", [0, 1]))
        >>> ClusterDP.calibrated(schema, epsilon=1.0).note
        'epsilon 1 split: histogram 0.5 (sigma 4), labels 0.5 (lam 0.860452)'
        """
        parameters = split_budget(
            schema.n_levels,
            epsilon=epsilon,
            share=histogram_share,
            floor=floor,
            noise=noise,
            delta=delta,
        )
        return cls(**parameters)

    def check(self, n_levels: int) -> None:
        """Raise unless the mechanism fits an outcome of ``n_levels`` levels.

        Parameters
        ----------
        n_levels : int
            K.

        Raises
        ------
        ValueError
            ``gamma`` above 1/K, a histogram at 1/K, or none below it.
        """
        uniform = 1 / n_levels
        if self.gamma > uniform:
            raise ValueError(
                f"ClusterDP.gamma is {self.gamma}: with {n_levels} levels a floor above 1/K = "
                f"{uniform} cannot hold for all of them; lower gamma"
            )
        if self.gamma == uniform and self.sigma is not None:
            raise ValueError(
                f"ClusterDP.sigma is {self.sigma}: no histogram is released at gamma = 1/K = "
                f"{uniform}; pass sigma=None, or a smaller gamma"
            )
        if self.gamma < uniform and self.sigma is None:
            raise ValueError(
                f"ClusterDP.sigma is None, which means a uniform prior, but gamma is {self.gamma}: "
                f"pass gamma=1/{n_levels}, or a sigma"
            )

    @property
    def noise_law(self) -> Laplace | Gaussian | None:
        """The law of the histogram's noise, or ``None`` where no histogram is released."""
        return None if self.sigma is None else self.noise(self.sigma)

    @property
    def epsilon_histogram(self) -> float | None:
        """Pure loss of the histogram: 2/sigma, 0 without one, ``None`` for Gaussian noise."""
        if self.sigma is None:
            return 0.0
        return 2 / self.sigma if self.noise is Laplace else None

    @property
    def epsilon_label(self) -> float:
        r"""Pure loss of the labels, :math:`\log(1 + (1-\lambda)/(\lambda\gamma))`."""
        return accounting.channel_epsilon(self.lam, self.gamma)

    def loss(self, delta: float | None = None) -> PrivacyLoss:
        """State the privacy loss for replacing one label.

        Parameters
        ----------
        delta : float, optional
            The delta of the tight (epsilon, delta) statement; the default is the mechanism's own.

        Returns
        -------
        PrivacyLoss

        Raises
        ------
        ValueError
            Gaussian noise with delta 0, which has no finite epsilon.
        """
        delta = self.delta if delta is None else number(delta, "delta")
        if not 0 <= delta < 1:
            raise ValueError(f"delta is {delta}: it must be in [0, 1)")
        histogram = self.epsilon_histogram
        pure = None if histogram is None else histogram + self.epsilon_label
        rho = self._histogram_rho() + accounting.channel_rho(self.lam, self.gamma)
        if delta == 0:
            if pure is None:
                raise ValueError(
                    "delta is 0, but a histogram with Gaussian noise has no pure epsilon: set "
                    "delta above 0, or noise=Laplace"
                )
            return PrivacyLoss(pure_epsilon=pure, rho=rho, epsilon=pure, delta=0.0)
        upper = min(accounting.epsilon_from_rho(rho, delta), math.inf if pure is None else pure)
        losses = self._losses()
        tight = upper if losses is None else accounting.epsilon_at(losses, delta, upper)
        return PrivacyLoss(pure_epsilon=pure, rho=rho, epsilon=tight, delta=delta)

    def prior(self, noisy_counts: ArrayLike | None, size: ArrayLike) -> NDArray[np.float64]:
        r"""Return the prior that lost labels are redrawn from.

        With :math:`u = \max(q - \gamma, 0)`,
        :math:`\tilde q = \gamma + (1 - K\gamma)\, u / \sum u`, uniform where :math:`\sum u = 0`:
        the floor holds after normalising, which clipping and then dividing would break.

        Parameters
        ----------
        noisy_counts : array_like, shape (..., K), or None
            As released, negative ones included; ``None`` if no histogram is released.
        size : array_like, shape (...)
            Units in each cell. A cell of no units has the uniform prior.

        Returns
        -------
        ndarray, shape (..., K)
            At least ``gamma`` everywhere; sums to one.
        """
        share = self.excess(noisy_counts, size)
        n_levels = share.shape[-1]
        if self.sigma is None:
            return np.full(share.shape, 1 / n_levels)
        return self.gamma + (1 - n_levels * self.gamma) * share

    def excess(self, noisy_counts: ArrayLike | None, size: ArrayLike) -> NDArray[np.float64]:
        r"""Return :math:`u / \sum u`: how the prior mass above the floor is shared, (..., K)."""
        size = np.asarray(size)
        if self.sigma is None:
            n_levels = round(1 / self.gamma)
            return np.full((*size.shape, n_levels), 1 / n_levels)
        if noisy_counts is None:
            raise ValueError("noisy_counts is None, but this mechanism (sigma given) releases them")
        counts = np.asarray(noisy_counts, dtype=float)
        if counts.ndim != size.ndim + 1 or counts.shape[:-1] != size.shape:
            raise ValueError(
                f"noisy_counts has shape {counts.shape}, size has {size.shape}: noisy_counts must "
                "have one more axis than size, the levels, last"
            )
        if not np.all(np.isfinite(counts)) or np.any(size < 0):
            raise ValueError("noisy_counts must be finite and size not negative")
        n_levels = counts.shape[-1]
        self.check(n_levels)
        known = size > 0
        q = counts / np.where(known, size, 1)[..., None]
        u = np.where(known[..., None], np.maximum(q - self.gamma, 0), 0)
        total = u.sum(axis=-1, keepdims=True)
        return np.where(total > 0, u / np.where(total > 0, total, 1), 1 / n_levels)

    def channel(self, prior: ArrayLike) -> NDArray[np.float64]:
        r"""Return :math:`Q[y', y] = (1-\lambda) 1\{y'=y\} + \lambda \tilde q(y')`.

        Parameters
        ----------
        prior : array_like, shape (..., K)
            From `prior`.

        Returns
        -------
        ndarray, shape (..., K, K)
            Axes: released label, true label. Columns (over released labels) sum to one.

        Examples
        --------
        >>> ClusterDP(lam=0.5, sigma=4.0, gamma=0.1).channel([0.75, 0.25])
        array([[0.875, 0.375],
               [0.125, 0.625]])
        """
        prior = np.asarray(prior, dtype=float)
        keep = (1 - self.lam) * np.eye(prior.shape[-1])
        return keep + self.lam * prior[..., :, None]

    def _histogram_rho(self) -> float:
        if self.sigma is None:
            return 0.0
        if self.noise is Laplace:  # two counts, each exactly randomised response
            return 2 * accounting.randomised_response_rho(1 / self.sigma)
        return 1 / self.sigma**2  # squared L2 sensitivity 2

    def _losses(self) -> accounting.Losses | None:
        """Return the exact loss of both steps, or ``None`` where it is too long to sum."""
        channel = accounting.channel_losses(self.lam, self.gamma)
        if self.sigma is None:
            return channel
        if self.noise is Laplace:
            return accounting.compose(accounting.laplace_losses(self.sigma), channel)
        if self.sigma > accounting.LARGEST_SUMMED_SCALE:
            return None
        return accounting.compose(accounting.gaussian_losses(self.sigma), channel)
