"""Rewrites scalar subqueries as joins, before a tree is read.

A subquery that is one aggregate is a table of one row.  If WHERE compares its rows with the select around it,
it is a group of its rows for each value that is compared, and LEFT JOIN finds the group: no group has the
value that the aggregate has of no rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.frontend.correlation import (
    Correlation,
    find_clause,
    find_correlation,
    has_aggregate_of,
    is_aggregated,
    is_streaming,
)
from millpond.frontend.limits import SCALAR
from millpond.frontend.scope import Names
from millpond.frontend.spark_names import NAME
from millpond.frontend.statement import AGGREGATES
from millpond.frontend.subquery_joins import can_join, join_groups, list_starts, make_column, make_name
from millpond.frontend.versions import asks_for_nearest, is_first_row

_VALUE = "value {} of a subquery"
_FIRST = "first value"
_COUNTS = (exp.Count, exp.CountIf, exp.ApproxDistinct)
_LISTS = (exp.ArrayAgg, exp.ArrayUniqueAgg)
# What is NULL if one of its operands is.
_STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def rewrite_scalar_subqueries(tree: exp.Expr, names: Names) -> set[int]:
    """Join ``WHERE x > (SELECT AVG(y) FROM t)`` with the table of one row, or of groups, of the subquery.

    Returns the places in the text of what is left out of the tree.
    """
    left_out = _join_first_rows(tree, names)
    found = [*enumerate((node for node in tree.find_all(exp.Subquery) if _is_scalar(node)), 1)]
    for number, node in reversed(found):
        select = node.find_ancestor(exp.Select)
        assert isinstance(select, exp.Select)
        correlation = find_correlation(node.this, select, names)
        alias = f"scalar subquery {number}"
        if correlation is None:
            continue
        item = node.this.expressions[0]
        if isinstance(item, exp.Alias):
            left_out.add(item.args["alias"].meta.get("start", -1))
        if correlation.is_none:
            _join_row(select, node, alias)
        elif can_join(correlation) and not (correlation.bounds and is_streaming(node.this, names)):
            _join_values(select, node, correlation, alias)
    return left_out


def _join_first_rows(tree: exp.Expr, names: Names) -> set[int]:
    """Replace ``(SELECT y FROM t WHERE … ORDER BY z LIMIT 1)`` by the row that LEFT JOIN LATERAL finds."""
    left_out = set[int]()
    for number, node in reversed([*enumerate(tree.find_all(exp.Subquery), 1)]):
        select, query = node.find_ancestor(exp.Select), node.this
        if not isinstance(select, exp.Select) or not isinstance(query, exp.Select):
            continue
        if isinstance(node.parent, exp.In | exp.Exists | exp.Subquery) or len(query.expressions) != 1:
            continue
        clause, limit = find_clause(node, select), query.args.get("limit")
        is_row = not select.args.get("group") and not has_aggregate_of(select)
        if not (clause == "where" or (clause == "expressions" and is_row)):
            continue
        is_first = isinstance(limit, exp.Limit) and limit.expression.name == "1" and query.args.get("order")
        found = find_correlation(query, select, names) if is_first else None
        if found is None or not (found.is_none or _is_lateral(query, found)):
            continue
        item, alias = query.expressions[0], f"first row {number}"
        left_out |= list_starts(item) - list_starts(item.unalias())
        query.set("expressions", [exp.Alias(this=item.unalias(), alias=make_name(SCALAR))])
        outer = dict.fromkeys(column.name for column in found.list_outer_columns())
        _put(node, make_column(SCALAR, alias), f"scalarsubquery({', '.join(outer)})")
        written = exp.TableAlias(this=make_name(alias))
        if found.is_none:
            join = exp.Join(this=_wrap_value(query, written), side="LEFT", on=exp.true())
        else:
            join = exp.Join(this=exp.Lateral(this=exp.Subquery(this=query), alias=written), side="LEFT")
        select.append("joins", join)
    return left_out


def _wrap_value(query: exp.Select, alias: exp.TableAlias) -> exp.Subquery:
    """A table with the value of a subquery, from the rows of which LIMIT takes ``*``, under another name."""
    query.expressions[0].set("alias", make_name(_FIRST))
    inner = exp.Subquery(this=query, alias=exp.TableAlias(this=make_name(_FIRST)))
    value = exp.Alias(this=make_column(_FIRST, _FIRST), alias=make_name(SCALAR))
    return exp.Subquery(this=exp.Select(expressions=[value], from_=exp.From(this=inner)), alias=alias)


def _is_lateral(query: exp.Select, found: Correlation) -> bool:
    """Whether LATERAL can find the first row: by equalities, or as the nearest one."""
    is_equal = not (found.bounds or found.others or found.outside)
    return is_first_row(query) and (is_equal or asks_for_nearest(query, found))


def _is_scalar(node: exp.Subquery) -> bool:
    """Whether a node is a subquery in WHERE, or in a select list without aggregates, that is an aggregate."""
    select, query = node.find_ancestor(exp.Select), node.this
    if not isinstance(select, exp.Select) or isinstance(node.parent, exp.In | exp.Exists | exp.Subquery):
        return False
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return False
    clauses = ("group", "having", "distinct", "limit", "offset", "with_", "qualify", "laterals")
    if any(query.args.get(key) for key in clauses):
        return False
    clause = find_clause(node, select)
    is_row = is_aggregated(node, select) or not (select.args.get("group") or has_aggregate_of(select))
    is_aggregate = query.expressions[0].find(*AGGREGATES) is not None
    return is_aggregate and (clause == "where" or (clause == "expressions" and is_row))


def _join_row(select: exp.Select, node: exp.Subquery, alias: str) -> None:
    """Join a select with the one row of a subquery that is not correlated with it."""
    _put(node, make_column(SCALAR, alias), "scalarsubquery()")
    (item,) = node.this.expressions
    node.this.set("expressions", [exp.Alias(this=item.unalias(), alias=make_name(SCALAR))])
    node.set("alias", exp.TableAlias(this=make_name(alias)))
    select.append("joins", exp.Join(this=node, kind="CROSS"))


def _join_values(select: exp.Select, node: exp.Subquery, found: Correlation, alias: str) -> None:
    """Join a select with the groups of a subquery that is correlated with it."""
    query = node.this
    value = query.expressions[0].unalias()
    calls = [*_list_calls(value)]
    if any(call.find(*_LISTS) for call in calls) or _has_column_outside(value, calls):
        return
    outer = dict.fromkeys(column.name for column in found.list_outer_columns())
    values = [(SCALAR if len(calls) == 1 else _VALUE.format(i), call) for i, call in enumerate(calls, 1)]
    is_plain = calls == [value] and not value.find(*_COUNTS)
    is_inner = is_plain and _rejects_null(node, select)
    holder = exp.Paren(this=value)
    for name, call in values:
        column: exp.Expr = make_column(name, alias)
        if isinstance(call.this if isinstance(call, exp.Filter) else call, _COUNTS):
            column = exp.Coalesce(this=column, expressions=[exp.Literal.number(0)])
        call.replace(column)
    made = holder.this if isinstance(holder.this, exp.Column | exp.Func) else holder
    _put(node, made, f"scalarsubquery({', '.join(outer)})")
    join_groups(select, query, found, values, alias, is_inner)


def _list_calls(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates in an expression, with their FILTER."""
    if isinstance(node, (*AGGREGATES, exp.Filter)):
        yield node
        return
    for child in node.iter_expressions():
        yield from _list_calls(child)


def _has_column_outside(value: exp.Expr, calls: list[exp.Expr]) -> bool:
    """Whether an expression over aggregates has a column that is not aggregated, or a query or window."""
    inside = {id(column) for call in calls for column in call.find_all(exp.Column)}
    has_other = any(id(column) not in inside for column in value.find_all(exp.Column))
    return has_other or value.find(exp.Window, exp.Query) is not None


def _rejects_null(node: exp.Expr, select: exp.Select) -> bool:
    """Whether WHERE excludes the rows for which a node is NULL: it is compared in the topmost AND."""
    while isinstance(node.parent, _STRICT):
        node = node.parent
    if not isinstance(node.parent, _COMPARISONS):
        return False
    node = node.parent
    while isinstance(node.parent, exp.And | exp.Paren):
        node = node.parent
    return isinstance(node.parent, exp.Where) and node.parent.parent is select


def _put(node: exp.Expr, made: exp.Expr, name: str) -> None:
    """Put what stands for a subquery in its place; ``name`` is Spark's name for it."""
    if isinstance(node.parent, exp.Select):
        made = exp.Alias(this=made, alias=make_name(name))
    made.meta[NAME] = name
    node.replace(made)
