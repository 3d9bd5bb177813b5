"""The second-order model's pieces: laws, density with gradient, pilot."""

import numpy as np
import pandas as pd
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from dpcausal_bayes.columns import Arm, Binned, Bounded
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_means import ConfidentialGram, Levels, draw_means
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.models.gram_density import expected, gram_logp
from dpcausal_bayes.models.gram_laws import covariance, gram_form, gram_law
from dpcausal_bayes.models.gram_pilot import gram_pilot
from dpcausal_bayes.models.gram_regression import gram_regression
from dpcausal_bayes.models.priors import GramPriors, MomentPriors
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.workloads import CausalWorkload
from gram_examples import PANDAS, SCHEMA, WORKLOADS

FORMS = {name: gram_form(workload, GramPriors()) for name, workload in WORKLOADS.items()}


def coefficients(form, n=None, seed=0):
    shape = (len(form.centre),) if n is None else (n, len(form.centre))
    return np.random.default_rng(seed).normal(form.centre, form.scale, shape)


def log_prior(form, c):
    """Normal, but for a column's rows: those are jointly Student t."""
    u = (c - form.centre) / form.scale
    rows = [np.flatnonzero(group) for group in form.tails]
    others = np.setdiff1d(np.arange(u.shape[-1]), np.concatenate([[], *rows]))
    found = stats.norm.logpdf(u[..., others]).sum(-1) - np.log(form.scale).sum()
    for own in rows:
        law = stats.multivariate_t(np.zeros(len(own)), np.eye(len(own)), df=form.degrees)
        found = found + law.logpdf(u[..., own])
    return found


def release_of(name="cube", epsilon=1.0, seed=1):
    workload = WORKLOADS[name]
    mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=1e-6)
    return simulate_moments(PANDAS, workload, mechanism, seed=seed)


@pytest.mark.parametrize("name", FORMS)
def test_draws_of_the_prior_are_moments_of_such_columns(name):
    form = FORMS[name]
    law = gram_law(form, coefficients(form, 300), np)
    c = covariance(form, law)
    assert np.linalg.eigvalsh(c).min() > 0
    variance = np.diagonal(c, axis1=-2, axis2=-1)
    room = 1 - law.mean**2
    np.testing.assert_allclose(variance[..., ~form.numeric], room[..., ~form.numeric], rtol=1e-9)
    assert np.all(variance[..., form.numeric] < room[..., form.numeric])
    np.testing.assert_allclose(law.share.sum(-1), 1)


@pytest.mark.parametrize("outcome", [False, True])
def test_what_a_column_shares_with_others_does_not_grow_with_their_number(outcome):
    """Beforehand, and in the median: of the last covariate, and of the outcome."""
    shared = []
    for d in (4, 40):
        fields = [Bounded(f"x{j}", 0, 1) for j in range(d)]
        schema = Schema(arm=SCHEMA.arm, outcome=Bounded("y", 0, 1), covariates=fields)
        form = gram_form(GramWorkload(schema), GramPriors())
        rng = np.random.default_rng(1)
        stretch = np.sqrt(4 / rng.chisquare(4, (400, len(form.tails)))) @ form.tails
        stretch += 1 - form.tails.sum(0)  # the others are normal
        c = form.centre + form.scale * stretch * rng.normal(size=stretch.shape)
        s = covariance(form, gram_law(form, c, np))[:, 0]
        last = d if outcome else d - 1
        inner, cross = s[:, :last, :last], s[:, :last, last]
        explained = (cross * np.linalg.solve(inner, cross[..., None])[..., 0]).sum(-1)
        shared.append(np.median(explained / s[:, last, last]))
    assert shared[0] == pytest.approx(shared[1], abs=0.06)
    assert (0.6 < shared[1] < 0.8) if outcome else (0.3 < shared[1] < 0.5)


@pytest.mark.parametrize("name", FORMS)
def test_entries_that_are_no_query_follow_from_the_others(name):
    """Squares of -1 and +1, levels of one covariate: the law agrees with how they are filled."""
    form, workload = FORMS[name], WORKLOADS[name]
    law = gram_law(form, coefficients(form), np)
    v = np.concatenate([np.ones((2, 1)), law.mean], axis=1)
    second = v[:, :, None] * v[:, None, :]
    second[:, 1:, 1:] += covariance(form, law)
    filled = workload.gram(expected(form, law))
    np.testing.assert_allclose(filled, law.share[:, None, None] * second, atol=1e-12)


@pytest.mark.parametrize("name", FORMS)
def test_density_and_gradient(name):
    form = FORMS[name]
    c = coefficients(form, seed=3)
    rng = np.random.default_rng(4)
    mean = 50 * expected(form, gram_law(form, coefficients(form, seed=5), np))
    sd = rng.uniform(0.5, 2, len(mean))
    released = rng.normal(mean, sd)

    def log_density(c):
        law = gram_law(form, c, np)
        return stats.norm.logpdf(released, 50 * expected(form, law), sd).sum()

    point = pt.vector()
    value = gram_logp(form, gram_law(form, point, pt), released, sd, pt.as_tensor(50.0))
    both = pytensor.function([point], [value, pytensor.grad(value, point)], mode="FAST_COMPILE")
    found, gradient = both(c)
    assert found == pytest.approx(log_density(c), rel=1e-12)
    step = 1e-6 * np.eye(len(c))
    numeric = [(log_density(c + h) - log_density(c - h)) / 2e-6 for h in step]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_pilot_finds_the_mode_and_makes_it_round(epsilon):
    release, form = release_of("ball", epsilon), FORMS["ball"]
    first = gram_pilot(form, release.noisy, release.noise_scale, release.n)

    def log_posterior(c):
        residual = release.noisy - release.n * expected(form, gram_law(form, c, np))
        fit = ((residual / release.noise_scale) ** 2).sum(-1)
        return log_prior(form, c) - 0.5 * fit

    # in the sampler's coordinates the slope at the mode is nothing and the curvature one
    h = 0.05
    steps = h * first.scale.T
    ahead, behind = (log_posterior(first.location + way * steps) for way in (1, -1))
    best = log_posterior(first.location)
    assert np.abs((ahead - behind) / (2 * h)).max() < 0.1
    curvature = -(ahead - 2 * best + behind) / h**2
    assert 0.5 < np.median(curvature) < 1.5


def test_pilot_of_hardly_any_noise_finds_the_table():
    workload = WORKLOADS["cube"]
    exact = release_of("cube", epsilon=60.0)
    form = FORMS["cube"]
    first = gram_pilot(form, exact.noisy, exact.noise_scale, exact.n)
    fitted = exact.n * expected(form, gram_law(form, first.location, np))
    assert np.sqrt((((fitted - exact.noisy) / exact.noise_scale) ** 2).mean()) < 1
    assert workload.gram(fitted).shape == (2, 9, 9)


@pytest.mark.parametrize("seed", range(6))
def test_pilot_does_not_stray_into_flat_tails(seed):
    """Laws of the prior, heavy tails and all, and little noise: the mode is no worse than truth."""
    form, n, rng = FORMS["cube"], 20_000, np.random.default_rng(seed)
    stretch = np.sqrt(form.degrees / rng.chisquare(form.degrees, len(form.tails)))
    c = form.centre + (coefficients(form, seed=seed) - form.centre) * (
        1 - form.tails.sum(0) + stretch @ form.tails
    )
    sd = np.full(len(form.pairs) * 2, 4.0)
    released = rng.normal(n * expected(form, gram_law(form, c, np)), sd)

    def log_posterior(c):
        fit = (released - n * expected(form, gram_law(form, c, np))) / sd
        return log_prior(form, c) - 0.5 * (fit**2).sum()

    found = gram_pilot(form, released, sd, n).location
    assert log_posterior(found) > log_posterior(c)


def test_names_and_dims():
    release = release_of("ball")
    model = gram_regression(release)
    assert [v.name for v in model.free_RVs] == ["coefficient"]
    assert {v.name: model.named_vars_to_dims[v.name] for v in model.deterministics} == {
        "share": ("arm",),
        "mean": ("arm", "column"),
    }
    assert model.named_vars_to_dims["release"] == ("query",)
    assert tuple(model.coords["query"]) == release.workload.queries
    assert tuple(model.coords["column"]) == release.workload.columns


def test_the_models_density_is_prior_times_noise():
    release, form = release_of("ball"), FORMS["ball"]
    model = gram_regression(release)
    c = coefficients(form, seed=7) * 0.1
    z = np.linalg.solve(model["pilot_scale"].get_value(), c - model["pilot_location"].get_value())
    point = {"coefficient_whitening__": z}
    logp = model.compile_logp(jacobian=False, mode="FAST_COMPILE")(point)
    by_hand = log_prior(form, c)
    mean = release.n * expected(form, gram_law(form, c, np))
    by_hand += stats.norm.logpdf(release.noisy, mean, release.noise_scale).sum()
    assert logp == pytest.approx(by_hand, rel=1e-9)


def test_another_release_brings_its_own_data():
    first, second = release_of("ball", seed=1), release_of("ball", seed=2)
    model, other = gram_regression(first), gram_regression(second)
    for name, value in model.release_data(second).items():
        np.testing.assert_array_equal(value, other[name].get_value())
    with pytest.raises(ValueError, match="another design"):
        model.release_data(release_of("cube"))


def test_naive_analysis_takes_noisy_moments_for_true_ones():
    exact = release_of("cube", epsilon=60.0)
    naive = gram_regression(exact, noise_aware=False)
    assert float(naive["noise_aware"].get_value()) == 0
    form = FORMS["cube"]
    law = gram_law(form, naive["pilot_location"].get_value(), np)
    fitted, sums = exact.n * expected(form, law), exact.workload.pairs[:, 1] > 0
    np.testing.assert_allclose(fitted.reshape(2, -1).sum(0)[0], exact.n)  # which is public
    np.testing.assert_allclose(fitted[np.tile(sums, 2)], exact.noisy[np.tile(sums, 2)], atol=0.01)
    with pytest.raises(ValueError, match=r"no table has these noisy moments: those of control"):
        gram_regression(release_of("cube", epsilon=0.05), noise_aware=False)


def test_refusals():
    causal = CausalWorkload(SCHEMA, strata=["sex"])
    mechanism = GaussianMechanism.calibrated(causal, epsilon=1.0, delta=1e-6)
    with pytest.raises(TypeError, match=r"release is of a CausalWorkload.*stratified_moments"):
        gram_regression(simulate_moments(PANDAS, causal, mechanism, seed=1))
    with pytest.raises(TypeError, match="release is of a str"):
        gram_regression("release")
    with pytest.raises(TypeError, match=r"priors is a MomentPriors: give GramPriors"):
        gram_regression(release_of("ball"), priors=MomentPriors())
    with pytest.raises(ValueError, match=r"GramPriors\.row_sd is 0"):
        GramPriors(row_sd=0.0)


@pytest.mark.parametrize("copies", [1, 4])
def test_copies_of_a_confounder_are_counted_once(copies):
    """True effect 1, 1.085 after cutting the confounder in five, 1.82 without adjustment."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=200_000)
    t = (rng.random(x.size) < 1 / (1 + np.exp(-x))).astype(int)
    names = [f"x{j}" for j in range(copies)]
    edges = [-9, -0.8416, -0.2533, 0.2533, 0.8416, 9]
    schema = Schema(
        arm=Arm("t", control=0, treated=1),
        outcome=Bounded("y", -8, 9),
        covariates=[Binned(name, edges) for name in names],
    )
    workload = GramWorkload(schema)
    table = pd.DataFrame(dict.fromkeys(names, x)).assign(t=t, y=t + x + rng.normal(size=x.size))
    mechanism = GaussianMechanism.calibrated(workload, epsilon=60.0, delta=1e-6)
    release = simulate_moments(table, workload, mechanism, seed=1)
    form = gram_form(workload, GramPriors())
    mode = gram_pilot(form, release.noisy, release.noise_scale, release.n).location
    law = gram_law(form, mode, np)
    moments = ConfidentialGram(
        release.n * law.share[None], law.mean[None], covariance(form, law)[None]
    )
    mean, weight, *_ = draw_means(moments, Levels(workload), "table", rng)
    effect = 8.5 * (weight[..., None, :] * mean)[0, ..., 0].sum(0) @ [-1, 1]
    assert abs(effect - 1.085) < 0.02
