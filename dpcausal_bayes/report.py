r"""What the estimands say: a table, a sentence, a figure, and what to be wary of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr

from dpcausal_bayes.wording import (
    KINDS,
    interval_name,
    legend,
    rounded,
    row_names,
    sentences,
    warnings,
)

__all__ = ["Report", "report"]

# A posterior more than half as wide as the prior has learnt little: three quarters of the variance
# would have to go for this to be left.
PRIOR_DRIVEN = 0.5
LEAST_SUPPORT = 0.95  # share of an estimand's weight on strata that have both arms


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """A table of estimands, a sentence for each headline, and warnings.

    Attributes
    ----------
    table : pandas.DataFrame
        A row per estimand, and per level of a split: ``ate``, ``ate[north]``. The columns are
        described in `report`. Its ``attrs`` hold ``ci_prob``, ``ci_kind``, ``population``,
        ``contrast`` and ``units``.
    text : str
        One plain sentence per estimand that is not split (or per row, if all are).
    warnings : tuple of str
        What a reader must know before believing the table. Empty if all is well.
    tree : xarray.DataTree
        What was reported on.

    Examples
    --------
    >>> table = pd.DataFrame({"mean": [0.5]}, index=["ate"])
    >>> print(Report(table=table, text="The effect is 0.5.", warnings=(), tree=xr.DataTree()))
         mean
    ate   0.5
    <BLANKLINE>
    The effect is 0.5.
    """

    table: pd.DataFrame
    text: str
    warnings: tuple[str, ...]
    tree: xr.DataTree = field(repr=False)
    legend: str = ""

    def __str__(self) -> str:
        loud = "\n".join(f"WARNING: {warning}" for warning in self.warnings)
        parts = [loud, rounded(self.table).to_string(), self.text, self.legend]
        return "\n\n".join(part for part in parts if part)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        loud = "".join(
            f"<p><strong>Warning: {escape(warning)}</strong></p>" for warning in self.warnings
        )
        text = "".join(f"<p>{escape(line)}</p>" for line in self.text.splitlines())
        small = "".join(f"<small>{escape(self.legend)}</small>" if self.legend else "")
        return f"<div>{loud}{rounded(self.table).to_html()}{text}{small}</div>"

    def figure(self, **pc_kwargs: Any) -> Any:
        """Draw a forest plot of the estimands, with the report's interval and a line at zero.

        Parameters
        ----------
        **pc_kwargs
            Passed to `arviz.plot_forest`.

        Returns
        -------
        arviz_plots.PlotCollection
            Save it with ``.savefig("effects.png")``.
        """
        facts = self.table.attrs
        plot = az.plot_forest(
            self.tree,
            group="estimands",
            combined=True,
            point_estimate="mean",
            ci_kind=facts["ci_kind"],
            ci_probs=(min(0.5, facts["ci_prob"] / 2), facts["ci_prob"]),
            **pc_kwargs,
        )
        effects = {"column": "forest"}  # the other column holds the names
        plot.coords = effects
        one = next(iter(self.tree["estimands"].data_vars))  # one line, not one for each name
        az.add_lines(plot, {one: 0.0})
        plot.coords = None
        label = f"{facts['contrast']} ({facts['units']}), {interval_name(facts)}"
        plot.map(az.visuals.labelled_x, "xlabel", text=label, coords=effects, ignore_aes="all")
        return plot


def report(
    tree: xr.DataTree,
    *,
    ci_prob: float = 0.95,
    ci_kind: str = "eti",
    rope: tuple[float, float] | None = None,
) -> Report:
    r"""Report the estimands of a tree.

    The posterior variance of an estimand is split by the law of total variance, over what the
    confidential table may be given the release:

    .. math::
        \mathrm{Var}(\tau) = \mathrm{E}[\mathrm{Var}(\tau \mid \text{table})]
        + \mathrm{Var}(\mathrm{E}[\tau \mid \text{table}]).

    The first term would be left if the table were known: ``sampling_sd``. The second is owed to not
    knowing it: ``privacy_sd``. With d the same contrast of the table's own cell means (the group
    ``confidential_estimands``), :math:`\mathrm{E}[\tau \mid \text{table}]` is taken to be linear in
    d, so that ``privacy_sd`` is :math:`|\mathrm{Cov}(\tau, d)| / \mathrm{sd}(d)` over the draws and
    :math:`\text{sd}^2 = \text{sampling_sd}^2 + \text{privacy_sd}^2`.

    Parameters
    ----------
    tree : xarray.DataTree
        From `estimate`.
    ci_prob : float
        Probability of the interval, in (0, 1).
    ci_kind : "eti" or "hdi"
        Equal-tailed or highest-density.
    rope : (float, float), optional
        A region of practical equivalence, in the outcome's units; adds the column ``p_rope``, the
        probability that the effect lies in it.

    Returns
    -------
    Report
        Its table has the columns ``mean``, ``sd``, ``sampling_sd``, ``privacy_sd``,
        ``privacy_share`` (of the variance), the interval's bounds as ArviZ names them
        (``eti95_lb``, ``eti95_ub``), ``p_positive``, ``p_rope`` if asked for, ``r_hat``,
        ``ess_bulk``, ``ess_tail`` (at the interval's bounds), and ``prior_driven``: whether the
        posterior is more than half as wide as the prior, or more than a twentieth of the
        estimand's weight is on strata that lack an arm. After `log_densities` it also has
        ``prior_sensitivity`` and ``likelihood_sensitivity``: how far the estimand moves when the
        prior, or the likelihood, is made a little stronger (power scaling; of a hierarchical model
        the laws of all its parameters count as prior).

    Raises
    ------
    ValueError
        A tree without estimands, or a setting out of range.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), "Rank-normalization, folding, and
    localization: an improved R-hat for assessing convergence of MCMC"; Kallioinen, Paananen,
    Bürkner and Vehtari (2024), "Detecting and diagnosing prior and likelihood sensitivity with
    power-scaling".

    Examples
    --------
    The whole way from a release, here a simulated one, to a report:

    >>> from dpcausal_bayes import ATE, ATT, estimate, fit, impute, imputed_tables, models
    >>> from dpcausal_bayes.mechanisms import ClusterDP
    >>> from dpcausal_bayes.populations.labels import binary_population
    >>> from dpcausal_bayes.simulate import simulate_release
    >>> population = binary_population(clusters=2, units_per_cluster=200)
    >>> mechanism = ClusterDP.calibrated(population.schema, epsilon=2.0)
    >>> release = simulate_release(population.draw(1), population.schema, mechanism, seed=1)
    >>> model = models.cluster_labels(release)
    >>> tree = fit(model, release, draws=200, chains=2, random_seed=1, progressbar=False)
    >>> tree = impute(tree, release, draws=4, progressbar=False)
    >>> [len(table) for table in imputed_tables(tree, release)]
    [400, 400, 400, 400]
    >>> tree = estimate(tree, [ATE(), ATT(), ATE(by="cluster")], population="super")
    >>> report(tree).table.index.tolist()
    ['ate', 'att', 'ate[c1]', 'ate[c2]']
    """
    _check(tree, ci_prob, ci_kind, rope)
    group = tree["estimands"].to_dataset()
    table = _table(tree, group, ci_prob, ci_kind, rope)
    keep = ("population", "contrast", "units")
    table.attrs = {"ci_prob": ci_prob, "ci_kind": ci_kind, **{k: group.attrs[k] for k in keep}}
    return Report(
        table=table,
        text=sentences(table, group),
        warnings=warnings(tree, table),
        tree=tree,
        legend=legend(table, group),
    )


def split_sd(effect: xr.DataArray, table: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the sampling and the privacy part of an estimand's standard deviation.

    Parameters
    ----------
    effect : DataArray (chain, draw, ...)
        Draws of the estimand.
    table : DataArray (chain, draw, ...)
        Draws of the same contrast of the confidential table.
    """
    over = ["chain", "draw"]
    variance, spread = effect.var(over, ddof=1), table.var(over, ddof=1)
    covariance = xr.cov(effect, table, dim=over, ddof=1)
    known = spread > 1e-24 * (table**2).mean(over)  # a table that is known has no spread at all
    explained = (covariance**2 / spread.where(known)).fillna(0.0)
    explained = np.minimum(explained, variance)  # rounding, where the table decides the effect
    return np.sqrt(variance - explained), np.sqrt(explained)


def _check(tree: xr.DataTree, ci_prob: Any, ci_kind: Any, rope: Any) -> None:
    if "estimands" not in tree.children:
        raise ValueError(
            'the tree has no estimands: call tree = estimate(tree, [ATE()], population="super")'
        )
    if isinstance(ci_prob, bool) or not isinstance(ci_prob, int | float) or not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob is {ci_prob!r}: it must be a number between 0 and 1, as in 0.95")
    if ci_kind not in KINDS:
        raise ValueError(f'ci_kind is {ci_kind!r}: it must be "eti" or "hdi"')
    if rope is not None:
        fine = isinstance(rope, tuple | list) and len(rope) == 2
        if not fine or not all(math.isfinite(x) for x in rope) or not rope[0] < rope[1]:
            raise ValueError(f"rope is {rope!r}: it must be (low, high), with low below high")


def _table(
    tree: xr.DataTree,
    group: xr.Dataset,
    ci_prob: float,
    ci_kind: str,
    rope: tuple[float, float] | None,
) -> pd.DataFrame:
    # ArviZ takes the tails of ess_tail from its settings; a constant has no r-hat, only 0/0
    with az.rc_context({"stats.ci_prob": ci_prob}), np.errstate(divide="ignore", invalid="ignore"):
        summary = az.summary(
            tree, group="estimands", ci_prob=ci_prob, ci_kind=ci_kind, round_to="none"
        )
    low, high = (c for c in summary.columns if c.startswith(ci_kind) and c[-3:] in ("_lb", "_ub"))
    sensitivity, names = _sensitivity(tree, group), row_names(group)
    over = ["chain", "draw"]
    rows = {}
    for name, effect in group.data_vars.items():
        sampling, privacy = split_sd(effect, tree["confidential_estimands"][name])
        sd = effect.std(over, ddof=1)
        vague = sd > PRIOR_DRIVEN * tree["prior_estimands"][name].std(over, ddof=1)
        columns = {
            "sampling_sd": sampling,
            "privacy_sd": privacy,
            "privacy_share": (privacy**2 / (sd**2).where(sd > 0)).fillna(0.0),
            "p_positive": (effect > 0).mean(over),
            "prior_driven": vague | (tree["estimand_support"][name] < LEAST_SUPPORT),
        }
        if rope is not None:
            columns["p_rope"] = ((effect >= rope[0]) & (effect <= rope[1])).mean(over)
        by = effect.attrs["by"]
        for label in effect[by].values.tolist() if by else [None]:
            at = {by: label} if by else {}
            stored = f"{name}[{label}]" if by else name
            facts = {key: value.sel(at).item() for key, value in columns.items()}
            rows[names[str(name), label]] = {
                **summary.loc[stored].to_dict(),
                **facts,
                **sensitivity.get(stored, {}),
            }
    order = ["mean", "sd", "sampling_sd", "privacy_sd", "privacy_share", low, high, "p_positive"]
    order += ["p_rope"] if rope is not None else []
    order += ["r_hat", "ess_bulk", "ess_tail", "prior_driven"]
    order += [f"{part}_sensitivity" for part in ("prior", "likelihood")] if sensitivity else []
    return pd.DataFrame.from_dict(rows, orient="index")[order]


def _sensitivity(tree: xr.DataTree, group: xr.Dataset) -> dict[str, dict[str, float]]:
    """Return the power-scaling sensitivities of each estimand, if the tree has log densities."""
    parts = ("log_prior", "log_likelihood")
    if not all(part in tree.children for part in parts):
        return {}
    scaled = xr.DataTree.from_dict(
        {"posterior": group, **{part: tree[part].to_dataset() for part in parts}}
    )
    found = az.psense_summary(scaled, round_to=6)
    columns = {part: f"{part}_sensitivity" for part in ("prior", "likelihood")}
    return dict(found[list(columns)].rename(columns=columns).to_dict(orient="index"))
