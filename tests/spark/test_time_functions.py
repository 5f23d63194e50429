"""Functions of a timestamp give on Spark, in DuckDB and in the reference evaluation what Spark SQL gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.frontend.parse import parse_query
from millpond.frontend.select_items import unique_names
from millpond.query.buckets import find_bucket
from millpond.query.evaluate import answer, compile_condition
from millpond.query.model import Column, Query, Table
from millpond.query.types import TIMESTAMP
from millpond.runtime.derive import derive_rows
from millpond.runtime.sql import Dialect, expression_sql
from millpond.spark.answer import infer_result_schema
from millpond.spark.sources.derived import add_derived_columns
from millpond.spark.sources.opened import OpenSource
from tests.support.time_functions import CALLS, COMPOSED, SLIDING, WINDOWS, random_timestamps

TABLE = Table("a", (Column("ts", TIMESTAMP),), True, time="ts")
SELECTS = (
    f"SELECT ts, {', '.join(CALLS)} FROM a",
    *(f"SELECT ts, {', '.join(COMPOSED[i::3])} FROM a" for i in range(3)),
    *(f"SELECT ts, window(ts, {each}) FROM a" for each in (*WINDOWS, *SLIDING)),
)


@pytest.fixture(params=["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> str:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", "UTC"))
    return str(request.param)


def open_rows(spark: SparkSession, timestamps: Sequence[datetime]) -> DataFrame:
    micros = [(round((each - datetime(1970, 1, 1)) / timedelta(microseconds=1)),) for each in timestamps]
    frame = spark.createDataFrame(micros, "micros BIGINT").select(F.timestamp_micros("micros").alias("ts"))
    frame.createOrReplaceTempView("a")
    return frame


def collect(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows; a window is two values, and timestamps are microseconds."""
    columns = []
    for index, field in enumerate(frame.schema.fields):
        column = F.col(f"c{index}")
        kind = field.dataType.simpleString()
        if kind.startswith("struct"):
            columns += [F.unix_micros(column["start"]), F.unix_micros(column["end"])]
        else:
            columns.append(F.unix_micros(column) if kind == "timestamp" else column)
    renamed = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    return Counter(tuple(row) for row in renamed.select(*columns).collect())


def select_derived(spark: SparkSession, query: Query, rows: DataFrame) -> DataFrame:
    source = add_derived_columns(OpenSource(rows, False), query.tables["a"])
    texts = [
        expression_sql(item.expression, lambda ref: Dialect.SPARK.name_of(ref.column), Dialect.SPARK)
        for item in query.selects[0].items
    ]
    return source.frame.select(*(F.expr(text).alias(f"c{i}") for i, text in enumerate(texts)))


def as_collected(value: Any) -> Any:
    is_time = isinstance(value, datetime)
    return round((value - datetime(1970, 1, 1)) / timedelta(microseconds=1)) if is_time else value


def test_derived_columns_are_what_spark_computes(spark: SparkSession, zone: str) -> None:
    timestamps = random_timestamps(random.Random(14), 200)
    rows = open_rows(spark, timestamps)
    for select in SELECTS:
        query = parse_query(select, {"a": TABLE}, zone)
        wanted = collect(spark.sql(select))
        assert collect(select_derived(spark, query, rows)) == wanted
        if zone == "UTC":
            local = answer(query, derive_rows(query, {"a": [{"ts": each} for each in timestamps]}))
            assert Counter({tuple(map(as_collected, row)): n for row, n in local.items()}) == wanted


def test_facts_hold_and_buckets_end(spark: SparkSession, zone: str) -> None:
    """Facts hold in every zone; a bucket has one end, and no row of it comes later."""
    rows = open_rows(spark, random_timestamps(random.Random(15), 500))
    plain = [(call,) for call in CALLS] + [
        ("year(ts)", "month(ts)"),
        ("date(ts)", "hour(ts)", "minute(ts)"),
    ]
    plain += [(f"window(ts, {each})",) for each in WINDOWS]
    composed = [(call,) for call in COMPOSED]
    for buckets in (plain, composed[::2], composed[1::2], [(f"window(ts, {SLIDING[1]})",)]):
        texts = [f"SELECT count(*) FROM a GROUP BY {', '.join(calls)}" for calls in buckets]
        queries = [parse_query(text, {"a": TABLE}, zone) for text in texts]
        derived = {c.name: c for query in queries for c in query.tables["a"].derived}
        table = replace(TABLE, derived=tuple(derived.values()))
        found = add_derived_columns(OpenSource(rows, False), table).frame.toArrow().to_pylist()
        facts = [f for c in table.derived if c.derivation is not None for f in c.derivation.facts]
        holds = [compile_condition(fact, {"a": 0}) for fact in facts]
        assert all(test((row,)) is not False for row in found for test in holds)
        for query in queries:
            (select,) = query.selects
            bucket = find_bucket(select, "a", select.group_by or ())
            ends: dict[tuple[Any, ...], set[datetime]] = {}
            for row in found if bucket is not None else ():
                assert bucket is not None and row["ts"] < row[bucket.end.column], query.text
                value = tuple(row[ref.column] for ref in select.group_by or ())
                ends.setdefault(value, set()).add(row[bucket.end.column])
            assert all(len(each) == 1 for each in ends.values()), query.text


def test_result_types_are_those_of_spark(spark: SparkSession) -> None:
    open_rows(spark, [datetime(2024, 1, 1)])
    for select in SELECTS[:4]:
        query = parse_query(select, {"a": TABLE})
        wanted = [field.dataType for field in spark.sql(select).schema.fields]
        assert [field.dataType for field in infer_result_schema(spark, query).fields] == wanted
    query = parse_query(SELECTS[0], {"a": TABLE})
    assert list(query.columns) == unique_names(spark.sql(SELECTS[0]).columns)
