"""Bayesian causal inference from differentially private releases.

The analyst's half of the package: what a release is, models of it, and what they say about causal
effects. The custodian's half, which touches the confidential table, is imported by name::

    from dpcausal_bayes import custodian
"""

__version__ = "0.1.0"  # the only place: pyproject.toml reads it here

__all__: list[str] = []
