"""First-order populations: their rows, their effects, designs whose truths are the prior's."""

import numpy as np
import pytest
import xarray as xr
from scipy import special

from chi_square import assert_law
from dpcausal_bayes import calibration
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.designs import MaxentDesign
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.models.maxent_laws import maxent_form, maxent_law
from dpcausal_bayes.models.maxent_moments import maxent_moments
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.moments import record_strata
from dpcausal_bayes.populations import FirstOrderPopulation
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.tilted_means import stratum_means
from dpcausal_bayes.workloads import CausalWorkload
from maxent_examples import tree_of

ARM = Arm("t", control="no", treated="yes")
COVARIATES = [
    Categories("town", ["a", "b"], other="else"),
    Binned("age", [0, 40, 90]),
    Categories("sex", [7, 9]),
]
OUTCOMES = {"bounded": Bounded("y", -10, 30), "binary": Levels("won", ["yes", "no"], values=[3, 1])}
WORKLOADS = {
    name: CausalWorkload(
        Schema(arm=ARM, outcome=outcome, covariates=COVARIATES), groups=[["town", "sex"], "age"]
    )
    for name, outcome in OUTCOMES.items()
}
EACH = [kind(by=by) for kind in (ATE, ATT, ATC) for by in (None, "town", "sex", "age")]


def law_of(workload, points=5, seed=3):
    """Shares of cells and levels; every covariate tells something of arm and outcome."""
    rng = np.random.default_rng(seed)
    points = 2 if workload.binary else points
    cell = special.softmax(0.5 * rng.normal(size=(2, points)))
    sizes = [workload.n_strata(g) for g in range(len(workload.groups))]
    level = [special.softmax(rng.normal(size=(2, size, points)), axis=1) for size in sizes]
    return {"cell": cell, "level": level}


def population(name, n=1000):
    workload = WORKLOADS[name]
    return FirstOrderPopulation(workload=workload, n=n, **law_of(workload))


def places_of(study, column):
    """Place of each outcome on the grid."""
    outcome = study.workload.schema.outcome
    if study.workload.binary:
        return (column == outcome.levels[1]).to_numpy(int)
    return np.rint((column - outcome.low) / 10).to_numpy(int)


def design_of(workload, n=1000, epsilon=1.0, **options):
    mechanism = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=1e-6)
    return MaxentDesign(workload, mechanism, n=n, **options)


@pytest.fixture(scope="module", params=list(WORKLOADS))
def large(request):
    """A population, and many rows of it."""
    study = population(request.param)
    return study, study.draw(1, n=400_000)


def test_rows_follow_the_stated_law(large):
    """All of arm, outcome and covariates together, cell by cell; and the missing outcome."""
    study, table = large
    outcome = study.workload.schema.outcome.column
    assert list(table) == ["t", outcome, "town", "sex", "age", "y0", "y1"]
    arm = (table["t"] == "yes").to_numpy(int)
    own, x, z = (
        places_of(study, table[outcome]),
        *(record_strata(table, study.workload, g) for g in (0, 1)),
    )
    joint = np.einsum("ty,txy,tzy->txzy", study.cell, *study.level)
    assert_law(np.ravel_multi_index((arm, x, z, own), joint.shape), joint.ravel())
    both = np.stack([places_of(study, table[y]) for y in ("y0", "y1")])
    assert (own == both[arm, np.arange(len(arm))]).all()
    given = joint / joint.sum(-1, keepdims=True)
    for t in (0, 1):
        # the arm's records: what they would have had under the other one, with what they had
        law = joint[t][..., :, None] * given[1 - t][..., None, :]
        part = arm == t
        place = np.ravel_multi_index((x[part], z[part], own[part], both[1 - t, part]), law.shape)
        assert_law(place, (law / law.sum()).ravel())


@pytest.mark.parametrize("one", EACH, ids=lambda one: one.name)
def test_effects_on_many_rows_are_those_of_the_population(large, one):
    study, table = large
    value = {3: 3, 1: 1, "yes": 3, "no": 1}
    effect = table["y1"] - table["y0"] if not study.workload.binary else (
        table["y1"].map(value) - table["y0"].map(value)
    )  # fmt: skip
    keep = {"ate": ["no", "yes"], "att": ["yes"], "atc": ["no"]}[one.short]
    units = table.assign(effect=effect)[table["t"].isin(keep)]
    truth, sample = study.truth(one), study.sample_truth(one, table)
    if one.by is None:
        mean, error = units["effect"].mean(), units["effect"].sem()
    else:
        label = units[one.by]
        if one.by == "age":
            label = np.where(label < 40, *study.workload.factors(1)["age"][:2])
        else:
            label = label.astype(str)
        groups = units.groupby(label)["effect"]
        order = truth[one.by].values
        mean, error = groups.mean()[order].to_numpy(), groups.sem()[order].to_numpy()
    np.testing.assert_allclose(sample, mean, rtol=1e-9, atol=1e-9)
    assert np.all(np.abs(truth - mean) < 4.5 * error)


def test_effects_are_those_of_the_models_own_sums():
    """Enumeration against the trigonometric sums of the model, at coefficients of it."""
    for name, workload in WORKLOADS.items():
        grid = np.linspace(-1, 1, 2 if workload.binary else 9)
        form = maxent_form(workload, MaxentPriors(), grid)
        c = form.centre + 0.7 * form.scale * np.random.default_rng(4).normal(size=len(form.centre))
        law, found = maxent_law(form, c), stratum_means(form, c[None])
        level = [law.level[:, g, :size] for g, size in enumerate(form.sizes)]
        study = FirstOrderPopulation(workload=workload, n=1, cell=law.cell, level=level)
        half = -1 if name == "binary" else 20  # of the outcome; "yes" is first, and worth more
        effect = half * (found.mean[0, :, 1] - found.mean[0, :, 0])
        weight = found.weight[0]
        assert float(study.truth(ATT())) == pytest.approx(effect[1, 0], abs=1e-4)
        assert float(study.truth(ATE())) == pytest.approx(effect[:, 0] @ weight[:, 0], abs=1e-4)
        by_age = (effect * weight)[:, -2:].sum(0) / weight[:, -2:].sum(0)
        np.testing.assert_allclose(study.truth(ATE(by="age")), by_age, atol=1e-4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_designs_draw_populations_from_the_prior(name):
    priors, design = MaxentPriors(), design_of(WORKLOADS[name], n=300)
    studies = design.populations(400, seed=1)
    assert {study.n for study in studies} == {300}
    assert studies[0].cell.shape == (2, 2 if name == "binary" else 33)
    odds = special.logit([study.cell[1].sum() for study in studies])
    assert abs(odds.mean()) < 4 * priors.propensity_sd / 20
    assert np.std(odds) == pytest.approx(priors.propensity_sd, rel=0.15)
    if name == "binary":  # a location is half the log odds of the second level
        odds = special.logit([study.cell[0, 1] / study.cell[0].sum() for study in studies])
        assert np.std(odds) == pytest.approx(2 * priors.mean_sd, rel=0.15)
    effects = np.array([float(study.truth(ATE())) for study in studies])
    assert abs(effects.mean()) < 4 * effects.std() / 20  # symmetric about zero
    assert effects.std() > 0.1


class PilotFitter:
    """Stands in for the compiled model: normal draws about the mode."""

    model = None

    def fit(self, release, *, draws, random_seed, **settings):
        self.model = model = self.model or maxent_moments(release)
        form = maxent_form(release.workload, MaxentPriors(), np.array(model.coords["grid"]))
        data = model.release_data(release)
        z = np.random.default_rng(random_seed).standard_normal((1, draws, len(form.centre)))
        tree = tree_of(model, release, form, data["pilot_location"] + z @ data["pilot_scale"].T)
        none = xr.Dataset({"diverging": (("chain", "draw"), np.zeros((1, draws), bool))})
        tree["sample_stats"] = xr.DataTree(none)
        return tree


def test_a_tiny_study_has_ranks_of_both_populations(monkeypatch):
    workload = CausalWorkload(WORKLOADS["binary"].schema, groups=["sex", "age"])
    design = design_of(workload, n=500)
    fitter = PilotFitter()
    monkeypatch.setattr(calibration, "_fitter", lambda study, design, release: fitter)
    found = calibration.calibrate(
        design, estimands=[ATE(), ATT(by="sex")], releases=20, draws=200, progressbar=False
    )
    assert len(found.rows) == 20 * 2 * 3
    assert found.rows["rank"].between(0, 1, inclusive="neither").all()
    assert "p_uniform" in found.table
    assert (found.table["cover_95"] > 0.7).all()
    study = design.populations(20, seed=0)[1]
    table = calibration.replicate(design, study, 1)[0]
    own = found.rows.query("replication == 1 and estimand == 'ate'").set_index("population")
    assert own.loc["super", "truth"] == pytest.approx(float(study.truth(ATE())))
    assert own.loc["sample", "truth"] == pytest.approx(float(study.sample_truth(ATE(), table)))
    assert own.loc["sample", "truth"] != own.loc["super", "truth"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n": -1}, r"FirstOrderPopulation\.n is -1"),
        ({"cell": np.full((2, 1), 0.5)}, r"cell has shape \(2, 1\): it must be \(2, Y\)"),
        ({"cell": np.full((2, 5), 0.2)}, r"cell runs from 0\.2 with sums of 2"),
        ({"level": law_of(WORKLOADS["bounded"])["level"][:1]}, "level has 1 arrays: give 2"),
        ({"level": [np.full((2, 6, 5), 1 / 6), np.full((2, 2, 4), 0.5)]}, r"level\[1\] has shape"),
        ({"level": [np.full((2, 6, 5), 1 / 6), np.full((2, 2, 5), 0.6)]}, r"level\[1\] runs from"),
    ],
)
def test_what_is_no_population(change, says):
    workload = WORKLOADS["bounded"]
    facts = {"workload": workload, "n": 10, **law_of(workload)}
    with pytest.raises(ValueError, match=says):
        FirstOrderPopulation(**facts | change)


def test_other_refusals():
    workload = WORKLOADS["bounded"]
    facts = {"n": 10, **law_of(workload)}
    facts["level"][1][0, 0] = 0.0
    facts["level"][1][0, 1] = 1.0
    with pytest.raises(ValueError, match="covariates that an arm cannot have"):
        FirstOrderPopulation(workload=workload, **facts)
    shared = CausalWorkload(workload.schema, groups=["age", ["age", "sex"]])
    with pytest.raises(ValueError, match=r"workload has the groups .* share 'age'"):
        FirstOrderPopulation(workload=shared, **facts)
    many = Schema(
        arm=ARM, outcome=OUTCOMES["binary"],
        covariates=[Categories(f"x{j}", [0, 1]) for j in range(25)],
    )  # fmt: skip
    wide = CausalWorkload(many, groups=[f"x{j}" for j in range(25)])
    with pytest.raises(ValueError, match=r"134217728 cells .*name fewer groups"):
        FirstOrderPopulation(workload=wide, **facts | {"cell": np.full((2, 2), 0.25)})
    study = population("bounded")
    with pytest.raises(ValueError, match="read-only"):
        study.cell[0, 0] = 1
    with pytest.raises(ValueError, match="can split by"):
        study.truth(ATE(by="income"))
    assert repr(study) == "FirstOrderPopulation(n=1000, groups=[6, 2], outcome=bounded)"
