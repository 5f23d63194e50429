"""The moments at which the rows of a witness come: the starts of the query's time buckets.

Rows of different moments are in different buckets, and all moments look alike to functions such as
``hour(ts)``, whose values return.  A row that needs another hour comes that much after its moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import lcm

from millpond.errors import WitnessSizeError
from millpond.query.buckets import find_time_function
from millpond.query.calendar import DAY, HOUR, MINUTE, SECOND, TimeFunction
from millpond.query.expressions import Ref
from millpond.query.model import Select
from millpond.query.number_line import Points

_WEEK = 7 * DAY
# The first Monday, in microseconds since 1970: weeks start on Mondays.
_MONDAY = 4 * DAY
# After how long the values of a field return, and what one more of it adds to a timestamp.
_CYCLES = {
    **dict.fromkeys(("millisecond", "microsecond"), SECOND),
    "second": MINUTE,
    "minute": HOUR,
    **dict.fromkeys(("hour", "half hour", "half day"), DAY),
    "day of week": _WEEK,
}
_ADDED = {
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "day of year": DAY,
    "month": 31 * DAY,
    "quarter": 92 * DAY,
    "week of year": _WEEK,
}
_LAST_YEAR = 9000


@dataclass(frozen=True)
class Moments:
    """The moments of a witness: ``step`` microseconds or, at the starts of years, ``years`` years apart.

    ``on_mondays``: the first Monday of the year, not its first day.
    """

    start: int
    step: int = 0
    years: int | None = None
    on_mondays: bool = False

    def at(self, number: int) -> Fraction:
        """The moment with this number; raises WitnessSizeError if it is too far in the future."""
        moment = Fraction(self.start + number * self.step)
        year = _find_year(moment) + (number * self.years if self.years else 0)
        if year > _LAST_YEAR:
            raise WitnessSizeError("the witness ends too far in the future", remedy="ask for a smaller n")
        if not self.years:
            return moment
        first = datetime(year, 1, 1, tzinfo=UTC)
        return Points().of(first + timedelta(days=-first.weekday() % 7 if self.on_mondays else 0))


def arrange_moments(select: Select, after: Fraction, pause: Fraction) -> Moments:
    """Moments after a timestamp, at least ``pause`` apart, that fit the time functions of a select."""
    functions = list(_find_time_functions(select))
    cycles = [cycle for function in functions for cycle in _find_cycles(function)]
    on_mondays = any(f.unit == "week" or "day of week" in f.fields for f in functions)
    if any(_depends_on_years(function) for function in functions):
        years = max([int(pause), *cycles]) // (365 * DAY) + 1
        return Moments(int(after) + 366 * DAY, years=years, on_mondays=on_mondays)
    unit = lcm(SECOND, *cycles)
    offset = max((function.offset for function in functions), default=0)
    if on_mondays:
        offset = _MONDAY
    step = unit * (int(pause) // unit + 1)
    start = (int(after) // unit + 1) * unit + offset
    return Moments(start, step)


def add_fields(select: Select, alias: str, assignment: Mapping[Ref, Fraction]) -> Fraction:
    """How long after its moment a row comes, so that its calendar fields have the values of an assignment."""
    added = Fraction(0)
    for column in select.occurrence(alias).table.derived:
        ref = Ref(alias, column.name)
        function = find_time_function(select, ref)
        if function is None or function.monotone or ref not in assignment or len(function.fields) != 1:
            continue
        (field,) = function.fields
        first = 1 if field in ("day", "day of year", "month", "quarter", "week of year") else 0
        added += _ADDED.get(field, 0) * (assignment[ref] - first)
    return added


def has_time_functions(select: Select) -> bool:
    """Whether a select uses functions of a timestamp."""
    return any(True for _ in _find_time_functions(select))


def _find_time_functions(select: Select) -> Iterable[TimeFunction]:
    for occurrence in select.occurrences:
        for column in occurrence.table.derived:
            function = find_time_function(select, Ref(occurrence.alias, column.name))
            if function is not None:
                yield function


def _depends_on_years(function: TimeFunction) -> bool:
    """Whether the function depends on units of different lengths, all of which start with a year."""
    if function.monotone:
        return function.unit in ("year", "quarter", "month")
    return any(field not in _CYCLES for field in function.fields)


def _find_cycles(function: TimeFunction) -> Iterable[int]:
    """Lengths of time of which moments should be multiples."""
    if function.monotone:
        yield function.width
        if function.slide is not None:
            yield function.slide
    else:
        yield from (_CYCLES[field] for field in function.fields if field in _CYCLES)


def _find_year(moment: Fraction) -> int:
    """The year of a moment, roughly."""
    return 1970 + int(moment // (365 * DAY))
