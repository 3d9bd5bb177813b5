r"""Draws of what the release hides: each unit's true label, and its outcome under the other arm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from rich.progress import Progress

from dpcausal_bayes.assignment import Placement, draw_kept, round_counts
from dpcausal_bayes.columns import Scalar
from dpcausal_bayes.label_potential import level_values
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.confidential import confidential_counts
from dpcausal_bayes.potential import generator
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.schema import Schema

__all__ = ["impute", "imputed_tables"]

BLOCK = 20_000  # counts that are drawn in one go


def impute(
    tree: xr.DataTree,
    release: LabelRelease,
    *,
    draws: int = 50,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Draw every unit's true label and missing outcome, given the release.

    For each of some evenly spaced posterior draws: the confidential counts N of each cell given the
    parameters and the release, rounded to whole units without bias; then which units have which
    label given N, the released labels and the mechanism, exactly (`assignment.draw_kept`); and each
    unit's outcome under the other arm from that arm's shares in its cluster, **as if a unit's two
    potential outcomes were independent given its cluster**.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`; left as it is.
    release : LabelRelease
        The release that the tree was fitted to.
    draws : int
        Imputations in total, at least; the same number from each chain.
    random_seed : int or numpy.random.Generator, optional
        By default the draws are determined by the release and the fit's own seed.
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        The tree with the group ``imputations`` added, or replaced: ``true_label`` and
        ``missing_label`` (chain, draw, unit), codes 0 to K - 1 in the order of the coordinate
        ``level``; ``unit`` is the row of the confidential table. Two bytes a unit and draw, up to
        127 levels.

    Raises
    ------
    ValueError
        Another release than the tree's, or more draws than the posterior has.

    References
    ----------
    Little and Rubin (2019), "Statistical Analysis with Missing Data", chapter 10.

    Examples
    --------
    ``tree = impute(tree, release, draws=50)`` after ``tree = fit(model, release)``; then
    ``tree["imputations"]["true_label"]``. The whole way is shown in `report`.
    """
    manifest = read_manifest(tree)
    _check_release(manifest, release)
    part = _evenly_spaced(tree, draws)
    rng = generator(manifest, "impute", random_seed)
    counts = confidential_counts(part, rng)
    dims = ("chain", "draw", "cluster", "arm", "level")
    counts = counts.transpose(*dims)
    share = part["posterior"]["share"].transpose(*dims)
    n_chains, n_draws = counts.sizes["chain"], counts.sizes["draw"]
    n_levels = counts.sizes["level"]
    units = _Units(release, noise_aware=manifest["noise_aware"])
    kind = next(k for k in (np.int8, np.int16, np.int32) if n_levels - 1 <= np.iinfo(k).max)
    true, missing = (np.empty((n_chains, n_draws, release.n), dtype=kind) for _ in range(2))
    drawn = units.imputations(
        counts.values.reshape(-1, *counts.shape[2:]),
        share.values.reshape(-1, *share.shape[2:]),
        rng,
    )
    places = np.ndindex(n_chains, n_draws)
    with Progress(disable=not progressbar) as progress:
        task = progress.add_task("Imputing", total=n_chains * n_draws)
        for place, (labels, unseen) in zip(places, drawn, strict=True):
            true[place], missing[place] = labels, unseen
            progress.advance(task)
    new = tree.copy()
    new["imputations"] = xr.DataTree(_group(true, missing, counts, tree, release))
    return new


def imputed_tables(tree: xr.DataTree, release: LabelRelease) -> Iterator[pd.DataFrame]:
    """Yield a complete table for each imputation, so that any estimator can run on each.

    Parameters
    ----------
    tree : xarray.DataTree
        From `impute`.
    release : LabelRelease
        The release that the tree was fitted to.

    Yields
    ------
    pandas.DataFrame, n rows in the order of the confidential table
        The schema's cluster column (if it has one) and arm column, with the schema's values; the
        outcome column with the score of the imputed true label; and ``y0``, ``y1``, the scores
        under control and under treatment, one of which is the outcome.

    Raises
    ------
    ValueError
        No imputations, another release than the tree's, levels without scores, or a column of the
        schema that is itself called ``y0`` or ``y1``.

    Examples
    --------
    With ``tree = impute(tree, release)``, an estimator of one's own on each table::

        effects = [(table["y1"] - table["y0"]).mean() for table in imputed_tables(tree, release)]
    """
    _check_release(read_manifest(tree), release)
    if "imputations" not in tree.children:
        raise ValueError("the tree has no imputations: call tree = impute(tree, release) first")
    taken = {"y0", "y1"} & set(release.schema.columns)
    if taken:
        raise ValueError(
            f"the schema's column {sorted(taken)[0]!r} has the name of a potential outcome: rename "
            "it in the schema"
        )
    score = level_values(tree).values.astype(float)
    public = _public_columns(release)
    group = tree["imputations"]
    return _tables(group["true_label"], group["missing_label"], public, score, release)


def _tables(
    true: xr.DataArray,
    missing: xr.DataArray,
    public: dict[str, NDArray[Any]],
    score: NDArray[np.float64],
    release: LabelRelease,
) -> Iterator[pd.DataFrame]:
    treated = release.arm == 1
    for place in np.ndindex(true.sizes["chain"], true.sizes["draw"]):
        seen, unseen = score[true.values[place]], score[missing.values[place]]
        outcome = {
            release.schema.outcome.column: seen,
            "y0": np.where(treated, unseen, seen),
            "y1": np.where(treated, seen, unseen),
        }
        yield pd.DataFrame({**public, **outcome})


def _public_columns(release: LabelRelease) -> dict[str, NDArray[Any]]:
    """Return the columns that are known: cluster, if any, and arm."""
    schema: Schema = release.schema
    columns = {}
    if schema.cluster is not None:
        columns[schema.cluster.column] = _decoded(schema.cluster.levels, release.cluster)
    columns[schema.arm.column] = _decoded(schema.arm.levels, release.arm)
    return columns


def _decoded(levels: tuple[Scalar, ...], codes: NDArray[np.int32]) -> NDArray[Any]:
    kind = object if isinstance(levels[0], str) else None
    return np.array(levels, dtype=kind)[codes]


class _Units:
    """The public side of the units, sorted once for all imputations."""

    def __init__(self, release: LabelRelease, *, noise_aware: bool) -> None:
        self.noise_aware = noise_aware
        self.lam = release.mechanism.lam
        self.n_levels = release.schema.n_levels
        cell = 2 * release.cluster.astype(np.int64) + release.arm
        n_cells = 2 * release.schema.n_clusters
        self.placement = Placement.of(cell, release.label, n_cells, self.n_levels)
        self.prior = release.prior.reshape(n_cells, self.n_levels)
        self.size = release.cell_size.reshape(n_cells)

    def imputations(
        self, counts: NDArray[np.float64], share: NDArray[np.float64], rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Yield true and missing labels for each draw of counts and shares (cluster, arm, level).

        Parameters
        ----------
        counts, share : ndarray, shape (draws, C, 2, K)
        rng : numpy.random.Generator
        """
        shape = (-1, *self.prior.shape)
        other = share[:, :, ::-1].astype(float).reshape(shape)
        other /= other.sum(axis=-1, keepdims=True)
        counts = counts.reshape(shape)
        together = max(1, BLOCK // self.prior.size)
        for first in range(0, len(counts), together):
            part = counts[first : first + together]
            true = round_counts(part, np.broadcast_to(self.size, part.shape[:-1]), rng)
            kept = true  # a model that reads released labels as true has their counts
            if self.noise_aware:
                released = np.broadcast_to(self.placement.released, true.shape)
                kept = draw_kept(true, released, self.prior, self.lam, rng)
            missing = rng.multinomial(self.size, other[first : first + together])
            for one in zip(true, kept, missing, strict=True):
                yield (
                    self.placement.assign(one[0], one[1], rng),
                    self.placement.scatter(one[2], rng),
                )


def _check_release(manifest: dict[str, Any], release: LabelRelease) -> None:
    if not isinstance(release, LabelRelease):
        raise TypeError(f"release is a {type(release).__name__}: it must be a LabelRelease")
    if manifest["release_digest"] != release.digest:
        raise ValueError(
            f"release has digest {release.digest[:12]}, but the tree was fitted to "
            f"{manifest['release_digest'][:12]}: pass the release that the tree was fitted to"
        )


def _evenly_spaced(tree: xr.DataTree, draws: int) -> xr.DataTree:
    """Return a tree with evenly spaced posterior draws only, the same number from each chain."""
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1:
        raise ValueError(f"draws is {draws!r}: it must be a whole number, at least 1")
    posterior = tree["posterior"].to_dataset()
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    wanted = -(-int(draws) // n_chains)
    if wanted > n_draws:
        raise ValueError(
            f"draws is {draws}, but the posterior has {n_chains * n_draws} draws in all: ask for "
            "fewer, or fit with more draws"
        )
    places = ((2 * np.arange(wanted) + 1) * n_draws) // (2 * wanted)
    part = tree.copy()
    part["posterior"] = xr.DataTree(posterior.isel(draw=places))
    return part


def _group(
    true: NDArray[Any],
    missing: NDArray[Any],
    counts: xr.DataArray,
    tree: xr.DataTree,
    release: LabelRelease,
) -> xr.Dataset:
    dims = ("chain", "draw", "unit")
    codes = "codes of the outcome's levels, in the order of the coordinate level"
    facts = {
        "true_label": "what the confidential table holds for the unit",
        "missing_label": "what the unit would have had under the other arm",
    }
    group = xr.Dataset(
        {
            name: (dims, data, {"description": fact, "values": codes})
            for (name, fact), data in zip(facts.items(), (true, missing), strict=True)
        },
        coords={
            "chain": counts["chain"].values,
            "draw": counts["draw"].values,
            "unit": np.arange(release.n),
            "level": counts["level"].values,
        },
        attrs={"release_digest": release.digest},
    )
    values = tree["constant_data"].to_dataset().get("level_value")
    if values is not None:
        group = group.assign_coords(level_value=("level", values.values))
    return group
