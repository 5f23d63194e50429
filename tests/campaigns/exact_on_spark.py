"""Random bounded queries on Spark, compared with DuckDB after every micro-batch.

    python -m tests.campaigns.exact_on_spark --cases 60

Random streams are divided into random batches, one file for each stream and batch, and read one file per
micro-batch. After each, the emitted rows (the latest of each group) must be DuckDB's answer on all rows so
far.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.frontend.parse import parse
from millpond.query.model import Query
from millpond.query.trees import is_aggregate
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.spark.admission import Allowance
from millpond.spark.answer import RETRACTED, REVISION
from millpond.spark.engines import choose_engine
from millpond.spark.job import Job
from millpond.spark.sources.opened import OpenSource
from millpond.spark.sources.schema import spark_schema
from tests.campaigns.exact_engine import random_batches, rows_after_batches
from tests.support.generate import Case, RichCase, Row, random_case, random_rich_case, random_rows
from tests.support.local import arrow_table
from tests.support.oracle import answers, normalise

ROWS = 24


class Collected:
    """A foreachBatch sink that keeps the answer after every batch, and the size of the state."""

    def __init__(self, query: Query) -> None:
        self.columns = query.columns
        self.select = query.selects[0]
        self.grouped = is_aggregate(self.select) and len(query.selects) == 1 and not query.terms[0].distinct
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.answers: list[Counter[tuple[Any, ...]]] = []
        self.entries: list[int] = []

    def __call__(self, frame: DataFrame, batch: int) -> None:
        del batch
        entries = 0
        for row in frame.collect():
            if row[KIND] == RowKind.STATE:
                entries += row[NOTE]["entries"]
            if row[KIND] != RowKind.RESULT:
                continue
            values = tuple(row[: len(self.columns)])
            retracted = RETRACTED in frame.columns and row[RETRACTED]
            if self.grouped and REVISION in frame.columns:
                key = values[: len(self.select.group_by or ())]
                self.groups.pop(key, None)
                if not retracted:
                    self.groups[key] = values
            else:
                self.rows[values] += -1 if retracted else 1
        answer = +self.rows + Counter(self.groups.values())
        self.answers.append(Counter({normalise(r): n for r, n in answer.items()}))
        self.entries.append(entries)


def write_batches(folder: Path, query: Query, batches: Sequence[Sequence[tuple[str, Row]]]) -> None:
    """Write one file for each stream and batch, also empty ones, with modification times in this order."""
    for name, table in query.tables.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, batch in enumerate(batches):
            path = folder / name / f"{i:05}.parquet"
            pq.write_table(arrow_table(table, [row for stream, row in batch if stream == name]), path)
            os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))


def run_query(spark: SparkSession, verdict: Verdict, folder: Path) -> Collected:
    query = verdict.query
    assert verdict.plan is not None
    sources = {
        name: OpenSource(
            spark.readStream.schema(spark_schema(table))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / name)),
            False,
        )
        for name, table in query.tables.items()
    }
    collected = Collected(query)
    job = Job(spark, verdict, Allowance(), sources)
    writer = choose_engine(job).build(job).frame.writeStream.foreachBatch(collected)
    running = (
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )
    running.awaitTermination()
    return collected


def examine(
    spark: SparkSession, seed: int, case: Case | RichCase, verdict: Verdict, rng: random.Random
) -> str | None:
    """Return what is wrong with the answers to a bounded query, or None."""
    batches = random_batches(rng, random_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1])))
    truth = answers(case.sql, case.catalog, rows_after_batches(case, batches))
    with tempfile.TemporaryDirectory() as name:
        write_batches(Path(name), verdict.query, batches)
        found = run_query(spark, verdict, Path(name))
    if len(found.answers) != len(truth):
        return f"seed {seed}: {len(found.answers)} batches of {len(truth)}\n{case.sql}"
    for i, (mine, theirs) in enumerate(zip(found.answers, truth, strict=True)):
        if mine != theirs:
            return f"seed {seed}, batch {i}: {mine} emitted, {theirs} expected\n{case.sql}"
    assert verdict.state.entries is not None
    if max(found.entries) > verdict.state.entries:
        return f"seed {seed}: {max(found.entries)} entries, {verdict.state.entries} promised\n{case.sql}"
    return None


def bounded_case(seed: int) -> tuple[Case | RichCase, Verdict, random.Random] | None:
    """A random query of the seed if it is bounded: plain integers for even seeds, anything for odd ones."""
    rng = random.Random(seed)
    case = random_rich_case(rng) if seed % 2 else random_case(rng)
    verdict = decide(parse(case.sql)[0])
    return (case, verdict, rng) if verdict.outcome == BOUNDED else None


def main(argv: list[str] | None = None) -> int:
    from millpond.spark.session import make_session

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    spark = make_session("local[2]", 1)
    done, problems, seed, started = 0, 0, options.seed, time.monotonic()
    while done < options.cases:
        found = bounded_case(seed)
        if found is not None:
            case, verdict, rng = found
            problem = examine(spark, seed, case, verdict, rng)
            done += 1
            problems += problem is not None
            if problem:
                print(problem, flush=True)
        seed += 1
    print(f"{done} bounded queries on Spark in {time.monotonic() - started:.0f} s: {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
