"""What the strata of a workload say of a confidential table: the answer without privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.moments import LATTICE, table_moments
from dpcausal_bayes.populations.contrasts import Contrast, weigh
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["cell_sums", "table_contrast"]


def cell_sums(workload: CausalWorkload, cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Return the mass of each cell and the sum of its outcomes, in the outcome's own unit.

    With bounds the second is :math:`c\,m + h\,s`, from the mass m and the sum s of outcomes that
    were centred by c and scaled by h; for a binary outcome :math:`v_0 m_0 + v_1 m_1`, from the
    counts of its two values.

    Parameters
    ----------
    workload : CausalWorkload
    cells : array, shape (..., 2, L, 2)
        By arm, stratum and part: from `CausalWorkload.split`.

    Returns
    -------
    mass, total : arrays, shape (..., 2, L)

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10))
    >>> mass, total = cell_sums(CausalWorkload(schema), np.array([[[4, -1.0]], [[2, 0.5]]]))
    >>> mass.tolist(), total.tolist()
    ([[4.0], [2.0]], [[15.0], [12.5]])
    """
    outcome: Any = workload.schema.outcome
    if workload.binary:
        return cells.sum(axis=-1), cells @ np.array(outcome.values)
    mass = cells[..., 0]
    return mass, outcome.centre * mass + outcome.half * cells[..., 1]


def table_contrast(
    estimand: Contrast, table: pd.DataFrame, workload: CausalWorkload, *, group: int = 0
) -> xr.DataArray:
    """Return what the strata define on a confidential table: the estimate without privacy.

    The difference of the treated's and the controls' mean outcome in each stratum, averaged over
    the strata with the weights of the estimand: all units of a stratum, its treated, its controls.
    A bounded outcome is clipped. **A stratum that lacks an arm has no such difference: it is left
    out, and the others are weighed as if it were not there.**

    The means are those of the exact moments that a release adds its noise to, whose outcomes are
    rounded to a millionth of half the range.

    Parameters
    ----------
    estimand : ATE, ATT or ATC
        With ``by``, one effect for each level of a covariate of the group.
    table : pandas.DataFrame
        With the schema's columns.
    workload : CausalWorkload
    group : int
        Which of the workload's groups of strata.

    Returns
    -------
    xarray.DataArray
        A single number, or one a level; in units of the outcome.

    Raises
    ------
    ValueError
        No stratum (of some level) that holds both arms.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> from dpcausal_bayes.estimands import ATE
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10),
    ...                 covariates=[Categories("x", ["a", "b"])])
    >>> table = pd.DataFrame({"t": [0, 1, 0, 1], "x": ["a", "a", "b", "b"], "y": [1, 3, 6, 99]})
    >>> float(table_contrast(ATE(), table, CausalWorkload(schema, strata=["x"])).round(4))
    3.0
    """
    cells = workload.split(table_moments(table, workload) / LATTICE)[0][group]
    mass, total = cell_sums(workload, cells)
    both = np.all(mass > 0, axis=0)
    factors = workload.factors(group)
    label = np.array(factors.get(estimand.by or "", ["all"] * len(both)))
    lacking = [one for one in dict.fromkeys(label.tolist()) if not both[label == one].any()]
    if lacking:
        where = f"{estimand.by} = {lacking[0]!r}" if estimand.by in factors else "the table"
        raise ValueError(
            f"{where} has no stratum with units in both arms, so there is no contrast "
            f"{estimand.name!r} to be had: use fewer strata"
        )
    mean = total / np.where(mass > 0, mass, 1.0)
    return weigh(estimand, mean, mass * both, factors)
