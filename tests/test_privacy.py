"""The privacy claim, by enumeration of tiny tables and by an audit that can fail."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpcausal_bayes import accounting, privatise
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.privatise import privatise_labels
from dpcausal_bayes.simulate import SeededNoise


def neighbours(n, n_levels):
    """All pairs of label vectors of one cell that differ in one label."""
    for table in itertools.product(range(n_levels), repeat=n):
        for i, label in itertools.product(range(n), range(n_levels)):
            if label != table[i]:
                yield table, (*table[:i], label, *table[i + 1 :])


def outputs(channel, table):
    """Probability of every vector of released labels, for every histogram at once."""
    n_levels = channel.shape[-1]
    out = np.ones((len(channel), 1))
    for label in table:
        out = (out[:, :, None] * channel[:, None, :, label]).reshape(len(channel), -1)
    assert out.shape[1] == n_levels ** len(table)
    return out


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("n_levels", [2, 3])
def test_label_channel_ratio_is_the_claim_and_reached(n, n_levels):
    """For all neighbouring tables, all histograms on a grid, all vectors of released labels."""
    mechanism = ClusterDP(lam=0.7, sigma=2.0, gamma=0.4 / n_levels)
    grid = np.array(list(itertools.product(range(-3, 7), repeat=n_levels)))
    channel = mechanism.channel(mechanism.prior(grid, np.full(len(grid), n)))
    worst = max(
        (outputs(channel, one) / outputs(channel, two)).max()
        for one, two in neighbours(n, n_levels)
    )
    assert worst <= math.exp(mechanism.epsilon_label) * (1 + 1e-12)
    assert worst >= math.exp(mechanism.epsilon_label) * (1 - 1e-12)


def test_clip_then_divide_would_exceed_the_label_claim():
    """The reason for the floor that holds: the obvious one is caught by the same enumeration."""
    mechanism = ClusterDP(lam=0.7, sigma=2.0, gamma=0.2)
    grid = np.array(list(itertools.product(range(-3, 7), repeat=2)))
    clipped = np.maximum(grid / 2, mechanism.gamma)
    channel = mechanism.channel(clipped / clipped.sum(axis=-1, keepdims=True))
    worst = max((outputs(channel, a) / outputs(channel, b)).max() for a, b in neighbours(2, 2))
    assert worst > math.exp(mechanism.epsilon_label) * 1.5


@pytest.mark.parametrize("sigma", [0.5, 2.0, 7.0])
@pytest.mark.parametrize("n_levels", [2, 3])
def test_histogram_ratio_is_two_over_sigma_and_reached(sigma, n_levels):
    mechanism = ClusterDP(lam=0.7, sigma=sigma, gamma=0.1)
    law = mechanism.noise_law
    grid = np.array(list(itertools.product(range(-4, 8), repeat=n_levels)))

    def log_density(table):
        return law.log_pmf(grid - np.bincount(table, minlength=n_levels)).sum(axis=-1)

    worst = max((log_density(one) - log_density(two)).max() for one, two in neighbours(3, n_levels))
    assert mechanism.epsilon_histogram == 2 / sigma
    assert worst == pytest.approx(2 / sigma, rel=1e-12)
    assert worst > 1.9 / sigma  # so that 1/sigma, printed elsewhere, cannot be claimed


def joint(mechanism, one, two, reach):
    """Both tables' exact law of (noisy counts, released label of the changed unit).

    The other units' labels have the same law given the noisy counts, and so add nothing.
    ``one`` and ``two`` count labels; the changed unit has label 0 in the first, 1 in the second.
    """
    ranges = [
        np.arange(min(a, b) - reach, max(a, b) + reach + 1) for a, b in zip(one, two, strict=True)
    ]
    grid = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1)
    channel = mechanism.channel(mechanism.prior(grid, np.full(grid.shape[:-1], sum(one))))
    laws = []
    for counts, label in ((one, 0), (two, 1)):
        density = np.exp(mechanism.noise_law.log_pmf(grid - np.array(counts)).sum(axis=-1))
        laws.append(density[..., None] * channel[..., label])
        assert laws[-1].sum() == pytest.approx(1, abs=1e-9)
    return laws


@pytest.mark.parametrize("noise", [Laplace, Gaussian])
@pytest.mark.parametrize(
    ("one", "two", "gamma", "close"),
    [
        ((1, 0), (0, 1), 0.2, 0.0),
        ((2, 0), (1, 1), 0.5 - 1e-9, 0.99),
        ((1, 0, 1), (0, 1, 1), 0.2, 0.0),
        ((1, 0, 9), (0, 1, 9), 0.3, 0.98),  # the changed label's shares lie below the floor
    ],
)
def test_tight_loss_dominates_the_exact_joint_mechanism(noise, one, two, gamma, close):
    mechanism = ClusterDP(lam=0.8, sigma=1.0, gamma=gamma, noise=noise)
    first, second = joint(mechanism, one, two, reach=26)
    histogram = (
        accounting.laplace_losses(1.0) if noise is Laplace else accounting.gaussian_losses(1.0)
    )
    losses = accounting.compose(histogram, accounting.channel_losses(0.8, gamma))
    for epsilon in (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 2.5):
        claim = accounting.delta_at(losses, epsilon)
        for p, q in ((first, second), (second, first)):
            exact = np.maximum(p - math.exp(epsilon) * q, 0).sum()
            assert exact <= claim + 1e-10
        assert np.maximum(first - math.exp(epsilon) * second, 0).sum() >= close * claim - 1e-10
        # and loss() inverts this very function
        if 1e-6 < claim < 1:
            assert mechanism.loss(claim).epsilon == pytest.approx(epsilon, abs=1e-6)


def test_exact_joint_mechanism_of_whole_tables_is_within_the_pure_claim():
    mechanism = ClusterDP(lam=0.6, sigma=1.5, gamma=0.15)
    law, reach = mechanism.noise_law, 12
    grid = np.array(list(itertools.product(range(-reach, reach + 1), repeat=2)))
    channel = mechanism.channel(mechanism.prior(grid, np.full(len(grid), 2)))
    worst = 0.0
    for one, two in neighbours(2, 2):
        laws = [
            np.exp(law.log_pmf(grid - np.bincount(table, minlength=2)).sum(axis=-1))[:, None]
            * outputs(channel, table)
            for table in (one, two)
        ]
        worst = max(worst, (laws[0] / laws[1]).max())
    assert worst <= math.exp(mechanism.loss().pure_epsilon) * (1 + 1e-12)


# The audit: many independent copies of one tiny table, each a cell of its own, go through the real
# code. For an event, exact binomial limits on both tables' frequencies give a lower limit on
# epsilon; over all events it is above the truth with probability at most 1e-6.

COPIES = 60_000
EVENTS = {
    "label": lambda noisy, label: label == 0,
    "histogram": lambda noisy, label: (noisy[:, 0] >= 1) & (noisy[:, 1] <= 0),
    "both": lambda noisy, label: (noisy[:, 0] >= 1) & (noisy[:, 1] <= 0) & (label == 0),
    "label below the floor": lambda noisy, label: (
        (noisy[:, 0] <= 0) & (noisy[:, 1] <= 0) & (noisy[:, 2] >= 8) & (label == 0)
    ),
}


class HalfNoise(SeededNoise):
    """A broken source: half the noise that was promised."""

    def integers(self, law, shape):
        return super().integers(type(law)(law.scale / 2), shape)


def run(mechanism, table, source):
    """Return each copy's noisy counts and the released label of its first unit."""
    labels = np.tile(np.array(table), COPIES)
    cells = np.repeat(np.arange(COPIES), len(table))
    noisy, released = privatise_labels(mechanism, labels, cells, COPIES, 3, source)
    return noisy, released[:: len(table)]


def audited_epsilon(mechanism, kind=SeededNoise):
    """Return a lower limit on the loss between tables (0, 2) and (1, 2)."""
    runs = [run(mechanism, table, kind(seed)) for seed, table in ((1, (0, 2)), (2, (1, 2)))]
    alpha = 1e-6 / (2 * len(EVENTS))
    limits = []
    for event in EVENTS.values():
        hits = [int(event(*one).sum()) for one in runs]
        low = stats.beta.ppf(alpha, hits[0], COPIES - hits[0] + 1)
        high = stats.beta.ppf(1 - alpha, hits[1] + 1, COPIES - hits[1])
        limits.append(math.log(low / high) if hits[0] else -math.inf)
    return max(limits)


def clip_then_divide(thresholds, mechanism, excess):
    """Broken thresholds: shares clipped at the floor, then divided by their sum.

    The share of the third label is taken to be ten, as after a large draw of noise.
    """
    keep, starts = thresholds(mechanism, excess)
    clipped = np.maximum(excess * 10, mechanism.gamma)
    ends = np.cumsum(clipped / clipped.sum(axis=-1, keepdims=True), axis=-1)
    starts[:, 1:3] = (ends[:, :2] * 2.0**64).astype(np.uint64)
    return keep, starts


AUDITED = [
    ClusterDP(lam=0.9, sigma=1.0, gamma=0.15),
    ClusterDP(lam=0.4, sigma=8.0, gamma=0.15),
    ClusterDP(lam=0.6, sigma=2.0, gamma=0.05),
]


@pytest.mark.parametrize("mechanism", AUDITED)
def test_audit_never_exceeds_the_claim_and_comes_near_it(mechanism):
    found = audited_epsilon(mechanism)
    assert found <= mechanism.loss().pure_epsilon
    assert found >= 0.4 * mechanism.loss().pure_epsilon


def test_audit_catches_half_the_noise():
    mechanism = AUDITED[0]
    assert audited_epsilon(mechanism, HalfNoise) > mechanism.loss().pure_epsilon


def test_audit_catches_clip_then_divide(monkeypatch):
    mechanism = AUDITED[1]
    original = privatise.thresholds
    monkeypatch.setattr(privatise, "thresholds", lambda *given: clip_then_divide(original, *given))
    assert audited_epsilon(mechanism) > mechanism.loss().pure_epsilon


def test_audit_catches_labels_kept_too_often(monkeypatch):
    mechanism = AUDITED[1]
    original = privatise.thresholds

    def too_often(*given):
        keep, starts = original(*given)
        return np.uint64(int(keep) + 2**64 // 5), starts

    monkeypatch.setattr(privatise, "thresholds", too_often)
    assert audited_epsilon(mechanism) > mechanism.loss().pure_epsilon
