"""Which queries over time are divided into shards by a join key, and by which columns.

A query is divided if it has windows and, in every part, all streams are joined by equality on one key: then
all rows of a match are in one shard.  A bag of rows is the sum of what the shards emit.  Groups, and the rows
of DISTINCT, are divided if they contain the key, so that no two shards hold the same one.  Everything else
stays in one shard: joins without an equality, groups without the key, UNION of sets, and queries over tables
that are computed from others.

Every shard learns how far each stream has advanced, so all of them release the same stretch of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millpond.engines.timed.program import InputProgram
from millpond.plan.needs import TimedPlan
from millpond.query.expressions import Ref
from millpond.query.model import Query
from millpond.query.parts import Part, is_threshold
from millpond.query.time_order import TimeOrder
from millpond.query.trees import is_aggregate
from millpond.query.types import Domain

# The number of shards of a divided query.  It is part of the state's layout: never change it.
SHARDS = 8
# Numbers for the shards that Spark's hash partitioning spreads evenly over 2 to 8 partitions.
SHARD_NUMBERS = (2122, 1780, 848, 206, 52, 715, 296, 1133)
# The column with the shard of a row, from 0 on.
SHARD = "shard"
# The column by which each stream is divided.
ShardColumns = Mapping[str, str]
Rows = dict[str, pa.Table]


def find_shard_columns(plan: TimedPlan) -> ShardColumns | None:
    """The column by which each stream is divided; None if the query stays in one shard."""
    if any(select.waits for select in plan.selects):
        return None
    parts = [p for s in plan.selects for part, needs in s.parts for p in (part, *(n.part for n in needs))]
    if not any(TimeOrder(part).horizon for part in parts) or not _read_declared_tables(parts, plan.query):
        return None
    found = (columns for columns in _find_common_columns(parts) if _contain_the_key(plan.query, columns))
    return next(found, None)


def _read_declared_tables(parts: Sequence[Part], query: Query) -> bool:
    """Whether every occurrence is a declared table, and not computed from others."""
    occurrences = (o for part in parts for o in part.select.occurrences if not is_threshold(o.alias))
    return all(query.tables.get(o.table.name) == o.table for o in occurrences)


def _find_common_columns(parts: Sequence[Part]) -> Iterator[dict[str, str]]:
    """The ways to choose one column of each stream so that it is the join key in all parts."""
    if not parts:
        yield {}
        return
    for rest in _find_common_columns(parts[1:]):
        for columns in _find_join_keys(parts[0]):
            if all(rest.get(stream, column) == column for stream, column in columns.items()):
                yield {**rest, **columns}


def _find_join_keys(part: Part) -> Iterator[dict[str, str]]:
    """The join keys of all streams of a part: sets of columns that are equal in every match, one each."""
    streams = {
        o.alias: o.table for o in part.select.occurrences if o.table.streaming and not is_threshold(o.alias)
    }
    if len(streams) < 2:
        return
    first = next(iter(streams))
    for candidate in _list_columns(part, first):
        columns: dict[str, str] = {}
        for alias, table in streams.items():
            equal = [
                ref.column
                for ref in _list_columns(part, alias)
                if _are_joined(part, candidate, ref) and columns.get(table.name, ref.column) == ref.column
            ]
            if not equal:
                break
            columns[table.name] = equal[0]
        else:
            yield columns


def _list_columns(part: Part, alias: str) -> list[Ref]:
    """The declared columns of an occurrence that are compared with others, without timestamps."""
    declared = {column.name for column in part.select.occurrence(alias).table.columns}
    return [
        n.ref
        for n in part.closure.nodes
        if n.ref.occurrence == alias and n.ref.column in declared and n.type.domain is not Domain.TIME
    ]


def _are_joined(part: Part, one: Ref, other: Ref) -> bool:
    """Whether two columns are equal in every match, and not only because constants say so."""
    closure = part.closure
    i, j = closure.index[one], closure.index[other]
    if closure.origin[i] != closure.origin[j] or not closure.has_fixed_difference(one, other):
        return False
    bound = closure.bound(one, other)
    return one == other or (bound is not None and not bound[0] and not closure.by_constants[i, j])


def _contain_the_key(query: Query, columns: ShardColumns) -> bool:
    """Whether the key is part of every row that is remembered, if the query remembers rows or groups."""
    for term in query.terms:
        remembers = term.distinct or any(is_aggregate(select) for select in term.selects)
        if not remembers:
            continue
        if len(query.selects) > 1:
            return False
        (select,) = term.selects
        shown = [item.expression for item in select.items]
        kept = shown if term.distinct else select.group_by or ()
        tables = {o.alias: o.table.name for o in select.occurrences}
        if not any(isinstance(e, Ref) and columns.get(tables[e.occurrence]) == e.column for e in kept):
            return False
    return True


def divide_rows(inputs: Sequence[InputProgram], shards: int, rows: Mapping[str, pa.Table]) -> list[Rows]:
    """The rows of each shard, by input table, from the tables that ``reduce`` has made."""
    divided: list[Rows] = [{} for _ in range(shards)]
    for each in inputs:
        table = rows.get(each.name)
        if table is None or not table.num_rows:
            continue
        kept = table.select(each.schema.names).cast(each.schema)
        if shards == 1:
            divided[0][each.name] = kept
            continue
        numbers = table.column(SHARD).to_numpy()
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(shards + 1))
        kept = kept.take(pa.array(order))
        for number, (start, end) in enumerate(pairwise(bounds)):
            if start < end:
                divided[number][each.name] = kept.slice(start, end - start)
    return divided
