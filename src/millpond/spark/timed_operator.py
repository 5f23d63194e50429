"""The operator for queries in time: rows are gathered where they are read, wait, and go on in time order.

``TimedPartial`` gathers the rows of a task.  ``TimedKeeper`` holds the waiting room and the partial matches
in Spark's state store, and emits what the rows that go on add to the answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
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
from millpond.spark.operator import (
    PARTIAL_ARROW,
    TAIL,
    WHOLE,
    Shard,
    emitted_rows,
    one_row,
    rejected_table,
    worker_engine,
)

# The keys of the waiting room, and of the partial matches and results.
_ROOM, _MATCHES = -3, WHOLE
# The column with a row's moment, whether the row matters or not.
CLOCK = "_clock"


@dataclass(frozen=True)
class TimedPartial:
    """Gathers a task's rows of one stream; ``reason`` and ``record`` name the columns of rejected rows."""

    program: TimedProgram
    stream: str
    reason: str | None = None
    record: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        feeds = self.program.of_stream(self.stream)
        engine = worker_engine()
        parts: dict[str, list[pa.Table]] = {feed.name: [] for feed in feeds}
        latest: int | None = None
        for batch in batches:
            if self.reason is not None:
                assert self.record is not None
                bad = batch.filter(batch.column(self.reason).is_valid())
                if bad.num_rows:
                    yield rejected_table(self.stream, bad.column(self.reason), bad.column(self.record))
                batch = batch.filter(batch.column(self.reason).is_null())
            if not batch.num_rows:
                continue
            for feed in feeds:
                parts[feed.name].append(engine.query(feed.reduce, {"batch": batch}).cast(feed.schema))
            if CLOCK in batch.schema.names:
                moment = pc.max(batch.column(CLOCK)).as_py()
                latest = moment if latest is None or (moment is not None and moment > latest) else latest
        rows = {name: pa.concat_tables(tables) for name, tables in parts.items() if tables}
        yield _payload(payload(self.program, rows, {} if latest is None else {self.stream: latest}))


@dataclass(frozen=True)
class Ending:
    """Announces the end of all input when a row comes."""

    program: TimedProgram

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            yield _payload(payload(self.program, {}, {END: 0}))


def _payload(data: bytes) -> pa.RecordBatch:
    nothing = pa.nulls(1, pa.string())
    columns = [pa.array([0], pa.int32()), pa.array([data], pa.binary()), nothing, nothing, nothing]
    return pa.RecordBatch.from_arrays(columns, schema=PARTIAL_ARROW)


class TimedKeeper(Shard):
    """Holds the waiting room and the partial matches.

    Time has one order, so one task does the work of a batch, on all cores of its machine.
    """

    def __init__(self, program: TimedProgram, width: int, types: Sequence[str] | None) -> None:
        super().__init__(width, types)
        self.program = program

    def answered(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        engine, program = worker_engine(os.cpu_count() or 1), self.program
        held = self.value(_ROOM)
        room = Room() if held is None else restored(program, held)
        data = self.value(_MATCHES)
        kept, revision = ({}, 0) if data is None else decode_tables(data, program.kept, program.fingerprint)
        passage = self._passed(room, payloads)
        if passage.late:
            yield _reported(program, passage.late)
        size = 0 if data is None else len(data)
        if passage.ready or data is None:
            step = advance(engine, program, kept, passage.ready, passage.room.final)
            for term in program.terms:
                found = engine.query(
                    term.changes_sql(self.types, data is None), step.tables(program, kept, term)
                )
                yield from emitted_rows(engine, found, revision + 1)
            kept = step.kept
            packed = encode_tables(kept, program.kept, program.fingerprint, revision + 1)
            self.keep(_MATCHES, packed)
            size = len(packed)
        waiting = stored(program, passage.room)
        self.keep(_ROOM, waiting)
        entries = sum(table.num_rows for table in kept.values())
        yield one_row(RowKind.STATE, _entries=entries, _bytes=size + len(waiting))
        yield one_row(RowKind.BUFFERED, _entries=passage.room.rows(program), _bytes=0)

    def _passed(self, room: Room, payloads: Sequence[bytes]) -> Passage:
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


def _reported(program: TimedProgram, late: Mapping[str, pa.Table]) -> pa.Table:
    """Late rows on their way out, each with the reason, its time, and the columns that the query uses."""
    streams, reasons, records = [], [], []
    for clock in program.clocks:
        for row in late_rows(program.of_stream(clock.stream), late):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.moment)
            streams.append(clock.stream)
            reasons.append(f"{LATE} every stream had moved past {moment:%Y-%m-%d %H:%M:%S.%f} UTC")
            records.append(json.dumps({clock.column: moment.isoformat(), **row.values}, default=str))
    return pa.table(
        {
            "_kind": pa.array(np.full(len(streams), RowKind.REJECTED, np.int8)),
            "_weight": pa.array(np.ones(len(streams), np.int32)),
            "_stream": pa.array(streams, TAIL["_stream"]),
            "_reason": pa.array(reasons, TAIL["_reason"]),
            "_record": pa.array(records, TAIL["_record"]),
        }
    )
