"""Observational studies and experiments with covariates, whose effects are known."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded, Categories
from dpcausal_bayes.populations.contrasts import Contrast, weigh
from dpcausal_bayes.populations.records import check_records, keep, sample_contrast
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["StratifiedPopulation"]


class StratifiedPopulation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    r"""Records drawn from a known law, confounded by covariates or not.

    Each record is an independent draw: its stratum s, with probability :math:`\pi_s`; its arm,
    treated with probability :math:`e_s`; and both potential outcomes, with means
    :math:`\mu_{0s}` and :math:`\mu_{1s}`. Arm and potential outcomes are independent of each other
    given the stratum: the strata remove all confounding.

    A binary outcome is a Bernoulli draw. A bounded one, scaled to [-1, 1], is a beta draw of
    variance :math:`r (1 - \mu^2)`.

    Parameters
    ----------
    schema : Schema
        A `Bounded` outcome or `Levels` of two values. The L strata are all combinations of the
        covariates' levels, the last covariate's changing fastest; without covariates there is one.
    n : int
        Records of a table.
    share : array_like, shape (L,)
        :math:`\pi_s`; sums to one.
    propensity : array_like, shape (L,)
        :math:`e_s`, in [0, 1].
    mean : array_like, shape (2, L)
        :math:`\mu_{as}`, control first, in the outcome's own unit, between its bounds or values.
    dispersion : float, or two of them
        r of a bounded outcome, in (0, 1), of both arms or by arm: towards 0 the outcomes of a cell
        are alike, towards 1 they sit at the bounds. A binary outcome has none.

    Raises
    ------
    TypeError, ValueError
        A covariate with bins or with an ``other`` level, arrays of the wrong shape, probabilities
        that are none, means outside the bounds.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Levels
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]),
    ...                 covariates=[Categories("old", [0, 1])])
    >>> study = StratifiedPopulation(schema=schema, n=200, share=[0.5, 0.5], propensity=[0.2, 0.6],
    ...                              mean=[[0.1, 0.3], [0.3, 0.9]])
    >>> from dpcausal_bayes.estimands import ATE, ATT
    >>> float(study.truth(ATE())), float(study.truth(ATT()))
    (0.4, 0.5)
    """

    schema: Schema
    n: int
    share: np.ndarray
    propensity: np.ndarray
    mean: np.ndarray
    dispersion: float | tuple[float, float] = 0.2

    def __post_init__(self) -> None:
        for covariate in self.schema.covariates:
            if not isinstance(covariate, Categories) or covariate.other is not None:
                raise TypeError(
                    f"StratifiedPopulation draws levels, and covariate {covariate.column!r} has "
                    "bins or an `other` level: declare Categories(column, levels)"
                )
        check_records("StratifiedPopulation", self.schema, self.n)
        low, high = _range(self.schema)  # refuses other outcomes
        strata = self.workload.n_strata()
        share = self._array("share", (strata,), 0.0, 1.0)
        if not np.isclose(share.sum(), 1, rtol=0, atol=1e-9):
            raise ValueError(f"StratifiedPopulation.share sums to {share.sum():.6g}: it must be 1")
        self._array("propensity", (strata,), 0.0, 1.0)
        self._array("mean", (2, strata), low, high, inside=not self.workload.binary)
        each = np.asarray(self.dispersion, dtype=float)
        if each.shape not in ((), (2,)) or not np.all((each > 0) & (each < 1)):
            raise ValueError(
                f"StratifiedPopulation.dispersion is {self.dispersion}: it must lie strictly "
                "between 0 and 1"
            )

    def _array(
        self, field: str, shape: tuple[int, ...], low: float, high: float, *, inside: bool = False
    ) -> NDArray[np.float64]:
        """Check a field, and keep it as a read-only array."""
        array = np.array(getattr(self, field), dtype=float)
        if array.shape != shape:
            raise ValueError(
                f"StratifiedPopulation.{field} has shape {array.shape}: it must be {shape}, for "
                f"the strata {list(self.strata)[:4]}{' and more' * (len(self.strata) > 4)}"
            )
        fine = (array > low) & (array < high) if inside else (array >= low) & (array <= high)
        if not np.all(fine):
            raise ValueError(
                f"StratifiedPopulation.{field} runs from {array.min():.4g} to {array.max():.4g}: "
                f"it must lie {'strictly ' * inside}between {low:g} and {high:g}"
            )
        keep(self, field, array)
        return array

    def __repr__(self) -> str:
        outcome = "binary" if self.workload.binary else "bounded"
        return f"StratifiedPopulation(n={self.n}, strata={len(self.strata)}, outcome={outcome})"

    @property
    def _covariates(self) -> list[Categories]:
        return [one for one in self.schema.covariates if isinstance(one, Categories)]  # all are

    @property
    def workload(self) -> CausalWorkload:
        """The workload of all covariates as one group: its strata are the population's."""
        columns = [covariate.column for covariate in self.schema.covariates]
        return CausalWorkload(self.schema, strata=columns)

    @property
    def strata(self) -> tuple[str, ...]:
        """The labels of the L strata."""
        return self.workload.strata()

    @property
    def effects(self) -> NDArray[np.float64]:
        """The mean of Y(1) minus the mean of Y(0) in each stratum, shape (L,)."""
        return np.asarray(self.mean[1] - self.mean[0])

    def draw(self, seed: int | np.random.Generator) -> pd.DataFrame:
        """Draw a table.

        Parameters
        ----------
        seed : int or numpy.random.Generator

        Returns
        -------
        pandas.DataFrame, n rows
            The schema's arm, outcome and covariates; then ``y0`` and ``y1``, both potential
            outcomes, which no real table has and no release reads.
        """
        rng = np.random.default_rng(seed)
        stratum = rng.choice(len(self.share), self.n, p=self.share / self.share.sum())
        arm = (rng.random(self.n) < self.propensity[stratum]).astype(np.int8)
        y0, y1 = (self._outcomes(a, self.mean[a][stratum], rng) for a in (0, 1))
        columns: dict[str, Any] = {
            self.schema.arm.column: np.array(self.schema.arm.levels)[arm],
            self.schema.outcome.column: np.where(arm == 1, y1, y0),
        }
        covariates = self._covariates
        sizes = [len(covariate.levels) for covariate in covariates]
        codes = np.unravel_index(stratum, sizes) if sizes else ()
        for covariate, code in zip(covariates, codes, strict=True):
            columns[covariate.column] = np.array(covariate.levels)[code]
        return pd.DataFrame({**columns, "y0": y0, "y1": y1})

    def _outcomes(
        self, arm: int, mean: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[Any]:
        """Draw an outcome under an arm for each mean."""
        low, high = _range(self.schema)
        place = (mean - low) / (high - low)
        if self.workload.binary:
            outcome: Any = self.schema.outcome
            levels = np.array(outcome.levels)
            yes = (rng.random(len(mean)) < place).astype(np.int8)
            return np.asarray(levels[np.argsort(outcome.values)[yes]])
        size = 1 / np.broadcast_to(self.dispersion, 2)[arm] - 1
        return low + (high - low) * rng.beta(size * place, size * (1 - place))

    def truth(self, estimand: Contrast) -> xr.DataArray:
        """Return the effect in the superpopulation, from which the records are drawn.

        Parameters
        ----------
        estimand : ATE, ATT or ATC
            With ``by``, one effect for each level of a covariate.

        Returns
        -------
        xarray.DataArray
            In units of the outcome; what ``estimate(..., population="super")`` is after.
        """
        weight = self.share * np.stack([1 - self.propensity, self.propensity])
        return weigh(estimand, self.mean, weight, self.workload.factors())

    def sample_truth(self, estimand: Contrast, table: pd.DataFrame) -> xr.DataArray:
        """Return the effect on the very records of a table, from both their potential outcomes.

        Parameters
        ----------
        estimand : ATE, ATT or ATC
        table : pandas.DataFrame
            From `draw`.

        Returns
        -------
        xarray.DataArray
            As `truth`; what ``estimate(..., population="sample")`` is after. A level of ``by``
            that nobody has keeps the superpopulation's effect.
        """
        stratum = np.zeros(len(table), dtype=np.int64)
        for covariate in self._covariates:
            known = list(covariate.levels)
            codes = pd.Index(known).get_indexer(table[covariate.column])
            if np.any(codes < 0):
                raise ValueError(
                    f"column {covariate.column!r} of table has values that are not among {known}: "
                    "take a table from draw()"
                )
            stratum = stratum * len(known) + codes
        factors = self.workload.factors()
        return sample_contrast(estimand, table, self.schema, stratum, self.mean, factors)


def _range(schema: Schema) -> tuple[float, float]:
    """Return the least and the greatest value of the outcome."""
    outcome: Any = schema.outcome
    if isinstance(outcome, Bounded):
        return outcome.low, outcome.high
    return min(outcome.values), max(outcome.values)
