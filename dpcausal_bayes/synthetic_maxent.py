r"""Rows of a maximum-entropy law: arm and outcome together, then each group given both.

That is the law itself, drawn exactly. A bounded outcome has the values of the model's grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.maxent_potential import tree_form
from dpcausal_bayes.models.maxent_laws import MaxentLaw, maxent_law, maxent_rows
from dpcausal_bayes.synthetic_columns import group_columns, row_columns
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["MaxentRows", "law_columns"]


class MaxentRows:
    """Draws of rows, given a posterior draw.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, of a `maxent_moments`.
    workload : CausalWorkload
    """

    def __init__(self, tree: xr.DataTree, workload: CausalWorkload) -> None:
        self._workload, self._form = workload, tree_form(tree)
        dims = ("chain", "draw", "term")
        self._coefficient = tree["posterior"]["coefficient"].transpose(*dims).values

    def __call__(
        self, place: tuple[int, int], rows: int, rng: np.random.Generator
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Draw a table: see `dpcausal_bayes.synthesis.Rows`."""
        law = maxent_law(self._form, self._coefficient[place])
        return law_columns(self._workload, law, self._form.grid, rows, rng), {}


def law_columns(
    workload: CausalWorkload,
    law: MaxentLaw,
    grid: NDArray[np.float64],
    rows: int,
    rng: np.random.Generator,
) -> dict[str, NDArray[Any]]:
    """Draw rows of a law, as columns: arm, covariates of all groups, outcome.

    Parameters
    ----------
    workload : CausalWorkload
    law : MaxentLaw
        One, whose tables have no leading axes.
    grid : ndarray, shape (Y,)
        Values of the outcome on [-1, 1].
    rows : int
    rng : numpy.random.Generator
    """
    arm, stratum, point = maxent_rows(law, rows, rng)
    covariates = group_columns(workload, stratum, rng)
    return row_columns(workload.schema, arm, covariates, grid[point])
