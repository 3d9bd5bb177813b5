"""Small tables that comparators are tried on."""

import numpy as np
import pandas as pd

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.schema import Schema

ARM = Arm("t", control=0, treated=1)
SCHEMA = Schema(
    arm=ARM,
    outcome=Bounded("y", 0, 10),
    cluster=Categories("site", [0, 1, 2]),
    covariates=[
        Bounded("x", -2, 2),
        Categories("c", ["a", "b"], other="z"),
        Binned("g", [0, 1, 2]),
    ],
)
BINARY = Schema(arm=ARM, outcome=Levels("y", [0, 1]), covariates=[Categories("c", ["a", "b"])])


def people(n, seed, *, effect=2.0):
    """Rows of a randomised trial."""
    rng = np.random.default_rng(seed)
    t, x = rng.integers(0, 2, n), rng.normal(size=n)
    return pd.DataFrame(
        {
            "t": t,
            "x": x,
            "c": rng.choice(["a", "b", "q"], n),
            "g": rng.uniform(0, 2, n),
            "site": rng.integers(0, 3, n),
            "y": 4 + effect * t + 0.5 * x + rng.normal(size=n),
        }
    )


def any_record(rng):
    """A record as odd as the schema allows, and beyond its bounds."""
    return {
        "t": rng.integers(0, 2),
        "x": rng.choice([-9.0, -2.0, 0.0, 2.0, 9.0]),
        "c": rng.choice(["a", "b", "q"]),
        "g": rng.choice([0.0, 1.0, 2.0]),
        "site": rng.integers(0, 3),
        "y": rng.choice([-5.0, 0.0, 5.0, 10.0, 50.0]),
    }


def neighbours(seed, number=300, n=4):
    """Pairs of small tables that differ in one record."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        rows = [any_record(rng) for _ in range(n + 1)]
        yield pd.DataFrame(rows[:n]), pd.DataFrame([*rows[1:n], rows[n]])


def run(comparator, table, schema=SCHEMA, *, epsilon=1.0, seed=0):
    return comparator(table, schema, epsilon=epsilon, delta=1e-6, rng=np.random.default_rng(seed))
