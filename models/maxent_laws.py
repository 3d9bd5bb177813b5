r"""Maximum-entropy laws of a record whose groups of covariates are released apart, first order.

With masses, outcome sums and squares by arm given, the law of largest entropy is

.. math::
    p(t, x, y) \propto \exp\Big(\beta_t y - \tfrac{\kappa_t}{2} y^2
        + \sum_g \theta_{tg}(x_g) + y\,\eta_{tg}(x_g)\Big), \qquad y \text{ on a public grid}:

given arm and outcome the groups are independent. So a law is two small tables,
:math:`p(t, y)` and :math:`p(x_g \mid t, y)`, and no sum over all x is ever taken.

*Coordinates.* :math:`q_t(y) \propto \exp(\beta_t y - \kappa_t y^2/2)` has mean :math:`c_t` and
variance :math:`V_t`. Tilts are written :math:`\eta = d / (V_t + h^2/12)`, h the grid's step, so
that d is about what a level's mean outcome differs by from the arm's; :math:`\theta` are log shares
at :math:`y = c_t`. The family is the same with

.. math::
    p(y \mid t) \propto q_t(y) \prod_g Z_{tg}(y)\,
        e^{-(y - c_t) k_{tg} - (y - c_t)^2 v_{tg} / 2}, \qquad
    Z_{tg}(y) = \sum_l w_{tgl}\, e^{(y - c_t) \eta_{tgl}},

w = softmax(:math:`\theta`), k and v the mean and variance of :math:`\eta` under w: the terms added
to :math:`\beta` and :math:`\kappa` take away what the Z do to the first two moments, so that the
arms' own moments stay near those of :math:`q_t` whatever the number of groups. For two outcome
levels :math:`p(y \mid t) = q_t(y)` exactly, :math:`\kappa = 0` and :math:`\eta = d`.

Arrays have arms, groups, levels and grid points as their last axes, in this order; groups of fewer
levels than the largest are padded with levels of no mass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert

from dpcausal_bayes.models.maxent_tables import tables
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.workloads import CausalWorkload

__all__ = [
    "MaxentForm",
    "MaxentLaw",
    "maxent_form",
    "maxent_law",
    "maxent_rows",
    "prior_mean",
    "prior_mean_slope",
    "table_law",
]

Array = NDArray[np.float64]


class MaxentForm(NamedTuple):
    """How K coefficients make a law, and what the prior says of each.

    Attributes
    ----------
    grid : ndarray, shape (Y,)
        Values of the outcome, scaled to [-1, 1].
    sizes : ndarray of int, shape (G,)
        Number of levels of each group.
    contrasts : ndarray, shape (G, L, L - 1)
        From each group's coefficients to its levels; padded with zeros.
    binary : bool
    centre, scale : ndarray, shape (K,)
        Prior location, but for what follows; scale.
    parent, slope : ndarray of int, shape (K,)
        What is added to the prior mean: the product of two other coefficients, of an imbalance and
        the slope on it; K for none.
    tails : ndarray, shape (R, K)
        Which coefficients are jointly Student t: ones in a row. A group's imbalances are, and by
        how much its outcomes differ, in both arms: two rows for each group of more than one level.
        The others are normal.
    degrees : float
        Their degrees of freedom.
    labels : tuple of str
    """

    grid: Array
    sizes: NDArray[np.int64]
    contrasts: Array
    binary: bool
    centre: Array
    scale: Array
    parent: NDArray[np.int64]
    slope: NDArray[np.int64]
    tails: Array
    degrees: float
    labels: tuple[str, ...]


class MaxentLaw(NamedTuple):
    """The law of a record.

    Attributes
    ----------
    cell : array, shape (..., 2, Y)
        p(t, y).
    level : array, shape (..., 2, G, L, Y)
        p(x_g | t, y).
    tilt : array, shape (..., 2, G, L)
        eta, by which the outcome's log odds move with a level.
    base : array, shape (..., 2, Y)
        log p(y | t, x) less y times the sum of the tilts, up to a constant.
    """

    cell: Any
    level: Any
    tilt: Any
    base: Any


def maxent_form(workload: CausalWorkload, priors: MaxentPriors, grid: Array) -> MaxentForm:
    """Lay out the coefficients.

    Parameters
    ----------
    workload : CausalWorkload
    priors : MaxentPriors
    grid : ndarray, shape (Y,)
    """
    sizes = np.array([workload.n_strata(g) for g in range(len(workload.groups))])
    names = [", ".join(group) or "all" for group in workload.groups]
    most, terms = int(sizes.max()), int((sizes - 1).sum())
    contrasts = np.zeros((len(sizes), most, most - 1))
    for g, size in enumerate(sizes):
        if size > 1:
            contrasts[g, :size, : size - 1] = helmert(size).T
    group_of = np.repeat(np.arange(len(sizes)), sizes - 1)
    each = [f"{names[g]} {j + 1}" for g, size in enumerate(sizes) for j in range(size - 1)]
    arms = workload.schema.arms
    shape = [] if workload.binary else [f"shape {arm}" for arm in arms]
    blocks = {
        "first": 3 + len(shape),
        "share": terms,
        "imbalance": terms,
        "outcome": 2 * terms,
        "slope": 2 * len(sizes),
    }
    ends = np.cumsum(list(blocks.values()))
    place = {
        name: np.arange(end - size, end)
        for (name, size), end in zip(blocks.items(), ends, strict=True)
    }
    total = int(ends[-1])
    own = group_of == np.arange(len(sizes))[:, None]
    tails = np.zeros((2 * len(sizes), total))
    tails[: len(sizes), place["imbalance"]] = own
    tails[len(sizes) :, place["outcome"]] = np.tile(own, 2)
    tails = tails[tails.any(axis=1)]  # a group of one level has none
    centre, parent, slope = np.zeros(total), np.full(total, total), np.full(total, total)
    centre[place["first"][3:]] = priors.shape_centre
    parent[place["outcome"]] = np.tile(place["imbalance"], 2)
    slope[place["outcome"]] = place["slope"].reshape(2, -1)[:, group_of].ravel()
    first = [priors.propensity_sd, *[priors.mean_sd] * 2, *[priors.shape_sd] * len(shape)]
    scales = {
        "share": priors.share_sd,
        "imbalance": priors.imbalance_scale,
        "outcome": priors.outcome_scale,
        "slope": priors.confounding_sd,
    }
    return MaxentForm(
        grid=grid,
        sizes=sizes,
        contrasts=contrasts,
        binary=workload.binary,
        centre=centre,
        scale=np.concatenate(
            [first, *(np.full(blocks[name], scale) for name, scale in scales.items())]
        ),
        parent=parent,
        slope=slope,
        tails=tails,
        degrees=priors.degrees,
        labels=(
            "arm",
            *(f"location {arm}" for arm in arms),
            *shape,
            *(f"share {name}" for name in each),
            *(f"imbalance {name}" for name in each),
            *(f"outcome {name}|{arm}" for arm in arms for name in each),
            *(f"confounding {name}|{arm}" for arm in arms for name in names),
        ),
    )


def prior_mean(form: MaxentForm, c: Any, xp: Any) -> Any:
    r"""Return the prior mean (K,) of the coefficients given those it depends on.

    That of how a level's outcome differs is :math:`\kappa_{tg}` times its imbalance: confounding.
    """
    known = xp.concatenate([c, np.zeros(1)])
    return form.centre + known[form.parent] * known[form.slope]


def prior_mean_slope(form: MaxentForm, c: Array) -> Array:
    """Return the derivative (K, K) of `prior_mean`, arrays only."""
    known, axes = np.append(c, 0.0)[:, None], np.eye(len(c) + 1)[:, :-1]
    return np.asarray(known[form.parent] * axes[form.slope] + known[form.slope] * axes[form.parent])


def maxent_law(form: MaxentForm, c: Array) -> MaxentLaw:
    """Return the laws that coefficients make.

    Parameters
    ----------
    form : MaxentForm
    c : ndarray, shape (..., K)
    """
    flat = np.ascontiguousarray(c, dtype=float).reshape(-1, c.shape[-1])
    found = tables(flat, form.grid, form.contrasts, form.sizes, form.binary)
    return MaxentLaw(*(part.reshape(*c.shape[:-1], *part.shape[1:]) for part in found))


def table_law(cell: Array, level: Sequence[Array]) -> MaxentLaw:
    """Return the law of two tables, without tilts; groups are padded to that of most levels.

    Parameters
    ----------
    cell : ndarray, shape (2, Y)
        p(t, y).
    level : sequence of ndarray, shape (2, L, Y)
        p(x_g | t, y), for each group.
    """
    padded = np.zeros((2, len(level), max(own.shape[1] for own in level), cell.shape[1]))
    for g, own in enumerate(level):
        padded[:, g, : own.shape[1]] = own
    return MaxentLaw(cell, padded, None, None)


def maxent_rows(
    law: MaxentLaw, rows: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw records from one law.

    Parameters
    ----------
    law : MaxentLaw
        Of arrays, without leading axes.
    rows : int
    rng : numpy.random.Generator

    Returns
    -------
    arm : ndarray of int, shape (rows,)
        0 for control, 1 for treated.
    stratum : ndarray of int, shape (rows, G)
        Which stratum of each group.
    point : ndarray of int, shape (rows,)
        Which value of the outcome's grid.

    Examples
    --------
    >>> law = MaxentLaw(np.full((2, 2), 0.25), np.full((2, 1, 3, 2), 1 / 3), None, None)
    >>> arm, stratum, point = maxent_rows(law, 1000, np.random.default_rng(1))
    >>> arm.shape, stratum.shape, point.max()
    ((1000,), (1000, 1), np.int64(1))
    """
    place = rng.choice(law.cell.size, size=rows, p=law.cell.ravel() / law.cell.sum())
    arm, point = np.divmod(place, law.cell.shape[1])
    chances = np.cumsum(np.moveaxis(law.level, -1, 1), axis=-1)
    chances /= chances[..., -1:]
    u = rng.random((rows, chances.shape[-2], 1))
    return arm, (u >= chances[arm, point]).sum(-1), point
