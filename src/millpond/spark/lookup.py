"""A stream joined with relations in databases: each row is answered by itself, with rows looked up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from millpond.engines.lookup.database import DatabaseTable, find_table
from millpond.engines.lookup.declaration import find_lookup_tables, read_declaration
from millpond.engines.lookup.lookup_join import COUNTED, MEASURED, LookupJoin, LookupStep, output_schema
from millpond.engines.lookup.plan import KeyedLookup, LookupPlan, plan_lookups
from millpond.query.model import Query, Ref, Select
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, all_of, condition_sql, expression_sql
from millpond.spark.enriched import Opened
from millpond.spark.source import Source, spark_type
from millpond.spark.stream import NO_NOTE, Built, result_schema

_MEASURE_NOTE = (
    f"CASE WHEN {MEASURED} IS NOT NULL THEN named_struct('entries', {COUNTED}, "
    "'bytes', CAST(NULL AS BIGINT), 'stream', CAST(NULL AS STRING), "
    f"'reason', {MEASURED}, 'record', CAST(NULL AS STRING)) END"
)


def located_relations(
    query: Query, memory: int | None, policy: str | None, folder: Path | None = None
) -> dict[str, DatabaseTable]:
    """The relations of a query that are looked up, found in their databases; needs no Spark."""
    tables = find_lookup_tables(query)
    if tables:
        plan_lookups(query)
    return {table.name: find_table(read_declaration(table, memory, policy, folder)) for table in tables}


def build_lookup(
    spark: SparkSession, query: Query, sources: Mapping[str, Source], located: Mapping[str, DatabaseTable]
) -> Built:
    """The query over its sources, the relations ``located`` being looked up and others read once."""
    schema = result_schema(spark, query)
    opened = Opened(query, sources, schema)
    frames: list[DataFrame] = []
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    for select, joined in zip(query.selects, plan_lookups(query), strict=True):
        rows, rejected = opened.crossed(joined.base)
        frames += [*rejected, _looked_up(select, joined, rows, schema, located, zone)]
    return Built(reduce(DataFrame.unionAll, frames), tuple(schema.names), stateful=False, partitions=1)


def _looked_up(
    select: Select,
    joined: LookupPlan,
    base: DataFrame,
    schema: StructType,
    located: Mapping[str, DatabaseTable],
    zone: str,
) -> DataFrame:
    """The select's rows, and what was counted."""
    there = {o.alias for o in joined.base}
    # In Python every column has a plain name: PySpark takes a dot for the way into a struct.
    names = {ref: f"c{number}" for number, ref in enumerate(joined.needed)}
    columns = [F.col(_name(ref)).alias(name) for ref, name in names.items() if ref.occurrence in there]
    steps: list[LookupStep] = []
    for keyed in joined.steps:
        asked, made = _asked(select, keyed, names, f"_key{len(steps)}")
        columns += made
        alias, relation = keyed.occurrence.alias, located[keyed.occurrence.table.name]
        added = tuple((ref.column, name) for ref, name in names.items() if ref.occurrence == alias)
        steps.append(LookupStep(uuid4().hex, relation, asked, keyed.columns, added))
    before = all_of([condition_sql(c, _name, Dialect.SPARK) for c in joined.before])
    taken = base.where(F.expr(before)).select(*columns)
    kinds = {name: select.type_of(ref) for ref, name in names.items()}
    lookup = LookupJoin(tuple(steps), schema_to_bytes(output_schema(kinds, zone)), zone)
    told = [StructField(MEASURED, StringType()), StructField(COUNTED, LongType())]
    fields = [StructField(name, spark_type(kind)) for name, kind in kinds.items()]
    found = taken.mapInArrow(lookup.__call__, StructType([*fields, *told]))
    after = all_of([condition_sql(c, names.__getitem__, Dialect.SPARK) for c in joined.after])
    items = [
        F.expr(f"CASE WHEN {MEASURED} IS NULL THEN {text} END").cast(field.dataType).alias(field.name)
        for item, field in zip(select.items, schema.fields, strict=True)
        for text in [expression_sql(item.expression, names.__getitem__, Dialect.SPARK)]
    ]
    row_kind = (
        f"CAST(CASE WHEN {MEASURED} IS NULL THEN {RowKind.RESULT} ELSE {RowKind.MEASURE} END AS TINYINT)"
    )
    return found.where(F.expr(f"{MEASURED} IS NOT NULL OR {after}")).select(
        *items, F.expr(row_kind).alias(KIND), F.coalesce(F.expr(_MEASURE_NOTE), F.expr(NO_NOTE)).alias(NOTE)
    )


def _asked(
    select: Select, keyed: KeyedLookup, names: Mapping[Ref, str], prefix: str
) -> tuple[tuple[str, ...], list[Column]]:
    """The columns with the values of a key, in its types; and those of them that have to be made."""
    asked: list[str] = []
    made: list[Column] = []
    for own, expr in zip(keyed.columns, keyed.asked, strict=True):
        kind = keyed.occurrence.table.column(own).type
        if isinstance(expr, Ref) and select.type_of(expr) == kind:
            asked.append(names[expr])
            continue
        asked.append(f"{prefix}_{len(asked)}")
        text = expression_sql(expr, _name, Dialect.SPARK)
        made.append(F.expr(f"try_cast({text} AS {kind})").alias(asked[-1]))
    return tuple(asked), made


def _name(ref: Ref) -> str:
    return Dialect.SPARK.name_of(str(ref))
