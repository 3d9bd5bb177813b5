r"""An upper triangular matrix times a vector, for the thousand coordinates of a whitened model.

One pass over the entries that are not zero, in one thread: chains run side by side, so that a
library's own threads would only get in their way. A product written with broadcasting took ten
times as long at 1,000 coordinates, more than the rest of a gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as numba_dispatch

__all__ = ["upper_matvec"]


def upper_matvec(matrix: Any, vector: Any) -> Any:
    """Multiply an upper triangular matrix (p, p), a constant to gradients, by a vector (p,).

    Parameters
    ----------
    matrix : tensor, shape (p, p)
        What is below the diagonal is not looked at.
    vector : tensor, shape (p,)

    Examples
    --------
    >>> upper_matvec([[1.0, 2.0], [0.0, 3.0]], [1.0, 1.0]).eval({}, mode="FAST_COMPILE")
    array([3., 3.])
    """
    return _UpperMatvec(transposed=False)(matrix, vector)


class _UpperMatvec(Op):
    """W x, or W' x if transposed."""

    __props__ = ("transposed",)

    def __init__(self, *, transposed: bool) -> None:
        self.transposed = transposed

    def make_node(self, matrix: Any, vector: Any) -> Apply:
        matrix = pt.as_tensor_variable(matrix, dtype="float64")
        vector = pt.as_tensor_variable(vector, dtype="float64")
        if (matrix.type.ndim, vector.type.ndim) != (2, 1):
            raise ValueError(
                f"got {matrix.type.ndim} and {vector.type.ndim} dimensions: a matrix and a vector "
                "are wanted"
            )
        return Apply(self, [matrix, vector], [pt.vector(dtype="float64", shape=vector.type.shape)])

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        matrix, vector = inputs
        upper: NDArray[np.float64] = np.triu(matrix)
        output_storage[0][0] = (upper.T if self.transposed else upper) @ vector

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        return [shapes[1]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False], [True]]

    def pullback(
        self, inputs: list[Variable], outputs: list[Variable], cotangents: list[Variable]
    ) -> list[Variable]:
        other = _UpperMatvec(transposed=not self.transposed)
        return [DisconnectedType()(), other(inputs[0], cotangents[0])]


def _product(matrix: Any, vector: Any) -> Any:
    result = np.empty(len(vector))
    for i in range(len(vector)):
        row, own = matrix[i, i:], vector[i:]
        total = 0.0
        for j in range(len(row)):
            total += row[j] * own[j]
        result[i] = total
    return result


def _transposed_product(matrix: Any, vector: Any) -> Any:
    result = np.zeros(len(vector))
    for i in range(len(vector)):
        row, own = matrix[i, i:], result[i:]
        for j in range(len(row)):
            own[j] += row[j] * vector[i]
    return result


@numba_dispatch.register_funcify_default_op_cache_key(_UpperMatvec)
def _upper_matvec_in_numba(op: Op, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    version = 1  # of the loops: part of the key of the compiled code's cache
    loops = _transposed_product if bool(op.transposed) else _product
    return numba_dispatch.numba_njit(loops), version
