"""Models of releases: each is a function that takes a release and returns a ``pymc.Model``."""

from dpcausal_bayes.models.cluster_labels import cluster_labels
from dpcausal_bayes.models.priors import LabelPriors

__all__ = ["LabelPriors", "cluster_labels"]
