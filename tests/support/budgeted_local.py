"""The operator of the budgeted engine without Spark: DuckDB prepares the rows, a dictionary is the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from millpond.engines.budgeted.compile import compile_budgeted
from millpond.engines.budgeted.plan import plan_budgeted
from millpond.policies.registry import PolicyChoice
from millpond.query.model import Query
from millpond.runtime.duckdb import get_process_duckdb
from millpond.runtime.row_kinds import RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.operators.budgeted import ORDER, SHARD, LeafMapper, SheddingProcessor
from tests.support.local import FakeHandle, FakeState, arrow_table

Batch = Sequence[tuple[str, Mapping[str, Any]]]


class LocalBudgetedEngine:
    """Runs batches of rows on a budget, and records what was emitted, held, shed and missed."""

    def __init__(
        self, query: Query, memory: int, choice: PolicyChoice | None = None, shards: int | None = None
    ) -> None:
        self.query = query
        plan = plan_budgeted(query)
        if shards is not None and not plan.is_shardable:
            shards = 1
        self.program = compile_budgeted(plan, memory, Dialect.DUCKDB, shards=shards)
        self.leaves = [leaf for select in plan.selects for leaf in select.leaves]
        self.shedder = SheddingProcessor(self.program, choice or PolicyChoice(), len(query.columns), None)
        self.states: dict[int, FakeState] = {}
        self.emitted: Counter[tuple[Any, ...]] = Counter()
        self.groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.last: list[dict[str, Any]] = []
        self.measures: Counter[str] = Counter()  # over all batches
        self.reported: Counter[str] = Counter()  # by the last batch
        self.entries = 0
        self._engine = get_process_duckdb()
        self._order = 0

    def add(self, batch: Batch, tasks: int = 1) -> None:
        """Run a micro-batch whose rows, in order, are divided among ``tasks`` tasks."""
        frames: list[pd.DataFrame] = []
        for number, leaf in enumerate(self.leaves):
            rows = [row for name, row in batch if name == leaf.stream.table.name]
            size = -(-len(rows) // tasks) or 1
            for start in range(0, max(len(rows), 1), size):
                taken = self._take_rows(number, rows[start : start + size])
                frames += [part.to_pandas() for part in LeafMapper(self.program, number)(taken)]
        self.entries, self.last, self.reported = 0, [], Counter()
        for shard, payloads in pd.concat(frames).groupby("shard"):
            self._answer(int(shard), payloads)

    def _take_rows(self, number: int, rows: Sequence[Mapping[str, Any]]) -> list[pa.RecordBatch]:
        leaf, text = self.leaves[number], self.program.leaves[number]
        table = arrow_table(leaf.stream.table, rows)
        table = table.rename_columns([f"{leaf.stream.alias}.{name}" for name in table.column_names])
        order = pa.array(range(self._order, self._order + len(rows)), pa.int64())
        self._order += len(rows)
        columns = ", ".join(f"{sql} AS {name}" for name, sql in (*text.columns, (SHARD, text.shard)))
        taken = self._engine.query(
            f"SELECT {columns}, {ORDER} FROM rows WHERE {text.where}",
            {"rows": table.append_column(ORDER, order)},
        )
        return list(taken.to_batches())

    def _answer(self, shard: int, payloads: pd.DataFrame) -> None:
        self.shedder.init(FakeHandle(self.states.setdefault(shard, FakeState())))  # type: ignore[arg-type]
        for frame in self.shedder.handleInputRows((shard,), iter([payloads]), None):
            for row in pa.Table.from_pandas(frame, preserve_index=False).to_pylist():
                match row["_kind"]:
                    case 0:
                        self._emit(row)
                    case 2:
                        self.entries += row["_entries"]
                    case 4:
                        self.measures[row["_reason"]] += row["_entries"]
                        self.reported[row["_reason"]] += row["_entries"]
        assert (RowKind.RESULT, RowKind.STATE, RowKind.MEASURE) == (0, 2, 4)

    def _emit(self, row: Mapping[str, Any]) -> None:
        values = tuple(row[f"o{i}"] for i in range(len(self.query.columns)))
        self.last.append({**row, "values": values})
        groups = self.program.terms[0].groups
        if groups is None:
            self.emitted[values] += row["_weight"]
            return
        key = self._key(values)
        self.groups.pop(key, None)
        if not row["_retracted"]:
            self.groups[key] = values

    def _key(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The grouping columns of a row of the select list."""
        select = self.query.selects[0]
        return tuple(
            value
            for value, item in zip(values, select.items, strict=True)
            if item.expression in (select.group_by or ())
        )

    def answer(self) -> Counter[tuple[Any, ...]]:
        """All rows emitted so far; only the latest of each group."""
        return +self.emitted + Counter(self.groups.values())
