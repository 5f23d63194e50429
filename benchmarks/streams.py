"""Streams of Parquet files, and measuring queries on them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import millpond
from millpond.spark.answer import OBSERVED


@dataclass(frozen=True)
class Batch:
    """What Spark reported about a micro-batch."""

    rows: int
    seconds: float
    state_rows: int
    state_entries: int
    state_bytes: int


@contextmanager
def workspace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="millpond-benchmark-") as name:
        yield Path(name)


# A column and the range of its integers: from the first to below the second.
Values = tuple[str, int, int]


def write_stream(folder: Path, columns: Sequence[Values], rows: int, files: int, distinct: int) -> None:
    """Write files of random integers; only so many are ``distinct``, the others are hard links to these."""
    folder.mkdir(parents=True)
    for i in range(files):
        path = folder / f"{i:05}.parquet"
        if i < distinct:
            generator = np.random.default_rng([i, *folder.name.encode()])
            data = {
                name: generator.integers(low, high, rows, dtype=np.int64).astype(np.int32)
                for name, low, high in columns
            }
            pq.write_table(pa.table(data), path, row_group_size=1 << 20)
        else:
            os.link(folder / f"{i % distinct:05}.parquet", path)


def open_stream(spark: SparkSession, folder: Path, name: str, schema: str, files: int) -> DataFrame:
    """Open a stream as a view, with so many files per micro-batch."""
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))
    frame.createOrReplaceTempView(name)
    return frame


def start_query(frame: DataFrame, checkpoint: Path) -> StreamingQuery:
    writer = frame.writeStream.format("noop").outputMode("append")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def measure_batches(
    frame: DataFrame, checkpoint: Path, seconds: float | None = None, slowest: float | None = None
) -> list[Batch]:
    """Run a query on all its input, or until it takes too long in all or for a batch; return its batches."""
    query = start_query(frame, checkpoint)
    began = time.monotonic()
    while not query.awaitTermination(1):
        done = read_batches(query)
        late = seconds is not None and time.monotonic() - began > seconds
        slow = slowest is not None and len(done) > 1 and done[-1].seconds > slowest
        if late or slow:
            query.stop()
            break
    return read_batches(query)


def read_batches(query: StreamingQuery) -> list[Batch]:
    out = []
    for progress in query.recentProgress:
        if "addBatch" not in progress.durationMs:
            continue
        observed = progress.observedMetrics.get(OBSERVED)
        known = observed.asDict() if observed is not None else {}
        out.append(
            Batch(
                progress.numInputRows,
                progress.durationMs["triggerExecution"] / 1000,
                sum(s.numRowsTotal for s in progress.stateOperators),
                int(known.get("state_entries") or 0),
                int(known.get("state_bytes") or 0),
            )
        )
    return out


def median_seconds(batches: Sequence[Batch], warm_up: int = 2) -> float:
    """Return the median time of a batch, without the first ones."""
    return median(b.seconds for b in batches[min(warm_up, len(batches) - 1) :])


def open_session(cores: int | None = None) -> SparkSession:
    from millpond.spark.session import make_session

    spark = make_session(f"local[{cores or '*'}]")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    return spark


def build_answer(
    spark: SparkSession, sql: str, partitions: int, memory: int | None = None, policy: str = "auto"
) -> DataFrame:
    """Build a query with Millpond, its state in so many partitions; on a budget if ``memory`` is given."""
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return millpond.sql(spark, sql, memory=memory, policy=policy)
