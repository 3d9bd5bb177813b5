"""The maximum-entropy model of a first-order release: several groups of strata, one release."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
from dpcausal_bayes.models.maxent_density import maxent_logp
from dpcausal_bayes.models.maxent_laws import MaxentForm, maxent_form, maxent_law, prior_mean
from dpcausal_bayes.models.maxent_pilot import maxent_pilot
from dpcausal_bayes.models.maxent_records import MaxentRecords, maxent_records
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.models.student_prior import whitened_student
from dpcausal_bayes.moment_releases import MomentRelease, check_same_workload
from dpcausal_bayes.workload_checks import check_apart
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["GRID_POINTS", "maxent_moments"]

GRID_POINTS = 33
_FEWEST_POINTS, _MOST_POINTS = 3, 201


def maxent_moments(
    release: MomentRelease,
    *,
    priors: MaxentPriors | None = None,
    grid: int | None = None,
    noise_aware: bool = True,
) -> pm.Model:
    r"""Build the maximum-entropy model of a moment release of several groups.

    Arm t, strata :math:`x_g` of the groups, outcome y scaled to [-1, 1], on a grid:

    .. math::
        p(t, x, y) &\propto \exp\Big(\alpha_t + \beta_t y - \tfrac{\kappa_t}{2} y^2
            + \sum_g \theta_{tg}(x_g) + y\,\eta_{tg}(x_g)\Big) \\
        \hat a &\sim N(n\,m,\; n\,C + D)

    of all laws with a workload's moments the one of largest entropy; m and C are the mean and
    covariance of what a record contributes, D the noise as released. The confidential moments are
    integrated out as normal. Coordinates are those of `dpcausal_bayes.models.maxent_laws`: log odds
    of treatment, each arm's location and shape, contrasts of the levels' log shares, by how much
    the arms differ in them, and of how levels' outcomes differ. The last two are Student t, a
    group's members jointly, so that their scale is learnt. How outcomes differ is pooled, in each
    arm, towards a multiple of how the arms differ: pooled apart, confounding would be shrunk and
    left in the effect.

    **What it cannot see**: how the strata of different groups go together, beyond what arm and
    outcome explain. Confounding that several groups carry is counted several times: four copies of
    one confounder leave half of an effect of 1. Put confounders into one joint group, or release
    second moments (`GramWorkload`). In a randomised experiment nothing is lost.

    Parameters
    ----------
    release : MomentRelease
        Of a `CausalWorkload` whose groups share no covariate.
    priors : MaxentPriors, optional
    grid : int, optional
        Number of points of a bounded outcome's grid, from -1 to 1, 3 to 201. The law meets the
        outcome's mean and variance on any grid; its shape is that of a continuous law once the
        outcome's standard deviation within strata reaches the grid's step. The default, 33 points
        for a step of 1/16, is enough for outcomes that vary by a thirtieth of their bounds' range.
        Time grows with the square. A binary outcome has no grid.
    noise_aware : bool
        False takes noisy moments for true ones: the naive analysis, for comparison.

    Returns
    -------
    pymc.Model
        Free variable ``coefficient`` (term); observed ``release`` (query).

    Raises
    ------
    TypeError
        A release of another kind, or priors of another model.
    ValueError
        Groups that share a covariate, a grid out of range, or one for a binary outcome.

    References
    ----------
    Räisä, Jälkö, Kaski and Honkela (2023), "Noise-aware statistical inference with differentially
    private synthetic data", for posteriors of maximum-entropy laws given noisy moments.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.simulate import simulate_moments
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10),
    ...                 covariates=[Categories("sex", ["f", "m"]), Categories("old", [0, 1])])
    >>> workload = CausalWorkload(schema, groups=["sex", "old"])
    >>> table = pd.DataFrame({"t": [0, 1] * 50, "y": [k / 10 for k in range(100)], "old": 0,
    ...                       "sex": ["f", "f", "m", "m"] * 25})
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-5)
    >>> model = maxent_moments(simulate_moments(table, workload, mechanism, seed=1))
    >>> model.coords["group"], len(model.coords["grid"]), len(model.coords["term"])
    (('sex', 'old'), 33, 17)
    """
    workload = _checked(release)
    priors = MaxentPriors() if priors is None else priors
    if not isinstance(priors, MaxentPriors):
        raise TypeError(f"priors is a {type(priors).__name__}: give MaxentPriors(...)")
    form = maxent_form(workload, priors, _grid(grid, workload))
    records = maxent_records(workload, form)
    design = _Design(workload, form, records, noise_aware)
    data = design(release)
    coords = {
        "arm": workload.schema.arms,
        "group": tuple(", ".join(group) or "all" for group in workload.groups),
        "grid": tuple(form.grid.tolist()),
        "term": form.labels,
        "query": tuple(workload.queries[j] for j in records.order),
    }
    with pm.Model(coords=coords) as model:
        pm.Data("noise_aware", float(noise_aware))
        coefficient = whitened_student(
            "coefficient",
            form.centre,
            form.scale,
            form.tails,
            form.degrees,
            pm.Data("pilot_location", data["pilot_location"], dims="term"),
            pm.Data("pilot_scale", data["pilot_scale"]),
            dims="term",
            mean=lambda c, xp: prior_mean(form, c, xp),
        )
        _likelihood(form, records, coefficient, data, noise_aware)
    model.release_data = design
    return model


def _checked(release: Any) -> CausalWorkload:
    """Return the workload of a release that can be modelled, or raise."""
    workload = getattr(release, "workload", release)
    if not isinstance(release, MomentRelease) or not isinstance(workload, CausalWorkload):
        raise TypeError(
            f"release is of a {type(workload).__name__}: maxent_moments models a MomentRelease of "
            "a CausalWorkload; for a GramWorkload use gram_regression"
        )
    check_apart(workload.groups, "release")
    return workload


def _grid(points: Any, workload: CausalWorkload) -> NDArray[np.float64]:
    """Return the outcome's values, or raise."""
    if workload.binary:
        if points is not None:
            raise ValueError(
                f"grid is {points!r}, but the outcome has two levels only: leave grid out"
            )
        return np.array([-1.0, 1.0])
    points = GRID_POINTS if points is None else points
    whole = isinstance(points, int | np.integer) and not isinstance(points, bool)
    if not whole or not _FEWEST_POINTS <= points <= _MOST_POINTS:
        raise ValueError(
            f"grid is {points!r}: give the number of points of the outcome's grid, "
            f"{_FEWEST_POINTS} to {_MOST_POINTS}"
        )
    return np.linspace(-1, 1, int(points))


class _Design(NamedTuple):
    """What another release of the same workload changes in a model: its data."""

    workload: CausalWorkload
    form: MaxentForm
    records: MaxentRecords
    noise_aware: bool

    def __call__(self, release: MomentRelease) -> dict[str, Any]:
        check_same_workload(release, self.workload)
        if isinstance(release.mechanism, LaplaceMechanism):
            raise ValueError(
                "release has Laplace noise, and maxent_moments takes noise for normal: model its "
                "strata with stratified_moments"
            )
        order = self.records.order
        released, variance = release.noisy[order], release.noise_scale[order] ** 2
        first = maxent_pilot(self.form, self.records, released, variance, release.n)
        return {
            "released": released,
            "records": float(release.n),
            "noise_variance": variance * self.noise_aware,
            "pilot_location": first.location,
            "pilot_scale": first.scale,
        }


def _likelihood(
    form: MaxentForm,
    records: MaxentRecords,
    coefficient: Any,
    data: dict[str, Any],
    noise_aware: bool,
) -> None:
    """Add the observed node ``release`` (query) to the model on the context stack."""

    def logp(value: Any, c: Any, n: Any, noise_variance: Any) -> Any:
        return maxent_logp(form, records, c, value, noise_variance, n, noise_aware=noise_aware)

    def random(
        c: Any, n: Any, noise_variance: Any, rng: np.random.Generator, size: Any = None
    ) -> NDArray[np.float64]:
        table = records.draw(maxent_law(form, c), int(n), rng)
        return table + np.sqrt(noise_variance) * rng.standard_normal(len(table))

    pm.CustomDist(
        "release",
        coefficient,
        pm.Data("records", data["records"]),
        pm.Data("noise_variance", data["noise_variance"], dims="query"),
        logp=logp,
        random=random,
        signature="(k),(),(q)->(q)",
        observed=pm.Data("released", data["released"], dims="query"),
        dims="query",
    )
