"""Where the sampler starts: derivatives, a mode, and releases that make no sense."""

import msgspec
import numpy as np
import pytest
from scipy import optimize

from dpcausal_bayes.models.measurement import pooling
from dpcausal_bayes.models.moment_pilot import _jacobian, _objective, pilot
from dpcausal_bayes.models.priors import MomentPriors
from dpcausal_bayes.models.strata import stratum_space
from dpcausal_bayes.models.stratum_laws import record_moments
from dpcausal_bayes.models.surfaces import prior_mean, stratum_law, surfaces
from moment_oracle import STRATA, dense_moments, make_release

DESIGNS = [(n_strata, binary) for n_strata in STRATA for binary in (False, True)]


def form_of(release, group=0, priors=None):
    workload = release.workload
    space = stratum_space([len(c.labels) for c in workload.covariates(group)])
    return surfaces(space, priors or MomentPriors(), binary=workload.binary)


def look(release, group=0):
    form = form_of(release, group)
    return form, pilot(form, pooling(release, group).measurement(release.noisy), release.n)


def coefficients(form, found, sampled):
    """What the sampler's coordinates mean at the spreads' medians."""
    mean = prior_mean(form, sampled, np)  # of others: parents and slopes are as they are sampled
    return mean + sampled - found.centring * mean


def log_density(form, release, found, sampled, group=0, fixed=None):
    """The posterior's at the spreads' medians, from dense matrices; or at a fixed covariance."""
    coefficient = coefficients(form, found, sampled)
    residual, covariance = expected(form, release, coefficient, group)
    if fixed is not None:
        covariance = fixed
    misfit = residual @ np.linalg.solve(covariance, residual) + np.linalg.slogdet(covariance)[1]
    pull = (coefficient - prior_mean(form, coefficient, np)) / form.scale
    return -0.5 * misfit - 0.5 * pull @ pull


def expected(form, release, coefficient, group=0):
    """Pooled moments less their mean, and their covariance."""
    mean, covariance = dense_moments(*stratum_law(form, coefficient, np))
    measured = pooling(release, group).measurement(release.noisy)
    return measured.value - release.n * mean, release.n * covariance + measured.noise


def in_posterior_units(found, function, step=1e-4):
    """Gradient of a function of the coordinates, in units of the pilot's own scales."""
    ahead, behind = (
        [function(found.location + sign * step * axis) for axis in found.scale.T]
        for sign in (1, -1)
    )
    return (np.array(ahead) - np.array(behind)) / (2 * step)


@pytest.mark.parametrize(("n_strata", "binary"), DESIGNS)
def test_jacobian_is_the_slope_of_a_record_s_contribution(n_strata, binary):
    form = form_of(make_release(STRATA[n_strata], binary=binary))
    rng = np.random.default_rng(0)
    coefficient, step = rng.normal(size=len(form.centre)), 1e-6

    def contribution(c):
        return record_moments(stratum_law(form, c, np), n_strata, np).mean

    slopes = [
        (contribution(coefficient + axis) - contribution(coefficient - axis)) / (2 * step)
        for axis in step * np.eye(len(coefficient))
    ]
    np.testing.assert_allclose(_jacobian(form, coefficient), np.array(slopes).T, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 5.0])
@pytest.mark.parametrize(("n_strata", "binary"), DESIGNS)
def test_location_is_the_mode_but_for_a_small_part_of_its_width(n_strata, binary, epsilon):
    # Gauss and Newton take no account of how the covariance moves: a known, small difference.
    release = make_release(STRATA[n_strata], n=5000, binary=binary, epsilon=epsilon)
    form, found = look(release)
    slope = in_posterior_units(found, lambda u: log_density(form, release, found, u))
    assert np.abs(slope).max() < 0.1


@pytest.mark.parametrize("binary", [False, True])
def test_no_coefficients_are_much_better_even_where_full_steps_go_too_far(binary):
    release = make_release(STRATA[6], n=300, binary=binary, epsilon=0.3)
    form, found = look(release)

    def drop(z):
        at = found.location + found.scale @ z
        return log_density(form, release, found, found.location) - log_density(
            form, release, found, at
        )

    best = optimize.minimize(drop, np.zeros(len(form.centre)), options={"maxiter": 20})
    assert best.fun > -0.05


@pytest.mark.parametrize(("n_strata", "binary"), DESIGNS)
def test_fitted_moments_balance_the_prior(n_strata, binary):
    """What the steps do solve: weighted residual against pull of the prior."""
    release = make_release(STRATA[n_strata], n=5000, binary=binary)
    form, found = look(release)
    _, fixed = expected(form, release, coefficients(form, found, found.location))
    slope = in_posterior_units(found, lambda u: log_density(form, release, found, u, fixed=fixed))
    assert np.abs(slope).max() < 0.03


@pytest.mark.parametrize("n", [500, 50_000])  # few coefficients are sampled as they are, or all
@pytest.mark.parametrize(("n_strata", "binary"), DESIGNS)
def test_scale_makes_the_posterior_round(n_strata, binary, n):
    release = make_release(STRATA[n_strata], n=n, binary=binary)
    form, found = look(release)
    # with few records the prior's products, slope times coefficient, are seen
    tolerance = 0.5 if n == 500 else 0.05
    assert np.all(np.tril(found.scale, -1) == 0)
    middle = log_density(form, release, found, found.location)
    for direction in np.random.default_rng(0).normal(size=(12, len(form.centre))):
        step = 0.01 * found.scale @ direction / np.linalg.norm(direction)
        ahead, behind = (
            log_density(form, release, found, found.location + s * step) for s in (1, -1)
        )
        np.testing.assert_allclose((ahead - 2 * middle + behind) / 0.01**2, -1, atol=tolerance)


@pytest.mark.parametrize("binary", [False, True])
def test_with_much_data_and_little_noise_the_location_is_the_truth(binary):
    release = make_release(STRATA[6], n=10**6, epsilon=20.0, binary=binary)
    form, found = look(release)
    law = stratum_law(form, coefficients(form, found, found.location), np)
    cells = release.cells() / release.n  # of a million records: within 0.01 of the population
    mass = cells.sum(-1) if binary else cells[..., 0]
    outcome = cells[..., 1] - cells[..., 0] if binary else cells[..., 1]
    np.testing.assert_allclose(law.share, mass, atol=2e-3)
    np.testing.assert_allclose(law.mean, outcome / mass, atol=2e-2)
    if not binary:
        np.testing.assert_allclose(law.dispersion, 0.2, atol=0.02)


def test_centring_says_who_speaks():
    form, quiet = look(make_release(STRATA[6], epsilon=0.001))
    _, loud = look(make_release(STRATA[6], n=10**6, epsilon=20.0))
    varying = form.spread_of < len(form.spreads)
    assert np.all(quiet.centring[varying] == 0)
    assert np.mean(loud.centring[varying]) > 0.7
    for found in (quiet, loud):
        assert np.all(found.centring[~varying] == 1)
        for spread in range(len(form.spreads)):
            assert len(set(found.centring[form.spread_of == spread])) == 1


def test_another_group_is_modelled_over_its_own_strata():
    release = make_release({"a": 3, "b": 2}, groups=["b", ["a", "b"]], n=20_000, epsilon=5.0)
    form, found = look(release, group=0)
    law = stratum_law(form, coefficients(form, found, found.location), np)
    assert law.share.shape == (2, 2)
    np.testing.assert_allclose(law.share, release.cells(0)[..., 0] / release.n, atol=0.01)


def with_values(release, values):
    values = np.asarray(np.broadcast_to(values, release.values.shape), dtype=np.int64)
    return msgspec.structs.replace(release, values=values)


NONSENSE = {
    "zeros": lambda release: 0,
    "negative masses": lambda release: -(2**40),
    "far beyond n": lambda release: 2**50,
    "all signs": lambda release: 2**45 * (-1) ** np.arange(len(release.values)),
    "one cell has all": lambda release: (
        release.n * release.lattice * (release.values == release.values.max())
    ),
}


@pytest.mark.parametrize("groups", [None, ["a", ["b", "a"]]])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("epsilon", [1e-4, 30.0])
@pytest.mark.parametrize("n", [1, 300, 10**8])
@pytest.mark.parametrize("nonsense", [*NONSENSE, None])
def test_senseless_releases_give_finite_coordinates(nonsense, n, epsilon, binary, groups):
    release = make_release(STRATA[6], groups=groups, n=min(n, 300), epsilon=epsilon, binary=binary)
    release = msgspec.structs.replace(release, n=n)
    if nonsense:
        release = with_values(release, NONSENSE[nonsense](release))
    form, found = look(release)
    for part in found:
        assert np.isfinite(part).all()
    assert np.all(np.diag(found.scale) > 0)
    assert np.all((found.centring >= 0) & (found.centring <= 1))
    measured = pooling(release, 0).measurement(release.noisy)
    at = coefficients(form, found, found.location)
    start, end = (_objective(form, measured, n, c)[0] for c in (form.centre, at))
    assert end >= start


@pytest.mark.parametrize("sd", [1e-6, 1e6])
@pytest.mark.parametrize("n_strata", STRATA)
def test_extreme_priors_give_finite_coordinates(n_strata, sd):
    names = [name for name in MomentPriors.__struct_fields__ if name != "dispersion_centre"]
    release = make_release(STRATA[n_strata])
    form = form_of(release, priors=MomentPriors(**dict.fromkeys(names, sd)))
    found = pilot(form, pooling(release, 0).measurement(release.noisy), release.n)
    for part in found:
        assert np.isfinite(part).all()
