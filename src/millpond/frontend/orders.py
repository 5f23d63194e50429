"""Reads ORDER BY without LIMIT, and LIMIT without ORDER BY, at the end of a query.

Rows that are written together, those of one closed window or those of one micro-batch, are sorted.  Groups
and DISTINCT rows may have any order.  Other rows come in the order of time, so their order must start with
their timestamp, ascending.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.errors import SqlError, one_line
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.statement import Statement
from millpond.query.model import Query, SortKey
from millpond.query.result_times import find_final_buckets, find_moments
from millpond.query.trees import is_aggregate

_TIME_FIRST = "ORDER BY of rows without LIMIT is only supported if it starts with their time, ascending"
_TIME_REMEDY = "the rows never end; sort the output where you read it"


def read_ending(statement: Statement, query: Query, order: exp.Expr | None, limit: exp.Expr | None) -> Query:
    """The query with its order and its limit."""
    if limit is not None:
        query = replace(query, limit=_read_limit(statement, limit))
    if order is None:
        return query
    accept_only(statement, order, "expressions")
    if _is_arrival_order(order, query):
        return query
    keys = tuple(_read_key(statement, each, query) for each in order.expressions)
    first = keys[0]
    is_grouped = all(term.distinct or all(map(is_aggregate, term.selects)) for term in query.terms)
    if not is_grouped and (first.descending or first.column not in _find_time_columns(query)):
        raise SqlError(_TIME_FIRST, statement.keyword_at(order, "ORDER"), _TIME_REMEDY)
    return replace(query, order_by=keys)


def _is_arrival_order(order: exp.Expr, query: Query) -> bool:
    """Whether the only key is the time of the one stream that is read row by row, shown or not."""
    if len(order.expressions) != 1 or len(query.selects) != 1 or query.terms[0].distinct:
        return False
    (select,), key = query.selects, order.expressions[0]
    times = [o.table.time for o in select.occurrences if o.table.streaming]
    is_plain = len(times) == 1 and not is_aggregate(select) and not key.args.get("desc")
    return is_plain and isinstance(key.this, exp.Column) and key.this.name.lower() == (times[0] or "").lower()


def _read_limit(statement: Statement, node: exp.Expr) -> int:
    if not isinstance(node, exp.Limit):
        raise unsupported_error(statement, node)
    value = node.args.get("expression")
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdecimal():
        raise SqlError("LIMIT needs a number", statement.at(node), "write LIMIT 10")
    return int(value.name)


def _read_key(statement: Statement, node: exp.Expr, query: Query) -> SortKey:
    accept_only(statement, node, "this", "desc", "nulls_first")
    names = _list_names(query)
    key = node.this
    found: str | None = None
    if isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal():
        found = names[int(key.name) - 1] if 1 <= int(key.name) <= len(names) else None
    elif isinstance(key, exp.Column) and not isinstance(key.this, exp.Star):
        found = next((name for name in names if name.lower() == key.name.lower()), None)
    items = statement.tree.expressions if isinstance(statement.tree, exp.Select) else []
    if found is None and len(items) == len(names):
        found = next((name for name, item in zip(names, items, strict=True) if item.unalias() == key), None)
    if found is None:
        message = f"ORDER BY {statement.excerpt(key)} is not a column of the result"
        shown = ", ".join(one_line(name, 40) for name in names[:12])
        raise SqlError(message, statement.at(key), f"the columns are {shown}")
    return SortKey(found, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


def _list_names(query: Query) -> list[str]:
    """The names of the columns that are written."""
    if query.projection:
        return [each.name for each in query.projection]
    windows, edges = dict(query.windows), {start + 1 for start, _ in query.windows}
    return [windows.get(i, name) for i, name in enumerate(query.columns) if i not in edges]


def _find_time_columns(query: Query) -> set[str]:
    """The written columns with the time that all rows are final with."""
    common: set[int] | None = None
    for term in query.terms:
        for select in term.selects:
            buckets = find_final_buckets(select, term.distinct)
            found = {i for bucket in buckets for i in find_moments(select, bucket)}
            common = found if common is None else common & found
    names = {query.columns[i] for i in common or ()}
    names |= {name for start, name in query.windows if start in (common or ())}
    plain = {each.name for each in query.projection if each.sql == f"`{each.name}`"}
    return names & plain if query.projection else names
