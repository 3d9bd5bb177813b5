r"""Does an interval cover what it claims? Simulated populations and releases, refitted and counted.

For every replication a population (from the prior, or one and the same), a table of it, a release
of the table, and the posterior given the release. If the truth was drawn from the prior, the rank
of the truth among the draws is uniform (simulation-based calibration); if it is fixed, intervals
are to cover it as often as they say.
"""

from __future__ import annotations

import csv
import hashlib
import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import xarray as xr
from rich.progress import track

from dpcausal_bayes.calibration_results import PROBABILITIES, Calibration
from dpcausal_bayes.designs import GramDesign, LabelDesign, MaxentDesign, MomentDesign
from dpcausal_bayes.estimands import estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.populations.contrasts import Contrast
from dpcausal_bayes.populations.first_order import FirstOrderPopulation
from dpcausal_bayes.populations.labels import Population
from dpcausal_bayes.populations.linear import LinearPopulation
from dpcausal_bayes.populations.strata import StratifiedPopulation
from dpcausal_bayes.potential import POPULATIONS

__all__ = ["calibrate", "replicate"]

Design = LabelDesign | MomentDesign | MaxentDesign | GramDesign
Records = Population | StratifiedPopulation | FirstOrderPopulation | LinearPopulation
Truth = Records | Callable[..., Any] | None

FIELDS = (
    "replication", "population", "estimand", "level", "truth", "mean", "sd", "rank",
    *(f"{end}_{100 * p:g}" for p in PROBABILITIES for end in ("low", "high")),
    "divergences", "seconds",
)  # fmt: skip


def calibrate(
    design: Design,
    truth: Truth = None,
    *,
    estimands: Sequence[Any],
    releases: int = 500,
    seed: int = 0,
    path: str | Path | None = None,
    workers: int = 1,
    draws: int = 1000,
    tune: int = 300,
    chains: int = 1,
    progressbar: bool = True,
) -> Calibration:
    """Simulate releases, refit each, and count how often intervals cover.

    Parameters
    ----------
    design : LabelDesign, MomentDesign, MaxentDesign or GramDesign
    truth : a population of `dpcausal_bayes.populations`, or callable, optional
        The population that every table is drawn from; or a function with an argument ``seed`` that
        makes one, for replication j with seed j. By default each replication draws its own from the
        model's prior, so that ranks are uniform if the model is calibrated.
    estimands : sequence of ATE, ATT, ATC, CATE or CATESlope
        Each with ``population="super"`` and ``"sample"``.
    releases : int
    seed : int
        Replication j is determined by this seed and j: see `replicate`.
    path : path-like, optional
        A CSV file to which each replication is added as it comes. A study that was stopped goes on
        from there; a file of another study is refused.
    workers : int
        Processes, by joblib: inside ``joblib.parallel_config(backend="dask")`` those of a Dask
        cluster. Each compiles the model once.
    draws, tune, chains : int
        Of each fit.
    progressbar : bool

    Returns
    -------
    Calibration

    Raises
    ------
    ValueError
        A file that holds another study.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari and Gelman (2018), "Validating Bayesian inference algorithms
    with simulation-based calibration", arXiv:1804.06788.

    Examples
    --------
    >>> from dpcausal_bayes.estimands import ATE
    >>> from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
    >>> from dpcausal_bayes.populations import stratified_population
    >>> from dpcausal_bayes.workloads import CausalWorkload
    >>> study = stratified_population(covariates={})
    >>> workload = CausalWorkload(study.schema)
    >>> mechanism = GaussianMechanism.calibrated(workload, epsilon=1.0, delta=1e-6)
    >>> design = MomentDesign(workload, mechanism, n=study.n)
    >>> found = calibrate(design, study, estimands=[ATE()], releases=3, progressbar=False)
    >>> found.table.index.tolist()
    [('sample', 'ate'), ('super', 'ate')]
    """
    if not isinstance(releases, int) or releases < 1:
        raise ValueError(f"releases is {releases!r}: it must be a whole number, 1 or more")
    settings = {"draws": draws, "tune": tune, "chains": chains}
    study = _fingerprint(design, truth, estimands, seed, settings)
    done = _read(path, study)
    missing = sorted(set(range(releases)) - set(done["replication"]))
    populations = _populations(design, truth, releases, seed)
    run = joblib.delayed(_replication)
    tasks = (run(design, populations[j], estimands, j, seed, settings, study) for j in missing)
    results = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")(tasks)
    rows = [done]
    for found in _progress(results, len(missing), progressbar):
        rows.append(pd.DataFrame(found, columns=list(FIELDS)))
        _append(path, study, found)
    table = pd.concat([part for part in rows if len(part)], ignore_index=True)
    return Calibration(table[table["replication"] < releases], prior=truth is None)


def _populations(design: Design, truth: Truth, releases: int, seed: int) -> Sequence[Any]:
    if truth is None:
        return design.populations(releases, seed=seed)
    if callable(truth):
        return [truth(seed=j) for j in range(releases)]
    return [truth] * releases


def replicate(design: Design, truth: Any, index: int, *, seed: int = 0) -> tuple[Any, Any]:
    """Return the table and the release of one replication of a study.

    Parameters
    ----------
    design : LabelDesign, MomentDesign, MaxentDesign or GramDesign
    truth : a population of `dpcausal_bayes.populations`
        Of a study from the prior, ``design.populations(releases, seed=seed)[index]``.
    index : int
    seed : int
        The study's.

    Returns
    -------
    table : pandas.DataFrame
    release : LabelRelease or MomentRelease

    Examples
    --------
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.populations import binary_population
    >>> trial = binary_population(clusters=3, units_per_cluster=100)
    >>> mechanism = ClusterDP.calibrated(trial.schema, epsilon=1.0)
    >>> design = LabelDesign(trial.schema, mechanism, trial.cell_size)
    >>> table, release = replicate(design, trial, 7, seed=1)
    >>> len(table), release == replicate(design, trial, 7, seed=1)[1]
    (300, True)
    """
    of_table, of_noise = (np.random.default_rng([seed, index, part]) for part in range(2))
    table = truth.draw(of_table)
    return table, design.release(table, seed=of_noise)


def _replication(
    design: Design,
    truth: Any,
    estimands: Sequence[Any],
    index: int,
    seed: int,
    settings: dict[str, int],
    study: str,
) -> list[tuple[Any, ...]]:
    """Run one replication: a row for each population, estimand and level."""
    start = time.perf_counter()
    table, release = replicate(design, truth, index, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the sampler's, about chains: it is counted below
        tree = _fitter(study, design, release).fit(
            release,
            random_seed=index,
            cores=1,
            progressbar=False,
            replicates=False,
            **settings,
        )
    divergences = int(tree["sample_stats"]["diverging"].sum())
    rng = np.random.default_rng([seed, index, 2])
    rows = []
    for k, population in enumerate(POPULATIONS):
        # a generator each: how much one uses depends on the prior's draws, the first release's
        draws = np.random.default_rng([seed, index, 3 + k])
        drawn = estimate(tree, estimands, population=population, random_seed=draws)["estimands"]
        for one in estimands:
            true = truth.truth(one) if population == "super" else truth.sample_truth(one, table)
            rows += [
                (index, population, one.name, *row)
                for row in _rows(drawn[one.name], true, one, rng)
            ]
    seconds = round(time.perf_counter() - start, 3)
    return [(*row, divergences, seconds) for row in rows]


_FITTERS: dict[str, Fitter] = {}  # one for each study and process: compiling takes longest


def _fitter(study: str, design: Design, release: Any) -> Fitter:
    if study not in _FITTERS:
        _FITTERS[study] = Fitter(design.factory(release))
    return _FITTERS[study]


def _rows(
    drawn: xr.DataArray, true: xr.DataArray, one: Contrast, rng: np.random.Generator
) -> Iterator[tuple[Any, ...]]:
    """Yield what is kept of an estimand, for each level it is split by.

    The rank is where the truth stands among the draws, spread evenly over the gap between them: so
    it is uniform on (0, 1). Effects on a few units with few levels are discrete: draws equal to the
    truth widen that gap.
    """
    for level in drawn[one.by].values if one.by else [""]:
        at = {one.by: level} if one.by else {}
        effect, truth = drawn.sel(at).values.ravel(), float(true.sel(at))
        ends = [
            float(np.quantile(effect, q)) for p in PROBABILITIES for q in ((1 - p) / 2, (1 + p) / 2)
        ]
        equal = np.abs(effect - truth) <= 1e-9 * effect.std()
        below = np.sum((effect < truth) & ~equal)
        rank = float((below + rng.random() * (1 + np.sum(equal))) / (1 + effect.size))
        yield str(level), truth, float(effect.mean()), float(effect.std(ddof=1)), rank, *ends


def _progress(results: Any, total: int, shown: bool) -> Any:
    return track(results, "calibrating", total=total) if shown and total else results


def _fingerprint(
    design: Design, truth: Truth, estimands: Sequence[Any], seed: int, settings: dict[str, int]
) -> str:
    """Return a hash of everything that decides a study."""
    facts = [design, truth, list(estimands), seed, settings]
    return hashlib.sha256(joblib.hash(facts).encode()).hexdigest()[:16]


def _read(path: str | Path | None, study: str) -> pd.DataFrame:
    """Return the whole replications that a file holds."""
    empty = pd.DataFrame(columns=list(FIELDS))
    if path is None or not Path(path).exists():
        return empty
    with open(path, newline="") as file:
        head = file.readline().strip().removeprefix("# study ")
        if head != study:
            raise ValueError(
                f"{path} holds the study {head!r}, this one is {study!r}: designs, truth, "
                "estimands, seed or settings differ; choose another path"
            )
        found = pd.read_csv(file, dtype={"level": str}, keep_default_na=False)
    return found if len(found) else empty


def _append(path: str | Path | None, study: str, rows: list[tuple[Any, ...]]) -> None:
    """Add a replication to the file, in one write."""
    if path is None:
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    if not Path(path).exists():
        text.write(f"# study {study}\n")
        writer.writerow(FIELDS)
    writer.writerows(rows)
    with open(path, "ab", buffering=0) as file:  # unbuffered: a kill leaves no half replication
        file.write(text.getvalue().encode())
