"""Draws of the confidential counts, against the enumerated law given shares and release."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import chi2, multinomial

from dpcausal_bayes import models
from dpcausal_bayes.facts import public_facts
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.manifest import write_manifest
from dpcausal_bayes.models.confidential import confidential_counts
from dpcausal_bayes.models.small_cells import cells_of, compositions, log_label_likelihood
from test_cluster_labels import trial

DRAWS = 40_000


def tree_at(release, share, seed=0, noise_aware=True):
    """A tree whose every draw has the same shares, and the prior's noise where it is a mixture."""
    model = models.cluster_labels(release, noise_aware=noise_aware)
    coords = {"cluster": list(release.schema.clusters), "arm": list(release.schema.arms)}
    shares = np.broadcast_to(share, (1, DRAWS, *share.shape))
    posterior = {"share": (("chain", "draw", "cluster", "arm", "level"), shares)}
    facts = public_facts(release, model)
    tree = xr.DataTree.from_dict(
        {"posterior": xr.Dataset(posterior, coords=coords), "constant_data": facts}
    )
    tree.attrs["manifest"] = write_manifest(model, release, seed)
    return tree


def enumerated(release, shares, j):
    """Tables of cell j and their probabilities given shares and release."""
    cells = cells_of(release)
    tables = compositions(int(cells.size[j]), release.schema.n_levels)
    weight = multinomial(cells.size[j], shares[j]).logpmf(tables)
    weight += log_label_likelihood(release.mechanism, tables, cells.released[j], cells.prior[j])
    if cells.noisy is not None:
        weight += release.mechanism.noise_law.log_pmf(cells.noisy[j] - tables).sum(-1)
    weight = np.exp(weight - weight.max())
    return tables, weight / weight.sum()


@pytest.mark.parametrize(
    "release",
    [
        trial([(8, 5), (3, 7)]),
        trial([(5, 4)], n_levels=3, epsilon=4.0),
        trial([(30, 25)], floor=1.0, epsilon=3.0),
    ],
    ids=["two levels", "three levels", "labels only"],
)
def test_small_cells_and_labels_alone_are_drawn_exactly(release):
    rng = np.random.default_rng(5)
    share = rng.dirichlet(np.ones(release.schema.n_levels), size=release.cell_size.shape)
    drawn = confidential_counts(tree_at(release, share), rng).values.reshape(
        DRAWS, -1, share.shape[-1]
    )
    for j in range(drawn.shape[1]):
        tables, law = enumerated(release, share.reshape(-1, share.shape[-1]), j)
        seen = np.array([(drawn[:, j] == table).all(-1).sum() for table in tables])
        assert seen.sum() == DRAWS
        often = law * DRAWS > 5
        statistic = ((seen - law * DRAWS)[often] ** 2 / (law * DRAWS)[often]).sum()
        assert statistic < chi2(often.sum()).ppf(1 - 1e-6)


def test_large_cells_have_the_mean_and_spread_of_the_enumerated_law(monkeypatch):
    release = trial([(200, 150)], epsilon=2.0, noise=Gaussian, delta=1e-6)
    share = np.array([[[0.4, 0.6], [0.55, 0.45]]])
    laws = [enumerated(release, share[0], j) for j in range(2)]
    monkeypatch.setattr("dpcausal_bayes.models.small_cells.MOST_TABLES", 0)
    drawn = confidential_counts(tree_at(release, share), np.random.default_rng(1))
    drawn = drawn.values.reshape(DRAWS, 2, 2)
    np.testing.assert_allclose(drawn.sum(-1), [[200, 150]] * DRAWS, rtol=1e-9)
    for j, (tables, law) in enumerate(laws):
        mean = law @ tables[:, 0]
        sd = np.sqrt(law @ (tables[:, 0] - mean) ** 2)
        assert abs(drawn[:, j, 0].mean() - mean) < 0.1 * sd
        assert abs(drawn[:, j, 0].std() / sd - 1) < 0.05


def test_negligible_noise_and_a_noise_blind_model_take_counts_at_face_value():
    share = np.full((1, 2, 2), 0.5)
    known = trial([(300, 200)], epsilon=1e4)
    drawn = confidential_counts(tree_at(known, share), np.random.default_rng(0))
    assert (drawn.values == known.noisy_counts).all()
    noisy = trial([(300, 200)])
    drawn = confidential_counts(tree_at(noisy, share, noise_aware=False), np.random.default_rng(0))
    assert (drawn.values == noisy.label_counts).all()
