"""The race of ``millpond demo``: a bounded join by Millpond and by Spark, on the same input."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.spark.answer import OBSERVED
from millpond.spark.session import open_session
from millpond.spark.sql import answer_query

QUERY = "SELECT A FROM S, T WHERE A = D AND A > 10 AND D < 20"
_BATCHES = 12
_ROWS = 50_000  # of each stream in a batch
_KEYS = 5_000
_POLL = 0.1


@dataclass(frozen=True)
class RaceStep:
    """One micro-batch: rows read so far, rows kept, and the seconds it took."""

    rows: int
    kept: int
    seconds: float


@dataclass
class Race:
    """The batches of both joins so far."""

    ours: list[RaceStep] = field(default_factory=list)
    theirs: list[RaceStep] = field(default_factory=list)


def run_race() -> Iterator[Race]:
    """Run both joins, one after the other; yield the same race again after each batch."""
    so_far = Race()
    with tempfile.TemporaryDirectory(prefix="millpond-demo-") as name, open_session() as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        folder = Path(name)
        left, right = _write_stream(spark, folder / "S", "A"), _write_stream(spark, folder / "T", "D")
        left.createOrReplaceTempView("S")
        right.createOrReplaceTempView("T")
        yield so_far
        own = left.join(right, left.A == right.D).where("A > 10 AND D < 20").select("A")
        for frame, steps, place in (
            (answer_query(spark, QUERY), so_far.ours, "ours"),
            (own, so_far.theirs, "theirs"),
        ):
            for _ in _run_query(frame, steps, folder / place):
                yield so_far


def _write_stream(spark: SparkSession, folder: Path, column: str) -> DataFrame:
    """Write files of random integers, and read them as a stream, one file per micro-batch."""
    folder.mkdir()
    for i in range(_BATCHES):
        generator = np.random.default_rng([i, *column.encode()])
        path = folder / f"{i:02}.parquet"
        pq.write_table(pa.table({column: generator.integers(0, _KEYS, _ROWS).astype(np.int32)}), path)
        os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))
    return spark.readStream.schema(f"{column} INT").option("maxFilesPerTrigger", 1).parquet(str(folder))


def _run_query(frame: DataFrame, steps: list[RaceStep], checkpoint: Path) -> Iterator[None]:
    """Run a query to the end of its input, and append each batch to ``steps``."""
    writer = frame.writeStream.format("noop").outputMode("append")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    running = True
    while running:
        running = not query.awaitTermination(_POLL)  # type: ignore[arg-type]  # fractions of a second are fine
        progress = [p for p in query.recentProgress if "addBatch" in p.durationMs]
        for batch in progress[len(steps) :]:
            reported = batch.observedMetrics.get(OBSERVED)
            kept = (
                sum(s.numRowsTotal for s in batch.stateOperators)
                if reported is None
                else reported["state_entries"]
            )
            before = steps[-1].rows if steps else 0
            seconds = batch.durationMs["triggerExecution"] / 1000
            steps.append(RaceStep(before + batch.numInputRows, int(kept or 0), seconds))
            yield
