"""Finds rows within a window of each other by the number of their slice of time, as an equality join.

DuckDB would otherwise compare every pair of rows for which the other conditions of the join hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from millpond.query.time_order import TimeOrder


class TimeSlice(NamedTuple):
    """A window between two streams, and slices of time that are as long as it is.

    The ``other`` row is from ``lag`` microseconds before the ``one`` row to ``width - lag`` after it.  Moved
    by the lag, it is in the slice of the ``one`` row or in the next.
    """

    one: str
    other: str
    lag: int
    width: int

    def number_rows(self, table: str) -> str:
        """The rows of ``one``, once for each of the two slices."""
        number = f"t // {self.width}"
        return f"(SELECT *, unnest([{number}, {number} + 1]) AS slice FROM {table})"

    def condition(self, names: Mapping[str, str]) -> str:
        """The two rows are in these slices; ``names`` are those of the tables."""
        return f"({names[self.one]}.slice = ({names[self.other]}.t + ({self.lag})) // {self.width})"


def find_slice(order: TimeOrder, streams: Sequence[str]) -> TimeSlice | None:
    """The two streams with the shortest window between them; None if no two share a window."""
    found = []
    for one, other in combinations(streams, 2):
        lag, rest = order.max_lag(one, other), order.max_lag(other, one)
        if order.horizon and lag is not None and rest is not None:
            found.append(TimeSlice(one, other, lag, max(1, lag + rest)))
    return min(found, key=lambda each: each.width, default=None)
