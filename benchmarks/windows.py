"""Joins and counts in windows of time, compared with Spark's own plans on the same data.

    python -m benchmarks.windows

An interval join of two streams with a million live rows, an inequality join in a window (which Spark cannot
run), and a count per minute and key.  Then the interval join again with 100 thousand and 5 million live rows
and the same micro-batches, and over 20 windows' worth of time.  Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import millpond
from benchmarks.streams import open_session, start_query, workspace
from benchmarks.tables import print_table

HOUR = 3_600_000_000
SCHEMAS = {"ORDERS": "ID BIGINT, K INT, TS TIMESTAMP", "PAYMENTS": "ID BIGINT, AMOUNT INT, TS TIMESTAMP"}
INTERVAL = (
    "SELECT O.ID, AMOUNT FROM ORDERS O, PAYMENTS P "
    "WHERE O.ID = P.ID AND P.TS BETWEEN O.TS AND O.TS + INTERVAL 1 HOUR"
)
INEQUALITY = (
    "SELECT O.ID, P.ID AS PAID, AMOUNT FROM ORDERS O, PAYMENTS P "
    "WHERE O.K > AMOUNT + 9900 AND P.TS BETWEEN O.TS AND O.TS + INTERVAL 5 SECONDS"
)
COUNT = "SELECT window(TS, '1 minute') AS W, K, COUNT(*) AS N FROM ORDERS GROUP BY window(TS, '1 minute'), K"
KEYS = 10_000
WARM_UP = 4


@dataclass(frozen=True)
class Size:
    """How many rows of each stream are in an hour and in a micro-batch, and how many micro-batches follow."""

    live: int
    batch: int
    batches: int


@dataclass
class Measured:
    """The micro-batches of a run.

    For each: its seconds, the rows of the state, the bytes that Spark reports for the state store, the bytes
    written to it, and the resident bytes of the Python workers.  ``processor_seconds`` are those of Spark and
    its workers for a micro-batch; they depend less on what else the machine does.
    """

    seconds: list[float] = field(default_factory=list)
    state_rows: list[int] = field(default_factory=list)
    store_bytes: list[int] = field(default_factory=list)
    written_bytes: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    processor_seconds: float = 0.0

    @property
    def batch(self) -> float:
        """The median time of a micro-batch."""
        return median(self.seconds[min(WARM_UP, len(self.seconds) - 1) :])


# --- streams --------------------------------------------------------------------------------------------


def write_streams(folder: Path, size: Size) -> None:
    """Write two streams in the order of time.

    The first file of ORDERS fills the window.  Every payment is for an order of the last hour.
    """
    gap = HOUR / size.live
    generator = np.random.default_rng(size.live)
    for number in range(size.batches + 1):
        first = 0 if number == 0 else size.live + (number - 1) * size.batch
        ids = np.arange(first, size.live + number * size.batch)
        paid = ids[-size.batch :]
        age = generator.integers(0, np.minimum(size.live, paid + 1))
        key = (ids * 7919 % KEYS).astype(np.int32)
        amount = generator.integers(0, KEYS, len(paid)).astype(np.int32)
        _write(folder / "ORDERS", number, ids * gap, {"ID": ids, "K": key})
        _write(folder / "PAYMENTS", number, paid * gap + 1, {"ID": paid - age, "AMOUNT": amount})


def _write(folder: Path, number: int, times: NDArray[Any], columns: Mapping[str, NDArray[Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number:05}.parquet"
    moments = pa.array(times.astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({**columns, "TS": moments}), file)
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in the order of their times


def open_streams(spark: SparkSession, folder: Path) -> None:
    """Open the streams as views with a watermark, one file of each per micro-batch."""
    for name, schema in SCHEMAS.items():
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        frame.withWatermark("TS", "0 seconds").createOrReplaceTempView(name)


# --- measuring ------------------------------------------------------------------------------------------


def measure(frame: DataFrame, checkpoint: Path, slowest: float | None = None) -> Measured:
    """Run a query on all its input, or until its micro-batches have taken too long in all."""
    query = start_query(frame, checkpoint)
    memory: dict[int, int] = {}
    spent: dict[int, float] = {}
    while not query.awaitTermination(1):
        known = query.lastProgress
        if known is not None and known.batchId not in memory:
            memory[known.batchId] = read_worker_memory()
            spent[known.batchId] = read_processor_seconds()
        if slowest is not None and sum(_read(query, {}).seconds) > slowest:
            query.stop()
    measured = _read(query, memory)
    later = [number for number in spent if number >= min(WARM_UP, len(spent) - 2)]
    if len(later) > 1:
        first, last = later[0], later[-1]
        measured.processor_seconds = (spent[last] - spent[first]) / (last - first)
    return measured


def _read(query: StreamingQuery, memory: dict[int, int]) -> Measured:
    out = Measured()
    for progress in query.recentProgress:
        if "addBatch" not in progress.durationMs or not progress.numInputRows:
            continue
        out.seconds.append(progress.durationMs["triggerExecution"] / 1000)
        observed = progress.observedMetrics.get("millpond")
        entries = observed.asDict().get("state_entries") if observed is not None else None
        own = progress.stateOperators
        out.state_rows.append(int(entries or sum(s.numRowsTotal for s in own)))
        out.store_bytes.append(sum(s.memoryUsedBytes for s in own))
        out.written_bytes.append(sum(s.customMetrics.get("rocksdbTotalBytesWritten", 0) for s in own))
        out.memory.append(memory.get(progress.batchId, 0))
    return out


def read_processor_seconds() -> float:
    """The processor time of Spark and its workers, also of workers that have ended."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in read_processes().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def read_worker_memory() -> int:
    """The resident bytes of Spark's Python workers."""
    total = 0
    for process in read_processes():
        with suppress(OSError):
            entry = Path("/proc", str(process))
            if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                total += int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def read_processes() -> dict[int, list[str]]:
    """What Linux says of the processes that this one has started, and of those that they have."""
    every: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                every[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
    ours = found = {os.getpid()}
    while found:
        found = {process for process, fields in every.items() if int(fields[1]) in found}
        ours = ours | found
    return {process: every[process] for process in ours - {os.getpid()}}


# --- tables ---------------------------------------------------------------------------------------------


class Report:
    """The rows of the table, and the targets that were missed."""

    HEAD = (
        "query",
        "by",
        "s per batch",
        "rows/s",
        "processor s per batch",
        "state rows",
        "state store MB",
        "written MB per batch",
    )

    def __init__(self) -> None:
        self.missed: list[str] = []
        self.rows: list[tuple[object, ...]] = []

    def add(self, what: str, who: str, rows: int, measured: Measured) -> None:
        """Add a run with so many ``rows`` in a micro-batch."""
        self.rows.append(
            (
                what,
                who,
                f"{measured.batch:.2f}",
                f"{rows / measured.batch:,.0f}",
                f"{measured.processor_seconds:.2f}",
                f"{measured.state_rows[-1]:,}",
                f"{median(measured.store_bytes) / 1e6:.1f}",
                f"{median(measured.written_bytes[1:]) / 1e6:.2f}",
            )
        )
        print(f"  {self.rows[-1]}", flush=True)

    def require(self, target: str, reached: bool) -> None:
        if not reached:
            self.missed.append(target)


def compare_interval_joins(spark: SparkSession, folder: Path, report: Report, size: Size) -> None:
    """The interval join, by Millpond and by Spark."""
    what, rows = f"interval join, {size.live:,} live rows", 2 * size.batch
    mine = measure(millpond.sql(spark, INTERVAL), folder / "interval")
    report.add(what, "Millpond", rows, mine)
    own = measure(spark.sql(INTERVAL), folder / "interval-spark", slowest=300)
    report.add(what, "Spark", rows, own)
    report.require("5 times Spark's interval join", 5 * mine.batch <= own.batch)
    report.require("no more state than Spark's interval join", mine.state_rows[-1] <= own.state_rows[-1])


def run_inequality_join(spark: SparkSession, folder: Path, report: Report, size: Size) -> None:
    """The inequality join, by Millpond; Spark must refuse it."""
    what = "inequality join, 5 s"
    report.add(
        what, "Millpond", 2 * size.batch, measure(millpond.sql(spark, INEQUALITY), folder / "inequality")
    )
    try:
        measure(spark.sql(INEQUALITY), folder / "inequality-spark")
    except StreamingQueryException:
        report.rows.append((what, "Spark", "refused", *[""] * 5))


def compare_counts(spark: SparkSession, folder: Path, report: Report, size: Size) -> None:
    """The count per minute and key, by Millpond and by Spark."""
    what = "count per minute and key"
    mine = measure(millpond.sql(spark, COUNT), folder / "count")
    report.add(what, "Millpond", size.batch, mine)
    own = measure(spark.sql(COUNT), folder / "count-spark")
    report.add(what, "Spark", size.batch, own)
    report.require("0.95 of Spark's window aggregation", mine.batch <= own.batch / 0.95)
    report.require("no more state than Spark's window aggregation", mine.state_rows[-1] <= own.state_rows[-1])


def compare_sizes(spark: SparkSession, folder: Path, report: Report, sizes: Sequence[Size]) -> None:
    """The interval join with the same micro-batches and match rate, but more live rows."""
    seconds = []
    for size in sizes:
        home = folder / str(size.live)
        write_streams(home, size)
        open_streams(spark, home)
        measured = measure(millpond.sql(spark, INTERVAL), home / "checkpoint")
        report.add(f"interval join, {size.live:,} live rows", "Millpond", 2 * size.batch, measured)
        seconds.append(measured.batch)
    report.require("50 times as many live rows in twice the time", seconds[-1] <= 2 * seconds[0])


def watch_memory(
    spark: SparkSession, folder: Path, report: Report, size: Size, windows: int
) -> list[tuple[object, ...]]:
    """The state and the memory of the workers over many windows of time."""
    per_window = size.live // size.batch
    write_streams(folder, replace(size, batches=windows * per_window))
    open_streams(spark, folder)
    measured = measure(millpond.sql(spark, INTERVAL), folder / "checkpoint")
    out: list[tuple[object, ...]] = []
    last = len(measured.seconds) - 2  # after the last micro-batch the workers have ended
    for number in sorted({1, 2, windows // 4, windows // 2, windows} - {0}):
        i = min(number * per_window, last)
        store, workers = measured.store_bytes[i] / 1e6, measured.memory[i] / 1e6
        out.append((number, f"{measured.state_rows[i]:,}", f"{store:.1f}", f"{workers:,.0f}"))
    early, late = measured.state_rows[per_window], measured.state_rows[-1]
    report.require("flat state", abs(late - early) <= 0.01 * early)
    half = len(measured.memory) // 2
    report.require("flat memory", max(measured.memory[half:]) <= 1.2 * max(measured.memory[:half]))
    return out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="windows", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=20, help="micro-batches of each measurement")
    parser.add_argument("--windows", type=int, default=20, help="windows' worth of time for the memory")
    parser.add_argument("--scale", type=int, default=1, help="divide all numbers of rows by this")
    options = parser.parse_args(argv)
    million, batch = 1_000_000 // options.scale, 100_000 // options.scale
    size = Size(million, batch, options.batches)
    report = Report()
    with workspace() as folder:
        spark = open_session()
        write_streams(folder / "streams", size)
        open_streams(spark, folder / "streams")
        for compare in (compare_interval_joins, run_inequality_join, compare_counts):
            compare(spark, folder, report, size)
        sizes = [replace(size, live=live) for live in (million // 10, 5 * million)]
        compare_sizes(spark, folder, report, sizes)
        memory = watch_memory(
            spark, folder / "memory", report, replace(size, live=5 * batch), options.windows
        )
        spark.stop()
    print_table(Report.HEAD, report.rows)
    print_table(["windows", "state rows", "state store MB", "workers MB"], memory)
    for target in report.missed:
        print(f"missed: {target}")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
