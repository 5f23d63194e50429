"""The lookup engine: each row of a stream is answered by itself, with rows read from databases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from millpond.engines.lookup.lookup_join import COUNTED, MEASURED, LookupJoin, LookupStep, output_schema
from millpond.engines.lookup.plan import KeyedLookup, SelectLookups
from millpond.query.expressions import Ref
from millpond.query.model import Select
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, all_of, condition_sql, expression_sql
from millpond.spark.answer import NO_NOTE, AnswerFrame, infer_result_schema
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
        return bool(job.lookups.tables)

    def build(self, job: Job) -> AnswerFrame:
        schema = infer_result_schema(job.spark, job.query)
        inputs = RowInputs(job.query, job.sources, schema)
        frames: list[DataFrame] = []
        for select, plan in zip(job.query.selects, job.lookups.selects, strict=True):
            base, rejected = inputs.cross_join(plan.base)
            frames += [*rejected, _look_up_rows(select, plan, base, schema, job)]
        return AnswerFrame(reduce(DataFrame.unionAll, frames), tuple(schema.names), False, partitions=1)


def _look_up_rows(
    select: Select, plan: SelectLookups, base: DataFrame, schema: StructType, job: Job
) -> DataFrame:
    """The select's results, and the measures of its lookups; ``base`` holds the rows of the other tables."""
    # Columns get names without dots, which PySpark would take for fields of a struct.
    names = {ref: f"c{number}" for number, ref in enumerate(plan.needed)}
    base_aliases = {o.alias for o in plan.base}
    columns = [
        F.col(prefixed_name(ref)).alias(name) for ref, name in names.items() if ref.occurrence in base_aliases
    ]
    steps: list[LookupStep] = []
    for lookup in plan.steps:
        key, computed = _key_columns(select, lookup, names, f"_key{len(steps)}")
        columns += computed
        alias, table = lookup.occurrence.alias, job.lookups.tables[lookup.occurrence.table.name]
        fetched = tuple((ref.column, name) for ref, name in names.items() if ref.occurrence == alias)
        steps.append(LookupStep(uuid4().hex, table, key, lookup.columns, fetched))
    before = all_of([condition_sql(c, prefixed_name, Dialect.SPARK) for c in plan.before])
    rows = base.where(F.expr(before)).select(*columns)
    types = {name: select.type_of(ref) for ref, name in names.items()}
    join = LookupJoin(tuple(steps), schema_to_bytes(output_schema(types, job.time_zone)), job.time_zone)
    fields = [StructField(name, spark_type(type_)) for name, type_ in types.items()]
    measure = [StructField(MEASURED, StringType()), StructField(COUNTED, LongType())]
    joined = rows.mapInArrow(join.__call__, StructType([*fields, *measure]))
    after = all_of([condition_sql(c, names.__getitem__, Dialect.SPARK) for c in plan.after])
    items = [
        F.expr(f"CASE WHEN {MEASURED} IS NULL THEN {text} END").cast(field.dataType).alias(field.name)
        for item, field in zip(select.items, schema.fields, strict=True)
        for text in [expression_sql(item.expression, names.__getitem__, Dialect.SPARK)]
    ]
    kind = f"CAST(CASE WHEN {MEASURED} IS NULL THEN {RowKind.RESULT} ELSE {RowKind.MEASURE} END AS TINYINT)"
    note = F.coalesce(F.expr(_MEASURE_NOTE), F.expr(NO_NOTE)).alias(NOTE)
    return joined.where(F.expr(f"{MEASURED} IS NOT NULL OR {after}")).select(
        *items, F.expr(kind).alias(KIND), note
    )


def _key_columns(
    select: Select, lookup: KeyedLookup, names: Mapping[Ref, str], prefix: str
) -> tuple[tuple[str, ...], list[Column]]:
    """The names of the columns with the key's values, in the key's types; and those that must be computed."""
    key: list[str] = []
    computed: list[Column] = []
    for own, expr in zip(lookup.columns, lookup.values, strict=True):
        type_ = lookup.occurrence.table.column(own).type
        if isinstance(expr, Ref) and select.type_of(expr) == type_:
            key.append(names[expr])
            continue
        key.append(f"{prefix}_{len(key)}")
        text = expression_sql(expr, prefixed_name, Dialect.SPARK)
        computed.append(F.expr(f"try_cast({text} AS {type_})").alias(key[-1]))
    return tuple(key), computed
