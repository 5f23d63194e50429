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

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.timed.execute import advance
from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.waiting_room import (
    END,
    Passage,
    Room,
    late_rows,
    opened,
    passed,
    payload,
    restored,
    stored,
)
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.row_kinds import LATE, RowKind
from millpond.spark.operators.output import rejected_rows, report_row, result_rows
from millpond.spark.operators.payloads import payload_batch, split_rejected
from millpond.spark.operators.shard import WHOLE, ShardProcessor, worker_duckdb

# The keys of the state store: the reorder buffer; the partial matches and groups.
_BUFFER, _MATCHES = -3, WHOLE
# The column with the timestamp of every row, also of rows that no feed takes.
TIMESTAMP = "_timestamp"


@dataclass(frozen=True)
class TimedMapper:
    """Collects a task's rows of one stream, and the latest timestamp among them."""

    program: TimedProgram
    stream: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        feeds = self.program.of_stream(self.stream)
        db = worker_duckdb()
        parts: dict[str, list[pa.Table]] = {feed.name: [] for feed in feeds}
        latest: int | None = None
        for batch in batches:
            good, rejected = split_rejected(self.stream, batch)
            yield from rejected
            if not good.num_rows:
                continue
            for feed in feeds:
                parts[feed.name].append(db.query(feed.reduce, {"batch": good}).cast(feed.schema))
            if TIMESTAMP in good.schema.names:
                last = pc.max(good.column(TIMESTAMP)).as_py()
                latest = last if latest is None or (last is not None and last > latest) else latest
        rows = {name: pa.concat_tables(tables) for name, tables in parts.items() if tables}
        progress = {} if latest is None else {self.stream: latest}
        yield payload_batch([payload(self.program, rows, progress)])


@dataclass(frozen=True)
class EndOfInputMapper:
    """Tells the processor that no more input will come, when a row arrives on the end-of-input stream."""

    program: TimedProgram

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            yield payload_batch([payload(self.program, {}, {END: 0})])


class TimedProcessor(ShardProcessor):
    """Holds the reorder buffer and the partial matches.

    All streams share one order of time, so one task processes a micro-batch, on all cores of its machine.
    """

    def __init__(self, program: TimedProgram, width: int, types: Sequence[str] | None) -> None:
        super().__init__(width, types)
        self.program = program

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        db, program = worker_duckdb(os.cpu_count() or 1), self.program
        held = self.get_value(_BUFFER)
        room = Room() if held is None else restored(program, held)
        data = self.get_value(_MATCHES)
        kept, revision = ({}, 0) if data is None else decode_tables(data, program.kept, program.fingerprint)
        passage = self._reorder(room, payloads)
        if passage.late:
            yield _late_rows(program, passage.late)
        size = 0 if data is None else len(data)
        if passage.ready or data is None:
            step = advance(db, program, kept, passage.ready, passage.room.final)
            for term in program.terms:
                found = db.query(term.changes_sql(self.types, data is None), step.tables(program, kept, term))
                yield from result_rows(db, found, revision + 1)
            kept = step.kept
            packed = encode_tables(kept, program.kept, program.fingerprint, revision + 1)
            self.put_value(_MATCHES, packed)
            size = len(packed)
        waiting = stored(program, passage.room)
        self.put_value(_BUFFER, waiting)
        entries = sum(table.num_rows for table in kept.values())
        yield report_row(RowKind.STATE, entries, size + len(waiting))
        yield report_row(RowKind.BUFFERED, passage.room.rows(program))

    def _reorder(self, room: Room, payloads: Sequence[bytes]) -> Passage:
        rows: dict[str, list[pa.Table]] = {}
        progress: dict[str, int] = {}
        for data in payloads:
            tables, known = opened(self.program, data)
            for name, table in tables.items():
                rows.setdefault(name, []).append(table)
            for stream, (latest, _) in known.items():
                progress[stream] = max(latest, progress.get(stream, latest))
        gathered = {name: pa.concat_tables(tables) for name, tables in rows.items()}
        return passed(self.program, room, gathered, progress, time.time())


def _late_rows(program: TimedProgram, late: Mapping[str, pa.Table]) -> pa.Table:
    """Late rows for the folder ``_rejected``, each with its timestamp and the columns that the query uses."""
    streams, reasons, records = [], [], []
    for clock in program.clocks:
        for row in late_rows(program.of_stream(clock.stream), late):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.moment)
            streams.append(clock.stream)
            reasons.append(f"{LATE} every stream had moved past {moment:%Y-%m-%d %H:%M:%S.%f} UTC")
            records.append(json.dumps({clock.column: moment.isoformat(), **row.values}, default=str))
    return rejected_rows(pa.table({"stream": streams, "reason": reasons, "record": records}))
