"""The budgeted engine on Spark: rows are partitioned by shard, and each shard keeps its best tuples.

The mapper sends each shard its rows of a leaf, and all shards the leaf's most recent values.  The processor
joins arriving rows with the tuples it keeps, and sheds the tuples with the lowest scores.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.execute import ShardBatch, TaskRows, merge_task_rows, state_schemas
from millpond.engines.budgeted.level_join import Arrivals
from millpond.engines.budgeted.program import BudgetedProgram, LeafProgram
from millpond.engines.budgeted.shard_budgets import SAMPLE_SCHEMA, sample_keys
from millpond.models.array_types import Ints
from millpond.policies.registry import PolicyChoice
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.row_kinds import BatchMeasure, RowKind
from millpond.spark.operators.output import build_measure_row, build_report_row, build_result_rows
from millpond.spark.operators.payloads import build_payload_batch, split_rejected
from millpond.spark.operators.shard import WHOLE, ShardProcessor, get_worker_duckdb

# Columns beside those of a leaf: a row's place in the order of its stream, and its shard.
ORDER, SHARD = "_order", "_shard"
# How many of a task's most recent values are sent to every shard.
RECENT = 1000
_LEAF = struct.Struct("<i")
_REPORTED = struct.Struct("<q")


@dataclass(frozen=True)
class LeafMapper:
    """Partitions a task's rows of one leaf by shard."""

    program: BudgetedProgram
    leaf: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leaf = self.program.leaves[self.leaf]
        parts = []
        for batch in batches:
            good, rejected = split_rejected(leaf.stream, batch)
            yield from rejected
            parts.append(good.select([*leaf.schema.names, ORDER, SHARD]))
        rows = pa.Table.from_batches(parts).combine_chunks() if parts else None
        if rows is None or not rows.num_rows:
            empty = self._pack(leaf, leaf.schema.empty_table(), np.empty(0, np.int64), _TaskSummary())
            yield build_payload_batch([empty] * self.program.shards)
        else:
            yield build_payload_batch(self._pack_by_shard(leaf, rows))

    def _pack_by_shard(self, leaf: LeafProgram, rows: pa.Table) -> list[bytes]:
        order = rows.column(ORDER).to_numpy()
        if (order[1:] < order[:-1]).any():
            rows = rows.take(pa.array(np.argsort(order, kind="stable")))
        count = rows.num_rows
        shard = rows.column(SHARD).to_numpy()
        table = rows.select(leaf.schema.names).cast(leaf.schema)
        values = get_worker_duckdb().query(f"SELECT {leaf.value} AS v FROM rows", {"rows": table}).column("v")
        task = _TaskSummary(count, int(order.min()), values[-RECENT:], None)
        places = np.arange(count)
        if self.program.shards == 1:
            return [self._pack(leaf, table, places, task)]
        task = replace(task, sample=sample_keys(values.to_numpy(), shard, self.program.memory))
        by_shard = np.argsort(shard, kind="stable")
        bounds = np.searchsorted(shard[by_shard], np.arange(self.program.shards + 1))
        table, places = table.take(pa.array(by_shard)), places[by_shard]
        return [self._pack(leaf, table.slice(a, b - a), places[a:b], task) for a, b in pairwise(bounds)]

    def _pack(self, leaf: LeafProgram, rows: pa.Table, places: Ints, task: _TaskSummary) -> bytes:
        tables = {
            "rows": rows.append_column("place", pa.array(places, pa.int64())),
            "task": pa.table({"count": [task.count], "first": [task.first]}),
        }
        if task.recent is not None:
            tables["recent"] = pa.table({"v": task.recent.cast(pa.float64(), safe=False)})
        if task.sample is not None:
            tables["sample"] = task.sample
        packed = encode_tables(tables, _payload_schemas(leaf), self.program.fingerprint, 0)
        return _LEAF.pack(self.leaf) + packed


@dataclass(frozen=True)
class _TaskSummary:
    """What every shard receives about a task: its rows, its first place, recent values, a sample of keys."""

    count: int = 0
    first: int = 0
    recent: pa.ChunkedArray | None = None
    sample: pa.Table | None = None


def _payload_schemas(leaf: LeafProgram) -> dict[str, pa.Schema]:
    return {
        "rows": pa.schema([*leaf.schema, ("place", pa.int64())]),
        "task": pa.schema([("count", pa.int64()), ("first", pa.int64())]),
        "recent": pa.schema([("v", pa.float64())]),
        "sample": SAMPLE_SCHEMA,
    }


class SheddingProcessor(ShardProcessor):
    """Holds a shard's tuples, joins arriving rows with them, and sheds the tuples with the lowest scores."""

    def __init__(
        self, program: BudgetedProgram, choice: PolicyChoice, width: int, types: Sequence[str] | None
    ) -> None:
        super().__init__(width, types)
        self.program = program
        self.choice = choice

    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        db, program = get_worker_duckdb(), self.program
        schemas = state_schemas(program)
        data = self.get_value(WHOLE)
        reported, batch = 0, 0
        tables: dict[str, pa.Table] = {}
        if data is not None:
            (reported,) = _REPORTED.unpack_from(data)
            tables, batch = decode_tables(data[_REPORTED.size :], schemas, program.fingerprint)
        work = ShardBatch(db, program, self.choice, shard, tables, batch + 1)
        arrivals, samples = self._unpack(payloads)
        for rows in work.run(arrivals):
            yield from build_result_rows(db, rows, batch + 1)
        work.rebalance(samples)
        measures = _measure(work, reported)
        state = encode_tables(work.state(), schemas, program.fingerprint, batch + 1)
        packed = _REPORTED.pack(reported + measures[BatchMeasure.MISSED]) + state
        self.put_value(WHOLE, packed)
        yield build_report_row(RowKind.STATE, work.entries, len(packed))
        for name, value in measures.items():
            yield build_measure_row(name, value)

    def _unpack(self, payloads: Sequence[bytes]) -> tuple[dict[str, Arrivals], list[tuple[int, pa.Table]]]:
        """The arrivals of each leaf, and the samples of join keys."""
        parts: dict[int, list[tuple[tuple[int, int, bytes], TaskRows]]] = {}
        samples = []
        for data in payloads:
            (number,) = _LEAF.unpack_from(data)
            schemas = _payload_schemas(self.program.leaves[number])
            found, _ = decode_tables(data[_LEAF.size :], schemas, self.program.fingerprint)
            tables = {name: found.get(name, schema.empty_table()) for name, schema in schemas.items()}
            task = tables["task"].to_pylist()[0]
            rows, places = tables["rows"].drop_columns(["place"]), tables["rows"].column("place").to_numpy()
            recent = tables["recent"].column("v").to_numpy()
            # All shards must process the tasks in the same order, also tasks with the same first timestamp.
            order = (task["first"], task["count"], recent.tobytes())
            parts.setdefault(number, []).append((order, TaskRows(rows, places, task["count"], recent)))
            samples.append((number, tables["sample"]))
        arrivals = {}
        for number, leaf in enumerate(self.program.leaves):
            ordered = sorted(parts.get(number, ()), key=lambda each: each[0])
            arrivals[leaf.name] = merge_task_rows(leaf, [part for _, part in ordered])
        samples.sort(key=lambda each: (each[0], each[1].column("v").to_pylist()))
        return arrivals, samples


def _measure(work: ShardBatch, reported: int) -> dict[BatchMeasure, int]:
    """The measures of a batch, where ``reported`` missed results were reported before.

    The reports of missed results are integers that are never negative; their sum is the highest estimate so
    far.  The other measures are about all batches.  Squared distances are integers too, and limited so that
    their sum over the shards fits into 64 bits.
    """
    missed = work.missed
    most = (1 << 62) // work.shards
    measures = {
        BatchMeasure.SHED: work.shed,
        BatchMeasure.MISSED: max(0, floor(missed.value) - reported),
        BatchMeasure.ALL_FOUND: work.found,
        BatchMeasure.ALL_MISSED: round(missed.value),
    }
    if work.has_interval:
        measures[BatchMeasure.MISSED_BELOW] = min(most, ceil(missed.below))
        measures[BatchMeasure.MISSED_ABOVE] = min(most, ceil(missed.above))
    return measures
