"""What every comparator takes and gives, so that one loop can run them all.

A comparator is a name, a claim about privacy, and a function of a confidential table, its public
schema, a budget and a generator. Neighbouring tables differ in **one record**, replaced by any
other, and n is public, unless a comparator says ``protects="label"``: then arms and clusters are
public too, which is a weaker promise at the same epsilon.

Noise is drawn from NumPy's generator, in floating point: these are for studies of methods and
protect nobody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from dpcausal_bayes.schema import Schema

__all__ = ["NORMAL", "Comparator", "Estimate", "NoEstimateError", "Outcome", "central"]

NORMAL = 1.959963984540054  # of a central 95 % interval


class Estimate(NamedTuple):
    """An average treatment effect in units of the outcome, and a 95 % interval or none."""

    value: float
    interval: tuple[float, float] | None


class NoEstimateError(ValueError):
    """The method's own output, after privacy, allows no estimate: an arm without records."""


class Outcome(NamedTuple):
    """What one run of a comparator left.

    Attributes
    ----------
    estimate : float
        NaN where the method gave none.
    interval : (float, float) or None
    private : str
        The proof of privacy in a sentence, or ``"none"``.
    seconds : float
    failure : str
        Why there is no estimate; empty otherwise.
    """

    estimate: float
    interval: tuple[float, float] | None
    private: str
    seconds: float
    failure: str = ""


Method = Callable[[pd.DataFrame, Schema, float, float, np.random.Generator], Estimate]


@dataclass(frozen=True)
class Comparator:
    """A method with its claim.

    Attributes
    ----------
    name : str
    protects : {"record", "label", "nothing"}
    private : str
        The proof in a sentence, or ``"none"``.
    method : callable
        Of table, schema, epsilon, delta and a generator; returns an `Estimate` or raises
        `NoEstimateError`.

    Examples
    --------
    >>> zero = Comparator("zero", "record", "A constant.", lambda *given: Estimate(0.0, None))
    >>> zero(pd.DataFrame(), None, epsilon=1.0, delta=1e-6, rng=np.random.default_rng(1)).estimate
    0.0
    """

    name: str
    protects: Literal["record", "label", "nothing"]
    private: str
    method: Method

    def __call__(
        self,
        table: pd.DataFrame,
        schema: Schema,
        *,
        epsilon: float,
        delta: float,
        rng: np.random.Generator,
    ) -> Outcome:
        """Run the method once and time it; a method without an answer is an outcome as well."""
        start = time.perf_counter()
        failure = ""
        try:
            found = self.method(table, schema, epsilon, delta, rng)
        except NoEstimateError as error:
            found, failure = Estimate(math.nan, None), str(error)
        seconds = time.perf_counter() - start
        return Outcome(found.value, found.interval, self.private, seconds, failure)


def central(value: float, variance: float) -> Estimate:
    """Return an estimate with its central 95 % interval from the normal law."""
    reach = NORMAL * math.sqrt(variance)
    return Estimate(float(value), (float(value - reach), float(value + reach)))
