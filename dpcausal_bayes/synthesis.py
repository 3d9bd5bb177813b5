"""Synthetic tables: rows of a posterior's law, for estimators that want a table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from rich.progress import track

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.potential import generator
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.synthetic_gram import GramRows
from dpcausal_bayes.synthetic_maxent import MaxentRows
from dpcausal_bayes.synthetic_strata import StratumRows

__all__ = ["SyntheticTables", "synthesize"]

MOVED_MANY = 0.05  # share of rows from which on a reader is told unasked


class Rows(Protocol):
    """What draws a table's columns given a posterior draw."""

    def __call__(
        self, place: tuple[int, int], rows: int, rng: np.random.Generator
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Draw a table.

        Parameters
        ----------
        place : tuple of int
            Chain and draw of the posterior.
        rows : int
        rng : numpy.random.Generator

        Returns
        -------
        columns : dict of str to ndarray
            Arm, covariates in the workload's order, outcome.
        moved : dict of str to float
            Of columns whose law had to be moved to a possible one, in which share of the rows.
        """
        ...


class SyntheticTables:
    """Tables that are drawn when they are asked for, and always the same ones.

    Iterating draws them one after the other, with a progress bar; ``tables[3]`` draws one of them;
    ``len(tables)`` is their number. Made by `synthesize`.

    Attributes
    ----------
    rows : int
        Of each table.
    """

    def __init__(
        self,
        draw: Rows,
        places: list[tuple[int, int]],
        seeds: NDArray[np.int64],
        rows: int,
        progressbar: bool,
    ) -> None:
        self._draw, self._places, self._seeds = draw, places, seeds
        self.rows, self._progressbar = rows, progressbar

    def __repr__(self) -> str:
        return f"SyntheticTables({len(self)} tables of {self.rows} rows)"

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> pd.DataFrame:
        rng = np.random.default_rng(int(self._seeds[index]))
        columns, moved = self._draw(self._places[index], self.rows, rng)
        table = pd.DataFrame(columns)
        table.attrs["moved"] = moved
        many = [column for column, share in moved.items() if share > MOVED_MANY]
        if many:
            warnings.warn(
                f"in more than {100 * MOVED_MANY:g} % of rows the model's law of {many} is "
                "impossible within its levels or bounds and was moved: moments of the table are "
                'only near those of the model; table.attrs["moved"] has the shares',
                stacklevel=2,
            )
        return table

    def __iter__(self) -> Iterator[pd.DataFrame]:
        places: Any = range(len(self))
        if self._progressbar:
            places = track(places, "synthesizing")
        return (self[index] for index in places)


def synthesize(
    tree: xr.DataTree,
    release: MomentRelease,
    *,
    tables: int,
    rows: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> SyntheticTables:
    r"""Draw synthetic tables from the posterior, for estimators that take a table.

    Each table has a posterior draw of its own, spread over the chains, and its rows are
    independent draws of the population's law given that draw. Fully synthetic tables, then: run an
    estimator on each and combine what it says by `pool`, which counts privacy noise and sampling.
    **One table alone, or all of them stacked, has neither in its standard errors.** An estimator
    finds what the model holds and nothing else, as rows beyond the released moments are the
    model's guess.

    - *Stratified moments*: arm and stratum by their shares, the outcome by its mean and variance
      in the cell: see `dpcausal_bayes.synthetic_strata`. Of a workload with several groups the
      tables have the covariates of the group that was modelled.
    - *Maximum entropy*: the law itself, all groups' covariates, a bounded outcome on the model's
      grid: see `dpcausal_bayes.synthetic_maxent`.
    - *Second-order moments*: rows with the means and second moments of each arm: see
      `dpcausal_bayes.synthetic_gram`. Covariates are as the release saw them: clipped, and in
      total as near the centre as the public ball has them.

    Values are as the schema declares them: arms by their values; categories by their levels;
    **bins by a number drawn uniformly within the bin**, NaN for their level ``other``; numbers
    within their bounds, in their units; an outcome of two levels by its scores.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`, of a moment release.
    release : MomentRelease
        The release that the tree was fitted to.
    tables : int
        At most as many as there are posterior draws. Twenty will do for an estimate; two hundred
        for an interval that is not widened by too few.
    rows : int, optional
        Of each table; the default is the release's n. With another number, give
        ``size_ratio=rows / release.n`` to `pool`.
    random_seed : int or numpy.random.Generator, optional
        By default the tables are determined by the release and the fit's own seed.
    progressbar : bool

    Returns
    -------
    SyntheticTables
        An iterable of `pandas.DataFrame` with the columns arm, covariates, outcome. Where the law
        of some rows had to be moved to a possible one, ``table.attrs["moved"]`` has the column and
        the share of rows, and above a twentieth there is a warning.

    Raises
    ------
    TypeError
        A label release, whose table is completed by `impute`.
    ValueError
        Another release than the tree's, more tables than draws, no rows.

    References
    ----------
    Raghunathan, Reiter and Rubin (2003), "Multiple imputation for statistical disclosure
    limitation"; Raisa, Jalko, Kaski and Honkela (2023), "Noise-aware statistical inference with
    differentially private synthetic data"; Qaqish (2003), "A family of multivariate binary
    distributions for simulating correlated binary variables with specified marginal means and
    correlations".

    Examples
    --------
    After ``tree = fit(model, release)``, an estimator of one's own, pooled::

        tables = synthesize(tree, release, tables=200)
        fits = [smf.ols("re78 ~ treat + age", data=table).fit() for table in tables]
        pool([fit.params["treat"] for fit in fits], [fit.bse["treat"] ** 2 for fit in fits])
    """
    manifest = read_manifest(tree)
    _check_release(manifest, release)
    chains, draws = (tree["posterior"].sizes[dim] for dim in ("chain", "draw"))
    tables, total = _whole(tables, "tables"), chains * draws
    if tables > total:
        raise ValueError(
            f"tables is {tables}, but the posterior has {total} draws in all, one for each table: "
            "ask for fewer, or fit with more draws"
        )
    rows = release.n if rows is None else _whole(rows, "rows")
    rng = generator(manifest, "synthesize", random_seed)
    places = _spread(tables, chains, draws)
    places = [places[i] for i in rng.permutation(tables)]  # any first few are spread as well
    seeds = rng.integers(2**63 - 1, size=tables)
    return SyntheticTables(_rows(tree, release), places, seeds, rows, progressbar)


def _rows(tree: xr.DataTree, release: MomentRelease) -> Rows:
    """Return what draws rows of the fitted model."""
    if isinstance(release.workload, GramWorkload):
        return GramRows(tree, release.workload)
    if "grid" in tree["constant_data"].coords:
        return MaxentRows(tree, release.workload)
    return StratumRows(tree, release.workload)


def _spread(tables: int, chains: int, draws: int) -> list[tuple[int, int]]:
    """Return chain and draw of each table: every chain alike, evenly spaced within each."""
    counts = [len(range(chain, tables, chains)) for chain in range(chains)]
    return [
        (chain, ((2 * k + 1) * draws) // (2 * count))
        for chain, count in enumerate(counts)
        for k in range(count)
    ]


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be a whole number, at least 1")
    return int(value)


def _check_release(manifest: dict[str, Any], release: Any) -> None:
    if isinstance(release, LabelRelease):
        raise TypeError(
            "release is a LabelRelease, whose table is public but for its labels: complete it with "
            "impute(tree, release), then imputed_tables(tree, release)"
        )
    if not isinstance(release, MomentRelease):
        raise TypeError(f"release is a {kind_of(release)}: it must be a MomentRelease")
    if manifest["release_digest"] != release.digest:
        raise ValueError(
            f"release has digest {release.digest[:12]}, but the tree was fitted to "
            f"{manifest['release_digest'][:12]}: pass the release that the tree was fitted to"
        )
