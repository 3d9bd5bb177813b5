"""Cells with few tables of counts, against enumeration unit by unit."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import multinomial

from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.models.label_likelihood import count_moments
from dpcausal_bayes.models.small_cells import compositions, log_label_likelihood

MECHANISMS = [
    ClusterDP(lam=0.3, sigma=1.0, gamma=0.05),
    ClusterDP(lam=0.95, sigma=4.0, gamma=0.2),
    ClusterDP(lam=1e-15, sigma=1.0, gamma=0.1),
]


def labels_given_counts(mechanism, counts, prior):
    """P(M | N) for every M, one unit after another."""
    channel = mechanism.channel(prior)
    law = {(0,) * len(counts): 1.0}
    for y, n in enumerate(counts):
        for _ in range(n):
            longer = {}
            for m, weight in law.items():
                for y_out in range(len(counts)):
                    key = tuple(k + (i == y_out) for i, k in enumerate(m))
                    longer[key] = longer.get(key, 0.0) + weight * channel[y_out, y]
            law = longer
    return law


def test_compositions_are_all_the_tables():
    for total, parts in itertools.product(range(6), range(1, 5)):
        table = compositions(total, parts)
        assert len(table) == math.comb(total + parts - 1, parts - 1)
        assert len({tuple(row) for row in table}) == len(table)
        assert (table.sum(-1) == total).all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("n", "prior"), [(5, [0.7, 0.3]), (4, [0.5, 0.2, 0.3]), (1, [0.6, 0.4])])
def test_labels_given_counts_by_enumeration(mechanism, n, prior):
    prior = np.array(prior)
    tables = compositions(n, len(prior))
    for released in tables:
        got = np.exp(log_label_likelihood(mechanism, tables, released, prior))
        wanted = [
            labels_given_counts(mechanism, counts, prior)[tuple(released)] for counts in tables
        ]
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("mechanism", MECHANISMS[:2])
def test_moments_of_the_counts_are_those_of_the_enumerated_law(mechanism):
    prior, share = np.array([0.5, 0.2, 0.3]), np.array([0.2, 0.7, 0.1])
    tables, released = compositions(6, 3), np.array([1, 3, 2])
    weight = multinomial(6, share).pmf(tables)
    weight = weight * np.exp(log_label_likelihood(mechanism, tables, released, prior))
    weight /= weight.sum()
    mean = weight @ tables
    covariance = (tables - mean).T @ (weight[:, None] * (tables - mean))
    moments = count_moments(share, released, prior, mechanism.lam)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-9)
    low_rank = np.outer(moments.plus, moments.plus) - np.outer(moments.minus, moments.minus)
    np.testing.assert_allclose(np.diag(moments.variance) + low_rank, covariance, atol=1e-9)


def test_a_large_cell_neither_overflows_nor_underflows():
    tables = compositions(255, 2)
    for mechanism in MECHANISMS[:2]:
        got = log_label_likelihood(mechanism, tables, np.array([100, 155]), np.array([0.5, 0.5]))
        assert np.isfinite(got).sum() > 50
        assert np.nanmax(got) < 0
