"""The projection engine: rows of blocks, each answered by itself.

The engine of a block runs; Spark filters and projects its rows, and lets the other kinds of rows pass.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.query.expressions import Ref
from millpond.query.model import Select, Table
from millpond.query.trees import is_projection
from millpond.runtime.row_kinds import KIND, RowKind
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.answer import AnswerFrame, infer_result_schema
from millpond.spark.blocks import name_columns
from millpond.spark.job import Job
from millpond.spark.sources.derived import derive_columns


class ProjectionEngine:
    """Runs selects of rows of one block each, without joins; the state is that of the blocks."""

    holds_rows_back = True

    def accepts(self, job: Job) -> bool:
        return is_projection(job.query) and job.blocks.keys() == job.query.tables.keys()

    def build(self, job: Job) -> AnswerFrame:
        answers = {name: _build_block(block, job.query.tables[name]) for name, block in job.blocks.items()}
        kinds = {name: _find_schema(answer) for name, answer in answers.items()}
        schema = infer_result_schema(job.spark, job.query, kinds)
        frames = [
            _project(select, answers[select.occurrences[0].table.name], schema)
            for select in job.query.selects
        ]
        partitions = {answer.partitions for answer in answers.values()}
        return AnswerFrame(
            reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames),
            tuple(schema.names),
            stateful=any(answer.stateful for answer in answers.values()),
            partitions=partitions.pop() if len(partitions) == 1 else None,
            drops_late=any(answer.drops_late for answer in answers.values()),
        )


def _build_block(job: Job, table: Table) -> AnswerFrame:
    from millpond.spark.engines import choose_engine  # here, as it imports this module

    return name_columns(choose_engine(job).build(job), job.query, table)


def _find_schema(answer: AnswerFrame) -> StructType:
    return answer.frame.select(*map(_quote, answer.columns)).schema


def _project(select: Select, answer: AnswerFrame, schema: StructType) -> DataFrame:
    """The rows of a block that the select accepts, with its items; and the other kinds of rows."""
    is_result = F.col(KIND) == RowKind.RESULT
    rows = derive_columns(answer.frame, select.occurrences[0].table, is_result)

    def name(ref: Ref) -> str:
        return _quote(ref.column)

    where = condition_sql(select.where, name, Dialect.SPARK)
    items = [
        F.when(is_result, F.expr(expression_sql(item.expression, name, Dialect.SPARK)))
        .cast(field.dataType)
        .alias(field.name)
        for item, field in zip(select.items, schema.fields, strict=True)
    ]
    others = [column for column in answer.frame.columns if column not in answer.columns]
    return rows.where(F.when(is_result, F.expr(where)).otherwise(True)).select(*items, *others)


def _quote(name: str) -> str:
    return Dialect.SPARK.name_of(name)
