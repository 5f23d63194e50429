"""The exact engine on Spark: partial synopses where the rows are read, the whole synopsis in the state store.

A small synopsis is one value of one shard.  A large one is divided into chunks by its join key.  The chunks
are spread over the shards, and a micro-batch loads and stores only the chunks that it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.exact.execute import SynopsisVersions, find_changes
from millpond.engines.exact.program import ExactProgram, SlotProgram
from millpond.engines.exact.state import (
    TOTALS_KEY,
    WHOLE_KEY,
    ShardTotals,
    decode_synopsis,
    decode_totals,
    encode_synopsis,
    encode_totals,
)
from millpond.engines.exact.synopsis import Synopsis
from millpond.models.array_types import Ints
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.row_kinds import KIND, RowKind
from millpond.spark.operators.block_input import BlockInput
from millpond.spark.operators.output import build_report_row, build_result_rows
from millpond.spark.operators.payloads import SHARDS, build_payload_batch, split_rejected
from millpond.spark.operators.shard import ShardProcessor, get_worker_duckdb

# Partial synopses are merged when there are more than this many.
_MAX_PARTIALS = 16


@dataclass(frozen=True)
class SynopsisMapper:
    """Summarises a task's rows of one stream as a partial synopsis, divided by shard.

    The stream may be a block; its notes pass through.
    """

    program: ExactProgram
    stream: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = self.program.slots_of(self.stream)
        db = get_worker_duckdb()
        parts: list[Synopsis] = []
        block = BlockInput(None)
        for batch in batches:
            is_block = KIND in batch.schema.names
            good, notes = block.split(batch) if is_block else split_rejected(self.stream, batch)
            yield from notes
            if slots and good.num_rows:
                parts.append(Synopsis.of_batch(db, slots, good))
                if len(parts) > _MAX_PARTIALS:
                    parts = [Synopsis.merge(db, slots, parts)]
        yield self._pack(slots, Synopsis.merge(db, slots, parts))

    def _pack(self, slots: Sequence[SlotProgram], whole: Synopsis) -> pa.RecordBatch:
        """A payload for every shard; an empty one where there is nothing, so that all report their size."""
        pieces = divide_synopsis(whole, slots, lambda chunks: chunks % SHARDS)
        payloads = []
        for shard in range(SHARDS if self.program.chunked else 1):
            tables = {**(pieces.get(WHOLE_KEY, {}) if shard == 0 else {}), **pieces.get(shard, {})}
            payloads.append(encode_synopsis(Synopsis(tables), self.program.slots, self.program.fingerprint))
        return build_payload_batch(payloads)


def divide_synopsis(
    synopsis: Synopsis, slots: Iterable[SlotProgram], place: Callable[[Ints], Ints]
) -> dict[int, dict[str, pa.Table]]:
    """Group rows by ``place`` of their chunk, such as the shard; slots without chunks go under WHOLE_KEY."""
    pieces: dict[int, dict[str, pa.Table]] = {}
    for slot in slots:
        table = synopsis.tables.get(slot.name)
        if table is None:
            continue
        if slot.chunk is None:
            pieces.setdefault(WHOLE_KEY, {})[slot.name] = table
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

    def __init__(self, program: ExactProgram, width: int, types: Sequence[str] | None) -> None:
        super().__init__(width, types)
        self.program = program

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        db = get_worker_duckdb()
        slots, fingerprint = self.program.slots, self.program.fingerprint
        parts = [decode_synopsis(data, slots, fingerprint)[0] for data in payloads]
        return self._update(db, shard, Synopsis.merge(db, slots, parts))

    def _update(self, db: DuckDb, shard: int, new: Synopsis) -> Iterator[pa.Table]:
        """Merge the synopsis of a micro-batch into the state; yield what changes in the answer."""
        changed = sorted(divide_synopsis(new, self.program.slots, lambda chunks: chunks))
        has_whole = shard == 0 and any(not term.chunked for term in self.program.terms)
        if has_whole and WHOLE_KEY not in changed:
            changed.insert(0, WHOLE_KEY)
        held = {chunk: self._load(chunk) for chunk in changed}
        is_first = held.get(WHOLE_KEY) is None
        found = [stored for stored in held.values() if stored is not None]
        old = Synopsis(_concat_tables([stored.synopsis for stored in found]))
        totals = self._load_totals() if self.program.chunked else ShardTotals(0, 0, 0)
        revision = 1 + max([totals.revision, *(stored.revision for stored in found)])
        if new.entries or (is_first and has_whole):
            now = Synopsis.merge(db, self.program.slots, [old, new])
            versions = SynopsisVersions(old, new, now)
            for term in self.program.terms:
                if term.chunked or has_whole:
                    changes = find_changes(db, self.program, term, versions, is_first, self.types)
                    yield from build_result_rows(db, changes, revision)
            size = self._store(now, changed, revision)
        else:
            now, size = old, sum(stored.size for stored in found)
        entries = now.entries
        if self.program.chunked:
            entries += totals.entries - old.entries
            size += totals.bytes - sum(stored.size for stored in found)
            if changed:
                self.put_value(TOTALS_KEY, encode_totals(ShardTotals(entries, size, revision)))
        yield build_report_row(RowKind.STATE, entries, size)

    # --- the state store ---------------------------------------------------------------------------

    def _load(self, chunk: int) -> _StoredChunk | None:
        data = self.get_value(chunk)
        if data is None:
            return None
        synopsis, revision = decode_synopsis(data, self.program.slots, self.program.fingerprint, chunk)
        return _StoredChunk(synopsis, revision, len(data))

    def _store(self, now: Synopsis, changed: Iterable[int], revision: int) -> int:
        """Store the changed chunks; return their size in bytes."""
        pieces: Mapping[int, dict[str, pa.Table]] = divide_synopsis(
            now, self.program.slots, lambda chunks: chunks
        )
        size = 0
        for chunk in changed:
            piece = Synopsis(pieces.get(chunk, {}))
            data = encode_synopsis(piece, self.program.slots, self.program.fingerprint, revision, chunk)
            self.put_value(chunk, data)
            size += len(data)
        return size

    def _load_totals(self) -> ShardTotals:
        data = self.get_value(TOTALS_KEY)
        return ShardTotals(0, 0, 0) if data is None else decode_totals(data)


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
