"""Synopses as values: built from batches of rows, and merged.

A synopsis is one Arrow table for each slot.  Merging is associative and commutative, and the empty synopsis
is neutral, so partial synopses may be built in any task and merged in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.exact.program import SlotProgram
from millpond.errors import MillpondError
from millpond.runtime.duckdb import DuckDb


@dataclass(frozen=True)
class Synopsis:
    """The tables of some slots, by name; a slot without rows may be absent."""

    tables: Mapping[str, pa.Table]

    @staticmethod
    def empty() -> Synopsis:
        return Synopsis({})

    @staticmethod
    def of_batch(db: DuckDb, slots: Iterable[SlotProgram], batch: pa.RecordBatch | pa.Table) -> Synopsis:
        """The synopsis of a batch of ingested rows of one stream."""
        tables = {}
        for slot in slots:
            table = db.query(slot.reduce, {"batch": batch})
            if table.num_rows:
                tables[slot.name] = table.cast(slot.schema)
        return Synopsis(tables)

    @staticmethod
    def merge(db: DuckDb, slots: Iterable[SlotProgram], parts: Iterable[Synopsis]) -> Synopsis:
        """The synopsis of all rows of the parts."""
        parts = list(parts)
        tables = {}
        for slot in slots:
            found = [part.tables[slot.name] for part in parts if slot.name in part.tables]
            if len(found) == 1:
                tables[slot.name] = found[0]
            elif found and slot.is_count:
                tables[slot.name] = _add_counts(slot, found)
            elif found and slot.is_presence and len(slot.key) == 1:
                tables[slot.name] = _unite_classes(slot, found)
            elif found:
                rows = pa.concat_tables(found)
                tables[slot.name] = db.query(slot.merge, {"rows": rows}).cast(slot.schema)
        return Synopsis(tables)

    @property
    def entries(self) -> int:
        """The number of rows in all tables."""
        return sum(table.num_rows for table in self.tables.values())

    def table(self, slot: SlotProgram) -> pa.Table:
        return self.tables.get(slot.name, slot.empty())


def _add_counts(slot: SlotProgram, parts: Sequence[pa.Table]) -> pa.Table:
    """The sum of tables of counts; it costs little more than a copy of the largest table."""
    largest, *others = sorted((_sort_by_key(part) for part in parts), key=lambda p: -p.num_rows)
    key = slot.stored_schema.names[0]
    for other in others:
        mine, theirs = largest.column(key).to_numpy(), other.column(key).to_numpy()
        at = np.searchsorted(mine, theirs)
        known = mine[np.minimum(at, len(mine) - 1)] == theirs
        counts = largest.column("n").to_numpy().copy()
        counts[at[known]] += other.column("n").to_numpy()[known]
        if (counts[at[known]] < 0).any():
            raise MillpondError("a value does not fit its type: a count of rows exceeds BIGINT")
        columns = []
        for field in slot.schema:
            ours = counts if field.name == "n" else largest.column(field.name).to_numpy()
            missing = other.column(field.name).to_numpy()[~known]
            columns.append(pa.array(np.insert(ours, at[~known], missing), field.type))
        largest = pa.Table.from_arrays(columns, schema=slot.schema)
    return largest


def _unite_classes(slot: SlotProgram, parts: Sequence[pa.Table]) -> pa.Table:
    """The union of tables of classes."""
    rows = pa.concat_tables(parts)
    _, first = np.unique(rows.column(slot.key[0]).to_numpy(), return_index=True)
    return rows if len(first) == rows.num_rows else rows.take(pa.array(first))


def _sort_by_key(table: pa.Table) -> pa.Table:
    """The table sorted by its first column."""
    keys = table.column(0).to_numpy()
    return table if (keys[1:] > keys[:-1]).all() else table.take(pa.array(np.argsort(keys)))
