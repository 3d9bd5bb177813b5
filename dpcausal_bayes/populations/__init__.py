"""Populations whose causal effects are known, for studies of the method."""

from dpcausal_bayes.populations.crossed import stratified_population
from dpcausal_bayes.populations.first_order import FirstOrderPopulation
from dpcausal_bayes.populations.labels import Population, binary_population, mixture_population
from dpcausal_bayes.populations.linear import LinearPopulation
from dpcausal_bayes.populations.strata import StratifiedPopulation
from dpcausal_bayes.populations.tables import table_contrast

__all__ = [
    "FirstOrderPopulation",
    "LinearPopulation",
    "Population",
    "StratifiedPopulation",
    "binary_population",
    "mixture_population",
    "stratified_population",
    "table_contrast",
]
