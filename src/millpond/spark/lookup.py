"""A stream joined with relations in databases: each row is answered by itself, with rows looked up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from millpond.lookups.database import Located, locate
from millpond.lookups.join import Joined, Keyed, plan_joins
from millpond.lookups.operator import COUNTED, MEASURED, Lookup, Step
from millpond.lookups.relation import looked_up, relation_of
from millpond.query.model import Query, Ref, Select
from millpond.spark.enriched import prefixed, rejected_rows
from millpond.spark.kinds import KIND, MEASURE, NOTE, ROW
from millpond.spark.source import Source, spark_schema
from millpond.spark.stream import NO_NOTE, Built, Sources, result_schema
from millpond.synopsis.sqltext import Dialect, all_of, condition_sql, expression_sql

_MEASURE_NOTE = (
    f"CASE WHEN {MEASURED} IS NOT NULL THEN named_struct('entries', {COUNTED}, "
    "'bytes', CAST(NULL AS BIGINT), 'stream', CAST(NULL AS STRING), "
    f"'reason', {MEASURED}, 'record', CAST(NULL AS STRING)) END"
)


def located_relations(
    query: Query, memory: int | None, policy: str | None, folder: Path | None = None
) -> dict[str, Located]:
    """The relations of a query that are looked up, found in their databases; needs no Spark."""
    tables = looked_up(query)
    if tables:
        plan_joins(query)
    return {table.name: locate(relation_of(table, memory, policy, folder)) for table in tables}


def build_lookup(
    spark: SparkSession, query: Query, sources: Mapping[str, Source], located: Mapping[str, Located]
) -> Built:
    """The query over its sources, the relations ``located`` being looked up and others read once."""
    schema = result_schema(spark, query)
    opened = Sources({name: source for name, source in sources.items() if query.tables[name].streaming})
    relations = {
        name: source.good.persist() for name, source in sources.items() if not query.tables[name].streaming
    }
    frames: list[DataFrame] = []
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    for select, joined in zip(query.selects, plan_joins(query), strict=True):
        base: list[DataFrame] = []
        for occurrence in joined.base:
            if not occurrence.table.streaming:
                base.append(prefixed(relations[occurrence.table.name], occurrence))
                continue
            source, owed = opened.take(occurrence.table.name)
            base.insert(0, prefixed(source.good, occurrence))
            if owed:
                frames.append(rejected_rows(source, occurrence.table.name, schema))
        frames.append(_looked_up(select, joined, reduce(DataFrame.crossJoin, base), schema, located, zone))
    return Built(reduce(DataFrame.unionAll, frames), tuple(schema.names), stateful=False, partitions=1)


def _looked_up(
    select: Select,
    joined: Joined,
    base: DataFrame,
    schema: StructType,
    located: Mapping[str, Located],
    zone: str,
) -> DataFrame:
    """The select's rows, and what was counted."""
    there = {o.alias for o in joined.base}
    columns = [F.col(_name(ref)) for ref in joined.needed if ref.occurrence in there]
    steps: list[Step] = []
    for number, keyed in enumerate(joined.steps):
        asked = []
        for place, (own, expr) in enumerate(zip(keyed.columns, keyed.asked, strict=True)):
            if isinstance(expr, Ref) and expr.occurrence not in there:
                asked.append(str(expr))
                continue
            name, kind = f"_key{number}_{place}", keyed.occurrence.table.column(own).type
            columns.append(
                F.expr(f"try_cast({expression_sql(expr, _name, Dialect.SPARK)} AS {kind})").alias(name)
            )
            asked.append(name)
        steps.append(_step(joined, keyed, tuple(asked), located[keyed.occurrence.table.name]))
    before = all_of([condition_sql(c, _name, Dialect.SPARK) for c in joined.before])
    taken = base.where(F.expr(before)).select(*columns)
    output = _output_schema(taken, joined)
    arrow = to_arrow_schema(output).serialize().to_pybytes()
    found = taken.mapInArrow(Lookup(tuple(steps), arrow, zone).__call__, output)
    after = all_of([condition_sql(c, _name, Dialect.SPARK) for c in joined.after])
    items = [
        F.expr(
            f"CASE WHEN {MEASURED} IS NULL THEN {expression_sql(item.expression, _name, Dialect.SPARK)} END"
        )
        .cast(field.dataType)
        .alias(field.name)
        for item, field in zip(select.items, schema.fields, strict=True)
    ]
    row_kind = f"CAST(CASE WHEN {MEASURED} IS NULL THEN {ROW} ELSE {MEASURE} END AS TINYINT)"
    return found.where(F.expr(f"{MEASURED} IS NOT NULL OR {after}")).select(
        *items, F.expr(row_kind).alias(KIND), F.coalesce(F.expr(_MEASURE_NOTE), F.expr(NO_NOTE)).alias(NOTE)
    )


def _step(joined: Joined, keyed: Keyed, asked: tuple[str, ...], located: Located) -> Step:
    added = [(name, str(Ref(keyed.occurrence.alias, name))) for name in joined.needed_of(keyed.occurrence)]
    return Step(uuid4().hex, located, asked, keyed.columns, tuple(added))


def _output_schema(taken: DataFrame, joined: Joined) -> StructType:
    """The columns that went in and are needed, those that were looked up, and what was counted."""
    fields = [f for f in taken.schema.fields if not f.name.startswith("_key")]
    for keyed in joined.steps:
        types = {f.name: f.dataType for f in spark_schema(keyed.occurrence.table).fields}
        for name in joined.needed_of(keyed.occurrence):
            fields.append(StructField(str(Ref(keyed.occurrence.alias, name)), types[name]))
    nullable = [StructField(f.name, f.dataType) for f in fields]
    return StructType([*nullable, StructField(MEASURED, StringType()), StructField(COUNTED, LongType())])


def _name(ref: Ref) -> str:
    return Dialect.SPARK.name_of(str(ref))
