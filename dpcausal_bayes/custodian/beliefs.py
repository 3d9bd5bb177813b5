r"""What the analyst's model will believe of a study: its prior, and the law of a record.

A plan has to know this, as where noise is not small the posterior is narrower than any estimate
from the moments alone. The analyst's own code is not at hand in this half, so the default model is
stated once more: K standard normal variables z, from which shares, means and dispersions follow. A
test compares the two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Beliefs", "Law", "covariance", "moments"]

# Prior standard deviations: of what is the same in all strata, of what is additive in their
# covariates, of the rest. The last two are medians of lognormal laws with this spread.
SCALES = {
    "log_share": (None, 0.7, 0.3),
    "propensity": (1.5, 0.5, 0.2),
    "baseline": (1.0, 0.3, 0.1),
    "effect": (1.0, 0.15, 0.05),
}
SPREAD = 0.5
# slopes of baseline and effect on the propensity, over strata, and on its square
FOLLOWS = {"baseline": (1.0, 0.3), "effect": (0.3, 0.1)}
DISPERSION = (-3.0, 2.0)  # mean and standard deviation of its log odds
_SIGN = np.array([-0.5, 0.5])[:, None]


class Law(NamedTuple):
    """The law of a record.

    Attributes
    ----------
    share, mean : array, shape (..., 2, L)
        Of arm and stratum: share of all records, mean of the outcome scaled to [-1, 1].
    dispersion : array, shape (..., 2)
        Of an arm: variance within strata as a share of the largest there can be, 1 - mean².
    """

    share: NDArray[Any]
    mean: NDArray[Any]
    dispersion: NDArray[Any]


@dataclass(frozen=True)
class Beliefs:
    """The default model of strata, as a map from standard normal variables to the law of a record.

    Parameters
    ----------
    levels : sequence of int
        Levels of the covariates that are crossed; none is one stratum.
    binary : bool
        Whether the outcome has two values, and so no dispersion.

    Examples
    --------
    >>> beliefs = Beliefs((3, 2), binary=False)
    >>> law = beliefs.law(np.zeros(beliefs.size))
    >>> law.share.shape, float(law.share.sum().round(9)), law.mean[0].tolist()
    ((2, 6), 1.0, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    """

    levels: tuple[int, ...]
    binary: bool

    @property
    def n_strata(self) -> int:
        """L."""
        return int(np.prod(self.levels, dtype=int))

    @functools.cached_property
    def _parts(self) -> list[tuple[str, str, NDArray[np.float64]]]:
        """Return what is moved, the part's name and its columns, (L, k), scaled."""
        main, rest = _contrasts(self.levels)
        parts = []
        for surface, scales in SCALES.items():
            for name, columns, scale in zip(
                ("level", "main", "rest"), (np.ones((self.n_strata, 1)), main, rest), scales,
                strict=True,
            ):  # fmt: skip
                if scale is not None and columns.shape[1]:
                    parts.append((surface, name, scale * columns))
        return parts

    @property
    def size(self) -> int:
        """K."""
        coefficients = sum(columns.shape[1] for *_, columns in self._parts)
        return coefficients + self._spreads() + 4 * (self.n_strata > 1) + 2 * (not self.binary)

    def _spreads(self) -> int:
        return sum(name != "level" for _, name, _ in self._parts)

    def law(self, z: NDArray[Any]) -> Law:
        """Return the law that follows from variables of shape (..., K), which may be complex."""
        surfaces = {surface: np.zeros(1) for surface in SCALES}
        selection: Any = np.zeros(1)
        first, last = 0, z.shape[-1]
        for surface, name, columns in self._parts:
            moved = z[..., first : first + columns.shape[1]] @ columns.T
            first += columns.shape[1]
            if name != "level":  # how strongly strata vary is not known
                last -= 1
                moved = moved * np.exp(SPREAD * z[..., last, None])
                if surface == "propensity":
                    selection = selection + moved
            surfaces[surface] = surfaces[surface] + moved
        if self.n_strata > 1:
            bent = selection**2 - (selection**2).mean(axis=-1, keepdims=True)
            for surface, (slope, bend) in FOLLOWS.items():
                moved = slope * z[..., first, None] * selection
                moved = moved + bend * z[..., first + 1, None] * bent
                surfaces[surface] = surfaces[surface] + moved
                first += 2
        logit = _over_arms(surfaces["log_share"], surfaces["propensity"])
        weight = np.exp(logit)
        mean = np.tanh(_over_arms(surfaces["baseline"], surfaces["effect"]))
        odds = DISPERSION[0] + DISPERSION[1] * z[..., first : first + 2]
        dispersion = 1 / (1 + np.exp(-odds)) if not self.binary else np.ones(2)
        return Law(weight / weight.sum(axis=(-2, -1), keepdims=True), mean, dispersion)

    def variables_of(self, law: Law) -> NDArray[np.float64]:
        """Return variables that a law without effects and of one propensity follows from."""
        z = np.zeros(self.size)
        share = np.log(law.share.sum(axis=0))
        targets = {
            "log_share": share - share.mean(),
            "propensity": np.full(self.n_strata, np.log(law.share[1, 0] / law.share[0, 0])),
            "baseline": np.arctanh(law.mean[0]),
            "effect": np.zeros(self.n_strata),
        }
        first = 0
        for surface, _, columns in self._parts:
            last = first + columns.shape[1]
            # the parts of a surface are orthogonal
            z[first:last] = targets[surface] @ columns / (columns**2).sum(axis=0)
            first = last
        if not self.binary:
            first += 4 * (self.n_strata > 1)
            odds = np.log(law.dispersion / (1 - law.dispersion))
            z[first : first + 2] = (odds - DISPERSION[0]) / DISPERSION[1]
        return z


def _over_arms(common: NDArray[Any], difference: NDArray[Any]) -> NDArray[Any]:
    return common[..., None, :] + _SIGN * difference[..., None, :]


def _contrasts(levels: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return orthogonal columns of what is additive in the covariates, and of what is left.

    An additive column has norm one over its covariate's levels; the others over all strata.
    """
    size = int(np.prod(levels, dtype=int))
    columns = [np.zeros((size, 0))]
    for k, count in enumerate(levels):
        within = np.linalg.qr(np.eye(count) - 1 / count)[0][:, : count - 1]
        before, after = np.prod(levels[:k], dtype=int), np.prod(levels[k + 1 :], dtype=int)
        columns.append(np.kron(np.kron(np.ones((before, 1)), within), np.ones((after, 1))))
    main = np.concatenate(columns, axis=1)
    both = np.concatenate([np.ones((size, 1)), main], axis=1)
    return main, np.linalg.qr(both, mode="complete")[0][:, both.shape[1] :]


def moments(law: Law, *, binary: bool) -> NDArray[Any]:
    """Return what one record adds to the queries on average, (..., Q).

    Cells by arm, stratum and part; then, unless binary, the squares of both arms.

    Parameters
    ----------
    law : Law
    binary : bool
    """
    share, mean = law.share, law.mean
    lead = share.shape[:-2]
    if binary:
        return np.stack([share * (1 - mean) / 2, share * (1 + mean) / 2], -1).reshape(*lead, -1)
    cells = np.stack([share, share * mean], axis=-1).reshape(*lead, -1)
    square = mean**2 + law.dispersion[..., None] * (1 - mean**2)
    return np.concatenate([cells, (share * (square - 0.5)).sum(axis=-1)], axis=-1)


def covariance(law: Law, *, binary: bool) -> NDArray[np.float64]:
    """Return the covariance of what one record adds to the queries, (Q, Q), for one law.

    Parameters
    ----------
    law : Law
    binary : bool
    """
    mean = moments(law, binary=binary)
    if binary:
        return np.diag(mean) - np.outer(mean, mean)
    share, mu = law.share, law.mean
    size = share.size
    # moments of a beta law, from those of x = (y + 1) / 2
    half, r = (1 + mu) / 2, law.dispersion[:, None]
    x = [np.ones_like(half)]
    for k in range(4):
        x.append(x[-1] * (half * (1 - r) + k * r) / (1 - r + k * r))
    y2 = 4 * x[2] - 4 * x[1] + 1
    y3 = 8 * x[3] - 12 * x[2] + 6 * x[1] - 1
    y4 = 16 * x[4] - 32 * x[3] + 24 * x[2] - 8 * x[1] + 1
    raw = np.zeros((len(mean), len(mean)))
    mass, total = np.arange(0, 2 * size, 2), np.arange(1, 2 * size, 2)
    square = 2 * size + np.repeat([0, 1], share.shape[1])
    flat = [array.ravel() for array in (share, mu, y2, y3, y4)]
    pi, mu, y2, y3, y4 = flat
    for rows, columns, value in (
        (mass, mass, pi),
        (mass, total, pi * mu),
        (total, total, pi * y2),
        (mass, square, pi * (y2 - 0.5)),
        (total, square, pi * (y3 - 0.5 * mu)),
        (square, square, pi * (y4 - y2 + 0.25)),
    ):
        np.add.at(raw, (rows, columns), value)
    return np.triu(raw) + np.triu(raw, 1).T - np.outer(mean, mean)
