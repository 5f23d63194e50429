"""The engine of window functions: a stream in the order of time, divided by partition."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millpond.engines.over.compile import compile_over, find_gap
from millpond.engines.over.program import OverProgram
from millpond.plan.over import OverPlan, find_over_delay
from millpond.query.expressions import Ref
from millpond.query.model import Subquery, Table
from millpond.query.trace import find_used_columns
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.answer import AnswerFrame, apply_processor, changelog_columns, duckdb_types
from millpond.spark.blocks import OpenBlock, open_block
from millpond.spark.job import Job
from millpond.spark.operators.over import (
    SHARD,
    OverBlockMapper,
    OverEndMapper,
    OverMapper,
    OverProcessor,
)
from millpond.spark.operators.payloads import PAYLOAD_SCHEMA
from millpond.spark.rejected import reject_null_timestamps
from millpond.spark.sources.derived import derive_columns
from millpond.spark.sources.opened import REASON, RECORD, OpenSource
from millpond.spark.sources.schema import spark_type


class OverEngine:
    """Runs bounded window functions of one stream, and the filter and projection of their results."""

    holds_rows_back = True

    def accepts(self, job: Job) -> bool:
        plan = job.verdict.over
        return plan is not None and find_gap(plan) is None

    def build(self, job: Job) -> AnswerFrame:
        return self._build(job, None)

    def build_block(self, job: Job, time: str | None) -> AnswerFrame:
        """The answer to a block that another block reads, in the order of its column ``time`` if it has one.

        Beside the results it then reports how far they are.
        """
        assert job.verdict.over is not None
        return self._build(job, None if time is None else find_over_delay(job.verdict.over))

    def _build(self, job: Job, delay: int | None) -> AnswerFrame:
        plan = job.verdict.over
        assert plan is not None
        base = plan.block.base
        used = [c.name for c in base.columns if c.name in find_used_columns(plan.select, plan.alias)]
        program = compile_over(plan, used)
        if isinstance(base.block, Subquery):
            block = open_block(job.blocks[base.name], base)
            payloads = [_collect_block(program, plan, block)]
        else:
            payloads = [_collect_rows(program, plan, job.sources[base.name])]
        if job.end_of_input is not None:
            payloads.append(job.end_of_input.mapInArrow(OverEndMapper(program).__call__, PAYLOAD_SCHEMA))
        fields = [StructField(name, spark_type(base.column(name).type)) for name in used]
        fields += [StructField(n.function.name, spark_type(n.function.type)) for n in plan.needs]
        schema = StructType(fields)
        processor = OverProcessor(program, len(schema), duckdb_types(schema), delay)
        extra = changelog_columns(aggregate=program.rank is not None, retracts=True)
        frame = apply_processor(processor, payloads, schema, extra)
        partitions = 1 if program.shards == 1 else None
        return AnswerFrame(
            project_results(frame, plan, extra), (*job.query.columns, *extra), True, partitions
        )


def _collect_rows(program: OverProgram, plan: OverPlan, source: OpenSource) -> DataFrame:
    """The rows of the stream with the columns of the program; rows that are filtered out have no shard."""
    if plan.block.base.time is not None:
        source = reject_null_timestamps(source, plan.block.base)
    columns = _list_columns(program, plan)
    if source.rejects:
        columns += [F.col(REASON), F.col(RECORD)]
    return source.frame.select(*columns).mapInArrow(OverMapper(program).__call__, PAYLOAD_SCHEMA)


def _collect_block(program: OverProgram, plan: OverPlan, block: OpenBlock) -> DataFrame:
    """The rows of a block with the columns of the program, and its notes."""
    taken = block.frame.select(*_list_columns(program, plan), KIND, NOTE)
    return taken.mapInArrow(OverBlockMapper(program).__call__, PAYLOAD_SCHEMA)


def _list_columns(program: OverProgram, plan: OverPlan) -> list[Column]:
    """The shard of a row, its timestamp, and the columns of the program."""
    base = plan.block.base
    where = condition_sql(plan.block.where, lambda ref: _quote(ref.column), Dialect.SPARK)
    keys = [(_quote(name), base.column(name).type) for name in program.shard_by]
    shard = Dialect.SPARK.shard_of(keys, program.shards) if keys else "0"
    columns = [F.expr(f"CASE WHEN {where} THEN CAST({shard} AS INT) END").alias(SHARD)]
    columns.append(F.expr(_micros(base)).alias("t"))
    for i, name in enumerate(program.names):
        columns.append(F.expr(_quote(name)).cast(spark_type(base.column(name).type)).alias(f"c{i}"))
    return columns


def project_results(frame: DataFrame, plan: OverPlan, extra: tuple[str, ...]) -> DataFrame:
    """The rows that the select accepts, with its items; and the other kinds of rows."""
    is_result = F.col(KIND) == RowKind.RESULT
    table = plan.select.occurrence(plan.alias).table
    used = find_used_columns(plan.select, plan.alias)
    shown = tuple(column for column in table.derived if column.name in used)
    rows = derive_columns(frame, replace(table, derived=shown), is_result)

    def name(ref: Ref) -> str:
        return _quote(ref.column)

    where = F.expr(condition_sql(plan.select.where, name, Dialect.SPARK))
    items = [
        F.when(is_result, F.expr(expression_sql(item.expression, name, Dialect.SPARK))).alias(column)
        for item, column in zip(plan.select.items, plan.query.columns, strict=True)
    ]
    return rows.where(F.when(is_result, where).otherwise(True)).select(*items, *extra, KIND, NOTE)


def _micros(base: Table) -> str:
    return "CAST(0 AS BIGINT)" if base.time is None else f"unix_micros({_quote(base.time)})"


def _quote(name: str) -> str:
    return Dialect.SPARK.name_of(name)
