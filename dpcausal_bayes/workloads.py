r"""What a causal release asks of the table: masses and outcome sums by arm and public stratum."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.columns import Binned, Bounded, Categories, Levels
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.sensitivity import bounded_sensitivity
from dpcausal_bayes.workload_checks import (
    check_outcome,
    group_weights_of,
    groups_of,
    names_of,
    weight_of,
)

__all__ = ["CausalWorkload"]

MOST_QUERIES = 1_000_000  # more than this is a slip in the covariates named


class _Call(msgspec.StructMeta):
    """Let the constructor take ``strata=``, a short form of ``groups=``."""

    def __call__(
        cls,
        schema: Schema,
        *,
        strata: Any = None,
        groups: Any = None,
        square_weight: Any = 1.0,
        group_weights: Any = None,
    ) -> Any:
        if strata is not None and groups is not None:
            raise TypeError(
                "CausalWorkload takes strata (one joint group) or groups (several), not both: "
                "leave one out"
            )
        if strata is not None:
            groups = [names_of(strata, "strata")]
        elif groups is None:
            groups = [()]
        return super().__call__(schema, groups, square_weight, group_weights)

    @property
    def __signature__(cls) -> inspect.Signature:
        call = inspect.signature(_Call.__call__)
        return call.replace(parameters=list(call.parameters.values())[1:])


class CausalWorkload(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, metaclass=_Call
):
    r"""The queries of a causal release: sums over records, by arm, stratum and part.

    For every group of covariates g, arm t and stratum s of the group, the number of records in the
    cell and the sum of their outcomes (the mass and the outcome-weighted mass). The outcome is
    clipped to its public bounds, centred and scaled to :math:`y \in [-1, 1]`. For each arm also
    the sum of :math:`y^2 - 1/2`, without which the outcome's variance would be a guess. An outcome
    of two levels needs neither bounds nor squares: its parts are the counts of the two levels.

    Each query has a weight: with noise of scale s, its noise has standard deviation s / weight.
    The L2 sensitivity to replacing one record is that of the weighted queries.

    Parameters
    ----------
    schema : Schema
        With a `Bounded` outcome, or `Levels` of two levels that have values.
    strata : sequence of str, optional
        Names of covariates of the schema: one group, whose strata are all their combinations.
    groups : sequence of str or of sequences of str, optional
        Several such groups, instead of ``strata``. Every group measures the arm totals once more.
        An empty one, ``[]``, is that of the arm totals alone: one stratum, called ``"all"``. It is
        the only group where neither is given; beside others it pays where its weight is another.
    square_weight : float
        Weight of the two squares; leave it out for an outcome of two levels, which has none.
    group_weights : sequence of float, optional
        Weight of each group's queries; the default is 1.

    Raises
    ------
    TypeError, ValueError
        An outcome of another kind, a covariate that the schema lacks, one named twice, a group
        named twice, a weight that is not positive.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> schema = Schema(
    ...     arm=Arm("treat", control=0, treated=1),
    ...     outcome=Bounded("re78", 0, 40_000),
    ...     covariates=[Categories("nodegree", [0, 1]), Binned("age", [17, 25, 56])],
    ... )
    >>> workload = CausalWorkload(schema, strata=["nodegree", "age"])
    >>> workload.strata()[0], workload.shape(), len(workload.queries)
    ('nodegree=0, age=[17, 25)', (2, 4, 2), 18)
    >>> round(workload.sensitivity, 4)
    2.1213
    """

    schema: Schema
    groups: tuple[tuple[str, ...], ...]
    square_weight: float
    group_weights: tuple[float, ...]

    if TYPE_CHECKING:

        def __init__(
            self,
            schema: Schema,
            *,
            strata: Sequence[str] | None = None,
            groups: Sequence[str | Sequence[str]] | None = None,
            square_weight: float = 1.0,
            group_weights: Sequence[float] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise TypeError(f"CausalWorkload.schema is a {kind_of(self.schema)}: give a Schema")
        check_outcome(self.schema.outcome)
        force_setattr(self, "groups", groups_of(self.groups, self.schema))
        force_setattr(
            self, "square_weight", weight_of(self.square_weight, "CausalWorkload.square_weight")
        )
        if self.binary and self.square_weight != 1:
            raise ValueError(
                f"CausalWorkload.square_weight is {self.square_weight:g}: an outcome of two levels "
                "has no squares to release; leave square_weight out"
            )
        force_setattr(self, "group_weights", group_weights_of(self.group_weights, len(self.groups)))
        if self.n_queries > MOST_QUERIES:
            raise ValueError(
                f"CausalWorkload.groups ask for {self.n_queries} numbers, more than "
                f"{MOST_QUERIES}: name fewer covariates, or put them into several groups"
            )
        queries = self.queries
        if len(set(queries)) < len(queries):
            raise ValueError(
                "CausalWorkload.groups have strata whose labels read alike: rename the levels that "
                "hold ', ' or '='"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # a Struct is rebuilt with all fields by position, which the constructor does not take
        return msgspec.convert, (msgspec.to_builtins(self), CausalWorkload)

    @property
    def binary(self) -> bool:
        """Whether the outcome has two levels, so that counts are released and no squares."""
        return isinstance(self.schema.outcome, Levels)

    def covariates(self, group: int = 0) -> tuple[Categories | Binned, ...]:
        """Return a group's covariates, in the order named."""
        known = {c.column: c for c in self.schema.covariates if not isinstance(c, Bounded)}
        return tuple(known[name] for name in self.groups[group])

    def n_strata(self, group: int = 0) -> int:
        """Return the number L of a group's strata."""
        return math.prod(len(covariate.labels) for covariate in self.covariates(group))

    def strata(self, group: int = 0) -> tuple[str, ...]:
        """Return the labels of a group's strata; the last covariate named runs fastest."""
        covariates = self.covariates(group)
        if not covariates:
            return ("all",)
        return tuple(
            ", ".join(
                f"{column.column}={label}" for column, label in zip(covariates, row, strict=True)
            )
            for row in product(*(covariate.labels for covariate in covariates))
        )

    def factors(self, group: int = 0) -> dict[str, tuple[str, ...]]:
        """Return each covariate's label in each of a group's strata: column -> L labels."""
        covariates = self.covariates(group)
        rows = list(product(*(covariate.labels for covariate in covariates)))
        return {
            covariate.column: tuple(row[i] for row in rows)
            for i, covariate in enumerate(covariates)
        }

    @property
    def parts(self) -> tuple[str, str]:
        """The two numbers of a cell: mass and outcome, or the two levels that are counted."""
        if not self.binary:
            return ("mass", "outcome")
        low, high = self.schema.level_labels
        return (low, high)

    def shape(self, group: int = 0) -> tuple[int, int, int]:
        """Return the shape of a group's queries: arm, stratum, part."""
        return (2, self.n_strata(group), 2)

    @property
    def queries(self) -> tuple[str, ...]:
        """Unique labels of all Q released numbers: group, arm, stratum, part; then the squares."""
        cells = [
            f"{stratum}|{arm}|{part}"
            for group in range(len(self.groups))
            for arm in self.schema.arms
            for stratum in self.strata(group)
            for part in self.parts
        ]
        squares = [] if self.binary else [f"square|{arm}" for arm in self.schema.arms]
        return (*cells, *squares)

    @property
    def n_queries(self) -> int:
        """Q, how many numbers are released."""
        cells = sum(4 * self.n_strata(group) for group in range(len(self.groups)))
        return cells if self.binary else cells + 2

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each query, shape (Q,)."""
        cells = [
            np.full(4 * self.n_strata(group), weight)
            for group, weight in enumerate(self.group_weights)
        ]
        squares = [] if self.binary else [np.full(2, self.square_weight)]
        return np.concatenate([*cells, *squares])

    @property
    def sensitivity(self) -> float:
        r"""Exact L2 sensitivity of the weighted queries to replacing one record, in records.

        See `dpcausal_bayes.sensitivity`. It is reached, so no smaller number would do.
        """
        squared = [weight**2 for weight in self.group_weights]
        if self.binary:  # one count of each group goes down and another goes up
            return math.sqrt(2 * sum(squared))
        fixed = sum(w for group, w in enumerate(squared) if self.n_strata(group) == 1)
        return bounded_sensitivity(sum(squared) - fixed, fixed, self.square_weight)

    def split(self, vector: ArrayLike) -> tuple[list[NDArray[Any]], NDArray[Any] | None]:
        """Cut vectors of queries into groups and squares.

        Parameters
        ----------
        vector : array_like, shape (..., Q)

        Returns
        -------
        groups : list of ndarray, shape (..., 2, L, 2)
            Arm, stratum, part; one a group.
        squares : ndarray, shape (..., 2), or None
            By arm; ``None`` for an outcome of two levels.
        """
        vector = np.asarray(vector)
        shapes = [self.shape(group) for group in range(len(self.groups))]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        if vector.ndim == 0 or vector.shape[-1] != self.n_queries:
            raise ValueError(
                f"vector has shape {vector.shape}: its last axis must hold the workload's "
                f"{self.n_queries} queries"
            )
        *pieces, squares = np.split(vector, ends, axis=-1)
        groups = [
            piece.reshape(*vector.shape[:-1], *shape)
            for piece, shape in zip(pieces, shapes, strict=True)
        ]
        return groups, None if self.binary else squares
