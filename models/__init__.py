"""Models of releases: each is a function that takes a release and returns a ``pymc.Model``."""

from dpcausal_bayes.models.cluster_labels import cluster_labels
from dpcausal_bayes.models.gram_regression import gram_regression
from dpcausal_bayes.models.maxent_moments import maxent_moments
from dpcausal_bayes.models.priors import GramPriors, LabelPriors, MaxentPriors, MomentPriors
from dpcausal_bayes.models.stratified_moments import stratified_moments

__all__ = [
    "GramPriors",
    "LabelPriors",
    "MaxentPriors",
    "MomentPriors",
    "cluster_labels",
    "gram_regression",
    "maxent_moments",
    "stratified_moments",
]
