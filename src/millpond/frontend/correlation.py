"""Tells which columns of a subquery are those of the select around it, before a tree is read.

As in SQL, a name is a column of the subquery itself if it can be one.  Where the columns of a table in FROM
are not known before it is read, names without a table are the subquery's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.frontend.scope import NamedQuery, Names
from millpond.frontend.statement import AGGREGATES
from millpond.query.model import Table

# The columns of the tables in FROM, by alias in lower case; None if they are not known.
Sources = Mapping[str, tuple[str, ...] | None]
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


@dataclass
class Correlation:
    """How WHERE of a subquery is connected with the select around it: the operands of its topmost AND.

    ``equalities`` are an expression over columns of the subquery and an equal one over columns around it,
    ``bounds`` such pairs with a comparison between them.  ``outside`` have columns from around it only,
    ``own`` have none of them, ``others`` have both in another way.
    """

    equalities: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    bounds: list[tuple[exp.Expr, type[exp.Expr], exp.Expr]] = field(default_factory=list)
    outside: list[exp.Expr] = field(default_factory=list)
    own: list[exp.Expr] = field(default_factory=list)
    others: list[exp.Expr] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """No column of the subquery is one of the select around it."""
        return not (self.equalities or self.bounds or self.outside or self.others)

    def list_outer_columns(self) -> Iterator[exp.Column]:
        """The columns of the select around the subquery that it is compared with."""
        sides = [*(outer for _, outer in self.equalities), *(outer for _, _, outer in self.bounds)]
        return (column for side in (*sides, *self.outside) for column in side.find_all(exp.Column))


def find_correlation(query: exp.Select, around: exp.Select, names: Names) -> Correlation | None:
    """How a subquery is connected with the select around it; None if it is so elsewhere than in WHERE."""
    outer = _find_outer_columns(query, around, names)
    where = query.args.get("where")
    found = Correlation()
    for each in _list_operands(where.this) if where is not None else ():
        columns = [id(column) for column in each.find_all(exp.Column)]
        inside = outer.intersection(columns)
        outer -= inside
        is_plain = each.find(exp.Query) is None
        if not inside:
            found.own.append(each)
        elif not is_plain:
            found.others.append(each)
        elif len(inside) == len(columns):
            found.outside.append(each)
        else:
            _add_comparison(found, each, inside)
    return None if outer else found


def _add_comparison(found: Correlation, node: exp.Expr, outer: set[int]) -> None:
    """Add a condition with columns of both sides."""
    node = node.unnest()
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        edges = ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"]))
        parts = [_find_sides(kind, node.this, edge, outer) for kind, edge in edges]
    elif isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        parts = [_find_sides(type(node), node.this, node.expression, outer)]
    else:
        parts = [None]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        found.others.append(node)
        return
    for inner, kind, other in known:
        if kind is exp.EQ:
            found.equalities.append((inner, other))
        else:
            found.bounds.append((inner.copy(), kind, other.copy()))


def _find_sides(
    kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, outer: set[int]
) -> tuple[exp.Expr, type[exp.Expr], exp.Expr] | None:
    """The side of a comparison with columns of the subquery, and that with columns from around it."""
    for one, other, comparison in ((left, right, kind), (right, left, _MIRRORED.get(kind, kind))):
        mine = {id(column) for column in one.find_all(exp.Column)}
        others = {id(column) for column in other.find_all(exp.Column)}
        if mine and others and not mine & outer and others <= outer:
            return one, comparison, other
    return None


def _list_operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of the topmost AND."""
    if isinstance(node, exp.And):
        yield from _list_operands(node.this)
        yield from _list_operands(node.expression)
    elif isinstance(node, exp.Paren):
        yield from _list_operands(node.this)
    else:
        yield node


def _find_outer_columns(query: exp.Select, around: exp.Select, names: Names) -> set[int]:
    """The columns of a subquery, by identity, that are columns of the select around it."""
    outside = list_sources(around, names)
    known: dict[int, Sources] = {}
    found = set[int]()
    for column in query.find_all(exp.Column):
        select = column.parent_select
        is_own = False
        while select is not None and not is_own:
            sources = known.setdefault(id(select), list_sources(select, names))
            is_own = _has_column(sources, column, is_guess=True)
            select = select.parent_select if select is not query else None
        if not is_own and _has_column(outside, column, is_guess=False):
            found.add(id(column))
    return found


def _has_column(sources: Sources, column: exp.Column, is_guess: bool) -> bool:
    """Whether a name is a column of these tables, or a field of one; ``is_guess``: also if it may be one."""
    first = column.parts[0].name.lower()
    if len(column.parts) > 1 and first in sources:
        return True
    if any(first == each.lower() for columns in sources.values() for each in columns or ()):
        return True
    is_plain = len(column.parts) == 1
    return is_guess and is_plain and any(columns is None for columns in sources.values())


def list_sources(select: exp.Expr, names: Names) -> Sources:
    """The tables and blocks of FROM, with their columns."""
    start = select.args.get("from_")
    entries = [start.this] if start is not None else []
    entries += [join.this for join in select.args.get("joins") or ()]
    found: dict[str, tuple[str, ...] | None] = {}
    for entry in entries:
        alias = entry.args.get("alias")
        listed = [each.name for each in alias.args.get("columns") or ()] if alias is not None else []
        columns = tuple(listed) if listed else _list_columns(entry, names)
        found[entry.alias_or_name.lower()] = columns
    for view in select.args.get("laterals") or ():
        found[view.alias_or_name.lower()] = None
    return found


def _list_columns(node: exp.Expr, names: Names) -> tuple[str, ...] | None:
    """The names of the columns of a table in FROM; None if they are not known."""
    if isinstance(node, exp.Table):
        target = find_query(node, names)
        if isinstance(target, Table):
            return tuple(column.name for column in target.columns)
        if isinstance(target, NamedQuery):
            listed = tuple(target.columns)
            return listed or _list_columns(target.node, target.names)
        if isinstance(target, exp.CTE):
            listed = tuple(each.name for each in target.args["alias"].args.get("columns") or ())
            return listed or _list_columns(target.this, names)
        return None
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    if not isinstance(node, exp.Select):
        return None
    if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
        every = [*list_sources(node, names).values()]
        is_single = len(every) == 1 and not node.expressions[0].args.get("except_")
        return every[0] if is_single else None
    if any(each.is_star for each in node.expressions):
        return None
    return tuple(each.alias_or_name for each in node.expressions)


def find_query(node: exp.Table, names: Names) -> Table | NamedQuery | exp.CTE | None:
    """What a table in FROM names: a query of WITH around it, or a table or view of the catalog."""
    name, inside = node.name.lower(), list[exp.Expr]([node])
    while inside[-1].parent is not None:
        inside.append(inside[-1].parent)
    for above in inside:
        clause = above.args.get("with_")
        for each in clause.expressions if clause is not None else ():
            if any(each is one for one in inside):  # it sees the queries before it only
                break
            if isinstance(each, exp.CTE) and each.alias.lower() == name:
                return each
    return next((table for key, table in names.items() if key.lower() == name), None)


def is_streaming(node: exp.Expr, names: Names) -> bool:
    """Whether a query reads a stream, or may read one."""
    for table in node.find_all(exp.Table):
        target = find_query(table, names)
        if isinstance(target, NamedQuery):
            if is_streaming(target.node, target.names):
                return True
        elif isinstance(target, exp.CTE):
            if is_streaming(target.this, names):
                return True
        elif target is None or target.streaming:
            return True
    return False


# --- where a subquery is ---------------------------------------------------------------------------------


def find_clause(node: exp.Expr, select: exp.Select) -> str | None:
    """The clause of a select that a node is in."""
    while node.parent is not None and node.parent is not select:
        node = node.parent
    return node.arg_key


def has_aggregate_of(select: exp.Select) -> bool:
    """Whether the select list has an aggregate over the rows of the select, in no window or subquery."""
    found = (each for item in select.expressions for each in item.find_all(*AGGREGATES))
    return any(
        each.parent_select is select and each.find_ancestor(exp.Window, exp.Select) is select
        for each in found
    )


def is_aggregated(node: exp.Expr, select: exp.Select) -> bool:
    """Whether a node is in the argument of an aggregate over the rows of a select."""
    call = node.find_ancestor(*AGGREGATES)
    return (
        call is not None
        and call.parent_select is select
        and call.find_ancestor(exp.Window, exp.Select) is select
    )
