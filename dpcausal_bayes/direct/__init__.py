"""Closed-form contrasts of a release, with standard errors: companions of the models."""

from dpcausal_bayes.direct.estimates import DirectEstimate
from dpcausal_bayes.direct.labels import (
    centred_histogram_contrast,
    debiased,
    histogram_contrast,
    usable_clusters,
)
from dpcausal_bayes.direct.moments import aipw, ipw, plug_in

__all__ = [
    "DirectEstimate",
    "aipw",
    "centred_histogram_contrast",
    "debiased",
    "histogram_contrast",
    "ipw",
    "plug_in",
    "usable_clusters",
]
