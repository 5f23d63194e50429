"""A bounded query as a streaming DataFrame.

What Spark's own operators run in constant state is left to them.  The rest is one operator: each
stream is filtered and coded by column expressions, summarised by Arrow batch, and kept in the state store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StringType, StructField, StructType

from millpond.engines.exact.compile import Compiled, compile_plan
from millpond.plan.synopses import ExactPlan
from millpond.query.model import Query, Ref, Select, Term
from millpond.query.types import TIMESTAMP, type_named
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.operator import PARTIAL_SCHEMA, TAIL_SCHEMA, Keeper, Partial, Shard
from millpond.spark.source import REASON, RECORD, Source, spark_schema

REVISION, RETRACTED = "_revision", "_retracted"
NO_NOTE = (
    "CAST(NULL AS STRUCT<entries: BIGINT, bytes: BIGINT, stream: STRING, reason: STRING, record: STRING>)"
)
_OPERATOR_NOTE = (
    f"CASE WHEN _kind <> {RowKind.RESULT} THEN named_struct('entries', _entries, 'bytes', _bytes, "
    "'stream', _stream, 'reason', _reason, 'record', _record) END"
)


@dataclass(frozen=True)
class Built:
    """A streaming DataFrame of results, rejected rows and reports of the state, told apart by ``_kind``.

    ``stateful``: the state is Millpond's own, and reports come with every batch.  ``partitions`` are the
    state partitions it is made for; None leaves them to the session.
    """

    frame: DataFrame
    columns: tuple[str, ...]
    stateful: bool
    partitions: int | None


def build(spark: SparkSession, query: Query, plan: ExactPlan, sources: Mapping[str, Source]) -> Built:
    """The query over its sources, by the names of its tables."""
    compiled = compile_plan(plan, native_sets=not any(s.rejects for s in sources.values()))
    schema = result_schema(spark, query)
    opened = Sources(sources)
    results = [_native(term, schema, opened, compiled) for term in compiled.native]
    operated = bool(compiled.program.terms) or not results
    if operated:
        results.append(_operated(query, compiled, schema, opened))
    extra = _extra(compiled)
    frame = reduce(DataFrame.unionByName, (r.select(*schema.names, *extra, KIND, NOTE) for r in results))
    sets = any(term.distinct for term in compiled.native)
    partitions = None if compiled.program.chunked or sets else 1
    return Built(frame, (*schema.names, *extra), operated, partitions)


def _extra(compiled: Compiled) -> tuple[str, ...]:
    return extra_columns(compiled.program.aggregate, compiled.program.retracts)


def extra_columns(aggregate: bool, retracts: bool) -> tuple[str, ...]:
    """What rows of groups have besides the columns of the query."""
    if not aggregate:
        return ()
    return (REVISION, RETRACTED) if retracts else (REVISION,)


class Sources:
    """The sources, each handing over its rejected rows exactly once."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._owed = {name for name, source in sources.items() if source.rejects}

    def take(self, name: str) -> tuple[Source, bool]:
        """A source, and whether its rejected rows go this way."""
        owed = name in self._owed
        self._owed.discard(name)
        return self._sources[name], owed


def result_schema(spark: SparkSession, query: Query) -> StructType:
    """Names and types of the result, the types as Spark's own analysis has them."""
    session = spark.newSession()
    for table in query.tables.values():
        session.createDataFrame([], spark_schema(table)).createOrReplaceTempView(table.name)
    found = session.sql(query.text).schema
    fields = [
        StructField(name, _concrete(field.dataType))
        for name, field in zip(query.columns, found.fields, strict=True)
    ]
    return StructType(fields)


def _concrete(type_: DataType) -> DataType:
    return StringType() if isinstance(type_, NullType) else type_


def duckdb_types(schema: StructType) -> list[str]:
    return [_duckdb_type(field.dataType) for field in schema.fields]


def _duckdb_type(type_: DataType) -> str:
    """The type of a result column in DuckDB; Spark takes timestamps with their time zone."""
    known = type_named(type_.simpleString())
    assert known is not None, f"no result has the type {type_.simpleString()}"
    return "TIMESTAMPTZ" if known is TIMESTAMP else known.names.duckdb


# --- Spark's own operators ----------------------------------------------------------------------------


def _native(term: Term, schema: StructType, sources: Sources, compiled: Compiled) -> DataFrame:
    frames = [_filtered(select, schema, sources) for select in term.selects]
    frame = reduce(DataFrame.unionAll, frames)
    if term.distinct:
        frame = frame.dropDuplicates(schema.names)
    revision = F.lit(0).cast("bigint").alias(REVISION)
    extra = {REVISION: revision, RETRACTED: F.lit(False).alias(RETRACTED)}
    return frame.select(*schema.names, *(extra[name] for name in _extra(compiled)), KIND, NOTE)


def _filtered(select: Select, schema: StructType, sources: Sources) -> DataFrame:
    """The select over its single stream, with the stream's rejected rows where they go this way."""
    (occurrence,) = select.occurrences
    source, owed = sources.take(occurrence.table.name)
    where = condition_sql(select.where, _plain, Dialect.SPARK)
    items = [
        f"CAST({expression_sql(item.expression, _plain, Dialect.SPARK)} AS {field.dataType.simpleString()})"
        for item, field in zip(select.items, schema.fields, strict=True)
    ]
    kind, note = f"CAST({RowKind.RESULT} AS TINYINT)", NO_NOTE
    if owed:
        where = f"{REASON} IS NOT NULL OR {where}"
        items = [f"CASE WHEN {REASON} IS NULL THEN {item} END" for item in items]
        kind = (
            f"CAST(CASE WHEN {REASON} IS NULL THEN {RowKind.RESULT} ELSE {RowKind.REJECTED} END AS TINYINT)"
        )
        note = f"CASE WHEN {REASON} IS NOT NULL THEN {rejection_note(occurrence.table.name)} END"
    elif source.rejects:
        where = f"{REASON} IS NULL AND {where}"
    columns = [F.expr(item).alias(field.name) for item, field in zip(items, schema.fields, strict=True)]
    return source.frame.where(F.expr(where)).select(
        *columns, F.expr(kind).alias(KIND), F.expr(note).alias(NOTE)
    )


def _plain(ref: Ref) -> str:
    return Dialect.SPARK.name_of(ref.column)


def rejection_note(stream: str) -> str:
    return (
        "named_struct('entries', CAST(NULL AS BIGINT), 'bytes', CAST(NULL AS BIGINT), "
        f"'stream', {Dialect.SPARK.string(stream)}, 'reason', {REASON}, 'record', {RECORD})"
    )


# --- Millpond's operator ------------------------------------------------------------------------------


def _operated(query: Query, compiled: Compiled, schema: StructType, sources: Sources) -> DataFrame:
    streams = compiled.streams() or [query.selects[0].occurrences[0].table.name]
    partials = [_summarised(name, compiled, sources) for name in streams]
    keeper = Keeper(compiled.program, len(schema), duckdb_types(schema))
    return kept_by(keeper, partials, schema, _extra(compiled))


def kept_by(
    keeper: Shard, partials: Sequence[DataFrame], schema: StructType, extra: Sequence[str]
) -> DataFrame:
    """What the shards make of the payloads sent to them, with the names of the query."""
    output = ", ".join(f"o{i} {field.dataType.simpleString()}" for i, field in enumerate(schema.fields))
    kept = (
        reduce(DataFrame.unionAll, partials)
        .groupBy("shard")
        .transformWithStateInPandas(keeper, f"{output}, {TAIL_SCHEMA}", outputMode="append", timeMode="none")
    )
    if not extra:  # a bag: each row as often as it occurs
        kept = kept.withColumn("_each", F.explode(F.expr("array_repeat(true, _weight)")))
    results = [F.col(f"o{i}").alias(field.name) for i, field in enumerate(schema.fields)]
    return kept.select(*results, *extra, KIND, F.expr(_OPERATOR_NOTE).alias(NOTE))


def _summarised(stream: str, compiled: Compiled, sources: Sources) -> DataFrame:
    """A stream's rows, coded in the JVM and summarised by Arrow batch."""
    source, owed = sources.take(stream)
    where, columns = compiled.ingest(stream, Dialect.SPARK)
    keys = {slot.key[0] for slot in compiled.slots}
    selected = list(columns)
    if owed:
        where = f"{REASON} IS NOT NULL OR {where}"
        selected = [(n, f"CASE WHEN {REASON} IS NULL THEN {t} END" if n in keys else t) for n, t in columns]
        selected += [(REASON, REASON), (RECORD, RECORD)]
    elif source.rejects:
        where = f"{REASON} IS NULL AND {where}"
    taken = source.frame.where(F.expr(where)).select(*(F.expr(text).alias(name) for name, text in selected))
    partial = Partial(compiled.program, stream, *((REASON, RECORD) if owed else (None, None)))
    return taken.mapInArrow(partial.__call__, PARTIAL_SCHEMA)
