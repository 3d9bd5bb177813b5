r"""Linear coordinates in which the sampler sees a posterior of unit scale.

Neither changes a model: the prior stays on the named variable.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.transforms import Transform

__all__ = ["GivenWhitening", "Whitening", "matvec", "whitened_normal", "whitener"]


def matvec(matrix: Any, vector: Any) -> Any:
    """Multiply (..., a, b) by (..., b): elementwise, since compiling BLAS calls costs seconds."""
    return (matrix * vector[..., None, :]).sum(-1)


def whitener(precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return W, upper triangular, with W W' = precision^{-1}, for matrices (..., p, p)."""
    root = np.linalg.inv(np.linalg.cholesky(precision))
    return np.triu(np.swapaxes(root, -1, -2))  # the inverse leaves dust below its diagonal


class Whitening(Transform):
    r"""Sample :math:`z = W^{-1} (y - m)` in place of y, one W for each row of y.

    Parameters
    ----------
    location : ndarray, shape (C, p)
        m.
    scale : ndarray, shape (C, p, p)
        W, upper triangular: constants, since a transform may not bring in shared variables.
    """

    name = "whitening"

    def __init__(self, location: NDArray[np.float64], scale: NDArray[np.float64]) -> None:
        self.location, self.scale, self.inverse = location, scale, np.linalg.inv(scale)

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Map y to z."""
        return matvec(self.inverse, value - self.location)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Map z to y."""
        return self.location + matvec(self.scale, value)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Return log |W| for each row."""
        return pt.constant(np.log(np.diagonal(self.scale, axis1=-2, axis2=-1)).sum(-1))


def whitened_normal(name: str, mean: Any, sd: Any, location: Any, scale: Any, *, dims: str) -> Any:
    r"""Add a vector of independent normals, sampled as :math:`z = W^{-1}(y - m)`.

    Unlike `Whitening`, m and W are data of the model, so that another release brings its own.

    Parameters
    ----------
    name, dims : str
    mean, sd : tensor, shape (p,)
    location, scale : tensor, shapes (p,) and (p, p)
        m and W, upper triangular.
    """

    def logp(value: Any, mean: Any, sd: Any, location: Any, scale: Any) -> Any:
        return (-0.5 * ((value - mean) / sd) ** 2 - pt.log(sd)).sum() - 0.5 * math.log(
            2 * math.pi
        ) * sd.shape[0]

    def random(
        mean: Any, sd: Any, location: Any, scale: Any, rng: np.random.Generator, size: Any = None
    ) -> Any:
        return rng.normal(mean, sd)

    return pm.CustomDist(
        name,
        mean,
        sd,
        location,
        scale,
        logp=logp,
        random=random,
        support_point=lambda rv, size, mean, sd, location, scale: location,
        signature="(p),(p),(p),(p,p)->(p)",
        default_transform=GivenWhitening(),
        dims=dims,
    )


class GivenWhitening(Transform):
    """The transform of `whitened_normal`: m and W are its variable's last two parameters."""

    name = "whitening"

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Map y to z."""
        location, scale = inputs[-2:]
        return pt.linalg.solve_triangular(scale, value - location, lower=False)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Map z to y."""
        location, scale = inputs[-2:]
        return location + matvec(scale, value)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Return log |W|."""
        return pt.log(pt.diagonal(inputs[-1])).sum()
