"""Rewrites the latest version of a row as a join with the versions, before a tree is read.

    orders o JOIN LATERAL (SELECT rate FROM prices p WHERE p.item = o.item AND p.since <= o.at
                           ORDER BY p.since DESC LIMIT 1) r

A version of an item holds from its ``since`` until that of the next version of the item, so it is

    orders o JOIN versions r ON r.item = o.item AND r.since <= o.at AND (r.next IS NULL OR r.next > o.at)
"""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.correlation import Correlation, find_correlation
from millpond.frontend.limits import RANK, is_hidden
from millpond.frontend.scope import Names
from millpond.frontend.shorthands import is_same
from millpond.frontend.statement import AGGREGATES
from millpond.frontend.subquery_joins import (
    BOUND,
    NEXT,
    compare_keys,
    is_in_step,
    list_starts,
    make_column,
    make_name,
    name_keys,
)

_RANKED = "ranked versions"


def join_versions(join: exp.Join, query: exp.Select, alias: exp.TableAlias, names: Names) -> set[int] | None:
    """Replace the subquery of a LATERAL by versions; None if it does not ask for the nearest one.

    Returns the places in the text of what is left out of the tree.
    """
    select = join.parent
    if not isinstance(select, exp.Select) or not is_first_row(query):
        return None
    found = find_correlation(query, select, names)
    if found is None or not asks_for_nearest(query, found):
        return None
    ((_, kind, outer),) = found.bounds
    rest = query.args["order"].expressions[1:]
    ascending = issubclass(kind, exp.LT | exp.LTE)
    left_out = list_starts(query.args.pop("order")) | list_starts(query.args.pop("limit"))
    conditions = [*compare_keys(found, alias.name), *is_in_step(kind, outer, alias.name), *found.outside]
    if join.args.get("on") is not None:
        conditions.append(join.args["on"])
    made = _build_versions(query, found, rest, ascending)
    join.set("this", exp.Subquery(this=made, alias=alias))
    join.set("on", exp.and_(*conditions, copy=False))
    return left_out


def asks_for_nearest(query: exp.Select, found: Correlation) -> bool:
    """Whether the first row of a subquery in its order is the last one within its only bound."""
    if found.others or len(found.bounds) != 1:
        return False
    ((bound, kind, _),) = found.bounds
    first = query.args["order"].expressions[0]
    ascending = issubclass(kind, exp.LT | exp.LTE)
    is_nearest = is_same(_strip_table(query, first.this), _strip_table(query, bound))
    return is_nearest and bool(first.args.get("desc")) is ascending


def _strip_table(query: exp.Select, node: exp.Expr) -> exp.Expr:
    """An expression without the name of the only table of a subquery, which may be written or left out."""
    plain = node.copy()
    if not query.args.get("joins"):
        for column in plain.find_all(exp.Column):
            column.set("table", None)
    return plain


def is_first_row(query: exp.Select) -> bool:
    """Whether a subquery is the first row in an order, of rows that it does not group."""
    limit, order = query.args.get("limit"), query.args.get("order")
    if not isinstance(limit, exp.Limit) or order is None or limit.expression.name != "1":
        return False
    clauses = ("group", "having", "distinct", "offset", "with_", "qualify", "windows", "laterals")
    if any(query.args.get(key) for key in clauses):
        return False
    return all(each.find(*AGGREGATES, exp.Window) is None for each in query.expressions)


def _build_versions(
    query: exp.Select, found: Correlation, rest: list[exp.Expr], ascending: bool
) -> exp.Select:
    """The rows of a subquery with the bound of the next row of their key.

    Of rows with equal bounds the first is taken, in the order of the other sort keys.
    """
    ((bound, _, _),) = found.bounds
    keys, names = [inner for inner, _ in found.equalities], name_keys(found)
    query.set("where", exp.Where(this=exp.and_(*found.own, copy=False)) if found.own else None)
    for node, name in zip((*keys, bound), (*names, BOUND), strict=True):
        query.append("expressions", exp.Alias(this=node.copy(), alias=make_name(name)))
    rank = exp.Window(
        this=exp.RowNumber(),
        partition_by=[*keys, bound],
        order=exp.Order(expressions=rest or [exp.Ordered(this=bound.copy())]),
    )
    query.append("expressions", exp.Alias(this=rank, alias=make_name(RANK)))
    hidden = [each.alias for each in query.expressions if is_hidden(each.alias)]
    columns = [make_column(name, _RANKED) for name in hidden if name != RANK]
    following = exp.Window(
        this=exp.Lead(this=make_column(BOUND, _RANKED)),
        partition_by=[make_column(name, _RANKED) for name in names],
        order=exp.Order(expressions=[exp.Ordered(this=make_column(BOUND, _RANKED), desc=not ascending)]),
    )
    ranked = exp.Subquery(this=query, alias=exp.TableAlias(this=make_name(_RANKED)))
    shown = [exp.Alias(this=each, alias=make_name(each.name)) for each in columns]
    return exp.Select(
        expressions=[exp.Star(), *shown, exp.Alias(this=following, alias=make_name(NEXT))],
        from_=exp.From(this=ranked),
        where=exp.Where(this=exp.EQ(this=make_column(RANK, _RANKED), expression=exp.Literal.number(1))),
    )
