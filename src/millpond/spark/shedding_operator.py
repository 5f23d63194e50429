"""The operator for queries under a budget: rows are dealt out to shards, each keeps the best of what it has.

``Deal`` runs where rows are read: it sends every shard its rows of a leaf, and tells all of them the leaf's
last values.  ``Shedder`` joins, keeps and sheds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import floor
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.execute import ShardBatch, TaskRows, merge_task_rows, state_schemas
from millpond.engines.budgeted.level_join import Arrivals
from millpond.engines.budgeted.missed_results import MissedEstimate
from millpond.engines.budgeted.program import BudgetedProgram, LeafProgram
from millpond.engines.budgeted.shard_budgets import SAMPLE_SCHEMA, sample_keys
from millpond.models.arrays import Ints
from millpond.policies.registry import PolicyChoice
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.row_kinds import BatchMeasure, RowKind
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

# Columns beside those of a leaf: where in its stream a row stands, and its shard.
ORDER, PLACE = "_order", "_shard"
# How many of a task's last values every shard is told.
RECENT = 1000
_LEAF = struct.Struct("<i")
_TOTALS = struct.Struct("<dqdq")


@dataclass(frozen=True)
class Deal:
    """Deals out a task's rows of one leaf; ``reason`` and ``record`` name the columns of rejected rows."""

    program: BudgetedProgram
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
            nobody = self._payload(leaf, leaf.schema.empty_table(), np.empty(0, np.int64), _Task())
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
        count = rows.num_rows
        shard = rows.column(PLACE).to_numpy()
        table = rows.select(leaf.schema.names).cast(leaf.schema)
        values = worker_engine().query(f"SELECT {leaf.value} AS v FROM rows", {"rows": table}).column("v")
        task = _Task(count, int(order.min()), values[-RECENT:], None)
        places = np.arange(count)
        if self.program.shards == 1:
            return [self._payload(leaf, table, places, task)]
        task = replace(task, sample=sample_keys(values.to_numpy(), shard, self.program.memory))
        by_shard = np.argsort(shard, kind="stable")
        bounds = np.searchsorted(shard[by_shard], np.arange(self.program.shards + 1))
        table, places = table.take(pa.array(by_shard)), places[by_shard]
        return [self._payload(leaf, table.slice(a, b - a), places[a:b], task) for a, b in pairwise(bounds)]

    def _payload(self, leaf: LeafProgram, rows: pa.Table, places: Ints, task: _Task) -> bytes:
        tables = {
            "rows": rows.append_column("place", pa.array(places, pa.int64())),
            "task": pa.table({"count": [task.count], "first": [task.first]}),
        }
        if task.recent is not None:
            tables["recent"] = pa.table({"v": task.recent.cast(pa.float64(), safe=False)})
        if task.sample is not None:
            tables["sample"] = task.sample
        packed = encode_tables(tables, _payload_shapes(leaf), self.program.fingerprint, 0)
        return _LEAF.pack(self.leaf) + packed


@dataclass(frozen=True)
class _Task:
    """What all shards are told of a task: its rows, its place among the tasks, its last values, some keys."""

    count: int = 0
    first: int = 0
    recent: pa.ChunkedArray | None = None
    sample: pa.Table | None = None


def _payload_shapes(leaf: LeafProgram) -> dict[str, pa.Schema]:
    return {
        "rows": pa.schema([*leaf.schema, ("place", pa.int64())]),
        "task": pa.schema([("count", pa.int64()), ("first", pa.int64())]),
        "recent": pa.schema([("v", pa.float64())]),
        "sample": SAMPLE_SCHEMA,
    }


class Shedder(Shard):
    """Holds a shard's tuples, joins what arrives with them, and sheds what is worth least."""

    def __init__(
        self, program: BudgetedProgram, choice: PolicyChoice, width: int, types: Sequence[str] | None
    ) -> None:
        super().__init__(width, types)
        self.program = program
        self.choice = choice

    def answered(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        engine, program = worker_engine(), self.program
        shapes = state_schemas(program)
        data = self.value(WHOLE)
        totals, batch = Totals(), 0
        tables: dict[str, pa.Table] = {}
        if data is not None:
            totals = Totals.from_bytes(data)
            tables, batch = decode_tables(data[Totals.SIZE :], shapes, program.fingerprint)
        work = ShardBatch(engine, program, self.choice, shard, tables, batch + 1)
        arrivals, samples = self._opened(payloads)
        for rows in work.results(arrivals):
            yield from emitted_rows(engine, rows, batch + 1)
        work.share_out(samples)
        totals, missed, variance = totals.with_more(work.missed)
        packed = totals.to_bytes() + encode_tables(work.state(), shapes, program.fingerprint, batch + 1)
        self.keep(WHOLE, packed)
        yield one_row(RowKind.STATE, _entries=work.entries, _bytes=len(packed))
        for name, value in (
            (BatchMeasure.SHED, work.shed),
            (BatchMeasure.MISSED, missed),
            (BatchMeasure.MISSED_VARIANCE, variance),
        ):
            yield measure_row(name, value)

    def _opened(self, payloads: Sequence[bytes]) -> tuple[dict[str, Arrivals], list[tuple[int, pa.Table]]]:
        """The arrivals of each leaf, and the samples of keys."""
        parts: dict[int, list[tuple[tuple[int, int, bytes], TaskRows]]] = {}
        samples = []
        for data in payloads:
            (number,) = _LEAF.unpack_from(data)
            shapes = _payload_shapes(self.program.leaves[number])
            found, _ = decode_tables(data[_LEAF.size :], shapes, self.program.fingerprint)
            tables = {name: found.get(name, schema.empty_table()) for name, schema in shapes.items()}
            task = tables["task"].to_pylist()[0]
            rows, places = tables["rows"].drop_columns(["place"]), tables["rows"].column("place").to_numpy()
            recent = tables["recent"].column("v").to_numpy()
            # All shards must see the tasks in the same order, also those that begin at the same moment.
            order = (task["first"], task["count"], recent.tobytes())
            parts.setdefault(number, []).append((order, (rows, places, task["count"], recent)))
            samples.append((number, tables["sample"]))
        arrivals = {}
        for number, leaf in enumerate(self.program.leaves):
            ordered = sorted(parts.get(number, ()), key=lambda each: each[0])
            arrivals[leaf.name] = merge_task_rows(leaf, [part for _, part in ordered])
        samples.sort(key=lambda each: (each[0], each[1].column("v").to_pylist()))
        return arrivals, samples


@dataclass(frozen=True)
class Totals:
    """Results missed so far and the variance of their number, as estimated and as reported.

    Reports are whole numbers that never fall; what is left over comes with a later batch.
    """

    SIZE: ClassVar[int] = _TOTALS.size
    estimated: float = 0.0
    reported: int = 0
    variance: float = 0.0
    varied: int = 0

    def with_more(self, missed: MissedEstimate) -> tuple[Totals, int, int]:
        """The totals after a batch, and what there is to report of it."""
        estimated, variance = self.estimated + missed.value, self.variance + missed.variance
        more, wider = max(0, floor(estimated) - self.reported), max(0, floor(variance) - self.varied)
        return Totals(estimated, self.reported + more, variance, self.varied + wider), more, wider

    def to_bytes(self) -> bytes:
        return _TOTALS.pack(self.estimated, self.reported, self.variance, self.varied)

    @classmethod
    def from_bytes(cls, data: bytes) -> Totals:
        return cls(*_TOTALS.unpack_from(data))
