"""The operator for queries under a budget: rows are dealt out to shards, each keeps the best of what it has.

``Deal`` runs where rows are read: it sends every shard its rows of a leaf, and tells all of them the leaf's
last values.  ``Shedder`` joins, keeps and sheds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

import numpy as np
import pyarrow as pa

from millpond.shedding.execute import Part, Work, leaf_arrivals, state_shapes
from millpond.shedding.level import Arrivals
from millpond.shedding.program import LeafProgram, SheddingProgram
from millpond.shedding.worth import Choice
from millpond.spark.kinds import MISSED, MISSED_VARIANCE, SHED, STATE
from millpond.spark.operator import (
    PARTIAL_ARROW,
    WHOLE,
    Shard,
    emitted_rows,
    measure_row,
    one_row,
    rejected_table,
    worker_engine,
)
from millpond.stochastic.arrays import Ints
from millpond.synopsis.tables import packed_tables, unpacked_tables

# Columns beside those of a leaf: where in its stream a row stands, and its shard.
ORDER, PLACE = "_order", "_shard"
# How many of a task's last values every shard is told.
RECENT = 1000
_LEAF = struct.Struct("<i")
# In the state, beside its tables: results missed so far, as estimated and as reported, and the variance.
_TOTALS = struct.Struct("<dqdq")


@dataclass(frozen=True)
class Deal:
    """Deals out a task's rows of one leaf; ``reason`` and ``record`` name the columns of rejected rows."""

    program: SheddingProgram
    leaf: int
    reason: str | None = None
    record: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leaf = self.program.leaves[self.leaf]
        parts = []
        for batch in batches:
            if self.reason is not None:
                assert self.record is not None
                bad = batch.filter(batch.column(self.reason).is_valid())
                if bad.num_rows:
                    yield rejected_table(leaf.stream, bad.column(self.reason), bad.column(self.record))
                batch = batch.filter(batch.column(self.reason).is_null())
            parts.append(batch.select([*leaf.schema.names, ORDER, PLACE]))
        if parts:
            yield self._dealt(leaf, pa.Table.from_batches(parts).combine_chunks())
        else:
            yield self._dealt(leaf, None)

    def _dealt(self, leaf: LeafProgram, rows: pa.Table | None) -> pa.RecordBatch:
        shards = range(self.program.shards)
        if rows is None or not rows.num_rows:
            nobody = self._payload(leaf, leaf.schema.empty_table(), np.empty(0, np.int64), 0, 0, None)
            payloads = [nobody for _ in shards]
        else:
            payloads = self._payloads(leaf, rows)
        nothing = pa.nulls(len(payloads), pa.string())
        columns = [pa.array(shards, pa.int32()), pa.array(payloads, pa.binary()), nothing, nothing, nothing]
        return pa.RecordBatch.from_arrays(columns, schema=PARTIAL_ARROW)

    def _payloads(self, leaf: LeafProgram, rows: pa.Table) -> list[bytes]:
        order = rows.column(ORDER).to_numpy()
        if (order[1:] < order[:-1]).any():
            rows = rows.take(pa.array(np.argsort(order, kind="stable")))
        first = int(order.min())
        count = rows.num_rows
        last = rows.slice(max(0, count - RECENT)).select(leaf.schema.names).cast(leaf.schema)
        recent = worker_engine().query(f"SELECT {leaf.value} AS v FROM rows", {"rows": last})
        shard = rows.column(PLACE).to_numpy()
        table = rows.select(leaf.schema.names).cast(leaf.schema)
        places = np.arange(count)
        if self.program.shards == 1:
            return [self._payload(leaf, table, places, count, first, recent)]
        by_shard = np.argsort(shard, kind="stable")
        bounds = np.searchsorted(shard[by_shard], np.arange(self.program.shards + 1))
        table, places = table.take(pa.array(by_shard)), places[by_shard]
        return [
            self._payload(leaf, table.slice(a, b - a), places[a:b], count, first, recent)
            for a, b in pairwise(bounds)
        ]

    def _payload(
        self,
        leaf: LeafProgram,
        rows: pa.Table,
        places: Ints,
        count: int,
        first: int,
        recent: pa.Table | None,
    ) -> bytes:
        tables = {
            "rows": rows.append_column("place", pa.array(places, pa.int64())),
            "task": pa.table({"count": [count], "first": [first]}),
            "recent": pa.table({"v": pa.array([], pa.float64())})
            if recent is None
            else recent.select(["v"]).cast(pa.schema([("v", pa.float64())]), safe=False),
        }
        packed = packed_tables(tables, _payload_shapes(leaf), self.program.fingerprint, 0)
        return _LEAF.pack(self.leaf) + packed


def _payload_shapes(leaf: LeafProgram) -> dict[str, pa.Schema]:
    return {
        "rows": pa.schema([*leaf.schema, ("place", pa.int64())]),
        "task": pa.schema([("count", pa.int64()), ("first", pa.int64())]),
        "recent": pa.schema([("v", pa.float64())]),
    }


class Shedder(Shard):
    """Holds a shard's tuples, joins what arrives with them, and sheds what is worth least."""

    def __init__(
        self, program: SheddingProgram, choice: Choice, width: int, types: Sequence[str] | None
    ) -> None:
        super().__init__(width, types)
        self.program = program
        self.choice = choice

    def answered(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        engine, program = worker_engine(), self.program
        shapes = state_shapes(program)
        data = self.value(WHOLE)
        estimated, reported, variance, varied = 0.0, 0, 0.0, 0
        tables: dict[str, pa.Table] = {}
        batch = 0
        if data is not None:
            estimated, reported, variance, varied = _TOTALS.unpack_from(data)
            tables, batch = unpacked_tables(data[_TOTALS.size :], shapes, program.fingerprint)
        work = Work(engine, program, self.choice, self._share(shard), tables, batch + 1)
        for rows in work.results(self._arrivals(payloads)):
            yield from emitted_rows(engine, rows, batch + 1)
        estimated += work.missed.value
        variance += work.missed.variance
        more = max(0, floor(estimated) - reported), max(0, floor(variance) - varied)
        totals = _TOTALS.pack(estimated, reported + more[0], variance, varied + more[1])
        packed = totals + packed_tables(work.state(), shapes, program.fingerprint, batch + 1)
        self.keep(WHOLE, packed)
        yield one_row(STATE, _entries=work.entries, _bytes=len(packed))
        for name, value in ((SHED, work.shed), (MISSED, more[0]), (MISSED_VARIANCE, more[1])):
            yield measure_row(name, value)

    def _share(self, shard: int) -> int:
        each, rest = divmod(self.program.memory, self.program.shards)
        return each + (shard < rest)

    def _arrivals(self, payloads: Sequence[bytes]) -> dict[str, Arrivals]:
        found: dict[int, list[tuple[int, Part]]] = {}
        for data in payloads:
            (number,) = _LEAF.unpack_from(data)
            leaf = self.program.leaves[number]
            tables, _ = unpacked_tables(data[_LEAF.size :], _payload_shapes(leaf), self.program.fingerprint)
            task = tables["task"].to_pylist()[0]
            rows = tables.get("rows", _payload_shapes(leaf)["rows"].empty_table())
            recent = (
                tables.get("recent", _payload_shapes(leaf)["recent"].empty_table()).column("v").to_numpy()
            )
            part = (rows.drop_columns(["place"]), rows.column("place").to_numpy(), task["count"], recent)
            found.setdefault(number, []).append((task["first"], part))
        arrivals = {}
        for number, leaf in enumerate(self.program.leaves):
            parts = sorted(found.get(number, ()), key=lambda each: each[0])
            arrivals[leaf.name] = leaf_arrivals(leaf, [part for _, part in parts])
        return arrivals
