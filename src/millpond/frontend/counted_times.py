"""Conditions that count the time between two timestamps, as in ``timestampdiff(MINUTE, a.ts, b.ts) < 5``.

They tell how far apart the timestamps are, up to the unit in which they count.  Written beside them as
``b.ts < a.ts + INTERVAL 5 MINUTES``, the closure understands it.  The timestamps may be of two tables, or of
a row and the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, floor

from sqlglot import exp, parse_one

from millpond.frontend.intervals import LONGEST_LENGTH, Length, read_interval, read_number, read_shift
from millpond.frontend.scope import Scope
from millpond.frontend.time_bounds import TimeBound, TimeDifference
from millpond.frontend.time_zones import find_slack
from millpond.frontend.truncated_times import find_truncated
from millpond.query.durations import parse_duration
from millpond.query.model import Windowed
from millpond.query.types import Family

_SECOND, _DAY = 1_000_000, 86_400_000_000
_MONTH = 31 * _DAY
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_CLOCKS: dict[type[exp.Expr], int] = {
    exp.StrToUnix: _SECOND,
    exp.UnixSeconds: _SECOND,
    exp.UnixMillis: 1_000,
    exp.UnixMicros: 1,
}
_CASTS = {exp.DType.BIGINT: _SECOND, exp.DType.DOUBLE: _SECOND}
# Units of timestampdiff whose length does not depend on the calendar, in UTC.
_FIXED = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK")
_LONGEST = 2**52
# A condition that stays as it is written, beside what it implies.
_KEPT = "kept"


@dataclass(frozen=True)
class _Measure:
    """A count of units between two timestamps.

    The time between them is more than ``count - below`` units and less than ``count + above`` units.
    """

    later: exp.Expr
    earlier: exp.Expr
    unit: int
    below: int = 0
    above: int = 0
    truncates: bool = False
    slack: int = 0


def find_differences(node: exp.Expr, slack: int) -> list[TimeDifference]:
    """The differences that a comparison or BETWEEN, whose conjunction it is, compares; empty for others.

    ``slack``: by how many microseconds a stretch of local time can be longer than one in UTC.
    """
    if isinstance(node, exp.Between):
        both = [(exp.GTE, node.args["low"]), (exp.LTE, node.args["high"])]
        found = [each for kind, limit in both for each in _compare(kind, node.this, limit, slack)]
        return found if len(found) == len(both) else []
    if type(node) not in _MIRRORED:
        return []
    left, right = node.this, node.expression
    return [*_compare(type(node), left, right, slack)] or [
        *_compare(_MIRRORED[type(node)], right, left, slack)
    ]


def rewrite_difference(scope: Scope, node: exp.Expr, whole: bool = True) -> exp.Expr | None:
    """A condition on the time between two timestamps as one that the closure understands; None for others.

    If that is not equivalent, the condition itself is added, unless it is not to be ``whole``.
    """
    if node.meta.get(_KEPT):
        return None
    statement = scope.statement
    slack = find_slack(statement.time_zone)
    found = find_differences(node, slack)
    if not found and _is_of_one_window(scope, node):
        found = find_truncated(node, slack)
    if not found and isinstance(node, exp.Between):
        return _split_between(scope, node, slack)
    if not found or not all(_is_time(scope, s) for each in found for s in (each.later, each.earlier)):
        return None
    conditions: list[exp.Expr] = [
        bound.operator(
            this=statement.copy(each.later), expression=_shift(statement.copy(each.earlier), bound)
        )
        for each in found
        for bound in each.bounds
    ]
    if whole and not all(each.exact for each in found):
        kept = statement.copy(node)
        kept.meta[_KEPT] = True
        conditions.append(kept)
    for made in conditions:
        statement.place(made, node)
    joined = exp.and_(*conditions, copy=False) if len(conditions) > 1 else conditions[0]
    statement.place(joined, node)
    joined.parent = node.parent  # its place in the statement
    return joined


def _split_between(scope: Scope, node: exp.Between, slack: int) -> exp.Expr | None:
    """BETWEEN as two comparisons, if one of them is on the time between two timestamps."""
    statement = scope.statement
    halves: list[exp.Expr] = [
        kind(this=statement.copy(node.this), expression=statement.copy(node.args[key]))
        for kind, key in ((exp.GTE, "low"), (exp.LTE, "high"))
    ]
    if not any(find_differences(half, slack) for half in halves):
        return None
    both = exp.and_(*halves, copy=False)
    for made in (*halves, both):
        statement.place(made, node)
    both.parent = node.parent  # its place in the statement
    return both


def _is_of_one_window(scope: Scope, node: exp.Expr) -> bool:
    """Whether an expression reads one table with window functions."""
    columns = [*node.find_all(exp.Column)]
    if not all(map(scope.knows, columns)):
        return False
    refs = [scope.resolve(column)[1].ref for column in columns]
    owners = {None if ref is None else ref.occurrence for ref in refs}
    return len(owners) == 1 and all(
        owner is not None and isinstance(scope.table_of(owner).block, Windowed) for owner in owners
    )


def is_rounded(scope: Scope, node: exp.Expr) -> bool:
    """Whether a condition compares a time between two timestamps up to a unit."""
    slack = find_slack(scope.statement.time_zone)
    return any(not found.exact for each in node.walk() for found in find_differences(each, slack))


def _is_time(scope: Scope, node: exp.Expr) -> bool:
    """Whether an expression is a timestamp, plus or minus a constant."""
    shifted = read_shift(node)
    if shifted is not None and not shifted[1].is_exact(find_slack(scope.statement.time_zone)):
        return False
    node = node.unnest() if shifted is None else shifted[0]
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or not scope.knows(node):
        return False
    type_ = scope.resolve(node)[1].type
    return type_ is not None and type_.family is Family.TIME


def _shift(node: exp.Expr, bound: TimeBound) -> exp.Expr:
    if bound.micros == 0:
        return node
    kind = exp.Add if bound.micros > 0 else exp.Sub
    length = exp.Interval(this=exp.Literal.string(str(abs(bound.micros))), unit=exp.var("MICROSECOND"))
    return kind(this=node, expression=length)


# --- what is compared ----------------------------------------------------------------------------------


def _compare(
    kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, slack: int, scale: Fraction = Fraction(1)
) -> Iterator[TimeDifference]:
    """The differences that ``left / scale`` compares with a constant."""
    left, right = left.unnest(), right.unnest()
    if isinstance(left, exp.Div):
        divisor = read_number(left.expression)
        if divisor is not None and divisor > 0:
            yield from _compare(kind, left.this, right, slack, scale * divisor)
    elif isinstance(left, exp.Abs):
        below = exp.Neg(this=right.copy())
        sides = [
            *_compare(kind, left.this, right, slack, scale),
            *_compare(_MIRRORED[kind], left.this, below, slack, scale),
        ]
        yield from sides if len(sides) == 2 and kind in (exp.LT, exp.LTE) else ()
    elif isinstance(left, exp.Sub) and (length := read_interval(right)) is not None:
        if length.fixed is not None and scale == 1:
            yield _describe(_Measure(left.this, left.expression, 1), kind, Fraction(length.fixed))
    elif (shifted := read_shift(right)) is not None:
        (earlier, length), extremes = shifted, _find_extremes(shifted[1], slack)
        is_long = max(map(abs, extremes)) > LONGEST_LENGTH
        if scale == 1 and not is_long and not length.is_exact(slack):
            yield _describe_calendar(left, earlier, kind, extremes)
    else:
        measure, count = _find_measure(left, slack), read_number(right)
        if measure is not None and count is not None and abs(count * scale) < _LONGEST // measure.unit:
            yield _describe(measure, kind, count * scale)


def _find_extremes(length: Length, slack: int) -> tuple[int, int]:
    """The least and the most microseconds that a length of the calendar can have."""
    years, months = divmod(abs(length.months), 12)
    days = sorted(
        each if length.months > 0 else -each
        for each in (365 * years + 28 * months, 366 * years + 31 * months)
    )
    rest = length.days * _DAY + length.micros
    return days[0] * _DAY + rest - slack, days[1] * _DAY + rest + slack


def _describe_calendar(
    later: exp.Expr, earlier: exp.Expr, kind: type[exp.Expr], extremes: tuple[int, int]
) -> TimeDifference:
    """A comparison with a timestamp plus a length of the calendar."""
    least, most = extremes
    bounds = []
    if kind in (exp.LT, exp.LTE, exp.EQ):
        bounds.append(TimeBound(exp.LTE, most))
    if kind in (exp.GT, exp.GTE, exp.EQ):
        bounds.append(TimeBound(exp.GTE, least))
    is_far = kind in (exp.GT, exp.GTE)
    return TimeDifference(later, earlier, tuple(bounds), False, max(most, 0), is_far)


def _find_measure(node: exp.Expr, slack: int) -> _Measure | None:
    """The count of units that an expression is."""
    if isinstance(node, exp.Sub):
        one, other = _find_clock(node.this), _find_clock(node.expression)
        if one is None or other is None or one[0] != other[0] or one[2] != other[2]:
            return None
        rounding = 0 if one[0] == 1 else 1
        return _Measure(one[1], other[1], one[0], rounding, rounding)
    if isinstance(node, exp.TimestampDiff | exp.DateDiff):
        later, earlier, unit = _unwrap(node.this), _unwrap(node.expression), node.text("unit").upper()
        if isinstance(node, exp.DateDiff) and not unit:
            return _Measure(_strip_date(later), _strip_date(earlier), _DAY, 1, 1, slack=slack)
        if unit in _FIXED:
            return _Measure(later, earlier, parse_duration(f"1 {unit}") or 1, truncates=True, slack=slack)
    if isinstance(node, exp.MonthsBetween):
        return _Measure(node.this, node.expression, _MONTH, 0, 1, slack=slack)
    return None


def _find_clock(node: exp.Expr) -> tuple[int, exp.Expr, str] | None:
    """The microseconds of the unit in which an expression counts the time since 1970, and the timestamp."""
    node = node.unnest()
    if isinstance(node, exp.StrToUnix) and node.args.get("format") not in (None, _find_default_format()):
        return None
    if type(node) in _CLOCKS:
        return _CLOCKS[type(node)], node.this, ""
    if isinstance(node, exp.Cast) and node.to.this in _CASTS:
        return _CASTS[node.to.this], node.this, node.to.sql()
    return None


@cache
def _find_default_format() -> exp.Expr | None:
    """The format that sqlglot adds to ``unix_timestamp(ts)``."""
    return parse_one("unix_timestamp(x)", read="spark").args.get("format")


def _describe(measure: _Measure, kind: type[exp.Expr], count: Fraction) -> TimeDifference:
    """The difference whose count of units is compared with a number."""
    bounds = [*(_bound_truncated(kind, count) if measure.truncates else _bound_rounded(measure, kind, count))]
    exact = not (measure.below or measure.above or measure.slack)
    unit, slack = measure.unit, measure.slack
    shifted = tuple(
        TimeBound(op, ceil(at * unit) + slack if op in (exp.LT, exp.LTE) else floor(at * unit) - slack)
        if op is not exp.EQ
        else TimeBound(op, int(at * unit))
        for op, at in bounds
    )
    # Rounding moves the count by less than two units; an exact time is not rounded.
    reach = max(0, ceil((count + 2) * unit) + slack if unit > 1 else ceil(count))
    return TimeDifference(
        measure.later, measure.earlier, shifted, exact, reach, if_far=kind in (exp.GT, exp.GTE)
    )


def _bound_truncated(kind: type[exp.Expr], count: Fraction) -> Iterator[tuple[type[exp.Expr], Fraction]]:
    """Bounds of q that are together equivalent to ``trunc(q) kind count``."""
    if kind in (exp.LT, exp.LTE, exp.EQ):
        most = ceil(count) - 1 if kind is exp.LT else floor(count)
        yield (exp.LT, Fraction(most + 1)) if most >= 0 else (exp.LTE, Fraction(most))
    if kind in (exp.GT, exp.GTE, exp.EQ):
        least = floor(count) + 1 if kind is exp.GT else ceil(count)
        yield (exp.GTE, Fraction(least)) if least > 0 else (exp.GT, Fraction(least - 1))


def _bound_rounded(
    measure: _Measure, kind: type[exp.Expr], count: Fraction
) -> Iterator[tuple[type[exp.Expr], Fraction]]:
    """Bounds of the time between that follow if the count of units is compared with a number."""
    if not measure.below and not measure.above:
        yield kind, count
        return
    if kind in (exp.LT, exp.LTE, exp.EQ):
        yield exp.LT, count + measure.above
    if kind in (exp.GT, exp.GTE, exp.EQ) and measure.below:
        yield exp.GT, count - measure.below


def _strip_date(node: exp.Expr) -> exp.Expr:
    """The timestamp whose date is an argument of ``datediff``, which takes the date anyway."""
    while isinstance(node, exp.TsOrDsToDate) or (isinstance(node, exp.Cast) and node.is_type(exp.DType.DATE)):
        node = node.this.unnest()
    return node


def _unwrap(node: exp.Expr) -> exp.Expr:
    """The argument of ``datediff``, around which sqlglot puts a conversion to a date."""
    node = node.unnest()
    return node.this.unnest() if isinstance(node, exp.TsOrDsToDate | exp.TsOrDsToDateStr) else node
