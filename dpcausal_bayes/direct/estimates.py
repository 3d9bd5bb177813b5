"""What every closed-form contrast returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

__all__ = ["DirectEstimate"]


@dataclass(frozen=True)
class DirectEstimate:
    """An average treatment effect, treated minus control, with its estimated variance.

    Attributes
    ----------
    method : str
    estimate : float
        In units of the outcome.
    variance : float
        Of sampling and privacy noise together, for the superpopulation; for the effect on these
        very units it is conservative. The privacy noise can make it negative where outcomes hardly
        vary; it is then left so, and has no root.
    noise_variance : float
        The part of the privacy noise.
    table : pandas.DataFrame
        A row a cluster, or stratum, used: ``weight``, ``control``, ``treated`` (mean outcomes),
        ``estimate``, and what else the method says of each.
    excluded : tuple of str
        Clusters, or strata, that the estimate says nothing about.
    estimand : str
        Name of the estimand: whom the effect is averaged over.

    Examples
    --------
    >>> found = DirectEstimate("by hand", 0.5, 0.04, 0.01, pd.DataFrame(), ())
    >>> found.standard_error, [round(end, 3) for end in found.interval()]
    (0.2, [0.108, 0.892])
    """

    method: str
    estimate: float
    variance: float
    noise_variance: float
    table: pd.DataFrame
    excluded: tuple[str, ...]
    estimand: str = "ate"

    def __repr__(self) -> str:
        error = f"{self.variance**0.5:.4g}" if self.variance >= 0 else "none: variance negative"
        kind = {"cluster": "clusters", "stratum": "strata"}.get(str(self.table.index.name), "rows")
        left = f"; {len(self.excluded)} {kind} left out" if self.excluded else ""
        name = "" if self.estimand == "ate" else f", {self.estimand}"
        return f"{self.method}{name}: {self.estimate:.4g} (standard error {error}{left})"

    @property
    def standard_error(self) -> float:
        """Root of the variance; a ValueError where that is negative."""
        if self.variance < 0:
            raise ValueError(
                f"variance is {self.variance:.3g}: outcomes hardly vary within these cells, and "
                "the privacy noise took their estimated spread below zero. Use larger "
                f"cells, or the model. The noise alone has a variance of {self.noise_variance:.3g}"
            )
        return float(np.sqrt(self.variance))

    def interval(self, prob: float = 0.95) -> tuple[float, float]:
        """Return a central interval from the normal law, of probability ``prob`` in (0, 1).

        In cells of a few units, where the variance is itself poorly known, it covers a little less.
        """
        if not 0 < prob < 1:
            raise ValueError(f"prob is {prob}: it must lie strictly between 0 and 1")
        reach = float(stats.norm.ppf((1 + prob) / 2)) * self.standard_error
        return self.estimate - reach, self.estimate + reach
