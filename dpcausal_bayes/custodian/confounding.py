"""How much of a guessed confounding is left by what is adjusted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from dpcausal_bayes.columns import Binned
from dpcausal_bayes.custodian.guesses import Guesses

__all__ = ["confounding_left", "left_in_bins"]


def confounding_left(fields: Sequence[Any], guesses: Guesses) -> float:
    """Return how far the effect is off when these covariates are adjusted for.

    Parameters
    ----------
    fields : sequence of covariates
    guesses : Guesses
    """
    adjusted = {field.column: field for field in fields}
    left = 0.0
    for name, bias in guesses.confounding.items():
        if name not in adjusted:
            left += bias
        elif isinstance(adjusted[name], Binned):
            bins = len(adjusted[name].edges) - 1
            shares = guesses.shares.get(name, (1 / bins,) * bins)[:bins]  # without `other`
            left += bias * left_in_bins(shares)
    return left


def left_in_bins(shares: Sequence[float]) -> float:
    r"""Return the share of a normal number's variance that is left within bins.

    Also that of a bias, where the outcome is linear in the number and its means differ between the
    arms by a shift (Cochran 1968).

    Parameters
    ----------
    shares : sequence of float
        Of the bins, from the lowest; need not sum to one.

    Examples
    --------
    >>> [round(left_in_bins([1] * bins), 2) for bins in (1, 2, 3, 5)]
    [1.0, 0.36, 0.21, 0.1]
    """
    share = np.asarray(shares) / np.sum(shares)
    cuts = stats.norm.ppf(np.concatenate([[0.0], np.cumsum(share)[:-1], [1.0]]))
    height = stats.norm.pdf(cuts)
    return float(1 - ((height[:-1] - height[1:]) ** 2 / share).sum())
