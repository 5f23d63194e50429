"""Previews how many results a budget finds, by running a query on the first rows of its streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

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

# Budgets that are tried: the first, and each time this factor more.
FIRST_BUDGET, FACTOR = 10, 10
# A budget that finds this share of the results finds nearly all of them.
NEARLY_ALL = 0.99
BATCHES = 10
# More tuples than the first rows of the streams can contain or produce.
UNLIMITED = 1 << 30
# Steps of the search for the smallest budget that finds nearly all results.
_SEARCH_STEPS = 3
# The needed budget grows with the stream if half of the rows need a budget that is smaller by this factor.
_GROWTH = 1.6


@dataclass(frozen=True)
class BudgetPreview:
    """How many of all ``results`` a budget of ``memory`` tuples finds."""

    memory: int
    found: int
    results: int

    @property
    def part(self) -> float:
        return self.found / self.results


@dataclass(frozen=True)
class BudgetAdvice:
    """What budgets find on some rows, from small to large; the last one finds nearly all results.

    ``grows``: a smaller budget finds nearly all results of the first half of the rows, so no budget does so
    for ever.
    """

    previews: tuple[BudgetPreview, ...]
    grows: bool

    @property
    def suggested(self) -> BudgetPreview:
        return self.previews[-1]


def preview_budgets(query: Query, streams: Mapping[str, pa.Table]) -> BudgetAdvice | None:
    """What budgets find on the given rows.

    None for aggregates, for joins with relations, and where the rows have no results.
    """
    plan = plan_budgeted(query)
    if any(is_aggregate(tree.select) for tree in plan.selects):
        return None
    if any(leaf.relations for tree in plan.selects for leaf in tree.leaves):
        return None
    results = _count_results(plan, streams, UNLIMITED)
    if not results:
        return None

    def preview(memory: int) -> BudgetPreview:
        return BudgetPreview(memory, _count_results(plan, streams, memory), results)

    tried = [preview(FIRST_BUDGET)]
    while tried[-1].part < NEARLY_ALL:
        tried.append(preview(tried[-1].memory * FACTOR))
    *too_small, enough = tried
    low = too_small[-1].memory if too_small else 1
    for _ in range(_SEARCH_STEPS):
        middle = _round_up(sqrt(low * enough.memory))
        if not low < middle < enough.memory:
            break
        found = preview(middle)
        if found.part >= NEARLY_ALL:
            enough = found
        else:
            low = middle
    half = {name: rows.slice(0, rows.num_rows // 2) for name, rows in streams.items()}
    wanted = NEARLY_ALL * _count_results(plan, half, UNLIMITED)
    grows = wanted > 0 and _count_results(plan, half, int(enough.memory / _GROWTH)) >= wanted
    return BudgetAdvice((*too_small, enough), grows)


def _round_up(number: float) -> int:
    """
    >>> [_round_up(n) for n in (7.2, 31.6, 316.2, 1778.3)]
    [8, 32, 320, 1800]
    """
    unit = 10 ** max(0, len(str(int(number))) - 2)
    return int(-(-number // unit) * unit)


def _count_results(plan: BudgetedPlan, streams: Mapping[str, pa.Table], memory: int) -> int:
    engine = DuckDb()
    program = compile_budgeted(plan, memory, Dialect.DUCKDB, shards=1)
    leaves = [leaf for tree in plan.selects for leaf in tree.leaves]
    arriving = [
        split_into_batches(engine, text, leaf.stream.alias, streams[leaf.stream.table.name], BATCHES)
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


def split_into_batches(
    engine: DuckDb, leaf: LeafProgram, alias: str, rows: pa.Table, batches: int
) -> list[Arrivals]:
    """The rows of a leaf that satisfy its condition, in batches of equal length."""
    named = rows.rename_columns([f"{alias}.{name}" for name in rows.column_names])
    parts = np.array_split(np.arange(rows.num_rows), batches)
    number = np.repeat(np.arange(batches), [len(part) for part in parts])
    columns = ", ".join(f"{text} AS {name}" for name, text in leaf.columns)
    taken = engine.query(
        f"SELECT {columns}, _batch FROM rows WHERE {leaf.where}",
        {"rows": named.append_column("_batch", pa.array(number))},
    )
    ends = np.searchsorted(taken.column("_batch").to_numpy(), np.arange(batches + 1))
    taken = taken.drop_columns(["_batch"]).cast(leaf.schema)
    values = engine.query(f"SELECT {leaf.value} AS v FROM rows", {"rows": taken}).column("v").to_numpy()
    return [
        merge_task_rows(leaf, [TaskRows(taken.slice(a, b - a), np.arange(b - a), int(b - a), values[a:b])])
        for a, b in pairwise(ends)
    ]
