"""The operator for queries in time: rows are gathered where they are read, wait, and go on in time order.

``TimedPartial`` gathers the rows of a task.  ``TimedKeeper`` holds the waiting room and the partial matches
in Spark's state store, and emits what the rows that go on add to the answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millpond.spark.operator import (
    PARTIAL_ARROW,
    REJECTED,
    STATE,
    TAIL,
    WAIT,
    WHOLE,
    emitted_rows,
    framed,
    one_row,
    rejected_rows,
    rejected_table,
    worker_engine,
)
from millpond.synopsis.tables import Engine, packed_tables, unpacked_tables
from millpond.timed.execute import advance
from millpond.timed.program import FeedProgram, TimedProgram
from millpond.timed.room import END, Passage, Room, late_records, opened, passed, payload, restored, stored

if TYPE_CHECKING:
    import pandas as pd

# The keys of the waiting room, and of the partial matches and results.
_ROOM, _MATCHES = -3, WHOLE
# The column with a row's moment, whether the row matters or not.
CLOCK = "_clock"
LATE = "late"


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


class TimedKeeper(StatefulProcessor):
    """Holds the waiting room and the partial matches.

    Time has one order, so one task does the work of a batch, on all cores of its machine.
    """

    def __init__(self, program: TimedProgram, width: int, types: Sequence[str] | None) -> None:
        self.program = program
        self.width = width
        self.types = types

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("synopsis", "chunk INT", "data BINARY")

    def close(self) -> None:
        pass

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        (shard,) = key
        if shard < 0:
            for frame in rows:
                yield self._framed(rejected_rows(pa.Table.from_pandas(frame, preserve_index=False)))
            return
        payloads = [data for frame in rows for data in frame["payload"]]
        engine = worker_engine(os.cpu_count() or 1)
        yield from (self._framed(table) for table in self._batch(engine, payloads))

    def _framed(self, table: pa.Table) -> pd.DataFrame:
        return framed(table, self.width)

    # --- one batch -------------------------------------------------------------------------------------

    def _batch(self, engine: Engine, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        program = self.program
        held = self._value(_ROOM)
        room = Room() if held is None else restored(program, held)
        data = self._value(_MATCHES)
        kept, revision = ({}, 0) if data is None else unpacked_tables(data, program.kept, program.fingerprint)
        passage = self._passed(room, payloads)
        if passage.late:
            yield _reported(self._late(passage))
        size = 0 if data is None else len(data)
        if passage.ready or data is None:
            step = advance(engine, program, kept, passage.ready, passage.room.final)
            for term in program.terms:
                tables = {f"{name}_new": table for name, table in step.added.items() if name in term.slots}
                for name in term.slots:
                    if name in program.kept:
                        empty = program.kept[name].empty_table()
                        tables[f"{name}_old"] = kept.get(name, empty)
                        tables[f"{name}_now"] = step.kept.get(name, empty)
                found = engine.query(term.changes_sql(self.types, data is None), tables)
                yield from emitted_rows(engine, found, revision + 1)
            kept = step.kept
            packed = packed_tables(kept, program.kept, program.fingerprint, revision + 1)
            self._state.updateValue((_MATCHES,), (packed,))
            size = len(packed)
        waiting = stored(program, passage.room)
        self._state.updateValue((_ROOM,), (waiting,))
        entries = sum(table.num_rows for table in kept.values())
        yield one_row(STATE, _entries=entries, _bytes=size + len(waiting))
        yield one_row(WAIT, _entries=passage.room.rows, _bytes=0)

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

    def _late(self, passage: Passage) -> list[tuple[str, str, str]]:
        """Late rows with the reason; of a stream that is taken in several ways, each row once."""
        out: list[tuple[str, str, str]] = []
        seen: set[str] = set()
        for feed in self.program.feeds:
            if feed.name in passage.late and feed.stream not in seen:
                seen.add(feed.stream)
                clock = next(c for c in self.program.clocks if c.stream == feed.stream)
                out += _late_rows(feed, clock.column, passage.late[feed.name])
        return out

    def _value(self, key: int) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])


def _late_rows(feed: FeedProgram, clock: str, rows: pa.Table) -> list[tuple[str, str, str]]:
    """Late rows with the reason: their time, and the columns that the query uses."""
    out = []
    for late in late_records(feed, rows):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=late.moment)
        record = {clock: moment.isoformat(), **late.values}
        reason = f"{LATE}: every stream had moved past {moment:%Y-%m-%d %H:%M:%S.%f} UTC"
        out.append((feed.stream, reason, json.dumps(record, default=str)))
    return out


def _reported(rows: Sequence[tuple[str, str, str]]) -> pa.Table:
    streams, reasons, records = zip(*rows, strict=True)
    return pa.table(
        {
            "_kind": pa.array(np.full(len(rows), REJECTED, np.int8)),
            "_weight": pa.array(np.ones(len(rows), np.int32)),
            "_stream": pa.array(streams, TAIL["_stream"]),
            "_reason": pa.array(reasons, TAIL["_reason"]),
            "_record": pa.array(records, TAIL["_record"]),
        }
    )
