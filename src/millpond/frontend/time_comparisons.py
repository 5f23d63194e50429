"""Comparisons of dates, years and seconds of timestamps, as comparisons of truncated timestamps.

``CAST(a.ts AS DATE) = CAST(b.ts AS DATE)`` holds exactly if the two timestamps, truncated to the day, are
equal.  In this form the closure sees how far apart the timestamps can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from millpond.frontend.date_formats import read_pattern
from millpond.frontend.scope import Scope
from millpond.frontend.time_calls import find_argument, find_time_function
from millpond.frontend.time_fields import FIELD_FUNCTIONS
from millpond.frontend.time_functions import count_as_time, make_field, truncate
from millpond.query.calendar import find_closing_unit
from millpond.query.expressions import Arithmetic, Expr, Literal, Op, Ref
from millpond.query.types import BIGINT, DATE, INT, INTERVAL, STRING, TIMESTAMP

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class _Scale:
    """How the values of a function of time become timestamps: constants, and constants that are added.

    A constant is a timestamp in the session's time zone; None where the two do not correspond.
    """

    key: object
    constant: Callable[[object], datetime | None]
    shift: Callable[[object], timedelta | None]


def compare_as_times(scope: Scope, left: Expr, operator: Op, right: Expr) -> tuple[Expr, Expr] | None:
    """Two timestamps whose comparison is equivalent to that of two functions of time; None without any."""
    scales = [_find_scale(scope, each) for each in (left, right)]
    known = [scale for scale in scales if scale is not None]
    if not known or any(scale.key != known[0].key for scale in known):
        return None
    if known[0].key is STRING:
        return None
    sides = [_convert(scope, each, known[0]) for each in (left, right)]
    return (sides[0], sides[1]) if sides[0] is not None and sides[1] is not None else None


def compare_formats(scope: Scope, left: Expr, right: Expr) -> tuple[list[tuple[Ref, Ref]], bool] | None:
    """What two equal results of one ``date_format`` imply: equal timestamps, or equal calendar fields.

    Pairs of columns that are then equal, and whether this is equivalent; None if nothing is known.
    """
    if not isinstance(left, Ref) or not isinstance(right, Ref):
        return None
    patterns = [_find_pattern(scope, ref) for ref in (left, right)]
    function = find_time_function(scope.column(left))
    if patterns[0] is None or patterns[0] != patterns[1] or function is None or function.lag:
        return None
    unit = find_closing_unit([function])
    if isinstance(unit, str):
        one, other = (_truncate(scope, ref, unit) for ref in (left, right))
        return [(one, other)], function.monotone
    fields = read_pattern(patterns[0]).fields
    fields -= {"half hour", "half day"} if "hour" in fields else set()
    if not fields or not fields <= FIELD_FUNCTIONS.keys():
        return None
    pairs = []
    for field in sorted(fields):
        one, other = (
            scope.derive(ref.occurrence, make_field(find_argument(scope, ref), FIELD_FUNCTIONS[field], []))
            for ref in (left, right)
        )
        pairs.append((one, other))
    return pairs, True


def _find_pattern(scope: Scope, ref: Ref) -> str | None:
    """The pattern of a column made by ``date_format``."""
    column = scope.column(ref)
    if column.type is not STRING or find_time_function(column) is None:
        return None
    time = find_argument(scope, ref).name
    return column.name.removeprefix(f"date_format({time}, '").removesuffix("')")


def _find_scale(scope: Scope, side: Expr) -> _Scale | None:
    """The scale of a function of a time column, or of one to which a constant is added."""
    ref = side.left if isinstance(side, Arithmetic) else side
    if not isinstance(ref, Ref):
        return None
    column = scope.column(ref)
    function = find_time_function(column)
    if function is None or not function.monotone or (function.lag and function.count is None):
        return None
    is_utc = not find_argument(scope, ref).slack
    if column.type is DATE:
        return _Scale(DATE, _midnight, lambda days: _days(days) if is_utc else None)
    if column.type is INT and function.unit == "year":
        return _Scale("year", _new_year, lambda _: None)
    if column.type in (BIGINT, INT) and function.count is not None:
        width = function.count.unit
        utc = scope.statement.time_zone in ("UTC", "Etc/UTC", "GMT", "Z")
        return _Scale(
            width,
            lambda value: _EPOCH + by if utc and (by := _ticks(value, width)) is not None else None,
            lambda value: _ticks(value, width),
        )
    return None


def _convert(scope: Scope, side: Expr, scale: _Scale) -> Expr | None:
    """A side of a comparison as a timestamp."""
    try:
        if isinstance(side, Literal):
            moment = scale.constant(side.value)
            return None if moment is None else Literal(moment, TIMESTAMP)
        if isinstance(side, Arithmetic) and isinstance(side.left, Ref) and isinstance(side.right, Literal):
            start, by = _convert(scope, side.left, scale), scale.shift(side.right.value)
            if start is None or by is None:
                return None
            return Arithmetic(side.operator, start, Literal(by, INTERVAL))
    except (OverflowError, ValueError):
        return None
    if not isinstance(side, Ref) or _find_scale(scope, side) is None:
        return None
    function = find_time_function(scope.column(side))
    assert function is not None
    if isinstance(function.unit, str):
        return _truncate(scope, side, function.unit)
    return scope.derive(side.occurrence, count_as_time(find_argument(scope, side), scope.column(side)))


def _truncate(scope: Scope, ref: Ref, unit: str) -> Ref:
    return scope.derive(ref.occurrence, truncate(find_argument(scope, ref), unit))


def _midnight(day: object) -> datetime | None:
    return datetime(day.year, day.month, day.day) if isinstance(day, date) else None


def _days(count: object) -> timedelta | None:
    return timedelta(days=count) if isinstance(count, int) else None


def _new_year(year: object) -> datetime | None:
    return datetime(year, 1, 1) if isinstance(year, int) else None


def _ticks(count: object, width: int) -> timedelta | None:
    return timedelta(microseconds=count * width) if isinstance(count, int) else None
