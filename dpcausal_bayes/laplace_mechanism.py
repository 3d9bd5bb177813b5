r"""Laplace noise for one group of strata: pure differential privacy at half the Gaussian's noise.

The strata of a group exclude each other, so a record counts in one cell only. What it adds there is
split between the ends of the outcome's range,

.. math:: h = \tfrac12 (1 + y), \qquad l = \tfrac12 (1 - y), \qquad y \in [-1, 1],

both at least 0 and one together; an outcome of two levels is at one of its ends. However many
strata there are, replacing a record moves these numbers by at most 1 where it was and 1 where it
comes: an L1 sensitivity of 2. Mass and outcome sum of a cell are :math:`h + l` and
:math:`h - l`, so that nothing is lost, and mass and squares cost next to nothing on top: the
squares of an arm, :math:`w (y^2 - \tfrac12)` with a small weight w, add w.

**Exact on the lattice.** With sums in whole multiples of 1/L of a record, let M be a cell's mass
and T its outcome sum. Noise is added to :math:`H = \lfloor (M + T)/2 \rfloor` and to
:math:`M - H`. A record that leaves the cell takes L from M and between 0 and 2 L from M + T: H
falls by 0 to L, and M - H by the rest of L. A record that is replaced within the cell moves H by at
most L, and M - H by as much the other way. So the two cells move by 2 L at most, as without
rounding. A rounded square lies between -L/2 and L/2, and two of them are L apart at most. The noise
is discrete Laplace on the same lattice, of which a number moved by k costs k over its scale.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from dpcausal_bayes.accounting import (
    REPLACE_ONE_RECORD,
    PrivacyLoss,
    epsilon_from_rho,
    randomised_response_rho,
)
from dpcausal_bayes.gaussian_mechanism import LATTICE, GaussianMechanism, checked_epsilon
from dpcausal_bayes.gram_workloads import Workload
from dpcausal_bayes.laws import LARGEST_SCALE, Laplace, NoiseSource, number
from dpcausal_bayes.workloads import CausalWorkload

__all__ = ["LaplaceMechanism", "MomentMechanism", "least_noise"]

SQUARES = 0.25  # weight of the squares, whose price is one of the cells' for Gaussian noise alone
ROUNDING = 1e-12  # of a scale in floating point
SMALLEST = 1e-4  # noise in records: on a hundred steps of the lattice the discrete law is Laplace's


class LaplaceMechanism(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, kw_only=True
):
    r"""Laplace noise on the cells of one group of strata, and on the squares: pure epsilon-DP.

    Of a bounded outcome the noise is on the two ends between which a cell's records are split, see
    `dpcausal_bayes.laplace_mechanism`; of an outcome of two levels on their counts. With b the
    ``scale``, their noise has standard deviation :math:`\sqrt2\, b`, that of masses and outcome
    sums :math:`2 b`, and that of the squares :math:`4 \sqrt2\, b`, over the workload's weights.

    Parameters
    ----------
    scale : float
        Of the Laplace law, of a query of weight 1, in records.
    sensitivity : float
        L1 sensitivity of the weighted queries to replacing one record.

    Raises
    ------
    TypeError, ValueError
        A parameter outside its range.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), "Calibrating noise to sensitivity in private data
    analysis"; Ghosh, Roughgarden and Sundararajan (2012), "Universally utility-maximizing privacy
    mechanisms", for the discrete law.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("treat", control=0, treated=1), outcome=Bounded("y", 0, 10))
    >>> mechanism = LaplaceMechanism.calibrated(CausalWorkload(schema), epsilon=1.0)
    >>> print(mechanism.loss())
    1-DP, 0.462117-zCDP; neighbours: replace one record
    >>> mechanism.noise_sd(CausalWorkload(schema)).round(1).tolist()
    [4.5, 4.5, 4.5, 4.5, 12.7, 12.7]
    """

    scale: float
    sensitivity: float

    def __post_init__(self) -> None:
        for field in ("scale", "sensitivity"):
            value = number(getattr(self, field), f"LaplaceMechanism.{field}")
            if value <= 0:
                raise ValueError(f"LaplaceMechanism.{field} is {value:g}: it must be above 0")
            force_setattr(self, field, value)

    @classmethod
    def calibrated(cls, workload: CausalWorkload, *, epsilon: float) -> LaplaceMechanism:
        """Choose the least noise that is epsilon-DP.

        Parameters
        ----------
        workload : CausalWorkload
            Of one group of strata.
        epsilon : float
            Positive.

        Returns
        -------
        LaplaceMechanism

        Raises
        ------
        TypeError, ValueError
            Another workload, or a budget outside its range.
        """
        epsilon = checked_epsilon(epsilon)
        sensitivity = _sensitivity(workload)
        mechanism = cls(scale=sensitivity * (1 + ROUNDING) / epsilon, sensitivity=sensitivity)
        mechanism.check(workload)
        return mechanism

    def check(self, workload: Any) -> None:
        """Raise unless the mechanism fits a workload.

        Parameters
        ----------
        workload : CausalWorkload

        Raises
        ------
        TypeError, ValueError
            A workload of another kind or of several groups, another sensitivity than the
            workload's, or noise too small to protect anybody or too large for 64-bit integers.
        """
        wanted = _sensitivity(workload)
        if not np.isclose(self.sensitivity, wanted, rtol=ROUNDING, atol=0):
            raise ValueError(
                f"LaplaceMechanism.sensitivity is {self.sensitivity:.9g}, but the workload's is "
                f"{wanted:.9g}: calibrate the mechanism for this workload"
            )
        weights = _weights(workload)
        smallest, largest = (
            self.scale / float(weight) for weight in (weights.max(), weights.min())
        )
        if smallest < SMALLEST:
            raise ValueError(
                f"LaplaceMechanism.scale is {self.scale:g}: noise of {smallest:.3g} records, less "
                f"than {SMALLEST:g}, protects nobody; lower epsilon, or the largest weight"
            )
        if largest * LATTICE > LARGEST_SCALE:
            raise ValueError(
                f"LaplaceMechanism.scale is {self.scale:g}: noise of {largest:.3g} records is "
                f"more than 64-bit integers hold on a lattice of 1/{LATTICE}; raise epsilon, or "
                "the smallest weight"
            )

    @property
    def pure_epsilon(self) -> float:
        """The loss, sensitivity over scale."""
        return self.sensitivity * (1 + ROUNDING) / self.scale

    @property
    def rho(self) -> float:
        """The zCDP loss that pure differential privacy implies."""
        return randomised_response_rho(self.pure_epsilon)

    def loss(self, delta: float | None = None) -> PrivacyLoss:
        """State the privacy loss for replacing one record.

        Parameters
        ----------
        delta : float, optional
            The delta of the (epsilon, delta) statement; the default is 0, which is the whole of it.

        Returns
        -------
        PrivacyLoss
            With a delta, ``epsilon`` is a bound that zCDP gives, where that is the smaller one.
        """
        delta = 0.0 if delta is None else number(delta, "delta")
        if not 0 <= delta < 1:
            raise ValueError(f"delta is {delta:g}: it must be in [0, 1)")
        return PrivacyLoss(
            pure_epsilon=self.pure_epsilon,
            rho=self.rho,
            epsilon=min(self.pure_epsilon, epsilon_from_rho(self.rho, delta)),
            delta=delta,
            adjacency=REPLACE_ONE_RECORD,
        )

    @property
    def note(self) -> str:
        """One sentence on the noise and its price."""
        return (
            f"Laplace noise of scale {self.scale:.6g} records on a query of weight 1, where one "
            f"record counts for {self.sensitivity:.6g} at most: {self.loss()}."
        )

    def noise_sd(self, workload: CausalWorkload) -> NDArray[np.float64]:
        """Return the standard deviation of every query's noise, in records, shape (Q,).

        Parameters
        ----------
        workload : CausalWorkload
        """
        sd = 2**0.5 * self.scale / _weights(workload)
        if not workload.binary:
            sd[:-2] *= 2**0.5  # a mass and an outcome sum hold the noise of both ends
        return sd

    def randomised(
        self, exact: NDArray[np.int64], workload: CausalWorkload, source: NoiseSource
    ) -> NDArray[np.int64]:
        """Add noise to exact answers.

        Parameters
        ----------
        exact : ndarray of int64, shape (Q,)
            In lattice units; confidential.
        workload : CausalWorkload
        source : NoiseSource

        Returns
        -------
        ndarray of int64, shape (Q,)
        """
        scale = self.scale * LATTICE / _weights(workload)
        n_cells = len(exact) - (0 if workload.binary else 2)  # the last two are squares
        cells = source.integers(Laplace(float(scale[0])), (n_cells,))
        if workload.binary:
            return exact + cells
        mass, outcome = exact[:-2].reshape(-1, 2).T
        high = (mass + outcome) // 2
        low = mass - high + cells[::2]
        high = high + cells[1::2]
        squares = exact[-2:] + source.integers(Laplace(float(scale[-1])), (2,))
        return np.concatenate([np.stack([high + low, high - low], axis=1).ravel(), squares])


MomentMechanism = GaussianMechanism | LaplaceMechanism


def least_noise(workload: Workload, *, epsilon: float, delta: float | None) -> MomentMechanism:
    """Return the mechanism that answers a workload with the least noise in its cells.

    Of one group of strata that is Laplace noise, unless delta is large; it spends no delta. Several
    groups and second moments get Gaussian noise. The choice looks at nothing but public facts.

    Parameters
    ----------
    workload : CausalWorkload or GramWorkload
    epsilon : float
    delta : float or None
        ``None`` for pure differential privacy, which leaves Laplace noise only.

    Returns
    -------
    GaussianMechanism or LaplaceMechanism

    Raises
    ------
    TypeError, ValueError
        A budget outside its range; no delta for a workload that needs one.

    Examples
    --------
    >>> from dpcausal_bayes.columns import Arm, Bounded
    >>> from dpcausal_bayes.schema import Schema
    >>> schema = Schema(arm=Arm("treat", control=0, treated=1), outcome=Bounded("y", 0, 10))
    >>> type(least_noise(CausalWorkload(schema), epsilon=1.0, delta=1e-6)).__name__
    'LaplaceMechanism'
    """
    if delta is None:
        return LaplaceMechanism.calibrated(workload, epsilon=epsilon)  # type: ignore[arg-type]
    gaussian = GaussianMechanism.calibrated(workload, epsilon=epsilon, delta=delta)
    if not isinstance(workload, CausalWorkload) or len(workload.groups) > 1:
        return gaussian
    laplace = LaplaceMechanism.calibrated(workload, epsilon=epsilon)
    of_cells = [float(one.noise_sd(workload)[0]) for one in (laplace, gaussian)]
    return laplace if of_cells[0] <= of_cells[1] else gaussian


def _weights(workload: CausalWorkload) -> NDArray[np.float64]:
    """Return the weight of each query: of the cells as given, of the squares a part."""
    weights = workload.weights
    if not workload.binary:
        weights[-2:] *= SQUARES
    return weights


def _sensitivity(workload: Any) -> float:
    """Return the L1 sensitivity of the weighted queries, or raise."""
    if not isinstance(workload, CausalWorkload):
        raise TypeError(
            f"workload is a {type(workload).__name__}: Laplace noise needs a CausalWorkload, whose "
            "strata exclude each other; take a GaussianMechanism"
        )
    if len(workload.groups) > 1:
        raise ValueError(
            f"workload has {len(workload.groups)} groups: Laplace noise would have to pay for "
            "each of them in full; release one joint group, or take a GaussianMechanism"
        )
    weights = _weights(workload)
    squares = 0.0 if workload.binary else float(weights[-1])
    return 2 * float(weights[0]) + squares
