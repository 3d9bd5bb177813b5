"""Randomness for real releases: OpenDP's exact samplers and the operating system's entropy."""

from __future__ import annotations

import math
import os

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from dpcausal_bayes.laws import Gaussian, Laplace

__all__ = ["SystemNoise"]


class SystemNoise:
    """Noise that nobody can repeat: integer noise from OpenDP, words from the system.

    Examples
    --------
    >>> source = SystemNoise()
    >>> source.integers(Laplace(2.0), (2, 3)).shape, source.words(4).dtype
    ((2, 3), dtype('uint64'))
    """

    name = "operating system"

    def integers(self, law: Laplace | Gaussian, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Draw independent noise from ``law``.

        Raises
        ------
        RuntimeError
            OpenDP's own accounting of the sampler disagrees with the law's.
        """
        draw = _measurement(law)
        noise = draw([0] * math.prod(shape)) if math.prod(shape) else []
        return np.array(noise, dtype=np.int64).reshape(shape)

    def words(self, n: int) -> NDArray[np.uint64]:
        """Draw n independent uniform 64-bit words."""
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)

    def choose(self, scores: NDArray[np.int64], scale: float) -> int:
        """Draw a place with a probability proportional to exp(score / scale).

        The exponential mechanism: where one record moves every score by d at most, it is
        (2 d / scale)-DP, and its zCDP loss is an eighth of that squared.

        Raises
        ------
        RuntimeError
            OpenDP's own accounting disagrees.
        """
        return int(_chooser(scale)(scores.tolist()))


def _chooser(scale: float) -> dp.Measurement:
    """Build OpenDP's noisy maximum: with Gumbel noise it is the exponential mechanism."""
    dp.enable_features("contrib")
    measurement = dp.m.make_noisy_max(
        dp.vector_domain(dp.atom_domain(T="i64")),
        dp.linf_distance(T="i64"),
        dp.zero_concentrated_divergence(),
        scale,
    )
    _agree(f"a choice of scale {scale:g}", measurement.map(1), (2 / scale) ** 2 / 8)
    return measurement


def _measurement(law: Laplace | Gaussian) -> dp.Measurement:
    """Build OpenDP's sampler on 64-bit integers and check what it says it costs."""
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))  # the default integer is 32 bits, too few
    if isinstance(law, Laplace):
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), law.scale)
        claim = 1 / law.scale  # epsilon of one count moved by one
    else:
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), law.scale)
        claim = 0.5 / law.scale**2  # rho of the same
    _agree(f"one count of {law}", measurement.map(1), claim)
    return measurement


def _agree(what: str, stated: float, claim: float) -> None:
    if not math.isclose(stated, claim, rel_tol=1e-9):
        raise RuntimeError(
            f"OpenDP says {what} costs {stated}, this package says {claim}: nothing is "
            "released; check the installed version of opendp"
        )
