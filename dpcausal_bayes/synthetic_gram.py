r"""Rows whose first and second moments are those that a second-order model says.

Many laws have given second moments. Here a row is drawn covariate by covariate: those with levels
first, then the numeric ones, then the outcome. With e the earlier columns, made orthonormal, column
j of arm t has the conditional mean

.. math:: \mathrm{E}(v_j \mid v_{<j}) = m_j + l_j' e, \qquad e = L^{-1} (v_{<j} - \bar v_{<j}),

which is linear, and the law that its values allow. **Levels** are drawn with the linear
probabilities (the conditional linear family of Qaqish 2003), a binary outcome alike; a **number**
from the beta law on its bounds that has this mean and one residual variance. So all values lie
where the public facts put them, and all means, variances and products of two columns are exactly
those of the model, whatever the order of the columns; third moments are this law's own.

That holds as long as the linear means are possible ones. Where a probability would be negative,
or a mean so close to a bound that no law on the interval has this variance, they are put on what
is possible; each table says in how many of its rows (``attrs["moved"]``). With many rows moved the
moments are only near those of the model. Tried on a binary outcome of three confounders, with
400,000 rows and hardly any noise: with 2 to 11 % of the outcome's laws moved an effect of 0.1 came
out lower by 0.003 to 0.004, with 19 % by 0.007 (and by chance up to 0.003); of a bounded outcome,
in units of its range, with 7 % by 0.001 and with 16 % by 0.003.

*The population.* The posterior is of the confidential moments. As for the effects (see
`dpcausal_bayes.gram_potential`), the population's are drawn around them with the reference prior:
with n records in the arm and :math:`L_{jj}` the residual scale of column j,

.. math::
    \sigma_j^2 \sim n L_{jj}^2 / \chi^2_{n - j}, \qquad l_j \sim N(L_{j,<j}, \sigma_j^2 / n), \qquad
    m_j \sim N(\bar v_j, \sigma_j^2 / n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.gram_potential import ConfidentialGram, confidential_gram
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.synthetic_columns import beta_draws, level_column, number_column, row_columns

__all__ = ["GramRows"]

MOST_DISPERSION = 0.999  # of a beta law; at one it is two points

Array = NDArray[np.float64]


class GramRows:
    """Draws of rows, given a posterior draw.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, of a `gram_regression`.
    workload : GramWorkload
    """

    def __init__(self, tree: xr.DataTree, workload: GramWorkload) -> None:
        self._workload = workload
        self._table = confidential_gram(tree)
        self._draws = tree["posterior"].sizes["draw"]
        self._steps = _steps(workload)

    def __call__(
        self, place: tuple[int, int], rows: int, rng: np.random.Generator
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Draw a table: see `dpcausal_bayes.synthesis.Rows`."""
        one = ConfidentialGram(*(part[place[0] * self._draws + place[1]] for part in self._table))
        n = np.maximum(one.records, 1.0)
        share = rng.beta(n[1] + 0.5, n[0] + 0.5)
        arm = (rng.random(rows) < share).astype(int)
        drawn: list[Array] = [np.empty(rows) for _ in self._steps]
        moved = np.zeros(len(self._steps))
        for t in (0, 1):
            own = np.flatnonzero(arm == t)
            law = _population(one.mean[t], one.covariance[t], n[t], self._steps, rng)
            for i, (values, bent) in enumerate(_rows(self._steps, law, len(own), rng)):
                drawn[i][own] = values
                moved[i] += bent.sum()
        names = [step.column for step in self._steps]
        told = {
            name: count / rows for name, count in zip(names, moved.tolist(), strict=True) if count
        }
        return self._columns(arm, dict(zip(names, drawn, strict=True)), rng), told

    def _columns(
        self, arm: NDArray[np.int64], drawn: dict[str, Array], rng: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        schema = self._workload.schema
        covariates = {}
        for field in self._workload.fields:
            values = drawn[field.column]
            covariates[field.column] = (
                number_column(field, values)
                if isinstance(field, Bounded)
                else level_column(field, values.astype(int), rng)
            )
        return row_columns(schema, arm, covariates, drawn[schema.outcome.column])


class _Step(NamedTuple):
    """A covariate, or the outcome, and its columns of (phi, y)."""

    column: str
    columns: NDArray[np.int64]
    numeric: bool


class _Law(NamedTuple):
    """An arm's population, columns in the order of the steps.

    ``intercept`` (p,), ``slopes`` (p, p) below the diagonal and ``scale`` (p,) of each column on
    the orthonormal earlier ones; these are made with ``centre`` (p,) and ``root`` (p, p).
    """

    intercept: Array
    slopes: Array
    scale: Array
    centre: Array
    root: Array


def _steps(workload: GramWorkload) -> list[_Step]:
    """Return covariates with levels, then numeric ones, then the outcome."""
    block, numeric = workload.block, workload.numeric
    names = (*workload.covariates, workload.schema.outcome.column)
    found = [
        _Step(name, own, bool(numeric[own[0]]))
        for name, own in ((name, np.flatnonzero(block == i)) for i, name in enumerate(names))
    ]
    return [*sorted(found[:-1], key=lambda step: step.numeric), found[-1]]


def _population(
    mean: Array, covariance: Array, n: float, steps: list[_Step], rng: np.random.Generator
) -> _Law:
    """Draw an arm's population around its confidential moments."""
    order = np.concatenate([step.columns for step in steps])
    step_of = np.repeat(np.arange(len(steps)), [len(step.columns) for step in steps])
    centre, root = mean[order], np.linalg.cholesky(covariance[np.ix_(order, order)])
    p = len(order)
    # an arm with fewer records than columns says nothing of the errors: one degree is left
    degrees = np.maximum(n - 1 - np.arange(p), 1)
    scale = np.diagonal(root) * np.sqrt(n / rng.chisquare(degrees))
    # residuals of a covariate's own columns go together
    residual = np.where(step_of[:, None] == step_of, np.tril(root, -1) + np.diag(scale), 0.0)
    noise = residual @ rng.standard_normal((p, p + 1)) / np.sqrt(n)
    return _Law(
        intercept=centre + noise[:, p],
        slopes=np.tril(root + noise[:, :p], -1),
        scale=scale,
        centre=centre,
        root=root,
    )


def _rows(
    steps: list[_Step], law: _Law, rows: int, rng: np.random.Generator
) -> list[tuple[Array, NDArray[np.bool_]]]:
    """Draw an arm's rows: of each step its values (levels' places, or numbers) and where moved."""
    e = np.zeros((rows, len(law.centre)))  # earlier columns, orthonormal; later ones still zero
    found, first = [], 0
    for step in steps:
        own = slice(first, first + len(step.columns))
        mean = law.intercept[own] + e[:, :first] @ law.slopes[own, :first].T
        if step.numeric:
            values, bent = _numbers(mean[:, 0], law.scale[first] ** 2, rng)
            v = values[:, None]
        else:
            level, bent = _levels(mean, rng)
            v = np.where(level[:, None] == 1 + np.arange(len(step.columns)), 1.0, -1.0)
            values = level.astype(float)
            if step is steps[-1]:  # a binary outcome
                values = v[:, 0]
        left = v - law.centre[own] - e[:, :first] @ law.root[own, :first].T
        e[:, own] = np.linalg.solve(law.root[own, own], left.T).T
        found.append((values, bent))
        first = own.stop
    return found


def _levels(mean: Array, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw levels (rows,) with given means (rows, K - 1) of the columns of all but the first."""
    others = (1 + mean) / 2
    p = np.column_stack([1 - others.sum(-1), others])
    bent = (p < 0).any(-1)
    p = np.maximum(p, 0)
    ends = np.cumsum(p, axis=-1)
    level = (rng.random((len(p), 1)) * ends[:, -1:] >= ends[:, :-1]).sum(-1)
    return level, bent


def _numbers(
    mean: Array, variance: float, rng: np.random.Generator
) -> tuple[Array, NDArray[np.bool_]]:
    """Draw numbers in [-1, 1] of given means and one variance, where that can be."""
    possible = np.clip(mean, -1, 1)
    room = 1 - possible**2
    bent = variance > MOST_DISPERSION * room
    dispersion = np.where(bent, MOST_DISPERSION, variance / np.where(room > 0, room, 1.0))
    return beta_draws(possible, dispersion, rng), bent
