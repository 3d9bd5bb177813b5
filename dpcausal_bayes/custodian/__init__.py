"""The custodian's half: from the confidential table to a release, with a ledger of what it cost.

Nothing on the analyst's side imports this package.
"""

__all__: list[str] = []
