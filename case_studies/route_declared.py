r"""What a route says of the confidential table without noise: its declared estimand.

All take a table whose outcome is scaled, and ``reach``, a whole number: the outcome is divided by
it before it is clipped to [-1, 1], and effects are multiplied by it, so that a reach beyond every
outcome leaves nothing clipped.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from comparators.features import cells
from comparators.features import records as rows_of
from numpy.typing import NDArray
from study_runs import ESTIMANDS

from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.models.maxent_laws import MaxentForm, maxent_form, maxent_law
from dpcausal_bayes.models.maxent_moments import GRID_POINTS
from dpcausal_bayes.models.maxent_pilot import maxent_pilot
from dpcausal_bayes.models.maxent_records import maxent_records
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.moments import LATTICE, table_moments
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.tilted_means import stratum_means
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["bent_regression", "maximum_entropy", "reach_of", "regression", "stratified"]

FLAT = 1e3  # what prior scales are multiplied by
NOISE = 1e-2  # records: standard deviation of what is hardly noise
NEAR = 1e-4  # root n records: how well the law's moments are to match the table's
FINER = (1, 2, 4, 8)


def reach_of(table: pd.DataFrame) -> int:
    """Return the reach beyond every outcome of a table."""
    return max(1, int(np.ceil(table["outcome"].abs().max())))


def stratified(table: pd.DataFrame, workload: Workload, reach: int = 1) -> dict[str, float]:
    """Return differences of means within strata, weighted by the strata's units.

    Parameters
    ----------
    table : pandas.DataFrame
    workload : CausalWorkload
        Of one group.
    reach : int
    """
    assert isinstance(workload, CausalWorkload)
    shrunk = _shrunk(table, reach)
    return {one.name: reach * float(table_contrast(one, shrunk, workload)) for one in ESTIMANDS}


def regression(table: pd.DataFrame, workload: Workload, reach: int = 1) -> dict[str, float]:
    """Return effects by least squares in each arm, on features clipped and shrunk as released.

    Parameters
    ----------
    table : pandas.DataFrame
    workload : GramWorkload
    reach : int
    """
    assert isinstance(workload, GramWorkload)
    second = workload.gram(_moments(_shrunk(table, reach), workload))
    design, cross = second[:, :-1, :-1], second[:, :-1, -1:]
    control, treated = np.linalg.solve(design, cross)[..., 0]
    sums = second[:, 0, :-1]  # of (1, phi), by arm
    unit = 0.5 if workload.binary else 1.0  # two levels are -1 and +1 in there
    return _effects(
        reach * unit * (sums @ (treated - control)) / sums[:, 0], sums[:, 0] / sums[:, 0].sum()
    )


def bent_regression(table: pd.DataFrame, workload: GramWorkload) -> dict[str, float]:
    """Return effects by least squares in each arm on features, their squares and their products.

    Beside `regression` it tells what taking the outcome as linear does to the answer. Of columns
    that repeat others the least slopes are taken.

    Parameters
    ----------
    table : pandas.DataFrame
    workload : GramWorkload
    """
    rows = rows_of(table, workload.schema)
    x = rows.design[:, 1:] / rows.design[0, 0]
    x = x - x.mean(axis=0)
    first, second = np.triu_indices(x.shape[1])
    design = np.column_stack([np.ones(len(x)), x, x[:, first] * x[:, second]])
    fitted = [
        design @ np.linalg.lstsq(design[arm], rows.outcome[arm], rcond=1e-8)[0]
        for arm in (~rows.treated, rows.treated)
    ]
    effect = rows.half * (fitted[1] - fitted[0])
    return {"ate": float(effect.mean()), "att": float(effect[rows.treated].mean())}


def maximum_entropy(table: pd.DataFrame, workload: Workload, reach: int = 1) -> dict[str, float]:
    """Return the effects of the law of largest entropy that has the table's very moments.

    On the model's default grid, as fine whatever the reach; twice and four times as fine and so on
    where an arm's outcome varies by less than half a step, so that no law on the grid has its mean
    and variance. Rows of a stratum that lacks an arm are left out, as `table_contrast` leaves them
    out. Gauss-Newton steps with flat priors; that the law's moments are the table's is checked.

    Parameters
    ----------
    table : pandas.DataFrame
    workload : CausalWorkload
    reach : int

    Raises
    ------
    ValueError
        No such law was found.
    """
    assert isinstance(workload, CausalWorkload)
    table = _with_both_arms(table, workload)
    moments = _moments(_shrunk(table, reach), workload)
    for finer in (1,) if workload.binary else FINER:
        steps = 1 if workload.binary else finer * reach * (GRID_POINTS - 1)
        form = maxent_form(workload, MaxentPriors(), np.linspace(-1, 1, steps + 1))
        c, off = _matching(form, workload, moments, len(table))
        if off < NEAR * np.sqrt(len(table)):
            break
    else:
        raise ValueError(f"no law has these moments: the nearest found is {off:.3g} records off")
    found = stratum_means(form, c[None])
    mean, weight = found.mean[0, ..., 0], found.weight[0, :, 0]  # of everybody
    unit = 0.5 if workload.binary else 1.0
    return _effects(reach * unit * (mean[:, 1] - mean[:, 0]), weight)


def _matching(
    form: MaxentForm, workload: CausalWorkload, moments: NDArray[np.float64], n: int
) -> tuple[NDArray[np.float64], float]:
    """Return the coefficients of the law nearest to moments, and by how many records it is off."""
    records = maxent_records(workload, form)
    moments = moments[records.order]
    noise = np.full(len(moments), NOISE**2)
    c = maxent_pilot(form._replace(scale=FLAT * form.scale), records, moments, noise, n).location
    return c, float(np.abs(n * records.mean(maxent_law(form, c)) - moments).max())


def _with_both_arms(table: pd.DataFrame, workload: CausalWorkload) -> pd.DataFrame:
    arm, kept = workload.schema.arm.column, pd.Series(True, index=table.index)
    for group in range(len(workload.groups)):
        codes = [cells(table[field.column], field) for field in workload.covariates(group)]
        kept &= table.groupby(codes)[arm].transform("nunique") == 2
    return table[kept]


def _shrunk(table: pd.DataFrame, reach: int) -> pd.DataFrame:
    return table if reach == 1 else table.assign(outcome=table["outcome"] / reach)


def _moments(table: pd.DataFrame, workload: Workload) -> NDArray[np.float64]:
    return np.asarray(table_moments(table, workload) / LATTICE, dtype=float)


def _effects(by_arm: NDArray[np.float64], share: NDArray[np.float64]) -> dict[str, float]:
    """Return ATE and ATT from the effects on those assigned to each arm."""
    return {"ate": float(share @ by_arm), "att": float(by_arm[1])}
