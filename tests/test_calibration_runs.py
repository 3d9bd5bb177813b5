"""Calibration studies: repeatable, resumable, in processes, and right about coverage."""

import functools

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from dpcausal_bayes.calibration import _rows, calibrate, replicate
from dpcausal_bayes.calibration_results import PROBABILITIES, Calibration
from dpcausal_bayes.designs import LabelDesign, MomentDesign
from dpcausal_bayes.estimands import ATE, ATT
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.populations import binary_population, stratified_population
from dpcausal_bayes.workloads import CausalWorkload

STUDY = stratified_population(covariates={}, n=1000)
SETTINGS = {"estimands": [ATE(), ATT()], "draws": 200, "tune": 200, "progressbar": False}


def design_of(study=STUDY, strata=(), **options):
    workload = CausalWorkload(study.schema, strata=list(strata), **options)
    mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    return MomentDesign(workload, mechanism, n=study.n)


def simulated(releases=2000, spread=1.0, shift=0.0, seed=0):
    """Rows of an estimator that is normal with sd 1, whose interval is ``spread`` times right."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=releases)
    mean = truth + shift + rng.normal(size=releases)
    rows = {"replication": range(releases), "population": "super", "estimand": "ate", "level": ""}
    rows |= {"truth": truth, "mean": mean, "sd": spread}
    rows["rank"] = stats.norm.cdf((truth - mean) / spread)
    for p in PROBABILITIES:
        reach = spread * stats.norm.ppf((1 + p) / 2)
        rows |= {f"low_{100 * p:g}": mean - reach, f"high_{100 * p:g}": mean + reach}
    return pd.DataFrame(rows | {"divergences": 0, "seconds": 1.0})


def test_a_calibrated_estimator_passes_and_a_short_or_biased_one_does_not():
    good = Calibration(simulated(), prior=True).table.iloc[0]
    for p in PROBABILITIES:
        name = f"cover_{100 * p:g}"
        assert good[f"{name}_low"] <= p <= good[f"{name}_high"]
    assert good["p_uniform"] > 1e-3
    assert abs(good["bias"]) < 4 * good["bias_se"]
    short = Calibration(simulated(spread=0.8), prior=True).table.iloc[0]
    assert short["cover_95_high"] < 0.95
    assert short["p_uniform"] < 1e-6
    assert Calibration(simulated(shift=0.3), prior=True).table.iloc[0]["p_uniform"] < 1e-6


def test_uniformity_is_claimed_only_for_truths_from_the_prior():
    assert "p_uniform" not in Calibration(simulated(50), prior=False).table


def test_ranks_of_discrete_effects_are_uniform():
    """Truths and draws of one law on five points, rounded in two ways."""
    rng = np.random.default_rng(0)
    truth, draws = (rng.integers(0, 5, size=size) * 0.1 for size in (2000, (2000, 1, 300)))
    ranks = [
        next(
            _rows(
                xr.DataArray(d, dims=("chain", "draw")), xr.DataArray(t * (1 + 1e-15)), ATE(), rng
            )
        )[4]
        for t, d in zip(truth, draws, strict=True)
    ]
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3


def test_figures_are_drawn():
    found = Calibration(simulated(100), prior=True)
    figure = found.coverage_figure()
    assert [axis.get_title() for axis in figure.axes] == [
        f"{100 * p:g} % intervals" for p in PROBABILITIES
    ]
    assert found.ranks()["prior_sbc"]["ate super"].sizes == {"sample": 100}
    found.rank_figure()


@pytest.mark.parametrize("binary", [False, True])
def test_populations_come_from_the_prior(binary):
    study = stratified_population(covariates={"a": 2}, n=300, binary=binary)
    populations = design_of(study, ["a"]).populations(300, seed=1)
    effects = np.array([float(one.truth(ATE())) for one in populations])
    assert abs(effects.mean()) < 4 * effects.std() / np.sqrt(len(effects))  # symmetric about zero
    assert effects.std() > 0.1
    table = populations[0].draw(1)
    assert len(table) == 300
    trial = binary_population(clusters=2, units_per_cluster=40)
    mechanism = ClusterDP.calibrated(trial.schema, epsilon=1.0)
    shares = LabelDesign(trial.schema, mechanism, trial.cell_size).populations(3, seed=1)[0].shares
    np.testing.assert_allclose(shares.sum(-1), 1)


def test_a_prior_needs_strata_of_all_covariates():
    study = stratified_population(covariates={"a": 2, "b": 2}, n=300)
    with pytest.raises(ValueError, match="drawn over all covariates"):
        design_of(study, ["a"]).populations(2, seed=1)


def test_a_replication_is_determined_by_seed_and_number():
    design = design_of()
    first, again = (replicate(design, STUDY, 5, seed=3) for _ in range(2))
    assert first[1] == again[1]
    pd.testing.assert_frame_equal(first[0], again[0])
    assert replicate(design, STUDY, 6, seed=3)[1] != first[1]
    assert replicate(design, STUDY, 5, seed=4)[1] != first[1]


def test_a_killed_study_goes_on_where_it_stopped(tmp_path):
    path, design = tmp_path / "study.csv", design_of()
    whole = calibrate(design, STUDY, releases=4, seed=1, **SETTINGS)
    calibrate(design, STUDY, releases=2, seed=1, path=path, **SETTINGS)
    written = path.read_text()
    resumed = calibrate(design, STUDY, releases=4, seed=1, path=path, **SETTINGS)
    assert path.read_text().startswith(written)
    columns = [column for column in whole.rows if column != "seconds"]
    order = ["replication", "population", "estimand"]
    first, second = (
        found.rows.sort_values(order)[columns].reset_index(drop=True) for found in (whole, resumed)
    )
    pd.testing.assert_frame_equal(first, second, check_dtype=False)
    with pytest.raises(ValueError, match="choose another path"):
        calibrate(design, STUDY, releases=4, seed=2, path=path, **SETTINGS)


def test_the_number_of_releases_must_make_sense():
    with pytest.raises(ValueError, match="releases is 0"):
        calibrate(design_of(), STUDY, releases=0, **SETTINGS)


def test_each_replication_can_have_a_population_of_its_own():
    draw = functools.partial(
        stratified_population, covariates={"a": 2}, n=400, heterogeneity=0.1, confounding=1.0
    )
    settings = SETTINGS | {"estimands": [ATT()]}
    found = calibrate(design_of(draw(seed=0), ["a"]), draw, releases=2, **settings).rows
    truth = found[found["population"] == "super"].set_index("replication")["truth"]
    assert truth.to_dict() == {j: pytest.approx(float(draw(seed=j).truth(ATT()))) for j in (0, 1)}
    assert truth[0] != truth[1]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_processes_give_the_same_study(backend):
    import distributed
    import joblib

    design = design_of()
    alone = calibrate(design, STUDY, releases=4, seed=1, **SETTINGS).table
    if backend == "dask":
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            ) as c,
            distributed.Client(c),
            joblib.parallel_config(backend="dask"),
        ):
            together = calibrate(design, STUDY, releases=4, seed=1, workers=2, **SETTINGS).table
    else:
        together = calibrate(design, STUDY, releases=4, seed=1, workers=2, **SETTINGS).table
    columns = [column for column in alone if column != "seconds"]
    pd.testing.assert_frame_equal(alone[columns].sort_index(), together[columns].sort_index())
