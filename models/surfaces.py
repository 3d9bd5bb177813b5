"""The coefficients of a stratified model: four surfaces over the strata, and dispersions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.priors import MomentPriors
from dpcausal_bayes.models.strata import StratumSpace
from dpcausal_bayes.models.stratum_laws import StratumLaw
from dpcausal_bayes.models.whitening import matvec

__all__ = ["Surfaces", "stratum_law", "surfaces"]

_SIGN = np.array([-0.5, 0.5])[:, None]  # control, treated


class Surfaces(NamedTuple):
    """How K coefficients make the four surfaces, and what the prior says of each.

    Attributes
    ----------
    log_share, propensity, baseline, effect : ndarray, shape (S, K)
        Coefficients to log shares of strata, log odds of treatment, and the mean and difference
        of the arms' transformed means.
    dispersion : ndarray, shape (2, K), or None
        Coefficients to the log odds of the arms' dispersions.
    centre, scale : ndarray, shape (K,)
        Prior mean; prior standard deviation at the median of the spread.
    spread_of : ndarray of int, shape (K,)
        Which spread a coefficient has; one past the last for none, a scale that is fixed.
    labels, spreads : tuple of str
        Of the coefficients and of the spreads.
    median : ndarray
        Prior median of each spread.
    """

    log_share: NDArray[np.float64]
    propensity: NDArray[np.float64]
    baseline: NDArray[np.float64]
    effect: NDArray[np.float64]
    dispersion: NDArray[np.float64] | None
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    spread_of: NDArray[np.int64]
    labels: tuple[str, ...]
    spreads: tuple[str, ...]
    median: NDArray[np.float64]

    @property
    def n_strata(self) -> int:
        """Number of strata."""
        return len(self.effect)


def surfaces(space: StratumSpace, priors: MomentPriors, *, binary: bool) -> Surfaces:
    """Lay out the coefficients.

    Parameters
    ----------
    space : StratumSpace
    priors : MomentPriors
    binary : bool
        A binary outcome has no dispersion.
    """
    n_strata = len(space.main)
    level = np.ones((n_strata, 1))
    columns: list[tuple[str, NDArray[np.float64], float, float, str]] = []
    for name, level_sd, main, interaction in (
        ("log_share", None, priors.share_main, priors.share_interaction),
        ("propensity", priors.propensity_sd, priors.propensity_main, priors.propensity_interaction),
        ("baseline", priors.mean_sd, priors.baseline_main, priors.baseline_interaction),
        ("effect", priors.effect_sd, priors.effect_main, priors.effect_interaction),
    ):
        if level_sd is not None:  # shares sum to one: they have no level
            columns.append((name, level, 0.0, level_sd, ""))
        columns.append((name, space.main, 0.0, main, f"{name} main"))
        columns.append((name, space.interaction, 0.0, interaction, f"{name} interaction"))
    if not binary:
        columns.append(
            ("dispersion", np.eye(2), priors.dispersion_centre, priors.dispersion_sd, "")
        )
    columns = [column for column in columns if column[1].shape[1]]
    spreads = tuple(dict.fromkeys(column[4] for column in columns if column[4]))
    total = sum(column[1].shape[1] for column in columns)
    maps = {name: np.zeros((n_strata, total)) for name in ("log_share", *_NAMES)}
    maps["dispersion"] = np.zeros((2, total))
    centre, scale = np.zeros(total), np.zeros(total)
    spread_of = np.full(total, len(spreads))
    median, labels, first = np.zeros(len(spreads)), [], 0
    for name, matrix, middle, sd, spread in columns:
        own = slice(first, first + matrix.shape[1])
        maps[name][:, own], centre[own], scale[own] = matrix, middle, sd
        if spread:
            spread_of[own] = spreads.index(spread)
            median[spreads.index(spread)] = sd
        labels += [f"{spread or name} {k + 1}" for k in range(matrix.shape[1])]
        first = own.stop
    if binary:
        del maps["dispersion"]
    return Surfaces(
        **{"dispersion": None, **maps},
        centre=centre,
        scale=scale,
        spread_of=spread_of,
        labels=tuple(labels),
        spreads=spreads,
        median=median,
    )


_NAMES = ("propensity", "baseline", "effect")


def stratum_law(form: Surfaces, coefficient: Any, xp: Any) -> StratumLaw:
    """Return the law of a record given the coefficients (K,), arrays or tensors."""
    odds = matvec(form.propensity, coefficient)
    logit = matvec(form.log_share, coefficient) + _SIGN * odds
    weight = xp.exp(logit - logit.max())
    mean = xp.tanh(matvec(form.baseline, coefficient) + _SIGN * matvec(form.effect, coefficient))
    dispersion = None
    if form.dispersion is not None:
        dispersion = 1 / (1 + xp.exp(-matvec(form.dispersion, coefficient)))
    return StratumLaw(weight / weight.sum(), mean, dispersion)
