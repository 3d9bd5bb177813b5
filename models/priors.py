"""Prior scales of the models: plain numbers in one frozen object, printed and recorded."""

from __future__ import annotations

import math

import msgspec

__all__ = ["GramPriors", "LabelPriors", "MaxentPriors", "MomentPriors"]


class LabelPriors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    r"""Prior scales of `cluster_labels`, on the log scale of the label shares.

    With scores x running from -1 to 1, ``tilt = 1`` multiplies the odds of the highest level
    against the lowest by :math:`e^2` (in one arm against the other).

    Parameters
    ----------
    profile_sd : float
        Of the profile that all clusters share.
    cluster_sd_median, cluster_sd_spread : float
        Lognormal prior of the scale by which clusters differ: median, and sd of its logarithm.
    tilt_sd : float
        Of the average tilt between the arms: wide, since it is not pooled towards anything.
    tilt_cluster_sd_median, tilt_cluster_sd_spread : float
        Lognormal prior of the scale by which the tilt varies between clusters.
    shape_sd : float
        Of what the arms differ by beyond the tilt, in each cluster.
    correlation_length : float
        For ordered levels, in units of K levels: neighbouring log shares have correlation
        :math:`e^{-1/(\text{length} K)}`.

    Raises
    ------
    ValueError
        A scale that is not positive and finite.

    Examples
    --------
    >>> LabelPriors(tilt_sd=1.0).tilt_sd
    1.0
    """

    profile_sd: float = 3.0
    cluster_sd_median: float = 1.0
    cluster_sd_spread: float = 0.7
    tilt_sd: float = 3.0
    tilt_cluster_sd_median: float = 0.3
    tilt_cluster_sd_spread: float = 0.7
    shape_sd: float = 0.3
    correlation_length: float = 0.25

    def __post_init__(self) -> None:
        _check_scales(self)


class MomentPriors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    r"""Prior scales of `stratified_moments`.

    Means are on the scale of :math:`\mathrm{artanh}\,\mu`, the outcome scaled to [-1, 1]; for a
    binary outcome that is half the log odds. Shares are on the log scale, propensities log odds.
    What varies over strata has an additive ("main") and an interaction part, with one spread each:
    lognormal, with the medians below. The levels (``propensity_sd``, ``mean_sd``, ``effect_sd``)
    have wide normal priors around zero and are pooled with nothing.

    Parameters
    ----------
    spread_sd : float
        Standard deviation of the logarithm of every spread.
    share_main, share_interaction : float
        Of the strata's log shares.
    propensity_sd, propensity_main, propensity_interaction : float
        Of the log odds of treatment.
    mean_sd, baseline_main, baseline_interaction : float
        Of the average of the two arms' means.
    effect_sd, effect_main, effect_interaction : float
        Of the difference of the arms' means.
    confounding_sd, gain_sd : float
        Of the slopes of baseline and effect on the log odds of treatment, over strata. Without the
        first, shrinking both surfaces would leave part of the confounding in the effect.
    confounding_bend_sd, gain_bend_sd : float
        Of the same on the square of the log odds (less their level): what is a line on another
        scale than that of artanh bends on this one.
    dispersion_centre, dispersion_sd : float
        Normal prior of the log odds of an arm's dispersion: which share of the largest variance
        that its mean allows, :math:`1 - \mu^2`, the outcome has within a stratum.

    Raises
    ------
    ValueError
        A scale that is not positive and finite.

    Examples
    --------
    >>> MomentPriors(effect_sd=0.5).effect_sd
    0.5
    """

    spread_sd: float = 0.5
    share_main: float = 0.7
    share_interaction: float = 0.3
    propensity_sd: float = 1.5
    propensity_main: float = 0.5
    propensity_interaction: float = 0.2
    mean_sd: float = 1.0
    baseline_main: float = 0.3
    baseline_interaction: float = 0.1
    effect_sd: float = 1.0
    effect_main: float = 0.15
    effect_interaction: float = 0.05
    confounding_sd: float = 1.0
    gain_sd: float = 0.3
    confounding_bend_sd: float = 0.3
    gain_bend_sd: float = 0.1
    dispersion_centre: float = -3.0
    dispersion_sd: float = 2.0

    def __post_init__(self) -> None:
        _check_scales(self, real=("dispersion_centre",))


class GramPriors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    r"""Prior scales of `gram_regression`: of each arm's share, means, variances, correlations.

    All columns lie in [-1, 1]. The arms' means have independent priors, so an effect is pooled
    towards nothing. Rows of correlations are those of the two arms' average, plus or minus half of
    their difference; a row z of a column makes :math:`|z|^2 / (1 + |z|^2)` of its variance that of
    the columns before it. All entries of a column's rows are jointly Student t, so that a column
    which nearly repeats others does no violence to the prior. Their scale is the one below over the
    square root of their number: what a column shares with others beforehand does not grow with the
    number of covariates, else slopes, and what is adjusted for, would be taken for too large.

    Parameters
    ----------
    share_sd : float
        Of the log odds of treatment.
    location_sd : float
        Of a column's log odds :math:`\ell`, its mean being :math:`\tanh(\ell/2)`; of a covariate of
        more levels, those of a level against the first.
    dispersion_centre, dispersion_sd : float
        Normal prior of the log odds of a numeric column's dispersion: which share of
        :math:`1 - \mu^2`, the largest variance that its mean allows, it has.
    row_sd, row_difference_sd : float
        Of the length of a covariate's row: of its average over arms, of half the difference.
    outcome_sd, outcome_difference_sd : float
        The same of the outcome's row, from which the slopes come. Wide, since shrunken slopes leave
        confounding in the effect.
    degrees : float
        Degrees of freedom of the rows.

    Raises
    ------
    ValueError
        A scale that is not positive and finite.

    Examples
    --------
    >>> GramPriors(outcome_sd=2.0).outcome_sd
    2.0
    """

    share_sd: float = 1.5
    location_sd: float = 2.0
    dispersion_centre: float = -1.5
    dispersion_sd: float = 1.5
    row_sd: float = 0.7
    row_difference_sd: float = 0.35
    outcome_sd: float = 1.5
    outcome_difference_sd: float = 0.75
    degrees: float = 4.0

    def __post_init__(self) -> None:
        _check_scales(self, real=("dispersion_centre",))


class MaxentPriors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    r"""Prior scales of `maxent_moments`.

    The arms' locations have independent wide priors, pooled with nothing, so that the average
    effect is not shrunk. How much levels differ between arms is Student t, a group's contrasts
    jointly: their scale is learnt. So is how much they differ in their outcomes, in both arms.

    Parameters
    ----------
    propensity_sd : float
        Of the log odds of treatment.
    mean_sd : float
        Of each arm's location: about its mean outcome, scaled to [-1, 1]; of a binary outcome half
        its log odds.
    shape_centre, shape_sd : float
        Normal prior of a in the precision :math:`\kappa = 2 \sinh a` of each arm's outcome: at 0
        its law is flat, below it has two humps.
    share_sd : float
        Of contrasts of the levels' log shares, the average of both arms.
    imbalance_scale : float
        Student's scale of the same, treated minus control.
    confounding_sd : float
        Of the slopes, in each group and arm, of the levels' differences on their imbalances.
        Without them the two would be shrunk apart, and leave confounding in the effect.
    outcome_scale : float
        Student's scale of how levels differ in their mean outcome beyond that; of a binary outcome
        in half its log odds.
    degrees : float
        Degrees of freedom of both.

    Raises
    ------
    ValueError
        A scale that is not positive and finite.

    Examples
    --------
    >>> MaxentPriors(mean_sd=0.5).mean_sd
    0.5
    """

    propensity_sd: float = 1.5
    mean_sd: float = 1.0
    shape_centre: float = 2.0
    shape_sd: float = 1.5
    share_sd: float = 1.0
    imbalance_scale: float = 0.3
    confounding_sd: float = 0.5
    outcome_scale: float = 0.2
    degrees: float = 4.0

    def __post_init__(self) -> None:
        _check_scales(self, real=("shape_centre",))


def _check_scales(priors: msgspec.Struct, real: tuple[str, ...] = ()) -> None:
    """Raise unless every field is a finite number, and above zero but for those in ``real``."""
    for field in priors.__struct_fields__:
        value, owner = getattr(priors, field), type(priors).__name__
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{owner}.{field} is {value!r}: it must be a number")
        if not math.isfinite(value) or (value <= 0 and field not in real):
            allowed = "finite" if field in real else "positive and finite"
            raise ValueError(f"{owner}.{field} is {value}: it must be {allowed}")
