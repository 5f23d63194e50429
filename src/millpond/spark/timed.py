"""A bounded query in time as a streaming DataFrame: relations are read, streams are gathered, rows wait."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.program import TimedProgram
from millpond.plan.needs import TimedPlan
from millpond.query.model import Query, Table
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect
from millpond.spark.operator import PARTIAL_SCHEMA
from millpond.spark.source import REASON, RECORD, Source
from millpond.spark.stream import Built, duckdb_types, extra_columns, kept_by, result_schema
from millpond.spark.timed_operator import CLOCK, Ending, TimedKeeper, TimedPartial


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
    partials = [
        _gathered(program, query.tables[name], source)
        for name, source in sources.items()
        if query.tables[name].streaming
    ]
    if ending is not None:
        partials.append(ending.mapInArrow(Ending(program).__call__, PARTIAL_SCHEMA))
    extra = extra_columns(program.aggregate, program.retracts)
    keeper = TimedKeeper(program, len(schema), duckdb_types(schema))
    frame = kept_by(keeper, partials, schema, extra)
    return Built(frame, (*schema.names, *extra), stateful=True, partitions=1)


def _with_relations(plan: TimedPlan, sources: Mapping[str, Source], zone: str) -> TimedProgram:
    """The program with the rows of its relations."""
    program = compile_timed(plan, Dialect.SPARK, zone=zone)
    engine = DuckDb()
    found: dict[str, pa.Table] = {}
    for feed in program.feeds:
        if feed.rows is None:
            continue
        taken = (
            sources[feed.stream]
            .good.select(*(F.expr(text).alias(name) for name, text in feed.columns))
            .toArrow()
        )
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
    clock = F.col(Dialect.SPARK.name_of(table.time))
    timeless = F.when(clock.isNull(), f"{table.time} is NULL, and rows are ordered by it")
    record = F.to_json(F.struct(*(F.col(Dialect.SPARK.name_of(c.name)) for c in table.columns)))
    reason = F.coalesce(F.col(REASON), timeless) if rejects else timeless
    shown = (
        F.coalesce(F.col(RECORD), F.when(clock.isNull(), record))
        if rejects
        else F.when(clock.isNull(), record)
    )
    return frame.withColumns({REASON: reason, RECORD: shown})
