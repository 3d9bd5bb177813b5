"""Regression in each arm from noisy second moments: many covariates, one release."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.models.gram_density import gram_likelihood
from dpcausal_bayes.models.gram_laws import GramForm, gram_form, gram_law
from dpcausal_bayes.models.gram_pilot import gram_pilot
from dpcausal_bayes.models.priors import GramPriors
from dpcausal_bayes.models.student_prior import whitened_student
from dpcausal_bayes.moment_releases import MomentRelease, check_same_workload

__all__ = ["gram_regression"]


NEGLIGIBLE = 1e-3  # records: noise of the naive analysis, so that its posterior is a density


def gram_regression(
    release: MomentRelease, *, priors: GramPriors | None = None, noise_aware: bool = True
) -> pm.Model:
    r"""Build the model of a second-order release.

    Latent are the **confidential** moments of :math:`(\phi, y)`: of each arm t its share
    :math:`\pi_t` of the n records, the means :math:`m_t` and the covariance :math:`C_t`, positive
    definite by construction, see `dpcausal_bayes.models.gram_laws`. With the noise as released,

    .. math::
        q_{tij} \sim N\big(n\,\pi_t\,(C_{tij} + m_{ti} m_{tj}),\; s^2\big)

    for the products that the workload asks for, and alike for means and shares. Coefficients have
    normal and Student priors with the scales of `GramPriors`.

    What the table would have said is then known up to noise. How far it is from the population is
    drawn outside the sampler, by `dpcausal_bayes.estimate`: see
    `dpcausal_bayes.gram_means`.

    Parameters
    ----------
    release : MomentRelease
        Of a `GramWorkload`.
    priors : GramPriors, optional
    noise_aware : bool
        False takes noisy moments for true ones: the naive analysis, for comparison. What is then
        left is sampling, and the intervals are too short.

    Returns
    -------
    pymc.Model
        Free variable ``coefficient`` (term); deterministic ``share`` (arm) and ``mean``
        (arm, column), of columns in [-1, 1]; observed ``release`` (query).

    Raises
    ------
    TypeError
        A release of another kind, or priors of another model.
    ValueError
        A naive analysis of noisy moments that no table has, as their covariance is not positive
        definite.

    References
    ----------
    Bernstein and Sheldon (2019), "Differentially private Bayesian linear regression", for
    inference from noisy second moments.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.simulate import simulate_moments
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 10),
    ...                 covariates=[Bounded("age", 0, 100), Categories("sex", ["f", "m"])])
    >>> table = pd.DataFrame({"t": [0, 1] * 50, "y": 5.0, "age": range(100),
    ...                       "sex": ["f", "f", "m", "m"] * 25})
    >>> workload = GramWorkload(schema)
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-5)
    >>> model = gram_regression(simulate_moments(table, workload, mechanism, seed=1))
    >>> model.free_RVs, model.coords["column"]
    ([coefficient], ('age', 'sex=m', 'y'))
    """
    if not isinstance(release, MomentRelease) or not isinstance(release.workload, GramWorkload):
        got = type(getattr(release, "workload", release)).__name__
        raise TypeError(
            f"release is of a {got}: gram_regression models a MomentRelease of a GramWorkload; for "
            "a CausalWorkload use stratified_moments"
        )
    priors = GramPriors() if priors is None else priors
    if not isinstance(priors, GramPriors):
        raise TypeError(f"priors is a {type(priors).__name__}: give GramPriors(...)")
    workload = release.workload
    form = gram_form(workload, priors)
    design = _Design(workload, form, noise_aware)
    data = design(release)
    coords = {
        "arm": workload.schema.arms,
        "column": workload.columns,
        "term": form.labels,
        "query": workload.queries,
    }
    with pm.Model(coords=coords) as model:
        pm.Data("noise_aware", float(noise_aware))
        location = pm.Data("pilot_location", data["pilot_location"], dims="term")
        scale = pm.Data("pilot_scale", data["pilot_scale"])
        coefficient = whitened_student(
            "coefficient",
            form.centre,
            form.scale,
            form.tails,
            form.degrees,
            location,
            scale,
            dims="term",
        )
        law = gram_law(form, coefficient, pt)
        pm.Deterministic("share", law.share, dims="arm")
        pm.Deterministic("mean", law.mean, dims=("arm", "column"))
        gram_likelihood(form, law, data)
    model.release_data = design
    return model


class _Design(NamedTuple):
    """What another release of the same workload changes in a model: its data."""

    workload: GramWorkload
    form: GramForm
    noise_aware: bool

    def __call__(self, release: MomentRelease) -> dict[str, Any]:
        check_same_workload(release, self.workload)
        noise_sd = release.noise_scale
        if not self.noise_aware:
            _check_definite(release.noisy, self.workload)
            noise_sd = np.full_like(noise_sd, NEGLIGIBLE)
        first = gram_pilot(self.form, release.noisy, noise_sd, release.n)
        return {
            "released": release.noisy,
            "noise_sd": noise_sd,
            "records": float(release.n),
            "pilot_location": first.location,
            "pilot_scale": first.scale,
        }


def _check_definite(noisy: NDArray[np.float64], workload: GramWorkload) -> None:
    """Raise unless noisy moments are those of some table."""
    for arm, second in zip(workload.schema.arms, workload.gram(noisy), strict=True):
        if np.linalg.eigvalsh(second)[0] <= 0:
            raise ValueError(
                f"noise_aware is False, but no table has these noisy moments: those of {arm} are "
                "not positive definite; leave noise_aware out"
            )
