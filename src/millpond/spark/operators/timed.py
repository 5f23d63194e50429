"""The timed engine on Spark: rows wait in a reorder buffer and are processed in the order of time.

The mapper collects the rows of a task.  The processor holds the reorder buffer and the partial matches in the
state store, and emits what the rows that leave the buffer add to the answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.timed.execute import BatchChange, advance, find_last_closing
from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.reorder_buffer import (
    END,
    Release,
    ReorderBuffer,
    list_late_rows,
    release_rows,
)
from millpond.engines.timed.state import (
    BUFFER_KEY,
    MATCHES_KEY,
    decode_buffer,
    decode_matches,
    decode_payload,
    encode_buffer,
    encode_matches,
    encode_payload,
)
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.row_kinds import LATE, RowKind
from millpond.spark.operators.output import build_rejected_rows, build_report_row, build_result_rows
from millpond.spark.operators.payloads import build_payload_batch, split_rejected
from millpond.spark.operators.shard import ShardProcessor, get_worker_duckdb

# The column with the timestamp of every row, also of rows that cannot match.
TIMESTAMP = "_timestamp"


@dataclass(frozen=True)
class TimedMapper:
    """Collects a task's rows of one stream, and the latest timestamp among them."""

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
                parts[each.name].append(db.query(each.reduce, {"batch": good}).cast(each.schema))
            if TIMESTAMP in good.schema.names:
                last = pc.max(good.column(TIMESTAMP)).as_py()
                latest = last if latest is None or (last is not None and last > latest) else latest
        rows = {name: pa.concat_tables(tables) for name, tables in parts.items() if tables}
        progress = {} if latest is None else {self.stream: latest}
        yield build_payload_batch([encode_payload(self.program, rows, progress)])


@dataclass(frozen=True)
class EndOfInputMapper:
    """Tells the processor that no more input will come, when a row arrives on the end-of-input stream."""

    program: TimedProgram

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            yield build_payload_batch([encode_payload(self.program, {}, {END: 0})])


class TimedProcessor(ShardProcessor):
    """Holds the reorder buffer and the partial matches.

    All streams share one order of time, so one task processes a micro-batch, on all cores of its machine.
    """

    def __init__(self, program: TimedProgram, width: int, types: Sequence[str] | None) -> None:
        super().__init__(width, types)
        self.program = program

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        db, program = get_worker_duckdb(os.cpu_count() or 1), self.program
        held = self.get_value(BUFFER_KEY)
        buffer = ReorderBuffer() if held is None else decode_buffer(program, held)
        data = self.get_value(MATCHES_KEY)
        state, revision = ({}, 0) if data is None else decode_matches(program, data)
        release = self._release_rows(buffer, payloads)
        if release.late:
            yield _build_late_rows(program, release.late)
        size = 0 if data is None else len(data)
        buffer, advances = release.buffer, release.buffer.watermark > buffer.watermark
        if release.released or data is None or (program.closes and advances):
            change = advance(db, program, state, release.released, buffer.watermark)
            yield from self._emit_changes(db, state, change, revision + 1, first=data is None)
            state, revision = change.state, revision + 1
            last = find_last_closing(program, state) if release.has_ended else None
            if last is not None:  # a later run may continue, but not change the groups that are written
                buffer = replace(buffer, watermark=max(last, buffer.watermark))
                change = advance(db, program, state, {}, buffer.watermark)
                yield from self._emit_changes(db, state, change, revision + 1, first=False)
                state, revision = change.state, revision + 1
            matches = encode_matches(program, state, revision)
            self.put_value(MATCHES_KEY, matches)
            size = len(matches)
        held = encode_buffer(program, buffer)
        self.put_value(BUFFER_KEY, held)
        entries = sum(table.num_rows for table in state.values())
        yield build_report_row(RowKind.STATE, entries, size + len(held))
        yield build_report_row(RowKind.BUFFERED, buffer.count_rows(program))

    def _emit_changes(
        self, db: DuckDb, before: Mapping[str, pa.Table], change: BatchChange, revision: int, first: bool
    ) -> Iterator[pa.Table]:
        """What a change adds to the answer; ``first``: nothing was emitted yet."""
        for term in self.program.terms:
            tables = change.term_tables(self.program, before, term)
            yield from build_result_rows(db, db.query(term.changes_sql(self.types, first), tables), revision)

    def _release_rows(self, buffer: ReorderBuffer, payloads: Sequence[bytes]) -> Release:
        rows: dict[str, list[pa.Table]] = {}
        progress: dict[str, int] = {}
        for data in payloads:
            tables, known = decode_payload(self.program, data)
            for name, table in tables.items():
                rows.setdefault(name, []).append(table)
            for stream, latest in known.items():
                progress[stream] = max(latest, progress.get(stream, latest))
        collected = {name: pa.concat_tables(tables) for name, tables in rows.items()}
        return release_rows(self.program, buffer, collected, progress, time.time())


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
