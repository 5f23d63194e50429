"""The timed engine: a bounded query with conditions on application time, or with relations."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.program import TimedProgram
from millpond.query.model import Table
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect
from millpond.spark.answer import (
    AnswerFrame,
    apply_processor,
    changelog_columns,
    duckdb_types,
    infer_result_schema,
)
from millpond.spark.job import Job
from millpond.spark.operators.payloads import PAYLOAD_SCHEMA
from millpond.spark.operators.rates import Mapper, RateMapper
from millpond.spark.operators.timed import TIMESTAMP, EndOfInputMapper, TimedMapper, TimedProcessor
from millpond.spark.rejected import reject_null_timestamps
from millpond.spark.sources.opened import REASON, RECORD, OpenSource


class TimedEngine:
    """Runs bounded queries over time: rows wait in a reorder buffer until the watermark passes them."""

    holds_rows_back = True

    def accepts(self, job: Job) -> bool:
        return job.verdict.timed is not None

    def build(self, job: Job) -> AnswerFrame:
        program = _compile_with_relations(job)
        schema = infer_result_schema(job.spark, job.query)
        windows = {window["stream"] for window in job.verdict.state.windows}
        payloads = [
            _collect_stream(program, job.query.tables[name], source, name in windows)
            for name, source in job.sources.items()
            if job.query.tables[name].streaming
        ]
        if job.end_of_input is not None:
            payloads.append(job.end_of_input.mapInArrow(EndOfInputMapper(program).__call__, PAYLOAD_SCHEMA))
        extra = changelog_columns(program.aggregate, program.retracts)
        processor = TimedProcessor(program, len(schema), duckdb_types(schema))
        frame = apply_processor(processor, payloads, schema, extra)
        partitions = 1 if program.shards == 1 else None
        return AnswerFrame(frame, (*schema.names, *extra), stateful=True, partitions=partitions)


def _compile_with_relations(job: Job) -> TimedProgram:
    """The program, which contains the rows of its relations."""
    assert job.verdict.timed is not None
    program = compile_timed(job.verdict.timed, Dialect.SPARK, job.time_zone, job.updates, divide=True)
    db = DuckDb()
    found: dict[str, pa.Table] = {}
    for each in program.inputs:
        if each.is_read:
            rows = job.sources[each.stream].good
            taken = rows.select(*(F.expr(text).alias(name) for name, text in each.columns)).toArrow()
            found[each.name] = db.query(each.reduce, {"batch": taken})
    return program.with_relations(found)


def _collect_stream(program: TimedProgram, table: Table, source: OpenSource, watched: bool) -> DataFrame:
    """A stream's rows: the columns that the program uses, and the timestamp.

    If ``watched``, or if the stream declares a rate, its rows are counted.
    """
    time = next((c for c in program.time_columns if c.stream == table.name), None)
    if time is not None:
        source = reject_null_timestamps(source, table)
    columns = [] if time is None else [(TIMESTAMP, time.micros)]
    columns += [column for each in program.inputs_of(table.name) for column in each.columns]
    if source.rejects:
        columns += [(REASON, REASON), (RECORD, RECORD)]
    taken = source.frame.select(*(F.expr(text).alias(name) for name, text in columns))
    mapper: Mapper = TimedMapper(program, table.name)
    if watched or (time is not None and time.rate is not None):
        mapper = RateMapper(mapper, program, table.name, TIMESTAMP)
    return taken.mapInArrow(mapper, PAYLOAD_SCHEMA)
