"""What a release that chooses its groups may choose from: public candidates of each data set.

They were written down before any release was made, by what the columns are. The first is the strata
that public reasoning alone would name. Numbers are cut at round values or where the field cuts
them. ACIC's columns have no names: taken are the two of its public strata, those of letters or of 0
and 1, and the first ten counts, none against some. One was revised: gestation of Twins was cut in
four, as obstetrics does, which leaves confounding of twice the effect; it is now cut in ten.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import polars as pl
from real_data_sets import WEEKS

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian.schedule import schedule_for
from dpcausal_bayes.custodian.select import carry_out
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise

__all__ = ["CANDIDATES", "Candidates"]

NO_YES = (0, 1)


class Candidates(NamedTuple):
    """Covariates, each a candidate, and one pair of them, a candidate too."""

    covariates: tuple[Categories | Binned, ...]
    joint: tuple[str, str]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """All candidates, the public choice first."""
        return (*((one.column,) for one in self.covariates), self.joint)

    def schema(self, outcome: Levels | Bounded) -> Schema:
        """Return the schema of a release that may choose among them."""
        arm = Arm("treat", control=0, treated=1)
        return Schema(arm=arm, outcome=outcome, covariates=list(self.covariates))

    def select(
        self, rows: pd.DataFrame, schema: Schema, epsilon: float, delta: float, seed: int
    ) -> MomentRelease:
        """Release a table in one round, with seeded noise."""
        schedule = schedule_for(schema, self.groups, epsilon, None, delta, 1)
        table = pl.from_pandas(rows)  # summed faster
        return carry_out(table, schedule, None, SeededNoise(seed), non_private=True)


CANDIDATES: dict[str, Candidates] = {
    "lalonde": Candidates(
        (
            Categories("nodegree", NO_YES),
            Binned("age", [16, 25, 35, 66]),
            Categories("black", NO_YES),
            Categories("married", NO_YES),
        ),
        ("nodegree", "age"),
    ),
    "ihdp": Candidates(
        (
            Categories("schooling", ["none", "high school", "college", "degree"]),
            Categories("married", NO_YES),
            Binned("momage", [10, 20, 30, 50]),
            Binned("preterm", [0, 5, 10, 20]),
            Categories("cig", NO_YES),
            Categories("drugs", NO_YES),
        ),
        ("schooling", "married"),
    ),
    "acic": Candidates(
        (
            Binned("x_1", [10, 20, 30, 60]),
            Categories("x_24", ["E"], other="not E"),
            Categories("x_2", ["A", "B", "C", "D", "E", "F"]),
            *(Categories(f"x_{i}", NO_YES) for i in (17, 22, 38, 51, 54)),
            *(Categories(f"x_{i}", [0], other="some") for i in range(7, 17)),
        ),
        ("x_1", "x_24"),
    ),
    "twins": Candidates(
        (
            WEEKS,
            Binned("dmage", [10, 20, 30, 50]),
            Binned("dmeduc", [0, 12, 13, 20]),
            Binned("cigar", [0, 1, 10, 100]),
            Binned("nprevist", [0, 1, 10, 60]),
            Categories("dmar", [1, 2]),
        ),
        ("gestat", "dmage"),
    ),
    "hillstrom": Candidates(
        (
            Categories("mens", NO_YES),
            Categories("womens", NO_YES),
            Categories("newbie", NO_YES),
            Categories("channel", ["Phone", "Web", "Multichannel"]),
            Categories("zip_code", ["Urban", "Surburban", "Rural"]),
        ),
        ("mens", "newbie"),
    ),
    "simulated": Candidates(
        (Categories("site", [0, 1, 2]), Binned("age", [20, 40, 60])), ("site", "age")
    ),
}
