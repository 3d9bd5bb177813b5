"""Second-order workloads and a table that several test files look at."""

import numpy as np
import pandas as pd

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.schema import Schema

COVARIATES = [
    Bounded("wage", -2, 4),
    Categories("sex", ["f", "m"]),
    Bounded("age", 17, 55),
    Categories("town", ["a", "b"], other="else"),
    Binned("size", [0, 1, 2, 4]),
]
ARM = Arm("t", control=0, treated=1)
SCHEMA = Schema(arm=ARM, outcome=Bounded("y", -1, 7), covariates=COVARIATES)
BINARY = Schema(arm=ARM, outcome=Levels("won", [0, 1], values=[2, 5]), covariates=COVARIATES)
WORKLOADS = {
    "cube": GramWorkload(SCHEMA),
    "ball": GramWorkload(SCHEMA, radius=0.8),
    "binary": GramWorkload(BINARY, ["town", "wage", "size"]),
    "levels": GramWorkload(BINARY, ["sex"]),
    "none": GramWorkload(SCHEMA, []),
}


def columns(n=200, seed=0):
    """Draw numbers on both sides of their bounds, and every level."""
    rng = np.random.default_rng(seed)
    return {
        "t": rng.integers(0, 2, n).tolist(),
        "y": rng.normal(3, 4, n).tolist(),
        "won": rng.integers(0, 2, n).tolist(),
        "wage": rng.normal(1, 2, n).tolist(),
        "sex": rng.choice(["f", "m"], n).tolist(),
        "age": rng.uniform(10, 60, n).tolist(),
        "town": rng.choice(["a", "b", "z"], n).tolist(),
        "size": rng.choice([0, 0.5, 1, 3.9, 4], n).tolist(),
    }


COLUMNS = columns()
PANDAS = pd.DataFrame(COLUMNS)
