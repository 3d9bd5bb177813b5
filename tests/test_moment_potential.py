"""Estimands of moment releases, from trees whose answer is known by hand."""

import numpy as np
import pytest
import xarray as xr

from dpcausal_bayes import moment_potential as module
from dpcausal_bayes.estimands import ATC, ATE, ATT, estimate
from dpcausal_bayes.moment_potential import moment_potentials, supported_strata
from dpcausal_bayes.report import report
from moment_trees import CELLS, make_release, make_tree, make_workload

# (arm, stratum): f young, f old, m young, m old
MASS = np.array([[30.0, 20, 10, 40], [20.0, 30, 40, 10]])
OUTCOME = MASS * np.array([[0.1, -0.2, 0.3, 0.0], [0.4, 0.0, 0.2, 0.5]])
SHARE = np.array([[0.1, 0.2, 0.1, 0.1], [0.2, 0.1, 0.15, 0.05]])
MEAN = np.array([[0.0, -0.1, 0.2, 0.1], [0.3, 0.1, 0.2, 0.4]])
EFFECT = MEAN[1] - MEAN[0]
TABLE = (OUTCOME / MASS)[1] - (OUTCOME / MASS)[0]
KINDS = {ATE: SHARE.sum(0), ATT: SHARE[1], ATC: SHARE[0]}
UNIT = 5.0  # of [-1, 1] for an outcome between 0 and 10


def answers(binary=False):
    if binary:
        return np.stack([(MASS - OUTCOME) / 2, (MASS + OUTCOME) / 2], -1).ravel()
    return np.concatenate([np.stack([MASS, OUTCOME], -1).ravel(), [-40.0, -30.0]])


def constant(value, chains=2, draws=40):
    return np.broadcast_to(value, (chains, draws, *np.shape(value)))


@pytest.fixture
def fixed(monkeypatch):
    """Let the confidential moments be those given, in every draw."""

    def use(mass=MASS, outcome=OUTCOME):
        def confidential_moments(tree, rng):
            share = tree["posterior"]["share"].transpose(*CELLS)
            cells = np.stack([mass, outcome], axis=-1)
            drawn = share.expand_dims(part=["mass", "outcome"], axis=-1)
            return drawn.copy(data=np.broadcast_to(cells, drawn.shape))

        monkeypatch.setattr(module, "confidential_moments", confidential_moments)

    use()
    return use


@pytest.fixture
def tree(fixed):
    release = make_release(make_workload(), answers(), n=200)
    return make_tree(release, constant(SHARE), constant(MEAN), constant([0.2, 0.3]))


def test_superpopulation_effects_weigh_the_means_of_strata(tree):
    new = estimate(tree, [kind() for kind in KINDS], population="super")
    for kind, weight in KINDS.items():
        expected = UNIT * (weight * EFFECT).sum() / weight.sum()
        np.testing.assert_allclose(new["estimands"][kind().name], expected, rtol=1e-12)


def test_effects_split_by_any_covariate_of_the_strata(tree):
    new = estimate(tree, [ATE(by="sex"), ATT(by="age")], population="super")
    weight = SHARE.sum(0)
    women = UNIT * (weight * EFFECT)[:2].sum() / weight[:2].sum()
    np.testing.assert_allclose(new["estimands"]["ate_by_sex"].sel(sex="f"), women)
    old = UNIT * (SHARE[1] * EFFECT)[1::2].sum() / SHARE[1, 1::2].sum()
    np.testing.assert_allclose(new["estimands"]["att_by_age"].sel(age="[40, 80]"), old)


def test_the_table_group_holds_what_the_table_says(tree):
    new = estimate(tree, [ATE(), ATT()], population="super")
    weight = MASS.sum(0)
    expected = UNIT * (weight * TABLE).sum() / weight.sum()
    np.testing.assert_allclose(new["confidential_estimands"]["ate"], expected)
    expected = UNIT * (MASS[1] * TABLE).sum() / MASS[1].sum()
    np.testing.assert_allclose(new["confidential_estimands"]["att"], expected)


def test_effects_on_these_units_keep_observed_outcomes_and_draw_the_missing(fixed):
    release = make_release(make_workload(), answers(), n=200)
    shape = dict(chains=4, draws=2000)
    tree = make_tree(
        release, constant(SHARE, **shape), constant(MEAN, **shape), constant([0.2, 0.3], **shape)
    )
    drawn = estimate(tree, [ATT()], population="sample", random_seed=1)["estimands"]["att"]
    own = OUTCOME[1] / MASS[1]
    mean = UNIT * (MASS[1] * (own - MEAN[0])).sum() / MASS[1].sum()
    variance = (MASS[1] * 0.2 * (1 - MEAN[0] ** 2)).sum() / MASS[1].sum() ** 2
    sd = UNIT * np.sqrt(variance)
    assert abs(float(drawn.mean()) - mean) < 4 * sd / np.sqrt(drawn.size)
    assert abs(float(drawn.std()) / sd - 1) < 4 / np.sqrt(2 * drawn.size)


def test_binary_missing_outcomes_are_binomial_and_in_units_of_the_values(fixed):
    release = make_release(make_workload(binary=True), answers(binary=True), n=200)
    shape = dict(chains=4, draws=2000)
    tree = make_tree(release, constant(SHARE, **shape), constant(MEAN, **shape))
    new = estimate(tree, [ATE(), ATC()], population="super")
    unit = 1.5  # half the distance of the values 2 and 5
    expected = unit * (SHARE.sum(0) * EFFECT).sum() / SHARE.sum()
    np.testing.assert_allclose(new["estimands"]["ate"], expected)
    drawn = estimate(tree, [ATC()], population="sample", random_seed=1)["estimands"]["atc"]
    own, p = OUTCOME[0] / MASS[0], (1 + MEAN[1]) / 2
    mean = unit * (MASS[0] * (MEAN[1] - own)).sum() / MASS[0].sum()
    sd = unit * 2 * np.sqrt((MASS[0] * p * (1 - p)).sum()) / MASS[0].sum()
    assert abs(float(drawn.mean()) - mean) < 4 * sd / np.sqrt(drawn.size)
    assert abs(float(drawn.std()) / sd - 1) < 4 / np.sqrt(2 * drawn.size)


def test_a_cell_of_less_than_half_a_unit_is_empty_and_a_mean_stays_within_bounds(fixed):
    mass, outcome = MASS.copy(), OUTCOME.copy()
    mass[0, 0], outcome[0, 0] = -3.0, 2.0
    outcome[1, 1] = 2 * mass[1, 1]
    fixed(mass, outcome)
    release = make_release(make_workload(), answers(), n=200)
    tree = make_tree(release, constant(SHARE), constant(MEAN), constant([0.2, 0.3]))
    table = moment_potentials(tree, "super", np.random.default_rng(1)).table
    assert (
        table["weight"].sel(assigned="control", stratum=tree["posterior"].stratum[0]) == 0
    ).all()
    first = table["mean"].isel(stratum=0).sel(arm="control")
    np.testing.assert_allclose(first, 5 + UNIT * MEAN[0, 0])
    np.testing.assert_allclose(table["mean"].isel(stratum=1).sel(arm="treated"), 10.0)


def test_an_arm_without_anybody_still_gives_finite_effects(fixed):
    fixed(np.stack([MASS[0], np.zeros(4)]), np.stack([OUTCOME[0], np.zeros(4)]))
    release = make_release(make_workload(), answers(), n=200)
    tree = make_tree(release, constant(SHARE), constant(MEAN), constant([0.2, 0.3]))
    for population in ("sample", "super"):
        new = estimate(tree, [ATT(), ATE(by="sex")], population=population)
        for group in ("estimands", "confidential_estimands", "prior_estimands"):
            for drawn in new[group].data_vars.values():
                assert np.isfinite(drawn).all()
    assert float(new["estimand_support"]["att"]) == 0


def test_support_needs_masses_that_stand_out_from_the_noise(tree):
    def masses(first):
        cells = np.stack([MASS, OUTCOME], -1)
        cells[0, 0, 0] = first
        return xr.DataArray(
            constant(cells),
            dims=(*CELLS, "part"),
            coords={"part": ["mass", "outcome"], "stratum": tree["constant_data"].stratum},
        )

    noise = float(tree["constant_data"]["mass_noise"][0, 0])
    assert supported_strata(tree, masses(2.01 * noise)).values[0]
    assert not supported_strata(tree, masses(1.99 * noise)).values[0]


def test_the_report_says_that_the_outcome_is_clipped_and_what_is_unsupported(tree):
    rng = np.random.default_rng(0)
    noise = tree["posterior"]["mean"] + 0.02 * rng.standard_normal(tree["posterior"]["mean"].shape)
    tree["posterior"] = tree["posterior"].to_dataset().assign(mean=noise)
    found = report(estimate(tree, [ATE(), ATE(by="age")], population="super"))
    assert "clipped to 0 and 10" in found.legend
    assert "units of 'y'" in found.legend
    assert list(found.table.index) == ["ate", "ate[[0, 40)]", "ate[[40, 80]]"]


def test_one_release_serves_many_estimands(tree):
    ten = [kind(by=by) for kind in KINDS for by in (None, "sex", "age")]
    new = estimate(tree, ten, population="sample")
    assert set(new["estimands"].data_vars) == {one.name for one in ten}
