"""Sets and groups over results, in bounded memory: exact for what is held, never wrong for what was let go.

A set holds its first rows; of those that no longer fit a filter knows that they were seen, and what it
knows is not emitted again: a new row that it mistakes for an old one is missing.  Groups that no longer fit
are let go, those changed longest ago first; the filter keeps them from being begun anew with a part of their
rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.bloom_filter import BloomFilter
from millpond.engines.budgeted.missed_results import MissedEstimate
from millpond.engines.budgeted.program import GroupProgram
from millpond.models.arrays import Ints
from millpond.runtime.duckdb import DuckDb


class DistinctRows:
    """The rows of a set."""

    def __init__(
        self, engine: DuckDb, schema: pa.Schema, held: pa.Table | None, filter_: BloomFilter
    ) -> None:
        self._engine = engine
        self._schema = schema
        self.held = schema.empty_table() if held is None else held
        self.filter = filter_
        self.shed = 0
        self.missed = MissedEstimate()

    def taken(self, matches: Sequence[pa.Table], room: int) -> pa.Table:
        """The rows that were certainly never emitted; as many as fit are held."""
        found = pa.concat_tables([each.cast(self._schema) for each in matches])
        columns = ", ".join(self._schema.names)
        fresh = self._engine.query(
            f"SELECT {columns} FROM found EXCEPT SELECT {columns} FROM held",
            {"found": found, "held": self.held},
        ).cast(self._schema)
        new = fresh.filter(pa.array(~self.filter.knows(hashes(self._engine, fresh, self._schema.names))))
        mistaken = self.filter.mistaken
        expected = new.num_rows * mistaken / max(1 - mistaken, 1e-9)
        self.missed = MissedEstimate(expected, expected)
        together = pa.concat_tables([self.held, new])
        self.held, gone = together.slice(0, room), together.slice(room)
        self.filter.add(hashes(self._engine, gone, self._schema.names))
        self.shed = gone.num_rows
        return new


class HeldGroups:
    """The groups of a select; ``held`` has for each also the batch in which it last changed."""

    def __init__(
        self, engine: DuckDb, groups: GroupProgram, held: pa.Table | None, filter_: BloomFilter
    ) -> None:
        self._engine = engine
        self._groups = groups
        self._schema = held_groups_schema(groups)
        self._keys = groups.key_names
        self._same = " AND ".join(f"a.{k} IS NOT DISTINCT FROM b.{k}" for k in groups.key_names) or "TRUE"
        self._first = held is None
        self.held = self._schema.empty_table() if held is None else held
        self.filter = filter_
        self.shed = 0
        self.missed = MissedEstimate()

    def taken(self, matches: pa.Table, room: int, batch: int, names: Sequence[str]) -> pa.Table:
        """The rows of groups that the matches change: columns ``names``, and ``retracted``."""
        groups, schema = self._groups, self._groups.schema
        old = self.held.select(schema.names)
        new = self._engine.query(groups.partial, {"matches": matches}).cast(schema)
        if groups.keys:
            new = self._admitted(old, new)
        now = self._engine.query(groups.merge, {"rows": pa.concat_tables([old, new])}).cast(schema)
        if not groups.keys:
            old, now = (_one_group(schema, table) for table in (old, now))
        changes = self._changes(old, new, now, names)
        self._keep(new, now, room, batch)
        return changes

    def _admitted(self, old: pa.Table, new: pa.Table) -> pa.Table:
        """Groups that are held, or were certainly never let go; the matches of others are missed."""
        known = np.zeros(new.num_rows, bool)
        numbered = new.append_column("place", pa.array(np.arange(new.num_rows)))
        found = self._engine.query(
            f"SELECT a.place FROM new a WHERE EXISTS (SELECT 1 FROM old b WHERE {self._same})",
            {"new": numbered, "old": old},
        )
        known[found.column("place").to_numpy()] = True
        lost = ~known & self.filter.knows(hashes(self._engine, new, self._keys))
        self.missed = MissedEstimate(float(new.column("matches").to_numpy()[lost].sum()))
        return new.filter(pa.array(~lost))

    def _changes(self, old: pa.Table, new: pa.Table, now: pa.Table, names: Sequence[str]) -> pa.Table:
        """The rows of the groups that changed; a group that HAVING no longer admits is taken back."""
        changed, before = (self._touched(table, new) for table in (now, old))
        if self._first:
            changed, before = now, old.slice(0, 0)
        outputs = ", ".join(f"a.{name}" for name in names)
        rows = self._engine.query(self._groups.finish, {"groups": changed})
        found = self._engine.query(f"SELECT {outputs}, FALSE AS retracted FROM rows a", {"rows": rows})
        if not self._groups.retracts:
            return found
        gone = self._engine.query(
            f"SELECT {outputs}, TRUE AS retracted FROM ({self._groups.finish}) a "
            f"WHERE NOT EXISTS (SELECT 1 FROM rows b WHERE {self._same})",
            {"groups": before, "rows": rows},
        )
        return pa.concat_tables([found, gone.cast(found.schema)])

    def _touched(self, table: pa.Table, new: pa.Table) -> pa.Table:
        """The groups of a table that something is new of."""
        text = f"SELECT a.* FROM t a WHERE EXISTS (SELECT 1 FROM new b WHERE {self._same})"
        return self._engine.query(text, {"t": table, "new": new}).cast(self._groups.schema)

    def _keep(self, new: pa.Table, now: pa.Table, room: int, batch: int) -> None:
        if not self._groups.keys:
            self.held = now.append_column("changed", pa.array(np.zeros(now.num_rows, np.int64)))
            return
        stamped = self._engine.query(
            "WITH unchanged AS ("
            f"SELECT a.* FROM old a WHERE NOT EXISTS (SELECT 1 FROM new b WHERE {self._same})) "
            f"SELECT a.*, coalesce(b.changed, {batch}) AS changed "
            f"FROM now a LEFT JOIN unchanged b ON {self._same}",
            {"now": now, "old": self.held, "new": new},
        ).cast(self._schema)
        self.shed = max(0, stamped.num_rows - room)
        if self.shed:
            gone = np.zeros(stamped.num_rows, bool)
            gone[np.argsort(stamped.column("changed").to_numpy(), kind="stable")[: self.shed]] = True
            self.filter.add(hashes(self._engine, stamped.filter(pa.array(gone)), self._keys))
            stamped = stamped.filter(pa.array(~gone))
        self.held = stamped


def held_groups_schema(groups: GroupProgram) -> pa.Schema:
    return pa.schema([*groups.schema, ("changed", pa.int64())])


def hashes(engine: DuckDb, rows: pa.Table, columns: Sequence[str]) -> Ints:
    """A number for each row by which the filter knows it, the same in every version of the engine."""
    texts = ", ".join(f"coalesce(CAST({name} AS VARCHAR), chr(30))" for name in columns)
    text = f"SELECT CAST(md5_number_lower(concat_ws(chr(31), {texts})) >> 1 AS BIGINT) AS h FROM rows"
    found: Ints = engine.query(text, {"rows": rows}).column("h").to_numpy()
    return found


def _one_group(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """The only group, which is there even without a row."""
    if table.num_rows:
        return table
    blank = {f.name: 0 if f.name.startswith("n") or f.name == "matches" else None for f in schema}
    return pa.Table.from_pylist([blank], schema=schema)
