"""Plans of second-order releases: the closed form, what confounding is left, the choice."""

from dataclasses import replace

import numpy as np
import pytest

from dpcausal_bayes import custodian
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.custodian.confounding import confounding_left, left_in_bins
from dpcausal_bayes.custodian.gram_widths import PRIOR_SD, GramPredictor
from dpcausal_bayes.custodian.guesses import Guesses, guesses_for
from dpcausal_bayes.custodian.predictions import Asked
from dpcausal_bayes.estimands import ATC, ATE, ATT
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.models.gram_laws import gram_form, gram_law
from dpcausal_bayes.models.priors import GramPriors
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload

ARM, OUTCOME = Arm("t", control=0, treated=1), Bounded("y", -2, 6)
NUMERIC = Schema(
    arm=ARM,
    outcome=OUTCOME,
    covariates=[
        Bounded("age", 20, 80), Categories("town", ["a", "b", "c"]), Categories("sex", ["f", "m"]),
        Bounded("wage", 0, 10),
    ],
)  # fmt: skip
WORKLOAD = GramWorkload(NUMERIC)
CUT = Schema(
    arm=ARM,
    outcome=OUTCOME,
    covariates=[Binned("age", [20, 40, 60, 80]), Categories("sex", ["f", "m"])],
)
STRATA = CausalWorkload(CUT, strata=["age"])
GUESSES = Guesses(
    treated=0.3,
    mean=3.0,
    sd=(1.0, 1.4),
    shares={"town": (0.5, 0.3, 0.2)},
    confounding={"age": 0.2, "town": 0.1, "sex": 0.05},
    covariate_sd={"age": 12.0},
)
N = 5000


def moments_of(predictor):
    """Queries that a table of exactly the guessed law would have, without noise."""
    law = predictor._law
    variance = (np.mean(GUESSES.sd) / 4) ** 2
    size = law.second.shape[-1] + 1
    second = np.zeros((2, size, size))
    for a in (0, 1):
        second[a, :-1, :-1] = law.second[a]
        second[a, :-1, -1] = second[a, -1, :-1] = law.second[a] @ law.slope
        second[a, -1, -1] = law.slope @ law.second[a] @ law.slope + variance
    rows, columns = WORKLOAD.pairs.T
    return (second * predictor.records[:, None, None])[:, rows, columns].ravel()


def effects(queries):
    """ATE, ATT and ATC by regression in each arm."""
    second = WORKLOAD.gram(queries)
    theta = np.linalg.solve(second[:, :-1, :-1], second[:, :-1, -1:])[..., 0]
    sums = second[:, 0, :-1]
    sums = sums * N / sums[:, 0].sum()
    return np.array(
        [
            weight @ sums / (weight @ sums)[0] @ (theta[1] - theta[0])
            for weight in np.array([[1, 1], [0, 1], [1, 0]])
        ]
    )


def test_privacy_is_the_derivative_of_the_regression():
    """With the noise that n, which is public, takes off."""
    numbers = {"age": 0.2, "wage": 0.1}  # levels' shares cannot shift and keep their variance
    predictor = GramPredictor(WORKLOAD, N, replace(GUESSES, confounding=numbers))
    exact = moments_of(predictor)
    np.testing.assert_allclose(effects(exact), 0, atol=1e-9)  # the same line in both arms
    steps = 1e-3 * np.eye(len(exact))
    slope = np.array([effects(exact + h) - effects(exact - h) for h in steps]) / 2e-3
    total = (np.arange(len(exact)) % len(WORKLOAD.pairs) == 0).astype(float)
    slope -= np.outer(total, total @ slope) / 2  # of the numbers of records
    expected = 4 * 5.0 * np.sqrt((slope**2).sum(0))
    for one, sd in zip((ATE(), ATT(), ATC()), expected, strict=True):
        asked = Asked(one.short, np.ones(1, bool), one.assigned)
        found = predictor.predict(asked, 5.0, "super", 0.95)
        bounded = 1 + (found.sampling_sd**2 + sd**2) / (4 * PRIOR_SD) ** 2
        assert found.privacy_sd * np.sqrt(bounded) == pytest.approx(sd, rel=1e-3)
        assert found.width == pytest.approx(2 * 1.95996 * found.sd, rel=1e-4)
        assert found.sd == pytest.approx(np.hypot(found.sampling_sd, found.privacy_sd))


def test_entries_that_follow_from_others_are_laid_on_those():
    """What all entries weigh, on the queries alone: the adjoint of how matrices are filled."""
    predictor, rng = GramPredictor(WORKLOAD, N, GUESSES), np.random.default_rng(2)
    size = 1 + len(WORKLOAD.columns)
    weight, queries = np.triu(rng.normal(size=(size, size))), rng.normal(size=WORKLOAD.n_queries)
    filled = WORKLOAD.gram(queries)[0]
    rows, columns = WORKLOAD.pairs.T
    found = predictor._on_queries(weight)[rows, columns]
    assert found @ queries[: len(rows)] == pytest.approx((weight * filled).sum())


def rows_of(rng):
    """Rows of the guessed law of one normal confounder."""
    t = (rng.random(2000) < 0.3).astype(int)
    gap = np.sqrt(0.2 / 1.2)
    x = rng.normal(size=2000) + gap * (t - 0.3)
    y = gap * 1.2 * x + np.where(t == 1, 1.4, 1.0) * rng.normal(size=2000)
    return t, x, y


@pytest.mark.parametrize("population", ["super", "sample"])
def test_sampling_is_that_of_least_squares(population):
    guesses = Guesses(0.3, 2.0, (1.0, 1.4), {}, {"age": 0.2}, {"age": 10.0})
    predictor = GramPredictor(GramWorkload(NUMERIC, ["age"]), 2000, guesses)
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(3000):
        t, x, y = rows_of(rng)
        lines = [np.polyfit(x[t == a], y[t == a], 1) for a in (0, 1)]
        fitted = [np.polyval(line, x) for line in lines]
        if population == "super":
            errors.append((fitted[1] - fitted[0]).mean())
            continue
        line = np.sqrt(0.2 * 1.2) * x
        y1 = np.where(t == 1, y, line + 1.4 * rng.normal(size=2000))
        y0 = np.where(t == 0, y, line + 1.0 * rng.normal(size=2000))
        filled = np.where(t == 1, y - fitted[0], fitted[1] - y)
        errors.append(filled.mean() - (y1 - y0).mean())
    asked = Asked("ate", np.ones(1, bool), ("control", "treated"))
    found = predictor.predict(asked, 1e-6, population, 0.95).sampling_sd
    assert found == pytest.approx(np.std(errors), rel=0.05)


def test_the_prior_that_bounds_a_width_is_the_models():
    form = gram_form(WORKLOAD, GramPriors())
    rng = np.random.default_rng(1)
    mean = gram_law(form, rng.normal(form.centre, form.scale, (20_000, len(form.centre))), np).mean
    assert np.std(mean[:, 1, -1] - mean[:, 0, -1]) == pytest.approx(PRIOR_SD, abs=0.02)
    predictor = GramPredictor(WORKLOAD, 50, GUESSES)
    asked = Asked("ate", np.ones(1, bool), ("control", "treated"))
    assert predictor.predict(asked, 1e6, "super", 0.95).sd == pytest.approx(4 * PRIOR_SD, rel=0.01)
    assert predictor.rough(10.0)
    assert not GramPredictor(WORKLOAD, 500_000, GUESSES).rough(10.0)


def test_what_bins_leave_is_what_they_leave():
    """Of a normal confounder whose means differ by arm, and a linear outcome."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1_000_000)
    for shares in ([1, 1, 1, 1, 1], [0.2, 0.5, 0.3]):
        edges = np.quantile(x, np.cumsum(shares)[:-1] / np.sum(shares))
        place = np.digitize(x, edges)
        within = x - (np.bincount(place, x) / np.bincount(place))[place]
        assert left_in_bins(shares) == pytest.approx(within.var(), abs=0.005)
    assert left_in_bins([1]) == 1
    binned = [Binned("age", [0, 1, 2], other="no"), Categories("sex", ["f", "m"])]
    left = confounding_left(binned, GUESSES)
    assert left == pytest.approx(0.1 + 0.2 * left_in_bins([1, 1]))


def best(n, d, confounding, *, epsilon=1.0, radius2=0.22, **guesses):
    """Best of no strata, three bins of one or two covariates, and second moments of all d."""
    outcome = Bounded("y", -1, 1)
    cut = [Binned(f"x{j}", [-1, -1 / 3, 1 / 3, 1]) for j in range(2)]
    numbers = [Bounded(f"x{j}", -1, 1) for j in range(d)]
    strata = CausalWorkload(Schema(arm=ARM, outcome=outcome, covariates=cut), strata=["x0"])
    second = GramWorkload(
        Schema(arm=ARM, outcome=outcome, covariates=numbers), radius=np.sqrt(radius2 * d)
    )
    return custodian.plan(
        strata, n=n, epsilon=epsilon, delta=1e-6, confounding=confounding,
        candidates=[[], ["x0"], ["x0", "x1"], second], **guesses,
    )  # fmt: skip


def test_the_route_follows_from_public_reasoning():
    """A small, hardly confounded trial: no strata. Fifty covariates of which two confound: a few
    strata. Six that confound, and many records: second moments.
    """
    trial = best(747, 25, {"x0": 0.01, "x1": 0.01}, sd=0.25, treated=0.2, radius2=0.13)
    assert trial.best["strata"].tolist() == ["none"]
    many = best(4802, 50, {"x0": 0.06, "x1": 0.02}, sd=0.2, radius2=0.13)
    assert many.best["strata"].tolist() == ["x0, x1"]
    strong = best(20_000, 6, {f"x{j}": 0.025 for j in range(6)}, sd=0.155)
    (label,) = strong.best["strata"]
    assert label == "second order: x0, x1 ... x5 (6 covariates), radius 1.149"
    said = " ".join(str(strong).split())
    assert f"Best (*): {label} at epsilon 1." in said
    assert f"Expected error of ate at epsilon 1: {label} 0.005" in said
    assert "confounding left 0); next best, x0, x1" in said
    assert "~ The noise reaches" in " ".join(str(many).split())
    strong.figure()


def test_rows_of_second_moments():
    planned = custodian.plan(
        STRATA, n=N, epsilon=[1, 4], delta=1e-6, candidates=[WORKLOAD, ["age"]],
        estimands=[ATE(), ATT()], confounding={"wage": 0.3},
    )  # fmt: skip
    table = planned.table[planned.table["strata"] == "second order: age, town, sex, wage"]
    assert table["estimand"].tolist() == ["ate", "att"] * 2
    assert (table["n_strata"] == 1).all()
    assert (table["smallest_cell"] == N / 2).all()
    assert (table["confounding_left"] == 0).all()
    assert (planned.table["confounding_left"][~planned.table.index.isin(table.index)] == 0.3).all()
    narrower = table["privacy_sd"].to_numpy()
    assert np.all(narrower[2:] < narrower[:2] / 2)


BAD = [
    ({"candidates": WORKLOAD}, TypeError, "candidates is a GramWorkload: give a list"),
    ({"candidates": [WORKLOAD, WORKLOAD]}, ValueError, "holds 'second order: .* twice"),
    ({"candidates": [WORKLOAD, 3]}, TypeError, r"candidates\[1\] is 3: .* or a GramWorkload"),
    (
        {"candidates": [GramWorkload(Schema(arm=ARM, outcome=Levels("y", [0, 1])))]},
        ValueError,
        r"candidates\[0\] has another arm or outcome",
    ),
    ({"estimands": [ATE(by="sex")]}, ValueError, "ate by 'sex': second-order candidates"),
    ({"covariate_sd": {"age": 40}}, ValueError, r"\['age'\] is 40: .* above 0 and below 30"),
    ({"covariate_sd": {"sex": 1}}, ValueError, "covariate_sd names 'sex', which has levels"),
    ({"shares": {"wage": [0.5, 0.5]}}, ValueError, "'wage', which is a number without levels"),
    ({"confounding": {"pay": 1}}, ValueError, "confounding names 'pay'"),
]


@pytest.mark.parametrize(("change", "kind", "says"), BAD)
def test_bad_input(change, kind, says):
    options = {"n": N, "epsilon": 1.0, "delta": 1e-6, "candidates": [WORKLOAD]} | change
    with pytest.raises(kind, match=says):
        custodian.plan(STRATA, **options)


def test_binary_outcomes():
    schema = Schema(arm=ARM, outcome=Levels("y", [0, 1]), covariates=NUMERIC.covariates)
    guesses = guesses_for(schema, 0.5, 0.2, None, None, None)
    predictor = GramPredictor(GramWorkload(schema), 1000, guesses)
    asked = Asked("ate", np.ones(1, bool), ("control", "treated"))
    found = predictor.predict(asked, 1e-6, "super", 0.95)
    assert found.sampling_sd == pytest.approx(np.sqrt(0.16 * 4 / 1000), rel=0.01)
