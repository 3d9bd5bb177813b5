"""The label model's density against enumeration, in every route, and its public names."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import explicit_graph_inputs
from scipy.special import logsumexp
from scipy.stats import multinomial

from dpcausal_bayes import models
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.models.label_likelihood import routes
from dpcausal_bayes.models.small_cells import cells_of, compositions
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release
from test_small_cells import labels_given_counts

INTERPRETED = Mode(linker="py", optimizer="fast_compile")


def trial(sizes, n_levels=2, seed=0, *, ordered=True, **mechanism):
    """A simulated release of cells with the given sizes, one row (control, treated) a cluster."""
    rng = np.random.default_rng(seed)
    rows = [
        pd.DataFrame({"c": c, "a": a, "y": rng.integers(n_levels, size=n)})
        for c, pair in enumerate(sizes)
        for a, n in enumerate(pair)
    ]
    schema = Schema(
        arm=Arm("a", control=0, treated=1),
        outcome=Levels("y", list(range(n_levels)), ordered=ordered),
        cluster=Categories("c", list(range(len(sizes)))),
    )
    if "lam" in mechanism:
        law = ClusterDP(**mechanism)
    else:
        law = ClusterDP.calibrated(schema, **{"epsilon": 1.0, **mechanism})
    return simulate_release(pd.concat(rows), schema, law, seed=seed)


def likelihood(model):
    """The release's log-density and the shares, as a function of a point."""
    outputs = [model.logp(vars=[model["release"]], sum=True), model["share"]]
    outputs = model.replace_rvs_by_values(outputs)
    used = {variable.name for variable in explicit_graph_inputs(outputs)}
    inputs = [value for value in model.value_vars if value.name in used]
    evaluate = model.compile_fn(outputs, inputs=inputs, mode=INTERPRETED)
    return lambda point: evaluate({value.name: point[value.name] for value in inputs})


def points(model, n=4):
    start, rng = model.initial_point(), np.random.default_rng(1)
    return [
        {name: value + rng.normal(size=np.shape(value)) for name, value in start.items()}
        for _ in range(n)
    ]


def enumerated(release, share):
    """The release's log-probability, by a sum over every table of every cell."""
    total = 0.0
    cells, shares = cells_of(release), share.reshape(-1, release.schema.n_levels)
    for j in np.flatnonzero(cells.size):  # the noise of a cell of no units says nothing of shares
        n, terms = cells.size[j], []
        for counts in compositions(int(n), release.schema.n_levels):
            term = multinomial(n, shares[j]).logpmf(counts)
            if cells.noisy is not None:
                term += release.mechanism.noise_law.log_pmf(cells.noisy[j] - counts).sum()
            law = labels_given_counts(release.mechanism, counts, cells.prior[j])
            terms.append(term + np.log(law[tuple(cells.released[j])]))
        total += logsumexp(terms)
    return total


@pytest.mark.parametrize(
    "release",
    [
        trial([(8, 5), (3, 7)]),
        trial([(8, 5), (3, 7)], epsilon=8.0),
        trial([(8, 5), (3, 7)], epsilon=0.1),
        trial([(4, 5), (3, 2)], n_levels=3),
        trial([(5, 4)], noise=Gaussian, delta=1e-6),
        trial([(5, 0), (0, 0), (2, 3)]),
    ],
)
def test_small_cells_have_the_enumerated_density(release):
    evaluate = likelihood(model := models.cluster_labels(release))
    for point in points(model):
        logp, share = evaluate(point)
        np.testing.assert_allclose(logp, enumerated(release, share), rtol=1e-9)


def test_without_a_histogram_labels_are_multinomial():
    release = trial([(80, 50), (30, 70)], floor=1.0)
    evaluate = likelihood(model := models.cluster_labels(release))
    logps, wanted = [], []
    for point in points(model):
        logp, share = evaluate(point)
        channel = release.mechanism.channel(release.prior)
        seen = np.einsum("caij,caj->cai", channel, share)
        logps.append(logp)
        wanted.append(multinomial(release.cell_size, seen).logpmf(release.label_counts).sum())
    # up to a constant of the release
    np.testing.assert_allclose(np.diff(logps), np.diff(wanted), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_normal_route_agrees_with_enumeration_where_both_apply(epsilon, monkeypatch):
    release = trial([(240, 200)], epsilon=epsilon, seed=3)
    exact = likelihood(model := models.cluster_labels(release))
    monkeypatch.setattr("dpcausal_bayes.models.small_cells.MOST_TABLES", 0)
    normal_model = models.cluster_labels(release)
    rng = np.random.default_rng(0)
    # the exponential variables of the noise, averaged out by Monte Carlo
    mixing = np.log(rng.exponential(size=(1000, 2, 2)))
    normal = likelihood(normal_model)
    difference = []
    for point in points(model, 3):
        point = {name: 0.1 * value for name, value in point.items()}
        draws = [normal({**point, "noise_mixing_log__": e})[0] for e in mixing]
        difference.append(logsumexp(draws) - np.log(len(draws)) - exact(point)[0])
    # a constant of the release is left out of the normal route's labels
    assert np.ptp(difference) < 0.1


def test_every_cell_takes_one_route():
    release = trial([(8, 900), (0, 300), (500, 20)])
    found = routes(cells_of(release))
    assert found.exact.tolist() == [0, 5]
    assert found.normal.tolist() == [1, 3, 4]
    assert len(found.labels_only) == len(found.known) == 0
    known = routes(cells_of(trial([(8, 900)], epsilon=1e4)))
    assert known.known.tolist() == [0, 1]


@pytest.mark.parametrize(
    "release",
    [
        trial([(300, 200)], n_levels=4, epsilon=1e-3),
        trial([(300, 200)], n_levels=4, epsilon=1e4),
        trial([(300, 0), (0, 200), (0, 0)], n_levels=4),
        trial([(300, 200), (3, 400)], n_levels=5, ordered=False),
        trial([(300, 200), (3, 400)], n_levels=5, noise=Gaussian, delta=1e-6),
        trial([(300, 200), (3, 400)], n_levels=5, floor=1.0),
        trial([(10, 10)], lam=0.5, sigma=1e9, gamma=0.1),
    ],
)
def test_density_and_gradient_are_finite_at_the_start(release):
    model = models.cluster_labels(release)
    evaluate = model.compile_fn([model.logp(), model.dlogp()], mode=INTERPRETED)
    for point in [model.initial_point(), *points(model, 2)]:
        logp, gradient = evaluate(point)
        assert np.isfinite(logp)
        assert np.isfinite(gradient).all()


def test_names_and_dimensions():
    model = models.cluster_labels(trial([(300, 200), (3, 400)], n_levels=3))
    assert {name: dims for name, dims in model.named_vars_to_dims.items() if dims} == {
        "profile_mean": ("contrast",),
        "profile": ("cluster", "contrast"),
        "tilt_centring": ("cluster",),
        "tilt_offset": ("cluster",),
        "tilt": ("cluster",),
        "effect_shape_regressed": ("cluster", "shape_contrast"),
        "effect_shape": ("cluster", "shape_contrast"),
        "share": ("cluster", "arm", "level"),
        "noise_mixing": ("cell", "level"),
        "released": ("query",),
        "release": ("query",),
    }
    assert model.coords["query"][0] == "histogram|0|control|0"
    assert model.coords["query"][-1] == "labels|1|treated|2"
    assert model.coords["cell"] == ("0|control", "0|treated", "1|treated")


def test_prior_of_a_binary_share_is_wide_and_even():
    model = models.cluster_labels(trial([(20, 20)] * 3))
    with model:
        share = pm.draw(model["share"], draws=400, random_seed=1, mode=INTERPRETED)[..., 1]
    assert 0.4 < share.mean() < 0.6
    assert np.quantile(share, 0.05) < 0.1
    assert np.quantile(share, 0.95) > 0.9
    effect = share[..., 1] - share[..., 0]
    assert abs(effect.mean()) < 0.1
    assert effect.std() > 0.3


def test_the_noise_blind_model_reads_labels_as_true():
    release = trial([(80, 50), (30, 70)])
    evaluate = likelihood(model := models.cluster_labels(release, noise_aware=False))
    for point in points(model, 2):
        logp, share = evaluate(point)
        np.testing.assert_allclose(logp, (release.label_counts * np.log(share)).sum(), rtol=1e-9)


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="load_release"):
        models.cluster_labels("trial.json")
    with pytest.raises(ValueError, match=r"LabelPriors\.tilt_sd"):
        models.LabelPriors(tilt_sd=0.0)
    with pytest.raises(TypeError, match=r"LabelPriors\.shape_sd"):
        models.LabelPriors(shape_sd="wide")
