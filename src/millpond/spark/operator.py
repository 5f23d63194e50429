"""The operator: partial synopses where the rows are read, the whole of it in Spark's state store.

``Partial`` runs over Arrow batches of ingested rows and sends one small payload a shard.  ``Keeper``
merges what arrives into the state, and emits what the batch adds to the answer.  A small synopsis is one
value of one shard; a large one is cut into chunks by its join key, the chunks are dealt out to the
shards, and a batch loads and stores only those that it touches.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millpond.engines.exact.program import Program
from millpond.engines.exact.tables import SlotProgram, Synopsis
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.row_kinds import RowKind
from millpond.runtime.terms import TermSql

if TYPE_CHECKING:
    import pandas as pd

# Large synopses are spread over so many groups; part of the state's layout, so it never changes.
SHARDS = 32
# The key of what is not cut into chunks, and of a shard's own record: entries, bytes, revision.
WHOLE, RECORD = -1, -2
_RECORD = struct.Struct("<qqq")
# Partial synopses are merged before more than this wait.
_WAITING = 16
# A result that occurs more often is sent as several, so that none grows large when it is repeated.
MOST_REPEATED = 100_000
_REPEATED = f"""
    SELECT * EXCLUDE (i) REPLACE (least(w - i * {MOST_REPEATED}, {MOST_REPEATED}) AS w)
    FROM (SELECT *, unnest(range((w - 1) // {MOST_REPEATED} + 1)) AS i FROM found)
"""

PARTIAL_SCHEMA = "shard INT, payload BINARY, stream STRING, reason STRING, record STRING"
PARTIAL_ARROW = pa.schema(
    [
        ("shard", pa.int32()),
        ("payload", pa.binary()),
        ("stream", pa.string()),
        ("reason", pa.string()),
        ("record", pa.string()),
    ]
)

# What leaves the operator beside the columns of the select list.
TAIL = {
    "_weight": pa.int32(),
    "_revision": pa.int64(),
    "_retracted": pa.bool_(),
    "_kind": pa.int8(),
    "_entries": pa.int64(),
    "_bytes": pa.int64(),
    "_stream": pa.string(),
    "_reason": pa.string(),
    "_record": pa.string(),
}
TAIL_SCHEMA = (
    "_weight INT, _revision BIGINT, _retracted BOOLEAN, _kind TINYINT, _entries BIGINT, _bytes BIGINT, "
    "_stream STRING, _reason STRING, _record STRING"
)


@lru_cache(maxsize=2)
def worker_engine(threads: int = 1) -> DuckDb:
    """The DuckDB of this worker process."""
    return DuckDb(threads)


@dataclass(frozen=True)
class Partial:
    """Summarises a task's rows of one stream; ``reason`` and ``record`` name the columns of rejected rows."""

    program: Program
    stream: str
    reason: str | None = None
    record: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = self.program.of_stream(self.stream)
        engine = worker_engine()
        parts: list[Synopsis] = []
        for batch in batches:
            if self.reason is not None:
                batch, rejected = self._parted(batch)
                if rejected.num_rows:
                    yield rejected
            if slots and batch.num_rows:
                parts.append(Synopsis.of_batch(engine, slots, batch))
                if len(parts) > _WAITING:
                    parts = [Synopsis.merged(engine, slots, parts)]
        whole = Synopsis.merged(engine, slots, parts)
        yield self._payloads(slots, whole)

    def _parted(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The good rows, and the rejected ones."""
        assert self.reason is not None and self.record is not None
        reasons = batch.column(self.reason)
        bad = batch.filter(reasons.is_valid())
        rejected = rejected_table(self.stream, bad.column(self.reason), bad.column(self.record))
        return batch.filter(reasons.is_null()), rejected

    def _payloads(self, slots: Sequence[SlotProgram], whole: Synopsis) -> pa.RecordBatch:
        """A payload for every shard: an empty one where there is nothing, so that all report their size."""
        pieces = _cut(whole, slots, lambda chunk: chunk % SHARDS)
        shards = range(SHARDS) if self.program.chunked else range(1)
        payloads = []
        for shard in shards:
            tables = {**(pieces.get(WHOLE, {}) if shard == 0 else {}), **pieces.get(shard, {})}
            payloads.append(Synopsis(tables).to_bytes(self.program.slots, self.program.fingerprint))
        count = len(payloads)
        nothing = pa.nulls(count, pa.string())
        return pa.RecordBatch.from_arrays(
            [pa.array(shards, pa.int32()), pa.array(payloads, pa.binary()), nothing, nothing, nothing],
            schema=PARTIAL_ARROW,
        )


def rejected_table(stream: str, reasons: pa.Array, records: pa.Array) -> pa.RecordBatch:
    """Rejected rows as rows for a shard without state."""
    count = len(reasons)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(-1 - (np.arange(count) % SHARDS), pa.int32()),
            pa.nulls(count, pa.binary()),
            pa.array([stream] * count, pa.string()),
            reasons.cast(pa.string()),
            records.cast(pa.string()),
        ],
        schema=PARTIAL_ARROW,
    )


def _cut(synopsis: Synopsis, slots: Iterable[SlotProgram], place: Any) -> dict[int, dict[str, pa.Table]]:
    """The tables by the place of their rows' chunks; WHOLE for slots that are not cut."""
    pieces: dict[int, dict[str, pa.Table]] = {}
    for slot in slots:
        table = synopsis.tables.get(slot.name)
        if table is None:
            continue
        if slot.chunk is None:
            pieces.setdefault(WHOLE, {})[slot.name] = table
            continue
        places = place(table.column(slot.chunk).to_numpy())
        if (places[1:] < places[:-1]).any():
            order = np.argsort(places, kind="stable")
            table, places = table.take(pa.array(order)), places[order]
        starts = np.flatnonzero(np.diff(places, prepend=places[0] - 1))
        for start, end in zip(starts, [*starts[1:], len(places)], strict=True):
            pieces.setdefault(int(places[start]), {})[slot.name] = table.slice(start, end - start)
    return pieces


class Shard(StatefulProcessor):
    """What holds the state of a shard has in common: bytes by number, and rejected rows that pass through."""

    def __init__(self, width: int, types: Sequence[str] | None) -> None:
        self.width = width  # of the select list
        self.types = types  # its types in DuckDB; None leaves them as they come

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
                yield framed(_rejected_rows(pa.Table.from_pandas(frame, preserve_index=False)), self.width)
            return
        payloads = [data for frame in rows for data in frame["payload"]]
        yield from (framed(table, self.width) for table in self.answered(int(shard), payloads))

    @abstractmethod
    def answered(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        """What a batch adds to the answer, and reports, from what its tasks sent."""

    def value(self, key: int) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def keep(self, key: int, data: bytes) -> None:
        self._state.updateValue((key,), (data,))


class Keeper(Shard):
    """Holds the synopsis of a shard and answers from it."""

    def __init__(self, program: Program, width: int, types: Sequence[str] | None) -> None:
        super().__init__(width, types)
        self.program = program

    def answered(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        engine = worker_engine()
        slots, layout = self.program.slots, self.program.fingerprint
        parts = [Synopsis.from_bytes(data, slots, layout)[0] for data in payloads]
        return self._updated(engine, shard, Synopsis.merged(engine, slots, parts))

    # --- one batch ---------------------------------------------------------------------------------

    def _updated(self, engine: DuckDb, shard: int, new: Synopsis) -> Iterator[pa.Table]:
        touched = sorted(_cut(new, self.program.slots, lambda chunk: chunk))
        has_whole = shard == 0 and any(not term.chunked for term in self.program.terms)
        if has_whole and WHOLE not in touched:
            touched.insert(0, WHOLE)
        held = {chunk: self._load(chunk) for chunk in touched}
        first = held.get(WHOLE) is None
        found = [known for known in held.values() if known is not None]
        old = Synopsis(_side_by_side([synopsis for synopsis, _, _ in found]))
        record = self._record() if self.program.chunked else [0, 0, 0]
        revision = 1 + max([record[2], *(r for _, r, _ in found)], default=0)
        if new.entries or (first and has_whole):
            now = Synopsis.merged(engine, self.program.slots, [old, new])
            for term in self.program.terms:
                if term.chunked or has_whole:
                    yield from self._emitted(engine, term, (old, new, now), first, revision)
            stored = self._store(now, touched, revision)
        else:
            now, stored = old, sum(size for _, _, size in found)
        entries, size = now.entries, stored
        if self.program.chunked:
            entries += record[0] - old.entries
            size += record[1] - sum(s for _, _, s in found)
            if touched:
                self.keep(RECORD, _RECORD.pack(entries, size, revision))
        yield one_row(RowKind.STATE, _entries=entries, _bytes=size)

    def _emitted(
        self,
        engine: DuckDb,
        term: TermSql,
        states: tuple[Synopsis, Synopsis, Synopsis],
        first: bool,
        revision: int,
    ) -> Iterator[pa.Table]:
        rows = self.program.changes(engine, term, states, first, self.types)
        yield from emitted_rows(engine, rows, revision)

    # --- state -------------------------------------------------------------------------------------

    def _load(self, chunk: int) -> tuple[Synopsis, int, int] | None:
        """A chunk of the state with its revision and its size."""
        data = self.value(chunk)
        if data is None:
            return None
        return (*Synopsis.from_bytes(data, self.program.slots, self.program.fingerprint, chunk), len(data))

    def _store(self, now: Synopsis, touched: Iterable[int], revision: int) -> int:
        pieces: Mapping[int, dict[str, pa.Table]] = _cut(now, self.program.slots, lambda chunk: chunk)
        size = 0
        for chunk in touched:
            data = Synopsis(pieces.get(chunk, {})).to_bytes(
                self.program.slots, self.program.fingerprint, revision, chunk
            )
            self.keep(chunk, data)
            size += len(data)
        return size

    def _record(self) -> list[int]:
        data = self.value(RECORD)
        return [0, 0, 0] if data is None else list(_RECORD.unpack(data))


def _side_by_side(parts: Sequence[Synopsis]) -> dict[str, pa.Table]:
    """Tables of chunks that have no rows in common."""
    names = dict.fromkeys(name for part in parts for name in part.tables)
    return {name: pa.concat_tables([p.tables[name] for p in parts if name in p.tables]) for name in names}


def emitted_rows(engine: DuckDb, rows: pa.Table, revision: int) -> Iterator[pa.Table]:
    """What is added to the answer, ready to leave."""
    if not rows.num_rows:
        return
    if rows.column("w").to_numpy().max() > MOST_REPEATED:
        rows = engine.query(_REPEATED, {"found": rows})
    weights = rows.column("w").cast(pa.int32())
    rows = rows.append_column("_weight", weights).rename_columns({"retracted": "_retracted"})
    count = rows.num_rows
    yield rows.append_column("_revision", pa.array(np.full(count, revision))).append_column(
        "_kind", pa.array(np.full(count, RowKind.RESULT, np.int8))
    )


def framed(table: pa.Table, width: int) -> pd.DataFrame:
    """A table with all columns that leave the operator, in order; ``width`` is that of the select list."""
    import pandas as pd

    columns = {f"o{i}": pa.null() for i in range(width)} | TAIL
    arrays = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows, kind)
        for name, kind in columns.items()
    ]
    whole = pa.table(arrays, names=list(columns)).combine_chunks()  # PySpark takes no column in pieces
    return whole.to_pandas(types_mapper=pd.ArrowDtype)


def one_row(kind: int, **values: int) -> pa.Table:
    """A single row of a kind."""
    columns = {"_kind": kind, "_weight": 1, **values}
    return pa.table({name: pa.array([value], TAIL[name]) for name, value in columns.items()})


def measure_row(name: str, value: int) -> pa.Table:
    """A measure of what the batch did."""
    return one_row(RowKind.MEASURE, _entries=value).append_column("_reason", pa.array([name]))


def _rejected_rows(table: pa.Table) -> pa.Table:
    """Rejected rows on their way out."""
    columns = {f"_{name}": table.column(name).cast(pa.string()) for name in ("stream", "reason", "record")}
    columns["_kind"] = pa.array(np.full(table.num_rows, RowKind.REJECTED, np.int8))
    columns["_weight"] = pa.array(np.ones(table.num_rows, np.int32))
    return pa.table(columns)
