"""When results close: the watermark after which no row can change a group, or repeat a row of DISTINCT.

A result that contains a timestamp (or a time bucket) closes if every stream of the join sends the rows that
match it within a fixed time.  Closed groups are written and closed results are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction

from millpond.plan.needs import Need, SelectNeeds, TimedPlan
from millpond.query.buckets import Bucket, find_bucket, find_time_function
from millpond.query.expressions import Arithmetic, Expr, Literal, Ref
from millpond.query.model import Select, Term
from millpond.query.parts import is_threshold
from millpond.query.time_order import TimeOrder, find_key_column, find_time_column
from millpond.query.trees import is_aggregate, refs, substitute


@dataclass(frozen=True)
class Closing:
    """When the results of a select close.

    A result contains the time bucket ``bucket``.  Rows that match are at most ``lag`` microseconds later than
    its timestamps and, if other streams end, not after ``end``.
    """

    bucket: Bucket
    lag: int
    end: Fraction | None = None

    @property
    def column(self) -> Ref:
        """The column with the end of the bucket, or with the only timestamp in it."""
        return self.bucket.end

    @property
    def after(self) -> int:
        """How many microseconds after the timestamp in ``column`` the watermark is when a result closes."""
        return self.lag + (self.bucket.end in self.bucket.columns)

    @property
    def duration(self) -> int:
        """For how many microseconds, at most, a result is kept."""
        return self.lag + self.bucket.width


def list_closings(plan: TimedPlan) -> list[Closing | None]:
    """When the results of each select of a plan close."""
    selects = iter(plan.selects)
    return [
        closing
        for term in plan.query.terms
        for closing in find_closings(term, [next(selects) for _ in term.selects])
    ]


def find_output_delay(plan: TimedPlan, position: int) -> int | None:
    """By how many microseconds the results still to come can be earlier than the watermark.

    The time of a result is its column at ``position``: a timestamp, or an edge of a time bucket.  None if
    there is no such delay: the results are not written in the order of time.
    """
    delays = [
        _find_delay(needs, closing, needs.select.items[position].expression)
        for needs, closing in zip(plan.selects, list_closings(plan), strict=True)
    ]
    known = [delay for delay in delays if delay is not None]
    return max(known, default=0) if len(known) == len(delays) else None


def _find_delay(needs: SelectNeeds, closing: Closing | None, time: Expr) -> int | None:
    match time:
        case Arithmetic(operator="+", left=Ref() as start, right=Literal(value=timedelta() as length)):
            delay = _find_delay(needs, closing, start)  # the end of a window, in terms of its start
            return None if delay is None else max(delay - length // timedelta(microseconds=1), 0)
    if not isinstance(time, Ref):
        return None
    if is_aggregate(needs.select):
        if closing is None or time.occurrence != closing.column.occurrence or closing.end is not None:
            return None
        function = find_time_function(needs.select, time)
        reach = closing.bucket.width if function is None else function.reach
        return closing.after - 1 + (0 if time == closing.column else reach)
    width = 0
    if time != find_time_column(needs.select, time.occurrence):
        bucket = find_bucket(needs.select, time.occurrence, [time])
        if bucket is None:
            return None
        function = find_time_function(needs.select, time)
        width = 0 if time == bucket.end or function is None else function.reach
    lags = [0]
    for need in (need for _, wanted in needs.parts for need in wanted):
        (own,) = refs(need.part.rewrite(time))
        if own.occurrence not in need.scope:
            return None
        for lag, _ in _find_partner_times(need, own):
            if lag is None:
                return None
            lags.append(lag)
    return max(lags) + width


def find_closings(term: Term, selects: Sequence[SelectNeeds]) -> tuple[Closing | None, ...]:
    """When the results of each select of a term close; None if they never do, or are not remembered.

    The selects of a UNION close together: equal rows of different selects are forgotten at the same time.
    """
    never = (None,) * len(selects)
    if not term.distinct and not any(is_aggregate(s) for s in term.selects):
        return never
    found = []
    for buckets in _find_common_buckets(term):
        closings = [_find_closing(*pair) for pair in zip(selects, buckets, strict=True)]
        known = [closing for closing in closings if closing is not None]
        if len(known) == len(closings):
            lag = max(closing.lag for closing in known)
            end = max((c.end for c in known if c.end is not None), default=None)
            found.append(tuple(replace(closing, lag=lag, end=end) for closing in known))
    return min(found, key=lambda together: together[0].duration, default=never)


def _find_common_buckets(term: Term) -> Iterator[tuple[Bucket, ...]]:
    """For every way in which a term's results may close: the bucket of each select that they close with.

    The buckets of a UNION are the same functions of time in the same columns.
    """
    rows = list(_find_common_keys(term))
    for aliases in dict.fromkeys(tuple(ref.occurrence for ref in row) for row in rows):
        own = [row for row in rows if tuple(ref.occurrence for ref in row) == aliases]
        columns = zip(term.selects, aliases, zip(*own, strict=True), strict=True)
        found = [find_bucket(select, alias, refs) for select, alias, refs in columns]
        pairs = zip(term.selects, found, strict=True)
        buckets = tuple(bucket for select, bucket in pairs if bucket is not None and _has_end(select, bucket))
        if len(buckets) == len(found):
            yield buckets


def _has_end(select: Select, bucket: Bucket) -> bool:
    """Whether the end of the bucket is a column; it is derived for GROUP BY, which may have finer buckets."""
    table = select.occurrence(bucket.end.occurrence).table
    return any(column.name == bucket.end.column for column in table.all_columns)


def _find_common_keys(term: Term) -> Iterator[tuple[Ref, ...]]:
    """The columns by which results are told apart, those of all selects together."""
    if not term.distinct:
        yield from ((ref,) for ref in term.selects[0].group_by or ())
        return
    for items in zip(*(select.items for select in term.selects), strict=True):
        keys = [find_key_column(item.expression) for item in items]
        row = tuple(ref for ref in keys if ref is not None)
        shapes = {
            substitute(item.expression, {ref: Ref("", "key")}) for item, ref in zip(items, row, strict=False)
        }
        if len(row) < len(items) or len(shapes) > 1:
            continue
        if len(set(map(_find_time_role, term.selects, row))) == 1:
            yield row


def _find_time_role(select: Select, ref: Ref) -> tuple[bool, str]:
    """Whether a column is the time column of its stream, and the function of it that the column is."""
    table = select.occurrence(ref.occurrence).table
    function = f'"{ref.column}"'
    for column in reversed(table.derived):  # each after those that it depends on
        if column.derivation is not None:
            function = function.replace(f'"{column.name}"', f"({column.derivation.duckdb})")
    time, is_time = f'"{table.time}"', find_time_column(select, ref.occurrence) == ref
    return is_time, function.replace(time, "?") if time in function else ""


def _find_closing(needs: SelectNeeds, bucket: Bucket) -> Closing | None:
    """When results that contain a bucket close; None if rows can match at any time."""
    lags, ends = [0], []
    if needs.waits:
        return None
    for need in (need for _, wanted in needs.parts for need in wanted):
        (own,) = refs(need.part.rewrite(bucket.end))
        if own.occurrence not in need.scope:
            return None
        for lag, end in _find_partner_times(need, own):
            if lag is None and end is None:
                return None
            lags += [] if lag is None else [lag]
            ends += [] if end is None else [end]
    return Closing(bucket, max(lags), max(ends, default=None))


def _find_partner_times(need: Need, column: Ref) -> Iterator[tuple[int | None, Fraction | None]]:
    """For each other stream of a need: how much later than ``column`` its rows match, or when it ends."""
    order = TimeOrder(need.part)
    for alias in need.scope:
        if is_threshold(alias) or alias == column.occurrence or alias in order.relations:
            continue
        lag = order.max_lag(alias, column.occurrence)
        if lag is not None:
            yield lag, None
        elif order.is_finite(order.group_of(alias)):
            yield None, need.part.closure.range(order.time_columns[alias]).high
        else:
            yield None, None
