r"""How precise regression from a second-order release is, by closed form and from guesses alone.

In arm t, with :math:`w = (1, \phi)` and :math:`G_t = n_t \mathrm{E}_t[w w']`, the regression's
coefficients are :math:`\theta_t = G_t^{-1} g_t`, g the sums of w y. An effect is
:math:`w_1^{*\prime} \theta_1 - w_0^{*\prime} \theta_0`, with :math:`w_t^*` the mean w of whom it
averages over.

**Privacy.** With :math:`a = G_t^{-1} w_t^*` noise E on G and e on g moves
:math:`w_t^{*\prime} \theta_t` by :math:`a'(e - E \theta_t)`, so that with noise of standard
deviation :math:`\tau` on each distinct entry its variance is :math:`\tau^2` times

.. math::
    \sum_i a_i^2 + \sum_{i < j} (a_i \theta_j + a_j \theta_i)^2 + \sum_i a_i^2 \theta_i^2,

entries that follow from others laid on those; less what the two arms' numbers of records have in
common, as n is public.
This is to first order in the noise: it is marked as rough where the noise reaches the least
eigenvalue of G, and the prior of an effect, as wide as its range, bounds it.

**Sampling.** :math:`\sum_t \sigma_t^2\, w_t^{*\prime} G_t^{-1} w_t^*`; for these very units
each arm's missing outcomes have an error of their own besides, and its own outcomes none.

**Guesses.** A confounder that would leave the bias b is taken to be as strongly related to the arm
as to the outcome: its means differ between the arms by :math:`\sqrt{b / \sigma}` of its standard
deviation, and one of these moves the outcome by :math:`\sqrt{b \sigma}`. Covariates are independent
of one another and vary alike in both arms, effects are the same for everybody.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.columns import Bounded
from dpcausal_bayes.custodian.guesses import Guesses
from dpcausal_bayes.custodian.predictions import Asked, Prediction
from dpcausal_bayes.custodian.widths import normal_reach
from dpcausal_bayes.gram_workloads import GramWorkload

__all__ = ["PRIOR_SD", "GramPredictor"]

PRIOR_SD = 0.87  # of an effect under the analyst's default priors, in half ranges of the outcome

Array = NDArray[np.float64]


class _Guessed(NamedTuple):
    """The guessed law of (1, phi), and the outcome's slopes, in scaled units."""

    mean: Array  # (2, 1 + d): of controls and treated
    second: Array  # (2, 1 + d, 1 + d): by arm, of one record
    slope: Array  # (1 + d,): the first is the intercept


class GramPredictor:
    """Expected intervals of a regression from second-order moments.

    Parameters
    ----------
    workload : GramWorkload
    n : int
    guesses : Guesses

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 100),
    ...                 covariates=[Bounded("age", 20, 80)])
    >>> guesses = Guesses(treated=0.5, mean=50.0, sd=(25.0, 25.0), shares={},
    ...                   confounding={"age": 4.0})
    >>> predictor = GramPredictor(GramWorkload(schema), 2000, guesses)
    >>> everybody = Asked("ate", np.array([True]), ("control", "treated"))
    >>> found = predictor.predict(everybody, 20.0, "super", 0.95)
    >>> round(found.sampling_sd, 2), found.sampling_sd < found.privacy_sd < found.sd
    (1.14, True)
    """

    def __init__(self, workload: GramWorkload, n: int, guesses: Guesses) -> None:
        self.workload, self.n, self.guesses = workload, n, guesses
        outcome: Any = workload.schema.outcome
        low, high = sorted(outcome.values) if workload.binary else (outcome.low, outcome.high)
        self.half = (high - low) / 2
        self.share = np.array([1 - guesses.treated, guesses.treated])
        self._law = self._guessed((low + high) / 2)

    @property
    def records(self) -> Array:
        """Expected records of controls and treated."""
        return self.n * self.share

    def rough(self, scale: float) -> bool:
        """Whether noise reaches the least eigenvalue of an arm's moments: the width is a guess.

        Parameters
        ----------
        scale : float
            Of the noise on each query, in records.
        """
        least = np.linalg.eigvalsh(self._law.second)[:, 0] * self.records
        return bool(2 * scale * math.sqrt(len(self._law.slope)) > least.min())

    def predict(self, asked: Asked, scale: float, population: str, ci_prob: float) -> Prediction:
        """Predict one estimand.

        Parameters
        ----------
        asked : Asked
            Of everybody: ``members`` has one entry.
        scale : float
            Noise of a query, in records.
        population : "super" or "sample"
        ci_prob : float
        """
        weight = self.share * [arm in asked.assigned for arm in ("control", "treated")]
        weight = weight / weight.sum()
        target = weight @ self._law.mean
        sampling = self.half**2 * self._sampling(weight, population)
        privacy = self.half**2 * self._privacy(target, scale)
        most = (PRIOR_SD * self.half) ** 2
        sampling, privacy = (
            one * most / (sampling + privacy + most) for one in (sampling, privacy)
        )
        sd = math.sqrt(sampling + privacy)
        return Prediction(normal_reach(ci_prob) * sd, sd, math.sqrt(sampling), math.sqrt(privacy))

    def _sampling(self, weight: Array, population: str) -> float:
        """Return the variance that would be left if the table were known."""
        inverse = np.linalg.inv(self._law.second) / self.records[:, None, None]
        variance = (np.array(self.guesses.sd) / self.half) ** 2
        if population == "super":
            target = weight @ self._law.mean
            return float(
                sum(v * target @ g @ target for v, g in zip(variance, inverse, strict=True))
            )
        total = 0.0
        for a in (0, 1):  # those assigned to a lack their outcomes under the other arm
            at = self._law.mean[a]
            spread = at @ inverse[1 - a] @ at + 1 / self.records[a]
            total += weight[a] ** 2 * variance[1 - a] * spread
        return float(total)

    def _privacy(self, target: Array, scale: float) -> float:
        """Return the variance that is owed to the noise, to first order."""
        total, common = 0.0, 0.0
        rows, columns = self.workload.pairs.T
        for a, second in enumerate(self._law.second):
            weight = np.append(np.linalg.solve(second, target) / self.records[a], 0.0)
            both = np.outer(weight, np.append(-self._law.slope, 1.0))
            moved = self._on_queries(np.triu(both + both.T) - np.diag(np.diag(both)))
            total += float((moved[rows, columns] ** 2).sum())
            common += (2 * a - 1) * float(moved[0, 0])
        return scale**2 * (total - common**2 / 2)

    def _on_queries(self, moved: Array) -> Array:
        """Lay what entries weigh that are not released on those that determine them."""
        known = np.triu(np.ones(moved.shape, dtype=bool))
        known[self.workload.pairs[:, 0], self.workload.pairs[:, 1]] = False
        found = np.where(known, 0.0, moved)
        for i, j in np.argwhere(known):
            if i == j:  # the square of -1 and +1
                found[0, 0] += moved[i, i]
            else:  # two levels of one covariate: (x + 1)(x' + 1) = 0
                found[0, [0, i, j]] -= moved[i, j]
        return found

    def _guessed(self, centre: float) -> _Guessed:
        """Lay the guesses out as moments of the columns."""
        d = len(self.workload.features)
        middle, covariance = np.zeros(d), np.zeros((d, d))
        gap, slope = np.zeros(d), np.zeros(d)
        block = self.workload.block[:-1]
        sd = float(np.mean(self.guesses.sd)) / self.half
        for place, field in enumerate(self.workload.fields):
            own = np.flatnonzero(block == place)
            if isinstance(field, Bounded):
                spread = self.guesses.covariate_sd.get(field.column, field.half / 3) / field.half
                block_covariance = np.array([[spread**2]])
            else:
                levels = len(field.labels)
                even = (1 / levels,) * levels
                w = np.array(self.guesses.shares.get(field.column, even))[1:]
                middle[own] = 2 * w - 1
                block_covariance = 4 * (np.diag(w) - np.outer(w, w))
            covariance[np.ix_(own, own)] = block_covariance
            strength = math.sqrt(self.guesses.confounding.get(field.column, 0.0) / self.half / sd)
            along = block_covariance.sum(1) / math.sqrt(block_covariance.sum())
            gap[own] = strength * along
            slope[own] = strength * sd / math.sqrt(block_covariance.sum())
        apart = np.outer([-self.share[1], self.share[0]], gap)
        mean = np.concatenate([np.ones((2, 1)), middle + apart], axis=1)
        second = mean[:, :, None] * mean[:, None, :]
        second[:, 1:, 1:] += covariance
        intercept = (self.guesses.mean - centre) / self.half - slope @ middle
        return _Guessed(mean, second, np.append(intercept, slope))
