"""Previews how many results a budget finds, by running a query on the first rows of its streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.compile import compile_budgeted
from millpond.engines.budgeted.execute import ShardBatch, TaskRows, merge_task_rows
from millpond.engines.budgeted.level_join import Arrivals
from millpond.engines.budgeted.plan import BudgetedPlan, plan_budgeted
from millpond.engines.budgeted.program import LeafProgram
from millpond.policies.registry import PolicyChoice
from millpond.query.model import Query
from millpond.query.trees import is_aggregate
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect

BUDGETS = (10, 100, 1000)
BATCHES = 10
# More tuples than the first rows of the streams can contain or produce.
UNLIMITED = 1 << 30


@dataclass(frozen=True)
class BudgetPreview:
    """How many of all ``results`` a budget of ``memory`` tuples finds."""

    memory: int
    found: int
    results: int

    @property
    def part(self) -> float:
        return self.found / self.results


def preview_budgets(
    query: Query, streams: Mapping[str, pa.Table], budgets: Sequence[int] = BUDGETS
) -> list[BudgetPreview]:
    """What each budget finds on the given rows.

    Empty for aggregates, for joins with relations, and where the rows have no results.
    """
    plan = plan_budgeted(query)
    if any(is_aggregate(tree.select) for tree in plan.selects):
        return []
    if any(leaf.relations for tree in plan.selects for leaf in tree.leaves):
        return []
    rows = sum(table.num_rows for table in streams.values())
    results = _count_results(plan, streams, UNLIMITED)
    if not results:
        return []
    return [
        BudgetPreview(memory, _count_results(plan, streams, memory), results)
        for memory in budgets
        if memory < rows
    ]


def _count_results(plan: BudgetedPlan, streams: Mapping[str, pa.Table], memory: int) -> int:
    engine = DuckDb()
    program = compile_budgeted(plan, memory, Dialect.DUCKDB, shards=1)
    leaves = [leaf for tree in plan.selects for leaf in tree.leaves]
    arriving = [
        _split_into_batches(engine, text, leaf.stream.alias, streams[leaf.stream.table.name])
        for text, leaf in zip(program.leaves, leaves, strict=True)
    ]
    state: dict[str, pa.Table] = {}
    found = 0
    for batch in range(BATCHES):
        arrivals = {text.name: each[batch] for text, each in zip(program.leaves, arriving, strict=True)}
        shard = ShardBatch(engine, program, PolicyChoice(), 0, state, batch + 1)
        found += sum(rows.num_rows for rows in shard.run(arrivals))
        state = shard.state()
    return found


def _split_into_batches(engine: DuckDb, leaf: LeafProgram, alias: str, rows: pa.Table) -> list[Arrivals]:
    """The rows of a leaf that satisfy its condition, in batches of equal length."""
    named = rows.rename_columns([f"{alias}.{name}" for name in rows.column_names])
    columns = ", ".join(f"{text} AS {name}" for name, text in leaf.columns)
    out = []
    for part in np.array_split(np.arange(rows.num_rows), BATCHES):
        piece = named.slice(int(part[0]) if len(part) else 0, len(part))
        taken = engine.query(f"SELECT {columns} FROM rows WHERE {leaf.where}", {"rows": piece})
        taken = taken.cast(leaf.schema)
        values = engine.query(f"SELECT {leaf.value} AS v FROM rows", {"rows": taken}).column("v").to_numpy()
        count = taken.num_rows
        out.append(merge_task_rows(leaf, [TaskRows(taken, np.arange(count), count, values)]))
    return out
