"""Noise laws on the integers: parameters, exact variance, exact log-probability."""

from __future__ import annotations

import math
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

__all__ = ["Gaussian", "Laplace", "NoiseSource"]

SMALLEST_SCALE, LARGEST_SCALE = 1e-9, 1e12  # noise beyond 1e12 would not fit 64-bit counts


class Laplace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    r"""Discrete Laplace noise on the integers.

    .. math:: P(e = k) = \frac{1 - a}{1 + a} a^{|k|}, \qquad a = e^{-1/\text{scale}}

    Parameters
    ----------
    scale : float
        In counts. A count that one label moves by one is 1/scale-DP.

    Examples
    --------
    >>> law = Laplace(4.0)
    >>> round(law.variance, 3)
    31.834
    >>> law.log_pmf([0, -1, 1]).round(3)
    array([-2.085, -2.335, -2.335])
    """

    scale: float

    def __post_init__(self) -> None:
        force_setattr(self, "scale", noise_scale(self.scale, "Laplace.scale"))

    @property
    def variance(self) -> float:
        """Exact variance of the discrete law, 2 a / (1 - a)^2."""
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    def log_pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Log-probability of integer noise ``k``, any shape."""
        k = _integers(k)
        a = math.exp(-1 / self.scale)
        return math.log(-math.expm1(-1 / self.scale)) - math.log1p(a) - np.abs(k) / self.scale


class Gaussian(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    r"""Discrete Gaussian noise on the integers.

    .. math:: P(e = k) \propto \exp\left(-\frac{k^2}{2\,\text{scale}^2}\right)

    Parameters
    ----------
    scale : float
        In counts. Nearly the standard deviation once it is above one.

    References
    ----------
    Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy".

    Examples
    --------
    >>> Gaussian(4.0).variance, round(Gaussian(0.4).variance, 4)
    (16.0, 0.0808)
    """

    scale: float

    def __post_init__(self) -> None:
        force_setattr(self, "scale", noise_scale(self.scale, "Gaussian.scale"))

    @property
    def variance(self) -> float:
        """Exact variance of the discrete law."""
        m, weight = self._series()
        square = float(np.sum(m**2 * weight) / np.sum(weight))
        if self.scale < 1:
            return square
        return self.scale**2 * (1 - (2 * math.pi * self.scale) ** 2 * square)

    def log_pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Log-probability of integer noise ``k``, any shape."""
        k = _integers(k)
        total = math.log(np.sum(self._series()[1]))
        if self.scale >= 1:
            total += math.log(self.scale) + 0.5 * math.log(2 * math.pi)
        return -0.5 * (k / self.scale) ** 2 - total

    def _series(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Terms of the normalising sum: direct, or (Poisson summation) of its Fourier dual."""
        m = np.arange(-40.0, 41.0)
        rate = 0.5 / self.scale**2 if self.scale < 1 else 2 * (math.pi * self.scale) ** 2
        return m, np.exp(-rate * m**2)


class NoiseSource(Protocol):
    """Where randomness comes from: the operating system, or a seed in a simulation."""

    @property
    def name(self) -> str:
        """What the release says about it."""

    def integers(self, law: Laplace | Gaussian, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Draw independent noise from ``law``."""

    def words(self, n: int) -> NDArray[np.uint64]:
        """Draw n independent uniform 64-bit words."""


def number(value: Any, field: str) -> float:
    """Return a finite float, or raise with the field's name."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{field} is {value!r}: it must be a number")
    if not math.isfinite(value):
        raise ValueError(f"{field} is {value}: it must be finite")
    return float(value)


def noise_scale(value: Any, field: str) -> float:
    scale = number(value, field)
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise ValueError(
            f"{field} is {scale}: it must be positive, from {SMALLEST_SCALE:g} to "
            f"{LARGEST_SCALE:g} counts"
        )
    return scale


def _integers(k: ArrayLike) -> NDArray[np.float64]:
    """Return integers as floats (exact below 2^53), or raise."""
    array = np.asarray(k)
    if array.dtype.kind not in "iu" and not (
        array.dtype.kind == "f" and np.all(array == np.floor(array))
    ):
        raise TypeError("k must hold whole numbers: this noise lives on the integers")
    return array.astype(float)
