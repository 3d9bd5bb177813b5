"""Time and memory of a moment release from a table larger than memory should have to hold.

Run by `make bench-custodian`. A parquet file of 100 million records is written in chunks, unless it
is there; then each engine makes one release of 5 x 4 x 3 joint strata and a bounded outcome from
it, in a process of its own, so that the peak is its own. Seconds are those of the release; the peak
is the whole process's, libraries included.

    python case_studies/custodian_benchmark.py [rows] [engine ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

OUTPUTS = Path(__file__).resolve().parents[1] / "outputs"
ROWS = 100_000_000
CHUNK = 2**22
ENGINES = ("polars", "duckdb", "dask")
REGIONS = ("north", "east", "south", "west", "abroad")


def write(path: Path, rows: int) -> None:
    """Write the table, a chunk at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    schema = pa.schema(
        [
            ("treat", pa.int8()),
            ("earnings", pa.float64()),
            ("region", pa.string()),
            ("age", pa.float64()),
            ("schooling", pa.int8()),
        ]
    )
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, schema) as writer:
        for first in range(0, rows, CHUNK):
            n = min(CHUNK, rows - first)
            region = pa.array(rng.integers(0, len(REGIONS), n, dtype=np.int8))
            columns = [
                rng.integers(0, 2, n, dtype=np.int8),
                rng.normal(15_000, 12_000, n),
                pa.DictionaryArray.from_arrays(region, pa.array(REGIONS)).cast(pa.string()),
                rng.integers(17, 57, n).astype(float),
                rng.integers(0, 3, n, dtype=np.int8),
            ]
            arrays = [pa.array(column) for column in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    part.rename(path)


def measure(path: Path, engine: str) -> dict[str, float]:
    """Make one release and look at the clock and the peak."""
    import resource
    import time

    import dpcausal_bayes as dpc
    from dpcausal_bayes import custodian

    schema = dpc.Schema(
        arm=dpc.Arm("treat", control=0, treated=1),
        outcome=dpc.Bounded("earnings", 0, 40_000),
        covariates=[
            dpc.Categories("region", REGIONS),
            dpc.Binned("age", [17, 25, 35, 45, 56]),
            dpc.Categories("schooling", [0, 1, 2]),
        ],
    )
    workload = dpc.CausalWorkload(schema, strata=["region", "age", "schooling"])
    ledger = custodian.Ledger(epsilon=1.0, delta=1e-9)
    start = time.perf_counter()
    table = scan(path, engine)
    release = custodian.release_moments(table, workload, epsilon=1.0, delta=1e-9, ledger=ledger)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": release.n, "seconds": seconds, "peak MB": peak}


def scan(path: Path, engine: str) -> object:
    """Open the file lazily."""
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(path)
    if engine == "duckdb":
        import duckdb

        return duckdb.read_parquet(str(path))
    if engine == "dask":
        import dask.dataframe as dd

        return dd.read_parquet(path, split_row_groups=True)
    raise SystemExit(f"engine is {engine!r}: it must be polars, duckdb or dask")


def main() -> None:
    """Write the table if need be, then print a row for each engine."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    path = OUTPUTS / f"custodian_benchmark_{rows}.parquet"
    # this process stays small, as a process that it starts would inherit its peak
    python = [sys.executable, __file__]
    OUTPUTS.mkdir(exist_ok=True)
    if not path.exists():
        subprocess.run([*python, "write", str(path), str(rows)], check=True)
    print(f"{'engine':8}{'rows':>14}{'seconds':>10}{'peak MB':>10}")
    for engine in sys.argv[2:] or ENGINES:
        done = subprocess.run(
            [*python, "measure", str(path), engine], check=True, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(done.stdout)
        print(
            f"{engine:8}{found['rows']:14,}{found['seconds']:10.1f}{found['peak MB']:10.0f}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(Path(sys.argv[2]), sys.argv[3])))
    else:
        main()
