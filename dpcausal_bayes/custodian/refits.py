"""What noisy moments say of a record: the most likely law under the analyst's default beliefs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.custodian.beliefs import Beliefs, Law, covariance, moments
from dpcausal_bayes.custodian.simulated import posterior_mode

__all__ = ["refit"]

PASSES = 2  # the queries' covariance is taken at the law that the pass before found


def refit(
    levels: Sequence[int],
    noisy: NDArray[np.float64],
    noise: NDArray[np.float64],
    n: int,
    *,
    binary: bool,
) -> Law:
    """Return the posterior's mode, given noisy sums: a stand-in for the analyst's model.

    Parameters
    ----------
    levels : sequence of int
        Levels of the group's covariates; none for the arm totals.
    noisy, noise : ndarray, shape (Q,)
        The group's cells and, unless binary, the squares, with their noise's standard deviations:
        in records.
    n : int
    binary : bool

    Examples
    --------
    >>> noisy = np.array([61.0, -12.0, 42.0, 9.0, -20.0, -15.0])  # two arms: masses, sums; squares
    >>> law = refit([], noisy, np.full(6, 3.0), 100, binary=False)
    >>> law.share.round(1).ravel().tolist(), law.mean.round(1).ravel().tolist()
    ([0.6, 0.4], [-0.2, 0.2])
    """
    beliefs = Beliefs(tuple(levels), binary)
    z = np.zeros(beliefs.size)
    for _ in range(PASSES):
        spread = n * covariance(beliefs.law(z), binary=binary) + np.diag(noise**2)
        unit = np.linalg.inv(np.linalg.cholesky(spread))  # brings queries to unit variance

        def predicted(z: NDArray[Any], unit: NDArray[np.float64] = unit) -> NDArray[Any]:
            return n * moments(beliefs.law(z), binary=binary) @ unit.T

        z, _ = posterior_mode(predicted, unit @ noisy, z)
    return beliefs.law(z)
