"""Run the PySpark programs of the corpus and see whether Spark's state grows.

    python -m tests.campaigns.spark_state [--batches 30] [--only NAME…]

Every program runs for 30 micro-batches.  Its state grows if the rows or the bytes of an operator are still
rising in the last third of them.  The table compares that with what is expected.  Exits with 1 if they
differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.fixtures.programs import PROGRAMS, Program, Tables
from tests.fixtures.programs.tables import write_streams

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE = "org.apache.spark.sql.execution.streaming.state"
GROWTH = 1.15  # the least ratio of the last third of the batches to the second
BYTES = "stateOnCurrentVersionSizeBytes"


@dataclass(frozen=True)
class Measured:
    """The state of a program after each batch: its rows and bytes, by operator."""

    rows: list[list[int]]
    bytes: list[list[int]]
    seconds: float
    refused: str | None = None

    @property
    def state(self) -> str | None:
        if self.refused is not None:
            return None
        return "grows" if any(map(is_rising, [*self.rows, *self.bytes])) else "flat"


def is_rising(series: Sequence[int]) -> bool:
    """Whether the largest value of the last third of a series clearly exceeds that of the second third."""
    third = len(series) // 3
    return max(series[2 * third :], default=0) > GROWTH * max(series[third : 2 * third], default=0)


def run_program(spark: SparkSession, program: Program, folder: Path, batches: int) -> Measured:
    provider = "RocksDBStateStoreProvider" if program.rocksdb else "HDFSBackedStateStoreProvider"
    spark.conf.set(PROVIDER, f"{STATE}.{provider}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as checkpoint:
        try:
            frame = program.build(Tables(spark, folder))
            writer = frame.writeStream.format("noop").outputMode(program.mode)
            query = writer.queryName(program.name).option("checkpointLocation", checkpoint).start()
        except AnalysisException as error:
            return Measured([], [], 0, str(error).splitlines()[0])
        try:
            while query.isActive and len(_list_batches(query.recentProgress)) < batches:
                time.sleep(0.1)
            if (failure := query.exception()) is not None:
                raise failure
            progress = _list_batches(query.recentProgress)[:batches]
        finally:
            query.stop()
    operators = range(max((len(each.stateOperators) for each in progress), default=0))
    rows = [[each.stateOperators[i].numRowsTotal for each in progress] for i in operators]
    sizes = [[_read_size(each, i) for each in progress] for i in operators]
    return Measured(rows, sizes, time.monotonic() - began)


def _list_batches(progress: Sequence[StreamingQueryProgress]) -> list[StreamingQueryProgress]:
    """The reports of the batches; while a query waits for rows, it repeats the last one."""
    return list({each.batchId: each for each in progress}.values())


def _read_size(progress: StreamingQueryProgress, operator: int) -> int:
    found = progress.stateOperators[operator]
    return int(found.customMetrics.get(BYTES, 0))


def open_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("state of programs")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    chosen = [PROGRAMS[name] for name in arguments.only or PROGRAMS]
    spark = open_session()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        write_streams(Path(folder), arguments.batches + 5)
        for program in chosen:
            try:
                measured = run_program(spark, program, Path(folder), arguments.batches)
            except StreamingQueryException as error:
                print(f"{program.name}: FAILED {str(error).splitlines()[0]}", flush=True)
                wrong += 1
                continue
            good = measured.state == program.state
            wrong += not good
            print(
                f"{'ok   ' if good else 'WRONG'} {program.name:42} expected {program.state or 'refused':7} "
                f"measured {measured.state or 'refused':7} {measured.seconds:5.1f} s  {_summarise(measured)}",
                flush=True,
            )
    print(f"{len(chosen)} programs, {wrong} wrong")
    return int(wrong > 0)


def _summarise(measured: Measured) -> str:
    if measured.refused is not None:
        return measured.refused[:80]
    pairs = zip(measured.rows, measured.bytes, strict=True)
    return "; ".join(f"{_pick(rows)} rows, {_pick(sizes)} bytes" for rows, sizes in pairs) or "no state"


def _pick(series: Sequence[int]) -> str:
    """The values after a third, two thirds and all of the batches."""
    return ">".join(str(series[len(series) * part // 3 - 1]) for part in (1, 2, 3)) if series else ""


if __name__ == "__main__":
    sys.exit(main())
