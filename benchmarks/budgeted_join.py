"""An unbounded join on a budget: throughput and state, compared with a bare scan and with Spark's own join.

    python -m benchmarks.budgeted_join [--files 50] [--memory 100000]

Keys are uniform, or skewed so that a tenth of them has nine tenths of the tuples.  Everything is measured in
one run; compare the ratios.  Exits with 1 if more tuples are kept than the budget allows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.streams import (
    build_answer,
    measure_batches,
    median_seconds,
    open_session,
    open_stream,
    workspace,
)
from benchmarks.tables import print_table

FILE = 500_000  # rows per stream and micro-batch
KEYS = 5_000_000
SCHEMA = "K INT, V INT"
SQL = "SELECT R.K, R.V, S.V AS W FROM R, S WHERE R.K = S.K"


def write_keys(folder: Path, files: int, skewed: bool) -> None:
    """Write files of random keys."""
    folder.mkdir(parents=True)
    for number in range(files):
        rng = np.random.default_rng([number, *folder.name.encode()])
        keys = rng.integers(0, KEYS, FILE)
        if skewed:
            keys = np.where(rng.random(FILE) < 0.9, keys // 10, keys)
        columns = {"K": keys.astype(np.int32), "V": rng.integers(0, 1000, FILE).astype(np.int32)}
        pq.write_table(pa.table(columns), folder / f"{number:05}.parquet")


def measure(
    spark: SparkSession, folder: Path, kind: str, memory: int
) -> tuple[list[tuple[object, ...]], int]:
    streams = {name: open_stream(spark, folder / name, name, SCHEMA, 1) for name in "RS"}
    scan = streams["R"].union(streams["S"])
    measure_batches(scan, folder / "warm-up")
    bare = median_seconds(measure_batches(scan, folder / "scan"))
    rows = 2 * FILE
    out: list[tuple[object, ...]] = [(kind, "bare scan", f"{rows / bare / 1e3:,.0f}", "1.00", "", "", "")]
    most = 0

    def add_row(what: str, seconds: float, kept: tuple[int, int], size: int) -> None:
        speed = (f"{rows / seconds / 1e3:,.0f}", f"{bare / seconds:.2f}")
        out.append((kind, what, *speed, *(f"{number:,}" for number in kept), f"{size / 1e6:.1f}"))
        print(f"  {what}: {seconds:.2f} s per batch", flush=True)

    cores = spark.sparkContext.defaultParallelism
    for policy in ("auto", "lru", "rand"):
        batches = measure_batches(build_answer(spark, SQL, cores, memory, policy), folder / policy)
        most = max(most, *(batch.state_entries for batch in batches))
        kept = (batches[0].state_entries, batches[-1].state_entries)
        add_row(f"{policy}, {memory:,} tuples", median_seconds(batches), kept, batches[-1].state_bytes)
    joined = streams["R"].join(streams["S"], "K")
    own = measure_batches(joined, folder / "own", seconds=90, slowest=10 * bare)
    for number in (0, len(own) - 1):
        kept = (own[0].state_rows, own[number].state_rows)
        add_row(f"Spark's own join, batch {number + 1}", own[number].seconds, kept, 0)
    return out, most


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=50, help="batches of a million rows")
    parser.add_argument("--memory", type=int, default=100_000)
    options = parser.parse_args()
    spark = open_session()
    table, most = [], 0
    for kind in ("uniform", "skewed"):
        with workspace() as folder:
            for name in "RS":
                write_keys(folder / name, options.files, kind == "skewed")
            rows, held = measure(spark, folder, kind, options.memory)
            table += rows
            most = max(most, held)
    spark.stop()
    head = ["keys", "what", "k rows/s", "ratio to the scan", "kept at first", "kept at last", "MB of state"]
    print_table(head, table)
    return 1 if most > options.memory else 0


if __name__ == "__main__":
    sys.exit(main())
