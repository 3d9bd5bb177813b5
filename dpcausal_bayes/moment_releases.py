"""A causal release as it leaves the custodian: noisy moments, frozen, validated, written to JSON.

Values stay as they were drawn: negative masses are kept, nothing is clamped or made consistent.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from dpcausal_bayes.accounting import REPLACE_ONE_RECORD, PrivacyLoss
from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.laplace_mechanism import MomentMechanism
from dpcausal_bayes.release_checks import (
    check_adjacency,
    check_kinds,
    fail,
    read_only,
    refuse_simulated,
    whole_numbers,
)
from dpcausal_bayes.release_files import ReleaseError, content_hash, write_file
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.selections import Selection
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["FORMAT", "FORMAT_VERSION", "MomentRelease", "check_same_workload"]

FORMAT = "dpcausal_bayes/moment-release"
FORMAT_VERSION = 1


class MomentRelease(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag=True,
    kw_only=True,
    eq=False,
    dict=True,
):
    r"""Noisy moments of a workload, with everything needed to model them.

    Q queries; of a `CausalWorkload` each group has 2 arms x L strata x 2 parts, see `cells`; of a
    `GramWorkload` they are entries of two matrices, see `gram`.

    Parameters
    ----------
    workload : CausalWorkload or GramWorkload
        The public facts and what was asked.
    mechanism : GaussianMechanism or LaplaceMechanism
        With the noise's law and scale.
    values : ndarray of int64, shape (Q,)
        Noisy sums in units of 1/``lattice`` of a record, as drawn: masses may be negative.
    lattice : int
        Steps to a record.
    n : int
        Number of records, public.
    loss : PrivacyLoss
        What the release spent.
    noise_source : str
        ``"operating system"`` in a real release.
    non_private : bool
        True for a simulated release, whose noise can be redrawn from its seed.
    package_version : str
        The version that made the release.
    adjacency : str
        Neighbouring tables: one record replaced by any other; only n is public.
    selection : Selection, optional
        How the groups were selected, if they were: the loss is then that of all its steps.

    Raises
    ------
    ReleaseError
        A field that contradicts another; the message names it.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.simulate import simulate_moments
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10))
    >>> workload = CausalWorkload(schema)
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-5)
    >>> table = pd.DataFrame({"t": [0, 1] * 500, "y": [2.0, 4.0, 6.0, 8.0] * 250})
    >>> release = simulate_moments(table, workload, mechanism, seed=1)
    >>> release.n, release.cells().shape, release.squares.shape
    (1000, (2, 1, 2), (2,))
    """

    workload: Workload
    mechanism: MomentMechanism
    values: np.ndarray
    lattice: int
    n: int
    loss: PrivacyLoss
    noise_source: str
    non_private: bool
    package_version: str
    adjacency: str = REPLACE_ONE_RECORD
    selection: Selection | msgspec.UnsetType = msgspec.UNSET  # absent from files without one

    def __post_init__(self) -> None:
        check_kinds(self, _FIELD_KINDS)
        try:
            self.mechanism.check(self.workload)
        except (TypeError, ValueError) as error:
            raise ReleaseError(f"MomentRelease.mechanism does not fit: {error}") from None
        if self.lattice != LATTICE:
            fail("MomentRelease.lattice", f"is {self.lattice}", f"{LATTICE}")
        if self.n < 1:
            fail("MomentRelease.n", f"is {self.n}", "at least 1")
        values = whole_numbers(self.values, "MomentRelease.values").astype(np.int64)  # a copy
        shape = (self.workload.n_queries,)
        if values.shape != shape:
            fail("MomentRelease.values", f"has shape {values.shape}", f"{shape}: one a query")
        force_setattr(self, "values", read_only(values))
        check_adjacency(self, REPLACE_ONE_RECORD)
        self._check_selection()
        self._check_loss()

    def _check_selection(self) -> None:
        if self.selection is msgspec.UNSET:
            return
        groups = getattr(self.workload, "groups", ())
        if self.selection.groups != groups:
            fail(
                "MomentRelease.selection",
                f"measured {list(self.selection.groups)}",
                f"of the workload's groups, {list(groups)}",
            )
        if not math.isclose(self.selection.measured_rho, self.mechanism.rho, rel_tol=1e-6):
            fail(
                "MomentRelease.selection",
                f"spent {self.selection.measured_rho} on measurements",
                f"{self.mechanism.rho}, the mechanism's rho",
            )

    def _check_loss(self) -> None:
        if self.loss.delta == 0 and isinstance(self.mechanism, GaussianMechanism):
            fail("MomentRelease.loss", "states delta 0", "above 0 for Gaussian noise")
        source = self.mechanism if self.selection is msgspec.UNSET else self.selection
        spent = source.loss(self.loss.delta)
        for field in ("pure_epsilon", "rho", "epsilon"):
            stated, true = getattr(self.loss, field), getattr(spent, field)
            same = (
                stated is true
                if None in (stated, true)
                else math.isclose(stated, true, rel_tol=1e-9, abs_tol=1e-11)
            )
            if not same:
                fail(
                    "MomentRelease.loss",
                    f"states {field} {stated}",
                    f"{true}, what its mechanism spends",
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MomentRelease) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        stamp = ", NON-PRIVATE" if self.non_private else ""
        return (
            f"MomentRelease(n={self.n}, {self._shape}, queries={len(self.values)}, "
            f"loss: {self.loss}, noise from the {self.noise_source}{stamp})"
        )

    @property
    def schema(self) -> Schema:
        """The public facts."""
        return self.workload.schema

    @functools.cached_property
    def noisy(self) -> NDArray[np.float64]:
        """Every query with its noise, in records, shape (Q,)."""
        return read_only(self.values / self.lattice)

    @functools.cached_property
    def noise_scale(self) -> NDArray[np.float64]:
        """Standard deviation of every query's noise, in records, shape (Q,)."""
        return read_only(self.mechanism.noise_sd(self.workload))  # type: ignore[arg-type]

    def cells(self, group: int = 0) -> NDArray[np.float64]:
        """Return a group's noisy queries, in records, shape (2, L, 2): arm, stratum, part."""
        return self.causal_workload.split(self.noisy)[0][group]

    @property
    def squares(self) -> NDArray[np.float64] | None:
        """Noisy sums of y^2 - 1/2 by arm, in records, or ``None`` for two outcome levels."""
        return self.causal_workload.split(self.noisy)[1]

    def gram(self) -> NDArray[np.float64]:
        """Return the noisy sums of products of (1, phi, y), in records: (2, 1 + p, 1 + p).

        Of a `GramWorkload`. Symmetric, and with enough noise not positive definite.
        """
        if not isinstance(self.workload, GramWorkload):
            raise TypeError(
                "this release has no second-order moments: its workload is a CausalWorkload; use "
                "cells() and squares"
            )
        return self.workload.gram(self.noisy)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the release's content, as hexadecimal text."""
        return content_hash(self)

    def save(self, path: str | os.PathLike[str], *, allow_non_private: bool = False) -> None:
        """Write the release to a JSON file, in one step: the whole file or nothing.

        Parameters
        ----------
        path : path-like
        allow_non_private : bool
            A simulated release is refused unless this is True.

        Raises
        ------
        ReleaseError
            A simulated release.
        """
        refuse_simulated(self, allow_non_private, "saved")
        write_file(path, FORMAT, FORMAT_VERSION, self)

    @property
    def causal_workload(self) -> CausalWorkload:
        """The workload, where it has strata: what `cells` and models of strata need."""
        if not isinstance(self.workload, CausalWorkload):
            raise TypeError(
                "this release has no strata: its workload is a GramWorkload; use gram() and "
                "gram_regression"
            )
        return self.workload

    @property
    def _shape(self) -> str:
        """What was asked, in short: strata, or columns and the ball's radius."""
        workload = self.workload
        if isinstance(workload, CausalWorkload):
            strata = (str(workload.n_strata(g)) for g in range(len(workload.groups)))
            return f"strata={', '.join(strata)}"
        ball = "" if workload.radius is None else f", radius={workload.radius:.4g}"
        return f"columns={len(workload.columns)}{ball}"


def check_same_workload(release: Any, workload: Workload) -> None:
    """Raise unless a release answers a workload, that of a model which is to be refitted."""
    if not isinstance(release, MomentRelease) or release.workload != workload:
        raise ValueError(
            "release has another design than the model: it must be a MomentRelease of the same "
            "workload"
        )


_FIELD_KINDS: dict[str, Any] = {
    "workload": Workload,
    "mechanism": MomentMechanism,
    "lattice": int,
    "n": int,
    "loss": PrivacyLoss,
    "noise_source": str,
    "non_private": bool,
    "package_version": str,
    "adjacency": str,
    "selection": Selection | msgspec.UnsetType,
}
