"""Trees of moment releases with a normal posterior, drawn without a sampler."""

import numpy as np
import pandas as pd
import xarray as xr

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.facts import public_facts
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.manifest import write_manifest
from dpcausal_bayes.models.gram_laws import gram_form
from dpcausal_bayes.models.gram_pilot import gram_pilot
from dpcausal_bayes.models.gram_regression import gram_regression
from dpcausal_bayes.models.maxent_laws import maxent_form
from dpcausal_bayes.models.maxent_moments import maxent_moments
from dpcausal_bayes.models.priors import GramPriors, MaxentPriors
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload
from moment_trees import make_release, make_tree, make_workload

COVARIATES = [
    Bounded("age", 18, 78),
    Categories("sex", ["f", "m"]),
    Binned("town", [0, 1, 2, 4], other="none"),
    Bounded("wage", -3, 3),
]
ARM = Arm("t", control="no", treated="yes")
WORKLOADS = {
    "bounded": GramWorkload(Schema(arm=ARM, outcome=Bounded("y", -10, 15), covariates=COVARIATES)),
    "binary": GramWorkload(
        Schema(arm=ARM, outcome=Levels("won", [0, 1], values=[2, 5]), covariates=COVARIATES)
    ),
}

SHARE = np.array([[0.1, 0.2, 0.05, 0.15], [0.2, 0.05, 0.15, 0.1]])
MEAN = np.array([[-0.5, 0.1, 0.3, 0.8], [-0.2, 0.4, 0.5, 0.9]])
DISPERSION = np.array([0.2, 0.5])
STRATA = 4
MAXENT = CausalWorkload(
    Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=Levels("y", [0, 1]),
        covariates=[Categories("sex", ["f", "m"]), Categories("town", ["a", "b", "c"])],
    ),
    groups=["sex", "town"],
)


def study(n, seed=0):
    """Draw a table whose covariates go together, confound, and lie well within their bounds."""
    rng = np.random.default_rng(seed)
    town = rng.choice([0.5, 1.5, 3.0, 9.0], n, p=[0.4, 0.2, 0.3, 0.1])
    male = rng.random(n) < np.where(town == 1.5, 0.7, 0.4)
    wage = 0.4 * male - 0.3 * (town > 2) + 0.7 * rng.standard_normal(n)
    age = 45 + 5 * wage + 8 * rng.standard_normal(n)
    treated = rng.random(n) < 1 / (1 + np.exp(-0.8 * wage - 0.5 * male))
    y = 1 + 2 * treated + 1.5 * wage + 0.05 * age + male + 2 * rng.standard_normal(n)
    won = rng.random(n) < 0.3 + 0.2 * treated + 0.1 * wage.clip(-2, 2)
    return pd.DataFrame(
        {
            "t": np.where(treated, "yes", "no"),
            "age": age,
            "sex": np.where(male, "m", "f"),
            "town": town,
            "wage": wage,
            "y": y,
            "won": won.astype(int),
        }
    )


def gram_release(name="bounded", n=20_000, epsilon=1.0, seed=1):
    workload = WORKLOADS[name]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=1e-6)
    return simulate_moments(study(n, seed), workload, mechanism, seed=seed)


def gram_tree(release, draws=200, chains=2, seed=0):
    """A tree whose coefficients are normal around the mode, with the mode's curvature."""
    form = gram_form(release.workload, GramPriors())
    first = gram_pilot(form, release.noisy, release.noise_scale, release.n)
    z = np.random.default_rng(seed).standard_normal((chains, draws, len(form.centre)))
    coefficient = first.location + z @ first.scale.T
    group = xr.Dataset(
        {"coefficient": (("chain", "draw", "term"), coefficient)},
        coords={"term": list(form.labels)},
    )
    model = gram_regression(release)
    facts = public_facts(release, model)
    tree = xr.DataTree.from_dict({"posterior": group, "prior": group, "constant_data": facts})
    tree.attrs["manifest"] = write_manifest(model, release, seed)
    return tree


def stratified_tree(binary=False, n=1000, chains=2, draws=50, spread=0.0, seed=0):
    """A tree of four strata whose draws are scattered around the law above."""
    workload = make_workload(binary)
    release = make_release(workload, np.full(workload.n_queries, n / 8), n)
    rng = np.random.default_rng(seed)
    share = SHARE * np.exp(spread * rng.standard_normal((chains, draws, 2, STRATA)))
    share /= share.sum((-1, -2), keepdims=True)
    mean = np.tanh(np.arctanh(MEAN) + spread * rng.standard_normal((chains, draws, 2, STRATA)))
    dispersion = None if binary else np.broadcast_to(DISPERSION, (chains, draws, 2))
    return make_tree(release, share, mean, dispersion), release


def codes(table):
    return (table["t"] == 1).astype(int), 2 * (table["sex"] == "m") + (table["age"] >= 40)


def maxent_tree(chains=2, draws=500, n=3_000, spread=0.05, seed=0):
    """A tree of a maximum-entropy model whose coefficients are scattered around a known law."""
    release = make_release(MAXENT, np.full(MAXENT.n_queries, n / 4), n)
    model = maxent_moments(release)
    form = maxent_form(MAXENT, MaxentPriors(), np.array([-1.0, 1.0]))
    rng = np.random.default_rng(seed)
    middle = 0.5 * rng.standard_normal(len(form.centre))
    noise = rng.standard_normal((chains, draws, len(middle)))
    group = xr.Dataset(
        {"coefficient": (("chain", "draw", "term"), middle + spread * noise)},
        coords={"term": list(form.labels)},
    )
    facts = public_facts(release, model)
    tree = xr.DataTree.from_dict({"posterior": group, "prior": group, "constant_data": facts})
    tree.attrs["manifest"] = write_manifest(model, release, seed)
    return tree, release, form
