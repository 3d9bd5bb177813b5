"""The label release: from the confidential table to what an analyst may see."""

from __future__ import annotations

from typing import Any

from dpcausal_bayes.custodian.frames import read_codes
from dpcausal_bayes.custodian.ledger import Ledger
from dpcausal_bayes.custodian.noise import SystemNoise
from dpcausal_bayes.laws import NoiseSource
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.privatise import make_release
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.schema import Schema

__all__ = ["release_labels"]


def release_labels(
    table: Any, schema: Schema, mechanism: ClusterDP, *, ledger: Ledger
) -> LabelRelease:
    """Randomise the outcome labels of a confidential table and count them with noise.

    Everything is checked first; then the ledger is charged; only then is noise drawn. A refusal at
    any step releases nothing.

    Parameters
    ----------
    table : pandas, polars or pyarrow table, n rows
        Confidential. One row is one unit; n, the arms, the clusters and **the order of the rows**
        count as public, so a table sorted by its outcome must be shuffled or sorted by a public
        column first. Missing values are refused.
    schema : Schema
        Public facts. Its covariates are neither read nor released.
    mechanism : ClusterDP
        What to do and what it costs.
    ledger : Ledger
        Charged with ``mechanism.loss()``.

    Returns
    -------
    LabelRelease
        Units in the table's row order.

    Raises
    ------
    TypeError, ValueError
        Bad input; the message names the column or field. Nothing is charged.
    LedgerError
        The budget does not allow it. Nothing is drawn.

    References
    ----------
    Javanmard, Mirrokni and Pouget-Abadie (2025), "Improving the variance of differentially private
    randomized experiments through clustering", arXiv:2308.00957.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Levels
    >>> schema = Schema(arm=Arm("any", control=0, treated=1), outcome=Levels("got", [0, 1]))
    >>> table = pd.DataFrame({"any": [0, 1] * 50, "got": [0, 0, 1, 1, 1] * 20})
    >>> ledger = Ledger(epsilon=2.0)
    >>> mechanism = ClusterDP.calibrated(schema, epsilon=1.0)
    >>> release = release_labels(table, schema, mechanism, ledger=ledger)
    >>> release.n, release.non_private, ledger
    (100, False, Ledger(budget (2, 0), spent (1, 0), 1 entry, in memory))
    """
    return _release(table, schema, mechanism, ledger, SystemNoise())


def _release(
    table: Any, schema: Schema, mechanism: ClusterDP, ledger: Ledger, source: NoiseSource
) -> LabelRelease:
    """Check, charge, draw; the source is an argument so that a test can stub it."""
    for name, value, kind in (
        ("schema", schema, Schema),
        ("mechanism", mechanism, ClusterDP),
        ("ledger", ledger, Ledger),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}: it must be a {kind.__name__}")
    mechanism.check(schema.n_levels)
    loss = mechanism.loss()
    cluster, arm, labels = read_codes(table, schema)
    ledger.charge(f"labels of {schema.outcome.column!r}", loss)
    return make_release(schema, mechanism, cluster, arm, labels, source=source, non_private=False)
