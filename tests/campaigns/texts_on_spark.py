"""Bounded queries of SQL files, run on Spark over random rows, compared with Spark's batch answer.

    python -m tests.campaigns.texts_on_spark 'queries/*.sql'

The files need no USING clause.  Strings and numbers of the text are among the values of the rows, so that
conditions hold for some of them.  The rows that are written must be those of Spark's own answer on all rows;
of a group that changes, its last revision.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.evaluate import compile_condition
from millpond.query.model import Column, Query, Table
from millpond.query.trees import is_aggregate
from millpond.query.types import INT, Domain, Family, find_type
from millpond.runtime.row_kinds import KIND, RowKind
from millpond.spark.admission import Allowance
from millpond.spark.answer import RETRACTED, REVISION, finish_rows
from millpond.spark.blocks import make_job
from millpond.spark.end_of_input import EndOfInput
from millpond.spark.engines import choose_engine
from millpond.spark.files import Files
from millpond.spark.job import Job
from millpond.spark.sources.derived import add_derived_columns
from millpond.spark.sources.derived_types import settle_types
from millpond.spark.sources.expressions import column_named
from millpond.spark.sources.opened import OpenSource
from millpond.spark.sources.schema import spark_schema, spark_type
from tests.campaigns.time_on_spark import run_to_end

STREAM_ROWS, RELATION_ROWS, FILES = 60, 6, 3
_START = datetime(2026, 3, 1, 10)


# --- rows ------------------------------------------------------------------------------------------------


class RowMaker:
    """Makes random rows of tables, with constants of the query's text among the values."""

    def __init__(self, rng: random.Random, text: str) -> None:
        self._rng = rng
        self._strings = [each for each in re.findall(r"'([^']{1,40})'", text) if each] or ["x"]
        # Window functions of rows with equal timestamps have several answers.
        self._steps = [1, 1, 5, 30, 240] if re.search(r"(?i)\bover\b", text) else [0, 1, 5, 30, 240]
        self._numbers = [float(each) for each in re.findall(r"\b\d+(?:\.\d+)?\b", text)][:40] or [1.0]

    def make_rows(self, table: Table) -> list[dict[str, Any]]:
        moment, rows = _START, []
        for _ in range(STREAM_ROWS if table.streaming else RELATION_ROWS):
            moment += timedelta(seconds=self._rng.choice(self._steps))
            row = {column.name: self._make_value(column, moment) for column in table.columns}
            if table.time is not None:
                row[table.time] = moment
            if all(compile_condition(check, {table.name: 0})((row,)) is not False for check in table.checks):
                rows.append(row)
        return rows

    def _make_value(self, column: Column, moment: datetime) -> Any:
        rng, type_ = self._rng, column.type
        if column.nullable and rng.random() < 0.05:
            return None
        match type_.family:
            case Family.BOOLEAN:
                return rng.random() < 0.5
            case Family.STRING:
                return rng.choice([*self._strings, "a", "b", "c", f"{rng.choice('ab')}{rng.randint(0, 3)}"])
            case Family.DATE:
                return date(2026, 3, 1) + timedelta(days=rng.randint(-3, 3))
            case Family.TIME:
                return moment + timedelta(seconds=rng.choice([-600, 0, 600]))
            case Family.NUMBER:
                near = rng.choice(self._numbers) + rng.choice([-1, 0, 0, 1])
                value = rng.choice([near, float(rng.randint(0, 5))])
                value = max(min(value, float(type_.high or 1e6)), float(type_.low or -1e6))
                if type_.domain is Domain.DENSE:
                    return value
                return Decimal(str(round(value, type_.scale or 0))) if type_.scale is not None else int(value)
            case Family.NESTED:
                return self._make_nested(spark_type(type_), moment)
            case _:
                return None

    def _make_nested(self, type_: DataType, moment: datetime) -> Any:
        """A value of a nested type: arrays and maps of up to three elements, each of which may be NULL."""
        rng = self._rng
        match type_:
            case ArrayType():
                return [self._make_nested(type_.elementType, moment) for _ in range(rng.randint(0, 3))]
            case MapType():
                keys = rng.sample("abcd", rng.randint(0, 3))  # a key is never NULL
                return [(key, self._make_nested(type_.valueType, moment)) for key in keys]
            case StructType():
                return {each.name: self._make_nested(each.dataType, moment) for each in type_}
            case _:
                return self._make_value(Column("element", find_type(type_.simpleString()) or INT), moment)


def write_tables(folder: Path, query: Query, maker: RowMaker) -> None:
    """Write the rows of each table, those of a stream to several files in their order."""
    for name, table in query.declared_tables.items():
        rows = maker.make_rows(table)
        schema = to_arrow_schema(spark_schema(table), timezone="UTC")
        (folder / name).mkdir()
        size = -(-len(rows) // FILES)
        for i in range(FILES):
            path = folder / name / f"{i}.parquet"
            pq.write_table(pa.Table.from_pylist(rows[i * size : (i + 1) * size], schema=schema), path)
            os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))


# --- answers -----------------------------------------------------------------------------------------------


def answer_in_batch(spark: SparkSession, query: Query, folder: Path) -> Counter[tuple[Any, ...]]:
    """Spark's own answer to the text, on all rows."""
    session = spark.newSession()
    for name, table in query.declared_tables.items():
        frame = session.read.schema(spark_schema(table)).parquet(str(folder / name))
        frame.createOrReplaceTempView(name)
    return Counter(_plain(row) for row in session.sql(query.text).collect())


def answer_in_stream(spark: SparkSession, verdict: Verdict, folder: Path) -> Counter[tuple[Any, ...]]:
    """The rows that a run writes, file by file, until the end of the input."""
    checkpoint, query = str(folder / "checkpoint"), verdict.query

    def open_table(table: Table, part: Query) -> OpenSource:
        reader = spark.readStream.option("maxFilesPerTrigger", 1) if table.streaming else spark.read
        frame: DataFrame = reader.schema(spark_schema(table)).parquet(str(folder / table.name))
        return add_derived_columns(OpenSource(frame, False), table, part)

    end = EndOfInput(Files(spark), checkpoint, query)
    job = make_job(Job(spark, verdict, Allowance(), {}, end.open(spark)), open_table)
    answer = finish_rows(spark, choose_engine(job).build(job), query)
    written: list[Row] = []

    def collect(frame: DataFrame, batch: int) -> None:
        del batch
        written.extend(
            frame.where(f"{KIND} = {int(RowKind.RESULT)}")
            .select(*map(column_named, answer.columns))
            .collect()
        )

    run_to_end(answer.frame, collect, end, checkpoint)
    return _apply_changes(query, written)


def _apply_changes(query: Query, written: list[Row]) -> Counter[tuple[Any, ...]]:
    """The last revision of each group, or the rows that are not taken back."""
    changes = [row.asDict() for row in written]
    if not changes or REVISION not in changes[0]:
        return Counter(_plain(row) for row in written)
    changes.sort(key=lambda change: change[REVISION])
    (select, *others) = query.selects
    is_grouped = is_aggregate(select) and not others  # a UNION takes back each row that changes
    windows = dict(query.windows)  # shown as one column each
    keys = [
        windows.get(position, item.name)
        for position, item in enumerate(select.items)
        if item.expression in (select.group_by or ())
    ]
    groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    counts: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        del change[REVISION]
        is_retracted = bool(change.pop(RETRACTED, False))
        values = tuple(map(_plain_value, change.values()))
        if is_grouped:
            key = tuple(_plain_value(change[name]) for name in keys)
            groups.pop(key, None)
            groups |= {} if is_retracted else {key: values}
        else:
            counts[values] += -1 if is_retracted else 1
    return Counter(groups.values()) if is_grouped else +counts


def _plain(row: Row) -> tuple[Any, ...]:
    return tuple(_plain_value(value) for value in row)


def _plain_value(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.9g}")
        case Row() | list() | tuple():
            return tuple(map(_plain_value, value))
        case dict():
            return tuple(sorted((key, _plain_value(each)) for key, each in value.items()))
        case _:
            return value


# --- the campaign ----------------------------------------------------------------------------------------


def examine(spark: SparkSession, text: str, seed: int) -> tuple[int, list[str]]:
    """The number of bounded queries of a text, and what is wrong with their answers."""
    problems, count = [], 0
    for query in parse(text):
        verdict = decide(settle_types(spark, query))
        if verdict.outcome != BOUNDED:
            continue
        count += 1
        with tempfile.TemporaryDirectory() as name:
            write_tables(Path(name), query, RowMaker(random.Random(seed), text))
            try:
                expected = answer_in_batch(spark, query, Path(name))
            except PySparkException as error:
                print(f"not in batch: {str(error).splitlines()[0][:150]}", file=sys.stderr)
                continue
            found = answer_in_stream(spark, verdict, Path(name))
        if found != expected:
            missing, extra = list((expected - found).items())[:3], list((found - expected).items())[:3]
            counts = f"{len(found)} rows for {len(expected)}"
            problems.append(f"{query.text}: {counts}; missing {missing}, extra {extra}")
    return count, problems


def main() -> int:
    from millpond.spark.session import make_session

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    spark = make_session("local[2]", 1)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    wrong, queries = 0, 0
    for file in sorted(path for pattern in given.files for path in glob(pattern)):
        try:
            count, problems = examine(spark, Path(file).read_text(), given.seed)
        except (MillpondError, PySparkException) as error:
            count, problems = 0, [str(error).splitlines()[0]]
        queries += count
        wrong += len(problems)
        for problem in problems:
            print(f"{file}: {problem}", flush=True)
    print(f"{queries} bounded queries, {wrong} problems")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
