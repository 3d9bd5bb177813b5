r"""Which strata hold both arms, and how much of the population they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.confidential_moments import confidential_moments
from dpcausal_bayes.moment_potential import DROWNED, arms_seen
from dpcausal_bayes.potential import generator
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["overlap"]

_WORDS = {
    (True, True): "both arms",
    (True, False): "no treated",
    (False, True): "no controls",
    (False, False): "drowned",
}


def overlap(tree: xr.DataTree) -> pd.DataFrame:
    r"""Say which strata have both arms, as far as the release can tell.

    Where a stratum lacks an arm its effect cannot be seen and rests on the prior: on what the
    additive and the pooled parts of the model say of it. An arm is seen where the posterior mean of
    its confidential mass reaches two standard deviations of its noise (and half a unit). `estimate`
    goes by the same rule, with the same draws; `report` flags an estimand as ``prior_driven`` if
    more than a twentieth of its weight is on other strata.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit` or a later step, of a moment release; left as it is.

    Returns
    -------
    pandas.DataFrame
        A row a stratum, indexed by its level of each covariate. Columns:

        - ``share``, ``share_sd``: the stratum's share of the population, posterior mean and
          standard deviation;
        - ``propensity``, ``eti95_lb``, ``eti95_ub``: the share that is treated in it, posterior
          mean and 95 % equal-tailed interval;
        - ``noisy_controls``, ``noisy_treated``: the two masses as released, in records; they may be
          negative;
        - ``noise_sd``: the standard deviation of the noise on each of them;
        - ``supported``: whether both arms are seen;
        - ``seen``: in words, ``"both arms"``, ``"no controls"`` (treated only), ``"no treated"``
          (controls only), or ``"drowned"`` (neither stands out from the noise).

        Its ``attrs`` hold ``supported_share``, the posterior mean of the share of the population
        in supported strata, and ``rule``, a sentence.

    Raises
    ------
    TypeError, ValueError
        No tree, one without a posterior, or one of a label release.

    Examples
    --------
    ``table = overlap(tree)`` after ``tree = fit(models.stratified_moments(release), release)``;
    then ``table.attrs["supported_share"]``, or ``table.groupby("age")["share"].sum()``. The whole
    way is the README's second example.
    """
    _check(tree)
    # as in `estimate`, so that the two never disagree on a stratum at the edge
    rng = generator(read_manifest(tree), "estimate", None)
    seen = arms_seen(tree, confidential_moments(tree, rng))
    supported = seen.all("arm")
    drawn = tree["posterior"].to_dataset()["share"]
    share = drawn.sum("arm")
    over = ["chain", "draw"]
    propensity = drawn.sel(arm="treated", drop=True) / share
    low, high = propensity.quantile([0.025, 0.975], dim=over)
    constant = tree["constant_data"].to_dataset()
    mass, noise = constant["noisy_mass"], constant["mass_noise"].max("arm")
    columns = {
        "share": share.mean(over),
        "share_sd": share.std(over, ddof=1),
        "propensity": propensity.mean(over),
        "eti95_lb": low,
        "eti95_ub": high,
        "noisy_controls": mass.sel(arm="control"),
        "noisy_treated": mass.sel(arm="treated"),
        "noise_sd": noise,
        "supported": supported,
    }
    table = pd.DataFrame(
        {name: _by_stratum(column, constant) for name, column in columns.items()},
        index=_index(constant),
    )
    pairs = _by_stratum(seen.transpose("stratum", "arm").sel(arm=["control", "treated"]), constant)
    table["seen"] = [_WORDS[bool(control), bool(treated)] for control, treated in pairs]
    table.attrs = {
        "supported_share": float(table.loc[table["supported"], "share"].sum()),
        "rule": f"an arm is seen where its mass reaches {DROWNED:g} standard deviations of its "
        "noise",
    }
    return table


def _by_stratum(column: xr.DataArray, constant: xr.Dataset) -> NDArray[Any]:
    return np.asarray(column.sel(stratum=constant["stratum"].values).values)


def _index(constant: xr.Dataset) -> pd.Index:
    """Return the strata by their levels; without covariates there is only their name."""
    factors = {
        str(name): coord.values
        for name, coord in constant.coords.items()
        if coord.dims == ("stratum",) and name != "stratum"
    }
    if len(factors) > 1:
        return pd.MultiIndex.from_arrays(list(factors.values()), names=list(factors))
    name, labels = next(iter(factors.items()), ("stratum", constant["stratum"].values))
    return pd.Index(labels, name=name)


def _check(tree: Any) -> None:
    if not isinstance(tree, xr.DataTree):
        raise TypeError(
            f"tree is a {type(tree).__name__}: it must be the xarray.DataTree that fit returns"
        )
    workload = read_manifest(tree).get("workload")
    if workload is None:
        raise ValueError(
            "the tree is of a label release, whose arms and clusters are public: overlap is of "
            "strata, from a moment release; see cell_size of the release for its cells"
        )
    if not isinstance(workload, CausalWorkload):
        raise ValueError(
            f"the tree is of a {type(workload).__name__}, which has no strata: overlap is of the "
            "strata of a CausalWorkload"
        )
    if "posterior" not in tree.children:
        raise ValueError(
            "the tree has no posterior, so nothing is known of its strata: call "
            "tree = fit(model, release)"
        )
