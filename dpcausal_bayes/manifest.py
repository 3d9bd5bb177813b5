"""How a tree of draws came about: one JSON string in its attributes."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import pymc as pm
import xarray as xr

from dpcausal_bayes.gram_workloads import Workload
from dpcausal_bayes.laplace_mechanism import MomentMechanism
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.release_files import from_json, to_json
from dpcausal_bayes.releases import LabelRelease
from dpcausal_bayes.schema import Schema

__all__ = ["read_manifest", "write_manifest"]


def read_manifest(tree: xr.DataTree) -> dict[str, Any]:
    """Read how a tree came about.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit` or a later step.

    Returns
    -------
    dict
        ``model``, ``noise_aware``, ``release_digest``, ``non_private``, ``n``,
        ``loss``, ``random_seed``, ``versions``; ``schema`` and ``mechanism`` as objects, of a
        moment release ``workload`` too.

    Raises
    ------
    ValueError
        A tree without a manifest.

    Examples
    --------
    >>> read_manifest(xr.DataTree())
    Traceback (most recent call last):
    ...
    ValueError: the tree has no manifest: it must come from dpcausal_bayes.fit
    """
    if "manifest" not in tree.attrs:
        raise ValueError("the tree has no manifest: it must come from dpcausal_bayes.fit")
    manifest: dict[str, Any] = json.loads(tree.attrs["manifest"])
    kinds: dict[str, Any] = {"schema": Schema, "mechanism": ClusterDP}
    if "workload" in manifest:
        kinds = {"workload": Workload, "mechanism": MomentMechanism}
    for field, kind in kinds.items():
        manifest[field] = from_json(json.dumps(manifest[field]).encode(), kind)
    if "workload" in manifest:
        manifest["schema"] = manifest["workload"].schema
    return manifest


def write_manifest(model: pm.Model, release: LabelRelease | MomentRelease, seed: int) -> str:
    """Write down how the draws came about, as one JSON string."""
    packages = ("dpcausal_bayes", "pymc", "arviz", "nutpie", "numpy")
    design = "schema" if isinstance(release, LabelRelease) else "workload"
    public = {field: getattr(release, field) for field in (design, "mechanism", "loss")}
    return json.dumps(
        {
            "model": {
                variable.name: variable.str_repr(formatting="plain", include_params=True)
                for variable in model.free_RVs
            },
            "noise_aware": bool(model["noise_aware"].get_value()),
            "release_digest": release.digest,
            "non_private": release.non_private,
            "n": release.n,
            **{name: json.loads(to_json(value)) for name, value in public.items()},
            "random_seed": seed,
            "versions": {name: importlib.metadata.version(name) for name in packages},
        }
    )
