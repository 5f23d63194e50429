"""Merges blocks that group into the select that reads them, where the result is exactly the same.

A filter or projection over groups becomes HAVING and a projection; conditions on group columns become
conditions on rows.  Aggregates of aggregates become aggregates of rows: MAX of MAX, MIN of MIN, SUM of
SUM and of COUNT.  Other blocks get the conditions on their group columns, and lose the columns that nobody
uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.query.current_time import has_current_time
from millpond.query.expressions import (
    TRUE,
    Aggregate,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Op,
    Ref,
)
from millpond.query.model import (
    Column,
    Derivation,
    Item,
    Occurrence,
    OutputColumn,
    Query,
    Select,
    Subquery,
    Table,
    Term,
)
from millpond.query.push_conditions import push_conditions
from millpond.query.trees import (
    conjunction,
    conjuncts,
    find_aggregates,
    has_aggregate,
    is_aggregate,
    item_refs,
    map_occurrences,
    refs,
    transform,
    walk,
)
from millpond.query.types import BIGINT, INT

_SAME = ("MAX", "MIN", "SUM", "BOOL_AND", "BOOL_OR")


def merge_blocks(query: Query) -> Query:
    """The query with its blocks merged where that changes nothing."""
    merged = _merge_only_block(query)
    if merged is not None:
        return merge_blocks(merged)
    return _drop_unused_columns(push_conditions(query))


@dataclass(frozen=True)
class _Pair:
    """A select, and the one block that it reads, which is one select over groups."""

    query: Query
    distinct: bool
    outer: Select
    alias: str
    inner: Select
    table: Table
    values: Mapping[str, Expr]  # what the columns of the block stand for

    def value_of(self, ref: Ref) -> Expr | None:
        """What a column of the block stands for; None for one that is computed from its columns."""
        return self.values.get(ref.column)


def _find_pair(query: Query) -> _Pair | None:
    if len(query.terms) != 1 or len(query.terms[0].selects) != 1:
        return None
    (term,) = query.terms
    (outer,) = term.selects
    if len(outer.every_occurrence) != 1 or outer.session is not None:
        return None
    (occurrence,) = outer.occurrences
    block = occurrence.table.block
    if not isinstance(block, Subquery) or block.query.projection or len(block.query.selects) != 1:
        return None
    (inner,) = block.query.selects
    if block.query.terms[0].distinct or not is_aggregate(inner):
        return None
    if has_current_time(inner) and (term.distinct or is_aggregate(outer)):
        return None  # the groups are those of one moment
    values = {n: item.expression for n, item in zip(block.query.columns, inner.items, strict=True)}
    return _Pair(query, term.distinct, outer, occurrence.alias, inner, occurrence.table, values)


def _merge_only_block(query: Query) -> Query | None:
    """The query without the block that it reads; None if the block stays."""
    pair = _find_pair(query)
    if pair is None or any(pair.value_of(ref) is None for ref in refs(pair.outer.where)):
        return None
    return _merge_aggregates(pair) if is_aggregate(pair.outer) else _merge_filter(pair)


def _expand(pair: _Pair, tree: Expr) -> Expr:
    """An expression over the block, as one over its groups."""
    return transform(tree, lambda node: pair.value_of(node) if isinstance(node, Ref) else None)


def _expand_condition(pair: _Pair, tree: Condition) -> Condition:
    return transform(tree, lambda node: pair.value_of(node) if isinstance(node, Ref) else None)


def _split_condition(pair: _Pair, condition: Condition) -> tuple[list[Condition], list[Condition]]:
    """The conjuncts of a condition over the block: those on its rows, and those on its groups."""
    on_rows: list[Condition] = []
    on_groups: list[Condition] = []
    for each in conjuncts(condition):
        expanded = _expand_condition(pair, each)
        is_on_rows = pair.inner.group_by and not has_aggregate(expanded) and _is_plain(expanded)
        (on_rows if is_on_rows and pair.inner.session is None else on_groups).append(expanded)
    return on_rows, on_groups


def _is_plain(condition: Condition) -> bool:
    """Whether a condition has a form that WHERE can have: columns, shifted by a constant, and constants."""

    def is_side(expr: Expr) -> bool:
        match expr:
            case Literal() | Ref():
                return True
            case Arithmetic(operator="+" | "-", left=Ref(), right=Literal()):
                return True
        return False

    sides = [
        side for node in walk(condition) if isinstance(node, Comparison) for side in (node.left, node.right)
    ]
    sides += [node.operand for node in walk(condition) if isinstance(node, IsNull)]
    return bool(refs(condition)) and all(map(is_side, sides))


# --- a filter and a projection over groups -------------------------------------------------------------


def _merge_filter(pair: _Pair) -> Query | None:
    """``SELECT k, c + 1 FROM (groups) WHERE k < 3 AND c > 5``: WHERE, HAVING and a projection."""
    inner, outer = pair.inner, pair.outer
    computed = [ref for ref in item_refs(outer.items) if pair.value_of(ref) is None]
    if pair.distinct:
        shown = {pair.value_of(i.expression) for i in outer.items if isinstance(i.expression, Ref)}
        if not set(inner.group_by or ()) <= shown or inner.session is not None:
            return None  # equal rows of several groups
    if computed and (pair.query.windows or pair.query.projection):
        return None
    on_rows, on_groups = _split_condition(pair, outer.where)
    merged = replace(
        inner,
        where=conjunction(inner.where, *on_rows),
        having=conjunction(inner.having, *on_groups),
        text=outer.text,
        position=outer.position,
    )
    if computed:
        return _project(pair, merged)
    items = tuple(replace(item, expression=_expand(pair, item.expression)) for item in outer.items)
    terms = (Term((replace(merged, items=items),), False),)
    return replace(pair.query, terms=terms)


def _project(pair: _Pair, merged: Select) -> Query | None:
    """The query with a projection that computes expressions over columns of the block."""
    derived = {column.name: column for column in pair.table.derived}
    items: dict[str, Item] = {}
    outputs: list[OutputColumn] = []
    for name, item in zip(pair.query.columns, pair.outer.items, strict=True):
        used = item_refs([item])
        computed = [ref for ref in used if pair.value_of(ref) is None]
        if not computed:
            part = f"part {len(outputs) + 1} of the result"
            items[part] = Item(_expand(pair, item.expression), part, item.text)
            outputs.append(OutputColumn(name, _quote(part, "`"), _quote(part, '"')))
            continue
        derivation = derived[computed[0].column].derivation if item.expression == computed[0] else None
        if (
            derivation is None
            or not derivation.arguments
            or not set(derivation.arguments) <= set(pair.values)
        ):
            return None
        for each in derivation.arguments:
            items[each] = Item(pair.values[each], each, each)
        outputs.append(OutputColumn(name, derivation.sql, derivation.duckdb))
    select = replace(merged, items=tuple(items.values()))
    return replace(
        pair.query, terms=(Term((select,), False),), columns=tuple(items), projection=tuple(outputs)
    )


def _quote(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote


# --- aggregates of aggregates --------------------------------------------------------------------------


def _merge_aggregates(pair: _Pair) -> Query | None:
    """``SELECT k, MAX(m) FROM (SELECT k, j, MAX(x) AS m … GROUP BY k, j) GROUP BY k``."""
    inner, outer = pair.inner, pair.outer
    on_rows, on_groups = _split_condition(pair, outer.where)
    if on_groups or inner.having != TRUE or not inner.group_by or inner.session is not None:
        return None
    keys = [pair.value_of(ref) for ref in outer.group_by or ()]
    if not all(isinstance(key, Ref) and key in inner.group_by for key in keys):
        return None
    derived: dict[str, Column] = {}
    merged: dict[Expr, Expr] = {}
    for aggregate in find_aggregates(outer):
        found = _merge_aggregate(pair, aggregate, derived)
        if found is None:
            return None
        merged[aggregate] = found

    def change(node: object) -> Expr | None:
        if isinstance(node, Aggregate):
            return merged[node]
        return pair.value_of(node) if isinstance(node, Ref) else None

    items = tuple(replace(i, expression=transform(i.expression, change)) for i in outer.items)
    select = replace(
        inner,
        items=items,
        where=conjunction(inner.where, *on_rows),
        group_by=tuple(key for key in keys if isinstance(key, Ref)) if outer.group_by is not None else None,
        having=transform(outer.having, change),
        text=outer.text,
        position=outer.position,
    )
    first = inner.occurrences[0].table.name

    def add(occurrence: Occurrence) -> Occurrence:
        table = occurrence.table
        if table.name != first or not derived:
            return occurrence
        more = tuple(
            column for name, column in derived.items() if name not in {c.name for c in table.derived}
        )
        return replace(occurrence, table=replace(table, derived=table.derived + more))

    terms = (Term((map_occurrences(select, add),), pair.distinct),)
    return replace(pair.query, terms=terms)


def _merge_aggregate(pair: _Pair, aggregate: Aggregate, derived: dict[str, Column]) -> Aggregate | None:
    """The aggregate of rows that an aggregate of groups is; None if it is none."""
    if aggregate.others or not isinstance(aggregate.argument, Ref):
        return None
    value = pair.value_of(aggregate.argument)
    if isinstance(value, Ref) and value in (pair.inner.group_by or ()):
        ignores = aggregate.function in ("MIN", "MAX") or (
            aggregate.function == "COUNT" and aggregate.distinct
        )
        return replace(aggregate, argument=value) if ignores else None
    if not isinstance(value, Aggregate) or value.distinct or aggregate.distinct:
        return None
    if aggregate.function in _SAME and value.function == aggregate.function:
        return replace(value, text=aggregate.text)
    if aggregate.function == "SUM" and value.function == "COUNT":
        ref = _count_one(pair, value, derived)
        return Aggregate("SUM", ref, text=aggregate.text) if ref is not None else None
    return None


def _count_one(pair: _Pair, count: Aggregate, derived: dict[str, Column]) -> Ref | None:
    """A column that is 1 where COUNT counts a row, and 0 elsewhere; its sum is NULL if there are no rows."""
    occurrence = pair.inner.occurrences[0]
    if pair.inner.joins or count.others:
        return None
    name, spark, duckdb, least = "1 for each row", "1", "1", 1
    arguments: tuple[str, ...] = ()
    if count.argument is not None:
        if not isinstance(count.argument, Ref) or count.argument.occurrence != occurrence.alias:
            return None
        counted = count.argument.column
        name, arguments, least = f"1 for each {counted}", (counted,), 0
        spark = f"CASE WHEN {_quote(counted, '`')} IS NULL THEN 0 ELSE 1 END"
        duckdb = f"CASE WHEN {_quote(counted, chr(34))} IS NULL THEN 0 ELSE 1 END"
    own = Ref(occurrence.table.name, name)
    facts = (Comparison(own, Op.GE, Literal(least, INT), name), Comparison(own, Op.LE, Literal(1, INT), name))
    texts = f"CAST({spark} AS BIGINT)", f"CAST({duckdb} AS BIGINT)"
    derived[name] = Column(name, BIGINT, False, Derivation(*texts, facts, arguments=arguments))
    return Ref(occurrence.alias, name)


# --- blocks that stay ----------------------------------------------------------------------------------


def _drop_unused_columns(query: Query) -> Query:
    """The query, whose blocks of groups have only those columns that it uses."""
    used: dict[str, set[str]] = {}
    for select in query.selects:
        tables = {o.alias: o.table for o in select.every_occurrence}
        for ref in _list_refs(select):
            if ref.occurrence in tables:
                _add_used(
                    tables[ref.occurrence], ref.column, used.setdefault(tables[ref.occurrence].name, set())
                )

    def drop(occurrence: Occurrence) -> Occurrence:
        table = occurrence.table
        names = used.get(table.name, set()) | ({table.time} if table.time else set())
        for column in table.derived:
            if column.derivation is not None and column.derivation.time is not None:
                names.add(column.name)
        return replace(occurrence, table=_keep_columns(table, names))

    terms = (
        replace(term, selects=tuple(map_occurrences(select, drop) for select in term.selects))
        for term in query.terms
    )
    return replace(query, terms=tuple(terms))


def _list_refs(select: Select) -> set[Ref]:
    places = [select.where, select.having, *(join.on for join in select.joins)]
    places += [each.condition for each in select.exists]
    found = {ref for place in places for ref in refs(place)} | item_refs(select.items)
    found |= set(select.group_by or ())
    if select.session is not None:
        found |= {select.session.time, select.session.start, select.session.end}
    return found


def _add_used(table: Table, name: str, used: set[str]) -> None:
    used.add(name)
    column = next((c for c in table.derived if c.name == name), None)
    if column is not None and column.derivation is not None:
        for each in column.derivation.arguments:
            _add_used(table, each, used)


def _keep_columns(table: Table, names: set[str]) -> Table:
    block = table.block
    if not isinstance(block, Subquery) or block.query.projection or block.query.windows:
        return table
    if any(term.distinct for term in block.query.terms):
        return table
    kept = [i for i, name in enumerate(block.query.columns) if name in names]
    if len(kept) == len(block.query.columns) or not kept:
        return table
    terms = tuple(
        replace(t, selects=tuple(replace(s, items=tuple(s.items[i] for i in kept)) for s in t.selects))
        for t in block.query.terms
    )
    query = replace(block.query, terms=terms, columns=tuple(block.query.columns[i] for i in kept))
    columns = tuple(c for c in table.columns if c.name in query.columns)
    derived = tuple(c for c in table.derived if c.derivation is None or set(c.derivation.arguments) <= names)
    return replace(table, columns=columns, derived=derived, block=Subquery(merge_blocks(query)))
