"""Checks that every kind of release makes of its fields; errors name the field."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpcausal_bayes.release_files import ReleaseError

__all__ = ["fail", "read_only", "refuse_simulated", "whole_numbers"]


def fail(field: str, got: str, wanted: str) -> NoReturn:
    """Raise the error of a field: what was got, and what is wanted."""
    raise ReleaseError(f"{field} {got}: it must be {wanted}")


def check_kinds(release: Any, kinds: dict[str, Any]) -> None:
    """Raise unless each field is of its kind."""
    for field, kind in kinds.items():
        value = getattr(release, field)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            wanted = " or a ".join(one.__name__ for one in getattr(kind, "__args__", (kind,)))
            _fail_in(release, field, f"is a {type(value).__name__}", f"a {wanted}")


def check_adjacency(release: Any, wanted: str) -> None:
    """Raise unless the release and its loss speak of the same neighbours as its kind does."""
    if release.adjacency != wanted or release.loss.adjacency != wanted:
        got = f"is {release.adjacency!r} / {release.loss.adjacency!r}"
        _fail_in(release, "adjacency", got, repr(wanted))


def refuse_simulated(release: Any, allowed: bool, verb: str) -> None:
    """Raise for a simulated release, unless that was asked for."""
    if release.non_private and not allowed:
        raise ReleaseError(
            f"{type(release).__name__}.non_private is True: simulated noise protects nobody, so it "
            f"is not {verb} where a real release is wanted; pass allow_non_private=True if you "
            "mean it"
        )


def whole_numbers(value: Any, field: str) -> NDArray[Any]:
    """Return an array of integers, or raise."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        fail(field, f"has dtype {array.dtype}", "an array of whole numbers")
    return array


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, closed to changes."""
    array.flags.writeable = False
    return array


def _fail_in(release: Any, field: str, got: str, wanted: str) -> NoReturn:
    fail(f"{type(release).__name__}.{field}", got, wanted)
