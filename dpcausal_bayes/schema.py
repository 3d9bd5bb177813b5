"""All public facts of a study in one object: which column is what."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels

__all__ = ["Schema"]


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, kw_only=True):
    """All public facts of a study.

    Parameters
    ----------
    arm : Arm
        Treatment column and its two arms (public).
    outcome : Levels or Bounded
        Sensitive outcome and its public levels or bounds.
    cluster : Categories, optional
        Public clusters. Without them there is one cluster, called ``"all"``.
    covariates : sequence of Categories, Binned or Bounded
        Columns that a workload may use, as sensitive as the outcome there: levels and bins to
        stratify by, and all three kinds to adjust for by second moments. A label release neither
        reads nor stores their values.

    Raises
    ------
    TypeError
        A field of the wrong kind.
    ValueError
        One column used twice, or clusters with a level ``other``.

    Examples
    --------
    >>> schema = Schema(arm=Arm("any", control=0, treated=1), outcome=Levels("got", [0, 1]),
    ...                 cluster=Categories("district", ["north", "south"]))
    >>> schema.arms, schema.clusters, schema.n_levels, schema.level_labels
    (('control', 'treated'), ('north', 'south'), 2, ('0', '1'))
    """

    arm: Arm
    outcome: Levels | Bounded
    cluster: Categories | None = None
    covariates: tuple[Categories | Binned | Bounded, ...] = ()

    def __post_init__(self) -> None:
        _check_field(self.arm, Arm, "arm", "Arm('column', control=0, treated=1)")
        _check_field(
            self.outcome,
            Levels | Bounded,
            "outcome",
            "Levels('column', [0, 1]) or Bounded('column', 0, 100)",
        )
        if self.cluster is not None:
            _check_field(self.cluster, Categories, "cluster", "Categories('column', ['a', 'b'])")
            if self.cluster.other is not None:
                raise ValueError(
                    f"Schema.cluster has other={self.cluster.other!r}: clusters are public and "
                    "complete; declare all their levels, and leave other out"
                )
        covariates: Any = self.covariates
        if isinstance(covariates, str) or not isinstance(covariates, Sequence):
            raise TypeError(
                f"Schema.covariates is a {kind_of(covariates)}: give a list such as "
                "[Categories('column', ['a', 'b'])]"
            )
        for i, covariate in enumerate(covariates):
            _check_field(
                covariate,
                Categories | Binned | Bounded,
                f"covariates[{i}]",
                "Categories('column', [0, 1]), Binned('column', [0, 10, 20]) or "
                "Bounded('column', 0, 20)",
            )
        force_setattr(self, "covariates", tuple(covariates))
        columns = self.columns
        twice = sorted({column for column in columns if columns.count(column) > 1})
        if twice:
            raise ValueError(f"Schema uses the column {twice[0]!r} twice: one column, one role")

    @property
    def columns(self) -> tuple[str, ...]:
        """Every declared column: arm, outcome, cluster, covariates."""
        cluster = [] if self.cluster is None else [self.cluster.column]
        covariates = [covariate.column for covariate in self.covariates]
        return (self.arm.column, self.outcome.column, *cluster, *covariates)

    @property
    def arms(self) -> tuple[str, str]:
        """The labels of the two arms, control first."""
        return ("control", "treated")

    @property
    def clusters(self) -> tuple[str, ...]:
        """The labels of the C clusters."""
        return ("all",) if self.cluster is None else self.cluster.labels

    @property
    def n_clusters(self) -> int:
        """C, the number of clusters."""
        return len(self.clusters)

    @property
    def label_outcome(self) -> Levels:
        """The outcome, where it has levels: what a label release needs."""
        if isinstance(self.outcome, Levels):
            return self.outcome
        raise TypeError(
            f"Schema.outcome is {self.outcome!r}, a number without levels: labels need Levels. "
            "Release its moments with a CausalWorkload, or cut it at public points and declare "
            "Levels"
        )

    @property
    def n_levels(self) -> int:
        """K, the number of outcome levels."""
        return len(self.label_outcome.levels)

    @property
    def level_labels(self) -> tuple[str, ...]:
        """The labels of the K outcome levels."""
        return tuple(str(level) for level in self.label_outcome.levels)


def _check_field(value: object, kind: type | UnionType, field: str, example: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"Schema.{field} is a {kind_of(value)}: it must be like {example}")
