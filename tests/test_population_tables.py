"""What strata define on a confidential table."""

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Arm, Bounded, Categories
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.populations.contrasts import weigh
from dpcausal_bayes.populations.tables import table_contrast
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload


def test_a_table_contrast_by_hand():
    schema = Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=Bounded("y", 0, 10),
        covariates=[Categories("x", ["a", "b", "c"]), Categories("z", [0, 1])],
    )
    frame = {"t": [0, 0, 1, 0, 1, 1, 1], "x": list("aaabbbc"), "z": [0] * 7}
    frame["y"] = [1.0, 3.0, -7.0, 12.0, 4.0, 6.0, 5.0]  # two are clipped
    table = pd.DataFrame(frame)
    workload = CausalWorkload(schema, strata=["x"])
    effect = {"a": 0 - 2, "b": 5 - 10}  # c has no controls, and no say
    for estimand, weight in ((ATE, [3, 3]), (ATT, [1, 2]), (ATC, [2, 1])):
        found = table_contrast(estimand(), table, workload)
        np.testing.assert_allclose(
            found, np.average(list(effect.values()), weights=weight), atol=1e-5
        )
        assert found.name == estimand.short
        with pytest.raises(ValueError, match=f"x = 'c' has no stratum .* '{estimand.short}_by_x'"):
            table_contrast(estimand(by="x"), table, workload)
    two = CausalWorkload(schema, groups=["x", "z"])
    alone = table_contrast(ATE(), table, two, group=1)
    np.testing.assert_allclose(alone, 15 / 4 - 14 / 3, atol=1e-5)
    with pytest.raises(ValueError, match="the table has no stratum with units in both arms"):
        table_contrast(ATE(), table[table["t"] == 1], workload)
    with pytest.raises(ValueError, match="can split by"):
        table_contrast(ATE(by="z"), table, workload)
    means = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert float(weigh(ATE(), means, np.ones((2, 2)), {})) == 2
