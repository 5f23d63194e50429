"""The timed engine on Spark: rows wait in a reorder buffer and are processed in the order of time.

The mapper collects the rows of a task.  The processor holds the reorder buffer and the partial matches in the
state store, and emits what the rows that leave the buffer add to the answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.timed.micro_batch import advance_state
from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.reorder_buffer import (
    BEGINNING,
    END,
    list_late_rows,
    release_rows,
)
from millpond.engines.timed.row_chunks import ChunkCache
from millpond.engines.timed.sharding import SHARD_NUMBERS, divide_rows
from millpond.engines.timed.state import ShardState, decode_payload, encode_payload, merge_payloads
from millpond.runtime.row_kinds import LATE, RowKind
from millpond.spark.operators.block_input import BlockInput
from millpond.spark.operators.cardinalities import CARDINALITIES_SHARD, process_cardinalities
from millpond.spark.operators.output import (
    build_progress_row,
    build_rejected_rows,
    build_report_row,
    build_result_rows,
)
from millpond.spark.operators.payloads import build_payload_batch, split_rejected
from millpond.spark.operators.rates import RATES_SHARD, process_rates
from millpond.spark.operators.shard import ShardProcessor, get_worker_duckdb

# The column with the timestamp of every row, also of rows that cannot match.
TIMESTAMP = "_timestamp"


@lru_cache(maxsize=1)
def get_chunk_cache() -> ChunkCache:
    """The cache of this worker process."""
    return ChunkCache()


@dataclass(frozen=True)
class TimedMapper:
    """Collects a task's rows of one stream for the shards, and the latest timestamp among them."""

    program: TimedProgram
    stream: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inputs = self.program.inputs_of(self.stream)
        db = get_worker_duckdb()
        parts: dict[str, list[pa.Table]] = {each.name: [] for each in inputs}
        latest: int | None = None
        for batch in batches:
            good, rejected = split_rejected(self.stream, batch)
            yield from rejected
            if not good.num_rows:
                continue
            for each in inputs:
                parts[each.name].append(db.query(each.reduce, {"batch": good}))
            if TIMESTAMP in good.schema.names:
                last = pc.max(good.column(TIMESTAMP)).as_py()
                latest = last if latest is None or (last is not None and last > latest) else latest
        rows = {name: pa.concat_tables(tables) for name, tables in parts.items() if tables}
        progress = {} if latest is None else {self.stream: latest}
        yield _build_payloads(self.program, divide_rows(inputs, self.program.shards, rows), progress)


@dataclass(frozen=True)
class BlockMapper:
    """Collects a task's rows of a block, whose operator reports how far it is; its notes pass through."""

    program: TimedProgram
    stream: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inputs = self.program.inputs_of(self.stream)
        db = get_worker_duckdb()
        parts: dict[str, list[pa.Table]] = {each.name: [] for each in inputs}
        block = BlockInput(TIMESTAMP)
        for batch in batches:
            rows, notes = block.split(batch)
            yield from notes
            for each in inputs:
                parts[each.name].append(db.query(each.reduce, {"batch": rows}))
        collected = {name: pa.concat_tables(tables) for name, tables in parts.items() if tables}
        progress = {} if block.latest is None else {self.stream: block.latest}
        yield _build_payloads(self.program, divide_rows(inputs, self.program.shards, collected), progress)


@dataclass(frozen=True)
class EndOfInputMapper:
    """Tells the processor that no more input will come, when a row arrives on the end-of-input stream."""

    program: TimedProgram

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            yield _build_payloads(self.program, [{}] * self.program.shards, {END: 0})


def _build_payloads(
    program: TimedProgram, divided: Sequence[Mapping[str, pa.Table]], progress: Mapping[str, int]
) -> pa.RecordBatch:
    """A payload for each shard: its rows, and the progress of the streams, which every shard needs."""
    payloads = [encode_payload(program, rows, progress) for rows in divided]
    return build_payload_batch(payloads, SHARD_NUMBERS if program.shards > 1 else None)


class TimedProcessor(ShardProcessor):
    """Holds the reorder buffer and the partial matches of a shard.

    All streams share one order of time.  If there is only one shard, its task uses all cores of the machine.
    The rows of a block that another block reads can be earlier than the watermark by ``output_delay``
    microseconds; the processor then reports the progress of its output.
    """

    def __init__(
        self,
        program: TimedProgram,
        width: int,
        types: Sequence[str] | None,
        output_delay: int | None = None,
    ) -> None:
        super().__init__(width, types)
        self.program = program
        self.output_delay = output_delay
        self.started = time.time()

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        if shard == RATES_SHARD:
            yield from process_rates(self, self.program, payloads)
            return
        if shard == CARDINALITIES_SHARD:
            yield from process_cardinalities(self, self.program, payloads)
            return
        program = self.program
        db = get_worker_duckdb(1 if program.shards > 1 else os.cpu_count() or 1)
        state = ShardState(program, self, get_chunk_cache())
        rows, progress = merge_payloads(decode_payload(program, data) for data in payloads)
        release = release_rows(program, state.clock, state.rows, rows, progress, time.time(), self.started)
        if release.late:
            yield _build_late_rows(program, release.late)
        for change in advance_state(db, program, state, release):
            for term in program.terms:
                sql = term.changes_sql(self.types, first=state.revision == 1)
                found = db.query(sql, change.term_tables(program, term))
                yield from build_result_rows(db, found, state.revision)
        yield build_report_row(RowKind.STATE, state.count_entries(), state.size)
        yield build_report_row(RowKind.BUFFERED, state.count_held_rows())
        if self.output_delay is not None and state.clock.watermark != BEGINNING:
            yield build_progress_row(state.clock.watermark - self.output_delay, release.has_ended)


def _build_late_rows(program: TimedProgram, late: Mapping[str, pa.Table]) -> pa.Table:
    """Late rows for the folder ``_rejected``, each with its timestamp and the columns that the query uses."""
    streams, reasons, records = [], [], []
    for column in program.time_columns:
        for row in list_late_rows(program.inputs_of(column.stream), late):
            timestamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.time)
            streams.append(column.stream)
            reasons.append(f"{LATE} the watermark had already passed {timestamp:%Y-%m-%d %H:%M:%S.%f} UTC")
            records.append(json.dumps({column.column: timestamp.isoformat(), **row.values}, default=str))
    return build_rejected_rows(pa.table({"stream": streams, "reason": reasons, "record": records}))
