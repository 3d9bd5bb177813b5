"""The custodian's half: from the confidential table to a release, with a ledger of what it cost.

Nothing on the analyst's side imports this package.
"""

from dpcausal_bayes.custodian.labels import release_labels
from dpcausal_bayes.custodian.ledger import Ledger, LedgerError
from dpcausal_bayes.custodian.moments import release_moments
from dpcausal_bayes.custodian.plan import plan
from dpcausal_bayes.custodian.plans import Plan
from dpcausal_bayes.custodian.select import select_moments

__all__ = [
    "Ledger",
    "LedgerError",
    "Plan",
    "plan",
    "release_labels",
    "release_moments",
    "select_moments",
]
