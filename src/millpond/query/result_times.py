"""The timestamps in the results of a query: whether its rows are final, and in which order they come.

The rows of a query are a stream of their own if none of them ever changes: rows that are only added, and
groups that close.  A row is *final* then, and its timestamp is the one (or the time bucket) that it closes
with.  A query whose groups never close *revises* its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millpond.query.buckets import Bucket, find_bucket, find_time_function
from millpond.query.expressions import Arithmetic, Expr, Literal, Ref
from millpond.query.model import Query, Select
from millpond.query.normalize import TooManyParts
from millpond.query.parts import split_into_parts
from millpond.query.time_order import TimeOrder, find_result_keys, find_time_column
from millpond.query.trees import is_aggregate
from millpond.query.types import Domain
from millpond.query.variants import join_subqueries


@dataclass(frozen=True)
class Moment:
    """A value of a result: ``ref``, a timestamp or a bucket of it, plus ``offset`` microseconds."""

    ref: Ref
    offset: int = 0


def is_revised(query: Query) -> bool:
    """Whether rows of the result can change later: it has groups that do not close."""
    return any(
        is_aggregate(select) and not find_final_buckets(select, term.distinct)
        for term in query.terms
        for select in term.selects
        if any(o.table.streaming for o in select.every_occurrence)
    )


def find_final_buckets(select: Select, distinct: bool) -> list[Bucket]:
    """The buckets of the last streams that every row of the result has; after any of them the row is final.

    Empty if rows can change at any time, or have no timestamp.
    """
    if select.session is not None:
        return [Bucket((select.session.end,), select.session.end)]
    joined = join_subqueries(select)
    try:
        orders = [TimeOrder(part) for part in split_into_parts(joined, disjoint=False)]
    except TooManyParts:
        return []
    if not orders:
        return []
    keys = find_result_keys(select, distinct)
    own = [o.alias for o in select.occurrences if o.alias not in find_extended(select)]
    if is_aggregate(select) or distinct:
        closing = [{ref.occurrence for ref in order.find_closing_columns(keys)} for order in orders]
        found = (find_bucket(select, alias, keys) for alias in own if all(alias in each for each in closing))
        return [bucket for bucket in found if bucket is not None]
    last = [alias for alias in own if all(alias in (order.last_group or ()) for order in orders)]
    times = (find_time_column(select, alias) for alias in last)
    return [Bucket((time,), time) for time in times if time is not None]


def find_extended(select: Select) -> set[str]:
    """The occurrences that outer joins can replace by NULLs."""
    extended: set[str] = set()
    seen = [select.occurrences[0].alias] if select.occurrences else []
    for join in select.joins:
        if join.side.keeps_left:
            extended.add(join.alias)
        if join.side.keeps_right:
            extended |= set(seen)
        seen.append(join.alias)
    return extended


def find_moments(select: Select, bucket: Bucket) -> dict[int, Moment]:
    """The items of a select, by position, that are timestamps of a bucket."""
    known = {*bucket.columns, bucket.end}
    found: dict[int, Moment] = {}
    for number, item in enumerate(select.items):
        moment = find_moment(item.expression)
        if moment is None or moment.ref not in known or select.type_of(moment.ref).domain is not Domain.TIME:
            continue
        function = find_time_function(select, moment.ref)
        if function is None or (function.monotone and function.reach >= 0):
            found[number] = moment
    return found


def find_moment(expr: Expr) -> Moment | None:
    """The column, plus a length of time, that an expression is; None for any other."""
    match expr:
        case Ref():
            return Moment(expr)
        case Arithmetic(operator="+" | "-", left=Ref() as ref, right=Literal(value=timedelta() as by)):
            micros = by // timedelta(microseconds=1)
            return Moment(ref, micros if expr.operator == "+" else -micros)
    return None
