r"""Gaussian noise for a causal workload: scale, privacy loss, and why the lattice costs nothing.

Queries are released as whole multiples of 1/L of a record, L = ``LATTICE``, and their noise is a
discrete Gaussian on these multiples, :math:`P(k) \propto e^{-k^2/2\sigma^2}` with :math:`\sigma` in
lattice units. With r the sensitivity over the noise's scale, two claims are made.

**zCDP, exactly.** Moved by a whole number, a discrete Gaussian has at most the continuous one's
Renyi divergences (Canonne, Kamath and Steinke 2020): :math:`\rho = r^2/2`.

**(epsilon, delta), by the analytic formula.** A *rounded* continuous Gaussian costs no more than
the continuous one, as rounding comes after it. The discrete law is almost the rounded one: z
scales out, their probabilities differ by a factor :math:`1 \pm z^2/(24\sigma^2)`. A record weighs
at most :math:`\sqrt 2` sensitivities in any query, so :math:`\sigma \ge L/(\sqrt2\, r)`. Only the m
queries that two records fill count (two a group and a square, for each), as all others cancel. Up
to 12 scales from either centre and with :math:`r \le 12`, z is at most 24 and the factor of one
query :math:`1 \pm \eta` with :math:`\eta \le 48 r^2/L^2 < 5 \times 10^{-11} r^2`; farther out there
is less than :math:`10^{-32}` a query. Hence

.. math:: \delta_\text{discrete}(\varepsilon)
    \le (1 + 3m\eta)\, \delta_\text{continuous}(\varepsilon - 3m\eta).

Raising the sensitivity by a share c moves epsilon by at least 0.79 c r and delta by at least
:math:`0.1\, c\, r \delta` (for delta up to 1/2), so :math:`c = 8 \times 10^{-6}` covers this as
long as m r is below 5,000.

Of a `GramWorkload` m can be large. But a query is one record at most, so
:math:`\sigma \ge L \Delta / r` with :math:`\Delta` the sensitivity, :math:`\eta \le
24 r^2/(L \Delta)^2`, and :math:`m \le 64 \Delta^2`: for a vector that reaches
:math:`\Delta^2 \ge 2|Q|^2` the squares of products with -1 and +1 are one, and those of numeric
columns sum to no less than 1/64 of their number, as :math:`R^2 \ge d/8`. So :math:`3 m \eta \le
72 \cdot 64\, r^2 / L^2`, for which :math:`c = 5 \times 10^{-7}` is enough.

**Rounding.** Outcomes are rounded to the lattice before anything else, which keeps them within
their bounds. Each square is then rounded by half a unit at most, which adds at most
:math:`\sqrt2/L < 1.4 \times 10^{-6}` of the sensitivity. Numeric covariates are rounded likewise,
and towards zero where they are shrunk onto a ball, so that they stay in it. The (d + 1)(d + 2)/2
products of numeric columns, each rounded by half a unit, add
:math:`\sqrt{(d + 1)(d + 2)/2}\,/ (L (2 + R^2)) < 5.7 / L < 5.4 \times 10^{-6}` of the
sensitivity, which is at least :math:`2 + R^2`.

``MARGIN``, the sum of both, raises the sensitivity in every statement of loss and in every
calibration: one part in 100,000.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from dpcausal_bayes.accounting import REPLACE_ONE_RECORD, PrivacyLoss, epsilon_from_rho
from dpcausal_bayes.gaussian_accounting import gaussian_epsilon, gaussian_scale_for
from dpcausal_bayes.gram_workloads import Workload
from dpcausal_bayes.laws import LARGEST_SCALE, Gaussian, NoiseSource, number

__all__ = ["LATTICE", "MARGIN", "GaussianMechanism", "checked_epsilon"]

LATTICE = 2**20
MARGIN = 1e-5
LARGEST_RATIO = 12.0  # of sensitivity to scale, for which the analytic epsilon is claimed


class GaussianMechanism(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, kw_only=True
):
    r"""Gaussian noise on every query of a workload, at one price for all of them.

    The noise of query j has standard deviation ``scale`` / weight_j, in records.

    Parameters
    ----------
    scale : float
        Noise of a query of weight 1, in records.
    sensitivity : float
        L2 sensitivity of the weighted queries to replacing one record: the workload's.
    delta : float
        The delta at which `loss` states the privacy loss, in (0, 1/2].

    Raises
    ------
    TypeError, ValueError
        A parameter outside its range.

    References
    ----------
    Balle and Wang (2018), "Improving the Gaussian mechanism for differential privacy: analytical
    calibration and optimal denoising", arXiv:1805.06530.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("treat", control=0, treated=1), outcome=Bounded("y", 0, 10))
    >>> from dpcausal_bayes.workloads import CausalWorkload
    >>> mechanism = GaussianMechanism.calibrated(CausalWorkload(schema), epsilon=1.0, delta=1e-5)
    >>> print(mechanism.loss())
    (1, 1e-05)-DP, 0.0359257-zCDP; neighbours: replace one record
    """

    scale: float
    sensitivity: float
    delta: float

    def __post_init__(self) -> None:
        for field in ("scale", "sensitivity"):
            value = number(getattr(self, field), f"GaussianMechanism.{field}")
            if value <= 0:
                raise ValueError(f"GaussianMechanism.{field} is {value:g}: it must be above 0")
            force_setattr(self, field, value)
        force_setattr(self, "delta", _delta(self.delta, "GaussianMechanism.delta"))

    @classmethod
    def calibrated(cls, workload: Workload, *, epsilon: float, delta: float) -> GaussianMechanism:
        """Choose the least noise that is (epsilon, delta)-DP, by the analytic formula.

        Parameters
        ----------
        workload : CausalWorkload or GramWorkload
        epsilon : float
            Positive.
        delta : float
            In (0, 1/2]; it should be well below one over the number of records.

        Returns
        -------
        GaussianMechanism

        Raises
        ------
        ValueError
            A budget outside its range, or so large or small that the noise is beyond use.
        """
        epsilon, delta = checked_epsilon(epsilon), _delta(delta, "delta")
        unit = gaussian_scale_for(epsilon, delta)
        if unit * LARGEST_RATIO < 1:
            raise ValueError(
                f"epsilon is {epsilon:g}: it asks for noise of less than 1/{LARGEST_RATIO:g} of "
                "what one record can change, which protects nobody; lower epsilon"
            )
        return cls._for(workload, unit, delta)

    @classmethod
    def classical(cls, workload: Workload, *, epsilon: float, delta: float) -> GaussianMechanism:
        r"""Choose the noise by the textbook formula, to reproduce older work.

        The scale is :math:`\sqrt{2 \log(1.25/\delta)}/\varepsilon` sensitivities: more than is
        needed, and proved for epsilon up to 1 only. `loss` says what it really costs.

        Parameters
        ----------
        workload : CausalWorkload or GramWorkload
        epsilon : float
            In (0, 1].
        delta : float
            In (0, 1/2].

        Returns
        -------
        GaussianMechanism

        Raises
        ------
        ValueError
            Epsilon above 1, where the formula protects less than it says.
        """
        epsilon, delta = checked_epsilon(epsilon), _delta(delta, "delta")
        if epsilon > 1:
            raise ValueError(
                f"epsilon is {epsilon:g}: the classical formula is not proved above 1, and is "
                "wrong for large epsilon; use GaussianMechanism.calibrated"
            )
        return cls._for(workload, math.sqrt(2 * math.log(1.25 / delta)) / epsilon, delta)

    @classmethod
    def _for(cls, workload: Workload, unit: float, delta: float) -> GaussianMechanism:
        """Return the mechanism whose noise is ``unit`` sensitivities, the margin included."""
        if not isinstance(workload, Workload):
            raise TypeError(
                f"workload is a {type(workload).__name__}: give a CausalWorkload or a "
                "GramWorkload, which know how far one record can move their queries"
            )
        sensitivity = workload.sensitivity
        scale = unit * (sensitivity * (1 + MARGIN))
        mechanism = cls(scale=scale, sensitivity=sensitivity, delta=delta)
        mechanism.check(workload)
        return mechanism

    def check(self, workload: Workload) -> None:
        """Raise unless the mechanism fits a workload.

        Parameters
        ----------
        workload : CausalWorkload or GramWorkload

        Raises
        ------
        ValueError
            Another sensitivity than the workload's, or noise too large for 64-bit integers.
        """
        if not math.isclose(self.sensitivity, workload.sensitivity, rel_tol=1e-9):
            raise ValueError(
                f"GaussianMechanism.sensitivity is {self.sensitivity:.9g}, but the workload's is "
                f"{workload.sensitivity:.9g}: calibrate the mechanism for this workload"
            )
        largest = self.scale / float(workload.weights.min())
        if largest * LATTICE > LARGEST_SCALE:
            raise ValueError(
                f"GaussianMechanism.scale is {self.scale:g}: noise of {largest:.3g} records is "
                f"more than 64-bit integers hold on a lattice of 1/{LATTICE}; raise epsilon or "
                "delta, or the smallest weight"
            )

    @property
    def ratio(self) -> float:
        """Sensitivity over scale, with the margin for the lattice."""
        return self.sensitivity * (1 + MARGIN) / self.scale

    @property
    def rho(self) -> float:
        """The zCDP loss, half the squared ratio."""
        return self.ratio**2 / 2

    def loss(self, delta: float | None = None) -> PrivacyLoss:
        """State the privacy loss for replacing one record.

        Parameters
        ----------
        delta : float, optional
            The delta of the (epsilon, delta) statement; the default is the mechanism's own.

        Returns
        -------
        PrivacyLoss
            ``epsilon`` is tight, but for noise of less than 1/12 of the sensitivity, where it is
            the bound that zCDP gives.
        """
        delta = self.delta if delta is None else _delta(delta, "delta")
        tight = self.ratio <= LARGEST_RATIO * (1 + 1e-9)
        return PrivacyLoss(
            pure_epsilon=None,
            rho=self.rho,
            epsilon=gaussian_epsilon(self.ratio, delta)
            if tight
            else epsilon_from_rho(self.rho, delta),
            delta=delta,
            adjacency=REPLACE_ONE_RECORD,
        )

    def noise_sd(self, workload: Workload) -> NDArray[np.float64]:
        """Return the standard deviation of every query's noise, in records, shape (Q,).

        Parameters
        ----------
        workload : CausalWorkload or GramWorkload
        """
        return self.scale / workload.weights

    def randomised(
        self, exact: NDArray[np.int64], workload: Workload, source: NoiseSource
    ) -> NDArray[np.int64]:
        """Add noise to exact answers.

        Parameters
        ----------
        exact : ndarray of int64, shape (Q,)
            In lattice units; confidential.
        workload : CausalWorkload or GramWorkload
        source : NoiseSource

        Returns
        -------
        ndarray of int64, shape (Q,)
        """
        weights, noisy = workload.weights, exact.copy()
        for weight in np.unique(weights):
            alike = np.flatnonzero(weights == weight)
            noisy[alike] += source.integers(Gaussian(self.scale * LATTICE / weight), alike.shape)
        return noisy

    @property
    def note(self) -> str:
        """One sentence on the noise and its price."""
        return (
            f"Gaussian noise of {self.scale:.6g} records on a query of weight 1, where one record "
            f"counts for {self.sensitivity:.6g} at most: {self.loss()}."
        )


def checked_epsilon(value: float) -> float:
    """Return a budget as a float, or raise unless it is positive."""
    epsilon = number(value, "epsilon")
    if epsilon <= 0:
        raise ValueError(f"epsilon is {epsilon:g}: the budget must be positive")
    return epsilon


def _delta(value: float, field: str) -> float:
    delta = number(value, field)
    if not 0 < delta <= 0.5:
        raise ValueError(
            f"{field} is {delta:g}: Gaussian noise needs it above 0 and at most 1/2; choose it "
            "well below one over the number of records"
        )
    return delta
