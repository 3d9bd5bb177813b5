"""Studies whose groups of covariates are independent given arm and outcome, with known effects."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import xarray as xr
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.models.maxent_laws import maxent_rows, table_law
from dpcausal_bayes.moment_potential import in_units
from dpcausal_bayes.moments import record_strata
from dpcausal_bayes.populations.contrasts import Contrast, weigh
from dpcausal_bayes.populations.records import check_records, keep, sample_contrast
from dpcausal_bayes.synthetic_columns import arm_column, group_columns
from dpcausal_bayes.workload_checks import check_apart
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["FirstOrderPopulation"]

Array = NDArray[np.float64]

MOST_CELLS = 4_000_000  # arms, strata and outcomes that are listed


class FirstOrderPopulation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    r"""Records whose law is what `maxent_moments` takes it for.

    Arm and outcome are drawn from :math:`p(t, y)`, on an even grid of outcomes; given both, the
    groups of covariates are independent, from :math:`p(x_g \mid t, y)`. That makes a law of
    covariates in each arm, and one of the outcome,

    .. math:: p(y \mid t, x) \propto p(t, y) \prod_g p(x_g \mid t, y),

    of which a record's outcome under the other arm is another draw: potential outcomes are
    independent of each other and of the arm given the covariates. Effects are sums over all
    combinations of the groups' strata.

    Parameters
    ----------
    workload : CausalWorkload
        Its groups share no covariate.
    n : int
        Records of a table.
    cell : array_like, shape (2, Y)
        :math:`p(t, y)`, control first; sums to one. The outcomes run evenly from the lower to the
        upper bound; of a binary outcome they are its two levels in the order declared.
    level : sequence of array_like, shape (2, L, Y)
        :math:`p(x_g \mid t, y)`, for each group; sums to one over its L strata.

    Raises
    ------
    ValueError
        Groups that share a covariate, or that have too many strata together to be listed; arrays of
        the wrong shape, probabilities that are none; covariates that only one arm can have.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Categories, Levels
    >>> from dpcausal_bayes.estimands import ATE, ATT
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]),
    ...                 covariates=[Categories("sex", ["f", "m"]), Categories("old", [0, 1])])
    >>> study = FirstOrderPopulation(workload=CausalWorkload(schema, groups=["sex", "old"]), n=100,
    ...     cell=[[0.3, 0.2], [0.2, 0.3]], level=[[[[0.6, 0.4], [0.4, 0.6]]] * 2] * 2)
    >>> round(float(study.truth(ATE())), 3), round(float(study.truth(ATT())), 3)
    (0.185, 0.185)
    """

    workload: CausalWorkload
    n: int
    cell: np.ndarray
    level: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        name, groups = type(self).__name__, len(self.workload.groups)
        check_records(name, self.workload.schema, self.n)
        check_apart(self.workload.groups, f"{name}.workload")
        cell = np.array(self.cell, dtype=float)
        fine = cell.ndim == 2 and len(cell) == 2 and cell.shape[1] >= 2
        if not fine or (self.workload.binary and cell.shape[1] != 2):
            allowed = "(2, 2)" if self.workload.binary else "(2, Y), of two outcomes or more"
            raise ValueError(f"{name}.cell has shape {cell.shape}: it must be {allowed}")
        cells = math.prod(self._sizes) * cell.size
        if cells > MOST_CELLS:
            raise ValueError(
                f"{name}.workload has groups of {list(self._sizes)} strata, {cells} cells with the "
                f"arms and outcomes: at most {MOST_CELLS} are listed; name fewer groups"
            )
        _check_shares(cell, (0, 1), f"{name}.cell")
        keep(self, "cell", cell)
        if len(self.level) != groups:
            raise ValueError(f"{name}.level has {len(self.level)} arrays: give {groups}, a group's")
        level = []
        for g, size in enumerate(self._sizes):
            array, shape = np.array(self.level[g], dtype=float), (2, size, cell.shape[1])
            if array.shape != shape:
                raise ValueError(f"{name}.level[{g}] has shape {array.shape}: it must be {shape}")
            _check_shares(array, (1,), f"{name}.level[{g}]")
            array.flags.writeable = False
            level.append(array)
        force_setattr(self, "level", tuple(level))
        if not (self._joint().sum(-1) > 0).all():
            raise ValueError(
                f"{name}.level leaves covariates that an arm cannot have, under which there is no "
                "outcome: give all strata some probability in both arms"
            )

    def __repr__(self) -> str:
        outcome = "binary" if self.workload.binary else "bounded"
        return f"FirstOrderPopulation(n={self.n}, groups={list(self._sizes)}, outcome={outcome})"

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(self.workload.n_strata(g) for g in range(len(self.workload.groups)))

    def draw(self, seed: int | np.random.Generator, n: int | None = None) -> pd.DataFrame:
        """Draw a table.

        Parameters
        ----------
        seed : int or numpy.random.Generator
        n : int, optional
            Records, if not the population's n.

        Returns
        -------
        pandas.DataFrame, n rows
            Arm, outcome and covariates; then both potential outcomes ``y0`` and ``y1``.
        """
        rng = np.random.default_rng(seed)
        law = table_law(self.cell, self.level)
        arm, stratum, own = maxent_rows(law, self.n if n is None else n, rng)
        joint = self._joint()
        chance = np.cumsum(joint, axis=-1)[1 - arm, np.ravel_multi_index(stratum.T, self._sizes)]
        other = (rng.random((len(arm), 1)) * chance[:, -1:] >= chance).sum(-1)
        potential = [np.where(arm == t, own, other) for t in (0, 1)]
        schema = self.workload.schema
        columns = {
            schema.arm.column: arm_column(schema, arm),
            schema.outcome.column: self._outcomes(own),
        }
        columns |= group_columns(self.workload, stratum, rng)
        y0, y1 = map(self._outcomes, potential)
        return pd.DataFrame({**columns, "y0": y0, "y1": y1})

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
        joint = self._joint()
        return weigh(estimand, self._means(joint), joint.sum(-1), self._factors())

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
            that nobody has keeps an effect, which weighs its other covariates alike.
        """
        own: Any = [record_strata(table, self.workload, g) for g in range(len(self._sizes))]
        stratum: Any = np.ravel_multi_index(own, self._sizes)
        schema, means = self.workload.schema, self._means(self._joint())
        return sample_contrast(estimand, table, schema, stratum, means, self._factors())

    def _joint(self) -> Array:
        """Return p(t, x, y), shape (2, X, Y), for all x; the last group's strata run fastest."""
        joint = self.cell[:, None, :]
        for level in self.level:
            joint = (joint[:, :, None] * level[:, None]).reshape(2, -1, joint.shape[-1])
        return joint

    def _means(self, joint: Array) -> Array:
        """Return mean outcomes, (2, X), in units."""
        grid = np.linspace(-1, 1, joint.shape[-1])
        return in_units((joint @ grid) / joint.sum(-1), self.workload)

    def _factors(self) -> dict[str, list[str]]:
        """Return each covariate's label in each x."""
        strata = np.indices(self._sizes).reshape(len(self._sizes), -1)
        return {
            name: [labels[s] for s in strata[g]]
            for g in range(len(self._sizes))
            for name, labels in self.workload.factors(g).items()
        }

    def _outcomes(self, point: NDArray[np.int64]) -> NDArray[Any]:
        """Return outcomes as a table has them, from places on the grid."""
        outcome: Any = self.workload.schema.outcome
        if not isinstance(outcome, Bounded):
            return np.array(outcome.levels)[point]
        return in_units(np.linspace(-1, 1, self.cell.shape[1]), self.workload)[point]


def _check_shares(array: Array, axes: tuple[int, ...], owner: str) -> None:
    """Raise unless probabilities are none below zero and sum to one over some axes."""
    total = array.sum(axes)
    if not (array >= 0).all() or not np.allclose(total, 1, rtol=0, atol=1e-9):
        raise ValueError(
            f"{owner} runs from {array.min():.4g} with sums of {total.min():.6g} to "
            f"{total.max():.6g}: probabilities are 0 or more and sum to 1"
        )
