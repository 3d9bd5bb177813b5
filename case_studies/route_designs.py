"""What each route releases of each data set: all choices of the route study that are made by hand.

**Covariates, cuts and radii are chosen by public reasoning, before and without a look at an
outcome.** Most are those of other studies: strata of `real_data_sets`, covariates of
`compare_designs`, cuts of `selection_candidates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pandas as pd
import pymc as pm
from compare_designs import DESIGNS as COMPARED
from real_data_sets import STRATA, Covariates, workload_of
from route_declared import maximum_entropy, regression, stratified
from selection_candidates import CANDIDATES

from dpcausal_bayes import models
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.laplace_mechanism import MomentMechanism, least_noise
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["DESIGNS", "ROUTES", "Design", "Route"]

ARM = Arm("treat", control=0, treated=1)
NO_YES = (0, 1)


class Route(NamedTuple):
    """A way from the table to an effect.

    Attributes
    ----------
    name : str
    workload : callable
        From a design to what is released.
    noise : callable
        From a workload, epsilon and delta to the mechanism: the least noise, or where the model
        needs it Gaussian noise.
    model : callable
        From a release to its model.
    declare : callable
        From table, workload and reach to what the route says without noise: see `route_declared`.
    """

    name: str
    workload: Callable[[Design], Workload]
    noise: Callable[..., MomentMechanism]
    model: Callable[[MomentRelease], pm.Model]
    declare: Callable[[pd.DataFrame, Workload, int], dict[str, float]]


class Design(NamedTuple):
    """What is public of a data set.

    Attributes
    ----------
    data, title : str
    bounds : "baseline", "public" or "binary"
        Of the outcome. The first are those of the published measurement, **a leak**, taken where
        there is one to be compared with.
    strata : tuple of Categories or Binned
    columns : tuple of Bounded, Categories or Binned
        Of second moments.
    radius : float
        Of the ball of their numbers, in half widths of their bounds.
    groups : tuple of Categories or Binned
        Each one a group of the maximum-entropy law.
    """

    data: str
    title: str
    bounds: str
    strata: Covariates
    columns: tuple[Bounded | Categories | Binned, ...]
    radius: float
    groups: Covariates

    @property
    def outcome(self) -> Bounded | Levels:
        """The outcome as it is released: on [-1, 1], or 0 and 1."""
        return Levels("outcome", [0, 1]) if self.bounds == "binary" else Bounded("outcome", -1, 1)

    def stratified(self, covariates: Covariates) -> CausalWorkload:
        """Return a workload of one group of strata."""
        return workload_of(covariates, self.outcome)

    def second_order(self) -> GramWorkload:
        """Return the workload of second moments."""
        schema = Schema(arm=ARM, outcome=self.outcome, covariates=list(self.columns))
        return GramWorkload(schema, radius=self.radius)

    def first_order(self) -> CausalWorkload:
        """Return the workload of a group for each covariate."""
        schema = Schema(arm=ARM, outcome=self.outcome, covariates=list(self.groups))
        return CausalWorkload(schema, groups=[one.column for one in self.groups])


_of_strata = (least_noise, models.stratified_moments, stratified)
_gaussian = GaussianMechanism.calibrated
ROUTES = (
    Route("no strata", lambda one: one.stratified(()), *_of_strata),
    Route("strata", lambda one: one.stratified(one.strata), *_of_strata),
    Route("Gram", Design.second_order, _gaussian, models.gram_regression, regression),
    Route("MaxEnt", Design.first_order, _gaussian, models.maxent_moments, maximum_entropy),
)

_COMPARED = {design.name: design.schema.covariates for design in COMPARED}


def _shared(
    data: str, title: str, bounds: str, strata: str, radius: float, *, like: str | None = None
) -> Design:
    """Return a design of the covariates that other studies have.

    Second moments are of those of `compare_designs`, groups of the same as far as
    `selection_candidates` has cuts of them.
    """
    name = like or data
    columns = tuple(_COMPARED[name])
    known = {one.column for one in columns}
    groups = tuple(one for one in CANDIDATES[name].covariates if one.column in known)
    return Design(data, title, bounds, STRATA[data][strata], columns, radius, groups)


# Radii. The ball must hold somebody who is far out in several numbers at a time, as far as one can
# imagine them: of the trainees and survey, one of 17 years and eight of school without earnings
# (LaLonde 1.4, with 1974 too 1.7); of IHDP a mother of 18 and a child of 700 g, 13 weeks early
# (1.2); of Twins a mother of 17 with eight years of school, who does not smoke and saw no doctor
# (1.6). ACIC's only number, if it is a mother's age, from 15 to 55 (0.8).
#
# LaLonde's survey has the covariates that the literature adjusts for. As groups of the
# maximum-entropy law they are cut as in the trial, earnings as in the strata. Years of school are
# left out there, as "no degree" is a cut of them.
_EARNINGS = tuple(Binned(name, [0, 1, 5_000, 40_000]) for name in ("re74", "re75"))
_WHO = tuple(Categories(name, NO_YES) for name in ("black", "hispanic", "married", "nodegree"))

DESIGNS: Mapping[str, Design] = {
    one.data: one
    for one in (
        _shared(
            "lalonde", "LaLonde, NSW (n = 445, randomised), dollars", "baseline", "nodegree", 1.5
        ),
        Design(
            "lalonde_cps",
            "LaLonde, NSW treated beside CPS controls (n = 16,177, 185 treated), dollars",
            "public",
            STRATA["lalonde_cps"]["race"],
            (
                Bounded("age", 16, 66),
                Bounded("education", 0, 18),
                *_WHO,
                Bounded("re74", 0, 40_000),
                Bounded("re75", 0, 40_000),
            ),
            1.75,
            (Binned("age", [16, 25, 35, 66]), *_WHO, *_EARNINGS),
        ),
        _shared("ihdp", "IHDP, replications 1 to 10 (n = 747)", "baseline", "schooling", 1.3),
        _shared(
            "acic",
            "ACIC 2016, parameter set 7, replications 1 to 5 (n = 4,802)",
            "baseline",
            "x_1",
            0.8,
        ),
        _shared(
            "acic_rep1",
            "ACIC 2016, parameter set 7, replication 1 alone, as in the published measurement",
            "baseline",
            "x_1",
            0.8,
            like="acic",
        ),
        _shared(
            "twins",
            "Twins, ten assignments that depend on gestation (n = 11,400), deaths within a year",
            "binary",
            "gestat",
            1.75,
        ),
    )
}
