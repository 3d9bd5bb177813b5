"""The stratified model: names, priors, density and gradient."""

import msgspec
import numpy as np
import pymc as pm
import pytest
from pytensor.compile.mode import Mode
from scipy.stats import kstest, lognorm, multivariate_normal, norm

from dpcausal_bayes import models
from dpcausal_bayes.models.strata import stratum_space
from moment_oracle import STRATA, dense_moments, dense_pooling, make_release

INTERPRETED = Mode(linker="py", optimizer="fast_compile")
DESIGNS = [(n_strata, binary) for n_strata in STRATA for binary in (False, True)]
FIXED = {  # prior scales that are not spreads
    "propensity": "propensity_sd",
    "baseline": "mean_sd",
    "effect": "effect_sd",
    "confounding slope": "confounding_sd",
    "confounding bend": "confounding_bend_sd",
    "gain slope": "gain_sd",
    "gain bend": "gain_bend_sd",
    "dispersion": "dispersion_sd",
}
PRIORS = models.MomentPriors()
SLOPES = {"baseline": "confounding", "effect": "gain"}


def points(model, n=3, size=1.0):
    start, rng = model.initial_point(), np.random.default_rng(1)
    return [
        {name: value + size * rng.normal(size=np.shape(value)) for name, value in start.items()}
        for _ in range(n)
    ]


def evaluator(model, *names):
    """Variables, and the log-density on the named scale, as a function of a point."""
    variables = model.replace_rvs_by_values([model[name] for name in names])
    outputs = [model.logp(jacobian=False), *variables]
    evaluate = model.compile_fn(outputs, inputs=model.value_vars, mode=INTERPRETED)

    def values(point):
        logp, *rest = evaluate(point)
        return float(logp), dict(zip(names, rest, strict=True))

    return values


def parts_of(model, coefficient):
    """Coefficients by name: "effect", "effect main", "effect interaction" and so on."""
    parts = {}
    for label, value in zip(model.coords["term"], coefficient, strict=True):
        parts.setdefault(label.rsplit(" ", 1)[0], []).append(value)
    return {name: np.array(values) for name, values in parts.items()}


def sizes_of(release, group=0):
    return [len(covariate.labels) for covariate in release.workload.covariates(group)]


def law_of(release, group, parts):
    """The formulas of the docstring, once more."""
    space = stratum_space(sizes_of(release, group))

    def varying(name):
        total = np.zeros(len(space.main))
        for kind, columns in zip(("main", "interaction"), space, strict=True):
            if f"{name} {kind}" in parts:
                total = total + columns @ parts[f"{name} {kind}"]
        return total

    odds, baseline, effect = (
        parts[name][0] + varying(name) for name in ("propensity", "baseline", "effect")
    )
    weight = np.exp(varying("log_share") + np.array([[-0.5], [0.5]]) * odds)
    mean = np.tanh(baseline + np.array([[-0.5], [0.5]]) * effect)
    dispersion = 1 / (1 + np.exp(-parts["dispersion"])) if "dispersion" in parts else None
    return weight / weight.sum(), mean, dispersion


def log_likelihood(release, group, law):
    mean, covariance = dense_moments(*law)
    estimator, noise, *_ = dense_pooling(release, group)
    law = multivariate_normal(release.n * mean, release.n * covariance + noise)
    return law.logpdf(estimator @ release.noisy)


def laws(parts, spread, sizes, priors=PRIORS):
    """Prior mean and standard deviation of every part, given the others and the spreads."""
    space = stratum_space(sizes)._asdict()
    odds = sum(space[k] @ parts[f"propensity {k}"] for k in space if f"propensity {k}" in parts)
    for name in parts:
        centre = priors.dispersion_centre if name == "dispersion" else 0.0
        surface, _, kind = name.partition(" ")
        if kind and surface in SLOPES:  # in part a multiple of the propensity's, and of its square
            follows, columns = SLOPES[surface], space[kind]
            centre = parts[f"{follows} slope"] * parts[f"propensity {kind}"]
            square = np.linalg.lstsq(columns, odds**2)[0]
            centre = centre + parts[f"{follows} bend"] * square
        yield name, centre, getattr(priors, FIXED[name]) if name in FIXED else spread[name]


def log_prior(priors, parts, spread, sizes):
    """Of coefficients, centred, and of their spreads."""
    total = 0.0
    for name, centre, sd in laws(parts, spread, sizes, priors):
        total += norm(centre, sd).logpdf(parts[name]).sum()
    for name, value in spread.items():
        total += lognorm(priors.spread_sd, scale=median(priors, name)).logpdf(value)
    return total


def median(priors, name):
    return getattr(priors, name.replace("log_share", "share").replace(" ", "_"))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("n_strata", "groups", "group"),
    [(1, None, 0), (6, None, 0), (6, ["a", ["b", "a"]], 1), (6, ["a", ["b", "a"]], 0)],
)
def test_density_is_plain_priors_times_the_dense_likelihood(n_strata, groups, group, binary):
    release = make_release(STRATA[n_strata], groups=groups, binary=binary)
    priors = models.MomentPriors(effect_sd=0.7, confounding_sd=0.4, gain_sd=0.2, spread_sd=0.5)
    model = models.stratified_moments(release, group=group, priors=priors)
    spreads = model.coords.get("surface", ())
    evaluate = evaluator(model, "coefficient", "share", "mean", *(["spread"] if spreads else []))
    rng = np.random.default_rng(0)
    for point in points(model, size=0.5):
        centring = rng.uniform(size=len(model.coords["term"]))
        centring[rng.random(len(centring)) < 0.5] = 0
        model.set_data("pilot_centring", centring)
        logp, values = evaluate(point)
        parts = parts_of(model, values["coefficient"])
        law = law_of(release, group, parts)
        np.testing.assert_allclose(values["share"], law[0], atol=1e-12)
        np.testing.assert_allclose(values["mean"], law[1], atol=1e-12)
        spread = dict(zip(spreads, values.get("spread", ()), strict=True))
        wanted = log_prior(priors, parts, spread, sizes_of(release, group))
        wanted += log_likelihood(release, group, law)
        # sampled is, but for constants, c (tau / tau_0)^(w - 1), for any w
        for label, w in zip(model.coords["term"], centring, strict=True):
            name = label.rsplit(" ", 1)[0]
            if name in spread:
                wanted += (1 - w) * np.log(spread[name] / median(priors, name))
        np.testing.assert_allclose(logp, wanted, rtol=1e-8)


@pytest.mark.parametrize("noise_aware", [False, True])
@pytest.mark.parametrize(("n_strata", "binary"), DESIGNS)
def test_names_and_dimensions(n_strata, binary, noise_aware):
    release = make_release(STRATA[n_strata], binary=binary)
    model = models.stratified_moments(release, noise_aware=noise_aware)
    crossed = n_strata > 1
    assert {variable.name for variable in model.free_RVs} == {
        "coefficient_offset",
        *(["spread"] if crossed else []),
    }
    assert [variable.name for variable in model.observed_RVs] == ["release"]
    named = {
        "coefficient_offset": ("term",),
        "coefficient": ("term",),
        "pilot_location": ("term",),
        "pilot_centring": ("term",),
        "share": ("arm", "stratum"),
        "mean": ("arm", "stratum"),
        "noise_variance": ("query",),
        "released": ("query",),
        "release": ("query",),
        **({} if binary else {"dispersion": ("arm",)}),
        **({"spread": ("surface",)} if crossed else {}),
    }
    assert {name: dims for name, dims in model.named_vars_to_dims.items() if dims} == named
    assert {name for name in model.coords} == {
        *("arm", "stratum", "term", "query"),
        *(["surface"] if crossed else []),
    }
    assert model["noise_aware"].get_value() == noise_aware
    assert np.all(model.initial_point()["coefficient_offset_whitening__"] == 0)  # the pilot's mode


def test_coordinates_are_public_labels():
    release = make_release(STRATA[6], groups=["a", ["b", "a"]])
    coords = models.stratified_moments(release, group=1).coords
    assert coords["arm"] == ("control", "treated")
    assert coords["stratum"] == release.workload.strata(1)
    assert coords["stratum"][1] == "b=0, a=1"
    assert coords["query"][:2] == ("b=0, a=0|control|mass", "b=0, a=0|control|outcome")
    assert coords["query"][-2:] == ("square|control", "square|treated")
    assert coords["surface"] == tuple(
        f"{name} {kind}"
        for name in ("log_share", "propensity", "baseline", "effect")
        for kind in ("main", "interaction")
    )
    assert coords["term"][:6] == (
        *(f"log_share main {k}" for k in (1, 2, 3)),
        *(f"log_share interaction {k}" for k in (1, 2)),
        "propensity 1",
    )
    assert coords["term"][-6:] == (
        *(f"{name} {part} 1" for name in ("confounding", "gain") for part in ("slope", "bend")),
        *("dispersion 1", "dispersion 2"),
    )
    assert len(set(coords["term"])) == len(coords["term"]) == 29
    alone = models.stratified_moments(make_release({})).coords
    assert alone["stratum"] == ("all",)
    assert alone["term"] == (
        *("propensity 1", "baseline 1", "effect 1", "dispersion 1", "dispersion 2"),
    )


def test_one_covariate_has_no_interaction():
    coords = models.stratified_moments(make_release({"a": 3})).coords
    assert not [label for label in (*coords["term"], *coords["surface"]) if "interaction" in label]


def test_the_model_can_be_read():
    lines = models.stratified_moments(make_release(STRATA[6])).str_repr().splitlines()
    stated = [line.strip() for line in lines]
    assert f"spread ~ LogNormal(<constant>, {PRIORS.spread_sd})" in stated
    assert "share = Deterministic(f(coefficient))" in stated
    assert [line for line in stated if line.startswith("release ~")]


@pytest.mark.parametrize(("n_strata", "binary"), DESIGNS)
def test_prior_predictive_runs_and_is_wide_and_even(n_strata, binary):
    release = make_release(STRATA[n_strata], binary=binary)
    model = models.stratified_moments(release)
    with model:
        tree = pm.sample_prior_predictive(400, random_seed=1, compile_kwargs={"mode": INTERPRETED})
    prior, replicated = tree["prior"], tree["prior_predictive"]["release"]
    assert replicated.dims == ("chain", "draw", "query")
    assert np.isfinite(replicated).all()
    np.testing.assert_allclose(prior["share"].sum(("arm", "stratum")), 1)
    assert (prior["share"] >= 0).all()
    assert (abs(prior["mean"]) <= 1).all()
    effect = (prior["share"].sum("arm") * prior["mean"].diff("arm").squeeze("arm")).sum("stratum")
    assert abs(effect.mean()) < 0.12
    assert effect.std() > 0.4
    treated = prior["share"].sel(arm="treated").sum("stratum")
    assert 0.4 < treated.mean() < 0.6
    assert treated.std() > 0.2


@pytest.mark.parametrize("epsilon", [0.02, 1.0, 20.0])  # by which coordinates are chosen
def test_prior_draws_have_the_prior_s_law(epsilon):
    release = make_release(STRATA[6], n=2000, epsilon=epsilon)
    model = models.stratified_moments(release)
    with model:
        names = [model[name] for name in ("coefficient", "spread")]
        coefficients, spreads = pm.draw(names, 500, random_seed=1, mode=INTERPRETED)
    ratios = []
    for coefficient, spread in zip(coefficients, spreads, strict=True):
        parts = parts_of(model, coefficient)
        named = dict(zip(model.coords["surface"], spread, strict=True))
        prior = laws(parts, named, sizes_of(release))
        ratios.append([(parts[k] - centre) / sd for k, centre, sd in prior])
    for values in zip(*ratios, strict=True):
        values = np.ravel(values)
        assert kstest(values, norm.cdf).pvalue > 1e-4
        assert abs(np.mean(values**2) - 1) < 5 * np.sqrt(2 / values.size)
    logs = np.log(spreads / [median(PRIORS, k) for k in model.coords["surface"]])
    assert kstest(np.ravel(logs), norm(0, PRIORS.spread_sd).cdf).pvalue > 1e-4


def hostile(name):
    """Releases that make little sense, or say nearly nothing, or nearly all."""
    n, epsilon = {"one record": (1, 1.0), "drowned": (500, 1e-4), "bare": (500, 40.0)}.get(
        name, (10**6 if name == "constant" else 50, 1.0)
    )
    release = make_release(STRATA[6], n=n, epsilon=epsilon)
    values = {
        "negative": -abs(release.values) * 1000,
        "zeros": 0 * release.values,
        # all outcomes lie on the lower bound: y = -1, y^2 - 1/2 = 1/2
        "constant": n * release.lattice // 12 * np.array([*[1, -1] * 12, 3, 3]),
    }
    return msgspec.structs.replace(release, values=values.get(name, release.values))


@pytest.fixture(scope="module", params=[True, False])
def evaluated(request):
    """A model whose release can be replaced, and its density and gradient."""
    model = models.stratified_moments(make_release(STRATA[6]), noise_aware=request.param)
    return model, model.compile_fn([model.logp(), model.dlogp()], mode=INTERPRETED)


@pytest.mark.parametrize("name", ["negative", "zeros", "constant", "one record", "drowned", "bare"])
def test_density_and_gradient_are_finite(evaluated, name):
    model, evaluate = evaluated
    with model:
        pm.set_data(model.release_data(hostile(name)))
    for point in [model.initial_point(), *points(model)]:
        logp, gradient = evaluate(point)
        assert np.isfinite(logp)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize(("n_strata", "binary"), [(1, True), (6, False)])
def test_gradient_is_the_slope_of_the_density(n_strata, binary):
    model = models.stratified_moments(make_release(STRATA[n_strata], binary=binary))
    evaluate = model.compile_fn([model.logp(), model.dlogp()], mode=INTERPRETED)
    rng, step = np.random.default_rng(2), 1e-5
    for point in points(model, 2, size=0.5):
        direction = {name: rng.normal(size=np.shape(value)) for name, value in point.items()}
        ahead, behind = (
            {name: value + sign * step * direction[name] for name, value in point.items()}
            for sign in (1, -1)
        )
        slope = (evaluate(ahead)[0] - evaluate(behind)[0]) / (2 * step)
        flat = np.concatenate([np.ravel(direction[value.name]) for value in model.value_vars])
        np.testing.assert_allclose(evaluate(point)[1] @ flat, slope, rtol=1e-5, atol=1e-4)


def test_bad_input_is_named():
    release = make_release(STRATA[6], groups=["a", ["b", "a"]])
    with pytest.raises(TypeError, match=r"release is a str.*load_release"):
        models.stratified_moments("study.json")
    for group in (2, -1, True, "a", 0.0):
        with pytest.raises(ValueError, match=f"group is {group!r}.*groups 0 to 1"):
            models.stratified_moments(release, group=group)
    with pytest.raises(TypeError, match=r"priors is a dict.*MomentPriors"):
        models.stratified_moments(release, priors={"effect_sd": 1.0})
    with pytest.raises(TypeError, match=r"priors is a LabelPriors.*MomentPriors"):
        models.stratified_moments(release, priors=models.LabelPriors())
    with pytest.raises(ValueError, match=r"MomentPriors\.effect_sd is 0\.0.*positive"):
        models.MomentPriors(effect_sd=0.0)
    with pytest.raises(ValueError, match=r"MomentPriors\.dispersion_centre is inf.*finite"):
        models.MomentPriors(dispersion_centre=np.inf)
    with pytest.raises(TypeError, match=r"MomentPriors\.gain_sd"):
        models.MomentPriors(gain_sd="wide")
    assert models.MomentPriors(dispersion_centre=-3).dispersion_centre == -3
