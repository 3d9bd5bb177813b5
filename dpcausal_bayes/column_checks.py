"""Checks of what a person declares: names, levels, numbers, each brought to its one form."""

from __future__ import annotations

import math
import numbers
from itertools import pairwise

__all__ = ["Scalar", "kind_of"]

Scalar = int | float | str

# Integers up to here are exact in float64, so that 7, 7.0 and "same value" mean one thing.
_LARGEST_INTEGER = 2**53 - 1


def kind_of(value: object) -> str:
    """Name a value's type with the library it comes from, without printing the value."""
    library = type(value).__module__.partition(".")[0]
    name = type(value).__name__
    return name if library in ("builtins", "") else f"{library} {name}"


def _is_column(value: object) -> bool:
    """Say whether a value looks like data: a series, an array, a table."""
    return bool(getattr(value, "shape", ())) or hasattr(value, "to_list") or hasattr(value, "dtype")


def check_column(column: object, owner: str) -> None:
    if isinstance(column, str):
        if not column:
            raise ValueError(f"{owner}.column is empty: give the column's name")
        return
    if not isinstance(column, numbers.Number) and (
        _is_column(column) or hasattr(column, "__len__")
    ):
        named = getattr(column, "name", None)
        example = {"Arm": "control=0, treated=1", "Bounded": "0, 100"}.get(owner, "[0, 1]")
        raise TypeError(
            f"{owner}.column is a {kind_of(column)}, but the column's name belongs there: write "
            f"{owner}({named if isinstance(named, str) else 'column name'!r}, {example})"
        )
    raise TypeError(f"{owner}.column is a {kind_of(column)}: give the column's name as text")


def scalar(value: object, field: str) -> Scalar:
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
        return scalar(int(real), field) if real.is_integer() else real
    raise TypeError(f"{field} is a {kind_of(value)}: it must be a bool, int, float or text")


def distinct_levels(levels: object, owner: str, *, least: int) -> tuple[Scalar, ...]:
    if not isinstance(levels, list | tuple | range):
        raise TypeError(
            f"{owner}.levels is a {kind_of(levels)}: levels are public facts that are declared, "
            f"not read off the data; write them as a list, {owner}('column', ['a', 'b'])"
        )
    found = tuple(scalar(level, f"{owner}.levels[{i}]") for i, level in enumerate(levels))
    if len(found) < least:
        raise ValueError(f"{owner}.levels has {len(found)} levels: at least {least} are needed")
    if len(set(found)) < len(found):
        twice = next(level for level in found if found.count(level) > 1)
        raise ValueError(f"{owner}.levels has {twice!r} twice: levels must be distinct")
    check_one_kind(found, f"{owner}.levels")
    return found


def check_one_kind(levels: tuple[Scalar, ...], field: str) -> None:
    if len({isinstance(level, str) for level in levels}) > 1:
        raise TypeError(f"{field} mixes text and numbers ({levels!r}): use one kind")


def check_other(other: object, labels: tuple[str, ...], owner: str) -> None:
    """Raise unless the declared extra level is text, or None, and no label but its own."""
    if other is None:
        return
    if not isinstance(other, str) or not other:
        raise TypeError(
            f"{owner}.other is {other!r}: name the extra level by text, such as other='other', or "
            "leave it out"
        )
    if other in labels:
        raise ValueError(
            f"{owner}.other is {other!r}, which is a declared level too: give it a name of its own"
        )


def finite(value: object, field: str) -> float:
    """Return a public number as a float, or raise with the field's name."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{field} is a {kind_of(value)}: it must be a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{field} is {number}: it must be finite")
    return number


def increasing(edges: object, owner: str) -> tuple[float, ...]:
    """Return at least two public cut points, each above the one before it, or raise."""
    if isinstance(edges, str) or not isinstance(edges, list | tuple | range):
        raise TypeError(
            f"{owner}.edges is a {kind_of(edges)}: edges are public facts that are declared, not "
            f"read off the data; write them as a list, {owner}('column', [0, 10, 20])"
        )
    found = tuple(finite(edge, f"{owner}.edges[{i}]") for i, edge in enumerate(edges))
    if len(found) < 2:
        raise ValueError(f"{owner}.edges has {len(found)} edges: one bin needs two")
    for i, (below, above) in enumerate(pairwise(found), 1):
        if not below < above:
            raise ValueError(
                f"{owner}.edges[{i}] is {above:g}, which is not above the edge before it, "
                f"{below:g}: write the edges in increasing order"
            )
    return found
