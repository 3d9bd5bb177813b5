"""Treatment that was randomised with a public probability: nothing is learnt of it."""

import numpy as np
import pymc as pm
import pytest
from pytensor.compile.mode import Mode

from dpcausal_bayes import models
from dpcausal_bayes.models.strata import stratum_space
from dpcausal_bayes.models.surfaces import prior_mean, stratum_law, surfaces
from moment_oracle import make_release

INTERPRETED = Mode(linker="py", optimizer="fast_compile")


@pytest.mark.parametrize("binary", [False, True])
def test_a_public_probability_is_the_propensity_of_every_stratum(binary):
    release = make_release({"a": 3, "b": 2}, groups=[["a", "b"]], binary=binary)
    model = models.stratified_moments(release, probability=0.3)
    for share in pm.draw(model["share"], draws=5, random_seed=1, mode=INTERPRETED):
        np.testing.assert_allclose(share[1] / share.sum(0), 0.3)
    space, priors = stratum_space([3, 2]), models.MomentPriors()
    known = surfaces(space, priors, binary=binary, probability=0.3)
    learnt = surfaces(space, priors, binary=binary)
    assert known.labels == tuple(model.coords["term"])
    gone = [label for label in learnt.labels if label not in known.labels]
    assert {label.split()[0] for label in gone} == {"propensity", "confounding", "gain"}
    # the same law and the same prior as where all that is gone happens to be so
    coefficient = np.random.default_rng(3).normal(size=len(known.labels))
    full = np.zeros(len(learnt.labels))
    full[[learnt.labels.index(label) for label in known.labels]] = coefficient
    full[learnt.labels.index("propensity 1")] = np.log(0.3 / 0.7)
    for found, wanted in zip(
        stratum_law(known, coefficient, np), stratum_law(learnt, full, np), strict=True
    ):
        assert found is wanted is None or np.allclose(found, wanted, rtol=1e-12)
    kept = [label in known.labels for label in learnt.labels]
    np.testing.assert_array_equal(known.scale, learnt.scale[kept])
    np.testing.assert_allclose(prior_mean(learnt, full, np)[kept], known.centre)


@pytest.mark.parametrize("wrong", [0.0, 1.0, 40, float("nan"), "half"])
def test_a_wrong_probability_is_refused(wrong):
    release = make_release({"a": 3}, groups=["a"])
    with pytest.raises((TypeError, ValueError), match="probability is"):
        models.stratified_moments(release, probability=wrong)
