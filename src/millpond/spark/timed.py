"""A bounded query in time as a streaming DataFrame: relations are read, streams are gathered, rows wait."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.query.model import Query, Table
from millpond.spark.operator import PARTIAL_SCHEMA, TAIL_SCHEMA
from millpond.spark.source import REASON, RECORD, Source
from millpond.spark.stream import KIND, NOTE, OPERATOR_NOTE, Built, duckdb_type, extra_columns, result_schema
from millpond.spark.timed_operator import CLOCK, Ending, TimedKeeper, TimedPartial
from millpond.synopsis.sqltext import Dialect
from millpond.synopsis.tables import Engine
from millpond.timed.compile import compile_timed
from millpond.timed.needs import TimedPlan
from millpond.timed.program import TimedProgram


def build_timed(
    spark: SparkSession,
    query: Query,
    plan: TimedPlan,
    sources: Mapping[str, Source],
    ending: DataFrame | None = None,
) -> Built:
    """The query over its sources; a row of the stream ``ending`` says that no more input will come."""
    program = _with_relations(plan, sources, spark.conf.get("spark.sql.session.timeZone") or "UTC")
    schema = result_schema(spark, query)
    types = [duckdb_type(field.dataType) for field in schema.fields]
    partials = [
        _gathered(program, query.tables[name], source)
        for name, source in sources.items()
        if query.tables[name].streaming
    ]
    if ending is not None:
        partials.append(ending.mapInArrow(Ending(program).__call__, PARTIAL_SCHEMA))
    output = ", ".join(f"o{i} {field.dataType.simpleString()}" for i, field in enumerate(schema.fields))
    kept = (
        reduce(DataFrame.unionAll, partials)
        .groupBy("shard")
        .transformWithStateInPandas(
            TimedKeeper(program, len(types), types),
            f"{output}, {TAIL_SCHEMA}",
            outputMode="append",
            timeMode="none",
        )
    )
    if not program.aggregate:
        kept = kept.withColumn("_each", F.explode(F.expr("array_repeat(true, _weight)")))
    extra = extra_columns(program.aggregate, program.retracts)
    results = [F.col(f"o{i}").alias(field.name) for i, field in enumerate(schema.fields)]
    frame = kept.select(*results, *extra, KIND, F.expr(OPERATOR_NOTE).alias(NOTE))
    return Built(frame, (*schema.names, *extra), stateful=True, partitions=1)


def _with_relations(plan: TimedPlan, sources: Mapping[str, Source], zone: str) -> TimedProgram:
    """The program with the rows of its relations."""
    program = compile_timed(plan, Dialect.SPARK, zone=zone)
    engine = Engine()
    found: dict[str, pa.Table] = {}
    for feed in program.feeds:
        if feed.rows is None:
            continue
        source = sources[feed.stream]
        frame = source.frame.where(f"{REASON} IS NULL") if source.rejects else source.frame
        taken = frame.select(*(F.expr(text).alias(name) for name, text in feed.columns)).toArrow()
        found[feed.name] = engine.query(feed.reduce, {"batch": taken})
    return compile_timed(plan, Dialect.SPARK, found, zone) if found else program


def _gathered(program: TimedProgram, table: Table, source: Source) -> DataFrame:
    """A stream's rows: what is taken of each, and its moment."""
    frame, rejects = source.frame, source.rejects
    clock = next((c for c in program.clocks if c.stream == table.name), None)
    if clock is not None:
        frame = _with_moments(frame, table, rejects)
        rejects = True
    columns = [] if clock is None else [(CLOCK, clock.moment)]
    columns += [column for feed in program.of_stream(table.name) for column in feed.columns]
    if rejects:
        columns += [(REASON, REASON), (RECORD, RECORD)]
    taken = frame.select(*(F.expr(text).alias(name) for name, text in columns))
    partial = TimedPartial(program, table.name, *((REASON, RECORD) if rejects else (None, None)))
    return taken.mapInArrow(partial.__call__, PARTIAL_SCHEMA)


def _with_moments(frame: DataFrame, table: Table, rejects: bool) -> DataFrame:
    """The rows; one without a moment has no place in time, and is rejected."""
    assert table.time is not None
    clock = F.col("`" + table.time.replace("`", "``") + "`")
    timeless = F.when(clock.isNull(), f"{table.time} is NULL, and rows are ordered by it")
    record = F.to_json(F.struct(*(F.col("`" + c.name.replace("`", "``") + "`") for c in table.columns)))
    reason = F.coalesce(F.col(REASON), timeless) if rejects else timeless
    shown = (
        F.coalesce(F.col(RECORD), F.when(clock.isNull(), record))
        if rejects
        else F.when(clock.isNull(), record)
    )
    return frame.withColumns({REASON: reason, RECORD: shown})
