"""What `custodian.plan` chooses among three routes, from public guesses and no outcome.

A plan weighs one group of strata against second moments; the maximum-entropy route, a law of
several groups, it does not know. Guesses are in the unit of the released outcome: half widths of
the bounds, or a probability.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
from route_designs import DESIGNS, Design
from study_runs import EPSILONS, ESTIMANDS

from dpcausal_bayes import custodian

__all__ = ["GUESSES", "chosen"]


class Guess(NamedTuple):
    """What somebody who never saw the outcomes takes to be so.

    Attributes
    ----------
    n : int
        Public.
    treated, mean : float
    sd : float, pair of float or None
        Within strata: of both arms, or of controls and treated.
    confounding : dict of str to float
        How far the effect is off if a covariate is not adjusted for.
    """

    n: int
    treated: float
    mean: float
    sd: float | tuple[float, float] | None
    confounding: Mapping[str, float]


# Bounds of mean +- 5 sd, where they are taken, tell a mean of 0 and a standard deviation of 0.2.
#
# LaLonde: arms were randomised, nothing confounds. Beside survey controls: men of the survey earned
# some 14,000 dollars before the programme and trainees some 2,000, so that trainees would have
# earned 10,000 less without it: 6,000 are laid on the earnings of the year before, 2,000 on those
# two years before, 1,000 on being Black, 500 each on having no degree and on being married. One
# record in a hundred is treated; earnings within strata differ by 7,000 (men of the survey) and
# 6,000.
#
# IHDP and ACIC: the arms are known to differ in social position, or are said to be confounded and
# no more. A tenth of the outcome's standard deviation for each covariate of the strata, half of
# that for others that are not of the birth.
#
# Twins: one in seven dies, nearly all of those born at 24 weeks and hardly any at 36. Who is seen
# goes with gestation by an odds ratio of exp(0.25) a week, so that the arms are some four weeks
# apart: a tenth.
GUESSES: Mapping[str, Guess] = {
    "lalonde": Guess(445, 0.4, 0.0, 0.2, {}),
    "lalonde_cps": Guess(
        16_177,
        0.011,
        -0.4,
        (0.35, 0.3),
        {"re75": 0.3, "re74": 0.1, "black": 0.05, "nodegree": 0.025, "married": 0.025},
    ),
    "ihdp": Guess(747, 0.2, 0.0, 0.2, {"schooling": 0.02, "married": 0.01, "momage": 0.01}),
    "acic": Guess(4_802, 0.3, 0.0, 0.2, {"x_1": 0.02, "x_24": 0.01}),
    "twins": Guess(11_400, 0.5, 0.15, None, {"gestat": 0.1}),
}


def chosen() -> pd.DataFrame:
    """Return a plan's table for every data set.

    Columns ``data``, ``epsilon``, ``estimand``, ``route``, and of what is expected ``width``,
    ``sd``, ``confounding_left`` and ``best``, the route of least expected error.
    """
    tables = [_table(DESIGNS[data], guess) for data, guess in GUESSES.items()]
    found = pd.concat(tables)
    alone = found[found["data"] == "acic"].assign(data="acic_rep1")  # of the same design
    return pd.concat([found, alone], ignore_index=True)


def _table(design: Design, guess: Guess) -> pd.DataFrame:
    workload = design.stratified(design.strata)
    names = [one.column for one in design.strata]
    made = custodian.plan(
        workload,
        n=guess.n,
        epsilon=EPSILONS,
        delta=1 / guess.n**2,
        candidates=[[], names, design.second_order()],
        estimands=ESTIMANDS,
        treated=guess.treated,
        mean=guess.mean,
        sd=guess.sd,
        confounding=guess.confounding,
    ).table
    known = {"none": "no strata", ", ".join(names): "strata"}
    route = made["strata"].map(known).fillna("Gram")  # "second order: ..."
    found = made.assign(data=design.data, route=route)
    return found[
        ["data", "epsilon", "estimand", "route", "width", "sd", "confounding_left", "best"]
    ]
