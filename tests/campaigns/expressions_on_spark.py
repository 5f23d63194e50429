"""Random expressions in every place of a query, run on Spark, compared with Spark's batch answer to the text.

    python -m tests.campaigns.expressions_on_spark --cases 40

The rows that ``millpond run --once`` has written (the latest revision of each group) must have the columns,
the types and the values of Spark's own answer on all rows.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.errors import MillpondError, RunError
from millpond.frontend.parse import parse
from millpond.frontend.select_items import unique_names
from millpond.query.types import arrow_type, find_type
from millpond.spark.options import RunOptions
from millpond.spark.run import run
from tests.support.expression_generate import COLUMNS, RELATION, random_query, random_rows
from tests.support.oracle import normalise

ROWS = 20
# Run first: arguments of aggregates over two tables, which are computed from the rows of the join.
KNOWN = (
    (
        "SELECT p.b % 2, MAX(p.m * r.v), SUM(p.b * COALESCE(r.v, 7)), SUM(length(p.s || r.w)) "
        "FROM P p LEFT JOIN R r ON p.a = r.k GROUP BY p.b % 2",
        1,
    ),
)
_KINDS = {"P": ("STREAMING ", COLUMNS), "Q": ("STREAMING ", COLUMNS), "R": ("", RELATION)}
CATALOG = "".join(
    f"CREATE {kind}TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns)}) USING parquet "
    f"OPTIONS (path '{name}'{', maxFilesPerTrigger 1' if kind else ''});\n"
    for name, (kind, columns) in _KINDS.items()
)


def write_rows(rng: random.Random, folder: Path) -> None:
    """The rows of all tables, in two files each."""
    relation = [{"k": k, "w": rng.choice("uvw"), "v": rng.randint(0, 3)} for k in range(5)]
    for name, (kind, columns) in _KINDS.items():
        rows: list[dict[str, Any]] = random_rows(rng, ROWS) if kind else relation
        schema = pa.schema([(c, arrow_type(t)) for c, t in ((c, find_type(t)) for c, t in columns) if t])
        (folder / name).mkdir()
        for i in range(2):
            part = rows[i * len(rows) // 2 : (i + 1) * len(rows) // 2]
            path = folder / name / f"{i}.parquet"
            pq.write_table(pa.Table.from_pylist(part, schema), path)
            os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))


def collect(rows: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(normalise(tuple(row)) for row in rows)


def read_output(spark: SparkSession, folder: Path, keys: int) -> tuple[DataFrame, list[tuple[Any, ...]]]:
    """The columns that were written, and the rows: the latest of each group if they are revised."""
    frame = spark.read.parquet(str(folder))
    extra = [c for c in ("_revision", "_retracted") if c in frame.columns]
    shown = frame.drop(*extra)
    rows = [row.asDict() for row in frame.collect()] if extra else []
    if not extra:
        return shown, [tuple(row) for row in shown.collect()]
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda r: r["_revision"]):
        latest[tuple(row[c] for c in shown.columns[:keys])] = row
    kept = [row for row in latest.values() if not row.get("_retracted")]
    return shown, [tuple(row[c] for c in shown.columns) for row in kept]


def examine(spark: SparkSession, sql: str, keys: int, rng: random.Random) -> str | None:
    """What is wrong with the rows that a run writes; None if they are Spark's own.

    A query that is not bounded gets a budget that holds all rows.
    """
    verdict = decide(parse(CATALOG + sql)[0])
    memory = None if verdict.outcome == BOUNDED else 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(rng, folder)
        for table in _KINDS:
            spark.read.parquet(str(folder / table)).createOrReplaceTempView(table)
        try:
            truth = spark.sql(sql)
            expected = collect(truth.collect())
        except PySparkException:
            return None
        try:
            options = RunOptions(str(folder / "out"), once=True, format="parquet", memory=memory)
            run(verdict, folder, options)
        except RunError as error:
            return f"the run fails, and Spark does not: {error}\n{sql}"
        if not expected:
            return None
        shown, rows = read_output(spark, folder / "out", keys)
        types = [[f.dataType.simpleString() for f in frame.schema.fields] for frame in (shown, truth)]
        if types[0] != types[1]:
            return f"types {types[0]}, {types[1]} expected\n{sql}"
        if shown.columns != unique_names(truth.columns):
            return f"columns {shown.columns}, {truth.columns} expected\n{sql}"
        found = collect(rows)
        if found != expected:
            return f"{found - expected} written, {expected - found} expected\n{sql}"
    return None


def main(argv: list[str] | None = None) -> int:
    from millpond.spark.session import make_session

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    spark = make_session("local[2]", 1)
    spark.sparkContext.setLogLevel("OFF")
    done, seed, started = Counter[str](), options.seed, time.monotonic()
    while done["run"] < options.cases:
        rng = random.Random(seed)
        sql, keys = KNOWN[seed] if seed < len(KNOWN) else random_query(rng)
        try:
            problem = examine(spark, sql, keys, rng)
            done["run"] += 1
        except MillpondError as error:
            done["refused"] += 1
            problem = f"refused: {error}\n{sql}"
        if problem:
            done["problems"] += 1
            print(f"seed {seed}: {problem}", flush=True)
        seed += 1
    print(f"{dict(done)} in {time.monotonic() - started:.0f} s")
    return 1 if done["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
