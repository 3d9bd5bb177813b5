"""Releases with seeded noise, for studies of the method. They protect nobody, and say so."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpcausal_bayes.columns import Scalar
from dpcausal_bayes.gram_workloads import Workload
from dpcausal_bayes.laplace_mechanism import MomentMechanism
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.moments import make_moment_release, table_moments
from dpcausal_bayes.privatise import make_release
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.schema import Schema

__all__ = ["SeededNoise", "simulate_moments", "simulate_release"]


class SeededNoise:
    """Noise that a seed repeats, from NumPy's generator: for simulation only.

    Parameters
    ----------
    seed : int or numpy.random.Generator

    Examples
    --------
    >>> SeededNoise(1).integers(Laplace(2.0), (3,)).dtype
    dtype('int64')
    """

    name = "seeded simulation"

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(seed)

    def integers(self, law: Laplace | Gaussian, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Draw independent noise from ``law``."""
        if isinstance(law, Laplace):
            return self._laplace(law.scale, shape)
        return self._gaussian(law.scale, int(np.prod(shape))).reshape(shape)

    def words(self, n: int) -> NDArray[np.uint64]:
        """Draw n independent uniform 64-bit words."""
        return self._rng.integers(0, 2**64, size=n, dtype=np.uint64)

    def choose(self, scores: NDArray[np.int64], scale: float) -> int:
        """Draw a place with a probability proportional to exp(score / scale)."""
        return int(np.argmax(scores / scale + self._rng.gumbel(size=len(scores))))

    def _laplace(self, scale: float, shape: tuple[int, ...]) -> NDArray[np.int64]:
        # the difference of two geometric variables
        stop = -np.expm1(-1 / scale)
        return self._rng.geometric(stop, shape) - self._rng.geometric(stop, shape)

    def _gaussian(self, scale: float, n: int) -> NDArray[np.int64]:
        # rejection from a discrete Laplace of scale t, as in Canonne, Kamath and Steinke (2020)
        t = np.floor(scale) + 1
        kept: list[NDArray[np.int64]] = []
        missing = n
        while missing > 0:
            draw = self._laplace(t, (2 * missing + 10,))
            log_accept = -0.5 * ((np.abs(draw) - scale**2 / t) / scale) ** 2
            draw = draw[np.log1p(-self._rng.random(draw.shape)) < log_accept]
            kept.append(draw[:missing])
            missing -= len(kept[-1])
        return np.concatenate([np.zeros(0, np.int64), *kept])


def simulate_release(
    table: pd.DataFrame,
    schema: Schema,
    mechanism: ClusterDP,
    *,
    seed: int | np.random.Generator,
) -> LabelRelease:
    """Make a release of a simulated table with seeded noise, stamped non-private.

    Parameters
    ----------
    table : pandas.DataFrame, n rows
        With the schema's arm, outcome and cluster columns.
    schema : Schema
    mechanism : ClusterDP
    seed : int or numpy.random.Generator

    Returns
    -------
    LabelRelease
        The same law as the custodian's `release_labels`, from the same code; ``non_private`` is
        True, and `LabelRelease.save` refuses it unless told otherwise.

    Raises
    ------
    ValueError
        A value outside the schema's levels.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Levels
    >>> schema = Schema(arm=Arm("any", control=0, treated=1), outcome=Levels("got", [0, 1]))
    >>> table = pd.DataFrame({"any": [0, 1, 1], "got": [1, 0, 1]})
    >>> mechanism = ClusterDP(lam=0.5, sigma=1.0, gamma=0.25)
    >>> release = simulate_release(table, schema, mechanism, seed=1)
    >>> release.non_private, release == simulate_release(table, schema, mechanism, seed=1)
    (True, True)
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table is a {type(table).__name__}: it must be a pandas DataFrame")
    if table.empty:
        raise ValueError("table has no rows: there is nothing to release")
    arm = _codes(table, schema.arm.column, schema.arm.levels)
    label = _codes(table, schema.outcome.column, schema.label_outcome.levels)
    cluster = np.zeros(len(table), dtype=np.int32)
    if schema.cluster is not None:
        cluster = _codes(table, schema.cluster.column, schema.cluster.levels)
    return make_release(
        schema, mechanism, cluster, arm, label, source=SeededNoise(seed), non_private=True
    )


def simulate_moments(
    table: pd.DataFrame,
    workload: Workload,
    mechanism: MomentMechanism,
    *,
    seed: int | np.random.Generator,
) -> MomentRelease:
    """Make a causal release of a simulated table with seeded noise, stamped non-private.

    Parameters
    ----------
    table : pandas.DataFrame, n rows
        With the arm, the outcome and the workload's covariates.
    workload : CausalWorkload or GramWorkload
    mechanism : GaussianMechanism or LaplaceMechanism
        Calibrated for this workload.
    seed : int or numpy.random.Generator

    Returns
    -------
    MomentRelease
        The same law as the custodian's `release_moments`; ``non_private`` is True, and
        `MomentRelease.save` refuses it unless told otherwise.

    Raises
    ------
    TypeError, ValueError
        What `table_moments` refuses, or a mechanism of another workload.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.workloads import CausalWorkload
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10))
    >>> workload = CausalWorkload(schema)
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-5)
    >>> table = pd.DataFrame({"t": [0, 1] * 500, "y": [2.0, 4.0, 6.0, 8.0] * 250})
    >>> release = simulate_moments(table, workload, mechanism, seed=1)
    >>> release.non_private, release == simulate_moments(table, workload, mechanism, seed=1)
    (True, True)
    """
    exact = table_moments(table, workload)
    return make_moment_release(
        workload, mechanism, exact, len(table), source=SeededNoise(seed), non_private=True
    )


def _codes(table: pd.DataFrame, column: str, levels: tuple[Scalar, ...]) -> NDArray[np.int32]:
    """Return the place of each value among the levels; True, 1 and 1.0 are one value."""
    if column not in table.columns:
        raise ValueError(f"table has no column {column!r}: it has {list(table.columns)}")
    places, distinct = pd.factorize(table[column])
    known = {level: code for code, level in enumerate(levels)}
    codes = np.array([*(known.get(value, -1) for value in distinct), -1], dtype=np.int32)[places]
    if codes.min() < 0:
        value = table[column].iloc[int(np.argmin(codes))]
        raise ValueError(f"column {column!r} holds {value!r}, which is not among {list(levels)}")
    return codes
