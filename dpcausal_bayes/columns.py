"""The columns of a study, as public facts: arms, outcomes, categories.

Everything here is written down by a person before the confidential rows are touched. Nothing is
ever inferred from the rows: a level list read off the data would itself be a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from dpcausal_bayes.column_checks import (
    Scalar,
    check_column,
    check_one_kind,
    check_other,
    distinct_levels,
    finite,
    increasing,
    kind_of,
    scalar,
)

__all__ = ["Arm", "Binned", "Bounded", "Categories", "Levels", "Scalar"]


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    r"""The treatment column and the two values that are contrasted.

    Contrasts are always treated minus control. Booleans, 0/1 and 0.0/1.0 are one and the same.

    Parameters
    ----------
    column : str
        Name of the column.
    control, treated : int, float, bool or str
        The values of the two arms. Both must be named: no order is guessed, alphabetical or other.

    Raises
    ------
    TypeError
        A missing arm, or a column's values where its name belongs.
    ValueError
        Equal arms, or a number that is not finite.

    Examples
    --------
    >>> Arm("any", control=0, treated=1) == Arm("any", control=False, treated=True)
    True
    >>> Arm("seg", treated="x")
    Traceback (most recent call last):
    ...
    TypeError: Arm.control is missing and never guessed: write Arm('seg', control=..., treated='x')
    """

    column: str
    control: Scalar = msgspec.UNSET  # type: ignore[assignment]
    treated: Scalar = msgspec.UNSET  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_column(self.column, "Arm")
        for name, other in (("control", "treated"), ("treated", "control")):
            if getattr(self, name) is msgspec.UNSET:
                given = getattr(self, other)
                shown = {name: "...", other: "..." if given is msgspec.UNSET else repr(given)}
                raise TypeError(
                    f"Arm.{name} is missing and never guessed: write Arm({self.column!r}, "
                    f"control={shown['control']}, treated={shown['treated']})"
                )
            force_setattr(self, name, scalar(getattr(self, name), f"Arm.{name}"))
        if self.control == self.treated:
            raise ValueError(
                f"Arm.control and Arm.treated are both {self.control!r}: name two arms"
            )
        check_one_kind((self.control, self.treated), "Arm.control and Arm.treated")

    @property
    def levels(self) -> tuple[Scalar, Scalar]:
        """Control, then treated."""
        return (self.control, self.treated)


class Levels(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    r"""The sensitive outcome: a column with K public levels, :math:`v_1, \dots, v_K`.

    Parameters
    ----------
    column : str
        Name of the column.
    levels : list or tuple of int, float, bool or str
        The K >= 2 distinct levels the outcome may take, declared and not read off the data.
    values : sequence of float, shape (K,), optional
        The numeric score of each level, in the unit of the effect. The default is the levels
        themselves when they are numbers, and ``None`` when they are text.
    ordered : bool
        Whether neighbouring levels are alike, which a model's prior may use.

    Raises
    ------
    TypeError, ValueError
        Fewer than two levels, duplicates, text mixed with numbers, NaN, or a column of data.

    Examples
    --------
    >>> Levels("got", [False, True]).values
    (0.0, 1.0)
    >>> Levels("answer", ["no", "yes"], values=[0, 1]).levels
    ('no', 'yes')
    """

    column: str
    levels: tuple[Scalar, ...]
    values: tuple[float, ...] | None = msgspec.field(default=None)
    ordered: bool = msgspec.field(default=True)

    def __post_init__(self) -> None:
        check_column(self.column, "Levels")
        levels = distinct_levels(self.levels, "Levels", least=2)
        force_setattr(self, "levels", levels)
        if not isinstance(self.ordered, bool):
            raise TypeError(f"Levels.ordered is {self.ordered!r}: it must be True or False")
        values: Any = self.values
        if values is None:
            if not isinstance(levels[0], str):
                force_setattr(self, "values", tuple(float(level) for level in levels))
            return
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise TypeError(
                f"Levels.values is a {kind_of(values)}: write the scores as a list of numbers"
            )
        scores = tuple(scalar(value, f"Levels.values[{i}]") for i, value in enumerate(values))
        if len(scores) != len(levels):
            raise ValueError(
                f"Levels.values has {len(scores)} scores for {len(levels)} levels: give one a level"
            )
        if any(isinstance(score, str) for score in scores):
            raise TypeError(f"Levels.values is {scores!r}: scores are numbers, not text")
        force_setattr(self, "values", tuple(float(score) for score in scores))


class Bounded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    r"""A number, clipped to public bounds: the sensitive outcome, or a covariate.

    The effect that is estimated is that of the clipped outcome, adjusted for the clipped covariate.
    Values beyond a bound count as the bound; how many there are is confidential, and is said
    nowhere.

    Parameters
    ----------
    column : str
        Name of the column.
    low, high : float
        Public bounds, in the outcome's unit, ``low < high``. Never read off the data.

    Raises
    ------
    TypeError, ValueError
        Bounds that are reversed, equal, not finite, or not numbers; a column of data.

    Examples
    --------
    >>> earnings = Bounded("re78", 0, 40_000)
    >>> earnings.centre, earnings.half
    (20000.0, 20000.0)
    """

    column: str
    low: float
    high: float

    def __post_init__(self) -> None:
        check_column(self.column, "Bounded")
        force_setattr(self, "low", finite(self.low, "Bounded.low"))
        force_setattr(self, "high", finite(self.high, "Bounded.high"))
        if self.low > self.high:
            raise ValueError(
                f"Bounded.low is {self.low:g} and Bounded.high is {self.high:g}: the bounds are "
                f"reversed; write Bounded({self.column!r}, {self.high:g}, {self.low:g})"
            )
        if not self.low < self.low + self.half < self.high:
            raise ValueError(
                f"Bounded.low is {self.low:g} and Bounded.high is {self.high:g}: the bounds are "
                "equal, or too close to tell apart; an outcome needs room between them"
            )

    @property
    def centre(self) -> float:
        """Midpoint of the bounds."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half the distance between the bounds: the clipped outcome is centre +- half."""
        return self.high / 2 - self.low / 2


class Categories(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, omit_defaults=True
):
    """A public categorical column: a covariate, clusters, districts.

    Parameters
    ----------
    column : str
        Name of the column.
    levels : list or tuple of int, float, bool or str
        The distinct levels, at least one. A declared level that no row has keeps its cells.
    other : str, optional
        Name of an extra level that takes every other value, missing ones included. Without it
        rows with such values are refused.

    Raises
    ------
    TypeError, ValueError
        No levels, duplicates, text mixed with numbers, or a column of data.

    Examples
    --------
    >>> Categories("district", ["north", "south"], other="elsewhere").labels
    ('north', 'south', 'elsewhere')
    >>> Categories("district", [10, 999, 7]).labels
    ('10', '999', '7')
    """

    column: str
    levels: tuple[Scalar, ...]
    other: str | None = None  # left out of the JSON where absent, as files before it have none

    def __post_init__(self) -> None:
        check_column(self.column, "Categories")
        force_setattr(self, "levels", distinct_levels(self.levels, "Categories", least=1))
        check_other(self.other, tuple(str(level) for level in self.levels), "Categories")

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels as unique text, for coordinates; ``other``, if declared, is the last."""
        extra = () if self.other is None else (self.other,)
        return (*(str(level) for level in self.levels), *extra)


class Binned(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, omit_defaults=True):
    """A numeric covariate, cut at public points.

    A bin holds its lower edge and not its upper one; the last bin holds both.

    Parameters
    ----------
    column : str
        Name of the column.
    edges : list or tuple of float
        At least two public cut points in increasing order. Never quantiles of the data.
    other : str, optional
        Name of an extra level that takes every value outside the bins, missing ones included.
        Without it rows with such values are refused.

    Raises
    ------
    TypeError, ValueError
        Fewer than two edges, edges that do not increase, are not finite, or a column of data.

    Examples
    --------
    >>> Binned("age", [17, 25, 35, 56], other="unknown").labels
    ('[17, 25)', '[25, 35)', '[35, 56]', 'unknown')
    """

    column: str
    edges: tuple[float, ...]
    other: str | None = None

    def __post_init__(self) -> None:
        check_column(self.column, "Binned")
        force_setattr(self, "edges", increasing(self.edges, "Binned"))
        check_other(self.other, self._bins, "Binned")

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins as text, from the lowest; ``other``, if declared, is the last."""
        return (*self._bins, *(() if self.other is None else (self.other,)))

    @property
    def _bins(self) -> tuple[str, ...]:
        shown = [str(edge).removesuffix(".0") for edge in self.edges]
        last = len(shown) - 2
        return tuple(
            f"[{below}, {above}{']' if i == last else ')'}"
            for i, (below, above) in enumerate(pairwise(shown))
        )
