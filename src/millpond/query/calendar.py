"""Time buckets: functions of a timestamp, which calendar fields they determine, and when their values end.

A *bucket* is a set of functions of one timestamp whose joint value never returns after a finite stretch of
time: ``date_trunc('hour', ts)``, or ``year(ts)`` together with ``month(ts)``, but not ``month(ts)`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MICROSECOND = 1
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# The calendar units, from the longest to the shortest, and the longest that each can be on a UTC calendar.
LONGEST = {
    "year": 366 * DAY,
    "quarter": 92 * DAY,
    "month": 31 * DAY,
    "week": 7 * DAY,
    "day": DAY,
    "hour": HOUR,
    "minute": MINUTE,
    "second": SECOND,
    "millisecond": 1_000,
    "microsecond": MICROSECOND,
}
# Each unit after the first, the unit that it divides, and the fields that number it there.
_STEPS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("quarter", "year", frozenset({"quarter"})),
    ("month", "year", frozenset({"month"})),
    ("day", "month", frozenset({"day"})),
    ("day", "year", frozenset({"day of year"})),
    ("hour", "day", frozenset({"hour"})),
    ("minute", "hour", frozenset({"minute"})),
    ("second", "minute", frozenset({"second"})),
    ("millisecond", "second", frozenset({"millisecond"})),
    ("microsecond", "second", frozenset({"microsecond"})),
)


@dataclass(frozen=True)
class TimeFunction:
    """A function of a stream's time column.

    ``unit`` is the finest calendar unit that the function depends on, or the width of a window in
    microseconds.  ``fields`` are the calendar fields that it determines.  A ``monotone`` function never takes
    a value again after another one.  A window has an ``offset``; if it slides, it starts every ``slide``
    microseconds, and a row has several values.  ``end`` is the name of the column with the end of a value; by
    default it is that of the unit.
    """

    unit: str | int
    fields: frozenset[str] = frozenset()
    monotone: bool = False
    slide: int | None = None
    offset: int = 0
    end: str | None = None

    @property
    def width(self) -> int:
        """The longest stretch of time, in microseconds, for which the function has one value, in UTC."""
        return self.unit if isinstance(self.unit, int) else LONGEST[self.unit]


def fields_down_to(unit: str) -> frozenset[str]:
    """The calendar fields that are known if the timestamp is known up to a unit.

    >>> sorted(fields_down_to("day"))
    ['day', 'day of year', 'month', 'quarter', 'year']
    """
    if unit == "week":  # a week can belong to two years
        return frozenset()
    fields = {"year"}
    for finer, _, named in _STEPS:
        if LONGEST[finer] >= LONGEST[unit]:
            fields |= named
    return frozenset(fields)


def find_closing_unit(functions: Iterable[TimeFunction]) -> str | int | None:
    """The shortest unit such that the joint value of the functions never returns after it; None without one.

    >>> year, month, hour = (TimeFunction(f, frozenset({f}), f == "year") for f in ("year", "month", "hour"))
    >>> find_closing_unit([year, month]), find_closing_unit([month, hour]), find_closing_unit([year, hour])
    ('month', None, 'year')
    """
    functions = list(functions)
    known = frozenset(field for function in functions for field in function.fields)
    units: list[str | int] = [f.unit for f in functions if f.monotone]
    reached = {"year"} & known
    for unit, above, named in _STEPS:
        if above in reached and named <= known:
            reached.add(unit)
    units += sorted(reached)
    return min(units, key=lambda u: u if isinstance(u, int) else LONGEST[u], default=None)


def name_end(column: str, unit: str | int, functions: Iterable[TimeFunction]) -> str:
    """The name of the derived column that is the end of the bucket of some functions of a column.

    >>> name_end("ts", "month", [])
    'end of month of ts'
    """
    named = (function.end for function in functions if function.unit == unit and function.end is not None)
    return next(named, f"end of {unit} of {column}")
