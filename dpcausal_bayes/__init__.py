"""Bayesian causal inference from differentially private releases.

The analyst's half of the package: what a release is, models of it, and what they say about causal
effects. The custodian's half, which touches the confidential table, is imported by name::

    from dpcausal_bayes import custodian
"""

from dpcausal_bayes import direct, models, populations
from dpcausal_bayes.accounting import PrivacyLoss
from dpcausal_bayes.balance import balance, love_plot
from dpcausal_bayes.calibration import calibrate, replicate
from dpcausal_bayes.calibration_results import Calibration
from dpcausal_bayes.columns import Arm, Binned, Bounded, Categories, Levels
from dpcausal_bayes.combining import PooledEstimate, pool
from dpcausal_bayes.designs import GramDesign, LabelDesign, MaxentDesign, MomentDesign
from dpcausal_bayes.estimands import ATC, ATE, ATT, CATE, CATESlope, estimate
from dpcausal_bayes.fitter import Fitter
from dpcausal_bayes.fitting import fit, log_densities
from dpcausal_bayes.gaussian_mechanism import GaussianMechanism
from dpcausal_bayes.gram_workloads import GramWorkload
from dpcausal_bayes.imputation import impute, imputed_tables
from dpcausal_bayes.laplace_mechanism import LaplaceMechanism, least_noise
from dpcausal_bayes.laws import Gaussian, Laplace
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.moment_releases import MomentRelease
from dpcausal_bayes.overlap import overlap
from dpcausal_bayes.release_files import ReleaseError
from dpcausal_bayes.releases import LabelRelease, load_release
from dpcausal_bayes.report import Report, report
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.simulate import simulate_moments, simulate_release
from dpcausal_bayes.synthesis import synthesize
from dpcausal_bayes.workloads import CausalWorkload

__version__ = "0.1.0"  # the only place: pyproject.toml reads it here

__all__ = [
    "ATC",
    "ATE",
    "ATT",
    "CATE",
    "Arm",
    "Binned",
    "Bounded",
    "CATESlope",
    "Calibration",
    "Categories",
    "CausalWorkload",
    "ClusterDP",
    "Fitter",
    "Gaussian",
    "GaussianMechanism",
    "GramDesign",
    "GramWorkload",
    "LabelDesign",
    "LabelRelease",
    "Laplace",
    "LaplaceMechanism",
    "Levels",
    "MaxentDesign",
    "MomentDesign",
    "MomentRelease",
    "PooledEstimate",
    "PrivacyLoss",
    "ReleaseError",
    "Report",
    "Schema",
    "balance",
    "calibrate",
    "direct",
    "estimate",
    "fit",
    "impute",
    "imputed_tables",
    "least_noise",
    "load_release",
    "log_densities",
    "love_plot",
    "models",
    "overlap",
    "pool",
    "populations",
    "replicate",
    "report",
    "simulate_moments",
    "simulate_release",
    "synthesize",
]
