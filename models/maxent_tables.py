"""The two tables of a maximum-entropy law from its coefficients, and the way back for gradients.

The formulas are those of `dpcausal_bayes.models.maxent_laws`. Both functions are loops for numba:
in a model's graph they would be a hundred and more nodes, each compiled apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.link.numba.dispatch import basic as numba_dispatch

__all__ = ["forward", "pull_back", "tables"]


@numba_dispatch.numba_njit
def _softmax(x: Any, size: int, share: Any) -> float:
    """Write exp(x) over its sum, of the first entries; return the logarithm of the sum."""
    most, total = x[0], 0.0
    for i in range(size):
        most = max(most, x[i])
    for i in range(size):
        share[i] = np.exp(x[i] - most)
        total += share[i]
    for i in range(size):
        share[i] /= total
    return most + np.log(total)


@numba_dispatch.numba_njit
def _own(c: Any, arm: int, grid: Any, binary: bool, own: Any, log_own: Any) -> Any:
    """Write q_t and its logarithm; return its mean and what tilts are divided by."""
    n_points = len(grid)
    slope, curvature = c[1 + arm], 0.0
    if not binary:
        precision = np.exp(c[3 + arm])
        slope, curvature = slope * (2 + precision), precision - 1 / precision
    for y in range(n_points):
        log_own[y] = slope * grid[y] - 0.5 * curvature * grid[y] ** 2
    log_total, mean, variance = _softmax(log_own, n_points, own), 0.0, 0.0
    for y in range(n_points):
        log_own[y] -= log_total
        mean += own[y] * grid[y]
    for y in range(n_points):
        variance += own[y] * (grid[y] - mean) ** 2
    if binary:
        return mean, 1.0
    return mean, variance + (grid[1] - grid[0]) ** 2 / 12


@numba_dispatch.numba_njit
def _of_levels(
    c: Any, arm: int, contrasts: Any, sizes: Any, first: int, scale: float, share: Any, tilt: Any
) -> None:
    """Write log shares and tilts (G, L) of an arm."""
    side, before = arm - 0.5, 0
    n_terms = sizes.sum() - len(sizes)
    for g in range(len(sizes)):
        for k in range(sizes[g]):
            for j in range(sizes[g] - 1):
                at, weight = first + before + j, contrasts[g, k, j]
                share[g, k] += weight * (c[at] + side * c[at + n_terms])
                tilt[g, k] += weight * c[at + (2 + arm) * n_terms] / scale
        before += sizes[g] - 1


@numba_dispatch.numba_njit
def forward(
    c: Any, grid: Any, contrasts: Any, sizes: Any, binary: bool, cell: Any, level: Any,
    tilt: Any, base: Any, own: Any, weight: Any,
) -> None:  # fmt: skip
    """Write a law of coefficients (K,): cells, levels, tilts and base; q and w beside them."""
    n_points, first = len(grid), 3 if binary else 5
    x, share = np.empty(level.shape[2]), np.empty(level.shape[2])
    for t in range(2):
        bent = np.empty(n_points)
        mean, scale = _own(c, t, grid, binary, own[t], bent)
        log_share = np.zeros(tilt.shape[1:])
        _of_levels(c, t, contrasts, sizes, first, scale, log_share, tilt[t])
        for y in range(n_points):
            base[t, y] = 0.0
        for g in range(len(sizes)):
            log_z0 = _softmax(log_share[g], sizes[g], weight[t, g])
            centre, spread = 0.0, 0.0
            for k in range(sizes[g]):
                centre += weight[t, g, k] * tilt[t, g, k]
            for k in range(sizes[g]):
                spread += weight[t, g, k] * (tilt[t, g, k] - centre) ** 2
            for y in range(n_points):
                gap = grid[y] - mean
                for k in range(sizes[g]):
                    x[k] = log_share[g, k] + gap * tilt[t, g, k]
                log_z = _softmax(x, sizes[g], share) - log_z0
                for k in range(sizes[g]):
                    level[t, g, k, y] = share[k]
                base[t, y] -= log_z
                if not binary:
                    bent[y] += log_z - gap * centre - 0.5 * gap**2 * spread
        log_total = _softmax(bent, n_points, cell[t])
        chance = 1 / (1 + np.exp(-c[0] if t else c[0]))
        for y in range(n_points):
            base[t, y] += bent[y] - log_total
            cell[t, y] *= chance


@numba_dispatch.numba_njit
def pull_back(
    c: Any, grid: Any, contrasts: Any, sizes: Any, binary: bool, cell: Any, level: Any,
    tilt: Any, own: Any, weight: Any, d_cell: Any, d_level: Any,
) -> Any:  # fmt: skip
    """Return the gradient in the coefficients from those in cells and levels."""
    n_points, first = len(grid), 3 if binary else 5
    n_terms = sizes.sum() - len(sizes)
    d_c, d_log, d_gap, d_own = np.zeros(len(c)), np.empty(n_points), np.zeros(n_points), 0.0
    chance = 1 / (1 + np.exp(-c[0]))
    for t in range(2):
        side, mean, scale = t - 0.5, 0.0, 1.0
        for y in range(n_points):
            mean += own[t, y] * grid[y]
        if not binary:
            scale = (grid[1] - grid[0]) ** 2 / 12
            for y in range(n_points):
                scale += own[t, y] * (grid[y] - mean) ** 2
        of_arm, total = chance if t else 1 - chance, 0.0
        for y in range(n_points):
            total += d_cell[t, y] * cell[t, y]
        d_c[0] += 2 * side * (1 - of_arm) * total
        first_moment, second_moment = 0.0, 0.0
        for y in range(n_points):
            d_log[y] = cell[t, y] * (d_cell[t, y] - total / of_arm)
            first_moment += d_log[y] * (grid[y] - mean)
            second_moment += d_log[y] * (grid[y] - mean) ** 2
            d_gap[y] = 0.0
        d_scale, before = 0.0, 0
        for g in range(len(sizes)):
            size = sizes[g]
            d_share, d_tilt, share = np.zeros(size), np.zeros(size), weight[t, g]
            for y in range(n_points):
                average = 0.0
                for k in range(size):
                    average += level[t, g, k, y] * d_level[t, g, k, y]
                if not binary:
                    average -= d_log[y]
                for k in range(size):
                    d_logit = level[t, g, k, y] * (d_level[t, g, k, y] - average)
                    d_share[k] += d_logit
                    d_tilt[k] += (grid[y] - mean) * d_logit
                    d_gap[y] += tilt[t, g, k] * d_logit
            if not binary:
                centre, spread = 0.0, 0.0
                for k in range(size):
                    centre += share[k] * tilt[t, g, k]
                for k in range(size):
                    spread += share[k] * (tilt[t, g, k] - centre) ** 2
                for y in range(n_points):
                    d_gap[y] -= d_log[y] * (centre + (grid[y] - mean) * spread)
                for k in range(size):
                    far = tilt[t, g, k] - centre
                    d_tilt[k] -= share[k] * (first_moment + second_moment * far)
                    d_share[k] -= share[k] * far * first_moment
                    d_share[k] -= 0.5 * share[k] * (far**2 - spread) * second_moment
            for k in range(size):
                d_scale -= d_tilt[k] * tilt[t, g, k] / scale
                for j in range(size - 1):
                    at, column = first + before + j, contrasts[g, k, j]
                    d_c[at] += column * d_share[k]
                    d_c[at + n_terms] += side * column * d_share[k]
                    d_c[at + (2 + t) * n_terms] += column * d_tilt[k] / scale
            before += size - 1
        d_mean, average = 0.0, 0.0
        if binary:
            d_scale = 0.0
        for y in range(n_points):
            d_mean -= d_gap[y]
        for y in range(n_points):
            average += own[t, y] * (d_mean * grid[y] + d_scale * (grid[y] - mean) ** 2)
        d_slope, d_curvature = 0.0, 0.0
        for y in range(n_points):
            d_own = d_mean * grid[y] + d_scale * (grid[y] - mean) ** 2 - average
            d_x = d_log[y] + own[t, y] * d_own
            d_slope += d_x * grid[y]
            d_curvature -= 0.5 * d_x * grid[y] ** 2
        if binary:
            d_c[1 + t] += d_slope
        else:
            precision = np.exp(c[3 + t])
            d_c[1 + t] += d_slope * (2 + precision)
            d_c[3 + t] += d_slope * c[1 + t] * precision
            d_c[3 + t] += d_curvature * (precision + 1 / precision)
    return d_c


def _tables(c: Any, grid: Any, contrasts: Any, sizes: Any, binary: bool) -> Any:
    """Return cells, levels, tilts and bases of many coefficients (S, K)."""
    n, n_points, groups, levels = len(c), len(grid), len(sizes), contrasts.shape[1]
    shape = (n, 2, n_points)
    cell, base, own = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    level = np.zeros((n, 2, groups, levels, n_points))
    tilt, weight = np.zeros((n, 2, groups, levels)), np.zeros((n, 2, groups, levels))
    for i in range(n):
        forward(
            c[i], grid, contrasts, sizes, binary, cell[i], level[i], tilt[i], base[i], own[i],
            weight[i],
        )  # fmt: skip
    return cell, level, tilt, base


tables = numba_dispatch.numba_njit(_tables, final_function=True)
