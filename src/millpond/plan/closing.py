"""When results close: the watermark after which no row can change a group, or repeat a row of DISTINCT.

A result that contains a timestamp (or a time bucket) closes if every stream of the join sends the rows that
match it within a fixed time.  Closed groups are written and closed results are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from millpond.plan.needs import Need, SelectNeeds, TimedPlan
from millpond.query.model import Ref, Select, Term
from millpond.query.parts import THRESHOLD
from millpond.query.time_order import TimeOrder, find_key_column, find_time_column
from millpond.query.trees import is_aggregate, refs


@dataclass(frozen=True)
class Closing:
    """When the results of a select close.

    Rows that match are at most ``lag`` microseconds later than the timestamp in ``column`` and, if other
    streams end, not after ``end``.
    """

    column: Ref
    lag: int
    end: Fraction | None = None

    @property
    def after(self) -> int:
        """How many microseconds after the timestamp in ``column`` the watermark is when a result closes."""
        return self.lag + 1


def list_closings(plan: TimedPlan) -> list[Closing | None]:
    """When the results of each select of a plan close."""
    selects = iter(plan.selects)
    return [
        closing
        for term in plan.query.terms
        for closing in find_closings(term, [next(selects) for _ in term.selects])
    ]


def find_closings(term: Term, selects: Sequence[SelectNeeds]) -> tuple[Closing | None, ...]:
    """When the results of each select of a term close; None if they never do, or are not remembered.

    The selects of a UNION close together: equal rows of different selects are forgotten at the same time.
    """
    never = (None,) * len(selects)
    if not term.distinct and not any(is_aggregate(s) for s in term.selects):
        return never
    found = []
    for columns in _find_common_keys(term):
        closings = [_find_closing(*pair) for pair in zip(selects, columns, strict=True)]
        known = [closing for closing in closings if closing is not None]
        if len(known) == len(closings):
            lag = max(closing.lag for closing in known)
            end = max((c.end for c in known if c.end is not None), default=None)
            found.append(tuple(replace(closing, lag=lag, end=end) for closing in known))
    return min(found, key=lambda together: together[0].lag, default=never)


def _find_common_keys(term: Term) -> Iterator[tuple[Ref, ...]]:
    """For every way in which a term's results may close: the column of each select that they close with."""
    if not term.distinct:
        (select,) = term.selects
        yield from ((ref,) for ref in select.group_by or ())
        return
    for items in zip(*(select.items for select in term.selects), strict=True):
        keys = [find_key_column(item.expression) for item in items]
        columns = tuple(ref for ref in keys if ref is not None)
        alone = len(items) == 1 or all(isinstance(item.expression, Ref) for item in items)
        if alone and len(columns) == len(items):
            yield columns


def _find_closing(needs: SelectNeeds, column: Ref) -> Closing | None:
    """When results that contain a column close; None if it is no timestamp, or rows can match at any time."""
    if not _is_time_column(needs.select, column):
        return None
    lags, ends = [0], []
    for need in (need for _, wanted in needs.parts for need in wanted):
        (own,) = refs(need.part.rewrite(column))
        if own.occurrence not in need.scope:
            return None
        for lag, end in _find_partner_times(need, own):
            if lag is None and end is None:
                return None
            lags += [] if lag is None else [lag]
            ends += [] if end is None else [end]
    return Closing(column, max(lags), max(ends, default=None))


def _is_time_column(select: Select, column: Ref) -> bool:
    return find_time_column(select, column.occurrence) == column


def _find_partner_times(need: Need, column: Ref) -> Iterator[tuple[int | None, Fraction | None]]:
    """For each other stream of a need: how much later than ``column`` its rows match, or when it ends."""
    order = TimeOrder(need.part)
    for alias in need.scope:
        if alias in (THRESHOLD, column.occurrence) or alias in order.relations:
            continue
        lag = order.max_lag(alias, column.occurrence)
        if lag is not None:
            yield lag, None
        elif order.is_finite(order.group_of(alias)):
            yield None, need.part.closure.range(order.time_columns[alias]).high
        else:
            yield None, None
