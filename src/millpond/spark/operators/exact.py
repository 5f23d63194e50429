"""The exact engine on Spark: partial synopses where the rows are read, the whole synopsis in the state store.

A small synopsis is one value of one shard.  A large one is divided into chunks by its join key.  The chunks
are spread over the shards, and a micro-batch loads and stores only the chunks that it changes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.exact.program import Program
from millpond.engines.exact.tables import SlotProgram, Synopsis
from millpond.models.arrays import Ints
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.row_kinds import RowKind
from millpond.spark.operators.output import report_row, result_rows
from millpond.spark.operators.payloads import SHARDS, payload_batch, split_rejected
from millpond.spark.operators.shard import WHOLE, ShardProcessor, worker_duckdb

# The key of a shard's totals over all chunks: entries, bytes, revision.
_TOTALS_KEY = -2
_TOTALS = struct.Struct("<qqq")
# Partial synopses are merged when there are more than this many.
_MAX_PARTIALS = 16


@dataclass(frozen=True)
class SynopsisMapper:
    """Summarises a task's rows of one stream as a partial synopsis, divided by shard."""

    program: Program
    stream: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = self.program.of_stream(self.stream)
        db = worker_duckdb()
        parts: list[Synopsis] = []
        for batch in batches:
            good, rejected = split_rejected(self.stream, batch)
            yield from rejected
            if slots and good.num_rows:
                parts.append(Synopsis.of_batch(db, slots, good))
                if len(parts) > _MAX_PARTIALS:
                    parts = [Synopsis.merged(db, slots, parts)]
        yield self._pack(slots, Synopsis.merged(db, slots, parts))

    def _pack(self, slots: Sequence[SlotProgram], whole: Synopsis) -> pa.RecordBatch:
        """A payload for every shard; an empty one where there is nothing, so that all report their size."""
        pieces = divide_synopsis(whole, slots, lambda chunks: chunks % SHARDS)
        payloads = []
        for shard in range(SHARDS if self.program.chunked else 1):
            tables = {**(pieces.get(WHOLE, {}) if shard == 0 else {}), **pieces.get(shard, {})}
            payloads.append(Synopsis(tables).to_bytes(self.program.slots, self.program.fingerprint))
        return payload_batch(payloads)


def divide_synopsis(
    synopsis: Synopsis, slots: Iterable[SlotProgram], place: Callable[[Ints], Ints]
) -> dict[int, dict[str, pa.Table]]:
    """Divide the tables by ``place`` of each row's chunk; WHOLE holds the slots that have no chunks."""
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


class SynopsisProcessor(ShardProcessor):
    """Holds the synopsis of a shard and answers the query from it."""

    def __init__(self, program: Program, width: int, types: Sequence[str] | None) -> None:
        super().__init__(width, types)
        self.program = program

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        db = worker_duckdb()
        slots, layout = self.program.slots, self.program.fingerprint
        parts = [Synopsis.from_bytes(data, slots, layout)[0] for data in payloads]
        return self._update(db, shard, Synopsis.merged(db, slots, parts))

    def _update(self, db: DuckDb, shard: int, new: Synopsis) -> Iterator[pa.Table]:
        """Merge the synopsis of a micro-batch into the state; yield what changes in the answer."""
        changed = sorted(divide_synopsis(new, self.program.slots, lambda chunks: chunks))
        has_whole = shard == 0 and any(not term.chunked for term in self.program.terms)
        if has_whole and WHOLE not in changed:
            changed.insert(0, WHOLE)
        held = {chunk: self._load(chunk) for chunk in changed}
        is_first = held.get(WHOLE) is None
        found = [stored for stored in held.values() if stored is not None]
        old = Synopsis(_concat_tables([stored.synopsis for stored in found]))
        totals = self._load_totals() if self.program.chunked else (0, 0, 0)
        revision = 1 + max([totals[2], *(stored.revision for stored in found)])
        if new.entries or (is_first and has_whole):
            now = Synopsis.merged(db, self.program.slots, [old, new])
            for term in self.program.terms:
                if term.chunked or has_whole:
                    changes = self.program.changes(db, term, (old, new, now), is_first, self.types)
                    yield from result_rows(db, changes, revision)
            size = self._store(now, changed, revision)
        else:
            now, size = old, sum(stored.size for stored in found)
        entries = now.entries
        if self.program.chunked:
            entries += totals[0] - old.entries
            size += totals[1] - sum(stored.size for stored in found)
            if changed:
                self.put_value(_TOTALS_KEY, _TOTALS.pack(entries, size, revision))
        yield report_row(RowKind.STATE, entries, size)

    # --- the state store ---------------------------------------------------------------------------

    def _load(self, chunk: int) -> _StoredChunk | None:
        data = self.get_value(chunk)
        if data is None:
            return None
        synopsis, revision = Synopsis.from_bytes(data, self.program.slots, self.program.fingerprint, chunk)
        return _StoredChunk(synopsis, revision, len(data))

    def _store(self, now: Synopsis, changed: Iterable[int], revision: int) -> int:
        """Store the changed chunks; return their size in bytes."""
        pieces: Mapping[int, dict[str, pa.Table]] = divide_synopsis(
            now, self.program.slots, lambda chunks: chunks
        )
        size = 0
        for chunk in changed:
            data = Synopsis(pieces.get(chunk, {})).to_bytes(
                self.program.slots, self.program.fingerprint, revision, chunk
            )
            self.put_value(chunk, data)
            size += len(data)
        return size

    def _load_totals(self) -> tuple[int, int, int]:
        data = self.get_value(_TOTALS_KEY)
        return (0, 0, 0) if data is None else _TOTALS.unpack(data)


@dataclass(frozen=True)
class _StoredChunk:
    """A chunk of the synopsis as it was stored, with its size in bytes."""

    synopsis: Synopsis
    revision: int
    size: int


def _concat_tables(parts: Sequence[Synopsis]) -> dict[str, pa.Table]:
    """The tables of chunks, which have no rows in common."""
    names = dict.fromkeys(name for part in parts for name in part.tables)
    return {name: pa.concat_tables([p.tables[name] for p in parts if name in p.tables]) for name in names}
