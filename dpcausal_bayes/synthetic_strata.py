r"""Rows of the law of a stratified moment model.

A row's arm and stratum are drawn by their shares :math:`\pi_{ts}`. A binary outcome is drawn with
its mean :math:`\mu_{ts}`; one with bounds from the beta law on them of mean :math:`\mu_{ts}` and
variance :math:`r_t (1 - \mu_{ts}^2)`, scaled, whose third and fourth moments the model assumes too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.synthetic_columns import beta_draws, row_columns, stratum_columns
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["StratumRows"]


class StratumRows:
    """Draws of rows, given a posterior draw.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, of a `stratified_moments`.
    workload : CausalWorkload
    """

    def __init__(self, tree: xr.DataTree, workload: CausalWorkload) -> None:
        posterior = tree["posterior"].to_dataset()
        self._workload = workload
        strata = tuple(posterior["stratum"].values.tolist())
        groups = range(len(workload.groups))
        self._group = [workload.strata(g) for g in groups].index(strata)
        cells = ("chain", "draw", "arm", "stratum")
        self._share, self._mean = (posterior[n].transpose(*cells).values for n in ("share", "mean"))
        self._dispersion: NDArray[np.float64] | None = None
        if not workload.binary:
            self._dispersion = posterior["dispersion"].transpose(*cells[:3]).values

    def __call__(
        self, place: tuple[int, int], rows: int, rng: np.random.Generator
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Draw a table: see `dpcausal_bayes.synthesis.Rows`."""
        share, mean = self._share[place], self._mean[place]
        cell = rng.choice(share.size, size=rows, p=share.ravel() / share.sum())
        arm, stratum = np.divmod(cell, share.shape[1])
        centre = mean[arm, stratum]
        if self._dispersion is None:
            outcome = np.where(rng.random(rows) < (1 + centre) / 2, 1.0, -1.0)
        else:
            outcome = beta_draws(centre, self._dispersion[place][arm], rng)
        covariates = stratum_columns(self._workload, self._group, stratum, rng)
        return row_columns(self._workload.schema, arm, covariates, outcome), {}
