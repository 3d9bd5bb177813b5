"""Populations of crossed covariates, confounded as strongly as asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.populations.strata import StratifiedPopulation
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["stratified_population"]


def stratified_population(
    *,
    covariates: Mapping[str, int] | None = None,
    n: int = 500,
    treated: float = 0.5,
    confounding: float = 0.0,
    baseline: float | None = None,
    spread: float = 0.2,
    effect: float = 0.1,
    heterogeneity: float = 0.0,
    binary: bool = False,
    low: float = 0.0,
    high: float = 1.0,
    dispersion: float = 0.2,
    seed: int = 0,
) -> StratifiedPopulation:
    r"""Make a population of crossed covariates, confounded as strongly as asked.

    Each stratum gets a score :math:`u_s`: a sum of random main effects of the covariates and a
    weaker random interaction, brought to mean 0 and variance 1 over the population. Then

    .. math::
        \mathrm{logit}\, e_s &= \mathrm{logit}(\text{treated}) + \text{confounding}\; u_s, \\
        \mu_{0s} &= \text{baseline} + \text{spread}\; h\; u_s, \\
        \mu_{1s} &= \mu_{0s} + \text{effect} + \text{heterogeneity}\; v_s,

    with h half the range of the outcome and v another such score, which has a correlation of 0.6
    with u (of 1, if there are two strata): with confounding, those who are treated more often start
    higher and gain more. The average treatment effect is ``effect``; that on the treated differs
    from it only where there are both confounding and heterogeneity.

    Parameters
    ----------
    covariates : mapping of str to int
        Name and number of levels, which are 0, 1, 2, ... By default ``{"a": 3, "b": 2}``; an
        empty mapping makes one stratum.
    n : int
        Records of a table.
    treated : float
        Propensity where the score is 0. Without confounding everybody's: an experiment.
    confounding : float
        Standard deviation of the propensity's log-odds over the population.
    baseline : float, optional
        Mean of Y(0), in the outcome's own unit. By default so that both arms' means lie evenly
        about the middle of the range.
    spread : float
        Standard deviation of the strata's baseline, in halves of the range. One stratum has none.
    effect, heterogeneity : float
        Mean and standard deviation of the strata's effects, in the outcome's own unit.
    binary : bool
        Outcomes 0 and 1, instead of bounded ones.
    low, high : float
        Bounds of the outcome.
    dispersion : float
        Of a bounded outcome, as in `StratifiedPopulation`.
    seed : int
        Decides shares, which are uneven, and scores.

    Returns
    -------
    StratifiedPopulation
        Columns ``treated``, ``y`` and the covariates.

    Raises
    ------
    ValueError
        Means that leave the range, or one stratum that is to be confounded or heterogeneous.

    Examples
    --------
    >>> from dpcausal_bayes.estimands import ATE, ATT
    >>> study = stratified_population(confounding=1.0, heterogeneity=0.1)
    >>> study, float(study.truth(ATE()).round(9)), bool(study.truth(ATT()) > 0.1)
    (StratifiedPopulation(n=500, strata=6, outcome=bounded), 0.1, True)
    """
    covariates = {"a": 3, "b": 2} if covariates is None else covariates
    if binary and (low, high) != (0, 1):
        raise ValueError(f"low and high are {low}, {high}: a binary outcome is 0 or 1")
    outcome: Any = Levels("y", (0, 1)) if binary else Bounded("y", low, high)
    schema = Schema(
        arm=Arm("treated", control=0, treated=1),
        outcome=outcome,
        covariates=tuple(Categories(name, range(k)) for name, k in covariates.items()),  # type: ignore[arg-type]
    )
    strata = CausalWorkload(schema, strata=list(covariates)).n_strata()
    if strata == 1 and (confounding or heterogeneity):
        raise ValueError(
            f"there is one stratum: confounding ({confounding}) and heterogeneity "
            f"({heterogeneity}) must be 0, or covariates have more levels"
        )
    if not 0 < treated < 1:
        raise ValueError(f"treated is {treated}: it must lie strictly between 0 and 1")
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(strata, 10.0))
    u, w = (_score(tuple(covariates.values()), share, rng) for _ in range(2))
    # two strata have no second direction to differ in
    v = 0.6 * u + 0.8 * _standardised(w - (share @ (w * u)) * u, share) if strata > 2 else u
    start = (low + high - effect) / 2 if baseline is None else baseline
    control = start + spread * (high - low) / 2 * u
    return StratifiedPopulation(
        schema=schema,
        n=n,
        share=share,
        propensity=special.expit(special.logit(treated) + confounding * u),
        mean=np.stack([control, control + effect + heterogeneity * v]),
        dispersion=dispersion,
    )


def _score(
    levels: tuple[int, ...], share: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return a random score of each stratum: main effects and a weaker interaction."""
    score = 0.5 * rng.normal(size=levels)
    for axis, size in enumerate(levels):
        score = score + rng.normal(size=size).reshape(
            [-1 if k == axis else 1 for k in range(len(levels))]
        )
    return _standardised(score.ravel(), share)


def _standardised(score: NDArray[np.float64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bring a score to mean 0 and variance 1 over the population; one stratum's is 0."""
    centred = score - share @ score
    spread = float(np.sqrt(share @ centred**2))
    return centred / spread if len(share) > 1 else np.zeros(1)
