"""Maximum-entropy laws, their moments and their density, against enumeration and dense algebra."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import optimize, stats

from dpcausal_bayes.models.maxent_density import maxent_logp
from dpcausal_bayes.models.maxent_laws import maxent_law, maxent_rows, prior_mean
from dpcausal_bayes.models.maxent_pilot import maxent_jacobian, maxent_pilot
from maxent_examples import LAYOUTS, Enumerated, coefficients, layout_of, workload_of

NAMES = pytest.mark.parametrize("name", LAYOUTS)


def dense_logp(form, records, c, released, variance, n):
    law = maxent_law(form, c)
    covariance = n * records.covariance(law) + np.diag(variance)
    return stats.multivariate_normal.logpdf(released, n * records.mean(law), covariance)


def problem(name, n=300, seed=1):
    """Coefficients, and a release of other ones."""
    form, records = LAYOUTS[name]
    rng = np.random.default_rng(seed)
    variance = rng.uniform(4, 9, len(records.order))
    table = records.draw(maxent_law(form, coefficients(form, seed=seed + 1)), n, rng)
    released = table + np.sqrt(variance) * rng.standard_normal(len(table))
    return form, records, coefficients(form, seed=seed + 2), released, variance, n


@NAMES
def test_law_is_of_the_family(name):
    """Log probabilities are sums of terms of one group each, linear in y but for one square."""
    form = LAYOUTS[name][0]
    law = Enumerated(form, coefficients(form))
    assert law.p.sum() == pytest.approx(1)
    for t in range(2):
        own = law.arm == t
        x, y = law.x[own], law.y[own]
        columns = [np.ones(len(y)), y, y**2]
        for g, size in enumerate(form.sizes):
            for k in range(1, size):
                columns += [x[:, g] == k, y * (x[:, g] == k)]
        design = np.array(columns, dtype=float).T
        fitted = design @ np.linalg.lstsq(design, np.log(law.p[own]))[0]
        np.testing.assert_allclose(fitted, np.log(law.p[own]), atol=1e-8)


@NAMES
def test_tilts_are_what_moves_the_outcome(name):
    form = LAYOUTS[name][0]
    c = coefficients(form)
    law = Enumerated(form, c)
    base = maxent_law(form, c).base[law.arm, law.point] + law.y * law.tilt
    cells = [np.exp(part).reshape(-1, len(form.grid)) for part in (base, np.log(law.p))]
    first, second = (part / part.sum(-1, keepdims=True) for part in cells)
    np.testing.assert_allclose(first, second, atol=1e-12)


@NAMES
def test_mean_map_and_covariance_are_those_of_all_records(name):
    form, records = LAYOUTS[name]
    c = coefficients(form)
    law, by_hand = maxent_law(form, c), Enumerated(form, c)
    h = by_hand.contributions()[:, records.order]
    mean = by_hand.p @ h
    np.testing.assert_allclose(records.mean(law), mean, atol=1e-13)
    covariance = (h * by_hand.p[:, None]).T @ h - np.outer(mean, mean)
    np.testing.assert_allclose(records.covariance(law), covariance, atol=1e-13)


@NAMES
def test_many_laws_at_once(name):
    form, records = LAYOUTS[name]
    c = coefficients(form, 6).reshape(2, 3, -1)
    law, one = maxent_law(form, c), maxent_law(form, c[1, 2])
    for found, expected in zip(law, one, strict=True):
        np.testing.assert_array_equal(found[1, 2], expected)
    np.testing.assert_allclose(records.covariance(law)[1, 2], records.covariance(one), atol=1e-15)


@NAMES
def test_density_is_that_of_dense_algebra_and_its_gradient_too(name):
    form, records, c, released, variance, n = problem(name)
    point = pt.vector()
    value = maxent_logp(form, records, point, released, variance, pt.as_tensor(float(n)))
    both = pytensor.function([point], [value, pytensor.grad(value, point)], mode="FAST_COMPILE")
    found, gradient = both(c)
    data = (released, variance, n)
    assert found == pytest.approx(dense_logp(form, records, c, *data), rel=1e-10)
    step = 1e-3 * form.scale

    def slope(width):
        moved = [
            [dense_logp(form, records, c + way * width * h, *data) for h in np.diag(step)]
            for way in (-1, 1)
        ]
        return (np.array(moved[1]) - moved[0]) / (2 * width * step)

    richardson = (slope(2) - 20 * slope(1) + 64 * slope(0.5)) / 45  # error of the sixth order
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(gradient, richardson, atol=1e-8 * scale, rtol=1e-7)


def test_large_tables_cost_few_digits():
    """n C is then ten thousand times the noise, and singular without it."""
    form, records, c, _, variance, n = problem("bounded", n=200_000)
    law = maxent_law(form, c)
    released = n * records.mean(law) + 5 * np.random.default_rng(0).standard_normal(len(variance))
    value = maxent_logp(form, records, c, released, variance, pt.as_tensor(float(n)))
    expected = dense_logp(form, records, c, released, variance, n)
    assert float(value.eval(mode="FAST_COMPILE")) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", ["bounded", "binary"])
def test_naive_density_takes_cells_for_tables_of_their_own(name):
    form, records, c, released, variance, n = problem(name)
    value = maxent_logp(
        form, records, c, released, 0 * variance, pt.as_tensor(float(n)), noise_aware=False
    )
    by_hand = Enumerated(form, c)
    h = by_hand.contributions()[:, records.order]
    second = n * (h * by_hand.p[:, None]).T @ h
    cell = np.arange(len(h.T)) // records.factor.shape[0]
    per_arm = len(cell) // 2
    if not form.binary:  # the arm's square is a cell of its own
        cell = np.concatenate([np.arange(per_arm) // 2, per_arm + np.arange(per_arm) // 2])
    second *= cell[:, None] == cell
    expected = stats.multivariate_normal.logpdf(released, n * by_hand.p @ h, second)
    assert float(value.eval(mode="FAST_COMPILE")) == pytest.approx(expected, rel=1e-10)


@NAMES
def test_tables_have_the_laws_moments(name):
    form, records = LAYOUTS[name]
    c, n, tables = coefficients(form), 50, 40_000
    law = maxent_law(form, np.broadcast_to(c, (tables, len(c))))
    drawn = records.draw(law, n, np.random.default_rng(3))
    one = maxent_law(form, c)
    mean, covariance = n * records.mean(one), n * records.covariance(one)
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(drawn.mean(0) - mean) < 5 * sd / tables**0.5 + 1e-9)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.05 * sd.max() ** 2)


@NAMES
def test_rows_follow_the_law(name):
    form = LAYOUTS[name][0]
    c, rows = coefficients(form), 200_000
    by_hand = Enumerated(form, c)
    arm, stratum, point = maxent_rows(maxent_law(form, c), rows, np.random.default_rng(4))
    shape = (2, *form.sizes, len(form.grid))
    seen = np.ravel_multi_index((arm, *stratum.T, point), shape)
    every = np.ravel_multi_index((by_hand.arm, *by_hand.x.T, by_hand.point), shape)
    expected = np.zeros(np.prod(shape))
    expected[every] = rows * by_hand.p
    count = np.bincount(seen, minlength=len(expected))
    enough = expected > 5
    square = ((count - expected)[enough] ** 2 / expected[enough]).sum()
    assert stats.chi2.sf(square, enough.sum() - 1) > 1e-4


@NAMES
def test_jacobian_is_that_of_the_mean_map(name):
    form, records = LAYOUTS[name]
    c = coefficients(form)
    found = maxent_jacobian(form, records, c)
    expected = optimize.approx_fprime(c, lambda c: records.mean(maxent_law(form, c)), 1e-7)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("binary", [False, True])
def test_hardly_any_noise_and_many_records_give_the_law_back(binary):
    form, records = layout_of(workload_of([3, 2, 4], binary=binary), points=17)
    c, n = coefficients(form, seed=6, width=0.3), 10**7
    law = maxent_law(form, c)
    variance = np.full(len(records.order), 1.0)
    found = maxent_pilot(form, records, n * records.mean(law), variance, n)
    fitted = maxent_law(form, found.location)
    for one, other in zip(fitted[:2], law[:2], strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
    np.testing.assert_allclose(fitted.cell, law.cell, atol=2e-4)


def test_pilot_finds_the_mode_and_makes_it_round():
    form, records, _, released, variance, n = problem("bounded", n=3000)
    first = maxent_pilot(form, records, released, variance, n)

    def log_posterior(c):
        gap = (c - prior_mean(form, c, np)) / form.scale
        prior = -0.5 * ((1 - form.tails.sum(0)) * gap**2).sum()
        for group in form.tails.astype(bool):
            prior += stats.multivariate_t(np.zeros(group.sum()), df=form.degrees).logpdf(gap[group])
        return prior + dense_logp(form, records, c, released, variance, n)

    h = 0.05
    steps = h * first.scale.T
    best = log_posterior(first.location)
    ahead, behind = (
        np.array([log_posterior(first.location + way * step) for step in steps]) for way in (1, -1)
    )
    # of the covariance's determinant, which the pilot leaves out, little may be left
    assert np.abs((ahead - behind) / (2 * h)).max() < 0.3
    curvature = -(ahead - 2 * best + behind) / h**2
    assert 0.5 < np.median(curvature) < 1.5
