"""Variances that need the table: against every outcome of the mechanism, and of the design."""

import itertools

import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.direct.labels import debiased
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.populations.labels import Population, mixture_population
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_release
from dpcausal_bayes.table_variances import cluster_homogeneity, debiased_variance

SCHEMA = Schema(
    arm=Arm("t", control=0, treated=1),
    outcome=Levels("y", [0, 1, 5]),
    cluster=Categories("c", ["a", "b"]),
)
TABLE = pd.DataFrame(
    {
        "c": list("aaaabbb"),
        "t": [0, 1, 1, 0, 1, 0, 0],
        "y": [0, 5, 1, 1, 5, 0, 5],
        "y0": [0, 1, 1, 1, 0, 0, 5],
        "y1": [5, 5, 1, 0, 5, 1, 5],
    }
)
VALUES = np.array([0, 1, 5])
PRIOR = np.array([[[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], [[0.1, 0.8, 0.1], [0.25, 0.5, 0.25]]])


def contrast(table, outcome):
    """Each cluster's difference in means, weighted by its units."""
    mean = table.assign(w=outcome).groupby(["c", "t"])["w"].mean().unstack()
    return (mean[1] - mean[0]) @ (table.groupby("c").size() / len(table))


@pytest.mark.parametrize("lam", [0.1, 0.5, 0.9])
def test_conditional_variance_over_all_released_labels(lam):
    """All 3^7 vectors of released labels, scored by inverting the channel as a matrix."""
    mechanism = ClusterDP(lam=lam, sigma=1.0, gamma=0.1)
    cluster, arm = (TABLE["c"] == "b").to_numpy(int), TABLE["t"].to_numpy()
    channel = mechanism.channel(PRIOR)[cluster, arm]  # unit, released, true
    score = np.einsum("k,ukl->ul", VALUES, np.linalg.inv(channel))
    law = np.take_along_axis(channel, np.searchsorted(VALUES, TABLE["y"])[:, None, None], axis=2)
    size = TABLE.groupby(["c", "t"])["y"].transform("size")
    units = TABLE.groupby("c")["y"].transform("size")
    weight = (np.where(arm == 1, 1, -1) * units / size / len(TABLE)).to_numpy()
    place = np.array(list(itertools.product(range(3), repeat=len(TABLE))))
    chance = np.prod(law[np.arange(7), place, 0], axis=1)
    tau = score[np.arange(7), place] @ weight
    assert chance.sum() == pytest.approx(1)
    assert chance @ tau == pytest.approx(contrast(TABLE, TABLE["y"]))
    wanted = chance @ (tau - chance @ tau) ** 2
    assert debiased_variance(TABLE, SCHEMA, mechanism, PRIOR) == pytest.approx(wanted, rel=1e-10)


def assignments(table):
    """All tables that fixed numbers of treated in each cluster could have given."""
    per_cluster = []
    for _, rows in table.groupby("c"):
        choices = itertools.combinations(rows.index, int(rows["t"].sum()))
        per_cluster.append(list(choices))
    for chosen in itertools.product(*per_cluster):
        arm = table.index.isin([unit for units in chosen for unit in units]).astype(int)
        yield table.assign(t=arm, y=np.where(arm == 1, table["y1"], table["y0"]))


def test_homogeneity_by_hand():
    # cluster a: 4 units, 2 in each arm; cluster b: 3 units, 2 controls
    variances = TABLE.groupby("c")[["y0", "y1"]].var()
    wanted = [
        (4 / 7) ** 2 * variances["y0"]["a"] / 2 + (3 / 7) ** 2 * variances["y0"]["b"] / 2,
        (4 / 7) ** 2 * variances["y1"]["a"] / 2 + (3 / 7) ** 2 * variances["y1"]["b"] / 1,
    ]
    phi = cluster_homogeneity(TABLE, SCHEMA)
    assert list(phi.index) == ["control", "treated"]
    np.testing.assert_allclose(phi, wanted)


def test_homogeneity_bounds_the_variance_over_all_assignments():
    """The variance without privacy is phi_0 + phi_1 less the term of the unit effects' spread."""
    seen = [contrast(one, one["y"]) for one in assignments(TABLE)]
    assert len(seen) == 6 * 3
    effect = (TABLE["y1"] - TABLE["y0"]).groupby(TABLE["c"])
    spread = ((effect.size() / 7) ** 2 * effect.var() / effect.size()).sum()
    assert np.var(seen) == pytest.approx(cluster_homogeneity(TABLE, SCHEMA).sum() - spread)
    assert np.mean(seen) == pytest.approx((TABLE["y1"] - TABLE["y0"]).mean())


def test_labels_redrawn_from_their_own_histogram_cost_a_multiple_of_homogeneity():
    """Over all assignments, exactly, with equal cells of m units: a factor and (m - 1)/m."""
    table = pd.DataFrame(
        {"c": ["a"] * 6, "t": [0, 1] * 3, "y0": [0, 0, 1, 5, 5, 1], "y1": [1, 5, 5, 0, 5, 1]}
    )
    mechanism = ClusterDP(lam=0.6, sigma=1.0, gamma=0.1)
    costs = []
    for one in assignments(table):
        counts = np.zeros((2, 2, 3))
        np.add.at(counts, (0, one["t"], np.searchsorted(VALUES, one["y"])), 1)
        prior = np.where(counts.sum(axis=-1, keepdims=True) > 0, counts / 3, 1 / 3)
        costs.append(debiased_variance(one, SCHEMA, mechanism, prior))
    factor = 1 / (1 - 0.6) ** 2 - 1
    phi = cluster_homogeneity(table, SCHEMA).sum()
    assert np.mean(costs) == pytest.approx(factor * phi * 2 / 3)


@pytest.mark.parametrize("uniform", [False, True])
def test_variance_over_releases_is_the_mean_over_their_priors(uniform):
    """tau_Q of simulated releases of one table, judged in Monte Carlo errors."""
    mechanism = ClusterDP(lam=0.7, sigma=2.0, gamma=0.05)
    if uniform:
        mechanism = ClusterDP(lam=0.7, sigma=None, gamma=1 / 3)
    trial = Population(
        schema=SCHEMA,
        shares=np.roll(PRIOR, 1, axis=1),
        cell_size=[[12, 8], [5, 20]],
    )
    table = trial.draw(5)
    centre = contrast(table, table["y"])
    gaps = []
    for seed in range(1500):
        release = simulate_release(table, SCHEMA, mechanism, seed=seed)
        exact = debiased_variance(table, SCHEMA, mechanism, release.prior)
        gaps.append(((debiased(release).estimate - centre) ** 2, exact))
    squares, exact = np.array(gaps).T

    def off(squares):
        return abs(np.mean(squares - exact)) / (np.std(squares - exact) / np.sqrt(len(exact)))

    assert off(squares) < 4.5
    assert off(1.35 * squares) > 4.5
    assert (np.ptp(exact) == 0) == uniform


def test_good_clusters_make_labels_cheaper_at_equal_privacy():
    """The paper's point: the closer the outcomes within a cluster, the less the labels lose."""
    trial = mixture_population(separation=4.0)
    table = trial.draw(1)
    one = trial.schema
    free = Schema(arm=one.arm, outcome=one.outcome)
    mechanism = ClusterDP(lam=0.5, sigma=2.0, gamma=0.1 / 12)
    costs, phi = [], []
    for schema in (one, free):
        release = simulate_release(table, schema, mechanism, seed=1)
        costs.append(debiased_variance(table, schema, mechanism, release.prior))
        phi.append(cluster_homogeneity(table, schema).sum())
    assert phi[0] < phi[1] / 5
    assert costs[0] < costs[1] / 2


def test_clusters_of_no_units_do_not_matter():
    wide = Schema(arm=SCHEMA.arm, outcome=SCHEMA.outcome, cluster=Categories("c", ["a", "b", "z"]))
    prior = np.concatenate([PRIOR, PRIOR[:1]])
    mechanism = ClusterDP(lam=0.4, sigma=1.0, gamma=0.1)
    assert debiased_variance(TABLE, wide, mechanism, prior) == debiased_variance(
        TABLE, SCHEMA, mechanism, PRIOR
    )
    np.testing.assert_allclose(cluster_homogeneity(TABLE, wide), cluster_homogeneity(TABLE, SCHEMA))


def test_bad_input_is_named():
    mechanism = ClusterDP(lam=0.4, sigma=1.0, gamma=0.1)
    with pytest.raises(ValueError, match="no column 'y1': homogeneity is about both potential"):
        cluster_homogeneity(TABLE.drop(columns="y1"), SCHEMA)
    with pytest.raises(ValueError, match="table has no column 't'"):
        debiased_variance(TABLE.drop(columns="t"), SCHEMA, mechanism, PRIOR)
    with pytest.raises(ValueError, match="column 'y' holds 3, which is not among"):
        debiased_variance(TABLE.assign(y=3), SCHEMA, mechanism, PRIOR)
    with pytest.raises(ValueError, match=r"prior has shape \(2, 3\): it must be \(2, 2, 3\)"):
        debiased_variance(TABLE, SCHEMA, mechanism, PRIOR[0])
    lonely = TABLE[TABLE.index != 4]
    for call in (
        lambda: debiased_variance(lonely, SCHEMA, mechanism, PRIOR),
        lambda: cluster_homogeneity(lonely, SCHEMA),
    ):
        with pytest.raises(ValueError, match="cluster 'b' has units in one arm only"):
            call()
