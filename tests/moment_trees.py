"""Trees of a stratified moment model whose answer is known by hand."""

import json

import numpy as np
import xarray as xr

from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.facts import public_facts
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.manifest import write_manifest
from dpcausal_bayes.models.stratified_moments import stratified_moments
from dpcausal_bayes.moments import LATTICE, make_moment_release
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise
from dpcausal_bayes.workloads import CausalWorkload

CELLS = ("chain", "draw", "arm", "stratum")


def make_workload(binary=False, groups=(("sex", "age"),), low=0, high=10):
    outcome = Levels("y", [0, 1], values=(2, 5)) if binary else Bounded("y", low, high)
    schema = Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=outcome,
        covariates=[Categories("sex", ["f", "m"]), Binned("age", [0, 40, 80])],
    )
    return CausalWorkload(schema, groups=[list(group) for group in groups])


class NoNoise(SeededNoise):
    """A source whose noise is zero."""

    def __init__(self):
        super().__init__(0)

    def integers(self, law, shape):
        return np.zeros(shape, np.int64)


def make_release(workload, answers, n, epsilon=1.0, source=None, scale=None):
    """A release of given answers, in records, for each query."""
    mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=1e-6)
    if scale is not None:
        mechanism = GaussianMechanism(
            scale=scale, sensitivity=workload.sensitivity, delta=mechanism.delta
        )
    exact = np.round(np.asarray(answers) * LATTICE).astype(np.int64)
    source = NoNoise() if source is None else source
    return make_moment_release(workload, mechanism, exact, n, source=source, non_private=True)


def make_tree(release, share, mean, dispersion=None, group=0, seed=3, noise_aware=True, model=None):
    """A tree whose posterior and prior have these draws: (chain, draw, arm, stratum)."""
    if model is None:
        model = stratified_moments(release, group=group, noise_aware=noise_aware)
    coords = {"arm": list(release.schema.arms), "stratum": list(release.workload.strata(group))}
    posterior = {"share": (CELLS, share), "mean": (CELLS, mean)}
    if dispersion is not None:
        posterior["dispersion"] = (CELLS[:3], dispersion)
    draws = xr.Dataset(posterior, coords=coords)
    stats = xr.Dataset({"diverging": (CELLS[:2], np.zeros(share.shape[:2], bool))})
    tree = xr.DataTree.from_dict(
        {
            "posterior": draws,
            "prior": draws,
            "sample_stats": stats,
            "constant_data": public_facts(release, model),
        }
    )
    tree.attrs["manifest"] = write_manifest(model, release, seed)
    assert json.loads(tree.attrs["manifest"])["n"] == release.n
    return tree
