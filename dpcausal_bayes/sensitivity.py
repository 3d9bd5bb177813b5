r"""How far one record can move the queries of a causal workload.

A record is an arm t, a stratum :math:`x_g` in each group g, and an outcome y in [-1, 1]. With
:math:`a_g` a group's weight and w the squares', the weighted queries of one record are

.. math:: a_g e_{t, x_g}, \quad a_g\, y\, e_{t, x_g}, \quad w\,(y^2 - \tfrac12)\, e_t .

Replace one record by another, :math:`(t', x', y')`, and write :math:`u = y^2, u' = y'^2`.

*Other arm.* Nothing overlaps. The squared distance is
:math:`\sum_g a_g^2 (2 + u + u') + w^2 [(u - 1/2)^2 + (u' - 1/2)^2]`, convex in u and in u', so it
is largest at a corner: :math:`4 W + w^2/2` with :math:`W = \sum_g a_g^2`, at u = u' = 1.

*Same arm.* Let D be the sum of :math:`a_g^2` over the groups whose stratum changes, and E over the
others. The squared distance is :math:`D (2 + u + u') + E (y - y')^2 + w^2 (u - u')^2`. As
:math:`(y - y')^2 \le 2(u + u') \le 2 + u + u'`, it is largest when every group that has two strata
changes, which one replacement can do.

- With E = 0 it is convex in u and in u': :math:`\max(4 W,\ 3 W + w^2)`.
- A group of one stratum cannot change. For opposite signs, and t the smaller of the two sizes, the
  distance grows with the larger size, so that one is 1. What is left to maximise over t in [0, 1],
  :math:`D(3 + t^2) + E(1 + t)^2 + w^2 (1 - t^2)^2`, has its largest value at an end or where its
  derivative is zero, a cubic.

With centred squares the price of the squares at unit weights is thus 4.5 against 4 for one group.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["bounded_sensitivity"]


def bounded_sensitivity(moving: float, fixed: float, square_weight: float) -> float:
    r"""Return the exact L2 sensitivity of the weighted queries of a bounded outcome.

    Parameters
    ----------
    moving : float
        Sum of squared weights of the groups that have at least two strata.
    fixed : float
        The same of the groups of one stratum.
    square_weight : float

    Returns
    -------
    float
        In records.

    Examples
    --------
    >>> round(bounded_sensitivity(1.0, 0.0, 1.0) ** 2, 6)
    4.5
    >>> round(bounded_sensitivity(1.0, 0.0, 3.0) ** 2, 6)
    12.0
    """
    w2 = square_weight**2
    t = np.array([0.0, 1.0])
    if fixed > 0:
        slope = [4 * w2, 0.0, 2 * (moving + fixed) - 4 * w2, 2 * fixed]
        roots = np.roots(slope)
        inside = np.real(roots[np.abs(np.imag(roots)) < 1e-9])
        t = np.concatenate([t, inside[(inside > 0) & (inside < 1)]])
    same_arm = moving * (3 + t**2) + fixed * (1 + t) ** 2 + w2 * (1 - t**2) ** 2
    return math.sqrt(max(4 * (moving + fixed) + w2 / 2, float(np.max(same_arm))))
