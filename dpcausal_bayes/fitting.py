"""From a model and its release to posterior draws: the only place that samples."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.mode import Mode

from dpcausal_bayes.facts import public_facts, released_values
from dpcausal_bayes.manifest import write_manifest
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.releases import LabelRelease

__all__ = ["assemble", "check_model", "fit", "log_densities", "prior_draws", "resolve_seed"]

PREDICTIVE_DRAWS = 500
TARGET_ACCEPT = 0.95
# Forward draws are few: compiling them would cost more than they do.
_INTERPRETED = {"mode": Mode(linker="py", optimizer="fast_compile")}


def fit(
    model: pm.Model,
    release: LabelRelease | MomentRelease,
    *,
    draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    random_seed: int | None = None,
    progressbar: bool = True,
    **sample_kwargs: Any,
) -> xr.DataTree:
    """Draw from the posterior of a model given its release.

    Parameters
    ----------
    model : pymc.Model
        From a factory in `dpcausal_bayes.models`, changed or not.
    release : LabelRelease or MomentRelease
        The release that the model was built from.
    draws, tune, chains : int
        Per chain: kept draws, warm-up draws; number of chains.
    random_seed : int, optional
        Equal seeds give equal draws.
    progressbar : bool
    **sample_kwargs
        For `pymc.sample`, which uses nutpie. ``target_accept`` is 0.95 unless given.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior`` and ``sample_stats``; ``prior`` and ``prior_predictive``, and
        ``posterior_predictive``, with replicated releases, of about 500 draws;
        ``observed_data``; ``constant_data``, with what the release says. The attribute
        ``manifest`` is one JSON string: see `dpcausal_bayes.manifest.read_manifest`.

    Raises
    ------
    TypeError, ValueError
        A release of another kind, or one that the model was not built from.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes import models
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.columns import Arm, Levels
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> schema = Schema(arm=Arm("any", control=0, treated=1), outcome=Levels("got", [0, 1]))
    >>> table = pd.DataFrame({"any": [0, 1] * 50, "got": [0, 0, 1, 1, 1] * 20})
    >>> mechanism = ClusterDP.calibrated(schema, epsilon=1.0)
    >>> release = simulate_release(table, schema, mechanism, seed=1)
    >>> model = models.cluster_labels(release)
    >>> tree = fit(model, release, draws=100, chains=2, random_seed=1, progressbar=False)
    >>> dict(tree.posterior["share"].sizes)
    {'chain': 2, 'draw': 100, 'cluster': 1, 'arm': 2, 'level': 2}
    """
    check_model(model, release)
    seed = resolve_seed(random_seed)
    prior = prior_draws(model, seed)
    tree = pm.sample(
        draws,
        model=model,
        tune=tune,
        chains=chains,
        random_seed=seed,
        progressbar=progressbar,
        **{"target_accept": TARGET_ACCEPT, **sample_kwargs},
    )
    return assemble(model, release, tree, prior, seed)


def assemble(
    model: pm.Model,
    release: LabelRelease | MomentRelease,
    sampled: xr.DataTree,
    prior: xr.DataTree,
    seed: int,
    *,
    replicates: bool = True,
) -> xr.DataTree:
    """Put what was drawn together, with replicated releases and the manifest.

    Parameters
    ----------
    model : pymc.Model
    release : LabelRelease or MomentRelease
    sampled : xarray.DataTree
        With ``posterior`` and ``sample_stats``.
    prior : xarray.DataTree
        From `prior_draws`.
    seed : int
    replicates : bool
        Whether to replicate the release, for ``posterior_predictive``.
    """
    posterior = sampled["posterior"].dataset
    free = [variable.name for variable in model.free_RVs]
    kept = [name for name in posterior.data_vars if name in {*free, *_deterministics(model)}]
    observed = {"release": ("query", model["released"].get_value())}
    groups = {
        "posterior": posterior[kept],
        "sample_stats": sampled["sample_stats"].dataset,
        "observed_data": xr.Dataset(observed, coords={"query": list(model.coords["query"])}),
        **{name: prior[name].dataset for name in ("prior", "prior_predictive")},
        "constant_data": public_facts(release, model),
    }
    if replicates:
        groups["posterior_predictive"] = _replicated(model, posterior, seed)
    fitted = xr.DataTree.from_dict(groups)
    fitted.attrs["manifest"] = write_manifest(model, release, seed)
    return fitted


def _replicated(model: pm.Model, posterior: xr.Dataset, seed: int) -> xr.Dataset:
    """Draw a release for each of about 500 draws from the posterior."""
    step = max(posterior.sizes["draw"] * posterior.sizes["chain"] // PREDICTIVE_DRAWS, 1)
    with _quiet():
        replicated = pm.sample_posterior_predictive(
            posterior.isel(draw=slice(None, None, step)),
            model=model,
            freeze_vars=[variable.name for variable in model.free_RVs],
            random_seed=seed,
            progressbar=False,
            compile_kwargs=_INTERPRETED,
        )
    return replicated["posterior_predictive"].dataset


def prior_draws(model: pm.Model, seed: int) -> xr.DataTree:
    """Draw parameters and releases from the prior."""
    with _quiet():
        return pm.sample_prior_predictive(
            PREDICTIVE_DRAWS, model=model, random_seed=seed, compile_kwargs=_INTERPRETED
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyMC from announcing each set of forward draws."""
    logger = logging.getLogger("pymc.sampling.forward")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _deterministics(model: pm.Model) -> list[str]:
    return [variable.name for variable in model.deterministics]


def log_densities(tree: xr.DataTree, model: pm.Model) -> xr.DataTree:
    """Add each draw's log-likelihood and log-prior, which power scaling needs.

    Then ``arviz.psense_summary(tree)`` says how far the answer moves when the prior, or the
    likelihood, is made a little stronger or weaker. Kept apart from `fit` since it compiles twice.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    model : pymc.Model

    Returns
    -------
    xarray.DataTree
        With groups ``log_likelihood`` and ``log_prior``.

    Examples
    --------
    ``log_densities(tree, model)`` after ``tree = fit(model, release)``.
    """
    result = tree.copy()
    options = {"model": model, "progressbar": False, "extend_inferencedata": False}
    for name, compute in (
        ("log_likelihood", pm.stats.compute_log_likelihood),
        ("log_prior", pm.stats.compute_log_prior),
    ):
        found = compute(tree, **options)
        result[name] = found if isinstance(found, xr.DataTree) else xr.DataTree(dataset=found)
    return result


def resolve_seed(random_seed: int | None) -> int:
    """Return the seed, or a new one to be recorded."""
    if random_seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(random_seed)


def check_model(model: Any, release: Any) -> None:
    """Raise unless the model was built from the release."""
    if not isinstance(model, pm.Model):
        raise TypeError(
            f"model is a {type(model).__name__}: pass a pymc.Model, such as "
            "dpcausal_bayes.models.cluster_labels(release)"
        )
    if not isinstance(release, LabelRelease | MomentRelease):
        raise TypeError(
            f"release is a {type(release).__name__}: pass the LabelRelease or MomentRelease that "
            "the model was built from"
        )
    names = ("released", "noise_aware")
    if not all(name in model.named_vars for name in names):
        raise ValueError(
            f"model lacks the data {names}: build it with a factory in dpcausal_bayes.models"
        )
    if not np.array_equal(model["released"].get_value(), released_values(release, model)):
        raise ValueError(
            "model holds other released values than release: build the model from this release"
        )
