r"""Mean potential outcomes of a stratified moment model: means of strata, confidential moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dpcausal_bayes.gram_workloads import Workload
from dpcausal_bayes.manifest import read_manifest
from dpcausal_bayes.models.confidential_moments import confidential_moments
from dpcausal_bayes.models.moment_likelihood import draw_moments
from dpcausal_bayes.potential import Population, Potentials
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["arms_seen", "moment_potentials", "supported_strata"]

DROWNED = 2.0  # standard deviations of its noise that a mass must reach


class _Draws(NamedTuple):
    """Draws (chain, draw, arm, stratum) of a law and of a table, the outcome on [-1, 1]."""

    share: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]  # of the outcome within a cell
    mass: NDArray[np.float64]
    own: NDArray[np.float64]  # mean of the outcomes that the table holds


def moment_potentials(
    tree: xr.DataTree, population: Population, rng: np.random.Generator
) -> Potentials:
    r"""Return the mean potential outcomes of a stratified moment model.

    In the superpopulation they are :math:`\mu_{ts}`, with the weights :math:`\pi_{ts}`. Of these
    units, those of arm t in stratum s, N of them, have the mean Y/N under t, as the confidential
    table holds it; under the other arm theirs is drawn with the mean and variance that this arm has
    in the stratum, as if a unit's two potential outcomes were independent given its stratum.
    N and Y are draws given the release. A cell of which less than half a unit is drawn is empty.
    A mean lies within the outcome's bounds; a draw that leaves them, in a tiny cell, is put on the
    bound.

    Parameters
    ----------
    tree : xarray.DataTree
        From `fit`.
    population : "sample" or "super"
    rng : numpy.random.Generator
    """
    manifest = read_manifest(tree)
    workload: CausalWorkload = manifest["workload"]
    confidential = confidential_moments(tree, rng)
    draws = _posterior(tree, confidential)
    coords = _coords(tree)
    supported = supported_strata(tree, confidential)

    def data_set(mean: NDArray[np.float64], weight: NDArray[np.float64]) -> xr.Dataset:
        dims = ("chain", "draw", *(("assigned",) if mean.ndim == 5 else ()), "arm", "stratum")
        return xr.Dataset(
            {
                "mean": (dims, in_units(mean, workload)),
                "weight": (("chain", "draw", "assigned", "stratum"), weight),
                "supported": supported,
            },
            coords=coords,
        )

    def of_population(drawn: _Draws) -> xr.Dataset:
        if population == "super":
            return data_set(drawn.mean, drawn.share)
        return data_set(_of_these_units(drawn, workload.binary, rng), _weight(drawn))

    posterior = of_population(draws)  # before the prior, whose draws may be another fit's
    return Potentials(
        posterior=posterior,
        table=data_set(draws.own, _weight(draws)),
        prior=of_population(_prior(tree, int(manifest["n"]), rng)),
        stratum="stratum",
    )


def arms_seen(tree: xr.DataTree, confidential: xr.DataArray) -> xr.DataArray:
    """Return which masses stand out from the noise, (arm, stratum).

    Their posterior mean must reach two standard deviations of their noise; and half a unit.

    Parameters
    ----------
    tree : xarray.DataTree
    confidential : DataArray (chain, draw, arm, stratum, part)
    """
    mass = confidential.sel(part="mass", drop=True).mean(["chain", "draw"])
    constant = tree["constant_data"].to_dataset()
    noise = constant["mass_noise"] * constant["noise_aware"]
    return mass >= np.maximum(DROWNED * noise, 0.5)


def supported_strata(tree: xr.DataTree, confidential: xr.DataArray) -> xr.DataArray:
    """Return which strata have both arms, (stratum): both masses stand out from the noise.

    Parameters
    ----------
    tree : xarray.DataTree
    confidential : DataArray (chain, draw, arm, stratum, part)
    """
    return arms_seen(tree, confidential).all("arm")


def _coords(tree: xr.DataTree) -> dict[str, Any]:
    constant = tree["constant_data"].to_dataset()
    factors = {
        str(name): ("stratum", coord.values)
        for name, coord in constant.coords.items()
        if coord.dims == ("stratum",) and name != "stratum"
    }
    arms = list(constant["arm"].values)
    return {"assigned": arms, "arm": arms, "stratum": constant["stratum"].values, **factors}


def _posterior(tree: xr.DataTree, confidential: xr.DataArray) -> _Draws:
    share, mean, variance, _ = _law(tree["posterior"].to_dataset())
    mass = confidential.sel(part="mass").values
    return _Draws(share, mean, variance, *_table(mass, confidential.sel(part="outcome"), mean))


def _prior(tree: xr.DataTree, n: int, rng: np.random.Generator) -> _Draws:
    share, mean, variance, dispersion = _law(tree["prior"].to_dataset())
    moments = draw_moments(share, mean, dispersion, n, rng)
    cells = moments[..., : 2 * share[0, 0].size].reshape(*share.shape, 2)
    first, second = cells[..., 0], cells[..., 1]
    if dispersion is None:
        first, second = first + second, second - first
    return _Draws(share, mean, variance, *_table(first, second, mean))


def _law(group: xr.Dataset) -> tuple[Any, Any, Any, Any]:
    """Return shares, means, variances and dispersions of a group's draws."""
    cells = ("chain", "draw", "arm", "stratum")
    share, mean = (group[name].transpose(*cells).values for name in ("share", "mean"))
    dispersion = None
    if "dispersion" in group:
        dispersion = group["dispersion"].transpose(*cells[:3]).values
    spread = 1.0 if dispersion is None else dispersion[..., None]
    return share, mean, spread * (1 - mean**2), dispersion


def _table(mass: Any, outcome: Any, mean: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the masses of cells that have units, and the means that their outcomes have."""
    mass, outcome = np.asarray(mass), np.asarray(outcome)
    occupied = mass >= 0.5
    own = np.clip(outcome / np.where(occupied, mass, 1.0), -1, 1)
    return np.where(occupied, mass, 0.0), np.where(occupied, own, mean)


def _weight(draws: _Draws) -> NDArray[np.float64]:
    """Return the cells' shares of the table; of the population where an arm has nobody."""
    nobody = draws.mass.sum(-1, keepdims=True) == 0
    weight = np.where(nobody, draws.share, draws.mass / draws.mass.sum((-1, -2), keepdims=True))
    return weight / weight.sum((-1, -2), keepdims=True)


def _of_these_units(draws: _Draws, binary: bool, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the mean (chain, draw, assigned, arm, stratum) of observed and missing outcomes."""
    swapped = draws.mean[..., ::-1, :]  # at arm a: the other arm's law
    units = np.where(draws.mass > 0, np.maximum(np.round(draws.mass), 1), 1)
    if binary:
        missing = 2 * rng.binomial(units.astype(np.int64), (1 + swapped) / 2) / units - 1
    else:
        spread = np.sqrt(draws.variance[..., ::-1, :] / units)
        missing = np.clip(swapped + spread * rng.standard_normal(units.shape), -1, 1)
    missing = np.where(draws.mass > 0, missing, swapped)
    rows = [draws.own, missing]
    return np.stack(
        [
            np.stack([rows[0][..., 0, :], rows[1][..., 0, :]], axis=-2),
            np.stack([rows[1][..., 1, :], rows[0][..., 1, :]], axis=-2),
        ],
        axis=-3,
    )


def in_units(mean: NDArray[np.float64], workload: Workload) -> NDArray[np.float64]:
    """Return means on [-1, 1] in the outcome's units."""
    outcome: Any = workload.schema.outcome
    if not workload.binary:
        return outcome.centre + outcome.half * mean
    low, high = outcome.values
    return low + (high - low) * (1 + mean) / 2
