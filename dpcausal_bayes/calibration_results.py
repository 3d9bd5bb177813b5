"""What a calibration study found: coverage, ranks, lengths, with their Monte Carlo errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

__all__ = ["PROBABILITIES", "Calibration"]

PROBABILITIES = (0.5, 0.8, 0.95)
MC_PROB = 0.95  # of the Monte Carlo intervals


@dataclass(frozen=True, repr=False, eq=False)
class Calibration:
    """Results of `calibrate`.

    Attributes
    ----------
    rows : pandas.DataFrame
        A row for each replication, population, estimand and level of a split: ``truth``, ``mean``,
        ``sd``, ``rank`` (the share of draws below the truth), the ends of central intervals
        (``low_95``, ``high_95``), ``divergences``, ``seconds``.
    prior : bool
        Whether truths were drawn from the prior; else ranks need not be uniform.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> rows = pd.DataFrame({"replication": range(200), "population": "super", "estimand": "ate",
    ...                      "level": "", "truth": 0.0, "mean": rng.normal(size=200), "sd": 1.0})
    >>> rows["rank"] = stats.norm.cdf(-rows["mean"])
    >>> for p in PROBABILITIES:
    ...     reach = stats.norm.ppf((1 + p) / 2)
    ...     rows[f"low_{100 * p:g}"] = rows["mean"] - reach
    ...     rows[f"high_{100 * p:g}"] = rows["mean"] + reach
    >>> rows["divergences"], rows["seconds"] = 0, 0.5
    >>> found = Calibration(rows, prior=True)
    >>> found.table.loc[("super", "ate"), ["cover_95", "cover_95_low", "cover_95_high"]].tolist()
    [0.95, 0.91, 0.976]
    """

    rows: pd.DataFrame
    prior: bool

    @property
    def table(self) -> pd.DataFrame:
        """A row for each population and estimand (and level of a split).

        Columns: ``releases``; ``cover_50``, ``cover_80``, ``cover_95`` with exact binomial 95 %
        intervals; ``p_uniform``, of a chi-square test of the ranks in ten bins (only if truths came
        from the prior); ``bias`` with its standard error; ``rmse``; ``sd``, the posteriors' root
        mean square; ``length_95``, the median; ``diverged``, the share of fits with divergences;
        ``seconds``, the median of a replication.
        """
        found = {}
        for (population, estimand, level), rows in self.rows.groupby(
            ["population", "estimand", "level"], sort=False
        ):
            name = f"{estimand}[{level}]" if level else estimand
            found[(population, name)] = self._summary(rows)
        table = pd.DataFrame.from_dict(found, orient="index")
        table.index = pd.MultiIndex.from_tuples(table.index, names=["population", "estimand"])
        return table

    def _summary(self, rows: pd.DataFrame) -> dict[str, float]:
        releases, error = len(rows), rows["mean"] - rows["truth"]
        summary: dict[str, float] = {"releases": releases}
        for p in PROBABILITIES:
            low, high = rows[f"low_{100 * p:g}"], rows[f"high_{100 * p:g}"]
            hits = int(((low <= rows["truth"]) & (rows["truth"] <= high)).sum())
            ends = stats.binomtest(hits, releases).proportion_ci(MC_PROB)
            name = f"cover_{100 * p:g}"
            summary |= {
                name: hits / releases,
                f"{name}_low": round(ends.low, 3),
                f"{name}_high": round(ends.high, 3),
            }
        if self.prior:
            counts = np.histogram(rows["rank"], bins=10, range=(0, 1))[0]
            summary["p_uniform"] = float(stats.chisquare(counts).pvalue)
        length = rows["high_95"] - rows["low_95"]
        return summary | {
            "bias": float(error.mean()),
            "bias_se": float(error.std(ddof=1) / np.sqrt(releases)) if releases > 1 else np.nan,
            "rmse": float(np.sqrt((error**2).mean())),
            "sd": float(np.sqrt((rows["sd"] ** 2).mean())),
            "length_95": float(length.median()),
            "diverged": float((rows["divergences"] > 0).mean()),
            "seconds": float(rows["seconds"].median()),
        }

    def ranks(self) -> xr.DataTree:
        """Return the ranks as ArviZ wants them: group ``prior_sbc``, dim ``sample``."""
        names, ranks = [], []
        for keys, rows in self.rows.groupby(["population", "estimand", "level"], sort=False):
            population, estimand, level = keys
            names.append(
                f"{estimand}[{level}] {population}" if level else f"{estimand} {population}"
            )
            ranks.append(rows.sort_values("replication")["rank"].to_numpy())
        variables = {name: ("sample", rank) for name, rank in zip(names, ranks, strict=True)}
        return xr.DataTree.from_dict({"prior_sbc": xr.Dataset(variables)})

    def rank_figure(self, **pc_kwargs: Any) -> Any:
        """Draw the ranks' empirical distribution less the uniform one, by `arviz.plot_ecdf_pit`."""
        ranks = self.ranks()
        rows = -(-len(ranks["prior_sbc"].data_vars) // 4)
        figure = {"figsize": (11, 1 + 2.2 * rows), "layout": "constrained"}
        figure |= pc_kwargs.pop("figure_kwargs", {})
        return az.plot_ecdf_pit(ranks, sample_dims="sample", figure_kwargs=figure, **pc_kwargs)

    def coverage_figure(self) -> Any:
        """Draw coverage against the claim, one panel for each nominal level.

        Returns
        -------
        matplotlib.figure.Figure
        """
        table = self.table
        labels = [f"{estimand}, {population}" for population, estimand in table.index]
        place = np.arange(len(labels))[::-1]
        figure, axes = plt.subplots(
            1, len(PROBABILITIES), sharey=True, figsize=(10, 1.2 + 0.28 * len(labels))
        )
        for axis, p in zip(axes, PROBABILITIES, strict=True):
            name = f"cover_{100 * p:g}"
            ends = table[[f"{name}_low", f"{name}_high"]].to_numpy().T
            axis.hlines(place, *ends, color="0.6", linewidth=2)
            axis.plot(table[name], place, "o", color="0.15", markersize=4)
            axis.axvline(p, color="C3", linewidth=1)
            axis.set_xlabel("share of releases covered")
            axis.set_title(f"{100 * p:g} % intervals", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_yticks(place, labels)
        figure.tight_layout()
        return figure

    def __repr__(self) -> str:
        kind = "truths from the prior" if self.prior else "one population"
        return f"{kind}\n{self.table.round(4).to_string()}"

    def _repr_html_(self) -> str:
        return str(self.table.round(4).to_html())
