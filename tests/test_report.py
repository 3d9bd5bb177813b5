"""Reports: the split of the variance against a known one, names, warnings, text, figure."""

import arviz as az
import numpy as np
import pytest
import xarray as xr

from dpcausal_bayes import label_potential as module
from dpcausal_bayes.estimands import ATC, ATE, ATT, estimate
from dpcausal_bayes.report import Report, report, split_sd
from dpcausal_bayes.wording import row_names
from label_trees import fixed_counts, make_release, make_schema, make_tree

COUNTS = np.array([[[50, 30, 20], [20, 30, 50]], [[40, 40, 20], [30, 40, 30]]])
COLUMNS = [
    "mean",
    "sd",
    "sampling_sd",
    "privacy_sd",
    "privacy_share",
    "eti95_lb",
    "eti95_ub",
    "p_positive",
    "r_hat",
    "ess_bulk",
    "ess_tail",
    "prior_driven",
]


def posterior_shares(counts, chains=4, draws=300, seed=1):
    """Return draws of Dirichlet(counts + 1), as if the table were known."""
    rng = np.random.default_rng(seed)
    gamma = rng.standard_gamma(np.asarray(counts) + 1.0, size=(chains, draws, *np.shape(counts)))
    return gamma / gamma.sum(axis=-1, keepdims=True)


@pytest.fixture
def hand_made(monkeypatch):
    """Return a maker of trees with estimands, given counts and estimands."""

    def make(counts=COUNTS, estimands=None, population="super", shares=None, **stats):
        monkeypatch.setattr(module, "confidential_counts", fixed_counts(counts))
        release = make_release(make_schema(), counts)
        shares = posterior_shares(counts) if shares is None else shares
        tree = make_tree(release, shares, **stats)
        chosen = estimands or [ATE(), ATT(), ATE(by="cluster")]
        return estimate(tree, chosen, population=population)

    return make


def test_split_of_a_normal_model_is_the_known_one():
    # effect ~ N(0, 2^2); table | effect ~ N(effect, 1); release | table ~ N(table, 1.5^2)
    tau2, s2, e2 = 4.0, 1.0, 2.25
    covariance = np.array([[tau2, tau2], [tau2, tau2 + s2]])
    gain = covariance[:, 1] / (tau2 + s2 + e2)
    given = covariance - np.outer(gain, covariance[:, 1])
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(gain * 1.3, given, size=(4, 50_000))
    effect, table = (xr.DataArray(draws[..., i], dims=("chain", "draw")) for i in range(2))
    sampling, privacy = split_sd(effect, table)
    known = tau2 * s2 / (tau2 + s2)  # Var(effect | table)
    assert sampling.item() == pytest.approx(np.sqrt(known), rel=0.01)
    assert privacy.item() == pytest.approx(np.sqrt(given[0, 0] - known), rel=0.01)
    assert (sampling**2 + privacy**2).item() == pytest.approx(effect.var(ddof=1).item())


def test_split_at_its_two_ends():
    rng = np.random.default_rng(1)
    draws = xr.DataArray(rng.normal(5, 1, size=(4, 1000)), dims=("chain", "draw"))
    sampling, privacy = split_sd(draws, xr.full_like(draws, 4.999))  # the table is known
    assert privacy.item() == 0
    assert sampling.item() == pytest.approx(draws.std(ddof=1).item())
    sampling, privacy = split_sd(draws, 3 * draws + 1)  # the table decides the effect
    assert sampling.item() == pytest.approx(0, abs=1e-6)
    assert privacy.item() == pytest.approx(draws.std(ddof=1).item())


def test_table_names_rows_columns_and_settings(hand_made):
    tree = hand_made()
    table = report(tree).table
    assert table.index.tolist() == ["ate", "att", "ate[north]", "ate[south]"]
    assert table.columns.tolist() == COLUMNS
    assert table["prior_driven"].dtype == bool
    assert table.attrs == {
        "ci_prob": 0.95,
        "ci_kind": "eti",
        "population": "super",
        "contrast": "treated minus control",
        "units": "score of 'y'",
    }
    other = report(tree, ci_prob=0.9, ci_kind="hdi", rope=(-0.1, 0.1)).table
    assert {"hdi90_lb", "hdi90_ub", "p_rope"} < set(other.columns)
    assert "eti95_lb" not in other.columns


def test_table_holds_the_draws_own_numbers(hand_made):
    tree = hand_made()
    table = report(tree, rope=(0.4, 0.6)).table
    draws = tree["estimands"]["ate"].values.ravel()
    row = table.loc["ate"]
    assert row["mean"] == pytest.approx(draws.mean())
    assert row["sd"] == pytest.approx(draws.std(ddof=1), rel=1e-3)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert (row["eti95_lb"], row["eti95_ub"]) == pytest.approx((low, high), abs=1e-3)
    assert row["p_positive"] == (draws > 0).mean()
    assert row["p_rope"] == ((draws > 0.4) & (draws < 0.6)).mean()
    south = tree["estimands"]["ate_by_cluster"].sel(cluster="south").values
    assert table.loc["ate[south]", "mean"] == pytest.approx(south.mean())
    assert row["ess_bulk"] == pytest.approx(az.ess(tree["estimands"].to_dataset())["ate"].item())
    np.testing.assert_allclose(
        table["sampling_sd"] ** 2 + table["privacy_sd"] ** 2, table["sd"] ** 2, rtol=1e-6
    )
    np.testing.assert_allclose(
        table["privacy_share"], table["privacy_sd"] ** 2 / table["sd"] ** 2, rtol=1e-6
    )


def test_settings_of_arviz_do_not_leak_in(hand_made):
    tree = hand_made()
    with az.rc_context({"stats.ci_prob": 0.5, "stats.ci_kind": "hdi", "stats.round_to": "1g"}):
        inside = report(tree).table
    assert inside.equals(report(tree).table)


def test_text_is_a_sentence_for_each_headline(hand_made):
    shown = report(hand_made(estimands=[ATE(), ATC(), ATE(by="cluster")]))
    lines = shown.text.splitlines()
    assert len(lines) == 2
    mean = shown.table.loc["ate", "mean"]
    assert lines[0].startswith(
        f"The average treatment effect in the population that the units were drawn from is "
        f"{mean:.3f} (95 % equal-tailed interval "
    )
    assert "probability above 0.999 of being above zero" in lines[0]
    assert "privacy noise makes up 0 % of its variance" in lines[0]
    assert "effect on the controls" in lines[1]
    sample = report(hand_made(population="sample"), ci_kind="hdi", ci_prob=0.8)
    assert "on these very units" in sample.text
    assert "80 % highest-density interval" in sample.text
    split = report(hand_made(estimands=[ATT(by="cluster")])).text.splitlines()
    assert [" in north " in split[0], " in south " in split[1]] == [True, True]


def test_printed_report_says_all_of_it(hand_made):
    shown = report(hand_made(population="sample"))
    for form in (str(shown), shown._repr_html_()):
        assert "ate[north]" in form
        assert "simulated" in form
        assert "law of total variance" in form
        assert "independent given its cluster" in form
        assert "on these very units" in form
    assert str(shown) == repr(shown)
    assert "<table" in shown._repr_html_()


def test_a_healthy_fit_of_a_real_release_has_no_warnings(hand_made):
    tree = hand_made()
    tree.attrs["manifest"] = tree.attrs["manifest"].replace(
        '"non_private": true', '"non_private": false'
    )
    assert report(tree).warnings == ()
    assert not str(report(tree)).startswith("WARNING")


def test_simulated_release_is_named(hand_made):
    assert any("simulated" in warning for warning in report(hand_made()).warnings)
    assert str(report(hand_made())).startswith("WARNING")


def test_low_energy_information_is_loud(hand_made):
    rng = np.random.default_rng(0)
    even = rng.normal(size=(4, 300))
    assert not any("energy" in warning for warning in report(hand_made(energy=even)).warnings)
    slow = np.cumsum(even, axis=1)  # each draw's energy is nearly the last one's
    assert any("energy" in warning for warning in report(hand_made(energy=slow)).warnings)


def test_prior_sensitivity_is_shown_where_densities_are(hand_made):
    """Draws and densities of a normal mean: a prior as strong as the likelihood, or far weaker."""
    tree = hand_made(estimands=[ATE()])
    effect = tree["estimands"]["ate"]
    assert not any("sensitivity" in column for column in report(tree).table)
    for prior_sd, loud in ((1.0, True), (30.0, False)):
        z = (effect - effect.mean()) / effect.std()
        densities = {
            "log_prior": -0.5 * ((z + 1) / prior_sd) ** 2,
            "log_likelihood": -0.5 * (z - 1) ** 2,
        }
        groups = {name: xr.DataTree(xr.Dataset({"x": d})) for name, d in densities.items()}
        found = report(tree.assign(groups))
        sensitivity = found.table.loc["ate", "prior_sensitivity"]
        assert (sensitivity > 0.05) == loud
        assert found.table.loc["ate", "likelihood_sensitivity"] > 0.05
        assert any("stronger or weaker" in warning for warning in found.warnings) == loud
        assert f"{sensitivity:.3f}" in str(found)


def test_divergences_are_counted(hand_made):
    diverging = np.zeros((4, 300), bool)
    diverging[1, :7] = True
    warnings = report(hand_made(diverging=diverging)).warnings
    assert any(warning.startswith("7 of 1200 draws diverged") for warning in warnings)


def test_chains_that_disagree_are_named(hand_made):
    shares = posterior_shares(COUNTS)
    shares[0, :, 0] = posterior_shares(COUNTS * 100)[0, :, 0, ::-1]  # the north's arms swapped
    shown = report(hand_made(shares=shares))
    assert shown.table.loc["ate[north]", "r_hat"] > 1.01
    assert shown.table.loc["ate[south]", "r_hat"] < 1.01
    text = next(warning for warning in shown.warnings if "r-hat" in warning)
    assert "ate[north]" in text
    assert "ate[south]" not in text


def test_few_effective_draws_are_named(hand_made):
    warnings = report(hand_made(shares=posterior_shares(COUNTS, draws=60))).warnings
    assert any("fewer than 400 effective draws for ate" in warning for warning in warnings)


def test_estimands_that_the_prior_drives_are_named(hand_made):
    vague = posterior_shares(COUNTS)
    vague[:, :, 0] = posterior_shares(np.zeros((2, 2, 3)))[:, :, 0]  # nothing learnt in the north
    shown = report(hand_made(shares=vague))
    assert shown.table["prior_driven"].to_dict() == {
        "ate": True,
        "att": True,
        "ate[north]": True,
        "ate[south]": False,
    }
    assert any("ate[north] are driven by the prior" in warning for warning in shown.warnings)


def test_weight_on_an_empty_cell_is_driven_by_the_prior(hand_made):
    counts = COUNTS.copy()
    counts[0, 1] = 0
    # shares that are well known all the same: only the empty cell speaks
    shares = posterior_shares(COUNTS * 100)
    chosen = [ATE(), ATT(), ATE(by="cluster")]
    table = report(hand_made(counts, chosen, "super", shares)).table
    assert table["prior_driven"].to_dict() == {
        "ate": True,
        "att": False,  # the treated are all in the south
        "ate[north]": True,
        "ate[south]": False,
    }


def test_an_effect_that_is_certain(hand_made):
    certain = np.zeros((4, 300, 2, 2, 3))
    certain[..., 0] = 1
    row = report(hand_made(shares=certain)).table.loc["ate"]
    assert (row["mean"], row["sd"], row["privacy_sd"], row["privacy_share"]) == (0, 0, 0, 0)


def test_figure_is_labelled_and_saved(hand_made, tmp_path):
    shown = report(hand_made(population="sample"), ci_prob=0.9)
    plot = shown.figure()
    plot.savefig(tmp_path / "effects.png")
    assert (tmp_path / "effects.png").stat().st_size > 5000
    axis = plot.get_target(None, {"column": "forest"})
    assert axis.get_xlabel() == ("treated minus control (score of 'y'), 90 % equal-tailed interval")
    lines = [line for line in axis.get_lines() if list(line.get_xdata()) == [0, 0]]
    assert len(lines) == 1  # at zero
    names = plot.get_target(None, {"column": "labels"})
    assert not [line for line in names.get_lines() if list(line.get_xdata()) == [0, 0]]
    assert {"ate", "ate_by_cluster", "north"} <= {text.get_text() for text in names.texts}


def test_report_needs_estimands():
    with pytest.raises(ValueError, match="call tree = estimate"):
        report(xr.DataTree())


@pytest.mark.parametrize(
    ("kwargs", "field"),
    [
        ({"ci_prob": 1.0}, "ci_prob"),
        ({"ci_prob": 95}, "ci_prob"),
        ({"ci_prob": "wide"}, "ci_prob"),
        ({"ci_kind": "quantile"}, "ci_kind"),
        ({"rope": 0.1}, "rope"),
        ({"rope": (0.1, -0.1)}, "rope"),
        ({"rope": (0.0, np.inf)}, "rope"),
    ],
)
def test_settings_out_of_range(hand_made, kwargs, field):
    with pytest.raises(ValueError, match=f"^{field} is"):
        report(hand_made(), **kwargs)


def test_report_leaves_the_tree_as_it_is(hand_made):
    tree = hand_made()
    before = tree.copy(deep=True)
    assert isinstance(report(tree), Report)
    xr.testing.assert_identical(tree, before)


def test_levels_of_the_same_name_in_two_splits_keep_their_rows():
    """Of hand-made effects: two factors with levels 0 and 1, and one with levels of its own."""
    rng = np.random.default_rng(0)
    groups = {}
    for name, by, levels in (("a", "a", ["0", "1"]), ("b", "b", ["0", "1"]), ("c", "c", ["x"])):
        drawn = xr.DataArray(rng.normal(size=(2, 50, len(levels))), dims=("chain", "draw", by))
        facts = {"estimand": "ate", "by": by, "words": "effect"}
        groups[f"ate_by_{name}"] = drawn.assign_coords({by: levels}).assign_attrs(facts)
    names = row_names(xr.Dataset(groups))
    assert list(names.values()) == ["ate[a=0]", "ate[a=1]", "ate[b=0]", "ate[b=1]", "ate[x]"]
