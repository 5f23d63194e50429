"""Throughput of queries with application time, of the executor alone and on Spark.

    python -m benchmarks.application_time

The executor runs on one core, on batches of rows in time order, every row with a timestamp of its own.  On
Spark, the table has the time of a micro-batch, compared with a bare scan of the same columns, and the state
after the first and the last million rows.  Exits with 1 if the state grows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import millpond
from benchmarks.streams import (
    build_answer,
    measure_batches,
    median_seconds,
    open_session,
    open_stream,
    workspace,
)
from benchmarks.tables import print_table
from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.execute import advance
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect

CATALOG = (
    "CREATE STREAMING TABLE S (A INT, I TIMESTAMP); CREATE STREAMING TABLE T (B INT, J TIMESTAMP); "
    "CREATE STREAMING TABLE U (C INT, K TIMESTAMP); "
)
CHAIN = "I > J AND J > K"
QUERIES = {
    "counted chain": f"SELECT COUNT(*), AVG(A) FROM S, T, U WHERE {CHAIN} AND A > B AND B BETWEEN 0 AND 9",
    "counted chain, joined by a key": (
        f"SELECT B, COUNT(*) FROM S, T, U WHERE {CHAIN} AND A = B AND B = C AND B BETWEEN 0 AND 99 GROUP BY B"
    ),
    "distinct chain": f"SELECT DISTINCT B FROM S, T, U WHERE {CHAIN} AND B BETWEEN 0 AND 9 AND C < B",
    "largest of a chain": f"SELECT MAX(A) FROM S, T, U WHERE {CHAIN} AND A > B AND B > C",
    "Pareto front of two requirements": "SELECT DISTINCT 1 FROM S, T, U WHERE K < J AND C < B AND B < A",
}
BATCH = 1_000_000  # rows of all streams together
BATCHES = 20


def make_rows(number: int, wide: int) -> dict[str, pa.Table]:
    """Make a batch of rows of all streams, in time order, a microsecond apart."""
    rng = np.random.default_rng(number)
    moments = np.arange(number * BATCH, (number + 1) * BATCH)
    owner = rng.integers(0, 3, BATCH)
    values = rng.integers(0, wide, BATCH).astype(np.int32)
    return {
        name: pa.table({"value": values[owner == i], "moment": moments[owner == i]})
        for i, name in enumerate("STU")
    }


def measure_executor(sql: str, batches: int = 3) -> tuple[float, int]:
    """Return the rows per second of the executor, and the entries that it keeps."""
    verdict = millpond.check(CATALOG + sql)
    assert not isinstance(verdict, list) and verdict.timed is not None
    program = compile_timed(verdict.timed, Dialect.DUCKDB)
    engine, spent = DuckDb(), 0.0
    kept: dict[str, pa.Table] = {}
    names = {"S": ("A", "I"), "T": ("B", "J"), "U": ("C", "K")}
    for number in range(batches):
        streams = make_rows(number, 1_000_000 if "distinct" not in sql.lower() else 1_000)
        began = time.perf_counter()
        inputs = {}
        for each in program.inputs:
            value, moment = names[each.stream]
            source = streams[each.stream].rename_columns([value, "micros"])
            texts = ", ".join(f"{text} AS {name}" for name, text in each.columns)
            inner = f"SELECT *, make_timestamp(micros) AS {moment} FROM source"
            taken = engine.query(f"SELECT {texts} FROM ({inner})", {"source": source})
            inputs[each.name] = engine.query(each.reduce, {"batch": taken}).cast(each.schema)
        kept = advance(engine, program, kept, inputs, {}, 0).state
        spent += time.perf_counter() - began
    return batches * BATCH / spent, sum(table.num_rows for table in kept.values())


def measure_on_spark(folder: Path) -> tuple[list[tuple[object, ...]], bool]:
    """Run chains of three streams on 20 million rows; return the table, and whether the state stays flat."""
    spark = open_session()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    columns = {"S": ("A", "I"), "T": ("B", "J"), "U": ("C", "K")}
    for number in range(BATCHES):
        for name, rows in make_rows(number, 1_000).items():
            value, moment = columns[name]
            (folder / name).mkdir(exist_ok=True)
            moments = rows.column("moment").cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
            pq.write_table(
                pa.table({value: rows.column("value"), moment: moments}),
                folder / name / f"{number:05}.parquet",
            )
    streams = {
        name: open_stream(spark, folder / name, name, f"{value} INT, {moment} TIMESTAMP", 1)
        for name, (value, moment) in columns.items()
    }
    scan = streams["S"].union(streams["T"]).union(streams["U"])
    measure_batches(scan, folder / "warm-up")
    bare = median_seconds(measure_batches(scan, folder / "scan"))
    table: list[tuple[object, ...]] = [
        ("bare scan", f"{bare:.2f}", f"{BATCH / bare / 1e6:.2f}", "1.00", "", "")
    ]
    flat = True
    for name in ("counted chain", "largest of a chain"):
        batches = measure_batches(build_answer(spark, QUERIES[name], 1), folder / name.replace(" ", "-"))
        seconds = median_seconds(batches)
        first, last = batches[1].state_entries, batches[-1].state_entries
        held = (batches[1].state_rows, batches[-1].state_rows)
        flat = flat and first == last and held[0] == held[1]
        rate = f"{BATCH / seconds / 1e6:.2f}"
        table.append((name, f"{seconds:.2f}", rate, f"{bare / seconds:.2f}", first, last))
        print(f"  {table[-1]}", flush=True)
    spark.stop()
    return table, flat


def main() -> int:
    alone = []
    for name, sql in QUERIES.items():
        rate, entries = measure_executor(sql)
        alone.append((name, f"`{sql}`", f"{rate / 1e3:,.0f}", entries))
        print(f"  {name}: {rate / 1e3:,.0f} k rows/s, {entries} entries", flush=True)
    with workspace() as folder:
        table, flat = measure_on_spark(folder)
    print_table(["", "query", "k rows/s, one core", "entries"], alone)
    head = ["on Spark", "s per batch", "M rows/s", "ratio to the scan", "entries 2 M", "entries 20 M"]
    print_table(head, table)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
