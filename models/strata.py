"""Coordinates for what varies over crossed strata: level, additive part, interaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert, null_space

__all__ = ["StratumSpace", "stratum_space"]


class StratumSpace(NamedTuple):
    r"""An orthogonal basis of what may vary over S strata, beside their common level.

    A surface over the strata is :math:`1\,c_0 + M c_M + I c_I`. With independent
    :math:`c_M \sim N(0, \tau^2)` the effects of a covariate's L levels sum to zero and have
    variance :math:`\tau^2 (1 - 1/L)` each.

    Attributes
    ----------
    main : ndarray, shape (S, sum of (L_k - 1))
        Columns of the additive part: for each covariate, contrasts of its levels. A contrast has
        norm one over its covariate's levels, not over all strata.
    interaction : ndarray, shape (S, the rest)
        Orthonormal columns for all that is not additive.
    """

    main: NDArray[np.float64]
    interaction: NDArray[np.float64]


def stratum_space(sizes: Sequence[int]) -> StratumSpace:
    """Return the basis for crossed covariates of given numbers of levels.

    Parameters
    ----------
    sizes : sequence of int
        Levels of each covariate; the last runs fastest. None at all is one stratum.

    Examples
    --------
    >>> space = stratum_space([3, 2])
    >>> space.main.shape, space.interaction.shape
    ((6, 3), (6, 2))
    """
    n_strata = math.prod(sizes)
    columns = [np.zeros((n_strata, 0))]
    for k, levels in enumerate(sizes):
        if levels > 1:
            before, after = math.prod(sizes[:k]), math.prod(sizes[k + 1 :])
            contrasts = np.tile(helmert(levels).T, (before, 1))
            columns.append(np.repeat(contrasts, after, axis=0))
    main = np.concatenate(columns, axis=1)
    additive = np.concatenate([np.ones((n_strata, 1)), main], axis=1)
    rest = n_strata - additive.shape[1]
    interaction = null_space(additive.T) if rest else np.zeros((n_strata, 0))
    return StratumSpace(main, interaction)
