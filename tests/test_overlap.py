"""The overlap table, from trees whose answer is known by hand."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dpcausal_bayes as dpc
from dpcausal_bayes import moment_potential
from dpcausal_bayes import overlap as exported
from dpcausal_bayes.estimands import ATE, estimate
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.populations.labels import binary_population
from dpcausal_bayes.simulate import simulate_release
from label_trees import make_tree as label_tree
from moment_trees import make_release, make_tree, make_workload

OVERLAP = dpc.overlap.__globals__  # the module of that name is hidden by the function

# (arm, stratum): f young, f old, m young, m old
MASS = np.array([[300.0, 200, 100, 4], [200.0, 3, 400, 2]])
SHARE = np.array([[0.25, 0.18, 0.1, 0.02], [0.2, 0.05, 0.15, 0.05]])
CELLS = ("chain", "draw", "arm", "stratum")


def answers():
    return np.concatenate([np.stack([MASS, 0 * MASS], -1).ravel(), [0.0, 0.0]])


def draws_of(share, chains=2, draws=300, sd=0.0, seed=1):
    rng = np.random.default_rng(seed)
    drawn = share * np.exp(sd * rng.standard_normal((chains, draws, *share.shape)))
    return drawn / drawn.sum((-1, -2), keepdims=True)


def tree_of(share, workload=None, cells=None, **options):
    workload = make_workload() if workload is None else workload
    release = make_release(workload, answers() if cells is None else cells, n=1209)
    shape = share.shape[:2]
    mean, dispersion = np.zeros(share.shape), np.full((*shape, 2), 0.2)
    return make_tree(release, share, mean, dispersion, **options)


@pytest.fixture
def known(monkeypatch):
    """Let the confidential masses be those given, in every draw."""

    def use(mass):
        def confidential_moments(tree, rng):
            share = tree["posterior"]["share"].transpose(*CELLS)
            drawn = share.expand_dims(part=["mass", "outcome"], axis=-1)
            cells = np.stack([mass, np.zeros_like(mass)], axis=-1)
            return drawn.copy(data=np.broadcast_to(cells, drawn.shape))

        monkeypatch.setitem(OVERLAP, "confidential_moments", confidential_moments)

    return use


def test_a_row_a_stratum_with_its_levels_and_posterior_means(known):
    known(MASS)
    share = draws_of(SHARE, sd=0.1)
    table = exported(tree_of(share))
    assert table.index.names == ["sex", "age"]
    assert list(table.index) == [
        ("f", "[0, 40)"),
        ("f", "[40, 80]"),
        ("m", "[0, 40)"),
        ("m", "[40, 80]"),
    ]
    flat = share.reshape(-1, 2, 4)
    both, treated = flat.sum(1), flat[:, 1] / flat.sum(1)
    np.testing.assert_allclose(table["share"], both.mean(0))
    np.testing.assert_allclose(table["share_sd"], both.std(0, ddof=1))
    np.testing.assert_allclose(table["propensity"], treated.mean(0))
    np.testing.assert_allclose(table["eti95_lb"], np.quantile(treated, 0.025, axis=0))
    np.testing.assert_allclose(table["eti95_ub"], np.quantile(treated, 0.975, axis=0))


def test_masses_stand_as_they_were_released(known):
    known(MASS)
    cells = answers()
    cells[6] = -5.0  # controls of the last stratum
    tree = tree_of(draws_of(SHARE), cells=cells)
    table = exported(tree)
    np.testing.assert_allclose(table["noisy_controls"], [300, 200, 100, -5], atol=1e-5)
    np.testing.assert_allclose(table["noisy_treated"], MASS[1], atol=1e-5)
    np.testing.assert_allclose(table["noise_sd"], float(tree["constant_data"]["mass_noise"].max()))


def test_each_way_to_lack_an_arm_has_its_word(known):
    tree = tree_of(draws_of(SHARE))
    noise = float(tree["constant_data"]["mass_noise"].max())
    above, below = 2.01 * noise, 1.99 * noise
    known(np.array([[above, below, above, below], [above, above, below, below]]))
    table = exported(tree)
    assert list(table["seen"]) == ["both arms", "no controls", "no treated", "drowned"]
    assert list(table["supported"]) == [True, False, False, False]


def test_the_supported_share_is_that_of_supported_strata(known):
    known(MASS)
    table = exported(tree_of(draws_of(SHARE)))
    assert list(table["supported"]) == [True, False, True, False]
    np.testing.assert_allclose(table.attrs["supported_share"], (SHARE.sum(0) * [1, 0, 1, 0]).sum())


def test_it_agrees_with_what_estimate_uses(monkeypatch):
    # masses that only the random numbers decide: other numbers would support other strata
    def confidential_moments(tree, rng):
        share = tree["posterior"]["share"].transpose(*CELLS)
        mass = 4 * tree["constant_data"]["mass_noise"].values * rng.random((2, 4)) ** 0.3
        drawn = share.expand_dims(part=["mass", "outcome"], axis=-1)
        return drawn.copy(data=np.broadcast_to(mass[..., None], drawn.shape))

    monkeypatch.setitem(OVERLAP, "confidential_moments", confidential_moments)
    monkeypatch.setattr(moment_potential, "confidential_moments", confidential_moments)
    shares = set()
    for seed in range(8):
        tree = tree_of(draws_of(SHARE), seed=seed)
        before = tree.copy(deep=True)
        table = exported(tree)
        xr.testing.assert_identical(tree, before)
        support = estimate(tree, [ATE()], population="super")["estimand_support"]["ate"]
        np.testing.assert_allclose(table.attrs["supported_share"], support, rtol=1e-9)
        shares.add(float(support.round(6)))
    assert len(shares) > 3


def test_a_noise_blind_model_believes_every_mass():
    table = exported(tree_of(draws_of(SHARE), noise_aware=False))
    assert table["supported"].all()
    assert (table["noise_sd"] > 1).all()


@pytest.mark.parametrize("names", [(), ("sex",)])
def test_strata_of_one_covariate_or_none(names, known):
    workload = make_workload(groups=(names,))
    levels = max(2 * len(names), 1)
    known(np.full((2, levels), 500.0))
    share = draws_of(np.full((2, levels), 0.5 / levels))
    table = exported(tree_of(share, workload, np.full(workload.n_queries, 500.0)))
    expected = pd.Index(["f", "m"], name="sex") if names else pd.Index(["all"], name="stratum")
    pd.testing.assert_index_equal(table.index, expected, exact=False)


def test_binary_masses_are_both_counts(known):
    known(MASS)
    workload = make_workload(binary=True)
    release = make_release(workload, np.tile([40.0, 60.0], 8), n=800)
    share = draws_of(SHARE)
    tree = make_tree(release, share, np.zeros(share.shape))
    table = exported(tree)
    np.testing.assert_allclose(table["noisy_treated"], 100.0, atol=1e-5)
    np.testing.assert_allclose(table["noise_sd"], np.sqrt(2) * release.mechanism.scale)


def test_label_trees_and_trees_without_posterior_are_refused():
    population = binary_population(clusters=2, units_per_cluster=50)
    mechanism = ClusterDP.calibrated(population.schema, epsilon=2.0)
    release = simulate_release(population.draw(1), population.schema, mechanism, seed=1)
    with pytest.raises(ValueError, match="label release"):
        exported(label_tree(release, np.full((1, 10, 2, 2, 2), 0.5)))
    tree = tree_of(draws_of(SHARE))
    del tree["posterior"]
    with pytest.raises(ValueError, match="no posterior"):
        exported(tree)
    with pytest.raises(ValueError, match="no manifest"):
        exported(xr.DataTree())
    with pytest.raises(TypeError, match="Dataset"):
        exported(xr.Dataset())
