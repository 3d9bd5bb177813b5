"""What a plan believes is what the default model believes, and its draws are of that posterior."""

import numpy as np
import pytest
from scipy import stats

from dpcausal_bayes.custodian import beliefs as stated
from dpcausal_bayes.custodian.beliefs import Beliefs, Law, covariance, moments
from dpcausal_bayes.custodian.simulated import CHAINS, WIDER, _slices, posterior, posterior_mode
from dpcausal_bayes.models.priors import MomentPriors
from dpcausal_bayes.models.strata import stratum_space
from dpcausal_bayes.models.stratum_laws import StratumLaw, record_moments
from dpcausal_bayes.models.surfaces import prior_mean, stratum_law, surfaces

LEVELS = pytest.mark.parametrize("levels", [(), (3,), (1, 4), (3, 2), (2, 3, 2)], ids=str)
KINDS = pytest.mark.parametrize("binary", [False, True], ids=["bounded", "binary"])


def test_the_priors_are_the_default_models():
    priors = MomentPriors()
    assert stated.SCALES == {
        "log_share": (None, priors.share_main, priors.share_interaction),
        "propensity": (
            priors.propensity_sd,
            priors.propensity_main,
            priors.propensity_interaction,
        ),
        "baseline": (priors.mean_sd, priors.baseline_main, priors.baseline_interaction),
        "effect": (priors.effect_sd, priors.effect_main, priors.effect_interaction),
    }
    assert stated.SPREAD == priors.spread_sd
    assert stated.FOLLOWS == {
        "baseline": (priors.confounding_sd, priors.confounding_bend_sd),
        "effect": (priors.gain_sd, priors.gain_bend_sd),
    }
    assert stated.DISPERSION == (priors.dispersion_centre, priors.dispersion_sd)


@KINDS
@LEVELS
def test_the_law_is_the_default_models(levels, binary):
    """Give the model the coefficients that make the same surfaces: its basis is another."""
    beliefs = Beliefs(levels, binary)
    form = surfaces(stratum_space(levels), MomentPriors(), binary=binary)
    assert beliefs.size == len(form.centre) + len(form.spreads)
    z = np.random.default_rng(1).normal(size=beliefs.size)
    coefficient = np.zeros(len(form.centre))
    first, last = 0, beliefs.size
    follows = dict.fromkeys(("baseline", "effect"), (0.0, 0.0))
    if beliefs.n_strata > 1:
        place = beliefs.size - 4 - 2 * (not binary) - len(form.spreads)
        for surface, name in (("baseline", "confounding"), ("effect", "gain")):
            follows[surface] = tuple(np.array(stated.FOLLOWS[surface]) * z[place : place + 2])
            for part, value in zip(("slope", "bend"), follows[surface], strict=True):
                coefficient[form.labels.index(f"{name} {part} 1")] = value
            place += 2
    selection = {}
    for surface, name, columns in beliefs._parts:
        moved = columns @ z[first : first + columns.shape[1]]
        first += columns.shape[1]
        kind = {"level": "", "main": "main ", "rest": "interaction "}[name]
        if kind:
            last -= 1
            moved = moved * np.exp(MomentPriors().spread_sd * z[last])
        if surface == "propensity" and kind:
            selection[name] = moved
        own = [k for k, label in enumerate(form.labels) if label.startswith(f"{surface} {kind}")]
        own = [k for k in own if len(form.labels[k].split()) == 2 + bool(kind)]
        basis = getattr(form, surface)[:, own]
        # the part of baseline and effect that goes with the propensity is in the prior's mean
        mean = 0.0
        if kind and surface in follows:
            slope, bend = follows[surface]
            bent = columns @ np.linalg.lstsq(columns, sum(selection.values()) ** 2)[0]
            mean = slope * selection[name] + bend * bent
        coefficient[own] = np.linalg.lstsq(basis, moved + mean)[0]
        np.testing.assert_allclose(basis @ coefficient[own], moved + mean, atol=1e-12)
        np.testing.assert_allclose(
            basis @ prior_mean(form, coefficient, np)[own], mean * np.ones(len(moved)), atol=1e-12
        )
        # and the two bases have the same prior
        scaled = basis * form.scale[own]
        np.testing.assert_allclose(scaled @ scaled.T, columns @ columns.T, atol=1e-12)
    if not binary:
        first += 4 * (beliefs.n_strata > 1)
        odds = (
            MomentPriors().dispersion_centre + MomentPriors().dispersion_sd * z[first : first + 2]
        )
        coefficient[form.dispersion.any(axis=0)] = odds
    law, wanted = beliefs.law(z), stratum_law(form, coefficient, np)
    np.testing.assert_allclose(law.share, wanted.share, rtol=1e-10)
    np.testing.assert_allclose(law.mean, wanted.mean, rtol=1e-10)
    if not binary:
        np.testing.assert_allclose(law.dispersion, wanted.dispersion, rtol=1e-10)
    model = record_moments(
        StratumLaw(law.share, law.mean, None if binary else law.dispersion), beliefs.n_strata, np
    )
    np.testing.assert_allclose(moments(law, binary=binary), model.mean, rtol=1e-10)
    dense = model.factors @ np.diag(model.signs) @ model.factors.T
    size = model.blocks.shape[1]
    for k, block in enumerate(model.blocks):
        dense[k * size : (k + 1) * size, k * size : (k + 1) * size] += block
    np.testing.assert_allclose(covariance(law, binary=binary), dense, atol=1e-14)


@KINDS
@LEVELS
def test_a_guess_is_a_point_of_the_model(levels, binary):
    beliefs = Beliefs(levels, binary)
    rng = np.random.default_rng(2)
    share = np.outer([0.7, 0.3], rng.dirichlet(np.full(beliefs.n_strata, 5.0)))
    guess = Law(share, np.full(share.shape, -0.6), np.array([1.0, 1.0] if binary else [0.1, 0.4]))
    law = beliefs.law(beliefs.variables_of(guess))
    for found, wanted in zip(law, guess, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_slices_of_a_linear_model_have_its_normal_posterior():
    rng = np.random.default_rng(1)
    design = rng.normal(size=(4, 3))
    seen = rng.normal(size=(2, 4)) * 2
    fits = [posterior_mode(lambda z: z @ design.T, one, np.zeros(3)) for one in seen]
    wanted = np.linalg.inv(design.T @ design + np.eye(3))
    for one, (mode, root) in zip(seen, fits, strict=True):
        np.testing.assert_allclose(mode, wanted @ design.T @ one, atol=1e-8)
        np.testing.assert_allclose(root @ root.T, wanted, atol=1e-8)
    centre, root = (np.stack(part) for part in zip(*fits, strict=True))
    runs = [
        _slices(lambda z: z @ design.T, seen, centre, np.sqrt(WIDER) * root, rng) for _ in range(20)
    ]
    draws = np.concatenate(runs, axis=1)
    for found, (mode, _) in zip(draws, fits, strict=True):
        error = np.sqrt(np.diag(wanted) / (20 * CHAINS * 10))  # ten draws or more a chain
        assert np.all(np.abs(found.mean(axis=0) - mode) < 4 * error)
        np.testing.assert_allclose(np.cov(found.T), wanted, atol=0.1 * np.max(wanted))


def test_slices_of_a_bent_posterior_have_its_quantiles():
    def predicted(z):
        return np.exp(2 * z)

    seen = np.array([[0.3], [2.0]])
    rng = np.random.default_rng(3)
    fits = [posterior_mode(predicted, one, np.zeros(1)) for one in seen]
    centre, root = (np.stack(part) for part in zip(*fits, strict=True))
    draws = np.concatenate(
        [_slices(predicted, seen, centre, np.sqrt(WIDER) * root, rng) for _ in range(30)], axis=1
    )
    grid = np.linspace(-6, 3, 20_001)
    for found, one in zip(draws[..., 0], seen, strict=True):
        density = stats.norm.pdf(grid) * stats.norm.pdf(one - np.exp(2 * grid))
        below = np.cumsum(density) / density.sum()
        for prob in (0.025, 0.25, 0.5, 0.75, 0.975):
            place = np.mean(found < grid[np.searchsorted(below, prob)])
            assert abs(place - prob) < 4 * np.sqrt(prob * (1 - prob) / 1500)


@KINDS
def test_without_noise_the_posterior_is_the_tables(binary):
    """Many records: the standard deviation of the difference in means, and its right centre."""
    beliefs = Beliefs((), binary)
    spread = 1 - 0.2**2 if binary else 0.3 * (1 - 0.2**2)
    guess = Law(np.array([[0.6], [0.4]]), np.full((2, 1), 0.2), np.full(2, 1.0 if binary else 0.3))
    noise = np.full(4 if binary else 6, 0.01)
    law = posterior(beliefs, guess, 10_000, noise, 1)
    effect = law.mean[..., 1, 0] - law.mean[..., 0, 0]
    sd = np.sqrt(spread * (1 / 6_000 + 1 / 4_000))
    assert effect.std(axis=1).mean() == pytest.approx(sd, rel=0.03)
    # releases come in pairs whose errors cancel
    assert abs(effect.mean()) < 0.1 * sd
    assert effect.mean(axis=1).std() == pytest.approx(sd, rel=0.4)
