"""What leaves the custodian: frozen, validated, and written to JSON.

A release has no field for anything confidential. Its values stay as they were drawn: negative
counts are kept, nothing is clamped, rounded or made consistent.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any, NoReturn

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from dpcausal_bayes.accounting import REPLACE_ONE_LABEL, PrivacyLoss
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moment_releases import FORMAT as MOMENT_FORMAT
from dpcausal_bayes.moment_releases import FORMAT_VERSION as MOMENT_VERSION
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.release_checks import (
    check_adjacency,
    check_kinds,
    fail,
    read_only,
    refuse_simulated,
    whole_numbers,
)
from dpcausal_bayes.release_files import ReleaseError, content_hash, read_file, write_file
from dpcausal_bayes.schema import Schema

__all__ = ["LabelRelease", "ReleaseError", "load_release"]

FORMAT = "dpcausal_bayes/label-release"
FORMAT_VERSION = 1


class LabelRelease(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag=True,
    kw_only=True,
    eq=False,
    dict=True,
):
    r"""Randomised labels and noisy counts of a trial, with everything needed to model them.

    C clusters, 2 arms (control, treated), K outcome levels, n units in the table's row order.

    Parameters
    ----------
    schema : Schema
        The public facts.
    mechanism : ClusterDP
        With every noise parameter.
    cluster, arm : ndarray of int32, shape (n,)
        Public codes of each unit, in the schema's order.
    label : ndarray of int32, shape (n,)
        Randomised label codes.
    noisy_counts : ndarray of int64, shape (C, 2, K), or None
        Label counts plus noise; ``None`` if the mechanism has a uniform prior.
    loss : PrivacyLoss
        What the release spent.
    noise_source : str
        ``"operating system"`` in a real release.
    non_private : bool
        True for a simulated release, whose noise can be redrawn from its seed.
    package_version : str
        The version that made the release.
    adjacency : str
        Neighbouring tables: one label replaced; n, arms and clusters are public.

    Raises
    ------
    ReleaseError
        A field that contradicts another; the message names it.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Levels
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> schema = Schema(arm=Arm("any", control=0, treated=1), outcome=Levels("got", [0, 1]))
    >>> table = pd.DataFrame({"any": [0, 1] * 50, "got": [0, 0, 1, 1, 1] * 20})
    >>> mechanism = ClusterDP.calibrated(schema, epsilon=1.0)
    >>> release = simulate_release(table, schema, mechanism, seed=1)
    >>> release.n, release.cell_size.tolist(), release.label_counts.shape
    (100, [[50, 50]], (1, 2, 2))
    """

    schema: Schema
    mechanism: ClusterDP
    cluster: np.ndarray
    arm: np.ndarray
    label: np.ndarray
    noisy_counts: np.ndarray | None
    loss: PrivacyLoss
    noise_source: str
    non_private: bool
    package_version: str
    adjacency: str = REPLACE_ONE_LABEL

    def __post_init__(self) -> None:
        check_kinds(self, _FIELD_KINDS)
        try:
            self.mechanism.check(self.schema.n_levels)
        except ValueError as error:
            raise ReleaseError(f"LabelRelease.mechanism does not fit the schema: {error}") from None
        limits = {
            "cluster": self.schema.n_clusters,
            "arm": 2,
            "label": self.schema.n_levels,
        }
        for field, limit in limits.items():
            force_setattr(self, field, _codes(getattr(self, field), field, limit))
        for field in ("arm", "label"):
            if len(getattr(self, field)) != len(self.cluster):
                _fail(
                    field,
                    f"has {len(getattr(self, field))} units",
                    f"{len(self.cluster)}, as cluster",
                )
        self._check_counts()
        check_adjacency(self, REPLACE_ONE_LABEL)
        pure = self.mechanism.loss(self.loss.delta or self.mechanism.delta).pure_epsilon
        stated = self.loss.pure_epsilon
        if (pure is None) != (stated is None) or not math.isclose(
            pure or 0, stated or 0, rel_tol=1e-9
        ):
            _fail(
                "loss", f"states a pure epsilon of {stated}", f"{pure}, what its mechanism spends"
            )

    def _check_counts(self) -> None:
        shape = (self.schema.n_clusters, 2, self.schema.n_levels)
        if self.mechanism.sigma is None:
            if self.noisy_counts is not None:
                _fail("noisy_counts", "is given", "None, as mechanism.sigma is None")
            return
        if self.noisy_counts is None:
            _fail(
                "noisy_counts", "is None", f"counts of shape {shape}, as mechanism.sigma is given"
            )
        counts = whole_numbers(self.noisy_counts, "LabelRelease.noisy_counts").astype(np.int64)
        if counts.shape != shape:
            _fail(
                "noisy_counts", f"has shape {counts.shape}", f"shape {shape}: cluster, arm, level"
            )
        counts.flags.writeable = False
        force_setattr(self, "noisy_counts", counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelRelease) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        stamp = ", NON-PRIVATE" if self.non_private else ""
        return (
            f"LabelRelease(n={self.n}, clusters={self.schema.n_clusters}, "
            f"levels={self.schema.n_levels}, loss: {self.loss}, noise from the "
            f"{self.noise_source}{stamp})"
        )

    @property
    def n(self) -> int:
        """Number of units."""
        return len(self.label)

    @functools.cached_property
    def cell_size(self) -> NDArray[np.int64]:
        """Units in each cell, shape (C, 2): public."""
        return self._count(self.arm, 2)

    @functools.cached_property
    def label_counts(self) -> NDArray[np.int64]:
        """Released (randomised) labels in each cell, shape (C, 2, K)."""
        n_levels = self.schema.n_levels
        flat = self._count(self.arm * np.int64(n_levels) + self.label, 2 * n_levels)
        return flat.reshape(-1, 2, n_levels)

    @functools.cached_property
    def prior(self) -> NDArray[np.float64]:
        """The prior of the randomised labels, shape (C, 2, K): a function of the release."""
        return read_only(self.mechanism.prior(self.noisy_counts, self.cell_size))

    @functools.cached_property
    def shares(self) -> NDArray[np.float64] | None:
        """Noisy counts over cell sizes, shape (C, 2, K); NaN in cells of no units."""
        if self.noisy_counts is None:
            return None
        size = self.cell_size[..., None]
        with np.errstate(invalid="ignore", divide="ignore"):
            return read_only(np.where(size > 0, self.noisy_counts / size, np.nan))

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

    def _count(self, code: NDArray[Any], width: int) -> NDArray[np.int64]:
        place = self.cluster * np.int64(width) + code
        counts = np.bincount(place, minlength=self.schema.n_clusters * width)
        return read_only(counts.reshape(-1, width))


_FIELD_KINDS: dict[str, type] = {
    "schema": Schema,
    "mechanism": ClusterDP,
    "loss": PrivacyLoss,
    "noise_source": str,
    "non_private": bool,
    "package_version": str,
    "adjacency": str,
}


_FORMATS: dict[str, tuple[int, type]] = {
    FORMAT: (FORMAT_VERSION, LabelRelease),
    MOMENT_FORMAT: (MOMENT_VERSION, MomentRelease),
}


def load_release(
    path: str | os.PathLike[str], *, allow_non_private: bool = False
) -> LabelRelease | MomentRelease:
    """Read a release of either kind and check all of it.

    Parameters
    ----------
    path : path-like
    allow_non_private : bool
        A simulated release is refused unless this is True.

    Returns
    -------
    LabelRelease or MomentRelease
        As the file's field ``format`` says.

    Raises
    ------
    ReleaseError
        A file that is truncated, altered, of another format or a later version, or simulated.
    FileNotFoundError

    Examples
    --------
    >>> load_release("release.json")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'release.json'
    """
    release: LabelRelease | MomentRelease = read_file(path, _FORMATS)
    refuse_simulated(release, allow_non_private, "loaded")
    return release


def _fail(field: str, got: str, wanted: str) -> NoReturn:
    fail(f"LabelRelease.{field}", got, wanted)


def _codes(value: Any, field: str, limit: int) -> NDArray[np.int32]:
    array = whole_numbers(value, f"LabelRelease.{field}")
    if array.ndim != 1:
        _fail(field, f"has {array.ndim} dimensions", "one-dimensional: a code for each unit")
    if array.size and (array.min() < 0 or array.max() >= limit):
        _fail(field, f"has codes outside 0 to {limit - 1}", "within the schema's levels")
    codes = array.astype(np.int32)  # a copy: the caller's array can no longer change it
    codes.flags.writeable = False
    return codes
