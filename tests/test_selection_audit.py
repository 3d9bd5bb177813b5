"""Audits of selecting releases: no pair of neighbouring tables may be told apart better than said.

The choice's law is known exactly given its scores, so its likelihood ratios are enumerated; whole
runs are simulated. Variants that are broken on purpose must be found out.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from dpcausal_bayes.columns import Arm, Bounded, Categories
from dpcausal_bayes.custodian import gains, steps
from dpcausal_bayes.custodian.beliefs import Law
from dpcausal_bayes.custodian.schedule import schedule_for
from dpcausal_bayes.custodian.select import carry_out
from dpcausal_bayes.custodian.steps import Steps
from dpcausal_bayes.moments import table_moments
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import SeededNoise

SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1),
    outcome=Bounded("y", -1, 1),
    covariates=[Categories("a", [0, 1]), Categories("b", [0, 1])],
)
CANDIDATES = ["a", "b"]
EPSILON = 1.0
SCHEDULE = schedule_for(SCHEMA, CANDIDATES, EPSILON, None, 1e-3, 1)
RECORDS = list(itertools.product((0, 1), (0, 1), (0, 1), (-1.0, 0.2, 1.0)))  # t, a, b, y


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Sum tables in memory directly: thousands are read."""
    monkeypatch.setattr(
        steps, "exact_moments", lambda table, work: (table_moments(table, work), len(table))
    )


def table_of(records):
    return pd.DataFrame(list(records), columns=["t", "a", "b", "y"])


def law_of_choice(table, groups=(("a",), ("b",))):
    """Return the log-probabilities of choosing each group and of stopping, given what is believed.

    Beliefs come from noisy sums, which are paid for: neighbours are compared at the same ones.
    """
    law = Law(np.array([[0.6], [0.4]]), np.array([[-0.1], [0.2]]), np.array([0.3, 0.2]))
    state = Steps(table, SCHEDULE, None, SeededNoise(1))
    state._answers[()] = steps.Answer(np.zeros(6, dtype=np.int64), 1.0)
    state._n = len(table)
    seen = gains.outlook(SCHEMA, law, len(table))
    # without errors a gain is the score's own size: it moves as far as it can
    scores, scale = state.scores(groups, seen, 0.0, dict.fromkeys(groups, 0.0))
    return special.log_softmax(scores / scale)


def pairs():
    """Yield neighbours: small tables of all kinds, and large strata at the ends of what is scored.

    In the large ones a's strata have residuals that a record moves most; in the last, one record is
    alone in its stratum and arm.
    """
    rng = np.random.default_rng(5)
    for _ in range(60):
        chosen = rng.choice(len(RECORDS), size=rng.integers(2, 7))
        yield [RECORDS[i] for i in chosen], RECORDS[rng.integers(len(RECORDS))]
    for arm, y, new_arm, new_y in itertools.product((0, 1), (-1.0, 1.0), (0, 1), (-1.0, 1.0)):
        strata = [(arm, 0, 0, y)] * 3 + [(0, 0, 1, -0.6)] * 20 + [(1, 0, 1, 0.5)] * 8
        strata += [(1, 1, 0, 0.9)] * 20 + [(0, 1, 0, -0.3)] * 25
        yield strata, (new_arm, 1, 1, new_y)
    alone = [
        (1, 1, 0, -1.0),
        *[(0, 1, 0, 0.2)] * 40,
        *[(0, 0, 1, 0.2)] * 20,
        *[(1, 0, 1, 0.2)] * 20,
    ]
    yield alone, (1, 1, 0, 1.0)


def widest_range():
    """Return the largest range of a choice's log-likelihood ratios over all pairs.

    An exponential mechanism of range epsilon is (epsilon^2 / 8)-zCDP.
    """
    return max(
        float(np.ptp(law_of_choice(table_of(one)) - law_of_choice(table_of(other))))
        for one, new in pairs()
        for other in ([new, *one[1:]],)
    )


def test_the_choice_costs_no_more_than_its_epsilon():
    worst = widest_range()
    assert worst <= SCHEDULE.choice_epsilon
    assert worst >= 0.15 * SCHEDULE.choice_epsilon


def test_of_one_candidate_it_costs_almost_half():
    """Residual means at the clips, where one record moves the score as far as it can."""
    rest = [(0, 0, 0, 0.44)] * 85 + [(1, 0, 0, 0.74)] * 15
    rest += [(0, 1, 0, -0.64)] * 170 + [(1, 1, 0, -0.34)] * 30
    laws = [
        law_of_choice(table_of([record, *rest]), (("a",),))
        for record in ((1, 1, 0, 1.0), (1, 0, 0, -1.0))
    ]
    # to stop has a score that does not move: half of the range
    assert 0.4 < np.ptp(laws[0] - laws[1]) / SCHEDULE.choice_epsilon <= 0.5


def test_a_choice_without_its_sensitivity_is_found_out(monkeypatch):
    monkeypatch.setattr(gains.Residuals, "influence", property(lambda self: 0.05))
    assert widest_range() > SCHEDULE.choice_epsilon


def test_a_score_that_divides_by_small_strata_is_found_out(monkeypatch):
    def contrast(counts, sums, _):
        """How far strata move the difference in means, in records: nothing bounds it."""
        counts, sums = counts.sum(axis=1), sums.sum(axis=1)
        mean = sums / np.maximum(counts, 1)
        share = counts.sum(axis=0) / counts.sum()
        naive = sums.sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
        moved = (naive[1] - naive[0]) - share @ (mean[1] - mean[0])
        return float(counts.sum() * moved)

    monkeypatch.setattr(steps, "confounding_score", contrast)
    assert widest_range() > SCHEDULE.choice_epsilon


def lower_bound(table, other, source, runs=40):
    """Return an epsilon that the releases of two tables exceed, with confidence 99.8 %.

    By the events that a released sum lies on the first table's side of the middle.
    """
    found = []
    for one, first in ((table, 0), (other, runs)):
        values = [
            carry_out(table_of(one), SCHEDULE, None, source(first + seed), non_private=True).cells(
                -1
            )[..., 0]
            for seed in range(runs)
        ]
        found.append(np.array(values)[:, :, 0])
    exact = [
        table_moments(table_of(one), steps.CausalWorkload(SCHEMA))[:8:2] for one in (table, other)
    ]
    middle = (exact[0] + exact[1])[:2] / 2 / steps.LATTICE
    side = np.sign(exact[0] - exact[1])[:2]
    counts = [int(np.sum(side[0] * (values[:, 0] - middle[0]) > 0)) for values in found]
    least = stats.beta.ppf(0.001, counts[0], runs - counts[0] + 1) if counts[0] else 0.0
    most = stats.beta.ppf(0.999, counts[1] + 1, runs - counts[1]) if counts[1] < runs else 1.0
    return math.log(max(least - SCHEDULE.delta, 1e-12) / most)


class HalfPaid(SeededNoise):
    """Forgets the noise of the totals."""

    def integers(self, law, shape):
        noise = super().integers(law, shape)
        return np.zeros_like(noise) if shape == (6,) else noise


def test_totals_without_noise_are_found_out_and_those_with_it_are_not():
    rng = np.random.default_rng(7)
    table = [RECORDS[i] for i in rng.integers(0, len(RECORDS), 60)]
    other = [(1 - table[0][0], *table[0][1:]), *table[1:]]
    assert lower_bound(table, other, SeededNoise) <= EPSILON
    assert lower_bound(table, other, HalfPaid) > EPSILON
