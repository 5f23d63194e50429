"""What a budget would find: a query on a small part of its streams, with several sizes of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.compile import compile_budgeted
from millpond.engines.budgeted.execute import ShardBatch, merge_task_rows
from millpond.engines.budgeted.level_join import Arrivals
from millpond.engines.budgeted.plan import BudgetedPlan, plan_budgeted
from millpond.engines.budgeted.program import LeafProgram
from millpond.policies.registry import PolicyChoice
from millpond.query.model import Query
from millpond.query.trees import is_aggregate
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect

SIZES = (10, 100, 1000)
BATCHES = 10
# More than a part of a stream can hold, and more than it can make.
EVERYTHING = 1 << 30


@dataclass(frozen=True)
class BudgetPreview:
    """The part of all results that is found with a number of tuples kept."""

    memory: int
    found: int
    results: int

    @property
    def part(self) -> float:
        return self.found / self.results


def preview_budgets(
    query: Query, streams: Mapping[str, pa.Table], sizes: Sequence[int] = SIZES
) -> list[BudgetPreview]:
    """What each size finds on the rows given; nothing where results are not rows, or there are none."""
    plan = plan_budgeted(query)
    if any(is_aggregate(select.select) for select in plan.selects):
        return []
    if any(leaf.relations for select in plan.selects for leaf in select.leaves):
        return []
    rows = sum(table.num_rows for table in streams.values())
    results = _found(plan, streams, EVERYTHING)
    if not results:
        return []
    return [BudgetPreview(size, _found(plan, streams, size), results) for size in sizes if size < rows]


def _found(plan: BudgetedPlan, streams: Mapping[str, pa.Table], memory: int) -> int:
    """The results with so many tuples kept."""
    engine = DuckDb()
    program = compile_budgeted(plan, memory, Dialect.DUCKDB, shards=1)
    leaves = [leaf for select in plan.selects for leaf in select.leaves]
    arriving = [
        _batches(engine, text, leaf.stream.alias, streams[leaf.stream.table.name])
        for text, leaf in zip(program.leaves, leaves, strict=True)
    ]
    state: dict[str, pa.Table] = {}
    found = 0
    for batch in range(BATCHES):
        arrivals = {text.name: each[batch] for text, each in zip(program.leaves, arriving, strict=True)}
        work = ShardBatch(engine, program, PolicyChoice(), 0, state, batch + 1)
        found += sum(rows.num_rows for rows in work.results(arrivals))
        state = work.state()
    return found


def _batches(engine: DuckDb, leaf: LeafProgram, alias: str, rows: pa.Table) -> list[Arrivals]:
    """The rows of a leaf that matter, in batches of equal length."""
    named = rows.rename_columns([f"{alias}.{name}" for name in rows.column_names])
    columns = ", ".join(f"{text} AS {name}" for name, text in leaf.columns)
    out = []
    for part in np.array_split(np.arange(rows.num_rows), BATCHES):
        piece = named.slice(int(part[0]) if len(part) else 0, len(part))
        taken = engine.query(f"SELECT {columns} FROM rows WHERE {leaf.where}", {"rows": piece})
        taken = taken.cast(leaf.schema)
        values = engine.query(f"SELECT {leaf.value} AS v FROM rows", {"rows": taken}).column("v").to_numpy()
        count = taken.num_rows
        out.append(merge_task_rows(leaf, [(taken, np.arange(count), count, values)]))
    return out
