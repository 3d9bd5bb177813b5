r"""Closed-form contrasts of noisy moments, with standard errors: companions of the models.

All three use one group of strata. With the noisy mass :math:`m_{as}` and outcome sum
:math:`t_{as}` of arm a in stratum s, the propensity is :math:`e_s = m_{1s}/(m_{0s}+m_{1s})`. The
estimand's weights :math:`w_s` are the masses that it averages over: of both arms, of the treated,
of the controls. Where nothing is clipped the three are the same number.

**Strata left out.** A stratum whose noisy mass is not positive in some arm has neither a mean nor a
propensity there. It is left out of the estimate and named in ``excluded``; the others are weighed
as if it were not there.

**Variance.** By the delta method, with the gradient g of the estimator in the noisy queries q,

.. math:: g' \left(n\, \widehat{\mathrm{Cov}}(h)\right) g + \sum_j g_j^2 \sigma_j^2,

where h is what one record adds to the queries and :math:`\sigma_j` the known noise. The covariance
takes a record's cell to be multinomial. Within a cell, the variance of a binary outcome is that of
its counts; a bounded one's is taken to be the same in all strata of an arm, and comes from the
arm's squares. The method is good where masses are well above their noise; nearer to it the
estimators are biased and have heavy tails, and the model is the one to trust.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg

from dpcausal_bayes.direct.estimates import DirectEstimate
from dpcausal_bayes.direct.sampling import sampling_variance
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.populations.tables import cell_sums

__all__ = ["aipw", "ipw", "plug_in"]

# Of masses and sums, (..., 2, S) each, to the estimate (...): the arrays may be complex.
Formula = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]

_EVERYBODY = ATE()
_STEP = 1e-20  # of a complex derivative, which loses no digits however small the step


def plug_in(
    release: MomentRelease, *, estimand: ATE | ATT | ATC = _EVERYBODY, group: int = 0
) -> DirectEstimate:
    r"""Contrast the strata's mean outcomes: regression on strata, plugged in.

    .. math:: \hat\tau = \sum_s w_s \left(\frac{t_{1s}}{m_{1s}} - \frac{t_{0s}}{m_{0s}}\right)
              \Big/ \sum_s w_s

    Parameters
    ----------
    release : MomentRelease
    estimand : ATE, ATT or ATC
        Without ``by``.
    group : int
        Which of the workload's groups of strata.

    Returns
    -------
    DirectEstimate
        In units of the (clipped) outcome. Its table has a row a stratum: ``weight``, ``control``,
        ``treated``, ``estimate``, and the noisy ``control_mass``, ``treated_mass`` and
        ``propensity``.

    Raises
    ------
    TypeError, ValueError
        Another release, an estimand with ``by``, no such group, or no stratum that is left.

    Examples
    --------
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.populations.crossed import stratified_population
    >>> from dpcausal_bayes.simulate import simulate_moments
    >>> study = stratified_population(n=2000, confounding=1.0)
    >>> mechanism = GaussianMechanism.calibrated(study.workload, epsilon=2.0, delta=1e-6)
    >>> release = simulate_moments(study.draw(1), study.workload, mechanism, seed=1)
    >>> plug_in(release)
    plug-in: 0.1... (standard error 0.01...)
    """
    assigned = _assigned(estimand)

    def formula(mass: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
        mean = total / mass
        weight = mass[..., assigned, :].sum(axis=-2)
        effect = mean[..., 1, :] - mean[..., 0, :]
        return np.asarray((weight * effect).sum(axis=-1) / weight.sum(axis=-1))

    return _estimate(release, "plug-in", estimand, group, lambda kept: formula)


def ipw(
    release: MomentRelease,
    *,
    estimand: ATE | ATT | ATC = _EVERYBODY,
    group: int = 0,
    clip: tuple[float, float] = (0.05, 0.95),
) -> DirectEstimate:
    r"""Weigh each arm to the estimand's population, by clipped propensities.

    .. math:: \hat\tau = \frac{\sum_s r_{1s} t_{1s}}{\sum_s r_{1s} m_{1s}}
              - \frac{\sum_s r_{0s} t_{0s}}{\sum_s r_{0s} m_{0s}},
              \qquad r_{as} = \frac{\text{target}_s}{P(a \mid s)},

    with the propensity moved into the interval ``clip``, and the target 1, :math:`e_s` or
    :math:`1-e_s` for the `ATE`, `ATT` or `ATC`. The weights are normalised (Hájek). Clipping limits
    the weight of strata where an arm is rare, at the price of bias.

    Parameters
    ----------
    release : MomentRelease
    estimand : ATE, ATT or ATC
        Without ``by``.
    group : int
        Which of the workload's groups of strata.
    clip : (float, float)
        Least and greatest propensity; (0, 1) clips nothing.

    Returns
    -------
    DirectEstimate
        As `plug_in`; the table also says which strata were ``clipped``.

    Raises
    ------
    TypeError, ValueError
        As `plug_in`, or limits that are none.

    Examples
    --------
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.populations.crossed import stratified_population
    >>> from dpcausal_bayes.simulate import simulate_moments
    >>> study = stratified_population(n=2000, confounding=1.0)
    >>> mechanism = GaussianMechanism.calibrated(study.workload, epsilon=2.0, delta=1e-6)
    >>> release = simulate_moments(study.draw(1), study.workload, mechanism, seed=1)
    >>> found = ipw(release, clip=(0.2, 0.8))
    >>> found, int(found.table["clipped"].sum())
    (IPW: 0.1... (standard error 0.01...), 1)
    """
    assigned, clip = _assigned(estimand), _limits(clip)

    def formula(mass: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
        ratio = _ratio(mass, assigned, clip)
        mean = (ratio * total).sum(axis=-1) / (ratio * mass).sum(axis=-1)
        return np.asarray(mean[..., 1] - mean[..., 0])

    return _estimate(release, "IPW", estimand, group, lambda kept: formula, clip)


def aipw(
    release: MomentRelease,
    *,
    estimand: ATE | ATT | ATC = _EVERYBODY,
    group: int = 0,
    clip: tuple[float, float] = (0.05, 0.95),
) -> DirectEstimate:
    r"""Regress on the covariates' main effects, and mend the residuals by clipped propensities.

    .. math:: \hat\tau = \frac{\sum_s w_s (f_{1s} - f_{0s})
              + r_{1s} (t_{1s} - m_{1s} f_{1s}) - r_{0s} (t_{0s} - m_{0s} f_{0s})}{\sum_s w_s}

    with the weights r of `ipw` and f the least-squares fit, in each arm, of the strata's means to
    an additive function of the group's covariates. Where a propensity is clipped the mean of the
    stratum is drawn towards f instead of towards nothing; elsewhere it counts in full. With one
    covariate f meets every mean, and this is `plug_in`.

    Parameters
    ----------
    release : MomentRelease
    estimand : ATE, ATT or ATC
        Without ``by``.
    group : int
        Which of the workload's groups of strata.
    clip : (float, float)
        Least and greatest propensity; (0, 1) clips nothing.

    Returns
    -------
    DirectEstimate
        As `ipw`.

    Raises
    ------
    TypeError, ValueError
        As `ipw`.

    Examples
    --------
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.populations.crossed import stratified_population
    >>> from dpcausal_bayes.simulate import simulate_moments
    >>> study = stratified_population(n=2000, confounding=1.0)
    >>> mechanism = GaussianMechanism.calibrated(study.workload, epsilon=2.0, delta=1e-6)
    >>> release = simulate_moments(study.draw(1), study.workload, mechanism, seed=1)
    >>> aipw(release, estimand=ATT(), clip=(0.2, 0.8))
    AIPW, att: 0.1... (standard error 0.01...)
    """
    assigned, clip = _assigned(estimand), _limits(clip)

    def of_kept(kept: NDArray[np.bool_]) -> Formula:
        design = _main_effects(release.causal_workload.factors(group), kept)

        def formula(mass: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
            ratio = _ratio(mass, assigned, clip)
            weight = mass[..., assigned, :].sum(axis=-2)
            normal = np.swapaxes(design * mass[..., None], -1, -2) @ design
            fit = np.linalg.solve(normal, (total @ design)[..., None])[..., 0] @ design.T
            mean = weight[..., None, :] * fit + ratio * (total - mass * fit)
            mean = mean.sum(axis=-1) / weight.sum(axis=-1)[..., None]
            return np.asarray(mean[..., 1] - mean[..., 0])

        return formula

    return _estimate(release, "AIPW", estimand, group, of_kept, clip)


def _estimate(
    release: MomentRelease,
    method: str,
    estimand: ATE | ATT | ATC,
    group: int,
    formula_of: Callable[[NDArray[np.bool_]], Formula],
    clip: tuple[float, float] | None = None,
) -> DirectEstimate:
    """Evaluate a formula on the strata that both arms are seen in, with its variance."""
    _check(release, group)
    workload = release.causal_workload
    cells = release.cells(group)
    mass, total = cell_sums(workload, cells)
    kept = np.all(mass > 0, axis=0)
    labels = np.array(workload.strata(group))
    if not kept.any():
        raise ValueError(
            f"none of the {len(kept)} strata has a positive noisy mass in both arms, so there is "
            "no contrast to be had: the noise drowns the strata. Use fewer strata or a larger "
            "budget; the model can do with this release"
        )
    formula = formula_of(kept)

    def of_queries(queries: NDArray[Any]) -> NDArray[Any]:
        return formula(*cell_sums(workload, queries.reshape(-1, *cells[:, kept].shape)))

    queries = cells[:, kept].ravel()
    gradient = of_queries(queries + 1j * _STEP * np.eye(len(queries))).imag / _STEP
    scale = workload.split(release.noise_scale)[0][group][:, kept].ravel()
    noise = float(np.sum((gradient * scale) ** 2))
    sampling = sampling_variance(release, group, kept, gradient.reshape(2, -1, 2))
    mass, total = mass[:, kept], total[:, kept]
    weight = mass[_assigned(estimand)].sum(axis=0)
    columns: dict[str, Any] = {"weight": weight / weight.sum()}
    columns |= {"control": total[0] / mass[0], "treated": total[1] / mass[1]}
    columns["estimate"] = columns["treated"] - columns["control"]
    columns |= {"control_mass": mass[0], "treated_mass": mass[1]}
    columns["propensity"] = mass[1] / mass.sum(axis=0)
    if clip is not None:
        columns["clipped"] = np.clip(columns["propensity"], *clip) != columns["propensity"]
    return DirectEstimate(
        method=method,
        estimate=float(of_queries(queries)[0]),
        variance=sampling + noise,
        noise_variance=noise,
        table=pd.DataFrame(columns, index=pd.Index(labels[kept], name="stratum")),
        excluded=tuple(labels[~kept].tolist()),
        estimand=estimand.name,
    )


def _ratio(mass: NDArray[Any], assigned: list[int], clip: tuple[float, float]) -> NDArray[Any]:
    """Return the weight of a record by arm and stratum, (..., 2, S)."""
    treated = mass[..., 1, :] / mass.sum(axis=-2)
    low, high = clip
    treated = np.where(treated.real < low, low, np.where(treated.real > high, high, treated))
    of_arm = np.stack([1 - treated, treated], axis=-2)
    return np.asarray(of_arm[..., assigned, :].sum(axis=-2, keepdims=True) / of_arm)


def _main_effects(
    factors: dict[str, tuple[str, ...]], kept: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return columns that span the additive functions of the covariates on the strata kept."""
    columns = [np.ones(len(kept))]
    for labels in factors.values():
        columns += [np.equal(labels, level) * 1.0 for level in dict.fromkeys(labels)]
    design = np.stack(columns, axis=1)[kept]
    # orthonormal columns, as many as the rank
    basis, triangle, _ = linalg.qr(design, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.asarray(basis[:, size > 1e-9 * size[0]])


def _assigned(estimand: Any) -> list[int]:
    """Return the arms whose units an estimand averages over, or say what it must be."""
    if not isinstance(estimand, ATC | ATE | ATT):
        raise TypeError(f"estimand is {estimand!r}: it must be ATE(), ATT() or ATC()")
    if estimand.by is not None:
        raise ValueError(
            f"estimand is {estimand.name!r}: a closed form gives one number for all strata; leave "
            "`by` out, or ask the model"
        )
    return [("control", "treated").index(arm) for arm in estimand.assigned]


def _check(release: Any, group: Any) -> None:
    if not isinstance(release, MomentRelease):
        raise TypeError(
            f"release is a {type(release).__name__}: it must be a MomentRelease; the closed forms "
            "of a label release are debiased and centred_histogram_contrast"
        )
    groups = len(release.causal_workload.groups)
    if isinstance(group, bool) or not isinstance(group, int) or not 0 <= group < groups:
        raise ValueError(f"group is {group!r}: the workload's groups are 0 to {groups - 1}")


def _limits(clip: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in clip)
    except (TypeError, ValueError):
        raise TypeError(f"clip is {clip!r}: it must be two numbers such as (0.05, 0.95)") from None
    if not 0 <= low < high <= 1:
        raise ValueError(f"clip is {clip!r}: it must be two numbers, 0 <= low < high <= 1")
    return low, high
