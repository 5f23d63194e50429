"""The timed engine: a bounded query with conditions on application time, or with relations."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.program import TimedProgram
from millpond.plan.closing import find_output_delay
from millpond.query.model import Table
from millpond.runtime.duckdb import get_process_duckdb
from millpond.runtime.row_kinds import KIND, NOTE
from millpond.runtime.sql import Dialect
from millpond.spark.answer import (
    AnswerFrame,
    apply_processor,
    changelog_columns,
    duckdb_types,
    infer_result_schema,
)
from millpond.spark.blocks import OpenBlock, open_block
from millpond.spark.job import Job
from millpond.spark.operators.cardinalities import CardinalityMapper, list_hash_columns
from millpond.spark.operators.payloads import PAYLOAD_SCHEMA
from millpond.spark.operators.rates import Mapper, RateMapper
from millpond.spark.operators.timed import (
    TIMESTAMP,
    BlockMapper,
    EndOfInputMapper,
    TimedMapper,
    TimedProcessor,
)
from millpond.spark.rejected import reject_null_timestamps
from millpond.spark.sources.opened import REASON, RECORD, OpenSource


class TimedEngine:
    """Runs bounded queries over time: rows wait in a reorder buffer until the watermark passes them."""

    holds_rows_back = True

    def accepts(self, job: Job) -> bool:
        return job.verdict.timed is not None

    def build(self, job: Job) -> AnswerFrame:
        return self._build(job, None)

    def build_block(self, job: Job, time: str | None) -> AnswerFrame:
        """The answer to a block that another block reads, in the order of its column ``time`` if it has one.

        Beside the results it then reports how far they are.
        """
        assert job.verdict.timed is not None
        if time is None:
            return self._build(job, None)
        delay = find_output_delay(job.verdict.timed, job.query.columns.index(time))
        assert delay is not None, "the rows of a block come in the order of time"
        return self._build(job, delay)

    def _build(self, job: Job, delay: int | None) -> AnswerFrame:
        program = _compile_with_relations(job)
        blocks = {name: open_block(each, job.query.tables[name]) for name, each in job.blocks.items()}
        schema = infer_result_schema(job.spark, job.query, {n: each.schema for n, each in blocks.items()})
        windows = {window["stream"] for window in job.verdict.state.windows}
        payloads = [
            _collect_stream(program, job.query.tables[name], source, name in windows)
            for name, source in job.sources.items()
            if job.query.tables[name].streaming
        ]
        payloads += [_collect_block(program, name, each) for name, each in blocks.items()]
        if job.end_of_input is not None:
            payloads.append(job.end_of_input.mapInArrow(EndOfInputMapper(program).__call__, PAYLOAD_SCHEMA))
        extra = changelog_columns(program.aggregate, program.retracts)
        output_delay = None if delay is None else delay + program.hold
        processor = TimedProcessor(program, len(schema), duckdb_types(schema), output_delay)
        frame = apply_processor(processor, payloads, schema, extra)
        is_whole = program.shards == 1 and all(each.partitions == 1 for each in blocks.values())
        partitions = 1 if is_whole else None
        return AnswerFrame(frame, (*schema.names, *extra), stateful=True, partitions=partitions)


def _compile_with_relations(job: Job) -> TimedProgram:
    """The program, which contains the rows of its relations."""
    assert job.verdict.timed is not None
    program = compile_timed(job.verdict.timed, Dialect.SPARK, job.time_zone, job.updates, divide=True)
    db = get_process_duckdb()
    found: dict[str, pa.Table] = {}
    for each in program.inputs:
        if each.is_read:
            rows = job.sources[each.stream].good
            taken = rows.select(*(F.expr(text).alias(name) for name, text in each.columns)).toArrow()
            found[each.name] = db.query(each.reduce, {"batch": taken})
    return program.with_relations(found)


def _collect_block(program: TimedProgram, name: str, block: OpenBlock) -> DataFrame:
    """The rows of a block: the columns that the program uses and the timestamp; and its notes."""
    time = next(c for c in program.time_columns if c.stream == name)
    columns = [(TIMESTAMP, time.micros)]
    columns += [column for each in program.inputs_of(name) for column in each.columns]
    taken = block.frame.select(*(F.expr(text).alias(alias) for alias, text in columns), KIND, NOTE)
    return taken.mapInArrow(BlockMapper(program, name).__call__, PAYLOAD_SCHEMA)


def _collect_stream(program: TimedProgram, table: Table, source: OpenSource, watched: bool) -> DataFrame:
    """A stream's rows: the columns that the program uses, and the timestamp.

    If ``watched``, or if the stream declares a rate, its rows are counted; values of columns with a declared
    cardinality are counted, too.
    """
    time = next((c for c in program.time_columns if c.stream == table.name), None)
    if time is not None:
        source = reject_null_timestamps(source, table)
    columns = [] if time is None else [(TIMESTAMP, time.micros)]
    columns += [column for each in program.inputs_of(table.name) for column in each.columns]
    if source.rejects:
        columns += [(REASON, REASON), (RECORD, RECORD)]
    columns += list_hash_columns(table)
    taken = source.frame.select(*(F.expr(text).alias(name) for name, text in columns))
    mapper: Mapper = TimedMapper(program, table.name)
    if table.cardinalities:
        mapper = CardinalityMapper(mapper, program, table.name, tuple(table.cardinalities))
    if watched or (time is not None and time.rate is not None):
        mapper = RateMapper(mapper, program, table.name, TIMESTAMP)
    return taken.mapInArrow(mapper, PAYLOAD_SCHEMA)
