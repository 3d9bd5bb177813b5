r"""What a second-order release asks of the table: sums of products of columns, by arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.columns import Binned, Bounded, Categories, Levels
from dpcausal_bayes.gram_sensitivity import gram_sensitivity
from dpcausal_bayes.laws import number
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workload_checks import RESERVED, check_outcome, names_of
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["Feature", "GramWorkload", "Workload"]

SMALLEST_BALL = 1 / 8  # of the squared diagonal: a smaller ball would shrink most rows
MOST_COLUMNS = 1000


class Feature(NamedTuple):
    """One column of v: a covariate, and which of its levels counts as +1; ``None`` if numeric."""

    label: str
    covariate: int
    level: int | None


class GramWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    r"""The queries of a second-order release: by arm, sums of the products of two columns.

    A record is :math:`v = (1, \phi, y)`, with the outcome y scaled to [-1, 1] (-1 and +1 for two
    levels). A numeric covariate, `Bounded`, is clipped to its bounds and scaled to [-1, 1]; one of
    two levels is -1 or +1; one of L > 2 levels has L - 1 columns, one for each level but the first,
    +1 for records of that level and -1 for others. The numeric covariates together are shrunk onto
    the ball :math:`|x| \le` ``radius``, where a row lies outside.

    The queries of an arm are its number of records, the sums of :math:`\phi` and y, and the sums of
    all products of two columns that these do not tell already: squares of columns of -1 and +1 are
    constants, and of two levels of one covariate a record has one.

    Parameters
    ----------
    schema : Schema
        With a `Bounded` outcome, or `Levels` of two levels that have values.
    covariates : sequence of str, optional
        Names of covariates of the schema; the default is all of them.
    radius : float, optional
        Of the ball, in units of half the width of a covariate's bounds. A smaller ball costs less
        noise, and a row outside it is moved: it must hold nearly all rows. The default is the
        cube's corner, :math:`\sqrt d`, where no row is shrunk. If the bounds lie k standard
        deviations from the centre, d numeric covariates have :math:`|x|^2` near
        :math:`d / k^2`; twice that is seldom passed if they are many and not too dependent.

    Raises
    ------
    TypeError, ValueError
        An outcome of another kind, a covariate that the schema lacks or one named twice, one of a
        single level, a radius out of range.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm
    >>> schema = Schema(
    ...     arm=Arm("treat", control=0, treated=1),
    ...     outcome=Bounded("re78", 0, 40_000),
    ...     covariates=[Bounded("age", 17, 55), Categories("degree", ["no", "yes"])],
    ... )
    >>> workload = GramWorkload(schema)
    >>> workload.columns
    ('age', 'degree=yes', 're78')
    >>> workload.queries[:5]
    ('1|control', 'age|control', 'degree=yes|control', 're78|control', 'age*age|control')
    >>> workload.n_queries, round(workload.sensitivity, 4)
    (18, 4.2426)
    """

    schema: Schema
    covariates: tuple[str, ...] = None  # type: ignore[assignment]
    radius: float | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            schema: Schema,
            covariates: Sequence[str] | None = None,
            radius: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise TypeError(f"GramWorkload.schema is a {kind_of(self.schema)}: give a Schema")
        check_outcome(self.schema.outcome, "GramWorkload")
        force_setattr(self, "covariates", _names(self.covariates, self.schema))
        force_setattr(self, "radius", _radius(self.radius, self.n_numeric))
        if len(self.columns) > MOST_COLUMNS:
            raise ValueError(
                f"GramWorkload.covariates make {len(self.columns)} columns, more than "
                f"{MOST_COLUMNS}: name fewer covariates"
            )
        if len(set(self.queries)) < self.n_queries:
            raise ValueError(
                "GramWorkload.covariates have columns whose labels read alike: rename those that "
                "hold '*', '|' or '='"
            )

    @property
    def binary(self) -> bool:
        """Whether the outcome has two levels, -1 and +1."""
        return isinstance(self.schema.outcome, Levels)

    @property
    def fields(self) -> tuple[Bounded | Categories | Binned, ...]:
        """The covariates as the schema declares them, in the order named."""
        known = {covariate.column: covariate for covariate in self.schema.covariates}
        return tuple(known[name] for name in self.covariates)

    @property
    def features(self) -> tuple[Feature, ...]:
        r"""The columns of :math:`\phi`."""
        found = []
        for place, field in enumerate(self.fields):
            if isinstance(field, Bounded):
                found.append(Feature(field.column, place, None))
            else:
                found += [
                    Feature(f"{field.column}={label}", place, level)
                    for level, label in enumerate(field.labels)
                    if level > 0
                ]
        return tuple(found)

    @property
    def columns(self) -> tuple[str, ...]:
        r"""The labels of the p columns of :math:`(\phi, y)`."""
        return (*(feature.label for feature in self.features), self.schema.outcome.column)

    @property
    def block(self) -> NDArray[np.int64]:
        """Which covariate each column of (phi, y) is of, shape (p,); the outcome is the last."""
        return np.array([f.covariate for f in self.features] + [len(self.covariates)])

    @property
    def numeric(self) -> NDArray[np.bool_]:
        """Which columns of (phi, y) are numeric, shape (p,); the others are -1 or +1."""
        return np.array([f.level is None for f in self.features] + [not self.binary])

    @property
    def n_numeric(self) -> int:
        """Number of numeric covariates."""
        return sum(isinstance(field, Bounded) for field in self.fields)

    @property
    def shrinks(self) -> bool:
        """Whether the ball is smaller than the cube, so that a row may be shrunk onto it."""
        return self.radius is not None and self.radius**2 < self.n_numeric

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Places in (1, phi, y) of the two factors of each query of an arm, shape (Q / 2, 2)."""
        rows, columns = np.triu_indices(1 + len(self.columns))
        block, numeric = np.append(-1, self.block), np.append(False, self.numeric)
        told = (block[rows] == block[columns]) & ~numeric[columns] & (columns > 0)
        return np.column_stack([rows, columns])[~told]

    @property
    def queries(self) -> tuple[str, ...]:
        """Unique labels of all Q released numbers: of the controls, then of the treated."""
        labels = ("1", *self.columns)
        products = [
            labels[j] if i == 0 else f"{labels[i]}*{labels[j]}" for i, j in self.pairs.tolist()
        ]
        return tuple(f"{product}|{arm}" for arm in self.schema.arms for product in products)

    @property
    def n_queries(self) -> int:
        """Q, how many numbers are released."""
        return 2 * len(self.pairs)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each query, shape (Q,): one."""
        return np.ones(self.n_queries)

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity to replacing one record, in records: see `gram_sensitivity`."""
        levels = [len(f.labels) for f in self.fields if not isinstance(f, Bounded)]
        return gram_sensitivity(
            levels.count(2),
            tuple(n for n in levels if n > 2),
            self.n_numeric,
            0.0 if self.radius is None else self.radius**2,
            binary=self.binary,
        )

    def gram(self, vector: ArrayLike) -> NDArray[np.float64]:
        """Fill both arms' symmetric matrices of second moments from vectors of queries.

        Parameters
        ----------
        vector : array_like, shape (..., Q)

        Returns
        -------
        ndarray, shape (..., 2, 1 + p, 1 + p)
            Of (1, phi, y), arm by arm. Entries that are no query are those that others determine.
        """
        vector = np.asarray(vector, dtype=float)
        if vector.ndim == 0 or vector.shape[-1] != self.n_queries:
            raise ValueError(
                f"vector has shape {vector.shape}: its last axis must hold the workload's "
                f"{self.n_queries} queries"
            )
        size = 1 + len(self.columns)
        arms = vector.reshape(*vector.shape[:-1], 2, -1)
        full = np.full((*arms.shape[:-1], size, size), np.nan)
        rows, columns = self.pairs.T
        full[..., rows, columns] = full[..., columns, rows] = arms
        mass, first = full[..., :1, :1], full[..., 0, :]
        # of two levels of one covariate a record has one at most: (x + 1)(x' + 1) = 0
        within = -mass - first[..., :, None] - first[..., None, :]
        known = np.where(np.eye(size, dtype=bool), mass, within)
        return np.where(np.isnan(full), known, full)


Workload = CausalWorkload | GramWorkload


def _names(value: Any, schema: Schema) -> tuple[str, ...]:
    """Return the names of the covariates, all unless given, or raise."""
    known = {covariate.column: covariate for covariate in schema.covariates}
    names = tuple(known) if value is None else names_of(value, "covariates", "GramWorkload")
    for i, name in enumerate(names):
        if name not in known:
            raise ValueError(
                f"GramWorkload.covariates[{i}] is {name!r}, which is no covariate of the schema "
                f"({list(known)}): declare it in Schema.covariates"
            )
        if names.count(name) > 1:
            raise ValueError(f"GramWorkload.covariates names {name!r} twice: once will do")
        field = known[name]
        if not isinstance(field, Bounded) and name in RESERVED:
            raise ValueError(
                f"GramWorkload.covariates[{i}] is {name!r}, a name that fitted trees use "
                "themselves: rename the column"
            )
        if not isinstance(field, Bounded) and len(field.labels) < 2:
            raise ValueError(
                f"GramWorkload.covariates[{i}], {name!r}, has one level, which tells no records "
                "apart: leave it out"
            )
    return names


def _radius(value: Any, numeric: int) -> float | None:
    """Return the radius, the cube's corner unless given, or raise."""
    if value is None:
        return math.sqrt(numeric) if numeric else None
    if not numeric:
        raise ValueError(
            f"GramWorkload.radius is {value!r}, but no covariate is numeric: leave radius out, or "
            "declare numeric covariates as in Bounded('age', 0, 100)"
        )
    radius = number(value, "GramWorkload.radius")
    least, most = math.sqrt(SMALLEST_BALL * numeric), math.sqrt(numeric)
    if not least * (1 - 1e-12) <= radius <= most * (1 + 1e-12):
        raise ValueError(
            f"GramWorkload.radius is {radius:g}: for {numeric} numeric covariates it must be from "
            f"{least:.6g} (less would shrink most rows: narrow the bounds instead) to {most:.6g}, "
            "the cube's corner"
        )
    return min(radius, most)
