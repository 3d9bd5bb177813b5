"""From a total privacy budget to the parameters of Cluster-DP."""

from __future__ import annotations

from typing import Any

from dpcausal_bayes import accounting
from dpcausal_bayes.laws import Gaussian, Laplace, number

__all__ = ["split_budget"]


def split_budget(
    n_levels: int, *, epsilon: float, share: float, floor: float, noise: type, delta: float | None
) -> dict[str, Any]:
    """Return the keyword arguments of the `ClusterDP` that spends a budget.

    See `ClusterDP.calibrated`, whose arguments these are.
    """
    epsilon = number(epsilon, "epsilon")
    share = number(share, "histogram_share")
    floor = number(floor, "floor")
    if epsilon <= 0:
        raise ValueError(f"epsilon is {epsilon}: the budget must be positive")
    if not 0 < share < 1:
        raise ValueError(
            f"histogram_share is {share}: it must lie strictly between 0 and 1 (floor=1 releases "
            "no histogram)"
        )
    if not 0 < floor <= 1:
        raise ValueError(f"floor is {floor}: it must be in (0, 1], in units of 1/K")
    if noise not in (Laplace, Gaussian):
        raise TypeError(f"noise is {noise!r}: pass the class Laplace or the class Gaussian")
    gamma = floor / n_levels
    if floor == 1:
        if delta is not None:
            raise ValueError(f"delta is {delta}, but labels alone are pure: leave delta out")
        lam = accounting.lam_for(epsilon, gamma)
        return {
            "lam": lam,
            "sigma": None,
            "gamma": gamma,
            "note": f"epsilon {epsilon:g}, all of it: {_labels(lam, gamma)}",
        }
    lam = accounting.lam_for((1 - share) * epsilon, gamma)
    chosen = {"lam": lam, "gamma": gamma, "noise": noise}
    if noise is Gaussian:
        delta = _needed_delta(delta)
        sigma = accounting.gaussian_sigma_for(epsilon, delta, lam, gamma)
        note = (
            f"epsilon {epsilon:g}, delta {delta:g} split: {_labels(lam, gamma)}, histogram the "
            f"rest (sigma {sigma:g})"
        )
        return {**chosen, "sigma": sigma, "delta": delta, "note": note}
    if delta is not None:
        raise ValueError(
            f"delta is {delta}, but Laplace noise is pure: leave delta out, or pass noise=Gaussian"
        )
    sigma = 2 / (share * epsilon)
    note = (
        f"epsilon {epsilon:g} split: histogram {2 / sigma:g} (sigma {sigma:g}), "
        f"{_labels(lam, gamma)}"
    )
    return {**chosen, "sigma": sigma, "note": note}


def _labels(lam: float, gamma: float) -> str:
    most = ", the most that 64-bit words allow" if lam == accounting.SMALLEST_LAM else ""
    return f"labels {accounting.channel_epsilon(lam, gamma):g} (lam {lam:g}{most})"


def _needed_delta(delta: float | None) -> float:
    if delta is None:
        raise ValueError("delta is missing: Gaussian noise needs one, for example delta=1e-6")
    delta = number(delta, "delta")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}: Gaussian noise needs it strictly between 0 and 1")
    return delta
