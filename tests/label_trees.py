"""A tree as a fit of a label release leaves it, but from known shares, and without sampling."""

import json

import numpy as np
import pandas as pd
import xarray as xr

from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.release_files import to_json
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release


def make_schema(clusters=("north", "south"), levels=(0, 1, 2), values=None):
    return Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=Levels("y", list(levels), values=values),
        cluster=Categories("district", list(clusters)),
    )


def make_table(schema, counts, seed=0):
    """Return a table with the given label counts (cluster, arm, level), rows in random order."""
    counts = np.asarray(counts)
    cells = np.repeat(np.arange(counts.size), counts.ravel())
    cells = np.random.default_rng(seed).permutation(cells)
    cluster, arm, level = np.unravel_index(cells, counts.shape)
    return pd.DataFrame(
        {
            "district": np.array(schema.cluster.levels, dtype=object)[cluster],
            "t": arm,
            "y": np.array(schema.outcome.levels, dtype=object)[level],
        }
    )


def make_release(schema, counts, mechanism=None, seed=1):
    mechanism = mechanism or ClusterDP.calibrated(schema, epsilon=4.0)
    return simulate_release(make_table(schema, counts, seed), schema, mechanism, seed=seed)


def make_tree(release, share, prior_share=None, seed=5, **sample_stats):
    """Return a tree whose posterior is ``share`` (chain, draw, cluster, arm, level)."""
    schema = release.schema
    dims = ("chain", "draw", "cluster", "arm", "level")
    coords = {
        "cluster": list(schema.clusters),
        "arm": list(schema.arms),
        "level": list(schema.level_labels),
    }
    if prior_share is None:
        rng = np.random.default_rng(seed)
        shape = (1, 500, schema.n_clusters, 2)
        prior_share = rng.dirichlet(np.ones(schema.n_levels), size=shape)

    def group(values):
        full = {"chain": np.arange(values.shape[0]), "draw": np.arange(values.shape[1]), **coords}
        return xr.Dataset({"share": (dims, values)}, coords=full)

    constants = {
        "cell_size": (dims[2:4], release.cell_size),
        "label_count": (dims[2:], release.label_counts),
        "label_prior": (dims[2:], release.prior),
        "noise_aware": 1.0,
    }
    if schema.outcome.values is not None:
        constants["level_value"] = (dims[4:], np.array(schema.outcome.values))
    if release.noisy_counts is not None:
        constants["noisy_count"] = (dims[2:], release.noisy_counts)
    stats = {"diverging": np.zeros(share.shape[:2], bool), **sample_stats}
    tree = xr.DataTree.from_dict(
        {
            "posterior": group(np.asarray(share, float)),
            "prior": group(np.asarray(prior_share, float)),
            "constant_data": xr.Dataset(constants, coords=coords),
            "sample_stats": xr.Dataset({k: (dims[:2], v) for k, v in stats.items()}),
        }
    )
    manifest = {
        "model": {},
        "noise_aware": True,
        "release_digest": release.digest,
        "non_private": release.non_private,
        "schema": json.loads(to_json(schema)),
        "mechanism": json.loads(to_json(release.mechanism)),
        "loss": json.loads(to_json(release.loss)),
        "n": release.n,
        "random_seed": seed,
        "versions": {},
    }
    tree.attrs["manifest"] = json.dumps(manifest)
    return tree


def fixed_counts(counts):
    """Return a stand-in for the model's confidential counts: these, in every draw."""

    def confidential_counts(tree, rng):
        share = tree["posterior"]["share"]
        return xr.zeros_like(share) + xr.DataArray(
            np.asarray(counts, float), dims=("cluster", "arm", "level")
        )

    return confidential_counts
