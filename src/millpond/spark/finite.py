"""The engine of queries over subqueries that have finitely many rows, which change."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millpond.analysis.blocks import open_blocks
from millpond.analysis.decide import decide
from millpond.engines.finite.compile import FiniteInput, compile_finite, show_group_columns
from millpond.engines.finite.program import TAKEN_BACK, FiniteProgram
from millpond.plan.over import OverPlan
from millpond.query.expressions import Ref
from millpond.query.model import Item, Occurrence, Query, Select, Term
from millpond.query.trace import find_used_columns
from millpond.query.types import arrow_type, find_type
from millpond.runtime.row_kinds import KIND, NOTE
from millpond.spark.answer import (
    RETRACTED,
    REVISION,
    AnswerFrame,
    apply_processor,
    duckdb_types,
    infer_result_schema,
    project_rows,
    quoted,
)
from millpond.spark.job import Job
from millpond.spark.operators.finite import FiniteMapper, FiniteProcessor
from millpond.spark.operators.payloads import PAYLOAD_SCHEMA
from millpond.spark.over import project_results
from millpond.spark.sources.schema import spark_type

_EXTRA = (REVISION, RETRACTED)


class FiniteEngine:
    """Runs queries whose streams are all subqueries with finitely many rows: it keeps these."""

    holds_rows_back = False  # its blocks may

    def accepts(self, job: Job) -> bool:
        verdict = job.verdict
        if verdict.over is not None:
            return not verdict.over.needs
        return bool(job.blocks) and verdict.plan is None and verdict.timed is None

    def build(self, job: Job) -> AnswerFrame:
        plan = job.verdict.over
        answers = {name: _build_block(block) for name, block in job.blocks.items()}
        schemas = {name: _find_schema(answer) for name, (answer, _) in answers.items()}
        query = job.query if plan is None else _query_rows(plan)
        if plan is None:
            schema = infer_result_schema(job.spark, query, schemas)
        else:
            columns = query.selects[0].occurrences[0].table.columns
            schema = StructType([StructField(c.name, spark_type(c.type)) for c in columns])
        inputs = [FiniteInput(n, _find_local_schema(schemas[n]), keys) for n, (_, keys) in answers.items()]
        types = duckdb_types(schema)
        program = compile_finite(open_blocks(query), inputs, _find_arrow_schema(schema), types)
        payloads = [
            _collect_changes(program, kept.name, answer)
            for kept, (answer, _) in zip(program.kept, answers.values(), strict=True)
        ]
        frame = apply_processor(FiniteProcessor(program, len(schema), types), payloads, schema, _EXTRA)
        names = (*job.query.columns, *_EXTRA)
        if plan is not None:
            frame = project_results(frame, plan, _EXTRA)
        partitions = {answer.partitions for answer, _ in answers.values()}
        return AnswerFrame(frame, names, True, 1 if partitions == {1} else None)


def _build_block(job: Job) -> tuple[AnswerFrame, tuple[str, ...] | None]:
    """The answer to a subquery, with the columns that tell its groups apart."""
    from millpond.spark.engines import choose_engine  # here, as it imports this module

    query, keys = show_group_columns(job.query)
    if query != job.query:
        job = replace(job, verdict=decide(query))
    answer = choose_engine(job).build(job)
    return (project_rows(answer, query) if query.projection else answer), keys


def _query_rows(plan: OverPlan) -> Query:
    """All columns of the rows with window functions that the select reads."""
    table = plan.select.occurrence(plan.alias).table
    used = find_used_columns(plan.select, plan.alias)
    block = replace(plan.block, base=replace(plan.block.base, block=None))
    shown = tuple(column for column in table.columns if column.name in used)
    table = replace(table, columns=shown, derived=(), block=block)
    names = tuple(column.name for column in table.columns)
    items = tuple(Item(Ref(plan.alias, name), name) for name in names)
    select = Select((Occurrence(plan.alias, table),), items)
    return Query((Term((select,), False),), names)


def _find_schema(answer: AnswerFrame) -> StructType:
    shown = [name for name in answer.columns if name not in _EXTRA]
    return answer.frame.select(*map(quoted, shown)).schema


def _find_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of columns; raises MillpondError for types that no state holds."""
    duckdb_types(schema)
    known = {field.name: find_type(field.dataType.simpleString()) for field in schema.fields}
    return pa.schema([(name, arrow_type(type_)) for name, type_ in known.items() if type_ is not None])


def _find_local_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of kept rows: DuckDB computes with timestamps in UTC."""
    is_time = pa.types.is_timestamp
    return pa.schema(
        [(f.name, pa.timestamp("us") if is_time(f.type) else f.type) for f in _find_arrow_schema(schema)]
    )


def _collect_changes(program: FiniteProgram, name: str, answer: AnswerFrame) -> DataFrame:
    shown = [each for each in answer.columns if each not in _EXTRA]
    columns = [quoted(each).alias(f"c{i}") for i, each in enumerate(shown)]
    is_taken = F.coalesce(F.col(RETRACTED), F.lit(False)) if RETRACTED in answer.columns else F.lit(False)
    taken = answer.frame.select(*columns, is_taken.alias(TAKEN_BACK), KIND, NOTE)
    return taken.mapInArrow(FiniteMapper(program, name).__call__, PAYLOAD_SCHEMA)
