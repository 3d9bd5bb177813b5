"""What several releases cost together, by the smallest of the bounds that hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpcausal_bayes.accounting import PrivacyLoss, epsilon_from_rho

__all__ = ["compose_losses"]


def compose_losses(losses: Sequence[PrivacyLoss], delta: float) -> tuple[float, float]:
    r"""Return the smallest (epsilon, delta) that is proved for all releases together.

    Three bounds are tried: the sum of pure epsilons; zero-concentrated privacy, the sum of rho
    turned into epsilon at ``delta``; and the sums of epsilons and of deltas. The first two hold
    together however the releases were chosen: a run that ends within one of them adds to delta only
    through the second. The third shares no delta with the second, so where it is the smallest, the
    amounts to spend (not the questions) must not have been chosen by looking at earlier releases.

    Parameters
    ----------
    losses : sequence of PrivacyLoss
    delta : float
        The largest delta allowed.

    Returns
    -------
    epsilon, delta : float
        Infinite epsilon if no bound holds at this delta.

    Examples
    --------
    >>> one = PrivacyLoss(pure_epsilon=1.0, rho=0.1, epsilon=1.0, delta=0.0)
    >>> compose_losses([one, one], delta=1e-6)
    (2.0, 0.0)
    >>> epsilon, delta = compose_losses([one] * 50, delta=1e-6)
    >>> round(epsilon, 2), delta
    (20.55, 1e-06)
    """
    pure = [loss.pure_epsilon for loss in losses if loss.pure_epsilon is not None]
    bounds = []
    if len(pure) == len(losses):
        bounds.append((math.fsum(pure), 0.0))
    deltas = math.fsum(loss.delta for loss in losses)
    # the tolerance forgives rounding in the caller's own division of a delta
    if 0 < deltas <= delta * (1 + 1e-9):
        bounds.append((math.fsum(loss.epsilon for loss in losses), min(deltas, delta)))
    if delta > 0:
        bounds.append((epsilon_from_rho(math.fsum(loss.rho for loss in losses), delta), delta))
    return min(bounds, default=(math.inf, delta))
