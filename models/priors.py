"""Prior scales of the models: plain numbers in one frozen object, printed and recorded."""

from __future__ import annotations

import math

import msgspec

__all__ = ["LabelPriors"]


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
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"LabelPriors.{field} is {value!r}: it must be a number")
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"LabelPriors.{field} is {value}: it must be positive and finite")
