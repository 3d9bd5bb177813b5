"""A plan as a reader sees it: a table, a few sentences, a figure."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from dpcausal_bayes.custodian.guesses import Guesses, short
from dpcausal_bayes.custodian.predictions import MOST_STRATA
from dpcausal_bayes.custodian.widths import normal_reach

__all__ = ["Plan"]

_PANELS_ABREAST = 3


@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """Expected intervals, by epsilon and by choice of strata or of second moments.

    Attributes
    ----------
    table : pandas.DataFrame
        A row for each epsilon, choice of strata and estimand (``ate``, ``ate[level]``):
        ``epsilon``, ``strata``, ``n_strata``, ``estimand``; the expected ``width`` of the interval
        and ``sd`` of the estimate, sd² = ``sampling_sd``² + ``privacy_sd``², and
        ``confounding_left``, all in the outcome's unit; ``smallest_cell``, the records expected in
        the smallest arm of a stratum, ``noise``, its law, and ``noise_in_records``, its standard
        deviation in a cell; ``best``, whether the strata have the least expected error, root of
        sd² + confounding_left², at this epsilon.
    guesses : Guesses
        What was taken to be so.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded, Categories
    >>> from dpcausal_bayes.custodian.plan import plan
    >>> from dpcausal_bayes.schema import Schema
    >>> from dpcausal_bayes.workloads import CausalWorkload
    >>> schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Bounded("y", 0, 100),
    ...                 covariates=[Categories("sex", ["f", "m"])])
    >>> workload = CausalWorkload(schema, strata=["sex"])
    >>> print(plan(workload, n=2000, epsilon=[0.1, 0.5]))
    Expected width of the 95 % interval of the effect on y, in its unit (n = 2000, delta = 0)
    <BLANKLINE>
    estimand strata  n_strata epsilon 0.1 epsilon 0.5 without privacy noise
         ate   none         1        ...       5... *                  4...
         ate    sex         2        ...          ...                  4...
    <BLANKLINE>
    Best (*): no strata at every epsilon.
    ...
    """

    table: pd.DataFrame
    guesses: Guesses

    @property
    def best(self) -> pd.DataFrame:
        """The rows of the best choice of strata, for each epsilon and estimand."""
        return self.table[self.table["best"]]

    def __str__(self) -> str:
        text = "\n".join(textwrap.fill(line, 100) for line in self._text())
        return "\n\n".join([self._title(), self._widths().to_string(index=False), text])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        text = "".join(f"<p>{escape(line)}</p>" for line in self._text())
        table = self._widths().to_html(index=False)
        return f"<div><p><strong>{escape(self._title())}</strong></p>{table}{text}</div>"

    @property
    def _interval(self) -> float:
        """Standard deviations from one end of the interval to the other."""
        return normal_reach(self.table.attrs["ci_prob"])

    def _title(self) -> str:
        facts = self.table.attrs
        whose = " on these very records" if facts["population"] == "sample" else ""
        return (
            f"Expected width of the {100 * facts['ci_prob']:g} % interval of the effect on "
            f"{facts['outcome']}{whose}, in its unit (n = {facts['n']}, delta = {facts['delta']:g})"
        )

    def _choices(self) -> list[str]:
        return list(dict.fromkeys(self.table["strata"]))

    def _widths(self) -> pd.DataFrame:
        """Return the widths as text, a row for each estimand and choice of strata."""
        choice = len(self._choices()) > 1
        lines = []
        for (name, strata), rows in self.table.groupby(["estimand", "strata"], sort=False):
            first = rows.iloc[0]
            line = {"estimand": name, "strata": strata, "n_strata": first["n_strata"]}
            for row in rows.itertuples():
                marks = " ~" * row.rough + " *" * (choice and row.best)
                line[f"epsilon {row.epsilon:g}"] = short(row.width) + marks
            line["without privacy noise"] = short(self._interval * first["sampling_sd"])
            if self.guesses.confounding:
                line["confounding left"] = short(first["confounding_left"])
            lines.append(line)
        return pd.DataFrame(lines)

    def _text(self) -> list[str]:
        lines = []
        if len(self._choices()) > 1:
            lines += self._says_best()
            if self.guesses.confounding:
                lines += self._says_why()
            if not self.guesses.confounding:
                lines.append(
                    "Narrowest is best only where nothing is confounded: strata remove confounding "
                    "and answer for subgroups. With confounding={...} the plan weighs that."
                )
        rough = self.table[self.table["rough"]]
        if (rough["n_strata"] > MOST_STRATA).any():
            lines.append(
                f"~ More than {MOST_STRATA} strata are not simulated: the width is that of the "
                "plug-in contrast, and the model's priors will make it narrower."
            )
        if (rough["n_strata"] == 1).any():
            lines.append(
                "~ The noise reaches the least variance among the covariates: what second moments "
                "adjust for is then owed to the prior, and their width is a guess."
            )
        lines += [self._says_noise(), f"Guessed: {self.guesses}."]
        return lines

    def _says_noise(self) -> str:
        """Say which law of noise was planned with, and if it spends delta."""
        laws = {
            law: ", ".join(_called(strata) for strata in dict.fromkeys(rows["strata"]))
            for law, rows in self.table.groupby("noise", sort=False)
        }
        if len(laws) > 1:
            whose = "; ".join(f"{law} for {choices}" for law, choices in laws.items())
            return f"Noise: {whose}. Laplace noise spends no delta."
        if "Laplace" in laws:
            return "Noise: Laplace, which spends no delta."
        return "Noise: Gaussian."

    def _says_best(self) -> list[str]:
        """Say which choices are best: at every epsilon, or at each; for all estimands, or for some.

        Estimands with the same answer share a sentence.
        """
        budgets = self.table["epsilon"].nunique()
        answers: dict[str, list[str]] = {}
        for name, rows in self.best.groupby("estimand", sort=False):
            parts = []
            for strata, chosen in rows.groupby("strata", sort=False):
                label = _called(strata)
                at = ", ".join(f"{epsilon:g}" for epsilon in chosen["epsilon"])
                all_of_many = len(chosen) == budgets > 1
                parts.append(f"{label} at {'every epsilon' if all_of_many else f'epsilon {at}'}")
            answers.setdefault("; ".join(parts), []).append(str(name))
        if len(answers) == 1:
            return [f"Best (*): {next(iter(answers))}."]
        return [f"Best (*) for {', '.join(names)}: {answer}." for answer, names in answers.items()]

    def _says_why(self) -> list[str]:
        """Say what the best choice and the next best owe their errors to, at each epsilon."""
        lines = []
        for (epsilon, name), rows in self.table.groupby(["epsilon", "estimand"], sort=False):
            error = np.hypot(rows["sd"], rows["confounding_left"])
            first, second = (rows.loc[place] for place in error.sort_values().index[:2])
            parts = [
                f"{_called(row['strata'])} {short(total)} (spread {short(row['sd'])}, confounding "
                f"left {short(row['confounding_left'])})"
                for row, total in zip((first, second), error.sort_values(), strict=False)
            ]
            lines.append(
                f"Expected error of {name} at epsilon {epsilon:g}: {parts[0]}; next best, "
                f"{parts[1]}."
            )
        return lines

    def figure(self) -> Any:
        """Draw the widths over epsilon: a panel an estimand, a line a choice of strata.

        Returns
        -------
        matplotlib.figure.Figure
            Save it with ``.savefig("plan.png")``.
        """
        from matplotlib import pyplot as plt

        facts = self.table.attrs
        names = list(dict.fromkeys(self.table["estimand"]))
        columns = min(len(names), _PANELS_ABREAST)
        rows = -(-len(names) // columns)
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(1.2 + 4.4 * columns, 0.6 + 3.4 * rows),
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for panel in axes.flat[len(names) :]:
            panel.set_visible(False)
        for panel, name in zip(axes.flat, names, strict=False):
            self._panel(panel, self.table[self.table["estimand"] == name])
            panel.set(title=name, xlabel="epsilon")
        for panel in axes[:, 0]:
            panel.set_ylabel(
                f"width of the {100 * facts['ci_prob']:g} % interval\n(unit of {facts['outcome']})"
            )
        return figure

    def _panel(self, panel: Any, table: pd.DataFrame) -> None:
        """Draw one estimand's lines, each labelled at its end; rough widths are hollow."""
        from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

        panel.set(xscale="log", yscale="log")
        panel.xaxis.set_major_locator(FixedLocator(sorted(set(self.table["epsilon"]))))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: short(y)))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.spines[["top", "right"]].set_visible(False)
        ends = []
        for place, (strata, rows) in enumerate(table.groupby("strata", sort=False)):
            color = f"C{place}"
            panel.plot(rows["epsilon"], rows["width"], color=color)
            for row in rows.itertuples():
                face = "white" if row.rough else color
                panel.plot(row.epsilon, row.width, "o", color=color, mfc=face, ms=5)
            label = _called(strata)
            ends.append((rows["width"].iloc[-1], label, color))
        floors = self._interval * table["sampling_sd"]
        panel.axhspan(floors.min() * 0.995, floors.max() * 1.005, color="0.85", zorder=0)
        ends.append((_middle(floors), "no privacy noise", "0.4"))
        # all panels have the same axis; labels keep a line's distance on it
        reach = self.table["width"].max() / (self._interval * self.table["sampling_sd"].min())
        at = -np.inf
        for width, text, color in sorted(ends):
            at = max(np.log(width), at + 0.07 * np.log(max(reach, 1.1)))
            panel.annotate(
                text,
                (1, float(np.exp(at))),
                (6, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                color=color,
                fontsize="small",
            )


def _middle(widths: pd.Series) -> float:
    return float(np.sqrt(widths.min() * widths.max()))


def _called(strata: Any) -> str:
    return "no strata" if strata == "none" else str(strata)
