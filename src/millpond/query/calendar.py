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
_SHORTEST = {**LONGEST, "year": 365 * DAY, "quarter": 90 * DAY, "month": 28 * DAY}
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
class Count:
    """A whole number that counts units of ``unit`` microseconds since 1970.

    The time column is at least ``value * unit + low`` and less than ``value * unit + high`` microseconds
    after 1970.  The value changes at most every ``period`` microseconds.
    """

    unit: int
    low: int
    high: int
    period: int


@dataclass(frozen=True)
class TimeFunction:
    """A function of a stream's time column.

    ``unit`` is the finest calendar unit that the function depends on, or the width of a window in
    microseconds.  ``fields`` are the calendar fields that it determines.  A ``monotone`` function never takes
    a value again after another one.  A window has an ``offset``; if it slides, it starts every ``slide``
    microseconds, and a row has several values.  ``end`` is the name of the column with the end of a value; by
    default it is that of the unit.

    The function may be applied to the time column plus ``shift`` microseconds; calendar fields of different
    shifts do not belong together.  If it is applied to another function of the time column, ``lag`` is the
    most microseconds by which that makes its values last longer, and its values change at most every
    ``step`` microseconds.  A function may ``count`` time.
    """

    unit: str | int
    fields: frozenset[str] = frozenset()
    monotone: bool = False
    slide: int | None = None
    offset: int = 0
    end: str | None = None
    shift: int = 0
    lag: int = 0
    step: int = 0
    count: Count | None = None

    @property
    def width(self) -> int:
        """The longest stretch of time, in microseconds, for which the function has one value, in UTC."""
        return self.lag + (self.unit if isinstance(self.unit, int) else LONGEST[self.unit])

    @property
    def reach(self) -> int:
        """How many microseconds after a value, which is a timestamp, it ends at most, in UTC."""
        return self.width - self.shift if self.count is None else self.count.high

    @property
    def period(self) -> int:
        """The shortest stretch of time, in microseconds, in which the function has one value, in UTC."""
        if self.count is not None:
            return self.count.period
        return max(self.step, self.unit if isinstance(self.unit, int) else _SHORTEST[self.unit])


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
    closing = find_closing_function(functions)
    return None if closing is None else closing.unit


def find_closing_function(functions: Iterable[TimeFunction]) -> TimeFunction | None:
    """A function that never returns, and whose value is determined by those of the given functions.

    It is the one with the shortest unit; None without one.
    """
    functions = list(functions)
    found = [each for each in functions if each.monotone]
    for shift in dict.fromkeys(each.shift for each in functions):
        known = frozenset(field for each in functions if each.shift == shift for field in each.fields)
        reached = {"year"} & known
        for unit, above, named in _STEPS:
            if above in reached and named <= known:
                reached.add(unit)
        found += [TimeFunction(unit, monotone=True, shift=shift) for unit in sorted(reached)]
    return min(found, key=lambda f: (f.width, f.end or "", str(f.unit), f.shift), default=None)


def name_end(column: str, function: TimeFunction) -> str:
    """The name of the derived column that is the end of a value of a function that never returns.

    >>> name_end("ts", TimeFunction("month")), name_end("ts", TimeFunction("day", shift=9 * HOUR))
    ('end of month of ts', 'end of day of ts + INTERVAL 9 HOURS')
    """
    return function.end or f"end of {function.unit} of {name_shifted(column, function.shift)}"


def name_shifted(column: str, shift: int) -> str:
    """A timestamp to which so many microseconds are added.

    >>> name_shifted("ts", 90 * MINUTE), name_shifted("ts", -DAY), name_shifted("ts", 0)
    ('ts + INTERVAL 90 MINUTES', 'ts - INTERVAL 1 DAY', 'ts')
    """
    if not shift:
        return column
    unit, length = next((u, n) for u, n in LONGEST.items() if n <= DAY and shift % n == 0)
    count = abs(shift) // length
    return f"{column} {'+' if shift > 0 else '-'} INTERVAL {count} {unit.upper()}{'S' * (count > 1)}"
