"""Timestamps in the rows of a block that are near its time: ``MAX(ts)`` of a group of a window lies in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from millpond.query.buckets import Bucket
from millpond.query.calendar import DAY
from millpond.query.expressions import Aggregate, Arithmetic, Comparison, Condition, Expr, Literal, Op, Ref
from millpond.query.model import Query, Select, Subquery, Table
from millpond.query.normalize import TooManyParts
from millpond.query.parts import Part, split_into_parts
from millpond.query.result_times import find_final_buckets, find_moment
from millpond.query.time_order import find_time_column
from millpond.query.types import INTERVAL, Domain

# Aggregates whose value is that of their first argument in some row of the group.
_OF_ONE_ROW = ("MIN", "MAX", "MIN_BY", "MAX_BY")


def list_inner_times(table: Table) -> Iterator[Condition]:
    """How far timestamps in the rows of a block can be from its time column, unless they are NULL."""
    assert isinstance(table.block, Subquery)
    query = table.block.query
    if table.time is None or table.time not in query.columns or len(query.selects) != 1:
        return
    computed = {each.name for each in query.projection if each.sql != f"`{each.name}`"}
    (select,) = query.selects
    time = select.items[query.columns.index(table.time)].expression
    for name, argument in _list_arguments(table, query, select):
        if not {name, table.time} & computed:
            yield from _bound(select, argument, time, Ref(table.name, name), Ref(table.name, table.time))


def _list_arguments(table: Table, query: Query, select: Select) -> Iterator[tuple[str, Ref]]:
    """The columns that are timestamps of one row of a group, and what they show."""
    known = {column.name for column in table.columns}
    for name, item in zip(query.columns, select.items, strict=True):
        value = item.expression
        if not isinstance(value, Aggregate) or value.function not in _OF_ONE_ROW or name not in known:
            continue
        if isinstance(value.argument, Ref) and select.type_of(value.argument).domain is Domain.TIME:
            yield name, value.argument


def _bound(select: Select, argument: Ref, time: Expr, shown: Ref, own: Ref) -> Iterator[Condition]:
    """Comparisons of a column with the time column, which is one that the select groups by, maybe shifted."""
    moment = find_moment(time)
    if moment is None or moment.ref not in (select.group_by or ()):
        return
    try:
        parts = split_into_parts(select, disjoint=False)
    except TooManyParts:
        return
    pairs = [(argument, moment.ref, -moment.offset), (moment.ref, argument, moment.offset)]
    made = []
    for (left, right, offset), operator in zip(pairs, (Op.LE, Op.GE), strict=True):
        bounds = [_find_bound(part, left, right) for part in parts]
        known = [bound for bound in bounds if bound is not None]
        if not known or len(known) < len(bounds):
            return
        most = max(known) + offset
        length = Literal(timedelta(microseconds=abs(most)), INTERVAL)
        sign = "+" if (most >= 0) is (operator is Op.LE) else "-"
        made.append(Comparison(shown, operator, Arithmetic(sign, own, length), f"{shown.column} of a group"))
    yield from made


def _find_bound(part: Part, left: Ref, right: Ref) -> int | None:
    """By how many microseconds a timestamp is later than another at most; None if that is not known."""
    if {left, right} <= part.closure.index.keys():
        bound = part.closure.bound(left, right)
        if bound is not None:
            return int(bound[0])
    for bucket in find_final_buckets(part.select, distinct=False):
        time = find_time_column(part.select, bucket.end.occurrence)
        if (left, right) == (time, bucket.end):
            return 0
        if time is not None and (left, right) == (bucket.end, time):
            return _find_length(part, bucket, time)
    return None


def _find_length(part: Part, bucket: Bucket, time: Ref) -> int:
    """The longest that a value of a bucket lasts, also where the local clock is set back."""
    starts = [ref for ref in bucket.columns if {ref, time} <= part.closure.index.keys()]
    bounds = [bound for ref in starts if (bound := part.closure.bound(time, ref)) is not None]
    return min((int(bound[0]) + 1 for bound in bounds), default=bucket.width + DAY)
