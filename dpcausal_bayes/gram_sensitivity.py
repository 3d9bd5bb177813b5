r"""How far one record can move the queries of a second-order workload.

A record is an arm t and a vector :math:`v = (1, b, x, y)`: b of entries -1 or +1, x numeric in the
cube :math:`[-1, 1]^d` and the ball :math:`|x|^2 \le R^2`, y in [-1, 1] or, if binary, one of its
ends. Its queries Q(v), in its arm, are the distinct entries of :math:`v v'` but for those that
other entries tell: squares of entries -1 or +1, and products of two columns of one covariate. With
q the number of columns in b, :math:`m_c` those of covariate c, :math:`W = \sum_c \binom{m_c}{2}`,
K squares left out (q, and one for a binary y), :math:`M = 2 + q + R^2` and
:math:`\kappa(s) = \lfloor s \rfloor + (s - \lfloor s \rfloor)^2`:

.. math::
    |Q(v)|^2 &= \tfrac12 \Big(|v|^4 + \sum_i v_i^4\Big) - K - W, \\
    \langle Q(v), Q(v') \rangle &= \tfrac12 \Big((v \cdot v')^2 + \sum_i v_i^2 v_i'^2\Big) - K
        - \sum_{\text{left out } i < j} v_i v_j v'_i v'_j .

*Other arm.* Nothing overlaps, so the squared distance is :math:`|Q(v)|^2 + |Q(v')|^2`. Both terms
are convex in the squares, hence largest at :math:`y^2 = 1` and where x has
:math:`\lfloor R^2 \rfloor` entries of size one and the rest of :math:`R^2` in one more:

.. math:: M^2 + 2 + q + \kappa(R^2) - 2K - 2W .

*Same arm.* With s, s' the squares of x and x', and :math:`y^2 = y'^2 = 1`, it is

.. math::
    \tfrac12 (|v|^4 + |v'|^4) + \tfrac12 \sum_i (s_i - s'_i)^2 - (v \cdot v')^2
    - 2 \sum_{\text{left out } i < j} (1 - v_i v_j v'_i v'_j) .

If q = 0 and y is not binary this is at most :math:`M^2 + \kappa(R^2)`, less than for the other arm.
Else it is convex in each of y and y', and in each entry of x, as the squares of the others sum to
at least 2; so :math:`y^2 = y'^2 = 1` and, in the cube, all entries have size one. The first two
terms are convex in (s, s') and largest where both have the sum :math:`R^2`, as above, on as few
common places as d allows: :math:`M^2 + \kappa'`. What is taken off depends on
:math:`c = v \cdot v'` and on which covariates change their level; all cases are gone through, with
:math:`|x \cdot x'|` up to :math:`R^2` in the ball.

The result is reached, but for a ball smaller than the cube beside more than two columns in b, or
beside a binary outcome: there the bound of the same arm may be the larger, and above what is
reached by less than :math:`R^2 + 1` in the square.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["gram_sensitivity"]


def gram_sensitivity(
    two_levels: int, more_levels: Sequence[int], numeric: int, radius2: float, *, binary: bool
) -> float:
    """Return the L2 sensitivity of the queries to replacing one record, in records.

    Parameters
    ----------
    two_levels : int
        Number of covariates of two levels.
    more_levels : sequence of int
        Numbers of levels of the others that have levels: 3 or more each.
    numeric : int
        Number d of numeric covariates.
    radius2 : float
        Squared radius of their ball; d or more leaves the cube.
    binary : bool
        Whether the outcome has two levels.

    Examples
    --------
    Two numeric covariates in the cube, (d + 2)(d + 3); then in a ball:

    >>> round(gram_sensitivity(0, [], 2, 2.0, binary=False) ** 2, 6)
    20.0
    >>> round(gram_sensitivity(0, [], 2, 0.5, binary=False) ** 2, 6)
    8.5
    """
    radius2 = min(radius2, float(numeric))
    indicators = [levels - 1 for levels in more_levels]
    columns = two_levels + sum(indicators)
    largest = (2 + columns + radius2) ** 2
    whole = math.floor(radius2)
    fraction = radius2 - whole
    constant = columns + binary
    left_out = sum(m * (m - 1) for m in indicators)  # twice the number of such products
    other_arm = largest + 2 + columns + whole + fraction**2 - 2 * constant - left_out
    if columns == 0 and not binary:
        return math.sqrt(other_arm)
    cube = radius2 == numeric
    signs = two_levels + 1 + (numeric if cube else 0)
    apart = 0.0 if cube else _apart(whole, fraction, numeric)
    same_arm = largest + apart - _taken_off(signs, more_levels, 0.0 if cube else radius2)
    return math.sqrt(max(other_arm, same_arm))


def _apart(whole: int, fraction: float, numeric: int) -> float:
    """Return half the largest distance between two vectors of squares, both of the full sum."""
    support = whole + (fraction > 0)
    common = max(2 * support - numeric, 0)
    if fraction == 0 or common == 0:
        overlap = float(common)
    elif common == 1:
        overlap = fraction**2
    else:
        overlap = 2 * fraction + common - 2
    return whole + fraction**2 - overlap


def _taken_off(signs: int, more_levels: Sequence[int], reach: float) -> float:
    """Return the least that c and changed levels take off; x can bring c nearer to 0 by reach."""
    least = {1 + signs - 2 * flipped: 0 for flipped in range(signs + 1)}
    for levels in more_levels:
        moves = [
            (levels - 1, 0),  # stays
            (levels - 3, 4 * (levels - 2)),  # from or to the first level: one column changes
            (levels - 5, 8 * (levels - 3)),  # between others: two columns change
        ]
        after: dict[int, int] = {}
        for c, cost in least.items():
            for step, price in moves:
                after[c + step] = min(after.get(c + step, cost + price), cost + price)
        least = after
    return min(cost + max(abs(c) - reach, 0.0) ** 2 for c, cost in least.items())
