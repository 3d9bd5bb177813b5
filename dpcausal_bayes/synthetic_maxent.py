r"""Rows of a maximum-entropy law: arm and outcome together, then each group given both.

That is the law itself, drawn exactly. A bounded outcome has the values of the model's grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.maxent_potential import tree_form
from dpcausal_bayes.models.maxent_laws import maxent_law, maxent_rows
from dpcausal_bayes.synthetic_columns import arm_column, outcome_column, stratum_columns
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["MaxentRows"]


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
        """Draw a table.

        Parameters
        ----------
        place : tuple of int
            Chain and draw.
        rows : int
        rng : numpy.random.Generator

        Returns
        -------
        columns : dict
            Arm, covariates of all groups, outcome.
        moved : dict
            Empty: no value had to be moved.
        """
        law = maxent_law(self._form, self._coefficient[place])
        arm, stratum, point = maxent_rows(law, rows, rng)
        schema = self._workload.schema
        columns = {schema.arm.column: arm_column(schema, arm)}
        for g in range(len(self._workload.groups)):
            columns |= stratum_columns(self._workload, g, stratum[:, g], rng)
        columns[schema.outcome.column] = outcome_column(schema, self._form.grid[point])
        return columns, {}
