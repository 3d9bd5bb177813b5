r"""What a record contributes to a first-order release, under a maximum-entropy law.

Queries are put into this order: by part of the table (the arms; of a binary outcome arm and
outcome level, in which the noise stays independent), in it by group, level and factor of the
outcome (1 and y; of a binary outcome nothing but 1), and last the part's square
:math:`y^2 - 1/2`. Given part and outcome a record's groups are independent, so the covariance of
its contribution h is

.. math::
    C = B + E\,\mathrm{diag}(p)\,E' - m m', \qquad
    B_{tg} = \sum_y p(t, y)\, (\mathrm{diag}\,s - s s') \otimes f f',

with s = p(x_g | t, y), f the factors, columns of E the means of h given (t, y), which are nothing
outside their part, and m = E p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.maxent_laws import MaxentForm, MaxentLaw
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["MaxentRecords", "maxent_records"]

Array = NDArray[np.float64]


class MaxentRecords(NamedTuple):
    """How queries lie, and what the outcome's values are to them.

    Attributes
    ----------
    order : ndarray of int, shape (Q,)
        Which query of the workload each is.
    factor : ndarray, shape (J, Y)
        f for each point of a part's grid.
    square : ndarray, shape (Y,) or (0,)
        The square for each point, where there is one.
    sizes : ndarray of int, shape (G,)
        Number of levels of each group.
    """

    order: NDArray[np.int64]
    factor: Array
    square: Array
    sizes: NDArray[np.int64]

    @property
    def n_parts(self) -> int:
        """Two, or four of a binary outcome."""
        return 2 if len(self.square) else 4

    def by_part(self, law: MaxentLaw) -> tuple[Any, Any]:
        """Return the law's two tables by part: (..., A, Y) and (..., A, G, L, Y)."""
        if len(self.square):
            return law.cell, law.level
        level = np.moveaxis(law.level, -1, -3)
        shape = (*law.cell.shape[:-2], 4)
        return law.cell.reshape(*shape, 1), level.reshape(*shape, *level.shape[-2:], 1)

    def columns(self, level: Array) -> Array:
        """Return E, (..., A, queries of a part, Y), of levels by part."""
        kept = np.arange(level.shape[-2]) < self.sizes[:, None]
        flat = level[..., kept, :]  # (..., A, levels, Y)
        both = flat[..., None, :] * self.factor
        both = both.reshape(*flat.shape[:-2], -1, flat.shape[-1])
        if len(self.square):
            square = np.broadcast_to(self.square, (*both.shape[:-2], 1, len(self.square)))
            both = np.concatenate([both, square], axis=-2)
        return both

    def mean(self, law: MaxentLaw) -> Array:
        """Return m, (..., Q), from arrays."""
        cell, level = self.by_part(law)
        expected = (self.columns(level) @ cell[..., None])[..., 0]
        return expected.reshape(*expected.shape[:-2], -1)

    def covariance(self, law: MaxentLaw) -> Array:
        """Return C, (..., Q, Q), dense, from arrays."""
        cell, level = self.by_part(law)
        columns = self.columns(level)
        size = columns.shape[-2]
        found = np.zeros((*cell.shape[:-2], self.n_parts * size, self.n_parts * size))
        within = (columns * cell[..., None, :]) @ np.swapaxes(columns, -1, -2)
        ends = np.cumsum(self.sizes) * len(self.factor)
        for a in range(self.n_parts):
            for g, end in enumerate(ends):
                own = slice(end - self.sizes[g] * len(self.factor), end)
                share = level[..., a, g, : self.sizes[g], :] * cell[..., a, None, :]
                blocks = np.einsum("...ly,iy,jy->...lij", share, self.factor, self.factor)
                spread = blocks[..., :, :, None, :] * np.eye(self.sizes[g])[:, None, :, None]
                width = own.stop - own.start
                within[..., a, own, own] = spread.reshape(*blocks.shape[:-3], width, width)
            part = slice(a * size, (a + 1) * size)
            found[..., part, part] = within[..., a, :, :]
        mean = self.mean(law)
        return found - mean[..., :, None] * mean[..., None, :]

    def draw(self, law: MaxentLaw, n: int, rng: np.random.Generator) -> Array:
        """Draw the moments of a table of n records, (..., Q), exactly.

        Parameters
        ----------
        law : MaxentLaw
            Of arrays.
        n : int
        rng : numpy.random.Generator
        """
        cell, level = self.by_part(law)
        flat = cell.reshape(*cell.shape[:-2], -1)
        records = rng.multinomial(n, flat / flat.sum(-1, keepdims=True)).reshape(cell.shape)
        level = np.swapaxes(level, -1, -2)  # (..., A, G, Y, L)
        level = level / level.sum(-1, keepdims=True)
        counts = rng.multinomial(records[..., None, :], level)
        sums = self.columns(np.swapaxes(counts, -1, -2).astype(float))
        if len(self.square):
            sums[..., -1, :] *= records
        return sums.sum(-1).reshape(*cell.shape[:-2], -1)


def maxent_records(workload: CausalWorkload, form: MaxentForm) -> MaxentRecords:
    """Lay out the queries.

    Parameters
    ----------
    workload : CausalWorkload
    form : MaxentForm
    """
    groups, squares = workload.split(np.arange(workload.n_queries))
    if squares is None:
        cells = [np.moveaxis(group, 2, 1).reshape(4, -1) for group in groups]
        order = np.concatenate(cells, axis=1)
        return MaxentRecords(order.ravel(), np.ones((1, 1)), np.zeros(0), form.sizes)
    cells = [group.reshape(2, -1) for group in groups]
    order = np.concatenate([*cells, squares[:, None]], axis=1)
    factor = np.stack([np.ones_like(form.grid), form.grid])
    return MaxentRecords(order.ravel(), factor, form.grid**2 - 0.5, form.sizes)
