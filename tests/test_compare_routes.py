"""The package's own rows of the comparison, in the outcome's units."""

import compare_routes
import numpy as np
import pandas as pd
import pytest
from compare_designs import ARM, Design, Table

from dpcausal_bayes.columns import Categories, Levels
from dpcausal_bayes.schema import Schema


def trial():
    """A randomised design with an outcome of 0 and 1, whose effect is 0.2."""
    rng = np.random.default_rng(5)
    n = 4_000
    place, treat = rng.integers(0, 2, n), rng.integers(0, 2, n)
    outcome = (rng.random(n) < 0.2 + 0.1 * place + 0.2 * treat).astype(int)
    rows = pd.DataFrame({"treat": treat, "outcome": outcome, "place": place})
    rows["site"] = rows["place"]  # a column has one role
    site = Categories("site", [0, 1])
    schema = Schema(
        arm=ARM,
        outcome=Levels("outcome", [0, 1]),
        cluster=Categories("place", [0, 1]),
        covariates=[site],
    )
    return Design(
        "trial", "", "", schema, 1.0, (site,), 0.5, lambda _: Table(rows, 0.2), lambda: False
    )


@pytest.mark.slow
@pytest.mark.parametrize("route", ["labels", "strata"])
def test_routes_answer_in_the_outcome_s_units(route):
    design = trial()
    if route == "labels":
        run = compare_routes._labels(design)
    else:
        run = compare_routes._strata(design, design.workload(stratified=True))
    found = run(design.table(0).rows, 8.0, 1e-6, 1)
    assert found.declared == pytest.approx(0.2, abs=0.05)
    assert found.estimate == pytest.approx(found.declared, abs=4 * found.privacy_sd + 0.01)
    assert 0.05 < found.high - found.low < 0.2
