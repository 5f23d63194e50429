"""Random queries with application time on Spark, with rows out of order, compared with DuckDB.

    python -m tests.campaigns.time_on_spark --cases 40

Rows arrive late by up to a few seconds, as the watermarks of the streams allow; rows with equal timestamps
may be in different files.  After every micro-batch, the answer must be DuckDB's on all rows before the
watermark; after the end of the input, on all rows.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.frontend.parse import parse
from millpond.query.model import Query
from millpond.spark.admission import Allowance
from millpond.spark.end_of_input import EndOfInput
from millpond.spark.engines import choose_engine
from millpond.spark.files import Files
from millpond.spark.job import Job
from millpond.spark.sources.derived import add_derived_columns
from millpond.spark.sources.opened import OpenSource
from millpond.spark.sources.schema import spark_schema
from tests.campaigns.exact_engine import random_batches
from tests.campaigns.exact_on_spark import Collected
from tests.support.local import arrow_table
from tests.support.oracle import answers
from tests.support.time_generate import (
    TimeCase,
    TimeRow,
    add_watermarks,
    order_by_arrival,
    random_time_case,
    random_time_rows,
)

ROWS = 24
# Whether the query of a seed runs, and what is wrong with its answer.
Examine = Callable[[SparkSession, int], tuple[bool, str | None]]
Rows = Sequence[tuple[str, TimeRow]]


def write_files(folder: Path, query: Query, batches: Sequence[Rows]) -> None:
    """Write one file for each stream and batch, with modification times in this order; timestamps in UTC."""
    for name, table in query.tables.items():
        declared = replace(table, derived=())
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, batch in enumerate(batches):
            rows = arrow_table(declared, [row for stream, row in batch if stream == name])
            place = rows.schema.get_field_index(table.time or "")
            moments = rows.column(place).cast(pa.timestamp("us", "UTC"))
            path = folder / name / f"{i:05}.parquet"
            pq.write_table(rows.set_column(place, table.time, moments), path)
            os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))


def run_query(spark: SparkSession, verdict: Verdict, folder: Path, updates: bool = False) -> Collected:
    """Run the query on all files, one per stream and micro-batch, and then on the end of the input."""
    query = verdict.query
    assert verdict.timed is not None
    sources = {}
    for name, table in query.tables.items():
        reader = spark.readStream.schema(spark_schema(table)).option("maxFilesPerTrigger", 1)
        opened = OpenSource(reader.parquet(str(folder / name)), False)
        sources[name] = add_derived_columns(opened, table)
    checkpoint = str(folder / "checkpoint")
    end = EndOfInput(Files(spark), checkpoint, query)
    collected = Collected(query)
    job = Job(spark, verdict, Allowance(), sources, end.open(spark), updates)
    run_to_end(choose_engine(job).build(job).frame, collected, end, checkpoint)
    return collected


def run_to_end(
    frame: DataFrame, collect: Callable[[DataFrame, int], None], end: EndOfInput, checkpoint: str
) -> None:
    """Run a streaming query on the input that is there, and then on the end of the input."""
    for _ in range(2):
        writer = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
        running = writer.option("checkpointLocation", checkpoint).start()
        running.awaitTermination()
        for progress in running.recentProgress:
            end.follow(progress)
        end.announce()


def rows_before_watermark(
    case: TimeCase, batches: Sequence[Rows], seconds: int
) -> list[dict[str, list[TimeRow]]]:
    """After each batch, the rows before the watermark; at the end, all rows."""
    seen: list[tuple[str, TimeRow]] = []
    out = []
    for batch in batches:
        seen += batch
        latest: dict[str, Any] = {}
        for name, row in seen:
            moment = row[case.times[name]]
            latest[name] = max(latest.get(name, moment), moment)
        if len(latest) < len(case.catalog):
            past = []
        else:
            final = min(latest.values()) - timedelta(seconds=seconds)
            past = [(name, row) for name, row in seen if row[case.times[name]] < final]
        out.append({name: [row for s, row in past if s == name] for name in case.catalog})
    out.append({name: [row for s, row in seen if s == name] for name in case.catalog})
    return out


def examine(spark: SparkSession, seed: int) -> tuple[bool, str | None]:
    """Return whether the query of the seed runs on the timed engine, and what is wrong with its answers."""
    rng = random.Random(seed)
    case = random_time_case(rng)
    seconds = rng.choice([0, 2, 5])
    verdict = decide(add_watermarks(parse(case.sql)[0], seconds))
    if verdict.outcome != BOUNDED or verdict.timed is None:
        return False, None
    rows = list(random_time_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1])))
    batches = random_batches(rng, order_by_arrival(rng, case.times, rows, seconds))
    truth = answers(case.sql, case.catalog, rows_before_watermark(case, batches, seconds))
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), verdict.query, batches)
        found = run_query(spark, verdict, Path(name))
    if found.answers[-1] != truth[-1]:
        return True, f"seed {seed}, at the end: {found.answers[-1]} emitted, {truth[-1]} expected\n{case.sql}"
    ends = any(not isinstance(right, str) for _, _, right in case.time_atoms)
    for i, (mine, theirs) in enumerate(zip(found.answers, truth, strict=False)):
        if mine != theirs and not ends:  # the watermark does not wait for a stream that ends
            return True, f"seed {seed}, batch {i}: {mine} emitted, {theirs} expected\n{case.sql}"
    bound = verdict.state.entries
    if bound is not None and max(found.entries) > bound:
        return True, f"seed {seed}: {max(found.entries)} entries, {bound} promised\n{case.sql}"
    return True, None


def main(argv: list[str] | None = None, examine: Examine = examine, description: str | None = None) -> int:
    """Examine queries until so many have run."""
    from millpond.spark.session import make_session

    parser = argparse.ArgumentParser(description=description or (__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    spark = make_session("local[2]", 1)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    done, problems, seed, started = 0, 0, options.seed, time.monotonic()
    while done < options.cases:
        bounded, problem = examine(spark, seed)
        done += bounded
        problems += problem is not None
        if problem:
            print(problem, flush=True)
        seed += 1
    print(f"{done} queries on Spark in {time.monotonic() - started:.0f} s: {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
