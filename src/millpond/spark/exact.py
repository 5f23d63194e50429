"""The exact engine: a bounded query whose synopses are kept in Spark's state store.

Spark's own operators run what needs only constant state: filters, and DISTINCT over one stream.  The rest is
one stateful operator: column expressions filter and encode each stream, a mapper summarises its batches, and
a processor keeps the synopses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.engines.exact.compile import CompiledExact, compile_exact
from millpond.query.expressions import Ref
from millpond.query.model import Query, Select, Term
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.answer import (
    NO_NOTE,
    RETRACTED,
    REVISION,
    AnswerFrame,
    apply_processor,
    changelog_columns,
    duckdb_types,
    infer_result_schema,
    quoted,
)
from millpond.spark.blocks import OpenBlock, open_block
from millpond.spark.job import Job
from millpond.spark.operators.exact import SynopsisMapper, SynopsisProcessor
from millpond.spark.operators.payloads import PAYLOAD_SCHEMA
from millpond.spark.rejected import (
    ROW_OR_REJECTED,
    SharedSources,
    null_if_rejected,
    or_rejected,
    rejected_note,
)
from millpond.spark.sources.opened import REASON, RECORD


class ExactEngine:
    """Runs bounded queries without conditions on time: from synopses, or by Spark's own operators."""

    holds_rows_back = False

    def accepts(self, job: Job) -> bool:
        return job.verdict.plan is not None

    def build(self, job: Job) -> AnswerFrame:
        assert job.verdict.plan is not None
        native_sets = not job.blocks and not any(source.rejects for source in job.sources.values())
        compiled = compile_exact(job.verdict.plan, native_sets=native_sets)
        blocks = {n: open_block(each, job.query.tables[n], in_order=False) for n, each in job.blocks.items()}
        schema = infer_result_schema(job.spark, job.query, {n: each.schema for n, each in blocks.items()})
        sources = SharedSources(job.sources)
        results = [_run_natively(term, schema, sources, blocks, compiled) for term in compiled.native]
        is_stateful = bool(compiled.program.terms) or not results
        if is_stateful:
            results.append(_run_on_synopses(job.query, compiled, schema, sources, blocks))
        extra = _changelog_columns(compiled)
        frame = reduce(
            DataFrame.unionByName, (r.select(*map(quoted, schema.names), *extra, KIND, NOTE) for r in results)
        )
        has_sets = any(term.distinct for term in compiled.native)
        is_whole = not has_sets and all(each.partitions == 1 for each in blocks.values())
        partitions = 1 if is_whole and not compiled.program.chunked else None
        return AnswerFrame(frame, (*schema.names, *extra), is_stateful, partitions)


def _changelog_columns(compiled: CompiledExact) -> tuple[str, ...]:
    return changelog_columns(compiled.program.aggregate, compiled.program.retracts)


# --- Spark's own operators ----------------------------------------------------------------------------


def _run_natively(
    term: Term,
    schema: StructType,
    sources: SharedSources,
    blocks: Mapping[str, OpenBlock],
    compiled: CompiledExact,
) -> DataFrame:
    frames = []
    for select in term.selects:
        name = select.occurrences[0].table.name
        is_block = name in blocks
        frames.append(
            _filter_block(select, schema, blocks[name])
            if is_block
            else _filter_stream(select, schema, sources)
        )
    frame = reduce(DataFrame.unionAll, frames)
    if term.distinct:
        frame = frame.dropDuplicates(schema.names)
    revision = F.lit(0).cast("bigint").alias(REVISION)
    extra = {REVISION: revision, RETRACTED: F.lit(False).alias(RETRACTED)}
    return frame.select(
        *map(quoted, schema.names), *(extra[name] for name in _changelog_columns(compiled)), KIND, NOTE
    )


def _filter_stream(select: Select, schema: StructType, sources: SharedSources) -> DataFrame:
    """The select over its single stream, together with the rejected rows of the stream."""
    (occurrence,) = select.occurrences
    source = sources.take(occurrence.table.name)
    where = condition_sql(select.where, _column_name, Dialect.SPARK)
    texts = [expression_sql(item.expression, _column_name, Dialect.SPARK) for item in select.items]
    types = [field.dataType.simpleString() for field in schema.fields]
    items = [f"CAST({text} AS {type_})" for text, type_ in zip(texts, types, strict=True)]
    kind, note = f"CAST({RowKind.RESULT} AS TINYINT)", NO_NOTE
    if source.rejects:
        where, items = or_rejected(where), [null_if_rejected(item) for item in items]
        kind, note = ROW_OR_REJECTED, rejected_note(occurrence.table.name)
    columns = [F.expr(item).alias(field.name) for item, field in zip(items, schema.fields, strict=True)]
    return source.frame.where(F.expr(where)).select(
        *columns, F.expr(kind).alias(KIND), F.expr(note).alias(NOTE)
    )


def _filter_block(select: Select, schema: StructType, block: OpenBlock) -> DataFrame:
    """The select over a block, together with the notes of the block."""
    is_result = F.col(KIND) == RowKind.RESULT
    where = F.expr(condition_sql(select.where, _column_name, Dialect.SPARK))
    items = [
        F.when(is_result, F.expr(expression_sql(item.expression, _column_name, Dialect.SPARK)))
        .cast(field.dataType)
        .alias(field.name)
        for item, field in zip(select.items, schema.fields, strict=True)
    ]
    return block.frame.where(F.when(is_result, where).otherwise(True)).select(*items, KIND, NOTE)


def _column_name(ref: Ref) -> str:
    return Dialect.SPARK.name_of(ref.column)


# --- synopses -----------------------------------------------------------------------------------------


def _run_on_synopses(
    query: Query,
    compiled: CompiledExact,
    schema: StructType,
    sources: SharedSources,
    blocks: Mapping[str, OpenBlock],
) -> DataFrame:
    streams = compiled.streams() or [query.selects[0].occurrences[0].table.name]
    payloads = [
        _summarise_block(name, compiled, blocks[name])
        if name in blocks
        else _summarise_stream(name, compiled, sources)
        for name in streams
    ]
    processor = SynopsisProcessor(compiled.program, len(schema), duckdb_types(schema))
    return apply_processor(processor, payloads, schema, _changelog_columns(compiled))


def _summarise_stream(stream: str, compiled: CompiledExact, sources: SharedSources) -> DataFrame:
    """Encode a stream's rows in the JVM, and summarise each Arrow batch in Python."""
    source = sources.take(stream)
    where, columns = compiled.ingest(stream, Dialect.SPARK)
    if source.rejects:
        keys = {slot.key[0] for slot in compiled.slots}
        where = or_rejected(where)
        columns = [(name, null_if_rejected(text) if name in keys else text) for name, text in columns]
        columns += [(REASON, REASON), (RECORD, RECORD)]
    taken = source.frame.where(F.expr(where)).select(*(F.expr(text).alias(name) for name, text in columns))
    return taken.mapInArrow(SynopsisMapper(compiled.program, stream).__call__, PAYLOAD_SCHEMA)


def _summarise_block(name: str, compiled: CompiledExact, block: OpenBlock) -> DataFrame:
    """Encode and summarise the rows of a block; its notes pass through."""
    where, columns = compiled.ingest(name, Dialect.SPARK)
    is_result = F.col(KIND) == RowKind.RESULT
    taken = block.frame.where(F.when(is_result, F.expr(where)).otherwise(True))
    values = [F.when(is_result, F.expr(text)).alias(column) for column, text in columns]
    return taken.select(*values, KIND, NOTE).mapInArrow(
        SynopsisMapper(compiled.program, name).__call__, PAYLOAD_SCHEMA
    )
