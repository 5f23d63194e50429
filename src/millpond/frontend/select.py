"""sqlglot's SELECT and UNION → queries: FROM, the select list, grouping, output names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.errors import NameError_, Position, SqlError, TypeError_, one_line
from millpond.frontend.conditions import conjunction, group_condition, row_condition
from millpond.frontend.constants import Bound, constant
from millpond.frontend.expressions import Reader, bare, bind, has_aggregate, star_item
from millpond.frontend.refusals import only, outside
from millpond.frontend.scope import Scope, find_table, identifier, table_name
from millpond.frontend.source import Source
from millpond.query.model import TRUE, Condition, Item, Literal, Occurrence, Query, Ref, Select, Table, Term
from millpond.query.trees import refs
from millpond.query.types import TIMESTAMP, SqlType

MAX_SELECTS = 100
MAX_ITEMS = 10_000
_JOIN = "write JOIN … ON …, or list the tables in FROM and put the condition in WHERE"


@dataclass(frozen=True)
class _Read:
    """A select and the types of its columns."""

    select: Select
    types: tuple[SqlType | None, ...]


@dataclass(frozen=True)
class _Item:
    """A select item with ``*`` already written out: then ``column`` is one that it stands for."""

    node: exp.Expr
    alias: str | None
    text: str
    column: tuple[Ref, SqlType] | None = None


def read_query(source: Source, tables: Mapping[str, Table]) -> Query:
    """The query of a statement, resolved against the tables."""
    reads: list[_Read] = []
    terms = _terms(source, source.tree, tables, reads)
    _guard_columns(reads)
    columns = tuple(item.name for item in reads[0].select.items)
    start, end = source.tokens[0].start, source.tokens[-1].end + 1
    return Query(terms, columns, source.text[start:end], source.token_at(0))


def _terms(
    source: Source, tree: exp.Expr, tables: Mapping[str, Table], reads: list[_Read]
) -> tuple[Term, ...]:
    """The terms whose bag union is the query; UNION makes one set of all before it and the next."""
    chain: list[tuple[exp.Expr, bool]] = []
    node = _unwrapped(source, tree)
    while isinstance(node, exp.Union):
        only(source, node, "this", "expression", "distinct")
        chain.append((node.expression, bool(node.args.get("distinct"))))
        node = _unwrapped(source, node.this)
    if not isinstance(node, exp.Select):
        raise outside(source, node)
    if len(reads) >= MAX_SELECTS:
        message = f"more than {MAX_SELECTS} selects in one UNION"
        raise SqlError(message, source.at(node), "split it into several queries")
    reads.append(_select(source, node, tables))
    terms: tuple[Term, ...] = (Term((reads[-1].select,), bool(node.args.get("distinct"))),)
    for right, distinct in reversed(chain):
        terms += _terms(source, right, tables, reads)
        if distinct:
            terms = (Term(tuple(select for term in terms for select in term.selects), True),)
    return terms


def _unwrapped(source: Source, node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Subquery):
        only(source, node, "this")
        node = node.this
    return node


def _guard_columns(reads: Sequence[_Read]) -> None:
    """Every select of a UNION has as many columns as the first, of types that go together."""
    kinds = list(reads[0].types)
    for read in reads[1:]:
        if len(read.types) != len(kinds):
            message = f"this select has {len(read.types)} columns and the first of the UNION {len(kinds)}"
            raise SqlError(message, read.select.position, "select as many columns in each")
        for index, (first, kind) in enumerate(zip(kinds, read.types, strict=True)):
            if first is not None and kind is not None and first.family is not kind.family:
                name = one_line(read.select.items[index].name, 40)
                message = (
                    f"column {index + 1} of the UNION is {first} in a select before, and {name} is {kind}"
                )
                raise TypeError_(message, read.select.position, "select columns of the same type")
            kinds[index] = first or kind


def _select(source: Source, node: exp.Select, tables: Mapping[str, Table]) -> _Read:
    only(source, node, "distinct", "expressions", "from_", "joins", "where", "group", "having")
    if node.args.get("distinct"):
        only(source, node.args["distinct"])
    joins = _joins(source, node)
    occurrences = _occurrences(source, joins, tables)
    scope = Scope(source, occurrences)
    items = _items(source, node, scope)
    group_by = _group_by(scope, node.args.get("group"), items)
    is_grouped = group_by is not None or any(has_aggregate(item.node) for item in items)
    reader = Reader(source, scope, frozenset(group_by or ()) if is_grouped else None)
    where = _where(scope, joins, node.args.get("where"))
    bound = [star_item(reader, i.node, *i.column) if i.column else bind(reader, i.node) for i in items]
    having = _having(reader, node.args.get("having"), items)
    text, place = source.slice(node), source.at(node)
    select = Select(occurrences, _named(items, bound), where, group_by, having, text, place)
    _guard_times(source, select, items)
    return _Read(select, tuple(each.type for each in bound))


def _guard_times(source: Source, select: Select, items: Sequence[_Item]) -> None:
    """A join of streams has no timestamps in its result, as in paper 2: matches are told without them."""
    if sum(o.table.streaming for o in select.occurrences) < 2:
        return
    places: list[tuple[Position | None, frozenset[Ref]]] = [
        (source.at(i.node), refs(s.expression)) for i, s in zip(items, select.items, strict=True)
    ]
    places += [(select.position, frozenset({ref})) for ref in select.group_by or ()]
    places.append((select.position, refs(select.having)))
    for place, mentioned in places:
        for ref in sorted(mentioned, key=str):
            table = select.occurrence(ref.occurrence).table
            if table.streaming and table.column(ref.column).type is TIMESTAMP:
                message = f"{one_line(str(ref))} is a timestamp in the result of a join of streams"
                raise TypeError_(message, place, "compare it in WHERE, and select other columns")


# --- FROM and WHERE ----------------------------------------------------------------------------------


def _joins(source: Source, node: exp.Select) -> list[tuple[exp.Table, exp.Expr | None]]:
    """The tables of FROM, each with its ON."""
    start = node.args.get("from_")
    if start is None:
        raise SqlError("SELECT without FROM is outside the language", source.at(node), "name a table in FROM")
    only(source, start, "this")
    joins: list[tuple[exp.Table, exp.Expr | None]] = [(_table(source, start.this), None)]
    for join in node.args.get("joins") or ():
        only(source, join, "this", "on", "kind", "side", "method")
        words = [join.args[key] for key in ("method", "side", "kind") if join.args.get(key)]
        if words and words not in (["INNER"], ["CROSS"]):
            message = f"{' '.join(words)} JOIN is outside the language"
            raise SqlError(message, source.keyword_at(join, words[0]), _JOIN)
        joins.append((_table(source, join.this), join.args.get("on")))
    return joins


def _table(source: Source, node: exp.Expr) -> exp.Table:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        message = "a table or join in parentheses is outside the language"
        raise SqlError(message, source.at(node), "leave out the parentheses")
    if not isinstance(node, exp.Table):
        raise outside(source, node)
    table_name(source, node, "alias")
    return node


def _occurrences(
    source: Source, joins: Sequence[tuple[exp.Table, object]], tables: Mapping[str, Table]
) -> tuple[Occurrence, ...]:
    occurrences: dict[str, Occurrence] = {}
    for node, _ in joins:
        table, written = find_table(source, node, tables), node.args.get("alias")
        if written:
            only(source, written, "this")
        alias = identifier(source, written.this if written else node.this)
        if alias.lower() in occurrences:
            message = f"{one_line(alias)} stands twice in FROM"
            raise NameError_(message, source.at(written or node), "give each an alias of its own")
        occurrences[alias.lower()] = Occurrence(alias, table)
    return tuple(occurrences.values())


def _where(
    scope: Scope, joins: Sequence[tuple[object, exp.Expr | None]], where: exp.Expr | None
) -> Condition:
    """All ON conditions and WHERE: joins are inner, so where a condition stands makes no difference.

    ON sees all tables before it: Spark binds the comma as tightly as JOIN.
    """
    conditions: list[Condition] = []
    for index, (_, on) in enumerate(joins):
        if on is not None:
            near = Scope(scope.source, scope.occurrences[: index + 1], scope.occurrences[index + 1 :])
            conditions.append(row_condition(Reader(scope.source, near), on))
    if where is not None:
        conditions.append(row_condition(Reader(scope.source, scope), where.this))
    return conjunction(each for each in conditions if each != TRUE)


# --- the select list ---------------------------------------------------------------------------------


def _items(source: Source, node: exp.Select, scope: Scope) -> list[_Item]:
    items: list[_Item] = []
    for each in node.expressions:
        if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
            items += _star(source, each, scope)
        elif isinstance(each, exp.Alias):
            only(source, each, "this", "alias")
            items.append(_Item(each.this, identifier(source, each.args["alias"]), source.slice(each)))
        else:
            items.append(_Item(each, None, source.typed(each)))
        if len(items) > MAX_ITEMS:
            message = f"more than {MAX_ITEMS} columns in one select"
            raise SqlError(message, source.at(each), "name the columns you need")
    if not items:
        raise SqlError("nothing is selected", source.at(node), "name the columns after SELECT")
    return items


def _star(source: Source, node: exp.Expr, scope: Scope) -> list[_Item]:
    among = scope.occurrences
    only(source, node.this if isinstance(node, exp.Column) else node)
    if isinstance(node, exp.Column):
        only(source, node, "this", "table")
        among = (scope.qualified(node.args["table"]),)
    return [
        _Item(node, None, f"{each.alias}.{column.name}", (Ref(each.alias, column.name), column.type))
        for each in among
        for column in each.table.columns
    ]


def _named(items: Sequence[_Item], bound: Sequence[Bound]) -> tuple[Item, ...]:
    unique = unique_names([item.alias or each.name for item, each in zip(items, bound, strict=True)])
    return tuple(
        Item(each.expression, name, item.text) for item, each, name in zip(items, bound, unique, strict=True)
    )


def unique_names(names: Sequence[str]) -> list[str]:
    """Append _1, _2, … to names that occur more than once.

    >>> unique_names(["A", "B", "a"])
    ['A_1', 'B', 'a_2']
    """
    counts = Counter(name.lower() for name in names)
    taken = {name for name, count in counts.items() if count == 1}
    numbers: Counter[str] = Counter()
    result = []
    for name in names:
        unique = name
        while counts[name.lower()] > 1 and (unique == name or unique.lower() in taken):
            numbers[name.lower()] += 1
            unique = f"{name}_{numbers[name.lower()]}"
        taken.add(unique.lower())
        result.append(unique)
    return result


# --- grouping ----------------------------------------------------------------------------------------


def _group_by(scope: Scope, node: exp.Expr | None, items: Sequence[_Item]) -> tuple[Ref, ...] | None:
    if node is None:
        return None
    source = scope.source
    only(source, node, "expressions")
    if not node.expressions:
        raise SqlError("GROUP BY names no column", source.keyword_at(node, "GROUP"), "name the columns")
    return tuple(dict.fromkeys(_group_column(scope, each, items) for each in node.expressions))


def _group_column(scope: Scope, node: exp.Expr, items: Sequence[_Item]) -> Ref:
    """A column, or what an ordinal or a select alias stands for; columns come first, as in Spark."""
    source, target = scope.source, bare(scope.source, node)
    ordinal = constant(source, target)
    if ordinal and isinstance(ordinal.expression, Literal) and type(ordinal.expression.value) is int:
        if not 1 <= ordinal.expression.value <= len(items):
            message = f"GROUP BY {source.shown(node)} is no position of the select list"
            raise SqlError(message, source.at(node), f"write 1 to {len(items)}, or a column")
        item = items[ordinal.expression.value - 1]
        if item.column:
            return item.column[0]
        target = bare(source, item.node)
    elif isinstance(target, exp.Column) and not target.args.get("table") and not scope.knows(target):
        target = bare(source, _aliases(items).get(target.name.lower(), target))
    if isinstance(target, exp.Column) and not isinstance(target.this, exp.Star):
        return scope.column(target)[0]
    if isinstance(target, exp.Rollup | exp.Cube | exp.GroupingSets):
        raise outside(source, target)
    message = f"GROUP BY {source.shown(node)} is outside the language"
    raise SqlError(message, source.at(node), "group by plain columns")


def _aliases(items: Sequence[_Item]) -> dict[str, exp.Expr]:
    """Select items by alias; an alias given twice stands for nothing."""
    counts = Counter(item.alias.lower() for item in items if item.alias)
    return {i.alias.lower(): i.node for i in items if i.alias and counts[i.alias.lower()] == 1}


def _having(reader: Reader, node: exp.Expr | None, items: Sequence[_Item]) -> Condition:
    if node is None:
        return TRUE
    if reader.grouped is None:
        place = reader.source.keyword_at(node, "HAVING")
        message = "HAVING with neither GROUP BY nor an aggregate in the select list is outside the language"
        raise SqlError(message, place, "put the condition in WHERE")
    return group_condition(replace(reader, aliases=_aliases(items)), node.this)
