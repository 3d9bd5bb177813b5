"""What a plan takes to be so, from public knowledge: checked guesses with stated defaults."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpcausal_bayes.columns import Binned, Bounded, Categories
from dpcausal_bayes.laws import number
from dpcausal_bayes.schema import Schema

__all__ = ["Guesses", "guesses_for", "short"]

Covariate = Bounded | Binned | Categories


@dataclass(frozen=True)
class Guesses:
    """What is taken to be so.

    Attributes
    ----------
    treated : float
        Share of treated records, in every stratum.
    mean : float
        Of the outcome within a stratum and arm, in its own unit.
    sd : (float, float)
        Its standard deviation within strata, of controls and of the treated.
    shares : dict of str to tuple of float
        Share of each level of the covariates named; of others, all levels are equally likely.
    confounding : dict of str to float
        How far the effect is off, in the outcome's unit, if this covariate is not adjusted for.
    covariate_sd : dict of str to float
        Standard deviation of the numeric covariates named, in their own units; of others, a sixth
        of the range.
    """

    treated: float
    mean: float
    sd: tuple[float, float]
    shares: dict[str, tuple[float, ...]]
    confounding: dict[str, float]
    covariate_sd: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        uneven = f"; uneven shares of {', '.join(self.shares)}" if self.shares else ""
        control, treated = map(short, self.sd)
        sd = control if control == treated else f"{control} (controls) and {treated} (treated)"
        return (
            f"{100 * self.treated:g} % treated, outcome mean {short(self.mean)} and standard "
            f"deviation {sd} within strata{uneven or ', strata equally likely'}, the "
            "same effect in all strata"
        )


def guesses_for(
    schema: Schema,
    treated: Any,
    mean: Any,
    sd: Any,
    shares: Mapping[str, Sequence[float]] | None,
    confounding: Mapping[str, float] | None,
    covariate_sd: Mapping[str, float] | None = None,
    covariates: Sequence[Covariate] = (),
) -> Guesses:
    """Check guesses against the public facts, and fill in what is not guessed.

    Parameters
    ----------
    schema : Schema
    treated, mean, sd, shares, confounding, covariate_sd
        As in `plan`.
    covariates : sequence
        Those of second-order candidates, besides the schema's.

    Raises
    ------
    TypeError, ValueError
        A guess that cannot be true.
    """
    treated = number(treated, "treated")
    if not 0 < treated < 1:
        raise ValueError(f"treated is {treated:g}: it must lie strictly between 0 and 1")
    outcome: Any = schema.outcome
    bounded = isinstance(outcome, Bounded)
    low, high = (
        (outcome.low, outcome.high) if bounded else (min(outcome.values), max(outcome.values))
    )
    mean = (low + high) / 2 if mean is None else number(mean, "mean")
    if not low < mean < high:
        raise ValueError(
            f"mean is {mean:g}: it must lie strictly between {low:g} and {high:g}, which "
            "the outcome lies between"
        )
    if not bounded and sd is not None:
        raise ValueError(
            f"sd is {sd!r}: that of an outcome of two values follows from its mean; leave it out"
        )
    largest = math.sqrt((high - mean) * (mean - low))
    known = [*schema.covariates, *covariates]
    usual = min((high - low) / 4, largest) if bounded else largest
    return Guesses(
        treated=treated,
        mean=mean,
        sd=_sds(usual if sd is None else sd, mean, largest),
        shares={name: _shares(known, name, given) for name, given in _named(shares, "shares")},
        confounding={
            name: _bias(known, name, given) for name, given in _named(confounding, "confounding")
        },
        covariate_sd={
            name: _spread(known, name, given)
            for name, given in _named(covariate_sd, "covariate_sd")
        },
    )


def short(x: float) -> str:
    """Write three digits, and all those before the point.

    Examples
    --------
    >>> short(12_345.6), short(0.0123456), short(-2.0)
    ('12,346', '0.0123', '-2.00')
    """
    if x == 0:
        return "0"
    return f"{x:,.{max(0, 2 - math.floor(math.log10(abs(x))))}f}"


def _sds(given: Any, mean: float, largest: float) -> tuple[float, float]:
    """Return the standard deviations of controls and treated; one number is that of both."""
    pair = [given, given] if isinstance(given, numbers.Real) else given
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise TypeError(
            f"sd is {given!r}: give a number, or two: that of controls and that of the treated"
        )
    control, treated = (number(sd, "sd") for sd in pair)
    for sd in (control, treated):
        if not 0 < sd <= largest * (1 + 1e-9):
            raise ValueError(
                f"sd is {sd:g}: with a mean of {mean:g} and these bounds it must be above 0, and "
                f"{largest:.6g} at most"
            )
    return control, treated


def _named(value: Any, field: str) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{field} is a {type(value).__name__}: give a dict from a covariate's name to the guess"
        )
    return list(value.items())


def _covariate(known: Sequence[Covariate], name: Any, owner: str, kinds: Any) -> Any:
    """Return the covariate of a name, in whichever form the guess is about."""
    own = [one for one in known if one.column == name]
    if not own:
        names = list(dict.fromkeys(one.column for one in known))
        raise ValueError(f"{owner} names {name!r}: the schema's covariates are {names}")
    fitting = [one for one in own if isinstance(one, kinds)]
    if not fitting:
        kind = "is a number without levels" if kinds is not Bounded else "has levels"
        raise ValueError(f"{owner} names {name!r}, which {kind}: leave it out")
    return fitting[0]


def _shares(known: Sequence[Covariate], name: str, given: Any) -> tuple[float, ...]:
    labels = _covariate(known, name, "shares", Categories | Binned).labels
    if isinstance(given, str | Mapping) or not hasattr(given, "__len__"):
        raise TypeError(f"shares[{name!r}] is {given!r}: give a list, a share for each level")
    found = tuple(number(share, f"shares[{name!r}][{i}]") for i, share in enumerate(given))
    if len(found) != len(labels):
        raise ValueError(
            f"shares[{name!r}] has {len(found)} shares for {len(labels)} levels "
            f"({', '.join(labels)}): give one a level"
        )
    if min(found) <= 0 or not math.isclose(sum(found), 1, abs_tol=1e-6):
        raise ValueError(
            f"shares[{name!r}] is {list(found)}: shares must be above 0 and add up to 1"
        )
    return tuple(share / sum(found) for share in found)


def _bias(known: Sequence[Covariate], name: str, given: Any) -> float:
    _covariate(known, name, "confounding", object)
    bias = number(given, f"confounding[{name!r}]")
    if bias < 0:
        raise ValueError(f"confounding[{name!r}] is {bias:g}: give its size, 0 or more")
    return bias


def _spread(known: Sequence[Covariate], name: str, given: Any) -> float:
    half = _covariate(known, name, "covariate_sd", Bounded).half
    sd = number(given, f"covariate_sd[{name!r}]")
    if not 0 < sd < half:
        raise ValueError(
            f"covariate_sd[{name!r}] is {sd:g}: within these bounds it must be above 0 and below "
            f"{half:g}"
        )
    return sd
