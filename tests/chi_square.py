"""A chi-square test that a correct sampler fails once in a thousand million runs."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-9


def assert_law(draws, law):
    """Compare integer draws with a noise law, or with the probabilities of 0, 1, ..."""
    if isinstance(law, np.ndarray):
        values = np.arange(len(law))
        expected = law * len(draws)
    else:
        reach = int(np.ceil(np.abs(draws).max()))
        values = np.arange(-reach, reach + 1)
        expected = np.exp(law.log_pmf(values)) * len(draws)
    low = int(values[0])
    seen = np.bincount(draws - low, minlength=len(values))
    # neighbouring values are joined until each bin expects 25; the tail beyond the reach joins too
    bins = np.floor(np.cumsum(expected) / 25 * (1 - 1e-12)).astype(int)
    bins = np.unique(bins, return_inverse=True)[1]
    seen, expected = np.bincount(bins, seen), np.bincount(bins, expected)
    if len(seen) > 1 and expected[-1] < 5:
        seen = np.append(seen[:-2], seen[-2:].sum())
        expected = np.append(expected[:-2], expected[-2:].sum())
    expected[-1] += len(draws) - expected.sum()
    if len(seen) == 1:
        return
    p = stats.chi2.sf(np.sum((seen - expected) ** 2 / expected), len(seen) - 1)
    assert p > FALSE_ALARM, f"p-value {p:.3g} in a chi-square of {len(seen)} bins"
