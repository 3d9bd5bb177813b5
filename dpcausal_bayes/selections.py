"""How the groups of a release were selected: each step, and what it cost."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import force_setattr

from dpcausal_bayes.accounting import REPLACE_ONE_RECORD, PrivacyLoss, epsilon_from_rho
from dpcausal_bayes.laws import number

__all__ = ["Choice", "Measured", "Selection"]

Group = tuple[str, ...]


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, kw_only=True):
    """A step that measured a group with Gaussian noise.

    Parameters
    ----------
    group : tuple of str
        The covariates; none for the arms' totals.
    rho : float
        What it cost, in zCDP.
    """

    group: Group
    rho: float

    def __post_init__(self) -> None:
        force_setattr(self, "rho", _positive(self.rho, "Measured.rho"))


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, kw_only=True):
    r"""A step that chose among candidates by the exponential mechanism.

    Parameters
    ----------
    candidates : tuple of tuples of str
        The groups that could have been chosen; to stop always could.
    chosen : tuple of str or None
        The group that was; ``None``: to stop.
    epsilon : float
        Of the exponential mechanism, which costs :math:`\varepsilon^2/8` in zCDP.
    """

    candidates: tuple[Group, ...]
    chosen: Group | None
    epsilon: float

    def __post_init__(self) -> None:
        force_setattr(self, "epsilon", _positive(self.epsilon, "Choice.epsilon"))
        if self.chosen is not None and self.chosen not in self.candidates:
            raise ValueError(
                f"Choice.chosen is {self.chosen}: it must be one of the candidates "
                f"{list(self.candidates)}, or None"
            )

    @property
    def rho(self) -> float:
        """What the choice cost, in zCDP."""
        return self.epsilon**2 / 8


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The steps of an adaptive release, in order.

    Parameters
    ----------
    steps : tuple of Measured and Choice

    Raises
    ------
    TypeError, ValueError
        A cost that is not positive, a chosen group that was no candidate.

    References
    ----------
    Cesar and Rogers (2021), "Bounding, concentrating, and truncating: unifying privacy loss
    composition for data analytics", of the exponential mechanism's cost.

    Examples
    --------
    >>> selection = Selection(steps=(
    ...     Measured(group=(), rho=0.01),
    ...     Choice(candidates=(("age",), ("sex",)), chosen=("sex",), epsilon=0.2),
    ...     Measured(group=("sex",), rho=0.03),
    ... ))
    >>> print(selection)
    arm totals measured (rho 0.01); sex chosen of 2 (rho 0.005); sex measured (rho 0.03)
    >>> selection.groups, round(selection.rho, 6)
    ((('sex',), ()), 0.045)
    """

    steps: tuple[Measured | Choice, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """What was measured, the last group first; one that was measured twice is named once."""
        measured = (step.group for step in self.steps if isinstance(step, Measured))
        return tuple(reversed(dict.fromkeys(measured)))

    @property
    def rho(self) -> float:
        """What all steps cost together, in zCDP."""
        return math.fsum(step.rho for step in self.steps)

    @property
    def measured_rho(self) -> float:
        """What the measurements cost together, in zCDP."""
        return math.fsum(step.rho for step in self.steps if isinstance(step, Measured))

    def loss(self, delta: float) -> PrivacyLoss:
        """State what all steps cost for replacing one record.

        Parameters
        ----------
        delta : float
            Of the (epsilon, delta) statement, which follows from zCDP.
        """
        return PrivacyLoss(
            pure_epsilon=None,
            rho=self.rho,
            epsilon=epsilon_from_rho(self.rho, delta),
            delta=delta,
            adjacency=REPLACE_ONE_RECORD,
        )

    def __str__(self) -> str:
        return "; ".join(describe(step) for step in self.steps)


def describe(step: Measured | Choice) -> str:
    """Say what a step did and what it cost."""
    if isinstance(step, Measured):
        return f"{group_name(step.group)} measured (rho {step.rho:.4g})"
    chosen = "none" if step.chosen is None else group_name(step.chosen)
    return f"{chosen} chosen of {len(step.candidates)} (rho {step.rho:.4g})"


def group_name(group: Group) -> str:
    """Name a group in words."""
    return " x ".join(group) or "arm totals"


def _positive(value: float, field: str) -> float:
    found = number(value, field)
    if found <= 0:
        raise ValueError(f"{field} is {found:g}: it must be above 0")
    return found
