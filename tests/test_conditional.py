"""Effects at a profile of covariates, against closed forms and against rows."""

import numpy as np
import pytest

from dpcausal_bayes import label_potential
from dpcausal_bayes.estimands import ATE, CATE, CATESlope, estimate
from dpcausal_bayes.gram_means import Levels, draw_means
from dpcausal_bayes.gram_potential import means_of
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.populations import stratified_population
from dpcausal_bayes.populations.contrasts import weigh
from dpcausal_bayes.report import report
from gram_examples import SCHEMA
from label_trees import fixed_counts, make_release, make_schema, make_tree
from test_gram_potential import DRAWS, table_of

MIXED = GramWorkload(SCHEMA)  # wage, sex, age, town, size: y from -1 to 7


def means_for(population, draws=1):
    moments, arm, v = table_of(MIXED, draws)
    levels = Levels(MIXED)
    drawn = draw_means(moments, levels, population, np.random.default_rng(0))
    means = means_of(drawn, MIXED, levels, (1, draws))
    return means.assign(supported=("stratum", np.ones(len(levels.rows), bool))), arm, v


def difference_of_lines(arm, v):
    """Intercept and slopes of treated minus control, by least squares on the rows."""
    design = np.column_stack([np.ones(len(v)), v[:, :-1]])
    fits = [np.linalg.lstsq(design[arm == a], v[arm == a, -1])[0] for a in (0, 1)]
    return 4 * (fits[1] - fits[0]), design.mean(0)  # half the outcome's range is 4


PROFILES = {
    "a number": ({"age": 40}, {"age": (2 * 40 - 17 - 55) / 38}),
    "two levels": ({"sex": "m"}, {"sex=m": 1.0}),
    "the first level": ({"sex": "f"}, {"sex=m": -1.0}),
    "more levels": ({"town": "b"}, {"town=b": 1.0, "town=else": -1.0}),
    "a bin and a number": (
        {"size": "[0, 1)", "wage": 4},
        {"wage": 1.0, "size=[1, 2)": -1.0, "size=[2, 4]": -1.0},
    ),
}


@pytest.mark.parametrize("name", PROFILES)
def test_at_a_profile_is_least_squares_there(name):
    """All other covariates are at their means in the table."""
    means, arm, v = means_for("table")
    at, given = PROFILES[name]
    line, centre = difference_of_lines(arm, v)
    x = centre.copy()
    for column, value in given.items():
        x[1 + MIXED.columns.index(column)] = value
    found = CATE(at=at).contrast(means)
    assert found.dims == ("chain", "draw")
    assert float(found.squeeze()) == pytest.approx(line @ x, abs=1e-9)


def test_slope_is_that_of_the_lines():
    means, arm, v = means_for("table")
    line, _ = difference_of_lines(arm, v)
    slope = float(CATESlope("age").contrast(means).squeeze())
    assert slope == pytest.approx(line[1 + MIXED.columns.index("age")] / 19, abs=1e-9)
    ahead, here = (float(CATE(at={"age": age}).contrast(means).squeeze()) for age in (41, 40))
    assert slope == pytest.approx(ahead - here, abs=1e-9)


@pytest.mark.parametrize("population", ["super", "sample"])
def test_profiles_average_to_the_average_effect(population):
    """By the population's own shares of a covariate's levels."""
    means, *_ = means_for(population, 50)
    female, male = (CATE(at={"sex": level}).contrast(means) for level in ("f", "m"))
    share = (1 + means["regression_centre"].isel(feature=MIXED.columns.index("sex=m"))) / 2
    average = share * male + (1 - share) * female
    line = means["regression_mean"]
    expected = line.sel(arm="treated") - line.sel(arm="control")
    np.testing.assert_allclose(average, expected.transpose("chain", "draw"), atol=1e-9)
    if population == "super":
        np.testing.assert_allclose(average, ATE().contrast(means), atol=1e-9)


def test_sampling_sd_at_a_full_profile_is_the_textbooks():
    workload = GramWorkload(SCHEMA, ["wage", "sex"])
    moments, arm, v = table_of(workload, DRAWS)
    levels = Levels(workload)
    drawn = draw_means(moments, levels, "super", np.random.default_rng(1))
    means = means_of(drawn, workload, levels, (1, DRAWS))
    found = CATE(at={"wage": 2.5, "sex": "m"}).contrast(means)
    at = np.array([1.0, 0.5, 1.0])
    variance = 0.0
    for a in (0, 1):
        own = np.column_stack([np.ones((arm == a).sum()), v[arm == a, :-1]])
        y = v[arm == a, -1]
        residual = y - own @ np.linalg.lstsq(own, y)[0]
        sigma2 = (residual**2).sum() / (len(own) - 3 - 2)  # mean of the scaled inverse chi-square
        variance += sigma2 * at @ np.linalg.inv(own.T @ own) @ at
    assert float(found.std()) == pytest.approx(4 * np.sqrt(variance), rel=0.03)


def strata_means():
    """Effects of four strata of a and b, and shares of treated and controls in them."""
    factors = {"a": ["x", "x", "z", "z"], "b": ["p", "q", "p", "q"]}
    effect = np.array([1.0, 2.0, 4.0, 8.0])
    mean = np.array([[effect * 0, effect], [effect * 0, effect + 1]])  # assigned, arm, stratum
    weight = np.array([[0.1, 0.2, 0.25, 0.05], [0.1, 0.1, 0.0, 0.2]])
    return mean, weight, factors


def test_of_strata_the_others_are_averaged_over_everybody():
    mean, weight, factors = strata_means()
    within = [
        (weight[:, s] * (mean[:, 1, s] - mean[:, 0, s])).sum() / weight[:, s].sum()
        for s in range(4)
    ]
    share_p = weight[:, [0, 2]].sum()
    found = weigh(CATE(at={"a": "x"}), mean, weight, factors)
    assert float(found) == pytest.approx(share_p * within[0] + (1 - share_p) * within[1])
    found = weigh(CATE(at={"a": "z", "b": "q"}), mean, weight, factors)
    assert float(found) == pytest.approx(within[3])
    own = float(weigh(ATE(by="a"), mean, weight, factors).sel(a="x"))  # over those of x only
    assert float(weigh(CATE(at={"a": "x"}), mean, weight, factors)) != pytest.approx(own, abs=0.02)


def test_estimated_and_reported(monkeypatch):
    """In a cluster it is the cluster's effect; a report has a row and a sentence for it."""
    counts = np.array([[[5, 3, 2], [10, 10, 20]], [[10, 10, 10], [5, 10, 5]]])
    shares = np.array([[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], [[0.4, 0.4, 0.2], [0.3, 0.4, 0.3]]])
    monkeypatch.setattr(label_potential, "confidential_counts", fixed_counts(counts))
    release = make_release(make_schema(), counts)
    tree = make_tree(release, np.broadcast_to(shares, (2, 30, *shares.shape)))
    asked = [ATE(by="cluster"), CATE(at={"cluster": "north"})]
    new = estimate(tree, asked, population="super")
    found = new["estimands"]["cate(cluster=north)"]
    np.testing.assert_allclose(found, new["estimands"]["ate_by_cluster"].sel(cluster="north"))
    assert float(new["estimand_support"]["cate(cluster=north)"]) == pytest.approx(1)
    said = report(new)
    assert said.table.index.tolist() == ["ate[north]", "ate[south]", "cate(cluster=north)"]
    assert said.text.startswith("The average treatment effect at cluster = north in the population")


def test_known_populations_have_such_effects():
    study = stratified_population(covariates={"a": 3, "b": 2}, heterogeneity=0.1)
    effects = np.asarray(study.effects).reshape(3, 2)
    of_b = np.asarray(study.share).reshape(3, 2).sum(0)
    assert float(study.truth(CATE(at={"a": 1}))) == pytest.approx(effects[1] @ of_b)


def test_names_words_and_labels_that_are_numbers():
    one = CATE(at={"age": 40, "sex": "f"})
    assert (one.name, one.row, one.by) == ("cate(age=40, sex=f)", "cate(age=40, sex=f)", None)
    assert CATE(at={"km/h": "10/20"}).name == "cate(km|h=10|20)"
    assert CATE(at={"old": True}).name == "cate(old=1)"
    assert CATESlope("age").name == "cate_slope(age)"
    assert "effect at age = 40, sex = f" in one.describe()


def test_refusals_say_what_there_is():
    means, *_ = means_for("table")
    for at, words in {
        "income": r"CATE\.at names 'income': this model has the covariates \['wage', 'sex'",
        "sex": r"CATE\.at\['sex'\] is 'x': its levels are \['f', 'm'\]",
        "age": r"CATE\.at\['age'\] is 'x': it must be a number within its bounds, 17 to 55",
    }.items():
        with pytest.raises(ValueError, match=words):
            CATE(at={at: "x"}).contrast(means)
    with pytest.raises(ValueError, match=r"age.* is 56: it must be a number within"):
        CATE(at={"age": 56}).contrast(means)
    with pytest.raises(ValueError, match=r"'sex': this model has slopes in \['wage', 'age'\]"):
        CATESlope("sex").contrast(means)
    mean, weight, factors = strata_means()
    with pytest.raises(ValueError, match=r"names 'c': .* effects apart by \['a', 'b'\]"):
        weigh(CATE(at={"c": "x"}), mean, weight, factors)
    with pytest.raises(ValueError, match=r"slopes in \[\]"):
        weigh(CATESlope("a"), mean, weight, factors)
    for wrong in ({}, None, "age"):
        with pytest.raises(TypeError, match=r"CATE\.at is"):
            CATE(at=wrong)
    with pytest.raises(TypeError, match=r"CATE\.at\['age'\] is \[1, 2\]: .* one level"):
        CATE(at={"age": [1, 2]})
    with pytest.raises(TypeError, match=r"CATE\.at\['age'\] is nan"):
        CATE(at={"age": float("nan")})
    with pytest.raises(TypeError, match=r"CATESlope\.covariate is 3"):
        CATESlope(3)
