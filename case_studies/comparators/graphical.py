r"""Private-PGM: what MST, AIM and MWEM share. Needs the package mbi (``pip install .[compare]``).

A table is cut into codes (`comparators.features.domain`); marginals are measured with Gaussian
noise; `mbi` fits the graphical model of greatest entropy to them; rows are drawn from it; and
`comparators.aipw.doubly_robust` is run on the rows, naively, as if they were real.

**Privacy.** Every step is zCDP, and their rhos add up to a total that is (epsilon, delta)-DP
(`comparators.noise.rho_for`). Replacing a record moves a marginal's counts by :math:`\sqrt 2` in L2
and by 2 in L1 (`REPLACED`). The published programs of mbi count tables as neighbours where one
record is *added or removed* (`ADDED`: 1 and 1); that is here to compare with them only. Gaussian
noise of scale sigma costs :math:`\Delta_2^2 / 2\sigma^2`, a choice by the exponential mechanism
:math:`\varepsilon^2/8`. The number of records is public.

McKenna, Sheldon and Miklau (2019), "Graphical-model based estimation and inference for differential
privacy", arXiv:1901.09136.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comparators.aipw import doubly_robust
from comparators.contract import Comparator, Estimate
from comparators.features import codes, domain, records_of_codes
from comparators.noise import rho_for
from dpcausal_bayes.schema import Schema

__all__ = [
    "ADDED",
    "REPLACED",
    "Adjacency",
    "Clique",
    "Counts",
    "Log",
    "comparator",
    "marginal",
    "pairs",
    "synthesise",
    "total_variation",
]

Clique = tuple[str, ...]
Array = NDArray[np.float64]

ITERATIONS = 500  # of mirror descent


class Adjacency(NamedTuple):
    """How far one record moves a marginal's counts: in L2, and in L1, as a score of selection."""

    l2: float
    l1: float


REPLACED = Adjacency(math.sqrt(2), 2.0)
ADDED = Adjacency(1.0, 1.0)


class Counts:
    """A coded table as one array of counts, of which every marginal is a sum."""

    def __init__(self, coded: dict[str, NDArray[np.int64]], size: dict[str, int]) -> None:
        self.size = size
        place = np.ravel_multi_index([coded[name] for name in size], tuple(size.values()))
        cells = math.prod(size.values())
        self.joint = np.bincount(place, minlength=cells).reshape(tuple(size.values())) * 1.0
        self.n = len(place)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.size)

    def cells(self, clique: Clique) -> int:
        """Return how many cells a marginal has."""
        return math.prod(self.size[name] for name in clique)


def marginal(joint: Array, names: Sequence[str], clique: Clique) -> Array:
    """Return the counts of a marginal, flat, its columns in the clique's order."""
    kept = joint.sum(axis=tuple(i for i, name in enumerate(names) if name not in clique))
    order = [name for name in names if name in clique]
    return np.asarray(kept.transpose([order.index(name) for name in clique]).ravel())


def pairs(names: Sequence[str]) -> list[Clique]:
    """Return all pairs of columns."""
    return list(itertools.combinations(names, 2))


class Log:
    """Measurements, what they cost, and the model that they make.

    Parameters
    ----------
    counts : Counts
    rng : numpy.random.Generator
    adjacency : Adjacency
    """

    def __init__(
        self, counts: Counts, rng: np.random.Generator, adjacency: Adjacency = REPLACED
    ) -> None:
        self.counts, self.rng, self.adjacency = counts, rng, adjacency
        self.rho = 0.0
        self._measured: list[Any] = []
        self._model: Any = None

    @property
    def cliques(self) -> list[Clique]:
        """What has been measured."""
        return [tuple(one.clique) for one in self._measured]

    def measure(self, clique: Clique, sigma: float) -> None:
        """Measure a marginal with noise of scale ``sigma`` and pay for it."""
        mbi = _mbi()
        exact = marginal(self.counts.joint, self.counts.names, clique)
        noisy = exact + self.rng.normal(0.0, sigma, exact.shape)
        self._measured.append(mbi.LinearMeasurement(noisy, clique, stddev=sigma))
        self.rho += self.adjacency.l2**2 / (2 * sigma**2)

    def fit(self) -> Array:
        """Fit the model to all measurements; return what it expects of every cell."""
        mbi = _mbi()
        size = self.counts.size
        self._model = mbi.estimation.MirrorDescent().estimate(
            mbi.Domain(list(size), list(size.values())),
            self._measured,
            known_total=float(self.counts.n),
            iters=ITERATIONS,
            warm_start=self._model,
        )
        return _joint(self._model, size) * self.counts.n

    def rows(self) -> dict[str, NDArray[np.int64]]:
        """Draw as many records as the table has from the model that was fitted last."""
        seed = int(self.rng.integers(2**31))
        drawn = _mbi().extensions.synthetic_data(self._model, self.counts.n, seed=seed)
        return {name: np.asarray(column).astype(int) for name, column in drawn.to_dict().items()}


Synthesiser = Callable[[Log, float], None]


def synthesise(
    counts: Counts,
    build: Synthesiser,
    rho: float,
    rng: np.random.Generator,
    adjacency: Adjacency = REPLACED,
) -> dict[str, NDArray[np.int64]]:
    """Run a mechanism within a zCDP budget and draw rows.

    Raises
    ------
    RuntimeError
        A mechanism that spent more than ``rho``.
    """
    log = Log(counts, rng, adjacency)
    build(log, rho)
    if log.rho > rho * (1 + 1e-9):
        raise RuntimeError(f"the mechanism spent rho = {log.rho:g} of {rho:g}")
    return log.rows()


def comparator(name: str, proof: str, build: Synthesiser) -> Comparator:
    """Return the comparator of a mechanism: synthetic rows, then AIPW that takes them as real."""

    def method(
        table: pd.DataFrame, schema: Schema, epsilon: float, delta: float, rng: np.random.Generator
    ) -> Estimate:
        counts = Counts(codes(table, schema), domain(schema))
        rows = synthesise(counts, build, rho_for(epsilon, delta), rng)
        return doubly_robust(records_of_codes(rows, schema))

    return Comparator(name, "record", proof, method)


def total_variation(counts: Counts, rows: dict[str, NDArray[np.int64]]) -> float:
    """Return the mean total variation distance of all pairs' marginals, in [0, 1]."""
    made = Counts(rows, counts.size)
    far = [
        np.abs(
            marginal(counts.joint, counts.names, pair) / counts.n
            - marginal(made.joint, counts.names, pair) / made.n
        ).sum()
        / 2
        for pair in pairs(counts.names)
    ]
    return float(np.mean(far))


def _joint(model: Any, size: dict[str, int]) -> Array:
    """Return a model's probability of every cell, from its potentials."""
    names = list(size)
    total = np.zeros(tuple(size.values()))
    for clique in model.potentials.cliques:
        factor = model.potentials[clique]
        order = [name for name in names if name in clique]
        values = np.asarray(factor.values).transpose(
            [list(factor.domain.attributes).index(name) for name in order]
        )
        total += values.reshape([size[name] if name in order else 1 for name in names])
    chance = np.exp(total - total.max())
    return np.asarray(chance / chance.sum())


def _mbi() -> Any:
    """Import mbi in double precision; small models compile faster without optimisation."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_disable_most_optimizations", True)
    import mbi

    return mbi
