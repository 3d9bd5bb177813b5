"""Checks of what a causal workload asks; errors name the field."""

from __future__ import annotations

from typing import Any

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.columns import Bounded, Levels
from dpcausal_bayes.laws import number
from dpcausal_bayes.schema import Schema

__all__ = [
    "check_apart",
    "check_outcome",
    "group_weights_of",
    "groups_of",
    "names_of",
    "weight_of",
]

_LARGEST_WEIGHT = 1e6

# dimensions and variables of trees, beside which a covariate's labels are kept
RESERVED = {"arm", "assigned", "chain", "draw", "part", "query", "stratum", "surface", "term"}
RESERVED |= {"mass_noise", "mean", "noise_aware", "noise_variance", "noisy_mass", "released"}
RESERVED |= {"feature", "redundancy", "regression_centre", "regression_mean", "regression_slope"}
RESERVED |= {"repeat", "supported", "weight"}


def check_outcome(outcome: Levels | Bounded, owner: str = "CausalWorkload") -> None:
    """Raise unless the outcome is a bounded number, or has two levels with values."""
    if isinstance(outcome, Bounded):
        return
    if len(outcome.levels) != 2:
        raise ValueError(
            f"{owner}.schema has an outcome of {len(outcome.levels)} levels: declare two "
            f"levels, or a number with public bounds, as in Bounded({outcome.column!r}, 0, 100)"
        )
    if outcome.values is None:
        raise ValueError(
            f"{owner}.schema has an outcome without values, so an effect has no unit: "
            f"write Levels({outcome.column!r}, {list(outcome.levels)!r}, values=[0, 1])"
        )


def names_of(value: Any, field: str, owner: str = "CausalWorkload") -> tuple[str, ...]:
    """Return the names of a group's covariates, or raise."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise TypeError(
            f"{owner}.{field} is a {kind_of(value)}: name covariates in a list, such as "
            "['age', 'sex']"
        )
    for i, name in enumerate(value):
        if not isinstance(name, str):
            raise TypeError(
                f"{owner}.{field}[{i}] is a {kind_of(name)}: give a covariate's name as text"
            )
    return tuple(value)


def groups_of(value: Any, schema: Schema) -> tuple[tuple[str, ...], ...]:
    """Return every group as a tuple of names, or raise; the empty one is that of the arm totals."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise TypeError(
            f"CausalWorkload.groups is a {kind_of(value)}: give a list of groups, such as "
            "['age', ['age', 'sex']]"
        )
    groups = tuple(
        (group,) if isinstance(group, str) else names_of(group, f"groups[{g}]")
        for g, group in enumerate(value)
    )
    if not groups:
        raise ValueError("CausalWorkload.groups is empty: name a group, or leave groups out")
    known = [covariate.column for covariate in schema.covariates]
    for g, group in enumerate(groups):
        for name in group:
            if name in RESERVED:
                raise ValueError(
                    f"CausalWorkload.groups[{g}] names {name!r}, a name that fitted trees use "
                    "themselves: rename the column"
                )
            if name not in known:
                raise ValueError(
                    f"CausalWorkload.groups[{g}] names {name!r}, which is no covariate of the "
                    f"schema ({known}): declare it in Schema.covariates"
                )
            if isinstance(schema.covariates[known.index(name)], Bounded):
                raise TypeError(
                    f"CausalWorkload.groups[{g}] names {name!r}, a number without levels: declare "
                    f"it as Binned({name!r}, [...]) to make strata of it, or use a GramWorkload"
                )
            if group.count(name) > 1:
                raise ValueError(f"CausalWorkload.groups[{g}] names {name!r} twice: once will do")
        twin = [set(other) for other in groups[:g]].count(set(group))
        if twin:
            raise ValueError(
                f"CausalWorkload.groups[{g}] has the covariates {list(group)} of an earlier group: "
                "raise that group's weight instead"
            )
    return groups


def weight_of(value: Any, field: str) -> float:
    """Return a weight as a float, or raise."""
    weight = number(value, field)
    if not 1 / _LARGEST_WEIGHT <= weight <= _LARGEST_WEIGHT:
        raise ValueError(
            f"{field} is {weight:g}: a weight must be above 0, from {1 / _LARGEST_WEIGHT:g} to "
            f"{_LARGEST_WEIGHT:g}"
        )
    return weight


def group_weights_of(value: Any, n_groups: int) -> tuple[float, ...]:
    """Return a weight for each group, 1 unless given, or raise."""
    if value is None:
        return (1.0,) * n_groups
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise TypeError(
            f"CausalWorkload.group_weights is a {kind_of(value)}: give a list, a number a group"
        )
    if len(value) != n_groups:
        raise ValueError(
            f"CausalWorkload.group_weights has {len(value)} weights for {n_groups} groups: give "
            "one a group"
        )
    return tuple(weight_of(w, f"CausalWorkload.group_weights[{g}]") for g, w in enumerate(value))


def check_apart(groups: tuple[tuple[str, ...], ...], owner: str) -> None:
    """Raise if two groups have a covariate in common."""
    for g, group in enumerate(groups):
        for other in groups[:g]:
            shared = [name for name in group if name in other]
            if shared:
                raise ValueError(
                    f"{owner} has the groups {list(other)} and {list(group)}, which share "
                    f"{shared[0]!r}: a law of groups that are released apart takes them to have no "
                    "covariate in common; release one joint group of both, or model one group with "
                    "stratified_moments"
                )
