"""Lookups without Spark: relations in SQLite files, and the join over Arrow batches."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from millpond.engines.lookup.database import DatabaseTable, find_table
from millpond.engines.lookup.declaration import LookupRelation
from millpond.engines.lookup.lookup_join import LookupJoin, LookupStep, create_cache, output_schema
from millpond.engines.lookup.row_cache import RowCache
from millpond.query import types as domains
from millpond.query.model import Column
from millpond.query.types import SqlType
from millpond.runtime.arrow_ipc import schema_to_bytes

_SQLITE = {"STRING": "TEXT", "INT": "INTEGER", "BIGINT": "INTEGER"}


def store(path: Path, table: str, columns: dict[str, SqlType], rows: Iterable[Sequence[Any]]) -> str:
    """Writes a table to a SQLite file; returns the URL."""
    declared = ", ".join(f'"{name}" {_SQLITE.get(kind.name, kind.name)}' for name, kind in columns.items())
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        connection.execute(f'CREATE TABLE "{table}" ({declared})')
        connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)
    connection.close()
    return f"sqlite:///{path}"


def relation(
    url: str, columns: dict[str, SqlType], memory: int, policy: str = "lru", **more: Any
) -> DatabaseTable:
    """The lookup relation R, with its table in the database."""
    declared = tuple(Column(name, kind) for name, kind in columns.items())
    return find_table(LookupRelation("R", url, "R", declared, memory, policy, **more))


class Join:
    """A stream with the key columns K0, K1, … joined with a relation; the cache lives on between calls."""

    def __init__(self, table: DatabaseTable, key: Sequence[str], types: Sequence[pa.DataType]) -> None:
        asked = tuple(f"K{i}" for i in range(len(key)))
        added = tuple((found.column.name, f"R.{found.column.name}") for found in table.columns)
        self.step = LookupStep(uuid4().hex, table, asked, tuple(key), added)
        self.cache: RowCache = create_cache(self.step, "UTC")
        self._types = types
        kinds = {"N": domains.BIGINT} | {f"R.{f.column.name}": f.column.type for f in table.columns}
        schema = schema_to_bytes(output_schema(kinds, "UTC"))
        self.lookup = LookupJoin((self.step,), schema, cache_of=lambda step, zone: self.cache)

    def run(
        self, keys: Sequence[Sequence[Any]], cuts: Sequence[int] = ()
    ) -> tuple[list[tuple[Any, ...]], int, int]:
        """The rows (number of the reference, relation columns), and the numbers of lookups and hits."""
        places = [0, *sorted(cuts), len(keys)]
        batches = []
        for start, stop in pairwise(places):
            columns = [pa.array([key[i] for key in keys[start:stop]], t) for i, t in enumerate(self._types)]
            names = ["N", *(f"K{i}" for i in range(len(self._types)))]
            batches.append(
                pa.RecordBatch.from_arrays([pa.array(range(start, stop), pa.int64()), *columns], names)
            )
        rows: list[tuple[Any, ...]] = []
        counts: dict[str, int] = {}
        for batch in self.lookup(iter(batches)):
            for *row, measured, counted in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if measured is None:
                    rows.append(tuple(row))
                else:
                    counts[measured] = counts.get(measured, 0) + counted
        return rows, counts["lookups"], counts["hits"]


INT_LABEL = {"K": domains.INT, "LABEL": domains.STRING}
