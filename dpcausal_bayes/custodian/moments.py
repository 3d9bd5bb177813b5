"""The moment release: from the confidential table to what an analyst may see."""

from __future__ import annotations

from typing import Any

from dpcausal_bayes.custodian.aggregates import exact_moments
from dpcausal_bayes.custodian.gram_aggregates import exact_gram
from dpcausal_bayes.custodian.ledger import Ledger
from dpcausal_bayes.custodian.noise import SystemNoise
from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.laplace_mechanism import MomentMechanism, least_noise
from dpcausal_bayes.laws import NoiseSource
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.moments import make_moment_release

__all__ = ["release_moments"]


def release_moments(
    table: Any,
    workload: Workload,
    *,
    ledger: Ledger,
    epsilon: float | None = None,
    delta: float | None = None,
    mechanism: MomentMechanism | None = None,
) -> MomentRelease:
    """Count and sum a confidential table by arm and stratum, or its products, with noise.

    Everything is checked and summed first; then the ledger is charged; only then is noise drawn. A
    refusal at any step releases nothing. The release serves any number of models and estimands, at
    no further cost.

    Parameters
    ----------
    table : pandas, polars, pyarrow, DuckDB, Dask or Spark table, n rows
        Confidential, one row a record. A lazy table is summed by its own engine in one query. Only
        n counts as public. Outcomes beyond the bounds are clipped, and nothing says how many.
        Missing values are refused, but for covariates with an ``other`` level.
    workload : CausalWorkload or GramWorkload
        Public facts: what is counted and summed.
    ledger : Ledger
        Charged with the mechanism's loss.
    epsilon, delta : float, optional
        The cost of this release. The mechanism that has the least noise is calibrated to it: for
        one group of strata Laplace's, which spends no delta, or else the analytic Gaussian one.
    mechanism : GaussianMechanism or LaplaceMechanism, optional
        A mechanism for this workload, instead of epsilon and delta.

    Returns
    -------
    MomentRelease

    Raises
    ------
    TypeError, ValueError
        Bad input; the message names the column or field. Nothing is charged.
    LedgerError
        The budget does not allow it. Nothing is drawn.

    References
    ----------
    Balle and Wang (2018), "Improving the Gaussian mechanism for differential privacy"; Dwork,
    McSherry, Nissim and Smith (2006), for Laplace noise.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.workloads import CausalWorkload
    >>> schema = Schema(arm=Arm("treat", control=0, treated=1), outcome=Bounded("re78", 0, 40_000),
    ...                 covariates=[Categories("nodegree", [0, 1])])
    >>> table = pd.DataFrame({"treat": [0, 1] * 50, "re78": [0.0, 9_000.0, 21_000.0, 300.0] * 25,
    ...                       "nodegree": [0, 1, 1, 1] * 25})
    >>> ledger = Ledger(epsilon=2.0, delta=1e-6)
    >>> release = release_moments(table, CausalWorkload(schema, strata=["nodegree"]),
    ...                           epsilon=1.0, delta=1e-6, ledger=ledger)
    >>> release.n, release.cells().shape, ledger
    (100, (2, 2, 2), Ledger(budget (2, 1e-06), spent (1, 0), 1 entry, in memory))
    """
    return _release(table, workload, ledger, epsilon, delta, mechanism, SystemNoise())


def _release(
    table: Any,
    workload: Workload,
    ledger: Ledger,
    epsilon: float | None,
    delta: float | None,
    mechanism: MomentMechanism | None,
    source: NoiseSource,
) -> MomentRelease:
    """Check, sum, charge, draw; the source is an argument so that a test can stub it."""
    for name, value, kind, wanted in (
        ("workload", workload, Workload, "CausalWorkload or a GramWorkload"),
        ("ledger", ledger, Ledger, "Ledger"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}: it must be a {wanted}")
    mechanism = _mechanism(workload, epsilon, delta, mechanism)
    loss = mechanism.loss()
    if isinstance(workload, GramWorkload):
        exact, n = exact_gram(table, workload)
    else:
        exact, n = exact_moments(table, workload)
    ledger.charge(f"moments of {workload.schema.outcome.column!r}", loss)
    return make_moment_release(workload, mechanism, exact, n, source=source, non_private=False)


def _mechanism(
    workload: Workload,
    epsilon: float | None,
    delta: float | None,
    mechanism: MomentMechanism | None,
) -> MomentMechanism:
    """Return the mechanism to use: the one given, or the one that costs (epsilon, delta)."""
    if mechanism is None:
        if epsilon is None:
            raise TypeError(
                "release_moments needs epsilon, with a delta for Gaussian noise, or a mechanism"
            )
        return least_noise(workload, epsilon=epsilon, delta=delta)
    if epsilon is not None or delta is not None:
        raise TypeError(
            "release_moments takes a mechanism or epsilon and delta, not both: the mechanism "
            "states its own loss"
        )
    if not isinstance(mechanism, MomentMechanism):
        raise TypeError(
            f"mechanism is a {type(mechanism).__name__}: it must be a GaussianMechanism or a "
            "LaplaceMechanism"
        )
    mechanism.check(workload)
    return mechanism
