r"""The likelihood of a label release given the label shares, with the confidential counts out.

Of a cell with shares p the release holds noisy counts and randomised label counts M. Marginally
:math:`M \sim \mathrm{Mult}(n, Q p)`. Given M and p, the N true labels are: of the :math:`M_y` units
with released label y, a share :math:`\kappa_y = (1 - \lambda) p_y / (Q p)_y` kept it; the
:math:`r = \sum_y M_y (1 - \kappa_y)` others have a true label drawn from p. So

.. math::
    E(N \mid M, p) &= M \kappa + r p \\
    \mathrm{Cov}(N \mid M, p) &= \mathrm{diag}(g + r p) - g p' - p g' - h p p' \\
        &= \mathrm{diag}(g + r p) + \tfrac{g g'}{h} - h (p + \tfrac{g}{h}) (p + \tfrac{g}{h})',

with :math:`g = M \kappa (1 - \kappa)` and :math:`h = \sum_y M_y (1 - \kappa_y)^2`: diagonal plus
rank two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.models.noise import low_rank_normal_logp
from dpcausal_bayes.models.small_cells import Cells, cells_of, exact_cells, few_tables
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.simulate import SeededNoise

__all__ = [
    "CountMoments",
    "Routes",
    "count_moments",
    "label_likelihood",
    "noise_variance",
    "release_data",
    "routes",
]

NEGLIGIBLE_VARIANCE = 1e-6  # of one count: below it, noisy counts are the counts
_TINY = 1e-12  # keeps the logarithm of a share that underflows finite


class CountMoments(NamedTuple):
    """Moments of the confidential counts given the released labels and the shares.

    Covariance: diag(variance) + plus plus' - minus minus'. Shapes (..., K).
    """

    mean: Any
    variance: Any
    plus: Any
    minus: Any


def count_moments(share: Any, released: Any, prior: Any, lam: float) -> CountMoments:
    """Moments of N given M and p; plain arithmetic, for arrays and for tensors.

    Parameters
    ----------
    share, released, prior : array or tensor, shape (..., K)
        p, M and the prior of the randomised labels.
    lam : float
    """
    kept_share = (1 - lam) * share / ((1 - lam) * share + lam * prior)
    kept = released * kept_share
    redrawn = released - kept
    total = redrawn.sum(-1, keepdims=True)
    g = kept * (1 - kept_share)
    root_h = (redrawn * (1 - kept_share)).sum(-1, keepdims=True) ** 0.5
    return CountMoments(
        mean=kept + total * share,
        variance=g + total * share,
        plus=g / root_h,
        minus=root_h * share + g / root_h,
    )


def noise_variance(law: Laplace | Gaussian | None, mixing: Any) -> Any:
    r"""Return the variance of the noise given the exponential variables E of a Laplace law.

    :math:`e = \sigma' \sqrt{2 E} z` with z standard normal is continuous Laplace noise; with
    :math:`2 \sigma'^2` the variance of the discrete law, the variance given E is that times E.

    Parameters
    ----------
    law : Laplace or Gaussian
    mixing : array or tensor, or None
        E, for a Laplace law.
    """
    if law is None:
        raise ValueError("law is None: a release without a histogram has no noise to score")
    return law.variance if mixing is None else law.variance * mixing


class Routes(NamedTuple):
    """Which cells, of a flattened (C, 2) array, are handled how.

    Attributes
    ----------
    exact : ndarray of int
        Confidential counts summed out over all possible tables.
    normal : ndarray of int
        Confidential counts integrated out as normal given the labels.
    labels_only : ndarray of int
        No histogram: the labels are multinomial.
    known : ndarray of int
        Noise too small to matter: the noisy counts are the counts.
    """

    exact: NDArray[np.int64]
    normal: NDArray[np.int64]
    labels_only: NDArray[np.int64]
    known: NDArray[np.int64]


def routes(cells: Cells) -> Routes:
    """Sort the cells that hold units by the way their confidential counts are removed."""
    occupied = np.flatnonzero(cells.size)
    none = occupied[:0]
    law = cells.mechanism.noise_law
    if cells.noisy is None or law is None:
        return Routes(none, none, occupied, none)
    known = none
    if law.variance < NEGLIGIBLE_VARIANCE:
        plausible = (cells.noisy.min(-1) >= 0) & (cells.noisy.sum(-1) == cells.size)
        known = occupied[plausible[occupied]]
    exact = np.setdiff1d(few_tables(cells), known)
    normal = np.setdiff1d(occupied, np.concatenate([known, exact]))
    return Routes(exact, normal, none, known)


def release_data(release: LabelRelease) -> dict[str, NDArray[np.float64]]:
    """Everything in the likelihood that another release of the same design would change.

    Returns
    -------
    dict
        ``released`` (query,), ``label_prior`` (2 C, K) and ``exact_log_weight`` (J, T).
    """
    cells = cells_of(release)
    parts = [cells.released] if cells.noisy is None else [cells.noisy, cells.released]
    chosen = np.isin(few_tables(cells), routes(cells).exact)
    return {
        "released": np.concatenate([part.ravel() for part in parts]).astype(float),
        "label_prior": cells.prior,
        "exact_log_weight": exact_cells(cells).log_weight[chosen],
    }


def label_likelihood(release: LabelRelease, share: Any, *, noise_aware: bool) -> Any:
    """Add the observed node ``release`` (query) to the model on the context stack.

    Parameters
    ----------
    release : LabelRelease
    share : tensor, shape (C, 2, K)
    noise_aware : bool
        False takes the released labels for true labels.

    Returns
    -------
    tensor
        The observed variable: noisy counts (if any), then counts of the randomised labels.
    """
    model = pm.modelcontext(None)
    pm.Data("noise_aware", float(noise_aware))
    schema, noisy = release.schema, release.noisy_counts
    cells = [f"{cluster}|{arm}" for cluster in schema.clusters for arm in schema.arms]
    data = release_data(release)
    kinds = ["labels"] if noisy is None else ["histogram", "labels"]
    model.add_coord(
        "query",
        [f"{kind}|{cell}|{y}" for kind in kinds for cell in cells for y in schema.level_labels],
    )
    scored = _Scored(release, data) if noise_aware else None
    size = np.tile(np.repeat(release.cell_size.ravel(), schema.n_levels), len(kinds))
    parameters, signature = [size.astype(float), share], "(q),(c,a,k)"
    if scored is not None and scored.is_mixture:
        model.add_coord("cell", [cells[j] for j in scored.routes.normal])
        parameters.append(pm.Exponential("noise_mixing", 1, dims=("cell", "level")))
        signature += ",(j,k)"
    return pm.CustomDist(
        "release",
        *parameters,
        logp=_naive_logp(schema.n_levels) if scored is None else scored.logp,
        random=_Replicate(release.mechanism, release.cell_size, noise_aware),
        signature=f"{signature}->(q)",
        observed=pm.Data("released", data["released"], dims="query"),
        dims="query",
    )


class _Scored:
    """The log-density of a release, one term for each route."""

    def __init__(self, release: LabelRelease, data: dict[str, NDArray[np.float64]]) -> None:
        cells = cells_of(release)
        self.routes = routes(cells)
        self.lam = release.mechanism.lam
        self.law = release.mechanism.noise_law
        self.n_levels = release.schema.n_levels
        if len(self.routes.normal) or len(self.routes.labels_only):
            self.prior = pm.Data("label_prior", data["label_prior"])
        if len(self.routes.exact):
            exact = exact_cells(cells)
            self.exact_counts = exact.counts[np.isin(exact.cell, self.routes.exact)]
            self.exact_log_weight = pm.Data("exact_log_weight", data["exact_log_weight"])

    @property
    def is_mixture(self) -> bool:
        return len(self.routes.normal) > 0 and isinstance(self.law, Laplace)

    def logp(self, value: Any, size: Any, share: Any, mixing: Any = None) -> Any:
        share = share.reshape((-1, self.n_levels)) + _TINY
        cells = value.reshape((-1, share.shape[0], self.n_levels))
        noisy, released = cells[0], cells[-1]
        total = pt.zeros(())
        if len(self.routes.exact):
            total += self._exact(share[self.routes.exact]).sum()
        if len(self.routes.normal):
            j = self.routes.normal
            total += self._normal(noisy[j], released[j], share[j], self.prior[j], mixing).sum()
        if len(self.routes.labels_only):
            j = self.routes.labels_only
            total += (released[j] * self._log_released_share(share[j], self.prior[j])).sum()
        if len(self.routes.known):
            total += (noisy[self.routes.known] * pt.log(share[self.routes.known])).sum()
        return total

    def _exact(self, share: Any) -> Any:
        log_share = pt.log(share)[:, None, :]
        return pt.logsumexp(
            (self.exact_counts * log_share).sum(-1) + self.exact_log_weight, axis=-1
        )

    def _normal(self, noisy: Any, released: Any, share: Any, prior: Any, mixing: Any) -> Any:
        moments = count_moments(share, released, prior, self.lam)
        noise = noise_variance(self.law, mixing)
        labels = (released * self._log_released_share(share, prior)).sum(-1)
        return labels + low_rank_normal_logp(
            noisy - moments.mean,
            (moments.variance + noise)[:, :, None, None],
            pt.stack([moments.plus, moments.minus], axis=-1),
            np.array([1.0, -1.0]),
        )

    def _log_released_share(self, share: Any, prior: Any) -> Any:
        return pt.log((1 - self.lam) * share + self.lam * prior)


def _naive_logp(n_levels: int) -> Any:
    """Score the randomised labels as if they were true."""

    def logp(value: Any, size: Any, share: Any) -> Any:
        share = share.reshape((-1, n_levels)) + _TINY
        return (value.reshape((-1, share.shape[0], n_levels))[-1] * pt.log(share)).sum()

    return logp


class _Replicate:
    """Draw a whole release given the shares: the mechanism itself, on counts."""

    def __init__(
        self, mechanism: ClusterDP, cell_size: NDArray[np.int64], noise_aware: bool
    ) -> None:
        self.mechanism, self.cell_size, self.noise_aware = mechanism, cell_size, noise_aware

    def __call__(
        self,
        size_of_query: Any,
        share: Any,
        *mixing: Any,
        rng: np.random.Generator,
        size: Any = None,
    ) -> NDArray[np.float64]:
        # noise is drawn afresh: `noise_mixing` belongs to the noise of the release at hand
        counts = rng.multinomial(self.cell_size, share)
        law = self.mechanism.noise_law
        noisy = None if law is None else counts + SeededNoise(rng).integers(law, counts.shape)
        if not self.noise_aware:
            released = counts
        else:
            channel = self.mechanism.channel(self.mechanism.prior(noisy, self.cell_size))
            flow = rng.multinomial(counts, np.swapaxes(channel, -1, -2))  # (c, a, true, released)
            released = flow.sum(-2)
        parts = [released] if noisy is None else [noisy, released]
        return np.concatenate([part.ravel() for part in parts]).astype(float)
