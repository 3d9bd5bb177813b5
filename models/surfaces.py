"""The coefficients of a stratified model: four surfaces over the strata, and dispersions."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.priors import MomentPriors
from dpcausal_bayes.models.strata import StratumSpace
from dpcausal_bayes.models.stratum_laws import StratumLaw
from dpcausal_bayes.models.whitening import matvec

__all__ = ["Surfaces", "prior_mean", "prior_mean_slope", "stratum_law", "surfaces"]

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
    log_odds : float
        Public log odds of treatment; 0 where they are unknown and the propensity has coefficients.
    centre, scale : ndarray, shape (K,)
        Prior mean, but for what follows; prior standard deviation at the median of the spread.
    odds : slice
        The coefficients of the propensity's surface but for its level: E of them.
    parent, slope : ndarray of int, shape (2, K)
        What is added to the prior mean: two products, of a coefficient of the propensity and the
        slope on it, and of one of the propensity's square (counted from K on) and the bend. K + E
        for none.
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
    log_odds: float
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    odds: slice
    parent: NDArray[np.int64]
    slope: NDArray[np.int64]
    spread_of: NDArray[np.int64]
    labels: tuple[str, ...]
    spreads: tuple[str, ...]
    median: NDArray[np.float64]

    @property
    def n_strata(self) -> int:
        """Number of strata."""
        return len(self.effect)


def surfaces(
    space: StratumSpace,
    priors: MomentPriors,
    *,
    binary: bool,
    probability: float | None = None,
) -> Surfaces:
    """Lay out the coefficients.

    Parameters
    ----------
    space : StratumSpace
    priors : MomentPriors
    binary : bool
        A binary outcome has no dispersion.
    probability : float, optional
        Of treatment, the same in all strata, if it is public: there is nothing to learn of the
        propensity then, and nothing is confounded.
    """
    n_strata = len(space.main)
    blocks = _blocks(space, priors, binary)
    if probability is not None:
        blocks = [block for block in blocks if block.surface not in _UNKNOWN_PROPENSITY]
    spreads = tuple(dict.fromkeys(block.spread for block in blocks if block.spread))
    total = sum(block.columns.shape[1] for block in blocks)
    maps = {name: np.zeros((n_strata, total)) for name in _SURFACES}
    maps |= {"dispersion": np.zeros((2, total))}
    centre, scale = np.zeros(total), np.zeros(total)
    spread_of = np.full(total, len(spreads))
    median, labels, first = np.zeros(len(spreads)), [], 0
    place: dict[tuple[str, str], slice] = {}
    for block in blocks:
        own = slice(first, first + block.columns.shape[1])
        kind, _, part = (block.spread or block.surface).partition(" ")
        place[kind, part] = own
        if block.surface in maps:
            maps[block.surface][:, own] = block.columns
        centre[own], scale[own] = block.centre, block.scale
        if block.spread:
            spread_of[own] = spreads.index(block.spread)
            median[spreads.index(block.spread)] = block.scale
        name = block.spread or block.surface
        labels += [f"{name} {k + 1}" for k in range(block.columns.shape[1])]
        first = own.stop
    odds = _varying(place, "propensity")
    none = total + odds.stop - odds.start
    parent, slope = np.full((2, 2, total), none)
    for surface, name in (("baseline", "confounding"), ("effect", "gain")):
        if none > total:
            own = _varying(place, surface)
            parent[:, own] = np.arange(odds.start, odds.stop), np.arange(total, none)
            slope[:, own] = [[place[name, part].start] for part in ("slope", "bend")]
    return Surfaces(
        **{name: maps[name] for name in _SURFACES},
        dispersion=None if binary else maps["dispersion"],
        log_odds=0.0 if probability is None else math.log(probability / (1 - probability)),
        centre=centre,
        scale=scale,
        odds=odds,
        parent=parent,
        slope=slope,
        spread_of=spread_of,
        labels=tuple(labels),
        spreads=spreads,
        median=median,
    )


_SLOPES = ("confounding slope", "confounding bend", "gain slope", "gain bend")
_UNKNOWN_PROPENSITY = ("propensity", *_SLOPES)
_SURFACES = ("log_share", "propensity", "baseline", "effect")


class _Block(NamedTuple):
    """Coefficients of one kind: what they move, how, and their prior."""

    surface: str
    columns: NDArray[np.float64]
    scale: float
    spread: str = ""
    centre: float = 0.0


def _blocks(space: StratumSpace, priors: MomentPriors, binary: bool) -> list[_Block]:
    level = np.ones((len(space.main), 1))
    levels = {
        "propensity": priors.propensity_sd,
        "baseline": priors.mean_sd,
        "effect": priors.effect_sd,
    }
    varying = {
        "log_share": (priors.share_main, priors.share_interaction),
        "propensity": (priors.propensity_main, priors.propensity_interaction),
        "baseline": (priors.baseline_main, priors.baseline_interaction),
        "effect": (priors.effect_main, priors.effect_interaction),
    }
    blocks = []
    for surface in _SURFACES:
        if surface in levels:  # shares sum to one: they have no level
            blocks.append(_Block(surface, level, levels[surface]))
        main, interaction = varying[surface]
        blocks.append(_Block(surface, space.main, main, f"{surface} main"))
        blocks.append(_Block(surface, space.interaction, interaction, f"{surface} interaction"))
    if len(space.main) > 1:
        confounding = priors.confounding_sd, priors.confounding_bend_sd
        gain = priors.gain_sd, priors.gain_bend_sd
        for name, scale in zip(_SLOPES, (*confounding, *gain), strict=True):
            blocks.append(_Block(name, np.ones((1, 1)), scale))
    if not binary:
        centre = priors.dispersion_centre
        blocks.append(_Block("dispersion", np.eye(2), priors.dispersion_sd, centre=centre))
    return [block for block in blocks if block.columns.shape[1]]


def _varying(place: dict[tuple[str, str], slice], surface: str) -> slice:
    """Return where the coefficients of a surface stand, its level's left out."""
    parts = [place[surface, part] for part in ("main", "interaction") if (surface, part) in place]
    return slice(parts[0].start, parts[-1].stop) if parts else slice(0, 0)


def prior_mean(form: Surfaces, coefficient: Any, xp: Any) -> Any:
    r"""Return the prior mean (K,) of the coefficients given those it depends on.

    That of baseline and effect is in part a multiple of the propensity's and of its square's:
    :math:`\kappa c_e + \kappa' c_{e^2}` and :math:`\gamma c_e + \gamma' c_{e^2}`.
    """
    if form.odds.stop == form.odds.start:
        return form.centre
    _, back, odds = _odds(form, coefficient)
    known = xp.concatenate([coefficient, matvec(back, odds**2), np.zeros(1)])
    return form.centre + (known[form.parent] * known[form.slope]).sum(0)


def prior_mean_slope(form: Surfaces, coefficient: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the derivative (K, K) of `prior_mean`, arrays only."""
    axes = np.eye(len(coefficient))
    if form.odds.stop == form.odds.start:
        return np.zeros_like(axes)
    columns, back, odds = _odds(form, coefficient)
    known = np.concatenate([coefficient, back @ odds**2, np.zeros(1)])[..., None]
    square = (back * 2 * odds) @ columns @ axes[form.odds]
    moved = np.concatenate([axes, square, np.zeros_like(axes[:1])])
    return np.asarray(
        (known[form.parent] * moved[form.slope] + known[form.slope] * moved[form.parent]).sum(0)
    )


def _odds(form: Surfaces, coefficient: Any) -> tuple[Any, Any, Any]:
    """Return the propensity's columns, their inverse, and its surface but for the level."""
    columns = form.propensity[:, form.odds]
    back = (columns / (columns**2).sum(0)).T  # the columns are orthogonal
    return columns, back, matvec(columns, coefficient[form.odds])


def stratum_law(form: Surfaces, coefficient: Any, xp: Any) -> StratumLaw:
    """Return the law of a record given the coefficients (K,), arrays or tensors."""
    odds = form.log_odds + _surface(form.propensity, coefficient)
    logit = _surface(form.log_share, coefficient) + _SIGN * odds
    weight = xp.exp(logit - logit.max())
    baseline, effect = _surface(form.baseline, coefficient), _surface(form.effect, coefficient)
    mean = xp.tanh(baseline + _SIGN * effect)
    dispersion = None
    if form.dispersion is not None:
        dispersion = 1 / (1 + xp.exp(-_surface(form.dispersion, coefficient)))
    return StratumLaw(weight / weight.sum(), mean, dispersion)


def _surface(columns: NDArray[np.float64], coefficient: Any) -> Any:
    """Multiply, with the coefficients that the surface has only: they stand together."""
    used = np.flatnonzero(columns.any(0))
    own = slice(used[0], used[-1] + 1) if len(used) else slice(0, 0)
    return matvec(columns[:, own], coefficient[own])
