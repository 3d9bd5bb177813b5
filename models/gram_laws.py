r"""The second moments of two arms as functions of free coefficients, positive definite always.

Of arm t: its share of the records; means m of the columns of :math:`(\phi, y)`; a factor F, block
by block of a covariate's columns, so that :math:`F F'` holds what the marginal law of each block
says; and rows q of orthonormal blocks. The covariance is :math:`C = (F q)(F q)'`.

*Columns of -1 and +1.* With shares w of a covariate's levels, the first left out, the columns
have means :math:`2 w - 1` and covariance :math:`4 (\mathrm{diag}\,w - w w')`, whose Cholesky factor
is known: with :math:`R_j` the share of the first level and of levels after j, and
:math:`R_j^- = R_j + w_j`, it has :math:`2\sqrt{w_j R_j / R_j^-}` on its diagonal and
:math:`-2 w_i \sqrt{w_j / (R_j R_j^-)}` below.

*Numeric columns* are alike, as of one free level, and have the share r of the variance
:math:`1 - m^2 = 4 w (1 - w)`.

*Rows.* A block of columns has free rows Z on all columns of blocks before it. The rows of (Z, I)
made orthonormal one after the other are q; of one column that is z over
:math:`\sqrt{1 + |z|^2}`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.models.priors import GramPriors
from dpcausal_bayes.models.whitening import matvec

__all__ = ["GramForm", "GramLaw", "covariance", "gram_form", "gram_law"]


class GramForm(NamedTuple):
    """How K coefficients make the moments of (phi, y), and what the prior says of each.

    Attributes
    ----------
    block : ndarray of int, shape (p,)
        Which covariate a column is of.
    numeric : ndarray of bool, shape (p,)
    place : ndarray of int, shape (Z, 2)
        Row and column of each entry of the free rows.
    pairs : ndarray of int, shape (Q / 2, 2)
        The factors, in (1, phi, y), of each query of an arm.
    centre, scale : ndarray, shape (K,)
        Prior location and scale.
    tails : ndarray, shape (G, K)
        Which coefficients are jointly Student t: ones in a row. The others are normal.
    degrees : float
        Their degrees of freedom.
    labels : tuple of str
    """

    block: NDArray[np.int64]
    numeric: NDArray[np.bool_]
    place: NDArray[np.int64]
    pairs: NDArray[np.int64]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    tails: NDArray[np.float64]
    degrees: float
    labels: tuple[str, ...]

    @property
    def start(self) -> NDArray[np.int64]:
        """First column of each column's block, shape (p,)."""
        return np.searchsorted(self.block, self.block)


class GramLaw(NamedTuple):
    """Shares (..., 2), means (..., 2, p), factors (..., 2, p, p) and free rows (..., Z) twice."""

    share: Any
    mean: Any
    factor: Any
    common: Any
    difference: Any


def gram_form(workload: GramWorkload, priors: GramPriors) -> GramForm:
    """Lay out the coefficients.

    Parameters
    ----------
    workload : GramWorkload
    priors : GramPriors
    """
    block, numeric = workload.block, workload.numeric
    place = np.argwhere(block[:, None] > block)
    names = workload.columns
    outcome = place[:, 0] == len(block) - 1
    shared = 1 / np.sqrt(np.searchsorted(block, block)[place[:, 0]])  # by the entries of a row
    arms = workload.schema.arms
    parts: list[tuple[list[str], float, Any]] = [
        (["arm"], 0.0, priors.share_sd),
        ([f"location {name}|{arm}" for arm in arms for name in names], 0.0, priors.location_sd),
        (
            [
                f"dispersion {name}|{arm}"
                for arm in arms
                for name, wanted in zip(names, numeric, strict=True)
                if wanted
            ],
            priors.dispersion_centre,
            priors.dispersion_sd,
        ),
        (
            [f"row {names[i]}, {names[j]}" for i, j in place],
            0.0,
            shared * np.where(outcome, priors.outcome_sd, priors.row_sd),
        ),
        (
            [f"row difference {names[i]}, {names[j]}" for i, j in place],
            0.0,
            shared * np.where(outcome, priors.outcome_difference_sd, priors.row_difference_sd),
        ),
    ]
    total = sum(len(labels) for labels, _, _ in parts)
    column = np.append(np.full(total - 2 * len(place), -1), np.tile(place[:, 0], 2))
    return GramForm(
        block=block,
        numeric=numeric,
        place=place,
        pairs=workload.pairs,
        centre=np.concatenate([np.full(len(labels), centre) for labels, centre, _ in parts]),
        scale=np.concatenate([np.broadcast_to(sd, len(labels)) for labels, _, sd in parts]),
        tails=(np.unique(place[:, 0])[:, None] == column).astype(float),
        degrees=priors.degrees,
        labels=tuple(label for labels, _, _ in parts for label in labels),
    )


def gram_law(form: GramForm, c: Any, xp: Any) -> GramLaw:
    """Return what coefficients make.

    Parameters
    ----------
    form : GramForm
    c : array, shape (..., K), or tensor, shape (K,)
    xp : module
        numpy or pytensor.tensor.
    """
    p, d, z = len(form.block), int(form.numeric.sum()), len(form.place)
    lead = c.shape[:-1] if xp is np else ()
    ends = np.cumsum([1, 2 * p, 2 * d, z, z])
    first, location, dispersion, common, difference = (
        c[..., end - size : end] for end, size in zip(ends, [1, 2 * p, 2 * d, z, z], strict=True)
    )
    treated = 1 / (1 + xp.exp(-first))
    share = xp.concatenate([1 - treated, treated], axis=-1)
    same = form.block[:, None] == form.block
    below = np.tril(same, -1)
    odds = xp.exp(location.reshape((*lead, 2, p)))
    total = 1 + matvec(same.astype(float), odds)
    w = odds / total
    rest = (1 + matvec(below.T.astype(float), odds)) / total
    rest_before = rest + w
    where = np.eye(p)[:, form.numeric]
    r = 1 / (1 + xp.exp(-dispersion.reshape((*lead, 2, d))))
    share_of_variance = matvec(where, r) + ~form.numeric
    diagonal = 2 * xp.sqrt(w * rest / rest_before * share_of_variance)
    lower = -2 * w[..., :, None] * xp.sqrt(w / (rest * rest_before))[..., None, :]
    factor = np.eye(p) * diagonal[..., None, :] + below * lower
    return GramLaw(share, 2 * w - 1, factor, common, difference)


def covariance(form: GramForm, law: GramLaw) -> NDArray[np.float64]:
    """Return the covariances (..., 2, p, p) of the columns, from arrays.

    Parameters
    ----------
    form : GramForm
    law : GramLaw
    """
    lead, p = law.mean.shape[:-2], len(form.block)
    free = np.zeros((*lead, 2, p, p))
    half = np.stack([law.common - law.difference, law.common + law.difference], axis=-2)
    free[..., form.place[:, 0], form.place[:, 1]] = half
    root = np.zeros_like(free)
    for first in np.unique(form.start):
        own = np.flatnonzero(form.start == first)
        rows = free[..., own, :]
        rows[..., np.arange(len(own)), own] = 1.0
        if len(own) == 1:
            root[..., own, :] = rows / np.sqrt((rows**2).sum(-1, keepdims=True))
        else:
            lower = np.linalg.cholesky(rows @ np.swapaxes(rows, -1, -2))
            root[..., own, :] = np.linalg.solve(lower, rows)
    root = law.factor @ root
    return root @ np.swapaxes(root, -1, -2)
