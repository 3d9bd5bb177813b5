"""A record's contribution against enumeration, and the beta law's moments against SciPy's."""

from fractions import Fraction

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.linalg import block_diag
from scipy.stats import beta

from dpcausal_bayes.models.stratum_laws import StratumLaw, outcome_moments, record_moments
from moment_oracle import dense_moments, random_law

INTERPRETED = "FAST_COMPILE"


@pytest.mark.parametrize("mean", [-0.999, -0.4, 0.0, 0.3, 0.95])
@pytest.mark.parametrize("r", [1e-4, 0.05, 0.3, 0.9, 0.999])
def test_outcome_moments_are_those_of_a_beta_law_with_the_stated_variance(mean, r):
    size = 1 / r - 1
    law = beta(size * (1 + mean) / 2, size * (1 - mean) / 2, loc=-1, scale=2)
    np.testing.assert_allclose([law.mean(), law.var()], [mean, r * (1 - mean**2)], rtol=1e-9)
    wanted = [float(law.moment(k)) for k in (2, 3, 4)]
    np.testing.assert_allclose(outcome_moments(mean, r), wanted, rtol=0, atol=1e-9)


def exact_moments(mean, r):
    """E y^k for k = 2, 3, 4 in rational numbers, from the rising factorials of the beta law."""
    mean, r = Fraction(mean), Fraction(r)
    m, x = (1 + mean) / 2, [Fraction(1)]
    for k in range(4):
        x.append(x[-1] * (m * (1 - r) + k * r) / (1 - r + k * r))
    binomials = {2: (1, -4, 4), 3: (-1, 6, -12, 8), 4: (1, -8, 24, -32, 16)}
    return [float(sum(c * x[j] for j, c in enumerate(row))) for row in binomials.values()]


@pytest.mark.parametrize("mean", [-1 + 1e-9, -0.4, 0.3, 1 - 1e-12])
@pytest.mark.parametrize("r", [1e-300, 1e-15, 1e-9, 1e-3, 1 - 1e-9, 1 - 2**-53])
def test_outcome_moments_hold_their_digits_at_the_ends(mean, r):
    found = outcome_moments(mean, r)
    np.testing.assert_allclose(found, exact_moments(mean, r), rtol=0, atol=1e-14)
    assert np.all(np.abs(found) <= 1 + 1e-14)


def test_at_the_ends_the_outcome_is_one_point_or_two():
    mean = np.array([-0.7, 0.0, 0.2])
    np.testing.assert_allclose(outcome_moments(mean, 0.0), [mean**2, mean**3, mean**4], atol=1e-15)
    np.testing.assert_allclose(outcome_moments(mean, 1.0), [1 + 0 * mean, mean, 1 + 0 * mean])


def dense(moments):
    low_rank = (moments.factors * moments.signs) @ moments.factors.T
    return block_diag(*moments.blocks) + low_rank


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("n_strata", [1, 2, 6])
def test_a_record_contributes_what_enumeration_says(n_strata, binary):
    law = StratumLaw(*random_law(n_strata, binary=binary))
    moments = record_moments(law, n_strata, np)
    mean, covariance = dense_moments(*law)
    np.testing.assert_allclose(moments.mean, mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(dense(moments), covariance, rtol=0, atol=1e-12)
    order = 1 if binary else 2
    assert moments.blocks.shape == (len(mean) // order, order, order)
    assert moments.factors.shape == (len(mean), 1 if binary else 5)
    assert sorted(moments.signs, reverse=True) == list(moments.signs)  # positive ones first


@pytest.mark.parametrize("binary", [True, False])
def test_masses_sum_to_one_without_variance(binary):
    moments = record_moments(StratumLaw(*random_law(6, binary=binary)), 6, np)
    mass = np.zeros(len(moments.mean))
    mass[:24] = 1 if binary else np.tile([1.0, 0.0], 12)
    np.testing.assert_allclose(mass @ moments.mean, 1)
    np.testing.assert_allclose(dense(moments) @ mass, 0, atol=1e-14)


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_give_what_arrays_give(binary):
    law = random_law(2, binary=binary)
    tensors = [pt.matrix(), pt.matrix(), *([] if binary else [pt.vector()])]
    symbolic = record_moments(StratumLaw(*tensors, *([None] if binary else [])), 2, pt)
    evaluate = pytensor.function(tensors, list(symbolic[:3]), mode=INTERPRETED)
    wanted = record_moments(StratumLaw(*law), 2, np)
    for found, value in zip(evaluate(*law[: len(tensors)]), wanted, strict=False):
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(symbolic.signs, wanted.signs)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("n_strata", [1, 6])
def test_many_laws_at_once_are_as_each_alone(n_strata, binary):
    laws = [random_law(n_strata, binary=binary, seed=seed) for seed in range(6)]
    batch = [None if one[0] is None else np.array(one) for one in zip(*laws, strict=True)]
    shaped = [None if part is None else part.reshape(2, 3, *part.shape[1:]) for part in batch]
    together = record_moments(StratumLaw(*shaped), n_strata, np)
    for j, law in enumerate(laws):
        alone = record_moments(StratumLaw(*law), n_strata, np)
        for part, wanted in zip(together[:3], alone[:3], strict=True):
            np.testing.assert_allclose(part[divmod(j, 3)], wanted, rtol=0, atol=1e-15)
