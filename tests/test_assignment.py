"""Which unit has which label, against the enumeration of every possibility."""

import itertools
from math import factorial

import numpy as np
import pytest
from scipy.special import gammaln

from chi_square import assert_law
from dpcausal_bayes.assignment import KeptLaw, Placement, draw_kept, kept_mode, round_counts
from dpcausal_bayes.mechanisms import ClusterDP

MANY = 30_000


def law_of_kept(true, released, prior, lam):
    """Return every S and its probability, from the formula."""
    places, weights = [], []
    for kept in itertools.product(*(range(top + 1) for top in map(min, true, released))):
        lost = sum(true) - sum(kept)
        weight = factorial(lost) * lam**lost * (1 - lam) ** sum(kept)
        for n, m, s, q in zip(true, released, kept, prior, strict=True):
            weight *= q ** (m - s) / (factorial(s) * factorial(n - s) * factorial(m - s))
        places.append(kept)
        weights.append(weight)
    return places, np.array(weights) / sum(weights)


def law_of_labels(true, label, prior, lam):
    """Return every arrangement of the true labels and its probability, from the channel."""
    channel = ClusterDP(lam=lam, sigma=1.0, gamma=1e-3).channel(prior)
    bag = np.repeat(np.arange(len(true)), true)
    places = sorted(set(itertools.permutations(bag.tolist())))
    weights = np.array([np.prod(channel[label, list(place)]) for place in places])
    return places, weights / weights.sum()


def assert_frequencies(draws, places, law):
    code = {place: i for i, place in enumerate(places)}
    assert_law(np.array([code[tuple(draw)] for draw in draws.tolist()]), law)


CELLS = [
    ((2, 2), (2, 2), (0.5, 0.5), 0.02),
    ((3, 1), (1, 3), (0.3, 0.7), 0.5),
    ((4, 4), (4, 4), (0.5, 0.5), 0.001),  # most often nothing was lost
    ((0, 4), (4, 0), (0.9, 0.1), 0.2),
    ((2, 1, 2), (1, 3, 1), (0.2, 0.5, 0.3), 0.9),
    ((1, 3, 0), (0, 2, 2), (0.6, 0.3, 0.1), 0.3),
]


@pytest.mark.parametrize(("true", "released", "prior", "lam"), CELLS)
def test_kept_counts_against_enumeration(true, released, prior, lam):
    rng = np.random.default_rng(1)
    draws = draw_kept(
        np.tile(true, (MANY, 1)), np.tile(released, (MANY, 1)), np.array(prior), lam, rng
    )
    assert_frequencies(draws, *law_of_kept(true, released, prior, lam))


@pytest.mark.parametrize(("true", "released", "prior", "lam"), CELLS)
def test_true_labels_against_every_assignment(true, released, prior, lam):
    rng = np.random.default_rng(2)
    size, n_levels = sum(true), len(true)
    label = rng.permutation(np.repeat(np.arange(n_levels), released))
    # the same cell many times over, so that one call draws many assignments
    cell = np.repeat(np.arange(MANY // 4), size)
    shuffled = rng.permutation(cell.size)
    labels = np.tile(label, MANY // 4)
    place = Placement.of(cell[shuffled], labels[shuffled], MANY // 4, n_levels)
    counts = np.tile(true, (MANY // 4, 1))
    kept = draw_kept(counts, place.released, np.array(prior), lam, rng)
    draws = np.empty(cell.size, dtype=int)
    draws[shuffled] = place.assign(counts, kept, rng)
    assert_frequencies(draws.reshape(-1, size), *law_of_labels(true, label, np.array(prior), lam))


def test_another_channel_is_noticed():
    true, released, prior = (3, 1), (1, 3), (0.3, 0.7)
    rng = np.random.default_rng(1)
    draws = draw_kept(
        np.tile(true, (MANY, 1)), np.tile(released, (MANY, 1)), np.array(prior), 0.5, rng
    )
    with pytest.raises(AssertionError, match="p-value"):
        assert_frequencies(draws, *law_of_kept(true, released, prior, 0.48))


@pytest.mark.parametrize(
    ("true", "released", "odds"),
    [
        (5, 3, 0.2),
        (0, 3, 1.0),
        (1, 1, 1e-300),
        (100, 80, 30.0),
        (3, 1000, 200.0),
        (10**5, 9 * 10**4, 5e3),
        (10**6, 10**6, 1e-3),
        (10**6, 10**6, 1e7),
    ],
)
def test_one_label_kept_at_given_odds(true, released, odds):
    support = np.arange(min(true, released) + 1)
    every = KeptLaw(np.full(support.size, true), np.full(support.size, released))
    log_law = every.log_weight(support, np.full(support.size, np.log(odds)))
    law = np.exp(log_law - log_law.max())
    draws = KeptLaw(np.full(MANY, true), np.full(MANY, released)).draw(
        np.full(MANY, odds), np.random.default_rng(3)
    )
    assert_law(draws, law / law.sum())
    mode = kept_mode(np.array([true]), np.array([released]), np.array([odds]))[0]
    assert log_law[mode] >= log_law.max() - 1e-8


@pytest.mark.parametrize("lam", [0.001, 0.3, 0.9, 0.9999])
def test_sampler_forgets_where_it_started(lam, monkeypatch):
    # Large cells, where no enumeration reaches: many sweeps from a bad start agree with the few.
    rng = np.random.default_rng(4)
    true = np.array([60_000, 25_000, 15_000])
    prior = np.array([0.2, 0.5, 0.3])
    released = rng.binomial(true, 1 - lam)
    released = released + rng.multinomial(true.sum() - released.sum(), prior)
    many = np.tile(true, (4000, 1))
    few = draw_kept(many, np.tile(released, (4000, 1)), prior, lam, rng).sum(axis=1)
    monkeypatch.setattr("dpcausal_bayes.assignment.SWEEPS", 15)
    fewer = draw_kept(many, np.tile(released, (4000, 1)), prior, lam, rng).sum(axis=1)
    tolerance = 5 * few.std() * np.sqrt(2 / 4000)
    assert abs(few.mean() - fewer.mean()) <= tolerance
    assert abs(few.mean() / true.sum() - (1 - lam)) < 0.02


@pytest.mark.parametrize("lam", [0.02, 0.1, 0.3, 0.9])
@pytest.mark.parametrize(("true", "prior"), [((15, 15), (0.5, 0.5)), ((5, 20), (0.2, 0.8))])
def test_each_sweep_about_halves_the_memory(true, prior, lam):
    # the sampler's transition matrix, by quadrature over t: its second eigenvalue, exactly
    places, law = law_of_kept(true, true, prior, lam)
    places = np.array(places)
    lost = sum(true) - places.sum(axis=1)
    log_t = np.linspace(-25, np.log(6 * sum(true) + 60), 4000)
    log_gamma = (lost[:, None] + 1) * log_t - np.exp(log_t) - gammaln(lost + 1)[:, None]
    log_step = np.zeros((len(places), len(log_t)))
    for y, n in enumerate(true):
        support = np.arange(n + 1)[:, None]
        every = KeptLaw(np.full((n + 1, 1), n), np.full((n + 1, 1), n))
        log_p = every.log_weight(support, np.log(lam / (1 - lam) * prior[y]) + log_t)
        log_step += (log_p - np.logaddexp.reduce(log_p, axis=0))[places[:, y]]
    step = np.exp(log_gamma) @ np.exp(log_step).T * (log_t[1] - log_t[0])
    np.testing.assert_allclose(law @ step, law, atol=1e-9)  # the law is stationary
    values = np.sort(abs(np.linalg.eigvals(step)))
    assert values[-1] == pytest.approx(1)
    assert values[-2] < 0.55


def test_one_sweep_is_too_few(monkeypatch):
    # that the number of sweeps is looked at at all
    monkeypatch.setattr("dpcausal_bayes.assignment.SWEEPS", 1)
    true, released, prior, lam = CELLS[4]
    draws = draw_kept(
        np.tile(true, (MANY, 1)),
        np.tile(released, (MANY, 1)),
        np.array(prior),
        lam,
        np.random.default_rng(1),
    )
    with pytest.raises(AssertionError, match="p-value"):
        assert_frequencies(draws, *law_of_kept(true, released, prior, lam))


def test_rounding_is_unbiased_and_keeps_the_size():
    counts = np.array([0.25, 2.5, 0.0, 3.25])
    drawn = round_counts(np.tile(counts, (MANY, 1)), np.full(MANY, 6), np.random.default_rng(5))
    assert (drawn.sum(axis=1) == 6).all()
    assert (abs(drawn - counts) < 1).all()
    np.testing.assert_allclose(drawn.mean(axis=0), counts, atol=5 * 0.5 / np.sqrt(MANY))


def test_whole_counts_stay_and_negative_ones_become_zero():
    rng = np.random.default_rng(6)
    whole = rng.multinomial(1000, [0.2, 0.3, 0.5], size=(50, 4)).astype(float)
    np.testing.assert_array_equal(round_counts(whole, np.full((50, 4), 1000), rng), whole)
    nearly = whole * (1 + 1e-15)
    np.testing.assert_array_equal(round_counts(nearly, np.full((50, 4), 1000), rng), whole)
    drawn = round_counts(np.array([[-3.0, 5.5, 7.5], [0.0, 0.0, 0.0]]), np.array([10, 0]), rng)
    assert drawn[0, 0] == 0
    assert drawn.sum(axis=1).tolist() == [10, 0]


@pytest.mark.parametrize("counts", [[1.0, 2.0], [np.nan, 4.0]])
def test_counts_that_do_not_fill_the_cell(counts):
    with pytest.raises(ValueError, match="sum, in each cell"):
        round_counts(np.array([counts]), np.array([4]), np.random.default_rng(0))
