"""One choice of strata at one budget: the intervals that an analyst may expect."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.custodian.beliefs import Beliefs, Law
from dpcausal_bayes.custodian.guesses import Guesses
from dpcausal_bayes.custodian.simulated import posterior
from dpcausal_bayes.custodian.widths import expected_masses, normal_reach, variances
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["MOST_STRATA", "Asked", "Prediction", "Predictor"]

MOST_STRATA = 60  # more are not simulated: it would take minutes
NO_NOISE = 0.01  # records: as good as none, and the covariance keeps an inverse
_MOST_DISPERSION = 0.999  # at 1 its log odds are infinite


class Prediction(NamedTuple):
    """What is to be expected of one estimand, in the outcome's unit."""

    width: float
    sd: float
    sampling_sd: float
    privacy_sd: float


class Asked(NamedTuple):
    """One number that is asked for.

    Attributes
    ----------
    name : str
    members : array of bool, shape (L,)
        The strata that it is about.
    assigned : sequence of str
        The arms whose units it averages over.
    """

    name: str
    members: NDArray[np.bool_]
    assigned: Sequence[str]


class Predictor:
    """Expected intervals for the strata of one group of a workload.

    Parameters
    ----------
    workload : CausalWorkload
    group : int
    n : int
    guesses : Guesses
    seed : int
        Of the simulated releases.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 100))
    >>> guesses = Guesses(treated=0.5, mean=50.0, sd=(25.0, 25.0), shares={}, confounding={})
    >>> predictor = Predictor(CausalWorkload(schema), 0, 2000, guesses, 0)
    >>> everybody = Asked("ate", np.array([True]), ("control", "treated"))
    >>> ((found,),) = predictor.predict([everybody], [np.full(6, 20.0)], "super", 0.95)
    >>> round(found.sampling_sd, 1), found.sampling_sd < found.privacy_sd < found.sd
    (1.1, True)
    """

    def __init__(
        self, workload: CausalWorkload, group: int, n: int, guesses: Guesses, seed: int
    ) -> None:
        self.workload, self.group, self.guesses = workload, group, guesses
        self.n, self.seed = n, seed
        self.masses = expected_masses(workload, group, n, guesses)

    def predict(
        self,
        asked: Sequence[Asked],
        noises: Sequence[NDArray[np.float64]],
        population: str,
        ci_prob: float,
    ) -> Iterator[list[Prediction]]:
        """Predict all that is asked, at each size of the noise.

        Parameters
        ----------
        asked : sequence of Asked
        noises : sequence of array, shape (Q,)
            Standard deviation of every query's noise, in records. Its law is taken to be normal.
        population : "super" or "sample"
        ci_prob : float
        """
        if self.masses.shape[1] > MOST_STRATA:
            for noise in noises:
                yield [self._closed(one, noise, population, ci_prob) for one in asked]
            return
        exact = self._posterior(NO_NOISE / self.workload.weights)
        sampling = [_typical(self._contrasts(exact, one).std(axis=1)) for one in asked]
        for noise in noises:
            draws = self._posterior(noise)
            yield [
                self._simulated(draws, one, sd, population, ci_prob)
                for one, sd in zip(asked, sampling, strict=True)
            ]

    def _posterior(self, noise: NDArray[np.float64]) -> Law:
        """Return posterior draws from a few simulated releases of the guessed study."""
        workload, group = self.workload, self.group
        levels = tuple(len(covariate.labels) for covariate in workload.covariates(group))
        cells, squares = workload.split(noise)
        own = np.concatenate([cells[group].ravel(), [] if squares is None else squares])
        beliefs = Beliefs(levels, workload.binary)
        return posterior(beliefs, self._law(), self.n, own, self.seed)

    def _unit(self) -> tuple[float, float]:
        """Return middle and half of the outcome's range, from its first value to its second."""
        outcome: Any = self.workload.schema.outcome
        if self.workload.binary:
            first, second = outcome.values
            return (first + second) / 2, (second - first) / 2
        return outcome.centre, outcome.half

    def _law(self) -> Law:
        """Return the guesses as a law of a record."""
        centre, half = self._unit()
        mean = (self.guesses.mean - centre) / half
        dispersion = (np.array(self.guesses.sd) / half) ** 2 / (1 - mean**2)
        return Law(
            self.masses / self.masses.sum(),
            np.full(self.masses.shape, mean),
            np.minimum(dispersion, _MOST_DISPERSION),
        )

    def _variances(self, one: Asked, noise: float, population: str) -> tuple[float, float]:
        return variances(
            self.workload,
            self.group,
            self.masses,
            one.members,
            one.assigned,
            self.guesses,
            noise,
            population,
        )

    def _closed(
        self, one: Asked, noise: NDArray[np.float64], population: str, ci_prob: float
    ) -> Prediction:
        of_cells = float(self.workload.split(noise)[0][self.group].max())  # all are alike
        sampling, privacy = self._variances(one, of_cells, population)
        sd = math.sqrt(sampling + privacy)
        return Prediction(normal_reach(ci_prob) * sd, sd, math.sqrt(sampling), math.sqrt(privacy))

    def _simulated(
        self, draws: Law, one: Asked, sampling_sd: float, population: str, ci_prob: float
    ) -> Prediction:
        """Summarise draws; for these very units less is left to sampling, and privacy is the same.

        The simulation is of the superpopulation; the share of sampling that a sample's effect
        leaves is that of the closed form.
        """
        contrasts = self._contrasts(draws, one)
        ends = np.quantile(contrasts, [(1 - ci_prob) / 2, (1 + ci_prob) / 2], axis=1)
        width, sd = _typical(ends[1] - ends[0]), _typical(contrasts.std(axis=1))
        privacy = max(sd**2 - sampling_sd**2, 0.0)
        of_all, left = (self._variances(one, 0.0, whose)[0] for whose in ("super", population))
        sampling = (sd**2 - privacy) * left / of_all
        total = math.sqrt(sampling + privacy)
        return Prediction(width * total / sd, total, math.sqrt(sampling), math.sqrt(privacy))

    def _contrasts(self, draws: Law, one: Asked) -> NDArray[np.float64]:
        """Return the effect in each draw, (releases, draws)."""
        counted = np.array([[arm in one.assigned] for arm in ("control", "treated")])
        weight = (draws.share * (counted & one.members)).sum(axis=-2)
        effect = draws.mean[..., 1, :] - draws.mean[..., 0, :]
        half = abs(self._unit()[1])
        return np.asarray(half * (weight * effect).sum(axis=-1) / weight.sum(axis=-1))


def _typical(sizes: NDArray[np.float64]) -> float:
    """Return the geometric mean: near the median of releases, and less noisy."""
    return float(np.exp(np.mean(np.log(sizes))))
