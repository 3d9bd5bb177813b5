"""Closed-form contrasts of a release, with standard errors: companions of the models."""

from dpcausal_bayes.direct.estimates import DirectEstimate
from dpcausal_bayes.direct.labels import (
    centred_histogram_contrast,
    debiased,
    histogram_contrast,
    usable_clusters,
)

__all__ = [
    "DirectEstimate",
    "centred_histogram_contrast",
    "debiased",
    "histogram_contrast",
    "usable_clusters",
]
