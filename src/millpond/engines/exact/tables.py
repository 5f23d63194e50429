"""Synopses as values: they start empty, take in batches of rows, merge, and go to bytes and back.

A synopsis is a few Arrow tables, one a slot.  DuckDB does the work on them.  Merging is associative and
commutative, and the empty synopsis changes nothing, so that parts of it may be built anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from millpond.engines.exact.place import Place
from millpond.errors import MillpondError
from millpond.runtime.arrow_ipc import schema_from_bytes
from millpond.runtime.codec import (
    decode_tables,
    encode_tables,
)
from millpond.runtime.duckdb import DuckDb


@dataclass(frozen=True)
class SlotProgram:
    """What is done with one table of the synopsis: SQL over ``batch`` and over ``rows``.

    ``presence``: all that is kept of a class is that there was a row.  Where it is cut, ``chunk`` is the
    column with the number of a row's chunk, and ``place`` tells where in the cut it lies, if its key does.
    """

    name: str
    stream: str
    chunk: str | None
    place: Place | None
    presence: bool
    reduce: str
    merge: str
    schema_bytes: bytes

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """Without the number of the chunk, which is the same in all of a chunk."""
        return pa.schema([f for f in self.schema if f.name != self.chunk])

    @property
    def key(self) -> list[str]:
        """The columns that tell classes apart."""
        return [name for name in self.stored_schema.names if name.startswith(f"{self.name}_k")]

    @property
    def counts_only(self) -> bool:
        """A row is a key of one word and a count."""
        return bool(self.stored_schema.names[1:] == ["n"])

    def empty(self) -> pa.Table:
        return self.schema.empty_table()


@dataclass(frozen=True)
class Synopsis:
    """The tables of some slots, by name; a slot without rows may be absent."""

    tables: Mapping[str, pa.Table]

    @staticmethod
    def empty() -> Synopsis:
        return Synopsis({})

    @staticmethod
    def of_batch(db: DuckDb, slots: Iterable[SlotProgram], batch: pa.RecordBatch | pa.Table) -> Synopsis:
        """What a batch of ingested rows of one stream adds to its slots."""
        tables = {}
        for slot in slots:
            table = db.query(slot.reduce, {"batch": batch})
            if table.num_rows:
                tables[slot.name] = table.cast(slot.schema)
        return Synopsis(tables)

    @staticmethod
    def merged(db: DuckDb, slots: Iterable[SlotProgram], parts: Iterable[Synopsis]) -> Synopsis:
        """What all parts hold together."""
        parts = list(parts)
        tables = {}
        for slot in slots:
            found = [part.tables[slot.name] for part in parts if slot.name in part.tables]
            if len(found) == 1:
                tables[slot.name] = found[0]
            elif found and slot.counts_only:
                tables[slot.name] = _counts_added(slot, found)
            elif found and slot.presence and len(slot.key) == 1:
                tables[slot.name] = _united(slot, found)
            elif found:
                rows = pa.concat_tables(found)
                tables[slot.name] = db.query(slot.merge, {"rows": rows}).cast(slot.schema)
        return Synopsis(tables)

    @property
    def entries(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    def table(self, slot: SlotProgram) -> pa.Table:
        return self.tables.get(slot.name, slot.empty())

    def to_bytes(
        self, slots: Iterable[SlotProgram], fingerprint: bytes, revision: int = 0, chunk: int | None = None
    ) -> bytes:
        """The synopsis as bytes that name their version and the layout they follow.

        All rows being of one ``chunk``, its number is left out.
        """
        shapes = {s.name: s.schema if chunk is None else s.stored_schema for s in slots}
        return encode_tables(self.tables, shapes, fingerprint, revision)

    @staticmethod
    def from_bytes(
        data: bytes, slots: Iterable[SlotProgram], fingerprint: bytes, chunk: int | None = None
    ) -> tuple[Synopsis, int]:
        """The synopsis and its revision; StateError where the bytes are not of this version and layout."""
        slots = list(slots)
        shapes = {s.name: s.schema if chunk is None else s.stored_schema for s in slots}
        tables, revision = decode_tables(data, shapes, fingerprint)
        for slot in slots:
            if slot.chunk is not None and chunk is not None and slot.name in tables:
                table = tables[slot.name]
                numbers = pa.array(np.full(table.num_rows, chunk, np.int32))
                tables[slot.name] = table.append_column(slot.chunk, numbers).select(slot.schema.names)
        return Synopsis(tables), revision


def _counts_added(slot: SlotProgram, parts: Sequence[pa.Table]) -> pa.Table:
    """Tables of counts added up, at a cost that is nearly that of copying the largest."""
    largest, *others = sorted((_by_key(part) for part in parts), key=lambda p: -p.num_rows)
    key = slot.stored_schema.names[0]
    for other in others:
        mine, theirs = largest.column(key).to_numpy(), other.column(key).to_numpy()
        at = np.searchsorted(mine, theirs)
        known = mine[np.minimum(at, len(mine) - 1)] == theirs
        counts = largest.column("n").to_numpy().copy()
        counts[at[known]] += other.column("n").to_numpy()[known]
        if (counts[at[known]] < 0).any():
            raise MillpondError("a value does not fit its type: a number of rows is beyond BIGINT")
        columns = []
        for field in slot.schema:
            ours = counts if field.name == "n" else largest.column(field.name).to_numpy()
            missing = other.column(field.name).to_numpy()[~known]
            columns.append(pa.array(np.insert(ours, at[~known], missing), field.type))
        largest = pa.Table.from_arrays(columns, schema=slot.schema)
    return largest


def _united(slot: SlotProgram, parts: Sequence[pa.Table]) -> pa.Table:
    """Tables of classes that were seen, each class once."""
    rows = pa.concat_tables(parts)
    _, first = np.unique(rows.column(slot.key[0]).to_numpy(), return_index=True)
    return rows if len(first) == rows.num_rows else rows.take(pa.array(first))


def _by_key(table: pa.Table) -> pa.Table:
    """The table in the order of its first column."""
    keys = table.column(0).to_numpy()
    return table if (keys[1:] > keys[:-1]).all() else table.take(pa.array(np.argsort(keys)))
