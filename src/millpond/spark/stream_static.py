"""The stream-static engine: Spark's own join answers each row of a stream by itself, without state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.query.expressions import Ref
from millpond.query.model import Occurrence, Query, Select
from millpond.query.trees import is_row_by_row
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.answer import NO_NOTE, AnswerFrame, infer_result_schema
from millpond.spark.job import Job
from millpond.spark.rejected import SharedSources, rejected_frame
from millpond.spark.sources.opened import OpenSource


class StreamStaticEngine:
    """Runs bags of rows of one stream each, joined with relations; the relations are read once."""

    holds_rows_back = False

    def accepts(self, job: Job) -> bool:
        return job.verdict.timed is not None and not job.blocks and is_row_by_row(job.query)

    def build(self, job: Job) -> AnswerFrame:
        schema = infer_result_schema(job.spark, job.query)
        inputs = RowInputs(job.query, job.sources, schema)
        frames: list[DataFrame] = []
        for select in job.query.selects:
            rows, rejected = _join_rows(select, inputs)
            frames += [_select_results(select, rows, schema), *rejected]
        return AnswerFrame(reduce(DataFrame.unionAll, frames), tuple(schema.names), False, partitions=1)


class RowInputs:
    """The sources of a query that answers each row of a stream by itself; relations are read once."""

    def __init__(self, query: Query, sources: Mapping[str, OpenSource], schema: StructType) -> None:
        self._streams = SharedSources(
            {name: s for name, s in sources.items() if query.tables[name].streaming}
        )
        self._relations = cache_relations(query, sources)
        self._schema = schema

    def cross_join(self, occurrences: Iterable[Occurrence]) -> tuple[DataFrame, list[DataFrame]]:
        """All combinations of rows of the occurrences; and the stream's rejected rows, if not yet taken."""
        frames: list[DataFrame] = []
        rejected: list[DataFrame] = []
        for o in occurrences:
            if not o.table.streaming:
                frames.append(prefix_columns(self._relations[o.table.name], o))
                continue
            source = self._streams.take(o.table.name)
            frames.insert(0, prefix_columns(source.good, o))
            if source.rejects:
                rejected.append(rejected_frame(source, o.table.name, self._schema))
        return reduce(DataFrame.crossJoin, frames), rejected


def _join_rows(select: Select, inputs: RowInputs) -> tuple[DataFrame, list[DataFrame]]:
    """The joined rows of FROM that pass the EXISTS conditions; and the stream's rejected rows."""
    if not select.joins:
        rows, rejected = inputs.cross_join(select.occurrences)
    else:
        rows, rejected = inputs.cross_join(select.occurrences[:1])
        for occurrence, join in zip(select.occurrences[1:], select.joins, strict=True):
            frame, more = inputs.cross_join([occurrence])
            on = F.expr(condition_sql(join.on, prefixed_name, Dialect.SPARK))
            rows, rejected = rows.join(frame, on, join.side.value.lower()), [*rejected, *more]
    for exists in select.exists:
        partners, _ = inputs.cross_join(exists.occurrences)
        condition = F.expr(condition_sql(exists.condition, prefixed_name, Dialect.SPARK))
        rows = rows.join(partners, condition, "left_anti" if exists.negated else "left_semi")
    return rows, rejected


def cache_relations(query: Query, sources: Mapping[str, OpenSource]) -> dict[str, DataFrame]:
    """The good rows of the query's relations, which Spark caches when it first reads them."""
    return {name: s.good.persist() for name, s in sources.items() if not query.tables[name].streaming}


def prefix_columns(frame: DataFrame, occurrence: Occurrence, *more: Column) -> DataFrame:
    """The columns of an occurrence, named ``alias.column``, and some more."""
    columns = [Ref(occurrence.alias, c.name) for c in occurrence.table.all_columns]
    named = (F.col(Dialect.SPARK.name_of(r.column)).alias(str(r)) for r in columns)
    return frame.select(*named, *more)


def prefixed_name(ref: Ref) -> str:
    """The column that ``prefix_columns`` makes for a reference, quoted."""
    return Dialect.SPARK.name_of(str(ref))


def _select_results(select: Select, rows: DataFrame, schema: StructType) -> DataFrame:
    where = condition_sql(select.where, prefixed_name, Dialect.SPARK)
    items = [
        F.expr(expression_sql(item.expression, prefixed_name, Dialect.SPARK))
        .cast(field.dataType)
        .alias(field.name)
        for item, field in zip(select.items, schema.fields, strict=True)
    ]
    kind = F.lit(RowKind.RESULT).cast("tinyint").alias(KIND)
    return rows.where(F.expr(where)).select(*items, kind, F.expr(NO_NOTE).alias(NOTE))
