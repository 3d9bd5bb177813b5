"""Millions of records: seconds and memory, each library in a process of its own."""

import json
import subprocess
import sys

import pytest

from layout import ROOT

UNITS = 10_000_000
MOST_SECONDS = 10
MOST_MEGABYTES = 2000

MEASURE = """
import json, resource, sys, time
import numpy as np
from dpcausal_bayes.custodian import Ledger, release_labels
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.schema import Schema

library, clusters, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(0)
names = [f"district {i}" for i in range(119)] if clusters == "text" else list(range(100, 219))
columns = {
    "t": rng.integers(0, 2, n), "y": rng.integers(0, 12, n), "c": rng.integers(100, 219, n)
}
if library == "pandas":
    import pandas as pd
    table = pd.DataFrame(columns)
    if clusters == "text":
        table["c"] = pd.Series(np.array(names, object)[columns["c"] - 100], dtype="str")
else:
    import polars as pl
    table = pl.DataFrame(columns)
    if clusters == "text":
        table = table.with_columns(pl.col("c").replace_strict(list(range(100, 219)), names))
del columns
schema = Schema(
    arm=Arm("t", control=0, treated=1), outcome=Levels("y", list(range(12))),
    cluster=Categories("c", names),
)
mechanism = ClusterDP.calibrated(schema, epsilon=1.0)

def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before, start = megabytes(), time.perf_counter()
release = release_labels(table, schema, mechanism, ledger=Ledger(epsilon=1.0))
seconds = time.perf_counter() - start
assert release.n == n
print(json.dumps({"seconds": seconds, "table alone": before, "peak megabytes": megabytes()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("clusters", ["numbers", "text"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_ten_million_labels(library, clusters):
    """The peak is the whole process's, the confidential table and all libraries included."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, library, clusters, str(UNITS)],
        check=True,
        capture_output=True,
        text=True,
    )
    measured = json.loads(done.stdout)
    print(library, clusters, {name: round(value, 2) for name, value in measured.items()})
    assert measured["seconds"] <= MOST_SECONDS
    assert measured["peak megabytes"] <= MOST_MEGABYTES


@pytest.mark.slow
def test_moments_of_a_hundred_million_records():
    """The peak does not hold the table, whose file alone is a gigabyte."""
    done = subprocess.run(
        [sys.executable, ROOT / "case_studies" / "custodian_benchmark.py", "100000000"],
        check=True,
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    _, *lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["polars", "duckdb", "dask"]
    for line in lines:
        rows, seconds, megabytes = (float(part.replace(",", "")) for part in line.split()[1:])
        assert rows == 100_000_000
        assert seconds <= 60
        assert megabytes <= 1_500
