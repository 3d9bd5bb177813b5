"""Effects of maximum-entropy laws: against enumeration, known limits, and a posterior by hand."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from dpcausal_bayes import ATE, ATT, balance, estimate, overlap
from dpcausal_bayes.columns import Arm, Binned, Bounded
from dpcausal_bayes.first_order import unseen_confounding
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.maxent_table import MaxentTable, maxent_table, table_means
from dpcausal_bayes.models.maxent_laws import maxent_form, maxent_law
from dpcausal_bayes.models.maxent_moments import maxent_moments
from dpcausal_bayes.models.maxent_pilot import maxent_pilot
from dpcausal_bayes.models.maxent_records import maxent_records
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments
from dpcausal_bayes.tilted_means import stratum_means
from dpcausal_bayes.workloads import CausalWorkload
from maxent_examples import LAYOUTS, Enumerated, coefficients, layout_of, tree_of, workload_of
from moment_trees import make_release, make_tree, make_workload


@pytest.mark.parametrize("width", [0.3, 1.0])
@pytest.mark.parametrize("name", LAYOUTS)
def test_means_are_those_of_all_covariates(name, width):
    form = LAYOUTS[name][0]
    c = coefficients(form, 8, seed=5, width=width)
    found = stratum_means(form, c)
    assert found.error < 1e-6
    for one, mean, weight in zip(c, found.mean, found.weight, strict=True):
        expected_mean, expected_weight = Enumerated(form, one).means()
        np.testing.assert_allclose(weight, expected_weight, atol=1e-12)
        np.testing.assert_allclose(mean, expected_mean, atol=2 * found.error)


def test_steep_means_take_more_terms_and_say_how_well_they_did():
    form = layout_of(workload_of([3, 3], binary=True))[0]
    steep = np.zeros((1, len(form.centre)))
    steep[0, -8:] = 60.0  # a mean that jumps as the covariates change
    found = stratum_means(form, steep)
    expected = Enumerated(form, steep[0]).means()[0]
    assert np.abs(found.mean[0] - expected).max() < found.error < 0.5


@pytest.mark.parametrize(("copies", "left"), [(2, 0.774), (4, 0.495), (8, 0.283)])
def test_copies_of_a_confounder_are_counted_each_time(copies, left):
    """True effect 1; the published limit of exact first-order laws with second moments."""
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
    workload = CausalWorkload(schema, groups=names)
    table = pd.DataFrame(dict.fromkeys(names, x)).assign(t=t, y=t + x + rng.normal(size=x.size))
    mechanism = GaussianMechanism.calibrated(workload, epsilon=60.0, delta=1e-6)
    release = simulate_moments(table, workload, mechanism, seed=1)
    form = maxent_form(workload, MaxentPriors(), np.linspace(-1, 1, 33))
    records = maxent_records(workload, form)
    noisy, variance = release.noisy[records.order], release.noise_scale[records.order] ** 2
    mode = maxent_pilot(form, records, noisy, variance, release.n).location
    found = stratum_means(form, mode[None])
    means = (found.weight[0, :, None, 0] * found.mean[0, :, :, 0]).sum(0)
    assert abs(8.5 * (means[1] - means[0]) - left) < 0.02


@pytest.fixture(scope="module", params=[False, True], ids=["bounded", "binary"])
def by_hand(request):
    """A tree whose posterior and prior are draws about known coefficients, and their form."""
    workload = workload_of([2, 3], binary=request.param)
    form, records = layout_of(workload, points=33)
    centre, n = coefficients(form, seed=8, width=0.3), 20_000
    exact = np.zeros(workload.n_queries)
    exact[records.order] = n * records.mean(maxent_law(form, centre))
    release = make_release(workload, exact, n)
    model = maxent_moments(release)
    rng = np.random.default_rng(9)
    c = centre + 0.02 * form.scale * rng.standard_normal((2, 150, len(centre)))
    return tree_of(model, release, form, c), form, c, release


def test_estimates_are_those_of_each_draws_law(by_hand):
    tree, form, c, _ = by_hand
    asked = [ATE(), ATT(), ATE(by="x1")]
    found = estimate(tree, asked, population="super")["estimands"]
    unit = 0.5 if form.binary else 1.0
    for place in [(0, 0), (1, 149)]:
        mean, weight = Enumerated(form, c[place]).means()
        effect = unit * (mean[:, 1] - mean[:, 0])
        everybody = (weight * effect)[:, 0].sum()
        assert float(found["ate"][place]) == pytest.approx(everybody, abs=1e-6)
        assert float(found["att"][place]) == pytest.approx(effect[1, 0], abs=1e-6)
        by = (weight * effect)[:, 3:].sum(0) / weight[:, 3:].sum(0)
        np.testing.assert_allclose(found["ate_by_x1"][place], by, atol=1e-6)
    assert found["ate_by_x1"].dims == ("chain", "draw", "x1")
    assert "independent; means over covariates are exact to" in found.attrs["assumption"]


def test_the_tables_effect_is_what_its_moments_say(by_hand):
    """Of a table whose moments are the law's the effect is the law's; draws vary about it."""
    tree, _, _, release = by_hand
    naive = tree.copy()
    facts = naive["constant_data"].to_dataset()
    naive["constant_data"] = xr.DataTree(facts)
    naive.attrs["manifest"] = tree.attrs["manifest"].replace(
        '"noise_aware": true', '"noise_aware": false'
    )
    found = estimate(naive, [ATE()], population="super")["confidential_estimands"]["ate"]
    assert float(found.std()) < 1e-7
    mean = estimate(tree, [ATE()], population="super")["estimands"]["ate"].mean()
    assert float(found[0, 0]) == pytest.approx(float(mean), abs=3e-3)
    assert release.n == 20_000


@pytest.mark.parametrize("far", [0.1, 3.0])
def test_what_a_table_says_is_what_a_law_says(by_hand, far):
    """Near by that of its moments; of an arm with hardly any units still means and shares."""
    _, form, c, release = by_hand
    other = c.reshape(-1, c.shape[-1]).mean(0)
    other[0] -= far  # log odds of treatment
    records = maxent_records(release.workload, form)
    moments = release.n * records.mean(maxent_law(form, other))[None]
    table = MaxentTable(records, release.n, moments)
    found = table_means(form, c.reshape(-1, c.shape[-1]), table)
    assert (found.weight > 0).all()
    assert (np.abs(found.mean) < 1).all()
    if far < 1:
        mean, weight = Enumerated(form, other).means()
        np.testing.assert_allclose(found.weight[0], weight, atol=2e-3)
        np.testing.assert_allclose(found.mean[0], mean, atol=5e-3)


def test_tables_drawn_given_the_release_are_its_conditional_law(by_hand):
    tree, form, c, release = by_hand
    one = np.broadcast_to(c[0, 0], (4000, c.shape[-1]))
    records, n, table = maxent_table(tree, form, one, np.random.default_rng(2))
    assert n == release.n
    law = maxent_law(form, c[0, 0])
    covariance = release.n * records.covariance(law)
    noise = np.diag(release.noise_scale[records.order] ** 2)
    gain = covariance @ np.linalg.inv(covariance + noise)
    gap = release.noisy[records.order] - release.n * records.mean(law)
    expected, left = release.n * records.mean(law) + gain @ gap, covariance - gain @ covariance
    sd = np.sqrt(np.maximum(np.diag(left), 0))
    assert np.all(np.abs(table.mean(0) - expected) < 5 * sd / 4000**0.5 + 1e-6)
    np.testing.assert_allclose(table.std(0), sd, rtol=0.08, atol=1e-6)


def test_effects_on_these_very_units(by_hand):
    """About the population's, whose table is the law's own; narrower where outcomes are known."""
    tree, _, _, _ = by_hand
    asked = [ATE(), ATT(), ATE(by="x0"), ATT(by="x1")]
    ours, population = (estimate(tree, asked, population=p) for p in ("sample", "super"))
    unit = 2.0 if by_hand[1].binary else 1.0  # of an effect, to the outcome's half width
    for one in asked:
        drawn, other = ours["estimands"][one.name], population["estimands"][one.name]
        assert drawn.dims == other.dims
        gap = np.abs(drawn.mean(["chain", "draw"]) - other.mean(["chain", "draw"]))
        assert unit * float(gap.max()) < 0.02
        assert (drawn.std(["chain", "draw"]) > 0).all()
    everybody, by_level = ours["estimands"]["ate"], ours["estimands"]["ate_by_x0"]
    assert (by_level.min("x0") <= everybody).all()
    assert (everybody <= by_level.max("x0")).all()
    assert "sum of those that are missing is normal" in ours["estimands"].attrs["assumption"]
    assert "missing" not in population["estimands"].attrs["assumption"]
    xr.testing.assert_equal(
        ours["confidential_estimands"].to_dataset(),
        population["confidential_estimands"].to_dataset(),
    )


def test_strata_in_common_are_refused_with_a_remedy(by_hand):
    with pytest.raises(ValueError, match=r"maxent_moments model.*stratified_moments"):
        overlap(by_hand[0])


def test_balance_is_that_of_each_groups_levels(by_hand):
    """Drawn about the law of the release, by enumeration of its records."""
    tree, _, _, release = by_hand
    found = balance(tree)
    assert found.index.tolist() == ["x0=0", "x0=1", "x1=0", "x1=1", "x1=2"]
    centre = coefficients(by_hand[1], seed=8, width=0.3)
    _, weight = Enumerated(by_hand[1], centre).means()
    share = weight[:, 1:] / weight[:, :1]
    expected = (share[1] - share[0]) / np.sqrt((share * (1 - share)).mean(0))
    sd = np.sqrt(4 / release.n)  # of a difference that is not known better than from the table
    assert np.abs(found["mean"] - expected).max() < 2 * sd
    assert np.abs(expected).max() > 4 * sd
    assert (found["sd"] > 0).all()
    np.testing.assert_allclose(found.loc["x0=0", "mean"], -found.loc["x0=1", "mean"])


def test_warning_names_what_is_not_seen_and_the_cure(by_hand):
    said = unseen_confounding(by_hand[0])
    assert "(x0; x1) go together" in said
    assert "strata=[...]" in said
    assert "GramWorkload" in said


@pytest.mark.parametrize(
    ("groups", "group", "left_out"),
    [
        ((("sex",), ("age",)), 0, "age"),
        ((("sex", "age"), ("age",)), 0, None),
        ((("sex", "age"), ("age",)), 1, "sex"),
        ((("sex", "age"),), 0, None),
    ],
)
def test_strata_of_one_group_leave_out_the_others(groups, group, left_out):
    workload = make_workload(groups=groups)
    release = make_release(workload, np.ones(workload.n_queries), 100)
    shape = (1, 2, 2, workload.n_strata(group))
    tree = make_tree(release, np.full(shape, 0.1), np.zeros(shape), np.full(shape[:3], 0.1), group)
    said = unseen_confounding(tree)
    assert (said is None) == (left_out is None)
    if left_out:
        assert said.startswith(f"confounding by {left_out}, which")
