"""Throughput of a bounded join, compared with a bare scan of the same columns and with Spark's own join.

    python -m benchmarks.throughput

Everything is measured in one run.  Compare the ratios; the seconds depend on the machine.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.streams import (
    Batch,
    build_answer,
    measure_batches,
    median_seconds,
    open_session,
    open_stream,
    workspace,
    write_stream,
)
from benchmarks.tables import print_table

KEYS = 1_000
FILE = 2_000_000
FILES = 40
# S and T have ten times as many keys as the query selects; in R, few rows have one of those keys.
COLUMNS = {
    "S": [("A", 0, 10 * KEYS), ("B", 0, 1_000_000)],
    "T": [("D", 0, 10 * KEYS), ("E", 0, 1_000_000)],
    "R": [("D", 0, 1_000_000 * KEYS), ("E", 0, 1_000_000)],
}
# The select list, the other stream, and the share of S that passes the filter.
JOINS = (("A", "R", 0.1), ("COUNT(*)", "T", 0.1), ("COUNT(*)", "T", 0.5), ("COUNT(*)", "T", 1.0))


def measure(spark: SparkSession, folder: Path, files: int) -> list[tuple[object, ...]]:
    """Return the rows of the table for micro-batches of so many files per stream."""
    rows = 2 * files * FILE
    streams = {
        name: open_stream(spark, folder / name, name, ", ".join(f"{c} INT" for c, _, _ in columns), files)
        for name, columns in COLUMNS.items()
    }
    scan = streams["S"].select("A").union(streams["T"].select("D"))
    measure_batches(scan, folder / f"warm-up-{files}")
    bare = median_seconds(measure_batches(scan, folder / f"scan-{files}"))
    out: list[tuple[object, ...]] = []

    def add_row(what: str, seconds: float) -> None:
        out.append(
            (f"{rows:,}", what, f"{seconds:.2f}", f"{rows / seconds / 1e6:.1f}", f"{bare / seconds:.2f}")
        )
        print(f"  {what}: {seconds:.2f} s per batch", flush=True)

    add_row("bare scan", bare)
    first = 0.0
    for number, (selected, other, share) in enumerate(JOINS):
        last = int(share * 10 * KEYS) - 1
        sql = f"SELECT {selected} FROM S, {other} WHERE A = D AND A BETWEEN 0 AND {last}"
        seconds = median_seconds(
            measure_batches(build_answer(spark, sql, 1), folder / f"join-{files}-{number}")
        )
        first = first or seconds
        add_row(f"`{sql}`, {share:.0%} of S kept", seconds)
    for number, batch in measure_spark_join(spark, streams, folder / f"own-{files}", 10 * first):
        add_row(
            f"Spark's own join of S and R, batch {number}, {batch.state_rows:,} rows of state", batch.seconds
        )
    return out


def measure_spark_join(
    spark: SparkSession, streams: dict[str, DataFrame], checkpoint: Path, slowest: float
) -> list[tuple[int, Batch]]:
    """Run Spark's own join until it is too slow; return its first, a middle and its last batch."""
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    left, right = streams["S"].where(f"A < {KEYS}"), streams["R"].where(f"D < {KEYS}")
    joined = left.join(right, left.A == right.D).select("A")
    batches = measure_batches(joined, checkpoint, seconds=120, slowest=slowest)
    chosen = sorted({0, len(batches) // 2, len(batches) - 1} & set(range(len(batches))))
    return [(at, batches[at]) for at in chosen]


def main() -> None:
    spark = open_session()
    with workspace() as folder:
        for name, columns in COLUMNS.items():
            write_stream(folder / name, columns, FILE, FILES, 4)
        table = [row for files in (1, 5) for row in measure(spark, folder, files)]
    spark.stop()
    print_table(["rows per batch", "query", "s per batch", "M rows/s", "ratio to the scan"], table)


if __name__ == "__main__":
    main()
