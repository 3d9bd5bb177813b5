"""Populations whose causal effects are known, for studies of the method."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import xarray as xr
from msgspec.structs import force_setattr
from numpy.typing import NDArray
from scipy import stats

from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.populations.contrasts import Contrast, weigh
from dpcausal_bayes.schema import Schema

__all__ = ["Population", "binary_population", "mixture_population"]


class Population(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    r"""A randomised trial drawn from a known law.

    In cluster c, :math:`n_{c1}` of the :math:`n_c` units, chosen at random, are treated. The
    potential outcomes of each unit are independent draws :math:`Y(0) \sim p_{c0}` and
    :math:`Y(1) \sim p_{c1}`, also independent of each other.

    Parameters
    ----------
    schema : Schema
        C clusters and K outcome levels.
    shares : array_like, shape (C, 2, K)
        :math:`p_{ca}`: probability of each level in each cluster and arm (control, treated).
    cell_size : array_like of int, shape (C, 2)
        Units in each cell. Cells may be empty.

    Raises
    ------
    ValueError
        Shares that are no probabilities, or an array of the wrong shape.

    Examples
    --------
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1]))
    >>> trial = Population(schema=schema, shares=[[[0.7, 0.3], [0.2, 0.8]]], cell_size=[[40, 60]])
    >>> trial.draw(1).shape, trial.effects
    ((100, 4), array([0.5]))
    """

    schema: Schema
    shares: np.ndarray
    cell_size: np.ndarray

    def __post_init__(self) -> None:
        cells = (self.schema.n_clusters, 2)
        shares = np.array(self.shares, dtype=float)
        if shares.shape != (*cells, self.schema.n_levels):
            raise ValueError(
                f"Population.shares has shape {shares.shape}: it must be "
                f"{(*cells, self.schema.n_levels)}, for cluster, arm and level"
            )
        if not (np.all(shares >= 0) and np.allclose(shares.sum(axis=-1), 1, rtol=0, atol=1e-9)):
            raise ValueError(
                "Population.shares must be probabilities: none negative, and a sum of one over "
                "the levels of each cell"
            )
        size = np.array(self.cell_size)
        if size.dtype.kind not in "iu" or size.shape != cells or size.min() < 0:
            raise ValueError(
                f"Population.cell_size must hold whole numbers, none negative, in shape {cells}: "
                "cluster, arm"
            )
        shares /= shares.sum(axis=-1, keepdims=True)
        for field, array in (("shares", shares), ("cell_size", size.astype(np.int64))):
            array.flags.writeable = False
            force_setattr(self, field, array)

    def __repr__(self) -> str:
        return (
            f"Population(n={self.n}, clusters={self.schema.n_clusters}, "
            f"levels={self.schema.n_levels})"
        )

    @property
    def n(self) -> int:
        """Number of units."""
        return int(self.cell_size.sum())

    @property
    def effects(self) -> NDArray[np.float64]:
        """The mean of Y(1) minus the mean of Y(0) in each cluster, shape (C,)."""
        means = self._means()
        return means[:, 1] - means[:, 0]

    def draw(self, seed: int | np.random.Generator) -> pd.DataFrame:
        """Draw the units of a trial.

        Parameters
        ----------
        seed : int or numpy.random.Generator

        Returns
        -------
        pandas.DataFrame, n rows
            The schema's arm, outcome and (if it has one) cluster columns; then ``y0`` and ``y1``,
            both potential outcomes, which no real table has and no release reads.
        """
        rng = np.random.default_rng(seed)
        sizes = self.cell_size.sum(axis=1)
        cluster = np.repeat(np.arange(len(sizes)), sizes)
        arm = np.zeros(self.n, dtype=np.int8)
        potential = np.zeros((2, self.n), dtype=np.int32)
        ends = np.cumsum(sizes)
        for c, (first, last) in enumerate(zip(ends - sizes, ends, strict=True)):
            arm[first + rng.permutation(sizes[c])[: self.cell_size[c, 1]]] = 1
            for a in (0, 1):
                levels = rng.choice(self.schema.n_levels, last - first, p=self.shares[c, a])
                potential[a, first:last] = levels
        levels = np.array(self.schema.label_outcome.levels)
        seen = np.where(arm == 1, potential[1], potential[0])
        columns: dict[str, Any] = {
            self.schema.arm.column: np.array(self.schema.arm.levels)[arm],
            self.schema.outcome.column: levels[seen],
        }
        if self.schema.cluster is not None:
            columns[self.schema.cluster.column] = pd.Categorical.from_codes(
                cluster, categories=list(self.schema.cluster.levels)
            )
        return pd.DataFrame({**columns, "y0": levels[potential[0]], "y1": levels[potential[1]]})

    def truth(self, estimand: Contrast) -> xr.DataArray:
        """Return the effect in the superpopulation, from which the units are drawn.

        Parameters
        ----------
        estimand : ATE, ATT or ATC

        Returns
        -------
        xarray.DataArray
            A single number, or one a cluster with ``by="cluster"``; clusters are weighted by their
            units, as ``estimate(..., population="super")`` does. In units of the outcome.
        """
        return self._weigh(estimand, self._means().T, self.cell_size)

    def sample_truth(self, estimand: Contrast, table: pd.DataFrame) -> xr.DataArray:
        """Return the effect on the very units of a table, from both their potential outcomes.

        Parameters
        ----------
        estimand : ATE, ATT or ATC
        table : pandas.DataFrame
            From `draw`.

        Returns
        -------
        xarray.DataArray
            As `truth`; what ``estimate(..., population="sample")`` is after.
        """
        schema = self.schema
        score = dict(zip(schema.label_outcome.levels, outcome_values(schema), strict=True))
        cell = (table[schema.arm.column] == schema.arm.treated).to_numpy(np.int64)
        if schema.cluster is not None:
            known = list(schema.cluster.levels)
            cell += 2 * np.int64(pd.Categorical(table[schema.cluster.column], known).codes)
        potential = [table[column].map(score).to_numpy(float) for column in ("y0", "y1")]
        size = np.bincount(cell, minlength=self.cell_size.size)
        total = np.stack([np.bincount(cell, y, minlength=len(size)) for y in potential], axis=-1)
        # a cell of nobody has no weight, but in a split by cluster
        expected = np.repeat(self._means(), 2, axis=0)
        mean = np.where(size[:, None] > 0, total / np.maximum(size, 1)[:, None], expected)
        mean = mean.reshape(-1, 2, 2).transpose(1, 2, 0)  # assigned, arm, cluster
        return self._weigh(estimand, mean, size.reshape(-1, 2))

    def _weigh(
        self, estimand: Contrast, mean: NDArray[np.float64], size: NDArray[np.integer]
    ) -> xr.DataArray:
        return weigh(estimand, mean, size.T, {"cluster": self.schema.clusters})

    def _means(self) -> NDArray[np.float64]:
        return self.shares @ outcome_values(self.schema)


def outcome_values(schema: Schema) -> NDArray[np.float64]:
    """Return the numeric score of each outcome level, shape (K,), or raise."""
    if schema.label_outcome.values is None:
        raise ValueError(
            f"Levels.values is None for {schema.outcome.column!r}: an effect needs a number for "
            "each level; declare them, Levels(..., values=[...])"
        )
    return np.array(schema.label_outcome.values)


def mixture_population(
    *,
    clusters: int = 3,
    units: int = 3500,
    levels: int = 12,
    separation: float = 2.0,
    effect: float = 0.5,
) -> Population:
    r"""Make a population of normal outcomes that are moved to the nearest of K public values.

    In cluster :math:`c = 0, \dots, C-1` and arm a, before moving,

    .. math:: Y(a) \sim N\left( s \left(c - \tfrac{C-1}{2}\right)
              + \left(a - \tfrac12\right) \text{effect},\ 1 \right)

    and the K values are equally spaced, from 2.5 below the lowest cluster's centre to 2.5 above the
    highest's. Moving to the nearest value changes the effect a little: `Population.truth` is exact.

    Parameters
    ----------
    clusters : int
        C. Units are spread over the clusters, and halved between arms, as evenly as possible.
    units : int
        n.
    levels : int
        K >= 2.
    separation : float
        s, the distance of neighbouring clusters' centres, in standard deviations within a cluster.
    effect : float
        The shift of the treated, in the same unit.

    Returns
    -------
    Population
        Columns ``treated``, ``y``, ``cluster``.

    References
    ----------
    A setting like the simulated one of Javanmard, Mirrokni and Pouget-Abadie (2025), "Improving the
    variance of differentially private randomized experiments through clustering", arXiv:2308.00957.

    Examples
    --------
    >>> trial = mixture_population()
    >>> trial, trial.schema.outcome.levels[0], trial.effects.round(3)
    (Population(n=3500, clusters=3, levels=12), -4.5, array([0.497, 0.5  , 0.497]))
    """
    reach = separation * (clusters - 1) / 2 + 2.5
    values = np.linspace(-reach, reach, levels)
    centre = separation * (np.arange(clusters) - (clusters - 1) / 2)
    mean = centre[:, None] + effect * np.array([-0.5, 0.5])
    edges = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    shares = np.diff(stats.norm.cdf(edges - mean[..., None]), axis=-1)
    size = units // clusters + (np.arange(clusters) < units % clusters)
    return Population(
        schema=_schema(clusters, values.tolist()), shares=shares, cell_size=_halved(size)
    )


def binary_population(
    *,
    clusters: int = 40,
    units_per_cluster: int = 30,
    rate: float = 0.4,
    effect: float = 0.2,
    spread: float = 0.1,
    heterogeneity: float = 0.05,
) -> Population:
    r"""Make a population of yes-or-no outcomes in many small clusters.

    .. math:: P(Y(0) = 1) = \text{rate} + \text{spread}\, u_c, \qquad
              P(Y(1) = 1) = P(Y(0) = 1) + \text{effect} + \text{heterogeneity}\, w_c

    where u and w hold the same standard normal quantiles, scaled to mean 0 and variance 1, in two
    orders, so that effects hardly go with rates. Clusters are equal, so the average treatment
    effect is ``effect``.

    Parameters
    ----------
    clusters : int
        C.
    units_per_cluster : int
        Half of them treated; of an odd number, one more is a control.
    rate, effect : float
        Mean share of yes among controls, and mean difference of the treated.
    spread, heterogeneity : float
        Standard deviation over clusters of the controls' share and of the effect.

    Returns
    -------
    Population
        Columns ``treated``, ``y``, ``cluster``.

    Raises
    ------
    ValueError
        Where a probability would leave [0, 1].

    Examples
    --------
    >>> trial = binary_population()
    >>> print(trial, trial.effects.mean().round(9), trial.effects.std().round(9))
    Population(n=1200, clusters=40, levels=2) 0.2 0.05
    """
    scores = stats.norm.ppf((np.arange(clusters) + 0.5) / clusters)
    scores = scores / scores.std() if clusters > 1 else scores
    golden = (np.arange(clusters) + 0.5) * (np.sqrt(5) - 1) / 2 % 1
    control = rate + spread * scores
    treated = control + effect + heterogeneity * scores[np.argsort(np.argsort(golden))]
    yes = np.stack([control, treated], axis=1)
    if yes.min() < 0 or yes.max() > 1:
        raise ValueError(
            f"probabilities run from {yes.min():.3g} to {yes.max():.3g}, beyond [0, 1]: lower "
            "spread, heterogeneity or effect, or move rate"
        )
    return Population(
        schema=_schema(clusters, [0, 1]),
        shares=np.stack([1 - yes, yes], axis=-1),
        cell_size=_halved(np.full(clusters, units_per_cluster)),
    )


def _schema(clusters: int, levels: list[Any]) -> Schema:
    return Schema(
        arm=Arm("treated", control=0, treated=1),
        outcome=Levels("y", tuple(levels)),
        cluster=Categories("cluster", tuple(f"c{c + 1}" for c in range(clusters))),
    )


def _halved(size: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.stack([size - size // 2, size // 2], axis=1).astype(np.int64)
