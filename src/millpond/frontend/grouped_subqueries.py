"""Puts the groups of a select below the subqueries in its HAVING and select list, before a tree is read.

    SELECT shop, SUM(x) FROM sales GROUP BY shop HAVING SUM(x) > (SELECT AVG(goal) FROM goals)

is the filter ``sum > (SELECT …)`` over the groups as a block, where the subquery is one of WHERE.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.frontend.correlation import find_correlation, has_aggregate_of, list_sources
from millpond.frontend.scope import Names
from millpond.frontend.shorthands import is_same
from millpond.frontend.spark_names import NAME
from millpond.frontend.statement import AGGREGATES
from millpond.frontend.subquery_joins import list_starts, make_column, make_name

_GROUPS = "groups"
_VALUE = "value {} of the groups"
_TESTS = (exp.Subquery, exp.Exists, exp.In)


class _CannotLiftError(Exception):
    """A select whose groups cannot be put below its subqueries."""


def lift_groups(tree: exp.Expr, names: Names) -> set[int]:
    """Make a block of the groups of each select that has subqueries over its groups.

    Returns the places in the text of what is left out of the tree.
    """
    left_out = set[int]()
    for select in reversed([*tree.find_all(exp.Select)]):
        if not _has_subqueries(select):
            continue
        copied = select.copy()
        copied.parent = select.parent  # so that the queries of WITH around it are found
        try:
            made = _Groups(copied, names).lift()
        except _CannotLiftError:
            continue
        left_out |= list_starts(select)
        for key in [*select.args]:
            select.set(key, None)
        for key, value in made.args.items():
            select.set(key, value)
    return left_out


def _has_subqueries(select: exp.Select) -> bool:
    """Whether a select with groups has a subquery over them, which is in no aggregate."""
    if not select.args.get("group") and not has_aggregate_of(select):
        return False
    if any(select.args.get(key) for key in ("qualify", "windows", "laterals", "order", "limit")):
        return False
    return any(True for clause in _list_clauses(select) for _ in _list_subqueries(clause, select))


def _list_clauses(select: exp.Select) -> list[exp.Expr]:
    having = select.args.get("having")
    return [*select.expressions, *([having.this] if having is not None else [])]


def _list_subqueries(clause: exp.Expr, select: exp.Select) -> Iterator[exp.Select]:
    """The subqueries of a clause that are in no aggregate."""
    for query in clause.find_all(exp.Select):
        above = query.find_ancestor(exp.Select, *AGGREGATES)
        if above is select:
            yield query


def _list_operands(node: exp.Expr) -> list[exp.Expr]:
    return [*node.flatten()] if isinstance(node, exp.And) else [node]


class _Groups:
    """The groups of a select as a block: its columns are the keys and the aggregates."""

    def __init__(self, select: exp.Select, names: Names) -> None:
        self.select = select
        self.names = names
        group = select.args.get("group")
        if group is not None and any(value for key, value in group.args.items() if key != "expressions"):
            raise _CannotLiftError
        sources = list_sources(select, names).values()
        self.known = {name for columns in sources for name in columns or ()}
        self.keys = [self._find_key(each) for each in (group.expressions if group is not None else ())]
        self.columns: list[tuple[str, exp.Expr]] = []
        for key in self.keys:
            if key.find(exp.Query, exp.Window, *AGGREGATES) or _is_window(key):
                raise _CannotLiftError
            self._add(key, key.name if isinstance(key, exp.Column) else "")

    def lift(self) -> exp.Select:
        """The select over the block of its groups."""
        select = self.select
        items = [self._move_item(each) for each in select.expressions]
        having = select.args.get("having")
        operands = [self._resolve(each) for each in _list_operands(having.this)] if having is not None else []
        own = [each for each in operands if each.find(exp.Query) is None]
        conditions = [self._move(each) for each in operands if each.find(exp.Query) is not None]
        made = exp.Select(
            expressions=items,
            where=exp.Where(this=exp.and_(*conditions, copy=False)) if conditions else None,
            distinct=select.args.get("distinct"),
            with_=select.args.get("with_"),
        )
        select.set("distinct", None)
        select.set("with_", None)
        select.set("having", exp.Having(this=exp.and_(*own, copy=False)) if own else None)
        block_items = [exp.Alias(this=each.copy(), alias=make_name(name)) for name, each in self.columns]
        if not block_items:
            raise _CannotLiftError
        select.set("expressions", block_items)
        if self.keys:
            select.set("group", exp.Group(expressions=[key.copy() for key in self.keys]))
        alias = exp.TableAlias(this=make_name(_GROUPS))
        select.parent = None
        made.set("from_", exp.From(this=exp.Subquery(this=select, alias=alias)))
        return made

    def _find_key(self, key: exp.Expr) -> exp.Expr:
        """What GROUP BY means by a number or an alias."""
        items = self.select.expressions
        if isinstance(key, exp.Literal) and key.is_int and 1 <= int(key.name) <= len(items):
            item: exp.Expr = items[int(key.name) - 1].unalias()
            return item
        return self._find_alias(key) or key

    def _find_alias(self, node: exp.Expr) -> exp.Expr | None:
        """The item that a name stands for, if it is no column."""
        if not isinstance(node, exp.Column) or node.table or node.name.lower() in self.known:
            return None
        items = (each for each in self.select.expressions if isinstance(each, exp.Alias))
        return next((each.this for each in items if each.alias.lower() == node.name.lower()), None)

    def _resolve(self, node: exp.Expr) -> exp.Expr:
        """A condition of HAVING with the items that its names stand for."""
        holder = exp.Paren(this=node)
        for column in [*node.find_all(exp.Column)]:
            item = self._find_alias(column) if column.parent_select in (None, self.select) else None
            if item is not None and not any(is_same(column, key) for key in self.keys):
                column.replace(exp.Paren(this=item.copy()))
        resolved: exp.Expr = holder.this
        return resolved

    def _add(self, node: exp.Expr, wanted: str) -> str:
        taken = [name.lower() for name, _ in self.columns]
        name = wanted if wanted and wanted.lower() not in taken else _VALUE.format(len(self.columns) + 1)
        self.columns.append((name, node))
        return name

    def _move_item(self, item: exp.Expr) -> exp.Expr:
        if item.is_star:
            raise _CannotLiftError
        if isinstance(item, exp.Alias):
            return exp.Alias(this=self._move(item.this), alias=item.args["alias"])
        moved = self._move(item)
        if isinstance(moved, exp.Column):
            return exp.Alias(this=moved, alias=make_name(moved.meta.get(NAME, moved.name)))
        return moved

    def _move(self, node: exp.Expr) -> exp.Expr:
        """An expression over the groups as one over the columns of the block."""
        found = self._find_column(node)
        if found is not None:
            return found
        if isinstance(node, exp.Select):
            self._move_outer(node)
            return node
        if isinstance(node, exp.Column | exp.Window):
            raise _CannotLiftError
        for child in [*node.iter_expressions()]:
            moved = self._move(child)
            if moved is not child:
                child.replace(moved)
        return node

    def _find_column(self, node: exp.Expr) -> exp.Expr | None:
        """The column of the block that a key or an aggregate is."""
        if isinstance(node, exp.Identifier | exp.Select):
            return None
        is_call = isinstance(node, (*AGGREGATES, exp.Filter))
        name = next((name for name, each in self.columns if is_same(node, each)), None)
        if name is None and is_call:
            name = self._add(node.copy(), "")
        if name is None:
            return None
        column = make_column(name, _GROUPS)
        column.this.meta.update(node.this.meta if isinstance(node, exp.Column) else {})
        column.meta[NAME] = (
            _name_call(node) if is_call else node.name if isinstance(node, exp.Column) else None
        )
        return column

    def _move_outer(self, query: exp.Select) -> None:
        """Let a subquery read the block instead of the tables of the select."""
        found = find_correlation(query, self.select, self.names)
        if found is None or found.others:
            raise _CannotLiftError
        sides = [*(o for _, o in found.equalities), *(o for _, _, o in found.bounds), *found.outside]
        outer = {id(column) for side in sides for column in side.find_all(exp.Column)}
        for column in [*query.find_all(exp.Column)]:
            if id(column) in outer:
                column.replace(self._move(column))


def _is_window(node: exp.Expr) -> bool:
    """Whether a key is a time window, which is two columns."""
    return (isinstance(node, exp.Func) and node.sql_name().upper() in ("WINDOW", "SESSION_WINDOW")) or (
        isinstance(node, exp.Anonymous) and node.name.upper() in ("WINDOW", "SESSION_WINDOW")
    )


def _name_call(call: exp.Expr) -> str | None:
    """Spark's name for the column of an aggregate: ``sum(x)``, ``count(1)``, ``count(DISTINCT x)``."""
    if isinstance(call, exp.Count) and isinstance(call.this, exp.Star):
        return "count(1)"
    argument = call.this
    distinct = "DISTINCT " if isinstance(argument, exp.Distinct) else ""
    if distinct and len(argument.expressions) == 1:
        argument = argument.expressions[0]
    plain = isinstance(argument, exp.Column) and type(call) in (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
    if not plain:
        raise _CannotLiftError
    return f"{type(call).__name__.lower()}({distinct}{argument.name})"
