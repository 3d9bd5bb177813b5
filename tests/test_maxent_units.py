"""Missing outcomes of these very units: against tables that are drawn row by row."""

import numpy as np
import pytest
from scipy import stats

from dpcausal_bayes.maxent_table import MaxentTable
from dpcausal_bayes.maxent_units import unit_means
from dpcausal_bayes.models.maxent_laws import MaxentLaw, maxent_law
from dpcausal_bayes.moments import LATTICE, record_strata, table_moments
from dpcausal_bayes.populations import FirstOrderPopulation
from dpcausal_bayes.tilted_means import law_means, stratum_means
from maxent_examples import LAYOUTS, Enumerated, coefficients, layout_of, workload_of

N, TABLES, DRAWS = 500, 200, 19
CASES = {"bounded": ([2, 3], False), "binary": ([2, 3, 2], True), "one group": ([4], False)}


class Known:
    """A law, tables drawn from it with their moments, and the means of their rows."""

    def __init__(self, sizes, binary):
        self.workload = workload_of(sizes, binary=binary)
        self.form, self.records = layout_of(self.workload)
        self.c = coefficients(self.form, seed=11, width=0.4)
        self.c[-2 * sum(size - 1 for size in sizes) :] *= 15  # covariates that tell much
        law = maxent_law(self.form, self.c)
        level = tuple(law.level[:, g, :size] for g, size in enumerate(sizes))
        study = FirstOrderPopulation(workload=self.workload, n=N, cell=law.cell, level=level)
        tables = [study.draw(seed) for seed in range(TABLES)]
        exact = np.array([table_moments(table, self.workload) for table in tables])
        self.moments = exact[:, self.records.order] / LATTICE
        units = [self.units(table) for table in tables]
        self.mean, self.share = (np.array(part) for part in zip(*units, strict=True))

    def units(self, table):
        """Mean outcomes (assigned, arm, stratum) of a table's rows, and their shares."""
        both = table[["y0", "y1"]].to_numpy(float)
        both = 2 * both - 1 if self.workload.binary else both
        strata = [np.eye(1)[np.zeros(N, int)]]
        for g in range(len(self.workload.groups)):
            size = self.workload.n_strata(g)
            strata.append(np.eye(size)[record_strata(table, self.workload, g)])
        member = np.concatenate(strata, axis=1)
        member = [member * (table["t"] == a).to_numpy()[:, None] for a in (0, 1)]
        units = np.array([part.sum(0) for part in member])
        total = np.array([both.T @ part for part in member])
        return total / np.maximum(units, 1)[:, None], units / N

    def drawn(self, moments, seed=3):
        """Draws of the units' means given moments, the law known, and their shares."""
        c = np.broadcast_to(self.c, (len(moments), len(self.c)))
        table, rng = MaxentTable(self.records, N, moments), np.random.default_rng(seed)
        return unit_means(self.workload, self.form, c, stratum_means(self.form, c), table, rng)


@pytest.fixture(scope="module", params=list(CASES))
def known(request):
    return Known(*CASES[request.param])


def test_missing_outcomes_are_drawn_as_they_are_given_the_moments(known):
    """Where a table's own mean stands among draws given its moments is uniform."""
    drawn, weight = known.drawn(np.repeat(known.moments, DRAWS, axis=0))
    drawn = drawn.reshape(TABLES, DRAWS, *drawn.shape[1:])
    mean, share = known.mean, known.share
    np.testing.assert_allclose(weight[::DRAWS], share, atol=1e-9)
    tested = 0
    for a in (0, 1):
        seen = N * share[:, a] >= 10  # of a few units the mean is not normal
        own, missing = drawn[:, :, a, a], drawn[:, :, a, 1 - a]
        np.testing.assert_allclose(own[:, 0][seen], mean[:, a, a][seen], atol=3e-6)
        rank = (missing < mean[:, None, a, 1 - a]).sum(1)
        for s in np.flatnonzero(seen.mean(0) > 0.9):
            counts = np.bincount(rank[seen[:, s], s], minlength=DRAWS + 1)
            assert stats.chisquare(counts).pvalue > 1e-3, (a, s, counts)
            tested += 1
    assert tested >= 7


def test_groups_agree_on_everybody(known):
    mean, weight = known.drawn(known.moments)
    first = 1
    for size in known.form.sizes:
        own = slice(first, first + size)
        np.testing.assert_allclose(weight[..., own].sum(-1), weight[..., 0], rtol=1e-12)
        total = (mean[..., own] * weight[:, :, None, own]).sum(-1)
        np.testing.assert_allclose(total, mean[..., 0] * weight[:, :, None, 0], atol=1e-12)
        first += size


@pytest.mark.parametrize("name", LAYOUTS)
def test_outcomes_of_one_law_over_covariates_of_another(name):
    form = LAYOUTS[name][0]
    ours, others = (coefficients(form, seed=seed) for seed in (5, 6))
    law, covariates = maxent_law(form, ours[None]), maxent_law(form, others[None])
    mixed = MaxentLaw(covariates.cell, covariates.level, law.tilt, law.base)
    shape = (2, -1, len(form.grid))
    joint, share = (Enumerated(form, c).p.reshape(shape) for c in (ours, others))
    given = joint / joint.sum(-1, keepdims=True)
    share = share.sum(-1)
    for power in (1, 2):
        found = law_means(form, mixed, power=power).mean[0, :, :, 0]
        expected = share @ (given @ form.grid**power).T / share.sum(-1, keepdims=True)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_cell_without_units_has_the_laws_mean_and_no_weight(known):
    """Put the first stratum's control units into the second."""
    moments = known.moments[:1].copy()
    records = known.records
    size = moments.shape[1] // records.n_parts
    width = len(records.factor)
    for part in range(records.n_parts // 2):  # those of the controls
        first = part * size
        moments[:, first + width : first + 2 * width] += moments[:, first : first + width]
        moments[:, first : first + width] = 0
    mean, weight = known.drawn(moments)
    assert weight[0, 0, 1] == 0
    assert weight[0, 0, 1:].sum() == pytest.approx(len(known.form.sizes) * weight[0, 0, 0])
    law = stratum_means(known.form, known.c[None])
    shifted = mean[0, 0, 0, 1] - law.mean[0, 0, 0, 1]
    assert abs(shifted) < 0.01  # but for what brings the group's average to the arm's
