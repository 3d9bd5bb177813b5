r"""Which unit has which true label: exact draws given the counts and the released labels.

In a cell of n units with true label counts N, released label counts M, redraw probability
:math:`\lambda` and prior :math:`\tilde q`, let :math:`S_y` be the number of units that kept the
label y and :math:`r = n - \sum_y S_y` the number that lost theirs. Counting the arrangements,

.. math::
    P(S \mid N, M) \propto r!\, \lambda^r (1-\lambda)^{n-r}
    \prod_y \frac{\tilde q_y^{M_y - S_y}}{S_y!\,(N_y - S_y)!\,(M_y - S_y)!}.

Given S, which units kept their label is uniform within each released label, and the other units
hold the remaining true labels in uniformly random order: nothing else is known about them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = ["Placement", "draw_kept", "kept_mode", "round_counts"]

SWEEPS = 30  # each about halves what is left of the start

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def round_counts(counts: NDArray[Any], size: NDArray[Any], rng: np.random.Generator) -> Ints:
    r"""Round real counts to non-negative integers that sum to their cell's size.

    One uniform number u per cell turns the running sums :math:`C_k` into
    :math:`\lfloor C_k + u \rfloor`, whose steps have expectation :math:`C_k - C_{k-1}`: unbiased.
    Counts that are whole already stay as they are. A negative count, which a normal draw can be
    where a label is rare, is set to zero and the others are scaled to the size.

    Parameters
    ----------
    counts : ndarray, shape (..., K)
        Each cell sums to its size.
    size : ndarray of int, shape (...)
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64, shape (..., K)

    Raises
    ------
    ValueError
        Counts that are not finite or do not sum to the size.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> round_counts(np.array([[1.5, 2.5], [3.0, 0.0]]), np.array([4, 3]), rng).sum(axis=1)
    array([4, 3])
    """
    counts = np.asarray(counts, dtype=float)
    size = np.broadcast_to(np.asarray(size, dtype=np.int64), counts.shape[:-1])
    if not np.allclose(counts.sum(axis=-1), size, rtol=1e-6, atol=1e-6):
        raise ValueError("counts must be finite and sum, in each cell, to the cell's size")
    whole = np.round(counts)
    counts = np.where(np.abs(counts - whole) < 1e-9, whole, counts)
    counts = np.maximum(counts, 0)
    total = counts.sum(axis=-1)
    scale = np.where(total > 0, size / np.where(total > 0, total, 1), 0)
    steps = np.cumsum(counts * scale[..., None], axis=-1)
    steps = np.floor(steps + rng.random(counts.shape[:-1])[..., None]).astype(np.int64)
    steps[..., -1] = size
    return np.diff(np.minimum(steps, size[..., None]), axis=-1, prepend=0)


def kept_mode(true: Ints, released: Ints, odds: Floats) -> Ints:
    r"""Return the mode of :math:`P(S) \propto \omega^S / (S!\,(N-S)!\,(M-S)!)`.

    It is the floor of the smaller root of :math:`\omega (N-x+1)(M-x+1) = x`, here with
    ``odds`` = :math:`1/\omega`, in a form that neither cancels nor overflows.
    """
    half = true + released + 2 + odds
    spread = (true - released) ** 2.0 + 2 * (true + released + 2) * odds + odds**2
    root = 2.0 * (true + 1) * (released + 1) / (half + np.sqrt(spread))
    return np.minimum(np.floor(root).astype(np.int64), np.minimum(true, released))


def draw_kept(
    true: Ints, released: Ints, prior: Floats, lam: float, rng: np.random.Generator
) -> Ints:
    r"""Draw how many units of each label kept it, given both counts.

    As :math:`r! = \int_0^\infty t^r e^{-t}\,dt`, given :math:`t \sim \mathrm{Gamma}(r + 1)` the
    :math:`S_y` are independent, with :math:`\omega_y = (1-\lambda)/(\lambda \tilde q_y t)` in
    `kept_mode`'s law. Alternating t and S is a Gibbs sampler whose memory of its start about halves
    with each sweep: :math:`\sum_y S_y` moves by :math:`\sum_y \mathrm{Var}(S_y \mid t)` per unit of
    :math:`\log r`, and that is near or below half of :math:`\sum_y (N_y - S_y) = r` (the largest
    second eigenvalue found in small cells was 0.53). It starts at its own fixed point.

    Parameters
    ----------
    true, released : ndarray of int64, shape (..., K)
        N and M, with equal sums over the last axis.
    prior : ndarray, shape (..., K)
        :math:`\tilde q`, positive.
    lam : float
        Probability that a label is redrawn.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64, shape (..., K)
        S, between 0 and min(N, M).

    Examples
    --------
    >>> N, M = np.array([30, 70]), np.array([40, 60])
    >>> kept = draw_kept(N, M, np.array([0.5, 0.5]), 0.3, np.random.default_rng(1))
    >>> (kept <= np.minimum(N, M)).all()
    np.True_
    """
    prior = np.broadcast_to(prior, true.shape)
    size = true.sum(axis=-1)
    base = lam / (1 - lam) * prior
    lost = np.rint(size * lam).astype(np.int64)
    for _ in range(SWEEPS):
        kept = kept_mode(true, released, base * (lost + 1)[..., None])
        lost = size - kept.sum(axis=-1)
    law = KeptLaw(true.ravel(), released.ravel())
    for _ in range(SWEEPS):
        t = np.asarray(rng.standard_gamma(lost + 1.0))
        odds = np.maximum(base * t[..., None], 1e-300)
        kept = law.draw(odds.ravel(), rng).reshape(true.shape)
        lost = size - kept.sum(axis=-1)
    return kept


class KeptLaw:
    r"""The laws :math:`P(S) \propto \omega^S / (S!\,(N-S)!\,(M-S)!)` of many independent S.

    They are log-concave, so flat between two points near the mode and geometric beyond, with the
    law's own ratio at the two points, is an envelope; draws from it are accepted about three times
    in four. No value is cut off.

    Parameters
    ----------
    true, released : ndarray of int64, shape (m,)
        N and M.
    """

    def __init__(self, true: Ints, released: Ints) -> None:
        self.true, self.released = true, released
        top = int(max(true.max(initial=0), released.max(initial=0)))
        self._log_factorial = gammaln(np.arange(top + 1) + 1.0)

    def log_weight(self, kept: Ints, log_odds: Floats, part: Any = slice(None)) -> Floats:
        """Return the log of the law, up to a constant; ``kept`` must be in the support."""
        table = self._log_factorial
        rest = table[self.true[part] - kept] + table[self.released[part] - kept]
        return -kept * log_odds - table[kept] - rest

    def _ratio(self, kept: Ints, odds: Floats) -> Floats:
        """Return P(S + 1) / P(S)."""
        return (self.true - kept) / (kept + 1.0) * ((self.released - kept) / odds)

    def draw(self, odds: Floats, rng: np.random.Generator) -> Ints:
        r"""Draw one value from each law.

        Parameters
        ----------
        odds : ndarray, shape (m,)
            :math:`1/\omega`, positive.
        rng : numpy.random.Generator
        """
        mode = kept_mode(self.true, self.released, odds)
        limit = np.minimum(self.true, self.released)
        curve = sum(1.0 / np.maximum(x, 1) for x in (mode, self.true - mode, self.released - mode))
        reach = np.maximum(np.rint(1.4 / np.sqrt(curve)).astype(np.int64), 1)
        low, high = np.maximum(mode - reach, 0), np.minimum(mode + reach, limit)
        envelope = _Envelope(self, low, high, mode, np.log(odds), odds)
        kept, todo = mode.copy(), np.flatnonzero(limit > 0)
        while todo.size:
            proposed, accepted = envelope.propose(todo, limit, rng)
            kept[todo[accepted]] = proposed[accepted]
            todo = todo[~accepted]
        return kept


class _Envelope:
    """Height one from ``low`` to ``high``, and a geometric tail on either side."""

    def __init__(
        self, law: KeptLaw, low: Ints, high: Ints, mode: Ints, log_odds: Floats, odds: Floats
    ) -> None:
        self.law, self.low, self.high, self.log_odds = law, low, high, log_odds
        self.peak = law.log_weight(mode, log_odds)
        self.up = law._ratio(high, odds)  # zero at the end of the support
        before = np.maximum(low - 1, 0)
        with np.errstate(divide="ignore"):
            self.down = np.where(low > 0, 1 / law._ratio(before, odds), 0.0)
        at_high = np.exp(law.log_weight(high, log_odds) - self.peak)
        at_low = np.exp(law.log_weight(low, log_odds) - self.peak)
        self.at_high, self.at_low = at_high, at_low
        self.right = at_high * self.up / (1 - self.up)
        self.left = at_low * self.down / (1 - self.down)
        self.middle = (high - low + 1).astype(float)

    def propose(
        self, i: Ints, limit: Ints, rng: np.random.Generator
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Draw a value for each of the laws ``i`` and say which are accepted."""
        where = rng.random(i.size) * (self.middle + self.left + self.right)[i]
        in_right = where < self.right[i]
        in_left = ~in_right & (where < (self.right + self.left)[i])
        flat = (rng.random(i.size) * self.middle[i]).astype(np.int64)
        value = self.low[i] + np.minimum(flat, self.high[i] - self.low[i])
        log_height = np.zeros(i.size)
        for side, rate, edge, start, sign in (
            (in_right, self.up, self.high, self.at_high, 1),
            (in_left, self.down, self.low, self.at_low, -1),
        ):
            j = i[side]
            # a tail that is hardly there has rates down to zero, where geometric() fails
            step = rng.geometric(np.minimum(1 - rate[j], 1.0)) if j.size else np.zeros(0, int)
            value[side] = edge[j] + sign * step
            log_height[side] = np.log(start[j]) + step * np.log(rate[j])
        inside = (value >= 0) & (value <= limit[i])
        checked = np.clip(value, 0, limit[i])
        log_p = self.law.log_weight(checked, self.log_odds[i], i) - self.peak[i]
        return value, inside & (np.log1p(-rng.random(i.size)) < log_p - log_height)


class Placement(NamedTuple):
    """The units in the order of their cell and released label, and where each group begins.

    Parameters
    ----------
    order : ndarray of int, shape (n,)
        Units sorted by cell and released label.
    released : ndarray of int64, shape (cells, K)
        M.

    Examples
    --------
    >>> cell, label = np.array([0, 0, 0]), np.array([1, 0, 1])
    >>> place = Placement.of(cell, label, 1, 2)
    >>> place.assign(np.array([[2, 1]]), np.array([[1, 1]]), np.random.default_rng(1)).sum()
    np.int64(1)
    """

    order: NDArray[np.intp]
    released: Ints

    @classmethod
    def of(cls, cell: NDArray[Any], label: NDArray[Any], n_cells: int, n_levels: int) -> Placement:
        """Sort the units once."""
        group = cell.astype(np.int64) * n_levels + label
        counts = np.bincount(group, minlength=n_cells * n_levels).reshape(n_cells, n_levels)
        return cls(np.argsort(group, kind="stable"), counts)

    def assign(self, true: Ints, kept: Ints, rng: np.random.Generator) -> NDArray[np.int32]:
        """Give each unit a true label, given the counts and how many of each label were kept.

        Parameters
        ----------
        true, kept : ndarray of int64, shape (cells, K)
            N and S.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of int32, shape (n,)
            True label codes in the units' own order.
        """
        n_cells, n_levels = self.released.shape
        group_size = self.released.ravel()
        rank = np.arange(len(self.order)) - np.repeat(_starts(group_size), group_size)
        stays = rank < np.repeat(kept.ravel(), group_size)
        _shuffle_blocks(stays, group_size, (kept > 0) & (kept < self.released), rng)
        levels = np.tile(np.arange(n_levels, dtype=np.int32), n_cells)
        lost = true - kept
        rest = np.repeat(levels, lost.ravel())
        _shuffle_blocks(rest, lost.sum(axis=1), (lost > 0).sum(axis=1) > 1, rng)
        label = np.repeat(levels, group_size)
        label[~stays] = rest
        assigned = np.empty_like(label)
        assigned[self.order] = label
        return assigned

    def scatter(self, counts: Ints, rng: np.random.Generator) -> NDArray[np.int32]:
        """Give each unit a label, given the counts of each cell only.

        Parameters
        ----------
        counts : ndarray of int64, shape (cells, K)
        rng : numpy.random.Generator
        """
        return self.assign(counts, np.zeros_like(counts), rng)


def _starts(size: Ints) -> Ints:
    """Return where each block begins, of blocks of the given sizes."""
    return np.cumsum(size.ravel()) - size.ravel()


def _shuffle_blocks(
    values: NDArray[Any], size: Ints, mixed: NDArray[np.bool_], rng: np.random.Generator
) -> None:
    """Shuffle, in place, each block that holds different values."""
    first, size, mixed = _starts(size), size.ravel(), mixed.ravel()
    for block in np.flatnonzero(mixed):
        rng.shuffle(values[first[block] : first[block] + size[block]])
