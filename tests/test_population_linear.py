"""Linear populations: their rows, their effects, designs whose truths are the prior's."""

import numpy as np
import pytest

from dpcausal_bayes.calibration import calibrate, replicate
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.designs import GramDesign
from dpcausal_bayes.estimands import ATC, ATE, ATT, CATE, CATESlope
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.populations import LinearPopulation
from dpcausal_bayes.populations.linear import linear_columns
from dpcausal_bayes.schema import Schema

ARM = Arm("t", control="no", treated="yes")
TOWN = Categories("town", ["a", "b"], other="else")
WORKLOAD = GramWorkload(
    Schema(arm=ARM, outcome=Bounded("y", 0, 10), covariates=[TOWN, Bounded("x", -3, 3)])
)
MECHANISM = GaussianMechanism.calibrated(WORKLOAD, epsilon=1.0, delta=1e-6)
ESTIMANDS = [ATE(), ATT(), ATC(), ATE(by="town"), CATE(at={"x": 2, "town": "b"}), CATESlope("x")]


def population(n=1000):
    """A study drawn from the prior's neighbourhood: columns town=b, town=else, x, y."""
    return GramDesign(WORKLOAD, MECHANISM, n=n).populations(3, seed=4)[2]


def test_rows_have_the_moments_they_were_made_from():
    study = population(400_000)
    arm, v = linear_columns(study.draw(1), WORKLOAD)
    assert abs(arm.mean() - study.share[1]) < 4 * 0.5 / 400_000**0.5
    for a in (0, 1):
        own = v[arm == a]
        sd = np.sqrt(np.diagonal(study.covariance[a]))
        assert np.all(np.abs(own.mean(0) - study.mean[a]) < 4.5 * sd / len(own) ** 0.5)
        scaled = (np.cov(own.T) - study.covariance[a]) / np.outer(sd, sd)
        assert np.abs(scaled).max() < 10 / len(own) ** 0.5  # fourth moments of rare levels


@pytest.mark.parametrize("one", ESTIMANDS, ids=lambda one: one.name)
def test_effects_on_many_rows_are_those_of_the_population(one):
    study = population(400_000)
    table = study.draw(2)
    spread = np.std(table["y1"] - table["y0"])
    apart = np.abs(study.sample_truth(one, table) - study.truth(one))
    smallest = min(
        (study.draw(2)["town"] == level).sum() for level in ("a", "b", "else")
    ) * min(study.share)  # fmt: skip
    assert float(apart.max()) < 5 * spread / smallest**0.5


def test_effects_by_hand():
    """One covariate whose mean differs by arm; slopes 1 and 2, of half widths 5 and 3."""
    workload = GramWorkload(WORKLOAD.schema, ["x"])
    study = LinearPopulation(
        workload=workload,
        n=10,
        share=[0.75, 0.25],
        mean=[[-0.2, 0.1], [0.4, 0.5]],
        covariance=[[[0.1, 0.1], [0.1, 0.3]], [[0.1, 0.2], [0.2, 0.5]]],
    )

    # at x in scaled units: 0.1 + (x + 0.2) against 0.5 + 2 (x - 0.4), times 5
    def effect(x):
        return 5 * (-0.6 + x)

    everybody = 0.75 * -0.2 + 0.25 * 0.4
    assert float(study.truth(ATE())) == pytest.approx(effect(everybody))
    assert float(study.truth(ATT())) == pytest.approx(effect(0.4))
    assert float(study.truth(CATE(at={"x": 3}))) == pytest.approx(effect(1.0))
    assert float(study.truth(CATESlope("x"))) == pytest.approx(5 / 3)


def test_a_release_holds_the_rows_as_they_are():
    study = population(300)
    exact = GaussianMechanism.calibrated(WORKLOAD, epsilon=60.0, delta=1e-6)
    design = GramDesign(WORKLOAD, exact, n=300)
    table, release = replicate(design, study, 3, seed=1)
    arm, v = linear_columns(table, WORKLOAD)
    assert np.abs(v).max() > 1  # beyond the bounds
    v = np.column_stack([np.ones(300), v])
    second = [v[arm == a].T @ v[arm == a] for a in (0, 1)]
    assert np.abs(release.workload.gram(release.noisy) - second).max() < 6 * exact.scale
    assert release.non_private


def test_refusals():
    facts = {"n": 10, "share": [0.5, 0.5], "mean": np.zeros((2, 2))}
    numeric = GramWorkload(WORKLOAD.schema, ["x"])
    with pytest.raises(ValueError, match=r"covariance has shape \(2, 2\): it must be \(2, 2, 2\)"):
        LinearPopulation(workload=numeric, covariance=np.eye(2), **facts)
    with pytest.raises(ValueError, match="positive definite"):
        LinearPopulation(workload=numeric, covariance=np.ones((2, 2, 2)), **facts)
    with pytest.raises(ValueError, match="share is"):
        LinearPopulation(
            workload=numeric, covariance=np.stack([np.eye(2)] * 2), **facts | {"share": [1, 1]}
        )
    backwards = GramWorkload(WORKLOAD.schema, ["x", "town"])
    with pytest.raises(TypeError, match="but for the first, which may have levels"):
        LinearPopulation(workload=backwards, covariance=np.eye(4), **facts)
    binary = Schema(arm=ARM, outcome=Levels("y", [0, 1]), covariates=[Bounded("x", 0, 1)])
    with pytest.raises(TypeError, match="must have a Bounded outcome"):
        LinearPopulation(workload=GramWorkload(binary), covariance=np.eye(2), **facts)
    bins = Schema(arm=ARM, outcome=Bounded("y", 0, 1), covariates=[Binned("x", [0, 1, 2])])
    with pytest.raises(TypeError, match="'x' has bins"):
        LinearPopulation(workload=GramWorkload(bins), covariance=np.eye(2), **facts)


@pytest.mark.slow
def test_truths_from_the_prior_are_covered():
    """Of 60 releases; a posterior half as wide, or of another table, would miss far more."""
    design = GramDesign(WORKLOAD, MECHANISM, n=3000)
    found = calibrate(
        design, estimands=[ATE(), ATT(), CATE(at={"x": 2})], releases=60, draws=500,
        progressbar=False,
    )  # fmt: skip
    table = found.table
    assert len(table) == 6
    assert (table["cover_95"] >= 0.85).all()
    assert (table["cover_50"].between(0.3, 0.7)).all()
    assert (table["p_uniform"] > 1e-4).all()
