r"""What the confidential table was, under a maximum-entropy model: draws of its moments.

Moments a of a table lead to coefficients: with :math:`\bar c` near them, J the derivative of a
record's expected contribution m, C its covariance and :math:`\Lambda` a prior's precision,

.. math:: \bar c + (n J' C^+ J + \Lambda)^{-1} J' C^+ (a - n\,m(\bar c)).

What the table says of mean potential outcomes is what the law of these says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.maxent_laws import (
    MaxentForm,
    maxent_law,
    prior_mean,
    prior_mean_slope,
)
from dpcausal_bayes.models.maxent_pilot import maxent_jacobian
from dpcausal_bayes.models.maxent_records import MaxentRecords, maxent_records
from dpcausal_bayes.models.student_prior import student_tails
from dpcausal_bayes.tilted_means import StratumMeans, stratum_means
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["MaxentTable", "cell_moments", "fisher", "maxent_table", "table_means"]

Array = NDArray[np.float64]

CHUNK = 200  # draws at a time


class MaxentTable(NamedTuple):
    """Draws of a table's moments.

    Attributes
    ----------
    records : MaxentRecords
        The order of the moments.
    n : int
        Number of records.
    moments : ndarray, shape (N, Q)
    """

    records: MaxentRecords
    n: int
    moments: Array


def maxent_table(
    tree: xr.DataTree, form: MaxentForm, c: Array, rng: np.random.Generator
) -> MaxentTable:
    """Draw the confidential moments given the release, one table for each draw.

    From the normal law that the likelihood uses: see
    `dpcausal_bayes.models.noise.low_rank_normal_draw`. A naive model has the noisy ones.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, of a `maxent_moments`.
    form : MaxentForm
    c : ndarray, shape (N, K)
        Coefficients of each draw.
    rng : numpy.random.Generator
    """
    manifest, constant = read_manifest(tree), tree["constant_data"].to_dataset()
    records, n = maxent_records(manifest["workload"], form), int(manifest["n"])
    released, variance = constant["released"].values, constant["noise_variance"].values
    if not manifest["noise_aware"]:
        return MaxentTable(records, n, np.broadcast_to(released, (len(c), len(released))))
    parts = []
    for first in range(0, len(c), CHUNK):
        law = maxent_law(form, c[first : first + CHUNK])
        drawn = records.draw(law, n, rng)
        noise = np.sqrt(variance) * rng.standard_normal(drawn.shape)
        covariance = n * records.covariance(law)
        gap = (released - drawn - noise)[..., None]
        solved = np.linalg.solve(covariance + np.diag(variance), gap)
        parts.append(drawn + (covariance @ solved)[..., 0])
    return MaxentTable(records, n, np.concatenate(parts))


def cell_moments(workload: CausalWorkload, table: MaxentTable) -> tuple[Array, Array]:
    """Return masses and outcome sums (N, 2, 1 + L) by arm: of all records, of each stratum.

    Parameters
    ----------
    workload : CausalWorkload
    table : MaxentTable
        Of a naive model the groups' totals differ, and their mean is taken.
    """
    moments = np.empty(table.moments.shape)
    moments[:, table.records.order] = table.moments
    mass, total = [], []
    for cells in workload.split(moments)[0]:
        first, second = cells[..., 0], cells[..., 1]
        mass.append(first + second if workload.binary else first)
        total.append(second - first if workload.binary else second)
    found = []
    for groups in (mass, total):
        everybody = np.mean([part.sum(-1) for part in groups], axis=0)
        found.append(np.concatenate([everybody[..., None], *groups], axis=-1))
    return found[0], found[1]


def fisher(form: MaxentForm, records: MaxentRecords, c: Array) -> tuple[Array, Array]:
    """Return J' C^+ J (K, K), a record's information on coefficients, and J' C^+ (K, Q).

    Parameters
    ----------
    form : MaxentForm
    records : MaxentRecords
    c : ndarray, shape (K,)
    """
    covariance = records.covariance(maxent_law(form, c))
    jacobian = maxent_jacobian(form, records, c)
    score = (np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ jacobian).T
    return score @ jacobian, score


def table_means(form: MaxentForm, c: Array, table: MaxentTable) -> StratumMeans:
    """Return the strata's means and weights that tables would have led to.

    Parameters
    ----------
    form : MaxentForm
    c : ndarray, shape (N, K)
        Coefficients of each draw.
    table : MaxentTable
    """
    n, centre = table.n, c.mean(0)
    information, score = fisher(form, table.records, centre)
    pull = (centre - prior_mean(form, centre, np)) / form.scale
    weight = student_tails(pull, form.tails, form.degrees)[1]
    of_prior = (np.eye(len(centre)) - prior_mean_slope(form, centre)) / form.scale[:, None]
    gain = np.linalg.solve(n * information + of_prior.T @ (weight[:, None] * of_prior), score)
    gap = table.moments - n * table.records.mean(maxent_law(form, centre))
    return stratum_means(form, centre + gap @ gain.T)
