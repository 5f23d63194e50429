"""DISTINCT and GROUP BY in bounded memory: held rows and groups are exact, evicted ones never emitted again.

DISTINCT holds the first rows.  A Bloom filter remembers the rows that no longer fit, and rows that it
contains are not emitted again; a false positive is a missed row.  GROUP BY evicts the groups that changed
longest ago.  The filter remembers them, so they are not started again with only part of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.bloom_filter import BloomFilter
from millpond.engines.budgeted.program import GroupProgram
from millpond.models.array_types import Ints
from millpond.runtime.duckdb import DuckDb


@dataclass(frozen=True)
class LostRows:
    """Rows or matches that a batch found, and how many it lost: the expected number and its variance."""

    found: int = 0
    lost: float = 0.0
    variance: float = 0.0

    def __add__(self, other: LostRows) -> LostRows:
        return LostRows(self.found + other.found, self.lost + other.lost, self.variance + other.variance)


class DistinctRows:
    """The rows of a DISTINCT that are held."""

    def __init__(
        self, engine: DuckDb, schema: pa.Schema, held: pa.Table | None, bloom_filter: BloomFilter
    ) -> None:
        self._engine = engine
        self._schema = schema
        self.held = schema.empty_table() if held is None else held
        self.filter = bloom_filter
        self.shed = 0
        self.counted = LostRows()

    def add(self, matches: Sequence[pa.Table], room: int) -> pa.Table:
        """Returns the rows that were never emitted before, and holds as many as there is room for."""
        found = pa.concat_tables([each.cast(self._schema) for each in matches])
        columns = ", ".join(self._schema.names)
        unheld = self._engine.query(
            f"SELECT {columns} FROM found EXCEPT SELECT {columns} FROM held",
            {"found": found, "held": self.held},
        ).cast(self._schema)
        seen = self.filter.contains(hash_rows(self._engine, unheld, self._schema.names))
        new = unheld.filter(pa.array(~seen))
        rate = self.filter.false_positive_rate
        passed = max(1 - rate, 1e-9)  # a new row passes the filter with this probability
        expected = new.num_rows * rate / passed
        self.counted = LostRows(new.num_rows, expected, expected / passed)
        together = pa.concat_tables([self.held, new])
        self.held, evicted = together.slice(0, room), together.slice(room)
        self.filter.add(hash_rows(self._engine, evicted, self._schema.names))
        self.shed = evicted.num_rows
        return new


class HeldGroups:
    """The groups of a select that are held, each with the batch in which it last changed."""

    def __init__(
        self, engine: DuckDb, groups: GroupProgram, held: pa.Table | None, bloom_filter: BloomFilter
    ) -> None:
        self._engine = engine
        self._groups = groups
        self._schema = held_groups_schema(groups)
        self._keys = groups.key_names
        self._same_key = " AND ".join(f"a.{k} IS NOT DISTINCT FROM b.{k}" for k in self._keys) or "TRUE"
        self._is_first_batch = held is None
        self.held = self._schema.empty_table() if held is None else held
        self.filter = bloom_filter
        self.shed = 0
        self.counted = LostRows()

    def add(self, matches: pa.Table, room: int, batch: int, names: Sequence[str]) -> pa.Table:
        """Returns the result rows of the groups that changed: the columns ``names``, and ``retracted``."""
        groups, schema = self._groups, self._groups.schema
        old = self.held.select(schema.names)
        new = self._engine.query(groups.partial, {"matches": matches}).cast(schema)
        if groups.keys:
            new = self._drop_evicted(old, new)
        now = self._engine.query(groups.merge, {"rows": pa.concat_tables([old, new])}).cast(schema)
        if not groups.keys:
            old, now = (_add_global_group(schema, table) for table in (old, now))
        changes = self._find_changes(old, new, now, names)
        self._hold(new, now, room, batch)
        return changes

    def _drop_evicted(self, old: pa.Table, new: pa.Table) -> pa.Table:
        """Drops the groups that were evicted earlier, and counts their matches as missed."""
        is_held = np.zeros(new.num_rows, bool)
        numbered = new.append_column("place", pa.array(np.arange(new.num_rows)))
        found = self._engine.query(
            f"SELECT a.place FROM new a WHERE EXISTS (SELECT 1 FROM old b WHERE {self._same_key})",
            {"new": numbered, "old": old},
        )
        is_held[found.column("place").to_numpy()] = True
        is_evicted = ~is_held & self.filter.contains(hash_rows(self._engine, new, self._keys))
        matches = new.column("matches").to_numpy()
        self.counted = LostRows(int(matches[~is_evicted].sum()), float(matches[is_evicted].sum()))
        return new.filter(pa.array(~is_evicted))

    def _find_changes(self, old: pa.Table, new: pa.Table, now: pa.Table, names: Sequence[str]) -> pa.Table:
        """The result rows of the changed groups; a group that no longer satisfies HAVING is retracted."""
        changed, before = (self._groups_in(table, new) for table in (now, old))
        if self._is_first_batch:
            changed, before = now, old.slice(0, 0)
        outputs = ", ".join(f"a.{name}" for name in names)
        rows = self._engine.query(self._groups.finish, {"groups": changed})
        found = self._engine.query(f"SELECT {outputs}, FALSE AS retracted FROM rows a", {"rows": rows})
        if not self._groups.retracts:
            return found
        retracted = self._engine.query(
            f"SELECT {outputs}, TRUE AS retracted FROM ({self._groups.finish}) a "
            f"WHERE NOT EXISTS (SELECT 1 FROM rows b WHERE {self._same_key})",
            {"groups": before, "rows": rows},
        )
        return pa.concat_tables([found, retracted.cast(found.schema)])

    def _groups_in(self, table: pa.Table, new: pa.Table) -> pa.Table:
        """The groups of a table that also occur in ``new``."""
        text = f"SELECT a.* FROM t a WHERE EXISTS (SELECT 1 FROM new b WHERE {self._same_key})"
        return self._engine.query(text, {"t": table, "new": new}).cast(self._groups.schema)

    def _hold(self, new: pa.Table, now: pa.Table, room: int, batch: int) -> None:
        """Hold the groups, and evict those that changed longest ago where there is no room."""
        if not self._groups.keys:
            self.held = now.append_column("changed", pa.array(np.zeros(now.num_rows, np.int64)))
            return
        groups = self._engine.query(
            "WITH unchanged AS ("
            f"SELECT a.* FROM old a WHERE NOT EXISTS (SELECT 1 FROM new b WHERE {self._same_key})) "
            f"SELECT a.*, coalesce(b.changed, {batch}) AS changed "
            f"FROM now a LEFT JOIN unchanged b ON {self._same_key}",
            {"now": now, "old": self.held, "new": new},
        ).cast(self._schema)
        self.shed = max(0, groups.num_rows - room)
        if self.shed:
            evicted = np.zeros(groups.num_rows, bool)
            evicted[np.argsort(groups.column("changed").to_numpy(), kind="stable")[: self.shed]] = True
            self.filter.add(hash_rows(self._engine, groups.filter(pa.array(evicted)), self._keys))
            groups = groups.filter(pa.array(~evicted))
        self.held = groups


def held_groups_schema(groups: GroupProgram) -> pa.Schema:
    """The schema of the held groups: their columns, and when they last changed."""
    return pa.schema([*groups.schema, ("changed", pa.int64())])


def hash_rows(engine: DuckDb, rows: pa.Table, columns: Sequence[str]) -> Ints:
    """A hash of each row for the Bloom filter: md5, which is the same in every version of DuckDB."""
    texts = ", ".join(f"coalesce(CAST({name} AS VARCHAR), chr(30))" for name in columns)
    text = f"SELECT CAST(md5_number_lower(concat_ws(chr(31), {texts})) >> 1 AS BIGINT) AS h FROM rows"
    found: Ints = engine.query(text, {"rows": rows}).column("h").to_numpy()
    return found


def _add_global_group(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """The only group of an aggregate without GROUP BY, which exists even without a row."""
    if table.num_rows:
        return table
    blank = {f.name: 0 if f.name.startswith("n") or f.name == "matches" else None for f in schema}
    return pa.Table.from_pylist([blank], schema=schema)
