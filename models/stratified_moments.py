"""The model of a moment release over public strata: ATE, ATT and subgroup effects."""

from __future__ import annotations

from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt

from dpcausal_bayes.laplace_mechanism import MomentMechanism
from dpcausal_bayes.laws import number
from dpcausal_bayes.models.coefficients import coefficients
from dpcausal_bayes.models.measurement import pooling
from dpcausal_bayes.models.moment_likelihood import moment_likelihood
from dpcausal_bayes.models.moment_pilot import pilot
from dpcausal_bayes.models.priors import MomentPriors
from dpcausal_bayes.models.strata import stratum_space
from dpcausal_bayes.models.stratum_laws import StratumLaw
from dpcausal_bayes.models.surfaces import Surfaces, prior_mean, stratum_law, surfaces
from dpcausal_bayes.moment_releases import MomentRelease, check_same_workload
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["stratified_moments"]


def stratified_moments(
    release: MomentRelease,
    *,
    group: int = 0,
    probability: float | None = None,
    priors: MomentPriors | None = None,
    noise_aware: bool = True,
) -> pm.Model:
    r"""Build the model of a moment release over the strata of one of its groups.

    Arm t, stratum s, outcome scaled to [-1, 1]; four surfaces over the strata: log share
    :math:`\ell`, log odds of treatment e, baseline b and effect d.

    .. math::
        \pi_{ts} &\propto \exp(\ell_s \mp e_s / 2), \qquad
        \mu_{ts} = \tanh(b_s \mp d_s / 2), \qquad
        v_{ts} = r_t (1 - \mu_{ts}^2) \\
        f_s &= f_0 + (M c)_s + (I c')_s, \quad f_0 \sim N(0, \cdot^2), \quad
        c \sim N(m_f, \tau_f^2), \quad c' \sim N(m'_f, \tau_f'^2)
        \quad (f = \ell, e, b, d;\ \ell_0 = 0) \\
        m_\ell &= m_e = 0, \quad m_b = \kappa c_e + \kappa' c_{e^2}, \quad
        m_d = \gamma c_e + \gamma' c_{e^2} \\
        \hat a &\sim N(n\,m(\pi, \mu, r),\; n\,C(\pi, \mu, r) + D)

    M holds contrasts of each crossed covariate, I their interaction. The levels :math:`f_0` have
    wide priors and are pooled with nothing, so that the average effect is not shrunk; what varies
    over strata is pooled, and that of the means towards a multiple of the propensity's. Pooling
    baseline and propensity apart would take their alignment, the confounding, for noise and leave
    part of it in the effect; the slope :math:`\kappa` lets them go together (Hahn et al. 2020).
    :math:`c_{e^2}` are the coefficients of the square of e less its level: the bends
    :math:`\kappa', \gamma'` are for means that are additive on another scale than that of artanh,
    which a slope alone would pull at the ends, where one arm has few records.

    Given the law of a record the confidential moments are integrated out as normal, with their
    exact mean and covariance (third and fourth moments are the beta law's). The noise is as
    released: normal, or Laplace, which is normal given an exponential variable for each number. A
    binary outcome has :math:`r = 1` and counts in place of sums. Other groups of the workload
    re-measure what they share with these strata, at least the arm totals.

    Parameters
    ----------
    release : MomentRelease
    group : int
        Which group of the workload holds the strata.
    probability : float, optional
        Of treatment, in a randomised study where it is public and the same for everybody:
        :math:`e_s` is then its log odds, in all strata, and nothing is learnt of it from noise.
        A share that is estimated from the release is no such fact.
    priors : MomentPriors, optional
    noise_aware : bool
        False takes noisy moments for true ones: the naive analysis, for comparison.

    Returns
    -------
    pymc.Model
        Free variables ``coefficient_offset`` (term) and, with more than one stratum, ``spread``
        (surface); of Laplace noise ``noise_mixing`` (noise); deterministic ``coefficient`` (term),
        ``share`` and ``mean`` (arm, stratum), ``dispersion`` (arm) unless binary; observed
        ``release`` (query). ``mean`` is on the scaled outcome; `dpcausal_bayes.estimate` returns to
        its units.

    Raises
    ------
    TypeError
        A release of another kind, or priors of another model.
    ValueError
        A group that the workload does not have, a probability that is not between 0 and 1.

    References
    ----------
    Balle and Wang (2018), arXiv:1805.06530, for the noise; Hahn, Murray and Carvalho (2020),
    "Bayesian regression tree models for causal inference: regularization, confounding, and
    heterogeneous effects", for confounding that shrinkage leaves; Raisa et al. (2023), "Noise-aware
    statistical inference with differentially private synthetic data", for inference that knows it.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> from dpcausal_bayes.laplace_mechanism import LaplaceMechanism
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.simulate import simulate_moments
    >>> from dpcausal_bayes.workloads import CausalWorkload
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10),
    ...                 covariates=[Categories("sex", ["f", "m"])])
    >>> workload = CausalWorkload(schema, strata=["sex"])
    >>> table = pd.DataFrame({"t": [0, 1] * 50, "y": range(100), "sex": ["f", "f", "m", "m"] * 25})
    >>> mechanism = LaplaceMechanism.calibrated(workload, epsilon=1.0)
    >>> model = stratified_moments(simulate_moments(table, workload, mechanism, seed=1))
    >>> [variable.name for variable in model.free_RVs]
    ['spread', 'coefficient_offset', 'noise_mixing']
    """
    if not isinstance(release, MomentRelease):
        raise TypeError(
            f"release is a {type(release).__name__}: stratified_moments models a MomentRelease; "
            "read one with load_release"
        )
    workload = release.causal_workload
    whole = isinstance(group, int) and not isinstance(group, bool)
    if not whole or not 0 <= group < len(workload.groups):
        raise ValueError(
            f"group is {group!r}: the workload has groups 0 to {len(workload.groups) - 1}, "
            f"{list(workload.groups)}"
        )
    priors = MomentPriors() if priors is None else priors
    if not isinstance(priors, MomentPriors):
        raise TypeError(f"priors is a {type(priors).__name__}: give MomentPriors(...)")
    space = stratum_space([len(c.labels) for c in workload.covariates(group)])
    if probability is not None and not 0 < number(probability, "probability") < 1:
        raise ValueError(
            f"probability is {probability:g}: that of treatment must lie strictly between 0 and 1; "
            "leave it out unless treatment was randomised with a public one"
        )
    form = surfaces(space, priors, binary=workload.binary, probability=probability)
    coords = {
        "arm": workload.schema.arms,
        "stratum": workload.strata(group),
        "term": form.labels,
        **({"surface": form.spreads} if form.spreads else {}),
    }
    design = _Design(workload, release.mechanism, form, group, noise_aware)
    data = design(release)
    with pm.Model(coords=coords) as model:
        law = _law(form, data, priors)
        moment_likelihood(release, group, law, data, noise_aware=noise_aware)
    model.release_data = design
    return model


class _Design(NamedTuple):
    """What another release of the same workload changes in a model: its data."""

    workload: CausalWorkload
    mechanism: MomentMechanism
    form: Surfaces
    group: int
    noise_aware: bool

    def __call__(self, release: MomentRelease) -> dict[str, Any]:
        check_same_workload(release, self.workload)
        if type(release.mechanism) is not type(self.mechanism):
            raise ValueError(
                f"release has a {type(release.mechanism).__name__}, the model is of a "
                f"{type(self.mechanism).__name__}: build a model from this release"
            )
        if len(self.workload.groups) > 1 and release.mechanism != self.mechanism:
            raise ValueError(
                "release has noise of another scale than the model, whose groups were pooled for "
                "that scale: build a model from this release"
            )
        pooled = pooling(release, self.group)
        measured = pooled.measurement(release.noisy)
        first = pilot(self.form, measured, release.n)
        return {
            "released": measured.value,
            "records": float(release.n),
            "noise_variance": pooled.variance * self.noise_aware,
            "pilot_location": first.location,
            "pilot_scale": first.scale,
            "pilot_centring": first.centring,
        }


def _law(form: Surfaces, data: dict[str, Any], priors: MomentPriors) -> StratumLaw:
    """Add the coefficients and what they make."""
    coefficient = coefficients(
        form, data, priors.spread_sd, dim="surface", mean=lambda c, xp: prior_mean(form, c, xp)
    )
    law: Any = stratum_law(form, coefficient, pt)
    cells = ("arm", "stratum")
    return StratumLaw(
        pm.Deterministic("share", law.share, dims=cells),
        pm.Deterministic("mean", law.mean, dims=cells),
        None
        if law.dispersion is None
        else pm.Deterministic("dispersion", law.dispersion, dims="arm"),
    )
