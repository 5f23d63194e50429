"""Random windows, sessions and deduplications on Spark's own operators, compared with DuckDB.

    python -m tests.campaigns.native_windows --cases 40

Rows arrive out of order, some of them late, in several files and in two runs on one checkpoint.  The output
of both runs must be DuckDB's answer on the rows that were not rejected, and a row must be rejected if and
only if its group had been closed before its micro-batch.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.frontend.parse import parse
from millpond.spark.admission import Allowance
from millpond.spark.job import Job
from millpond.spark.native_windows import NativeEngine
from millpond.spark.options import RunOptions
from millpond.spark.progress import Phase
from millpond.spark.run import run
from tests.campaigns import time_on_spark
from tests.support.native_generate import (
    COLUMNS,
    NAMES,
    NativeCase,
    random_native_case,
    random_native_rows,
)

ROWS = 40
Row = tuple[Any, ...]


def examine(spark: SparkSession, seed: int, files: int = 4) -> tuple[bool, str | None]:
    """Return whether the query of the seed runs on Spark's operators, and what is wrong with its answer."""
    rng = random.Random(seed)
    case, delay = random_native_case(rng), rng.choice([0, 2, 5])
    rows = random_native_rows(rng, ROWS, delay, nulls=rng.choice([0.0, 0.1]))
    cuts = sorted(rng.sample(range(1, ROWS), files - 1))
    batches = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, ROWS], strict=True)]
    runs = [batches[: files // 2], batches[files // 2 :]]
    ddl = f"CREATE STREAMING TABLE s ({COLUMNS}) USING json OPTIONS (path 's', maxFilesPerTrigger '1') "
    text = f"{ddl} TBLPROPERTIES ('watermark' = '{delay} seconds'); {case.sql}"
    [query] = parse(text)
    verdict = decide(query)
    if verdict.outcome != BOUNDED or not NativeEngine().accepts(Job(spark, verdict, Allowance(), {})):
        return False, None
    with tempfile.TemporaryDirectory() as name:
        folder, number = Path(name), 0
        (folder / "s").mkdir()
        for some in runs:
            for batch in some:
                write_file(folder / "s", number, batch)
                number += 1
            ended = run(verdict, folder, RunOptions(output=str(folder / "out"), once=True))
            if ended.phase is not Phase.DONE:  # a signal has stopped it, and the next run would continue it
                raise KeyboardInterrupt
        found = read_lines(folder / "out", "part-*")
        rejected = [json.loads(line["record"]) for line in read_lines(folder / "out" / "_rejected", "part-*")]
    late = find_late_rows(case, runs, delay)
    if Counter(tuple(each.values()) for each in rejected) != Counter(map(to_plain, late)):
        return True, f"seed {seed}: rejected {rejected}, expected {late}\n{text}"
    kept = Counter(rows) - Counter(late)
    truth = answer_by_duckdb(case.duckdb, list(kept.elements()))
    mine = Counter(tuple(each.values()) for each in found)
    if mine != truth:
        return True, f"seed {seed}: {mine - truth} too many, {truth - mine} missing\n{text}\n{case.duckdb}"
    return True, None


def write_file(folder: Path, number: int, rows: Sequence[Row]) -> None:
    lines = [json.dumps(dict(zip(NAMES, to_plain(row), strict=True))) for row in rows]
    file = folder / f"{number}.json"
    file.write_text("".join(f"{line}\n" for line in lines))
    os.utime(file, (1_700_000_000 + number,) * 2)


def read_lines(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for file in sorted(folder.glob(pattern)) for line in file.read_text().splitlines()
    ]


def to_plain(row: Sequence[Any]) -> Row:
    """A row as the JSON of the output has it."""
    return tuple(
        f"{v:%Y-%m-%dT%H:%M:%S}.{v.microsecond // 1000:03d}Z" if isinstance(v, datetime) else v for v in row
    )


def find_late_rows(case: NativeCase, runs: Sequence[Sequence[Sequence[Row]]], delay: int) -> list[Row]:
    """The rows whose group was closed before their batch.

    The watermark of a batch follows from the rows before it, and Spark compares with the one before that.  At
    the end of a run, it moves to the end of the last group.
    """
    late: list[Row] = []
    watermark = datetime(1970, 1, 1)
    for batches in runs:
        latest, before = None, watermark
        for batch in batches:
            ends = find_ends(case, batch)
            late += [row for row, end in ends if end is not None and end <= before]
            before = watermark
            times = [row[-1] for row in batch]
            latest = max([*times, *([] if latest is None else [latest])])
            watermark = max(watermark, latest - timedelta(seconds=delay))
        assert latest is not None
        # Spark reports the latest timestamp to the millisecond, and its watermark has no microseconds.
        [(_, last)] = find_ends(case, [(*[None] * 4, latest + timedelta(microseconds=999))], everything=True)
        assert last is not None
        closed = last + timedelta(seconds=case.gap or 0, microseconds=999)
        watermark = max(watermark, closed.replace(microsecond=closed.microsecond // 1000 * 1000))
    return late


def find_ends(
    case: NativeCase, rows: Sequence[Row], everything: bool = False
) -> list[tuple[Row, datetime | None]]:
    """The end of each row's group; None for a row that WHERE removes."""
    where = "TRUE" if everything else case.where
    sql = f"SELECT CASE WHEN {where} THEN {case.end} END FROM s ORDER BY number"
    with duckdb.connect() as connection:
        _load(connection, rows)
        return list(zip(rows, (end for (end,) in connection.execute(sql).fetchall()), strict=True))


def answer_by_duckdb(sql: str, rows: Sequence[Row]) -> Counter[Row]:
    with duckdb.connect() as connection:
        _load(connection, rows)
        return Counter(to_plain(row) for row in connection.execute(sql).fetchall())


def _load(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE s (k VARCHAR, g INT, v INT, b TINYINT, ts TIMESTAMP, number INT)")
    if rows:
        numbered = [(*row, number) for number, row in enumerate(rows)]
        connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?)", numbered)


if __name__ == "__main__":
    sys.exit(time_on_spark.main(None, examine, (__doc__ or "").splitlines()[0]))
