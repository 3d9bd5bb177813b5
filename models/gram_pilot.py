r"""A first look at a second-order release: where the posterior lies, and in which coordinates.

Gauss-Newton steps to the mode. None of it changes the model: it moves and scales what the sampler
sees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.models.gram_density import expected
from dpcausal_bayes.models.gram_laws import GramForm, gram_law
from dpcausal_bayes.models.student_prior import student_tails
from dpcausal_bayes.models.whitening import whitener

__all__ = ["GramPilot", "gram_pilot"]

STEPS = 60
CONVERGED = 1e-4  # gain in log density
# Prior scales that a step may move a coefficient by. Where noise leaves next to nothing of a
# column's residual variance its row is drawn far out, into tails so flat that no step leads back.
FARTHEST = 3.0
DIFFERENCE = 1e-5  # of a coefficient, for central differences
AT_ONCE = 128  # coefficients whose differences are taken at a time


class GramPilot(NamedTuple):
    """Location (K,) and scale (K, K), upper triangular, of the coefficients."""

    location: NDArray[np.float64]
    scale: NDArray[np.float64]


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # a step too far is cut short
def gram_pilot(
    form: GramForm, released: NDArray[np.float64], noise_sd: NDArray[np.float64], n: int
) -> GramPilot:
    """Find location and scale.

    Parameters
    ----------
    form : GramForm
    released, noise_sd : ndarray, shape (Q,)
        Queries and the standard deviations of their noise, in records.
    n : int
        Number of records.
    """

    def residual(c: NDArray[np.float64]) -> NDArray[np.float64]:
        return (released - n * expected(form, gram_law(form, c, np))) / noise_sd

    def prior(c: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        return student_tails((c - form.centre) / form.scale, form.tails, form.degrees)

    def objective(c: NDArray[np.float64]) -> float:
        return prior(c)[0] - 0.5 * float((residual(c) ** 2).sum())

    c = form.centre.copy()
    best = objective(c)
    for _ in range(STEPS):
        jacobian = n * _jacobian(form, c) / noise_sd[:, None]
        weight = prior(c)[1] / form.scale**2
        precision = jacobian.T @ jacobian + np.diag(weight)
        slope = jacobian.T @ residual(c) - weight * (c - form.centre)
        step = np.linalg.solve(precision, slope)
        length = min(1.0, FARTHEST / float(np.abs(step / form.scale).max()))
        new = objective(c + length * step)
        while length > 1e-3 and not new > best:
            length /= 2
            new = objective(c + length * step)
        gain = new - best
        if gain > 0:
            c, best = c + length * step, new
        if not gain > CONVERGED:
            break
    return GramPilot(c, whitener(precision))


def _jacobian(form: GramForm, c: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the derivative (Q, K) of what the queries expect, by central differences."""
    columns = []
    for first in range(0, len(c), AT_ONCE):
        moved = DIFFERENCE * np.eye(len(c))[first : first + AT_ONCE]
        ahead, behind = (expected(form, gram_law(form, c + way * moved, np)) for way in (1, -1))
        columns.append((ahead - behind).T / (2 * DIFFERENCE))
    return np.concatenate(columns, axis=1)
