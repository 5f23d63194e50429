"""A stream joined with relations alone: each row is answered by itself by Spark's own join, and forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.query.model import Occurrence, Query, Ref, Select
from millpond.query.trees import is_aggregate
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.source import REASON, RECORD, Source
from millpond.spark.stream import NO_NOTE, Built, Sources, rejection_note, result_schema


def is_enriched(query: Query) -> bool:
    """Bags of rows of one stream each, joined with relations."""
    return not any(
        term.distinct or is_aggregate(select) or sum(o.table.streaming for o in select.occurrences) != 1
        for term in query.terms
        for select in term.selects
    )


def build_enriched(spark: SparkSession, query: Query, sources: Mapping[str, Source]) -> Built:
    """The query over its sources; relations are read once."""
    schema = result_schema(spark, query)
    opened = Opened(query, sources, schema)
    frames: list[DataFrame] = []
    for select in query.selects:
        rows, rejected = opened.crossed(select.occurrences)
        frames += [_answered(select, rows, schema), *rejected]
    return Built(reduce(DataFrame.unionAll, frames), tuple(schema.names), stateful=False, partitions=1)


def unreadable_rows(source: Source) -> list[tuple[str, str]]:
    """The rejected rows of a relation: the reason, and the record."""
    bad = source.frame.where(F.col(REASON).isNotNull()).select(REASON, RECORD).collect()
    return [(str(row[0]), str(row[1])) for row in bad]


class Opened:
    """The sources of a query whose selects read one stream each; relations are read once."""

    def __init__(self, query: Query, sources: Mapping[str, Source], schema: StructType) -> None:
        streaming = {name for name in sources if query.tables[name].streaming}
        self._streams = Sources({name: sources[name] for name in streaming})
        self._relations = {name: s.good.persist() for name, s in sources.items() if name not in streaming}
        self._schema = schema

    def crossed(self, occurrences: Iterable[Occurrence]) -> tuple[DataFrame, list[DataFrame]]:
        """All combinations of their rows and, where they go this way, the rejected rows of the stream."""
        frames: list[DataFrame] = []
        rejected: list[DataFrame] = []
        for o in occurrences:
            if not o.table.streaming:
                frames.append(prefixed(self._relations[o.table.name], o))
                continue
            source, owed = self._streams.take(o.table.name)
            frames.insert(0, prefixed(source.good, o))
            rejected += [_rejected_rows(source, o.table.name, self._schema)] if owed else []
        return reduce(DataFrame.crossJoin, frames), rejected


def _answered(select: Select, rows: DataFrame, schema: StructType) -> DataFrame:
    """The select's results."""
    where = condition_sql(select.where, _name, Dialect.SPARK)
    items = [
        F.expr(expression_sql(item.expression, _name, Dialect.SPARK)).cast(field.dataType).alias(field.name)
        for item, field in zip(select.items, schema.fields, strict=True)
    ]
    kind = F.lit(RowKind.RESULT).cast("tinyint").alias(KIND)
    return rows.where(F.expr(where)).select(*items, kind, F.expr(NO_NOTE).alias(NOTE))


def prefixed(frame: DataFrame, occurrence: Occurrence, *more: Column) -> DataFrame:
    """The columns of an occurrence under names of their own, and some more."""
    columns = [Ref(occurrence.alias, c.name) for c in occurrence.table.columns]
    named = (F.col(Dialect.SPARK.name_of(r.column)).alias(str(r)) for r in columns)
    return frame.select(*named, *more)


def _name(ref: Ref) -> str:
    return Dialect.SPARK.name_of(str(ref))


def _rejected_rows(source: Source, stream: str, schema: StructType) -> DataFrame:
    """The rejected rows of a stream, in the form of the results."""
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    kind = F.lit(RowKind.REJECTED).cast("tinyint").alias(KIND)
    return source.frame.where(f"{REASON} IS NOT NULL").select(
        *nothing, kind, F.expr(rejection_note(stream)).alias(NOTE)
    )
