r"""Private-PGM: one graphical model from the noisy counts of a release, without a posterior.

The law of largest entropy among those whose marginals come closest to the released ones, in squared
errors over the noise's variance (McKenna, Sheldon and Miklau 2019). It is a second way from one
release to synthetic rows, by the package `mbi`, which the extra ``pgm`` installs. It gives one law
and not how uncertain it is: rows of it are to be compared with, not to be inferred from.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.models.maxent_laws import MaxentLaw, table_law
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.synthetic_maxent import law_columns
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["GraphicalModel", "private_pgm"]

Array = NDArray[np.float64]

SETTLED = 0.05  # standard deviations of the noise that further steps may move a count by


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A law of arm, outcome and groups of covariates; given arm and outcome groups are independent.

    Attributes
    ----------
    workload : CausalWorkload
    n : int
        Records of the release.
    shares : tuple of ndarray, shape (2, L, 2)
        Of each group: the share of every arm, stratum and outcome level. They sum to one.

    Examples
    --------
    ``private_pgm(release).draw(1000, random_seed=1)``
    """

    workload: CausalWorkload
    n: int
    shares: tuple[Array, ...]

    def draw(
        self, rows: int | None = None, *, random_seed: int | np.random.Generator
    ) -> pd.DataFrame:
        """Draw rows: arm, covariates and outcome as `dpcausal_bayes.synthesize` writes them.

        Parameters
        ----------
        rows : int, optional
            The default is the release's n.
        random_seed : int or numpy.random.Generator
        """
        rows = self.n if rows is None else rows
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
            raise ValueError(f"rows is {rows!r}: it must be a whole number, at least 1")
        rng = np.random.default_rng(random_seed)
        grid = np.array([-1.0, 1.0])
        return pd.DataFrame(law_columns(self.workload, self._law(), grid, int(rows), rng))

    def _law(self) -> MaxentLaw:
        """Return p(t, y) and p(x_g | t, y)."""
        cell = self.shares[0].sum(1)
        return table_law(cell, [share / share.sum(1, keepdims=True) for share in self.shares])


def private_pgm(release: MomentRelease, *, iterations: int = 5000) -> GraphicalModel:
    r"""Fit a graphical model to a release of counts.

    In double precision, by mirror descent; the number of records is public, and taken as known.

    Parameters
    ----------
    release : MomentRelease
        Of a `CausalWorkload` with an outcome of two levels, whose groups share no covariate.
    iterations : int
        Steps of mirror descent.

    Returns
    -------
    GraphicalModel

    Raises
    ------
    ImportError
        Without the package `mbi`.
    TypeError, ValueError
        A release of another kind, groups that share a covariate.
    RuntimeError
        Steps that have not settled, or a result that is no law.

    References
    ----------
    McKenna, Sheldon and Miklau (2019), "Graphical-model based estimation and inference for
    differential privacy", arXiv:1901.09136.

    Examples
    --------
    With the extra ``pgm`` installed: ``private_pgm(release).shares[0].sum(axis=(1, 2))`` are the
    arms' shares.
    """
    workload = _checked(release)
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 100:
        raise ValueError(f"iterations is {iterations!r}: it must be a whole number, at least 100")
    jax, mbi = _libraries()
    scale, n = workload.split(release.noise_scale)[0], float(release.n)
    cliques = [("arm", f"group {g}", "outcome") for g in range(len(workload.groups))]
    sizes = {"arm": 2, **{c[1]: workload.n_strata(g) for g, c in enumerate(cliques)}, "outcome": 2}
    with jax.enable_x64(True):
        domain = mbi.Domain(list(sizes), list(sizes.values()))
        measured = [
            mbi.LinearMeasurement(release.cells(g).ravel(), clique, stddev=float(scale[g].max()))
            for g, clique in enumerate(cliques)
        ]
        fitted: list[list[Array]] = []
        model = None
        for steps in (iterations, max(iterations // 10, 50)):
            model = mbi.estimation.MirrorDescent().estimate(
                domain, measured, known_total=n, iters=steps, warm_start=model
            )
            fitted.append([_counts(model, clique) for clique in cliques])
    _check_result(fitted, [float(part.max()) for part in scale], n)
    return GraphicalModel(workload, release.n, tuple(part / part.sum() for part in fitted[1]))


def _counts(model: Any, clique: tuple[str, ...]) -> Array:
    """Return expected counts (2, L, 2) of a clique."""
    factor = model.project(clique)
    order = [list(factor.domain.attributes).index(name) for name in clique]
    return np.asarray(factor.values, dtype=float).transpose(order)


def _check_result(fitted: list[list[Array]], scale: list[float], n: float) -> None:
    """Raise unless counts are those of a law, and further steps left them where they were."""
    for group, (before, after) in enumerate(zip(*fitted, strict=True)):
        proper = np.isfinite(after).all() and (after >= 0).all()
        if not proper or abs(after.sum() - n) > 1e-6 * n:
            raise RuntimeError(
                f"group {group} has expected counts that are no law of {n:g} records: mirror "
                "descent failed on this release"
            )
        moved = np.abs(after - before).max() / scale[group]
        if moved > SETTLED:
            raise RuntimeError(
                f"mirror descent has not settled: a tenth more steps move a count of group {group} "
                f"by {moved:.2g} standard deviations of its noise; raise iterations"
            )


def _libraries() -> tuple[Any, Any]:
    """Import jax and mbi, or say what is missing."""
    try:
        import jax

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of single precision, which is not used here
            import mbi
    except ImportError as error:
        raise ImportError(
            "private_pgm needs the package mbi: install the extra, as in "
            "pip install 'dpcausal_bayes[pgm]'"
        ) from error
    return jax, mbi


def _checked(release: Any) -> CausalWorkload:
    """Return the workload of a release that has counts, or raise."""
    if not isinstance(release, MomentRelease):
        raise TypeError(f"release is a {kind_of(release)}: it must be a MomentRelease")
    workload = release.workload
    if not isinstance(workload, CausalWorkload) or not workload.binary:
        raise ValueError(
            "release has no counts by outcome: private_pgm needs a CausalWorkload with an outcome "
            "of two Levels; for others use a model and synthesize"
        )
    names = [name for group in workload.groups for name in group]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"release has several groups with the covariate {twice[0]!r}: private_pgm takes groups "
            "that share none"
        )
    return workload
