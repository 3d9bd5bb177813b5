r"""Mean potential outcomes of these very units, under a maximum-entropy model.

Of the units of arm a the outcomes under a are in the table, drawn given the release. Those under
the other arm t are missing: independent given covariates, each from :math:`p(y \mid t, x)`. With
coefficients c and table given, their mean over N units, of a group's stratum or all, is taken as
normal. For a record's contribution h to the moments, and f the missing outcome of a unit of the
stratum, less its mean there, the law of f given the table's moments a is that of a regression of f
on h:

.. math::
    \bar y \sim N\Big(\mathrm{E}_c[m_t(x) \mid a] + D\,\delta, \;\;
        \frac{\mathrm{Var}(f) - D F^{-1} D'}{N}\Big), \qquad
    \delta = (n F)^{-1} J' C^+ (a - n\,m(c)),

with F = J' C^+ J. Here D is the derivative of :math:`\mathrm{E}[m_t(x) \mid a]` in the coefficients
as far as they are the covariates' law, those of the outcome held: in other words, the covariates
are those of the law that has the table's moments. All this is exact for moments that are normal,
but that D, F and the variance are those of the posterior's mean coefficients. Means of the strata
of a group are drawn together; then moved together, so that their average is the arm's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.maxent_table import MaxentTable, cell_moments, fisher
from dpcausal_bayes.models.maxent_laws import MaxentForm, MaxentLaw, maxent_law
from dpcausal_bayes.tilted_means import StratumMeans, law_means
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["unit_means"]

Array = NDArray[np.float64]

STEP = 1e-4  # of a coefficient in its prior scales, for central differences
AT_ONCE = 64  # coefficients whose differences are taken at a time


class _Missing(NamedTuple):
    """Of missing outcomes, by arm assigned: slope (2, 1 + L, K) of their means, and covariances.

    ``covariance``, by arm and then by group, is that of the strata's sums a record, given moments.
    """

    slope: Array
    covariance: list[list[Array]]


def unit_means(
    workload: CausalWorkload,
    form: MaxentForm,
    c: Array,
    drawn: StratumMeans,
    table: MaxentTable,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draw mean outcomes (N, 2, 2, 1 + L) of these units, and their shares (N, 2, 1 + L).

    A cell of which less than half a unit is drawn is empty, and has the law's means. A mean lies
    within the outcome's bounds; a draw that leaves them, in a tiny cell, is put on the bound.

    Parameters
    ----------
    workload : CausalWorkload
    form : MaxentForm
    c : ndarray, shape (N, K)
        Coefficients of each draw.
    drawn : StratumMeans
        Of their laws.
    table : MaxentTable
        Drawn with them.
    rng : numpy.random.Generator
    """
    centre, n = c.mean(0), table.n
    information, score = fisher(form, table.records, centre)
    inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    here = law_means(form, maxent_law(form, centre[None]))
    missing = _missing(form, centre, here, inverse)
    gap = np.concatenate(
        [
            table.moments[i : i + AT_ONCE]
            - n * table.records.mean(maxent_law(form, c[i : i + AT_ONCE]))
            for i in range(0, len(c), AT_ONCE)
        ]
    )
    moved = gap @ (inverse @ score).T / n
    mass, total = cell_moments(workload, table)
    occupied = mass >= 0.5
    mass = np.where(occupied, mass, 0.0)
    units = np.maximum(mass, 1.0)
    mean = drawn.mean.copy()
    for a in range(2):
        own = np.where(occupied[:, a], total[:, a] / units[:, a], mean[:, a, a])
        other = mean[:, a, 1 - a] + moved @ missing.slope[a].T
        error = _errors(form, missing.covariance[a], len(c), rng)
        other += np.where(occupied[:, a], error / np.sqrt(here.weight[0, a] * units[:, a]), 0.0)
        mean[:, a, a], mean[:, a, 1 - a] = np.clip(own, -1, 1), np.clip(other, -1, 1)
    return _agree(form, mean, mass, drawn.weight)


def _missing(form: MaxentForm, centre: Array, here: StratumMeans, inverse: Array) -> _Missing:
    """Return slopes and covariances at some coefficients."""
    law = maxent_law(form, centre[None])
    step, slopes = STEP * form.scale, []
    for first in range(0, len(centre), AT_ONCE):
        moved = np.diag(step)[first : first + AT_ONCE]
        sides = [_covariates_moved(form, law, centre + way * moved).mean for way in (1, -1)]
        slopes.append((sides[0] - sides[1]) / (2 * step[first : first + AT_ONCE, None, None, None]))
    slope = np.moveaxis(np.concatenate(slopes), 0, -1)  # (2, 2, 1 + L, K)
    variance = law_means(form, law, power=2).mean[0] - here.mean[0] ** 2
    other, covariance = np.stack([slope[a, 1 - a] for a in range(2)]), []
    for a in range(2):
        weight, own = here.weight[0, a], variance[a, 1 - a]
        sums = weight[:, None] * other[a]
        covariance.append(
            [
                np.diag(weight[part] * own[part]) - sums[part] @ inverse @ sums[part].T
                for part in _groups(form)
            ]
        )
    return _Missing(other, covariance)


def _covariates_moved(form: MaxentForm, law: MaxentLaw, c: Array) -> StratumMeans:
    """Return the means of a law's outcomes over the covariates of others."""
    others = maxent_law(form, c)
    tilt, base = (np.broadcast_to(part, (len(c), *part.shape[1:])) for part in law[2:])
    return law_means(form, MaxentLaw(others.cell, others.level, tilt, base))


def _groups(form: MaxentForm) -> list[slice]:
    """Return where all records, then the strata of each group, lie."""
    ends = np.cumsum([1, *form.sizes])
    return [slice(0, 1), *map(slice, ends[:-1], ends[1:])]


def _errors(
    form: MaxentForm, covariance: list[Array], draws: int, rng: np.random.Generator
) -> Array:
    """Draw errors (N, 1 + L) of sums a record; those of each group's strata add up to all's."""
    found: list[Array] = []
    for own in covariance:
        size, vector = np.linalg.eigh(own)
        root = vector * np.sqrt(np.maximum(size, 0))  # rounding may leave a little less than none
        error = rng.standard_normal((draws, len(own))) @ root.T
        if found:
            along = own.sum(0) / max(own.sum(), 1e-300)
            error += (found[0] - error.sum(-1, keepdims=True)) * along
        found.append(error)
    return np.concatenate(found, axis=-1)


def _agree(form: MaxentForm, mean: Array, mass: Array, share: Array) -> tuple[Array, Array]:
    """Return means and shares of which every group's average and sum are those of all units."""
    weight = np.empty(mass.shape)
    nobody = (mass[..., :1] == 0).any(1, keepdims=True)  # an arm that is empty has the law's share
    arm = np.where(nobody, share[..., :1], mass[..., :1])
    weight[..., :1] = arm / arm.sum(1, keepdims=True)
    for part in _groups(form)[1:]:
        within = mass[..., part]
        within = np.where(within.sum(-1, keepdims=True) > 0, within, share[..., part])
        within = within / within.sum(-1, keepdims=True)
        weight[..., part] = weight[..., :1] * within
        average = (mean[..., part] * within[:, :, None]).sum(-1, keepdims=True)
        mean[..., part] += mean[..., :1] - average
    return mean, weight
