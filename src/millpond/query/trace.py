"""Traces columns of blocks back to the columns of declared tables that they show."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.query.expressions import Comparison, Condition, Op, Ref
from millpond.query.model import Query, Select, Subquery, Table, Windowed
from millpond.query.trees import refs, walk

# A declared table and one of its columns.
Source = tuple[str, str]


def trace_column(table: Table, name: str) -> Source | None:
    """The declared column that a column of a table shows, or is computed from; None if several."""
    column = next((c for c in table.all_columns if c.name == name), None)
    if column is not None and column.derivation is not None:
        arguments = column.derivation.arguments or ((table.time,) if table.time else ())
        return trace_column(table, arguments[0]) if len(arguments) == 1 else None
    match table.block:
        case None:
            return (table.name, name)
        case Windowed(base=base):
            return trace_column(base, name) if any(c.name == name for c in base.all_columns) else None
        case Subquery(query=query):
            if name not in query.columns or len(query.selects) != 1:
                return None
            (select,) = query.selects
            item = select.items[query.columns.index(name)].expression
            return trace_ref(select, item) if isinstance(item, Ref) else None
    return trace_column(table.declared, name) if table.declared is not table else None


def trace_ref(select: Select, ref: Ref) -> Source | None:
    """The declared column that a column of an occurrence shows."""
    return trace_column(select.occurrence(ref.occurrence).table, ref.column)


def list_selects(query: Query) -> Iterator[Select]:
    """The selects of a query and of its blocks."""
    for select in query.selects:
        yield select
        for occurrence in select.every_occurrence:
            yield from _list_inner(occurrence.table)


def _list_inner(table: Table) -> Iterator[Select]:
    match table.block:
        case Subquery(query=query):
            yield from list_selects(query)
        case Windowed(base=base):
            yield from _list_inner(base)


def list_blocks(query: Query) -> Iterator[Windowed]:
    """The blocks with window functions of a query and of its blocks."""
    for select in list_selects(query):
        for occurrence in select.every_occurrence:
            table = occurrence.table
            while isinstance(table.block, Windowed):
                yield table.block
                table = table.block.base


def list_conditions(query: Query) -> Iterator[tuple[Select | None, Condition]]:
    """Every condition of a query and of its blocks, with the select that it belongs to."""
    for select in list_selects(query):
        yield from ((select, c) for c in (select.where, select.having, *(j.on for j in select.joins)))
        yield from ((select, each.condition) for each in select.exists)
    yield from ((None, block.where) for block in list_blocks(query))


def list_derivations(query: Query) -> Iterator[str]:
    """The SQL of every derived column of a query and of its blocks."""
    tables = [o.table for select in list_selects(query) for o in select.every_occurrence]
    tables += [block.base for block in list_blocks(query)]
    for table in tables:
        for column in table.derived:
            if column.derivation is not None and column.derivation.time is None:
                yield column.derivation.sql


def find_equal_columns(query: Query) -> list[set[Source]]:
    """Sets of declared columns that the conditions of a query equate with each other."""
    sets: list[set[Source]] = []
    for select, condition in list_conditions(query):
        for node in walk(condition):
            if not isinstance(node, Comparison) or node.operator is not Op.EQ or select is None:
                continue
            sides = [side for side in (node.left, node.right) if isinstance(side, Ref)]
            found = {source for side in sides if (source := trace_ref(select, side)) is not None}
            if len(found) == 2:
                touching = [each for each in sets if each & found]
                sets = [each for each in sets if not each & found] + [found.union(*touching)]
    return sets


def find_compared_columns(query: Query) -> set[Source]:
    """The declared columns that conditions of a query mention, also inside expressions."""
    found: set[Source] = set()
    for select, condition in list_conditions(query):
        if select is None:
            continue
        for ref in refs(condition):
            table = select.occurrence(ref.occurrence).table
            for name in list_arguments(table, ref.column):
                source = trace_column(table, name)
                found |= {source} if source is not None else set()
    return found


def list_arguments(table: Table, name: str) -> Iterator[str]:
    """The columns that a column is computed from; itself if it is not derived."""
    column = next((c for c in table.all_columns if c.name == name), None)
    if column is None or column.derivation is None or not column.derivation.arguments:
        yield name
        return
    for argument in column.derivation.arguments:
        yield from list_arguments(table, argument)


def find_used_columns(select: Select, alias: str) -> frozenset[str]:
    """The columns of an occurrence that a select uses, also to compute derived columns."""
    places = [select.where, select.having, *(join.on for join in select.joins)]
    places += [each.condition for each in select.exists]
    found = {ref for place in places for ref in refs(place)} | set(select.group_by or ())
    found |= {ref for item in select.items for ref in refs(item.expression)}
    todo = [ref.column for ref in found if ref.occurrence == alias]
    used: set[str] = set()
    columns = {column.name: column for column in select.occurrence(alias).table.all_columns}
    while todo:
        name = todo.pop()
        if name in used:
            continue
        used.add(name)
        derivation = columns[name].derivation
        if derivation is not None:
            todo += [each for each in derivation.arguments if each in columns]
            time = select.occurrence(alias).table.time
            todo += [time] if derivation.time is not None and time is not None else []
    return frozenset(used)
