"""Coverage and error of the label model over many simulated releases."""

import numpy as np
import nutpie
import pytest
from scipy.stats import binomtest

import dpcausal_bayes as dpc
from dpcausal_bayes.models.label_likelihood import release_data

RELEASES = 100
MIXTURE = dpc.populations.mixture_population()
NO_EFFECT = dpc.populations.mixture_population(effect=0.0)
SMALL_CELLS = dpc.populations.binary_population(clusters=40, units_per_cluster=30)


def study(population, epsilon, varying):
    """Posterior means, 95 % intervals and closed-form estimates; one compilation for them all."""
    schema, weight = population.schema, population.cell_size.sum(1) / population.n
    mechanism = dpc.ClusterDP.calibrated(schema, epsilon=epsilon)
    values, compiled, rows = np.array(schema.outcome.values), None, []
    for seed in range(RELEASES):
        release = dpc.simulate_release(population.draw(seed), schema, mechanism, seed=seed)
        if compiled is None:
            compiled = nutpie.compile_pymc_model(dpc.models.cluster_labels(release))
        data = {name: release_data(release)[name] for name in varying}
        tree = nutpie.sample(
            compiled.with_data(**data),
            draws=400,
            tune=400,
            chains=2,
            seed=seed,
            progress_bar=False,
        )
        mean = tree["posterior"]["share"].values @ values
        effect = (mean[..., 1] - mean[..., 0]) @ weight
        rows.append(
            [
                effect.mean(),
                *np.quantile(effect, [0.025, 0.975]),
                dpc.direct.histogram_contrast(release).estimate,
                dpc.direct.debiased(release).estimate,
            ]
        )
    return np.array(rows), float(population.truth(dpc.ATE()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("population", "varying"),
    [
        (MIXTURE, ("released", "label_prior")),
        (NO_EFFECT, ("released", "label_prior")),
        (SMALL_CELLS, ("exact_log_weight",)),
    ],
    ids=["mixture", "no effect", "small cells"],
)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 8.0])
def test_intervals_cover_what_they_claim(population, varying, epsilon):
    rows, truth = study(population, epsilon, varying)
    covered = int(((rows[:, 1] < truth) & (truth < rows[:, 2])).sum())
    assert binomtest(covered, RELEASES, 0.95).pvalue > 1e-3


@pytest.mark.slow
def test_the_posterior_mean_beats_the_closed_forms():
    rows, truth = study(MIXTURE, 1.0, ("released", "label_prior"))
    posterior, histogram, debiased = np.sqrt(np.mean((rows[:, [0, 3, 4]] - truth) ** 2, axis=0))
    assert posterior < 0.7 * histogram
    assert posterior < debiased / 20
