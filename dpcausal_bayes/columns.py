"""The columns of a study, as public facts: arms, outcomes, categories.

Everything here is written down by a person before the confidential rows are touched. Nothing is
ever inferred from the rows: a level list read off the data would itself be a release.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr

__all__ = ["Arm", "Categories", "Levels", "Scalar"]

Scalar = int | float | str

# Integers up to here are exact in float64, so that 7, 7.0 and "same value" mean one thing.
_LARGEST_INTEGER = 2**53 - 1


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
        _check_column(self.column, "Arm")
        for name, other in (("control", "treated"), ("treated", "control")):
            if getattr(self, name) is msgspec.UNSET:
                given = getattr(self, other)
                shown = {name: "...", other: "..." if given is msgspec.UNSET else repr(given)}
                raise TypeError(
                    f"Arm.{name} is missing and never guessed: write Arm({self.column!r}, "
                    f"control={shown['control']}, treated={shown['treated']})"
                )
            force_setattr(self, name, _scalar(getattr(self, name), f"Arm.{name}"))
        if self.control == self.treated:
            raise ValueError(
                f"Arm.control and Arm.treated are both {self.control!r}: name two arms"
            )
        _check_one_kind((self.control, self.treated), "Arm.control and Arm.treated")

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
        _check_column(self.column, "Levels")
        levels = _levels(self.levels, "Levels", least=2)
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
        scores = tuple(_scalar(value, f"Levels.values[{i}]") for i, value in enumerate(values))
        if len(scores) != len(levels):
            raise ValueError(
                f"Levels.values has {len(scores)} scores for {len(levels)} levels: give one a level"
            )
        if any(isinstance(score, str) for score in scores):
            raise TypeError(f"Levels.values is {scores!r}: scores are numbers, not text")
        force_setattr(self, "values", tuple(float(score) for score in scores))


class Categories(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """A public categorical column: clusters, districts, strata.

    Parameters
    ----------
    column : str
        Name of the column.
    levels : list or tuple of int, float, bool or str
        The distinct levels, at least one. A declared level that no row has keeps its cells.

    Examples
    --------
    >>> Categories("district", ["north", "south"]).labels
    ('north', 'south')
    >>> Categories("district", [10, 999, 7]).labels
    ('10', '999', '7')
    """

    column: str
    levels: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        _check_column(self.column, "Categories")
        force_setattr(self, "levels", _levels(self.levels, "Categories", least=1))

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels as unique text, for coordinates."""
        return tuple(str(level) for level in self.levels)


def kind_of(value: object) -> str:
    """Name a value's type with the library it comes from, without printing the value."""
    library = type(value).__module__.partition(".")[0]
    name = type(value).__name__
    return name if library in ("builtins", "") else f"{library} {name}"


def _is_column(value: object) -> bool:
    """Say whether a value looks like data: a series, an array, a table."""
    return bool(getattr(value, "shape", ())) or hasattr(value, "to_list") or hasattr(value, "dtype")


def _check_column(column: object, owner: str) -> None:
    if isinstance(column, str):
        if not column:
            raise ValueError(f"{owner}.column is empty: give the column's name")
        return
    if not isinstance(column, numbers.Number) and (
        _is_column(column) or hasattr(column, "__len__")
    ):
        named = getattr(column, "name", None)
        example = {"Arm": "control=0, treated=1"}.get(owner, "[0, 1]")
        raise TypeError(
            f"{owner}.column is a {kind_of(column)}, but the column's name belongs there: write "
            f"{owner}({named if isinstance(named, str) else 'column name'!r}, {example})"
        )
    raise TypeError(f"{owner}.column is a {kind_of(column)}: give the column's name as text")


def _scalar(value: object, field: str) -> Scalar:
    """Bring a level to its one form: text, an int where the number is whole, else a float."""
    if isinstance(value, str):
        return str(value)
    # numpy.bool is no Number; zero-dimensional arrays and Decimals have no place among levels.
    if type(value).__name__ in ("bool", "bool_"):
        return int(bool(value))
    if isinstance(value, numbers.Integral):
        number = int(value)
        if abs(number) > _LARGEST_INTEGER:
            raise ValueError(f"{field} is {number}: beyond 2**53 declare the level as text")
        return number
    if isinstance(value, numbers.Real) and hasattr(value, "is_integer"):
        real = float(value)
        if not math.isfinite(real):
            raise ValueError(f"{field} is {real}: a level must be a finite number or text")
        return _scalar(int(real), field) if real.is_integer() else real
    raise TypeError(f"{field} is a {kind_of(value)}: it must be a bool, int, float or text")


def _levels(levels: object, owner: str, *, least: int) -> tuple[Scalar, ...]:
    if not isinstance(levels, list | tuple | range):
        raise TypeError(
            f"{owner}.levels is a {kind_of(levels)}: levels are public facts that are declared, "
            f"not read off the data; write them as a list, {owner}('column', ['a', 'b'])"
        )
    found = tuple(_scalar(level, f"{owner}.levels[{i}]") for i, level in enumerate(levels))
    if len(found) < least:
        raise ValueError(f"{owner}.levels has {len(found)} levels: at least {least} are needed")
    if len(set(found)) < len(found):
        twice = next(level for level in found if found.count(level) > 1)
        raise ValueError(f"{owner}.levels has {twice!r} twice: levels must be distinct")
    _check_one_kind(found, f"{owner}.levels")
    return found


def _check_one_kind(levels: tuple[Scalar, ...], field: str) -> None:
    if len({isinstance(level, str) for level in levels}) > 1:
        raise TypeError(f"{field} mixes text and numbers ({levels!r}): use one kind")
