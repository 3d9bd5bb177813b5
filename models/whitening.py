r"""Linear coordinates in which the sampler sees a posterior of unit scale.

Neither changes a model: the prior stays on the named variable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.transforms import Transform

from dpcausal_bayes.models.triangular import upper_matvec

__all__ = ["GivenWhitening", "Whitening", "matvec", "whitener"]


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


class GivenWhitening(Transform):
    r"""Sample :math:`z = W^{-1} (y - m)`, m and W the last two parameters of the variable.

    W is upper triangular. Unlike those of `Whitening` they may be data, so that another release
    brings its own.
    """

    name = "whitening"

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Map y to z."""
        location, scale = inputs[-2:]
        return pt.linalg.solve_triangular(scale, value - location, lower=False)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Map z to y."""
        location, scale = inputs[-2:]
        return location + upper_matvec(scale, value)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Return log |W|."""
        return pt.log(pt.diagonal(inputs[-1])).sum()
