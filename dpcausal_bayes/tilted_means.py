r"""Means of the outcome over covariates, under a maximum-entropy law, without listing covariates.

Under arm t the outcome's mean depends on x through one number only, :math:`S = \sum_g
\eta_{tg}(x_g)`:

.. math:: m_t(S) = \sum_y y\,e^{b_t(y) + y S} \Big/ \sum_y e^{b_t(y) + y S} .

On the range that S can have, :math:`m_t` is written as a trigonometric sum
:math:`\sum_k c_k e^{i \omega_k S}` of twice the range's period, by least squares. The mean of each
term over independent groups is a product over groups, so that given an arm a, an outcome y and, if
wanted, one group's level,

.. math:: \mathrm{E}[m_t(S) \mid a, y] =
    \sum_k c_k \prod_g \sum_l p(x_g = l \mid a, y)\, e^{i \omega_k \eta_{tgl}} .

That is the sum over all x, to the error of the trigonometric sum, which is measured between the
points that it was fitted at and returned: it is at most that of any mean. Terms are added until the
error is below 1e-6 of the outcome's half width, or there are 257.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.maxent_laws import MaxentForm, MaxentLaw, maxent_law

__all__ = ["StratumMeans", "law_means", "stratum_means"]

Array = NDArray[np.float64]

ERROR = 1e-6
TERMS = (16, 32, 64, 128, 256)
MOST_NUMBERS = 4_000_000  # in an array at a time


class StratumMeans(NamedTuple):
    """What all records, and each stratum of each group, have on average.

    Attributes
    ----------
    mean : ndarray, shape (..., 2, 2, 1 + L)
        Outcome under an arm (second axis), of those assigned to an arm (first axis).
    weight : ndarray, shape (..., 2, 1 + L)
        Share of the population, by the arm assigned.
    error : float
        Largest error of a mean.
    """

    mean: Array
    weight: Array
    error: float


def stratum_means(form: MaxentForm, c: Array) -> StratumMeans:
    """Return mean potential outcomes, on [-1, 1], of the laws that coefficients make.

    Parameters
    ----------
    form : MaxentForm
    c : ndarray, shape (N, K)
    """
    groups, levels = form.contrasts.shape[:2]
    step = max(1, MOST_NUMBERS // (max(groups, 4) * TERMS[0] * (len(form.grid) + levels)))
    parts = [law_means(form, maxent_law(form, c[i : i + step])) for i in range(0, len(c), step)]
    return StratumMeans(
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.weight for part in parts]),
        max(part.error for part in parts),
    )


def law_means(
    form: MaxentForm, law: MaxentLaw, *, power: int = 1, terms: tuple[int, ...] = TERMS
) -> StratumMeans:
    """Return mean potential outcomes of some laws, or means of their squares.

    Covariates are those of a law's two tables, outcomes those of its tilts and base: these may be
    of different laws.

    Parameters
    ----------
    form : MaxentForm
    law : MaxentLaw
        Of arrays with one leading axis.
    power : 1 or 2
        Of the outcome.
    terms : tuple of int
        Numbers of terms; where a sum of few will not do, the next are taken.
    """
    values = form.grid**power
    kept = np.arange(form.contrasts.shape[1]) < form.sizes[:, None]
    share = law.cell / law.cell.sum(-1, keepdims=True)  # p(y | a)
    of_level = (law.level @ share[..., None, :, None])[..., 0]  # p(x_g | a), (S, 2, G, L)
    first = law.cell.sum(-1)[..., None]
    weight = np.concatenate([first, first * of_level[..., kept]], axis=-1)
    mean = np.zeros((len(weight), 2, *weight.shape[1:]))
    sums = []
    for t in range(2):
        place, centre, half = _places(law.tilt[:, t], kept)
        sums.append((place, *_series(form.grid, values, law.base[:, t], centre, half, terms[0])))
    error = np.maximum(sums[0][2], sums[1][2])
    done = (error < ERROR) | (len(terms) == 1)
    worst = float(error[done].max(initial=0.0))
    for t, (place, coefficients, _) in enumerate(sums):
        phase = np.exp(0.5j * np.pi * place[done, ..., None] * np.arange(terms[0] + 1))
        for a in range(2):
            own = (law.level[done, a], share[done, a], of_level[done, a])
            mean[done, a, t] = _averaged(*own, phase, coefficients[done], kept)
    if not done.all():
        left = MaxentLaw(*(part[~done] for part in law))
        rest = law_means(form, left, power=power, terms=terms[1:])
        mean[~done], worst = rest.mean, max(worst, rest.error)
    return StratumMeans(mean, weight, worst)


def _places(tilt: Array, kept: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Return levels' parts (S, G, L) of a place in [-1, 1], and its centre and half range (S,)."""
    low = np.where(kept, tilt, np.inf).min(-1)
    high = np.where(kept, tilt, -np.inf).max(-1)
    half = np.maximum(0.5 * (high - low).sum(-1), 1e-6)
    place = (tilt - 0.5 * (high + low)[..., None]) / half[:, None, None]
    return np.where(kept, place, 0.0), 0.5 * (high + low).sum(-1), half


def _series(
    grid: Array, values: Array, base: Array, centre: Array, half: Array, terms: int
) -> tuple[NDArray[np.complex128], Array]:
    """Return the trigonometric sums (S, terms) of an arm's means, and their errors (S,)."""

    def mean_at(place: Array) -> Array:
        tilt = centre[:, None] + half[:, None] * place
        logit = base[:, None, :] + tilt[..., None] * grid
        chance = np.exp(logit - logit.max(-1, keepdims=True))
        return (chance @ values) / chance.sum(-1)

    nodes, inverse, between, basis = _basis(terms)
    both = mean_at(nodes) @ inverse.T
    error = np.abs(mean_at(between) - both @ basis.T).max(-1)
    cosine, sine = both[:, : terms + 1], both[:, terms + 1 :]
    sine = np.concatenate([np.zeros((len(sine), 1)), sine], axis=1)
    return cosine - 1j * sine, error


@functools.lru_cache(maxsize=len(TERMS))
def _basis(terms: int) -> tuple[Array, Array, Array, Array]:
    """Return points, what makes a sum of values there, points between them, and the sum's terms."""
    points = np.linspace(-1, 1, 8 * terms + 1)
    nodes, between = points[::2], points[1::2]

    def at(place: Array) -> Array:
        angle = 0.5 * np.pi * place[:, None] * np.arange(terms + 1)
        return np.concatenate([np.cos(angle), np.sin(angle[:, 1:])], axis=1)

    # a smaller cut would let rounding in
    return nodes, np.linalg.pinv(at(nodes), rcond=1e-10), between, at(between)


def _averaged(
    level: Array, share: Array, of_level: Array, phase: NDArray[np.complex128],
    coefficients: NDArray[np.complex128], kept: NDArray[np.bool_],
) -> Array:  # fmt: skip
    """Return means (S, 1 + L) over those of an arm: all, and each level of each group."""
    factor = np.swapaxes(phase, -1, -2) @ level  # (S, G, terms, Y)
    before, after = np.ones_like(factor), np.ones_like(factor)
    np.cumprod(factor[:, :-1], axis=1, out=before[:, 1:])
    after[:, :-1] = np.cumprod(factor[:, :0:-1], axis=1)[:, ::-1]
    others = before * after * share[:, None, None, :]
    everybody = (others[:, -1] * factor[:, -1]).sum(-1)
    total = (coefficients * everybody).sum(-1).real
    within = level @ np.swapaxes(others, -1, -2)  # (S, G, L, terms)
    sums = (within * phase * coefficients[:, None, None, :]).sum(-1).real
    by_level = sums / np.where(of_level > 0, of_level, 1.0)
    return np.concatenate([total[:, None], by_level[:, kept]], axis=-1)
