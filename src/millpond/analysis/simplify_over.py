"""Rewrites a query without window functions that its answer does not depend on.

A function that is not used is dropped.  A consumer that takes the maximum over the first rows of each
partition by descending value (or the minimum by ascending value), or only shows partition columns, needs no
rank: some first row of the partition has the value.  What remains is an ordinary query.

A condition on columns by which all functions are partitioned is put below them: whole partitions are then
never computed, nor kept.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.analysis.over import WindowedSource, list_windowed
from millpond.analysis.rank_filters import admits_first, find_rank_limit
from millpond.query.expressions import Aggregate, Ref
from millpond.query.model import Occurrence, Query, Select, Term, WindowFunction
from millpond.query.trees import (
    conjunction,
    conjuncts,
    find_aggregates,
    is_aggregate,
    item_refs,
    map_occurrences,
    refs,
    rename_refs,
    renaming,
    substitute,
)
from millpond.query.window_functions import FunctionKind, find_kind


def simplify_over(query: Query) -> Query:
    """An equivalent query, without window functions that are not needed."""
    return replace(query, terms=tuple(map(_simplify_term, query.terms)))


def _simplify_term(term: Term) -> Term:
    return replace(term, selects=tuple(_simplify_select(each, term.distinct) for each in term.selects))


def _simplify_select(select: Select, distinct: bool) -> Select:
    if len(select.occurrences) == 1 and not select.exists and not select.joins:
        for source in list_windowed(select):
            select = _merge_extremes(source)
            select = _merge_ranks(WindowedSource(select, source.alias), distinct)
    for source in list_windowed(select):
        select = _drop_unused(select, source.alias)
    for source in list_windowed(select) if not select.joins else ():
        select = _filter_partitions(WindowedSource(select, source.alias))
    return select


def _drop_unused(select: Select, alias: str) -> Select:
    source = WindowedSource(select, alias)
    used = tuple(f for f in source.block.functions if f.name in source.used)
    if used == source.block.functions:
        return select
    table = source.table
    gone = {f.name for f in source.block.functions} - {f.name for f in used}
    kept = tuple(c for c in table.derived if c.derivation is None or gone.isdisjoint(c.derivation.arguments))
    if used:
        columns = tuple(c for c in table.columns if c.name not in gone)
        table = replace(table, columns=columns, derived=kept, block=replace(source.block, functions=used))
        return map_occurrences(select, lambda o: replace(o, table=table) if o.alias == alias else o)
    base, where = source.base, source.block.where
    known = {column.name for column in base.derived}
    derived = (*base.derived, *(c for c in kept if c.name not in known))
    made = Occurrence(alias, replace(base, derived=derived))
    select = map_occurrences(select, lambda o: made if o.alias == alias else o)
    own = rename_refs(where, renaming(base.name, alias))
    return replace(select, where=conjunction(select.where, own))


def _filter_partitions(source: WindowedSource) -> Select:
    """The select, with its conditions on whole partitions also below the window functions."""
    select, alias, block = source.select, source.alias, source.block
    known = conjuncts(block.where)
    own = [rename_refs(each, renaming(alias, block.base.name)) for each in source.partition_filters]
    new = [each for each in own if each not in known]
    if not new:
        return select
    table = replace(source.table, block=replace(block, where=conjunction(*known, *new)))
    return map_occurrences(select, lambda o: replace(o, table=table) if o.alias == alias else o)


def _merge_ranks(source: WindowedSource, distinct: bool) -> Select:
    """The select without filters on ranks that its groups or sets do not depend on."""
    select = source.select
    for function in source.block.functions:
        rank = Ref(source.alias, function.name)
        if find_kind(function) is not FunctionKind.RANK or find_rank_limit(select.where, rank) is None:
            continue
        filters = [c for c in conjuncts(select.where) if rank in refs(c)]
        others = [c for c in conjuncts(select.where) if rank not in refs(c)]
        if not all(admits_first(each, rank) for each in filters):
            continue
        partition = {Ref(source.alias, name) for name in function.partition_by}
        if all(refs(each) <= partition for each in others) and _is_told_by_first(
            source, function, partition, distinct
        ):
            select = replace(select, where=conjunction(*others))
    return select


def _is_told_by_first(
    source: WindowedSource, function: WindowFunction, partition: set[Ref], distinct: bool
) -> bool:
    """Whether the first row of each partition is all that the groups, or the set, depend on."""
    select = source.select
    if not is_aggregate(select):
        return distinct and item_refs(select.items) <= partition
    first = function.order_by[0]
    wanted = Aggregate("MAX" if first.descending else "MIN", Ref(source.alias, first.column))
    # NULL must not come before the values.
    return (
        set(select.group_by or ()) <= partition
        and not first.nulls_first
        and all(replace(each, text="") == wanted for each in find_aggregates(select))
    )


def _merge_extremes(source: WindowedSource) -> Select:
    """MAX of a MAX over the partition of each row, or MIN of MIN, as that of the column itself."""
    select = source.select
    if not is_aggregate(select):
        return select
    for function in source.block.functions:
        frame, value = function.frame, Ref(source.alias, function.name)
        argument = function.arguments[0] if function.arguments else None
        if function.function not in ("MAX", "MIN") or frame is None or not isinstance(argument, str):
            continue
        column = next((c for c in source.table.columns if c.name == argument), None)
        partition = {Ref(source.alias, name) for name in function.partition_by}
        includes_row = (frame.start or 0) <= 0 <= (frame.end or 0)
        outside = {r for c in conjuncts(select.where) for r in refs(c)} | set(select.group_by or ())
        asked = [a for a in find_aggregates(select) if a.argument == value]
        same = asked and all(a.function == function.function for a in asked)
        if column is None or not includes_row or not outside <= partition or not same:
            continue
        items = tuple(
            replace(i, expression=substitute(i.expression, {value: Ref(source.alias, argument)}))
            for i in select.items
        )
        having = substitute(select.having, {value: Ref(source.alias, argument)})
        select = replace(select, items=items, having=having)
    return select
