r"""A prior of many coefficients: normal ones, and groups that are jointly Student t.

A group's members have a scale in common that is not known, and is integrated out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy.special import gammaln

from dpcausal_bayes.models.whitening import GivenWhitening, matvec

__all__ = ["student_tails", "whitened_student"]


def whitened_student(
    name: str,
    centre: Any,
    scale_of: Any,
    tails: NDArray[np.float64],
    degrees: float,
    location: Any,
    scale: Any,
    *,
    dims: str,
    mean: Callable[[Any, Any], Any] | None = None,
) -> Any:
    r"""Add a vector of normals, some groups of them jointly Student t; sampled whitened.

    Parameters
    ----------
    name, dims : str
    centre, scale_of : ndarray, shape (p,)
        Mean and standard deviation of the normals; of the others location and scale.
    tails : ndarray, shape (G, p)
        Ones for the members of each group.
    degrees : float
        :math:`\nu`: a group u, standardised, of size q has a density proportional to
        :math:`(1 + |u|^2/\nu)^{-(\nu + q)/2}`.
    location, scale : tensor, shapes (p,) and (p, p)
        m and W, upper triangular.
    mean : callable, optional
        Of coefficients and an array library: means in place of ``centre``, from the coefficients
        whose mean is their centre.
    """
    normal, size = 1 - tails.sum(0), tails.sum(1)
    half = (degrees + size) / 2
    constant = gammaln(half) - gammaln(degrees / 2) - 0.5 * size * np.log(degrees * math.pi)
    total = constant.sum() - 0.5 * math.log(2 * math.pi) * normal.sum()

    def logp(value: Any, centre: Any, scale_of: Any, location: Any, scale: Any) -> Any:
        around = centre if mean is None else mean(value, pt)
        square = ((value - around) / scale_of) ** 2
        outlying = pt.log1p(matvec(tails, square) / degrees)
        return (
            total - pt.log(scale_of).sum() - 0.5 * (normal * square).sum() - (half * outlying).sum()
        )

    def random(
        centre: Any, scale_of: Any, location: Any, scale: Any, rng: np.random.Generator,
        size: Any = None,
    ) -> Any:  # fmt: skip
        stretch = np.sqrt(degrees / rng.chisquare(degrees, len(tails)))
        noise = scale_of * rng.standard_normal(len(normal)) * (normal + stretch @ tails)
        # those that means depend on have their centre; once they are drawn, all means are known
        return noise + (centre if mean is None else mean(centre + noise, np))

    return pm.CustomDist(
        name,
        centre,
        scale_of,
        location,
        scale,
        logp=logp,
        random=random,
        support_point=lambda rv, size, centre, scale_of, location, scale: location,
        signature="(p),(p),(p),(p,p)->(p)",
        default_transform=GivenWhitening(),
        dims=dims,
    )


def student_tails(
    standardised: NDArray[np.float64], tails: NDArray[np.float64], degrees: float
) -> tuple[float, NDArray[np.float64]]:
    """Return the log density of `whitened_student`, up to a constant, and weights of a normal's.

    With these weights in place of 1 the normal's slope is that of the density: a step of iterated
    least squares.

    Parameters
    ----------
    standardised : ndarray, shape (p,)
    tails : ndarray, shape (G, p)
    degrees : float
    """
    square, size = tails @ standardised**2, tails.sum(1)
    normal = 1 - tails.sum(0)
    log_density = -0.5 * float(normal @ standardised**2)
    log_density -= float(((degrees + size) / 2) @ np.log1p(square / degrees))
    return log_density, normal + ((degrees + size) / (degrees + square)) @ tails
