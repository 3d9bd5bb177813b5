r"""Posterior draws from a few simulated releases of a guessed study: no data are needed.

A release of the guessed law is drawn as normal, queries and noise together; the posterior is that
of the analyst's default model, with the covariance of the queries held at the guess. It is drawn by
elliptical slice sampling (Murray, Adams and MacKay 2010), generalised to a t law (Nishihara, Murray
and Adams 2014) around the posterior's own normal approximation, for all releases at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.custodian.beliefs import Beliefs, Law, covariance, moments

__all__ = ["posterior", "posterior_mode"]

RELEASES, CHAINS, STEPS, BURN = 16, 20, 60, 20
WIDER, FREEDOM = 1.8, 10.0  # variance over the normal approximation's, degrees of freedom
Predicted = Callable[[NDArray[Any]], NDArray[Any]]

_SMALL = 1e-20  # step of a complex derivative


def posterior(beliefs: Beliefs, law: Law, n: int, noise: NDArray[np.float64], seed: int) -> Law:
    """Return what posteriors of simulated releases hold, (releases, draws, ...).

    Parameters
    ----------
    beliefs : Beliefs
    law : Law
        The guess that releases are simulated from: without effects, of one propensity.
    n : int
        Number of records.
    noise : array, shape (Q,)
        Standard deviation of every query's noise, in records.
    seed : int
        Of the simulation.
    """
    rng = np.random.default_rng(seed)
    binary = beliefs.binary
    spread = n * covariance(law, binary=binary) + np.diag(noise**2)
    root = np.linalg.cholesky(spread)
    unit = np.linalg.inv(root)  # brings queries to unit variance

    def predicted(z: NDArray[Any]) -> NDArray[Any]:
        return n * moments(beliefs.law(z), binary=binary) @ unit.T

    start = beliefs.variables_of(law)
    error = rng.normal(size=(RELEASES // 2, len(noise)))
    seen = predicted(start) + np.concatenate([error, -error])  # pairs, whose luck cancels
    fits = [posterior_mode(predicted, one, start) for one in seen]
    centre, root = (np.stack(parts) for parts in zip(*fits, strict=True))
    draws = _slices(predicted, seen, centre, np.sqrt(WIDER) * root, rng)
    return beliefs.law(draws)


def posterior_mode(
    predicted: Predicted, seen: NDArray[np.float64], start: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mode of a posterior and a root of its normal approximation's covariance.

    By Gauss-Newton steps, halved until they climb.
    """

    def badness(z: NDArray[np.float64]) -> float:
        return float(np.sum((seen - predicted(z)) ** 2) + z @ z) / 2

    z, now = start, badness(start)
    identity = np.eye(len(z))
    for _ in range(30):
        slope = predicted(z + 1j * _SMALL * identity).imag / _SMALL  # (K, Q)
        root = np.linalg.cholesky(slope @ slope.T + identity)
        down = slope @ (seen - predicted(z)) - z
        step = np.linalg.solve(root.T, np.linalg.solve(root, down))
        length = 1.0
        while badness(z + length * step) > now and length > 1e-3:
            length /= 2
        z = z + length * step
        before, now = now, badness(z)
        if before - now < 0.05:  # good enough to propose from
            break
    return z, np.linalg.inv(root).T


def _slices(
    predicted: Predicted,
    seen: NDArray[np.float64],
    centre: NDArray[np.float64],
    root: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw from each posterior by elliptical slices around a t law with this centre and root.

    Releases have CHAINS chains each; the result has shape (releases, draws, K).
    """
    shape = (len(seen), CHAINS, centre.shape[-1])

    def flat(array: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.broadcast_to(array, (*shape[:2], array.shape[-1])).reshape(-1, array.shape[-1])

    middle, wanted = flat(centre[:, None]), flat(seen[:, None])

    def from_unit(u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bring variables of the unit normal to the normal's own scale, around zero."""
        return flat(u.reshape(shape) @ np.swapaxes(root, -1, -2))

    def density(
        moved: NDArray[np.float64], u: NDArray[np.float64], rows: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Return the log posterior over the t law's density."""
        z = middle[rows] + moved
        misfit = np.sum((wanted[rows] - predicted(z)) ** 2, axis=-1)
        tail = (FREEDOM + u.shape[-1]) * np.log1p(np.sum(u**2, axis=-1) / FREEDOM)
        return np.asarray(tail - misfit - np.sum(z**2, axis=-1)) / 2

    every = np.arange(len(middle))
    u = rng.normal(size=middle.shape) / np.sqrt(WIDER)
    moved = from_unit(u)
    now, kept = density(moved, u, every), []
    for step in range(STEPS):
        # a t law is normal given a random scale
        scale = (FREEDOM + np.sum(u**2, axis=-1)) / rng.chisquare(FREEDOM + u.shape[-1], len(u))
        v = np.sqrt(scale)[:, None] * rng.normal(size=u.shape)
        other, floor = from_unit(v), now - rng.exponential(size=len(u))
        angle = rng.uniform(0, 2 * np.pi, len(u))
        low, high = angle - 2 * np.pi, angle.copy()
        rows = every
        old_u, u, old, moved = u, u.copy(), moved, moved.copy()
        while len(rows):
            cos, sin = np.cos(angle[rows, None]), np.sin(angle[rows, None])
            tried, tried_u = old[rows] * cos + other[rows] * sin, old_u[rows] * cos + v[rows] * sin
            value = density(tried, tried_u, rows)
            good = value > floor[rows]
            moved[rows[good]], u[rows[good]], now[rows[good]] = (
                tried[good],
                tried_u[good],
                value[good],
            )
            rows = rows[~good]
            left = angle[rows] < 0
            low[rows] = np.where(left, angle[rows], low[rows])
            high[rows] = np.where(left, high[rows], angle[rows])
            angle[rows] = rng.uniform(low[rows], high[rows])
        if step >= BURN:
            kept.append((middle + moved).reshape(shape))
    return np.concatenate(kept, axis=1)
