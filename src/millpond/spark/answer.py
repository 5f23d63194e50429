"""The DataFrame that an engine builds: results, rejected rows and reports, told apart by ``_kind``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StringType, StructField, StructType

from millpond.query.model import Query
from millpond.query.types import TIMESTAMP, find_type
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.spark.operators.output import TAIL_SCHEMA
from millpond.spark.operators.shard import ShardProcessor
from millpond.spark.sources.schema import spark_schema

REVISION, RETRACTED = "_revision", "_retracted"
# The column _note of a result: always NULL.
NO_NOTE = (
    "CAST(NULL AS STRUCT<entries: BIGINT, bytes: BIGINT, stream: STRING, reason: STRING, record: STRING>)"
)
_OPERATOR_NOTE = (
    f"CASE WHEN _kind <> {RowKind.RESULT} THEN named_struct('entries', _entries, 'bytes', _bytes, "
    "'stream', _stream, 'reason', _reason, 'record', _record) END"
)


@dataclass(frozen=True)
class AnswerFrame:
    """A streaming DataFrame: the result ``columns``, the kind of each row, and a note on rows of other kinds.

    ``stateful``: Millpond's own operator holds the state, and reports its size with every micro-batch.
    ``partitions`` is the number of state partitions to use; None leaves it to the session.
    """

    frame: DataFrame
    columns: tuple[str, ...]
    stateful: bool
    partitions: int | None


def infer_result_schema(spark: SparkSession, query: Query) -> StructType:
    """The names of the result columns, with the types that Spark's own analysis gives them."""
    session = spark.newSession()
    for table in query.tables.values():
        session.createDataFrame([], spark_schema(table)).createOrReplaceTempView(table.name)
    found = session.sql(query.text).schema
    fields = [
        StructField(name, _concrete_type(field.dataType))
        for name, field in zip(query.columns, found.fields, strict=True)
    ]
    return StructType(fields)


def _concrete_type(type_: DataType) -> DataType:
    return StringType() if isinstance(type_, NullType) else type_


def changelog_columns(aggregate: bool, retracts: bool) -> tuple[str, ...]:
    """The columns that the rows of groups have besides those of the query."""
    if not aggregate:
        return ()
    return (REVISION, RETRACTED) if retracts else (REVISION,)


def duckdb_types(schema: StructType) -> list[str]:
    """The DuckDB types of the result columns."""
    return [_duckdb_type(field.dataType) for field in schema.fields]


def _duckdb_type(type_: DataType) -> str:
    """The DuckDB type of a result column; Spark takes timestamps with their time zone."""
    known = find_type(type_.simpleString())
    assert known is not None, f"no result has the type {type_.simpleString()}"
    return "TIMESTAMPTZ" if known is TIMESTAMP else known.names.duckdb


def apply_processor(
    processor: ShardProcessor, payloads: Sequence[DataFrame], schema: StructType, extra: Sequence[str]
) -> DataFrame:
    """Send the payloads to the shards, and name the columns of what the processor emits."""
    output = ", ".join(f"o{i} {field.dataType.simpleString()}" for i, field in enumerate(schema.fields))
    emitted = (
        reduce(DataFrame.unionAll, payloads)
        .groupBy("shard")
        .transformWithStateInPandas(
            processor, f"{output}, {TAIL_SCHEMA}", outputMode="append", timeMode="none"
        )
    )
    if not extra:  # a bag: repeat each row as often as it occurs
        emitted = emitted.withColumn("_each", F.explode(F.expr("array_repeat(true, _weight)")))
    results = [F.col(f"o{i}").alias(field.name) for i, field in enumerate(schema.fields)]
    return emitted.select(*results, *extra, KIND, F.expr(_OPERATOR_NOTE).alias(NOTE))
