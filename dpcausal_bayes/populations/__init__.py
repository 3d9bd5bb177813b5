"""Populations whose causal effects are known, for studies of the method."""

from dpcausal_bayes.populations.labels import Population, binary_population, mixture_population

__all__ = ["Population", "binary_population", "mixture_population"]
