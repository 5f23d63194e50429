"""The lookup engine: each row of a stream is answered by itself, with rows read from databases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from millpond.engines.lookup.database import DatabaseTable
from millpond.engines.lookup.lookup_join import COUNTED, MEASURED, LookupJoin, LookupStep, output_schema
from millpond.engines.lookup.plan import KeyedLookup, LookupPlan, plan_lookups
from millpond.query.model import Ref, Select
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, all_of, condition_sql, expression_sql
from millpond.spark.answer import NO_NOTE, AnswerFrame, result_schema
from millpond.spark.job import Job
from millpond.spark.sources.schema import spark_type
from millpond.spark.stream_static import RowInputs, prefixed_name

_MEASURE_NOTE = (
    f"CASE WHEN {MEASURED} IS NOT NULL THEN named_struct('entries', {COUNTED}, "
    "'bytes', CAST(NULL AS BIGINT), 'stream', CAST(NULL AS STRING), "
    f"'reason', {MEASURED}, 'record', CAST(NULL AS STRING)) END"
)


class LookupEngine:
    """Runs queries over streams and relations that stay in their databases; it reads other relations once."""

    holds_rows_back = False

    def accepts(self, job: Job) -> bool:
        return bool(job.lookups)

    def build(self, job: Job) -> AnswerFrame:
        schema = result_schema(job.spark, job.query)
        inputs = RowInputs(job.query, job.sources, schema)
        frames: list[DataFrame] = []
        for select, joined in zip(job.query.selects, plan_lookups(job.query), strict=True):
            rows, rejected = inputs.cross_join(joined.base)
            frames += [*rejected, _look_up_rows(select, joined, rows, schema, job.lookups, job.time_zone)]
        return AnswerFrame(reduce(DataFrame.unionAll, frames), tuple(schema.names), False, partitions=1)


def _look_up_rows(
    select: Select,
    joined: LookupPlan,
    base: DataFrame,
    schema: StructType,
    located: Mapping[str, DatabaseTable],
    zone: str,
) -> DataFrame:
    """The select's results, and the measures of its lookups."""
    there = {o.alias for o in joined.base}
    # Columns get names without dots, which PySpark would take for fields of a struct.
    names = {ref: f"c{number}" for number, ref in enumerate(joined.needed)}
    columns = [
        F.col(prefixed_name(ref)).alias(name) for ref, name in names.items() if ref.occurrence in there
    ]
    steps: list[LookupStep] = []
    for keyed in joined.steps:
        asked, made = _key_columns(select, keyed, names, f"_key{len(steps)}")
        columns += made
        alias, relation = keyed.occurrence.alias, located[keyed.occurrence.table.name]
        added = tuple((ref.column, name) for ref, name in names.items() if ref.occurrence == alias)
        steps.append(LookupStep(uuid4().hex, relation, asked, keyed.columns, added))
    before = all_of([condition_sql(c, prefixed_name, Dialect.SPARK) for c in joined.before])
    taken = base.where(F.expr(before)).select(*columns)
    kinds = {name: select.type_of(ref) for ref, name in names.items()}
    lookup = LookupJoin(tuple(steps), schema_to_bytes(output_schema(kinds, zone)), zone)
    measure = [StructField(MEASURED, StringType()), StructField(COUNTED, LongType())]
    fields = [StructField(name, spark_type(kind)) for name, kind in kinds.items()]
    found = taken.mapInArrow(lookup.__call__, StructType([*fields, *measure]))
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


def _key_columns(
    select: Select, keyed: KeyedLookup, names: Mapping[Ref, str], prefix: str
) -> tuple[tuple[str, ...], list[Column]]:
    """The columns with the values of a lookup key in the key's types; and those that have to be added."""
    asked: list[str] = []
    made: list[Column] = []
    for own, expr in zip(keyed.columns, keyed.asked, strict=True):
        kind = keyed.occurrence.table.column(own).type
        if isinstance(expr, Ref) and select.type_of(expr) == kind:
            asked.append(names[expr])
            continue
        asked.append(f"{prefix}_{len(asked)}")
        text = expression_sql(expr, prefixed_name, Dialect.SPARK)
        made.append(F.expr(f"try_cast({text} AS {kind})").alias(asked[-1]))
    return tuple(asked), made
