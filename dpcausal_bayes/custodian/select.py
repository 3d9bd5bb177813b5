"""Groups of covariates chosen by looking, privately, and measured: one release, one budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpcausal_bayes.column_checks import kind_of
from dpcausal_bayes.custodian.ledger import Ledger
from dpcausal_bayes.custodian.noise import SystemNoise
from dpcausal_bayes.custodian.schedule import Schedule, schedule_for
from dpcausal_bayes.custodian.steps import ChoosingSource, Steps
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.schema import Schema

__all__ = ["carry_out", "select_moments"]


def select_moments(
    table: Any,
    schema: Schema,
    candidates: Sequence[str | Sequence[str]],
    *,
    ledger: Ledger,
    delta: float,
    epsilon: float | None = None,
    rho: float | None = None,
    rounds: int = 1,
) -> MomentRelease:
    r"""Measure the arms' totals, then the groups of covariates that pay, all within one budget.

    A group of strata removes confounding, and costs noise. Which one is worth it depends on the
    table, so that to choose by looking has to be paid for. In zCDP, of a total :math:`\rho`:

    1. The arms' totals are measured with a fifth of the budget, and say how large the arms are and
       where the outcome lies.
    2. Each round chooses among the candidates, and to stop, by the exponential mechanism
       (:math:`\varepsilon^2/8` each; a tenth of the budget for all rounds). The score is the root
       mean squared error of the ATE that a group is expected to save, net of the noise that it
       brings (`dpcausal_bayes.custodian.gains`); one record moves it by a constant, whatever the
       size of the strata (`dpcausal_bayes.custodian.scores`). To stop scores nothing, and has
       nine times the prior weight of all candidates together: where none of them pays, one is
       chosen once in ten at most.
    3. The group is measured with an equal share of what is left, and what is believed is brought up
       to date (`dpcausal_bayes.custodian.refits`): the next round asks what remains to be gained.
    4. Where a round stops, all that is left goes into a second measurement of the group before,
       or of the totals, and the two are pooled.

    So a release spends its whole budget, and if nothing pays it is one without strata and nine
    tenths of the budget. Where a good choice is known publicly, `release_moments` with these strata
    is better. The utility is that of the ATE: what else is asked of the release does not steer it.

    Parameters
    ----------
    table : pandas, polars, pyarrow, DuckDB, Dask or Spark table, n rows
        Confidential, one row a record; read once for each step, so it must not change meanwhile.
    schema : Schema
        With a `Bounded` outcome, or `Levels` of two levels that have values.
    candidates : sequence of str or of sequences of str
        Groups of covariates of the schema that may be chosen, each with the strata of all their
        combinations: ``["age", ["age", "sex"]]``. Public.
    ledger : Ledger
        Charged step by step, each time before anything is drawn. The total is checked first.
    delta : float
        Of the (epsilon, delta) statement, which follows from zCDP.
    epsilon, rho : float, optional
        The budget of all steps together: one of the two.
    rounds : int
        How many groups at most. With more than one, each is measured with more noise: this is for
        budgets well above epsilon 1, for models of several groups, or for candidates that refine
        each other.

    Returns
    -------
    MomentRelease
        Its workload has the groups that were chosen, the last one first, then the arms' totals;
        ``selection`` says what each step chose and cost.

    Raises
    ------
    TypeError, ValueError
        Bad input; the message names the column or field. Nothing is charged if it is in an
        argument. A table that changes between steps is refused when that is seen.
    LedgerError
        The budget does not allow all steps together: nothing is charged. If another process spent
        it meanwhile, the steps before are lost.

    References
    ----------
    McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for
    differentially private synthetic data". Cesar and Rogers (2021), "Bounding, concentrating, and
    truncating: unifying privacy loss composition for data analytics".

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> schema = Schema(arm=Arm("treat", control=0, treated=1), outcome=Bounded("y", 0, 1),
    ...                 covariates=[Categories("site", [0, 1]), Categories("day", [0, 1, 2])])
    >>> n = 60_000  # the site decides on treatment and outcome, the day on nothing
    >>> table = pd.DataFrame({"site": [0, 1] * (n // 2), "day": [0, 0, 1, 1, 2, 2] * (n // 6)})
    >>> table["treat"] = [0, 0, 0, 1, 1, 1] * (n // 6)
    >>> table["y"] = 0.3 + 0.2 * table["site"]
    >>> ledger = Ledger(epsilon=1.0, delta=1e-6)
    >>> release = select_moments(table, schema, ["site", "day"], epsilon=1.0, delta=1e-6,
    ...                          ledger=ledger)
    >>> print(release.selection)
    arm totals measured (rho 0.004871); site chosen of 2 (rho 0.002436); site measured (rho 0.01705)
    >>> release.workload.groups, [round(x, 6) for x in ledger.spent]
    ((('site',), ()), [1.0, 1e-06])
    """
    if not isinstance(ledger, Ledger):
        raise TypeError(f"ledger is a {kind_of(ledger)}: it must be a Ledger")
    schedule = schedule_for(schema, candidates, epsilon, rho, delta, rounds)
    ledger.check(f"selected moments of {schema.outcome.column!r}", schedule.losses())
    return carry_out(table, schedule, ledger, SystemNoise(), non_private=False)


def carry_out(
    table: Any,
    schedule: Schedule,
    ledger: Ledger | None,
    source: ChoosingSource,
    *,
    non_private: bool,
) -> MomentRelease:
    """Carry out the steps of a schedule.

    Parameters
    ----------
    table : as in `select_moments`
    schedule : Schedule
    ledger : Ledger or None
        ``None`` in a simulation.
    source : ChoosingSource
        An argument so that studies can seed it, and tests stub it.
    non_private : bool
        Whether the source can be repeated.
    """
    steps = Steps(table, schedule, ledger, source)
    steps.check_table()
    steps.measure((), schedule.totals_rho)
    for _ in range(schedule.rounds):
        chosen = steps.choose()
        if chosen is None:
            steps.measure(steps.current, schedule.rho - steps.rho)
            break
        steps.measure(chosen, schedule.group_rho)
    return steps.release(non_private=non_private)
