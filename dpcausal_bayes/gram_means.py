r"""Mean potential outcomes of a regression in each arm: from confidential moments to a population.

Given the confidential moments of arm t (n of its records, means :math:`\bar x, \bar y`, covariance
S of covariates, its residual variance) the outcome is taken as linear in :math:`\phi` with normal
errors of one variance. With the reference prior, constant in :math:`(\alpha, \beta, \log \sigma)`,

.. math::
    \sigma_t^2 \sim \mathrm{RSS}_t / \chi^2_{n_t - d - 1}, \qquad
    \beta_t \sim N(\hat\beta_t, \sigma_t^2 S_t^{-1} / n_t), \qquad
    \alpha_t + \beta_t' x \sim N(\bar y_t + \beta_t'(x - \bar x_t), \sigma_t^2 / n_t).

Those assigned to a have under t the mean outcome :math:`\alpha_t + \beta_t' \xi_a`, where
:math:`\xi_a` is their mean of :math:`\phi`: in the population :math:`N(\bar x_a, S_a / n_a)`, of
these units :math:`\bar x_a` itself. These units' outcomes under their own arm are in the table, and
the mean of those that are missing has an error of its own, :math:`N(0, \sigma_t^2 / n_a)`.

*What this assumes of fourth moments*, of residuals e: that
:math:`\mathrm{E}[x x' e^2] = \sigma^2\,\mathrm{E}[x x']`, as if errors had one variance; the
release does not say otherwise. With other errors :math:`\beta_t` has a sandwich's variance in
truth. It enters an effect only through :math:`\xi_a - \bar x_t`, the imbalance between the arms.

*By levels.* Of a covariate that has levels, mean covariates of each level, arm by arm, are exact
functions of second moments, and so are these units' own mean outcomes. In the population they vary
with the covariance that :math:`\phi` has within levels under a normal law; levels are then moved
together, so that their average is the arm's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.gram_workloads import GramWorkload

__all__ = ["ConfidentialGram", "DrawnMeans", "Levels", "draw_means", "means_by_level"]

Array = NDArray[np.float64]


class ConfidentialGram(NamedTuple):
    """Draws of a table's moments by arm: records (S, 2), means (S, 2, p), covariances.

    The last of the p columns is the outcome; all lie in [-1, 1].
    """

    records: Array
    mean: Array
    covariance: Array


class DrawnMeans(NamedTuple):
    """Draws of mean outcomes, on [-1, 1].

    Attributes
    ----------
    mean : ndarray, shape (S, assigned, arm, stratum)
    weight : ndarray, shape (S, assigned, stratum)
    line : ndarray, shape (S, arm)
        The regressions at the population's mean columns.
    slope : ndarray, shape (S, arm, d)
    centre : ndarray, shape (S, d)
        The population's mean columns.
    """

    mean: Array
    weight: Array
    line: Array
    slope: Array
    centre: Array


class Levels:
    """The strata, as weights of (1, phi): the share of a stratum is linear in the means."""

    def __init__(self, workload: GramWorkload) -> None:
        features, width = workload.features, 1 + len(workload.features)
        rows, self.groups, labels = [np.eye(width)[0]], [slice(0, 1)], ["all"]
        arms = list(workload.schema.arms)
        factors: dict[str, list[str]] = {}
        self.own: list[list[int]] = [[]]
        for place, field in enumerate(workload.fields):
            if isinstance(field, Bounded):
                continue
            own = [j for j, feature in enumerate(features) if feature.covariate == place]
            others = [(np.eye(width)[0] + np.eye(width)[1 + j]) / 2 for j in own]
            first = len(rows)
            rows += [np.eye(width)[0] - sum(others), *others]
            self.groups.append(slice(first, len(rows)))
            self.own.append(own)
            labels += [f"{field.column}={name}" for name in field.labels]
            factors[field.column] = [""] * first + list(field.labels)
        self.rows = np.array(rows)
        padded = {name: part + [""] * (len(rows) - len(part)) for name, part in factors.items()}
        self.coords: dict[str, Any] = {
            "assigned": arms,
            "arm": arms,
            "stratum": labels,
            **{name: ("stratum", part) for name, part in padded.items()},
        }


def draw_means(
    table: ConfidentialGram, levels: Levels, population: str, rng: np.random.Generator
) -> DrawnMeans:
    """Draw mean outcomes of a population given a table's moments.

    Parameters
    ----------
    table : ConfidentialGram
    levels : Levels
    population : "sample", "super" or "table"
        The last is least squares on the table's own moments, as they are.
    rng : numpy.random.Generator
    """
    n = np.maximum(table.records, 1.0)
    x, y = table.mean[..., :-1], table.mean[..., -1]
    share, level_mean = means_by_level(table, levels)
    beta, sigma = _regression(table, n, rng if population != "table" else None)
    arm_share = n / n.sum(-1, keepdims=True)
    if population == "super":
        treated = rng.beta(n[:, 1] + 0.5, n[:, 0] + 0.5)
        arm_share = np.stack([1 - treated, treated], axis=-1)
        x_of, share = _population(table, n, level_mean, levels, rng)
    else:
        x_of = level_mean[..., :-1]
    # (S, assigned, arm, stratum)
    moved = x_of[:, :, None] - x[:, None, :, None]
    mean = y[:, None, :, None] + np.einsum("zatsj,ztj->zats", moved, beta)
    centre = np.einsum("za,zaj->zj", arm_share, x_of[:, :, 0])
    line = y + np.einsum("ztj,ztj->zt", centre[:, None] - x, beta)
    if population != "table":
        error = sigma / np.sqrt(n) * rng.standard_normal(n.shape)
        mean, line = mean + error[:, None, :, None], line + error
    if population == "sample":
        mean = mean + _missing(sigma, n, share, levels, rng)
    if population != "super":
        for a in range(2):
            mean[:, a, a] = level_mean[:, a, :, -1]
    return DrawnMeans(mean, arm_share[..., None] * share, line, beta, centre)


def means_by_level(table: ConfidentialGram, levels: Levels) -> tuple[Array, Array]:
    """Return the strata's shares (S, 2, stratum) and mean columns (S, 2, stratum, p), by arm.

    Parameters
    ----------
    table : ConfidentialGram
    levels : Levels
    """
    first = np.concatenate([np.ones((*table.mean.shape[:-1], 1)), table.mean], axis=-1)
    second = first[..., :, None] * table.mean[..., None, :]
    second[..., 1:, :] += table.covariance
    share = first[..., :-1] @ levels.rows.T
    sums = levels.rows @ second[..., :-1, :]
    share = np.maximum(share, 0)  # of rounding, where a level is empty
    return share, sums / np.maximum(share, 1e-12)[..., None]


def _regression(
    table: ConfidentialGram, n: Array, rng: np.random.Generator | None
) -> tuple[Array, Array]:
    """Return slopes (S, 2, d) and residual scales (S, 2), drawn; without rng least squares."""
    s, cross = table.covariance[..., :-1, :-1], table.covariance[..., :-1, -1]
    d = cross.shape[-1]
    root = np.linalg.cholesky(s)
    half = np.linalg.solve(root, cross[..., None])[..., 0]
    residual = np.maximum(table.covariance[..., -1, -1] - (half**2).sum(-1), 0)
    sigma = np.sqrt(residual)
    if rng is not None:
        # an arm with fewer records than slopes says nothing of its errors: one degree is left
        sigma = np.sqrt(n * residual / rng.chisquare(np.maximum(n - d - 1, 1)))
        half = half + (sigma / np.sqrt(n))[..., None] * rng.standard_normal(half.shape)
    return np.linalg.solve(np.swapaxes(root, -1, -2), half[..., None])[..., 0], sigma


def _population(
    table: ConfidentialGram,
    n: Array,
    level_mean: Array,
    levels: Levels,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draw the strata's mean covariates (S, 2, stratum, d) and shares in the population."""
    s = table.covariance[..., :-1, :-1]
    noise = rng.standard_normal((*s.shape[:-1], 1))
    arm = table.mean[..., :-1] + (np.linalg.cholesky(s) @ noise)[..., 0] / np.sqrt(n)[..., None]
    share = np.concatenate([np.ones((*n.shape, 1)), arm], axis=-1) @ levels.rows.T
    share = np.maximum(share, 0)
    drawn = level_mean[..., :-1].copy()
    drawn[..., 0, :] = arm
    for group, own in zip(levels.groups[1:], levels.own[1:], strict=True):
        share[..., group] /= share[..., group].sum(-1, keepdims=True)
        across = s[..., own]
        within = s - across @ np.linalg.solve(s[..., own, :][..., own], np.swapaxes(across, -1, -2))
        other = np.setdiff1d(np.arange(s.shape[-1]), own)  # own columns do not vary in a level
        if not len(other):
            continue
        root = np.linalg.cholesky(within[..., other[:, None], other] + 1e-12 * np.eye(len(other)))
        records = np.maximum(n[..., None] * share[..., group], 1)
        z = rng.standard_normal((*records.shape, len(other)))
        step = np.einsum("zaij,zalj->zali", root, z) / np.sqrt(records)[..., None]
        part = drawn[..., group, :][..., other] + step
        gap = arm[..., other] - np.einsum("zal,zali->zai", share[..., group], part)
        part = part + gap[..., None, :]
        for k, j in enumerate(other):
            drawn[..., group, j] = part[..., k]
    return drawn, share


def _missing(
    sigma: Array, n: Array, share: Array, levels: Levels, rng: np.random.Generator
) -> Array:
    """Draw the mean errors of missing outcomes, (S, assigned, arm, stratum)."""
    records = np.maximum(n[:, :, None] * share, 1)[:, :, None]
    shape = (len(n), 2, 2, share.shape[-1])
    error = rng.standard_normal(shape) / np.sqrt(records)
    for group in levels.groups[1:]:
        weight = share[:, :, None, group]
        gap = error[..., :1] - (weight * error[..., group]).sum(-1, keepdims=True)
        error[..., group] += gap
    return sigma[:, None, :, None] * error
