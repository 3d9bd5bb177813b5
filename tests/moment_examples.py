"""Moment releases that several test files look at."""

import msgspec
import numpy as np
import pandas as pd

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload

COVARIATES = [Categories("deg", [0, 1]), Binned("age", [17, 25, 56], other="unknown")]
SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10), covariates=COVARIATES
)
BINARY = msgspec.structs.replace(SCHEMA, outcome=Levels("y", [0, 1]))
WORKLOADS = {
    "joint": CausalWorkload(SCHEMA, strata=["deg", "age"]),
    "groups": CausalWorkload(SCHEMA, groups=["deg", "age"], group_weights=[1, 0.5]),
    "none": CausalWorkload(SCHEMA, square_weight=2.0),
    "binary": CausalWorkload(BINARY, strata=["age"]),
}


def table_of(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "t": rng.integers(0, 2, n),
            "y": rng.integers(0, 2, n),
            "deg": rng.integers(0, 2, n),
            "age": rng.integers(10, 60, n),
        }
    )


def make(asked=WORKLOADS["groups"], **change):
    """A release that claims to be real, so that files of it are accepted."""
    mechanism = GaussianMechanism.calibrated(asked, epsilon=1.0, delta=1e-6)
    release = simulate_moments(table_of(), asked, mechanism, seed=4)
    return msgspec.structs.replace(
        release, **{"non_private": False, "noise_source": "operating system", **change}
    )
