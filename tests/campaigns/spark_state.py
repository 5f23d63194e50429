"""Run the PySpark programs of the corpus: is their state predicted right, and does the watch warn of it?

    python -m tests.campaigns.spark_state [--batches 30] [--rocksdb] [--only NAME…]

Every program runs for 30 micro-batches under ``millpond.watch``.  Its state grows if the rows or the bytes of
an operator are still rising in the last third of them.  That has to be what ``millpond.check`` predicts, and
there has to be a warning before batch 20 if it grows, and none if it does not.  The verdict has to be that of
the same query as SQL.  Exits with 1 otherwise.
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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

import millpond
from millpond.spark.plans.check import check_frame
from millpond.spark.watch import StateWarning, StateWatch, read_sample
from tests.fixtures.programs import PROGRAMS, Program, Tables
from tests.fixtures.programs.tables import write_streams

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # Batches are small, so compiling them takes longer than running them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE = "org.apache.spark.sql.execution.streaming.state"
GROWTH = 1.15  # the least ratio of the last third of the batches to the second
LATEST = 20  # the batch before which a warning has to come


@dataclass(frozen=True)
class Measured:
    """The state of a program after each batch: its rows and bytes, by operator."""

    rows: list[list[int]]
    bytes: list[list[float]]
    seconds: float
    refused: str | None = None

    @property
    def state(self) -> str | None:
        if self.refused is not None:
            return None
        rising = any(map(is_rising, self.rows)) or any(map(is_rising, self.bytes))
        return "grows" if rising else "flat"


def is_rising(series: Sequence[float]) -> bool:
    """Whether the largest and the smallest value of the last third clearly exceed those of the second third.

    A sketch rises until it is compressed, again and again, so that its largest value may rise for a while.

    >>> is_rising(range(30)), is_rising([3, 4, 5] * 2 + [3, 4, 6])
    (True, False)
    """
    third = len(series) // 3
    second, last = series[third : 2 * third], series[2 * third :]
    return all(pick(last, default=0) > GROWTH * pick(second, default=0) for pick in (max, min))


def run_program(frame: DataFrame, program: Program, batches: int) -> Measured:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as checkpoint:
        try:
            writer = frame.writeStream.format("noop").outputMode(program.mode)
            query = writer.queryName(program.name).option("checkpointLocation", checkpoint).start()
        except AnalysisException as error:
            return Measured([], [], 0, str(error).splitlines()[0])
        try:
            while query.isActive and len(_list_batches(query.recentProgress)) < batches:
                time.sleep(0.3)
            if (failure := query.exception()) is not None:
                raise failure
            progress = _list_batches(query.recentProgress)[:batches]
        finally:
            query.stop()
    operators = range(max((len(each.stateOperators) for each in progress), default=0))
    rows = [[each.stateOperators[i].numRowsTotal for each in progress] for i in operators]
    sizes = [[read_sample(each).sizes[i] for each in progress] for i in operators]
    return Measured(rows, sizes, time.monotonic() - began)


def _list_batches(progress: Sequence[StreamingQueryProgress]) -> list[StreamingQueryProgress]:
    """The reports of the batches; while a query waits for rows, it repeats the last one."""
    return list({each.batchId: each for each in progress}.values())


def open_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("state of programs")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def examine(
    spark: SparkSession, program: Program, folder: Path, batches: int, warnings: list[StateWarning]
) -> str:
    """A line of the table; it begins with ``ok`` if everything is as it should be."""
    frame = program.build(Tables(spark, folder))
    verdict = check_frame(frame, program.mode)
    measured = run_program(frame, program, batches)
    time.sleep(1)  # the last events of the query arrive after its end
    warned = [each.batch for each in warnings if each.name == program.name]
    expected_warnings = 1 if measured.state == "grows" else 0
    problems = []
    if measured.state != program.state:
        problems.append(f"expected {program.state}")
    if measured.state is not None and verdict.spark_state != measured.state:
        problems.append(f"predicted {verdict.spark_state}: {verdict.spark_reasons}")
    if len(warned) != expected_warnings or any(batch >= LATEST for batch in warned):
        problems.append(f"warned at {warned}")
    if program.text is not None:
        in_sql = millpond.check(program.text)
        assert isinstance(in_sql, millpond.Verdict)
        if in_sql.outcome != verdict.outcome:
            problems.append(f"{in_sql.outcome} as SQL, {verdict.outcome} as a DataFrame: {verdict.reasons}")
    elif verdict.outcome != program.outcome:
        problems.append(f"{verdict.outcome}, not {program.outcome}")
    return (
        f"{'WRONG' if problems else 'ok   '} {program.name:42} {verdict.outcome:12} "
        f"{measured.state or 'refused':7} {f'warned at {warned[0]}' if warned else '':12} "
        f"{measured.seconds:5.1f} s  {_summarise(measured)} {'; '.join(problems)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rocksdb", action="store_true", help="keep the state of all programs in RocksDB")
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    chosen = [PROGRAMS[name] for name in arguments.only or PROGRAMS]
    spark = open_session()
    warnings: list[StateWarning] = []
    watch = StateWatch(spark, warnings.append)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        write_streams(Path(folder), arguments.batches + 5)
        for program in chosen:
            in_rocksdb = program.rocksdb or arguments.rocksdb
            provider = "RocksDBStateStoreProvider" if in_rocksdb else "HDFSBackedStateStoreProvider"
            spark.conf.set(PROVIDER, f"{STATE}.{provider}")
            try:
                line = examine(spark, program, Path(folder), arguments.batches, warnings)
            except StreamingQueryException as error:
                line = f"FAILED {program.name}: {str(error).splitlines()[0]}"
            wrong += not line.startswith("ok")
            print(line, flush=True)
    watch.stop()
    print(f"{len(chosen)} programs, {wrong} wrong")
    return int(wrong > 0)


def _summarise(measured: Measured) -> str:
    if measured.refused is not None:
        return measured.refused[:80]
    pairs = zip(measured.rows, measured.bytes, strict=True)
    return "; ".join(f"{_pick(rows)} rows, {_pick(sizes)} bytes" for rows, sizes in pairs) or "no state"


def _pick(series: Sequence[float]) -> str:
    """The values after a third, two thirds and all of the batches."""
    return ">".join(f"{series[len(series) * part // 3 - 1]:.0f}" for part in (1, 2, 3)) if series else ""


if __name__ == "__main__":
    sys.exit(main())
