"""What a release of several groups, first order, does not say about confounding."""

from __future__ import annotations

import xarray as xr

from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["unseen_confounding"]

_CURE = (
    "unless treatment was randomised, release them as one joint group (strata=[...]) or their "
    "second moments (GramWorkload)."
)


def unseen_confounding(tree: xr.DataTree) -> str | None:
    """Return a sentence on what the model of a tree cannot see, or nothing.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit` or a later step.
    """
    workload = read_manifest(tree).get("workload")
    if not isinstance(workload, CausalWorkload) or sum(map(bool, workload.groups)) < 2:
        return None
    constant = tree["constant_data"]
    if "grid" in constant.coords:
        groups = "; ".join(", ".join(group) for group in workload.groups if group)
        return (
            f"the release does not say how its groups of covariates ({groups}) go together, so "
            f"confounding that several of them carry is counted several times: {_CURE}"
        )
    strata = tuple(constant["stratum"].values)
    modelled = [
        set(group) for g, group in enumerate(workload.groups) if workload.strata(g) == strata
    ]
    left_out = sorted({name for group in workload.groups for name in group} - modelled[0])
    if not left_out:
        return None
    return (
        f"confounding by {', '.join(left_out)}, which are in other groups of the release than the "
        f"strata, is left in the effects: {_CURE}"
    )
