"""Studies whose outcome is linear in many covariates, and whose effects are known."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded, Categories
from dpcausal_bayes.gram_means import ConfidentialGram, DrawnMeans, Levels, draw_means
from dpcausal_bayes.gram_potential import means_of
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.populations.contrasts import Contrast
from dpcausal_bayes.populations.records import keep

__all__ = ["LinearPopulation", "linear_columns"]

Array = NDArray[np.float64]


class LinearPopulation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    r"""Records whose law in each arm is what `gram_regression` takes it for.

    A record is treated with probability ``share[1]``. Given its arm, a covariate with levels, which
    must be the first, is drawn; then the numbers, normal with means linear in it; then both
    potential outcomes, each with the regression and the errors of its own arm. Means and
    covariances of the columns :math:`(\phi, y)` are those given, arm by arm.

    **Nothing is clipped**: a normal law has no bounds. This is a law for checking the model on its
    own terms, not one of data as they are.

    Parameters
    ----------
    workload : GramWorkload
        With a `Bounded` outcome, numeric covariates and, as its first one, at most one of levels.
    n : int
        Records of a table.
    share : array_like, shape (2,)
        Of controls and treated; sums to one.
    mean : array_like, shape (2, p)
        Of the columns, scaled to [-1, 1] by their bounds.
    covariance : array_like, shape (2, p, p)

    Raises
    ------
    TypeError, ValueError
        Covariates or an outcome of another kind, arrays of the wrong shape, a covariance that is
        not positive definite.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm
    >>> from dpcausal_bayes.estimands import ATE, ATT
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", -1, 1),
    ...                 covariates=[Bounded("x", -1, 1)])
    >>> study = LinearPopulation(workload=GramWorkload(schema), n=1000, share=[0.5, 0.5],
    ...     mean=[[-0.1, 0.0], [0.1, 0.3]], covariance=[[[0.1, 0.05], [0.05, 0.1]]] * 2)
    >>> round(float(study.truth(ATE())), 3)  # 0.3, of which the covariate makes 0.1
    0.2
    """

    workload: GramWorkload
    n: int
    share: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    def __post_init__(self) -> None:
        fields = self.workload.fields
        if self.workload.binary or any(not isinstance(field, Bounded) for field in fields[1:]):
            raise TypeError(
                "LinearPopulation.workload must have a Bounded outcome and Bounded covariates, but "
                "for the first, which may have levels"
            )
        if fields and not isinstance(fields[0], Bounded | Categories):
            raise TypeError(
                f"LinearPopulation draws levels, and covariate {fields[0].column!r} has bins: "
                "declare Categories(column, levels)"
            )
        p = len(self.workload.columns)
        for name, shape in (("share", (2,)), ("mean", (2, p)), ("covariance", (2, p, p))):
            array = np.array(getattr(self, name), dtype=float)
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(
                    f"LinearPopulation.{name} has shape {array.shape}: it must be {shape}, finite"
                )
            keep(self, name, array)
        if min(self.share) < 0 or abs(self.share.sum() - 1) > 1e-9:
            raise ValueError(f"LinearPopulation.share is {self.share}: shares must sum to 1")
        if np.linalg.eigvalsh(self.covariance).min() <= 0:
            raise ValueError("LinearPopulation.covariance must be positive definite in both arms")

    def __repr__(self) -> str:
        return f"LinearPopulation(n={self.n}, columns={list(self.workload.columns)})"

    def draw(self, seed: int | np.random.Generator) -> pd.DataFrame:
        """Draw a table.

        Parameters
        ----------
        seed : int or numpy.random.Generator

        Returns
        -------
        pandas.DataFrame, n rows
            Arm, covariates and outcome, then both potential outcomes ``y0`` and ``y1``.
        """
        rng = np.random.default_rng(seed)
        arm = (rng.random(self.n) < self.share[1]).astype(np.int64)
        x = np.empty((self.n, len(self.workload.columns) - 1))
        for a in (0, 1):
            x[arm == a] = self._covariates(a, int((arm == a).sum()), rng)
        intercept, slope, sigma = self._regressions()
        potential = intercept + x @ slope.T + sigma * rng.standard_normal((self.n, 2))
        outcome: Any = self.workload.schema.outcome
        y0, y1 = (outcome.centre + outcome.half * potential).T
        columns: dict[str, Any] = {
            self.workload.schema.arm.column: np.array(self.workload.schema.arm.levels)[arm]
        }
        block = self.workload.block[:-1]
        for place, field in enumerate(self.workload.fields):
            own = x[:, block == place]
            if isinstance(field, Bounded):
                columns[field.column] = field.centre + field.half * own[:, 0]
            else:
                code = np.where((own > 0).any(1), 1 + (own > 0).argmax(1), 0)
                columns[field.column] = np.array(_values(field))[code]
        columns[outcome.column] = np.where(arm == 1, y1, y0)
        return pd.DataFrame({**columns, "y0": y0, "y1": y1})

    def truth(self, estimand: Contrast) -> xr.DataArray:
        """Return the effect in the superpopulation, from which the records are drawn.

        Parameters
        ----------
        estimand : ATE, ATT, ATC, CATE or CATESlope

        Returns
        -------
        xarray.DataArray
            In units of the outcome; what ``estimate(..., population="super")`` is after.
        """
        return self._contrast(estimand, self._means(self.share, self.mean, self.covariance))

    def sample_truth(self, estimand: Contrast, table: pd.DataFrame) -> xr.DataArray:
        """Return the effect on the very records of a table, from both their potential outcomes.

        Parameters
        ----------
        estimand : ATE, ATT, ATC, CATE or CATESlope
            The last two are values of the line that records are drawn around.
        table : pandas.DataFrame
            From `draw`.
        """
        arm, v = linear_columns(table, self.workload)
        levels = Levels(self.workload)
        outcome: Any = self.workload.schema.outcome
        both = (table[["y0", "y1"]].to_numpy() - outcome.centre) / outcome.half
        member = np.column_stack([np.ones(self.n), v[:, :-1]]) @ levels.rows.T  # 0 or 1
        units = np.stack([member[arm == a].sum(0) for a in (0, 1)])
        total = np.stack([both[arm == a].T @ member[arm == a] for a in (0, 1)])
        law = self._means(self.share, self.mean, self.covariance)
        empty = units[:, None] < 0.5
        mean = np.where(empty, law.mean[0], total / np.maximum(units[:, None], 1))
        centre = v[:, :-1].mean(0)
        intercept, slope, _ = self._regressions()
        line = intercept + slope @ centre
        weight = units / self.n
        return self._contrast(
            estimand, DrawnMeans(*(part[None] for part in (mean, weight, line, slope, centre)))
        )

    def _means(self, share: Array, mean: Array, covariance: Array) -> DrawnMeans:
        table = ConfidentialGram(self.n * share[None], mean[None], covariance[None])
        return draw_means(table, Levels(self.workload), "table", np.random.default_rng(0))

    def _contrast(self, estimand: Contrast, drawn: DrawnMeans) -> xr.DataArray:
        means = means_of(drawn, self.workload, Levels(self.workload), (1, 1))
        return estimand.contrast(means).isel(chain=0, draw=0, drop=True).rename(estimand.name)

    def _regressions(self) -> tuple[Array, Array, Array]:
        """Return intercepts (2,), slopes (2, d) and standard deviations of errors (2,)."""
        s, cross = self.covariance[:, :-1, :-1], self.covariance[:, :-1, -1]
        slope = np.linalg.solve(s, cross[..., None])[..., 0]
        variance = self.covariance[:, -1, -1] - (slope * cross).sum(-1)
        intercept = self.mean[:, -1] - (slope * self.mean[:, :-1]).sum(-1)
        return intercept, slope, np.sqrt(variance)

    def _covariates(self, a: int, size: int, rng: np.random.Generator) -> Array:
        """Draw the columns of the covariates of an arm's records."""
        mean, s = self.mean[a, :-1], self.covariance[a, :-1, :-1]
        own = np.flatnonzero(~self.workload.numeric[:-1])
        rest = np.flatnonzero(self.workload.numeric[:-1])
        x = np.empty((size, len(mean)))
        if len(own):
            share = (1 + mean[own]) / 2
            code = rng.choice(1 + len(own), size, p=[max(1 - share.sum(), 0.0), *share])
            x[:, own] = np.where(code[:, None] == 1 + np.arange(len(own)), 1.0, -1.0)
        slope = np.linalg.solve(s[np.ix_(own, own)], s[np.ix_(own, rest)])
        within = s[np.ix_(rest, rest)] - s[np.ix_(rest, own)] @ slope
        x[:, rest] = mean[rest] + (x[:, own] - mean[own]) @ slope
        x[:, rest] += rng.standard_normal((size, len(rest))) @ np.linalg.cholesky(within).T
        return x


def linear_columns(table: pd.DataFrame, workload: GramWorkload) -> tuple[NDArray[np.int64], Array]:
    """Return arms (n,) and the columns (phi, y) (n, p) of a table, scaled but not clipped.

    Parameters
    ----------
    table : pandas.DataFrame
        From `LinearPopulation.draw`.
    workload : GramWorkload
    """
    arm = (table[workload.schema.arm.column] == workload.schema.arm.treated).to_numpy(np.int64)
    found: list[Any] = []
    for field in [*workload.fields, workload.schema.outcome]:
        if isinstance(field, Bounded):
            found.append((table[field.column] - field.centre) / field.half)
        else:
            values = _values(field)[1:]
            found += [np.where(table[field.column] == value, 1.0, -1.0) for value in values]
    return arm, np.column_stack(found)


def _values(field: Any) -> list[Any]:
    """Return what a column holds for each level; ``other`` stands for itself."""
    return [*field.levels, *([] if field.other is None else [field.other])]
