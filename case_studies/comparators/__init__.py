"""Methods that the package is compared with: one file each, one contract (`comparators.contract`).

They are case studies, not part of the installed package.
"""
