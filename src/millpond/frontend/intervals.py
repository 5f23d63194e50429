"""Reads constant lengths of time: ``INTERVAL 1 HOUR``, ``INTERVAL '1' HOUR * 2``, ``make_interval(…)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import Token, TokenType, exp

from millpond.query.calendar import DAY, HOUR, MINUTE, SECOND

# 10,000 years.
LONGEST_LENGTH = 3_660_000 * DAY
_UNIT = "year|month|week|day|hour|minute|second|millisecond|microsecond"
_WHOLE = re.compile(rf"\s*(?:interval\s+)?(?:[+-]?\s*[0-9.]+\s*(?:{_UNIT})s?\s*)+", re.IGNORECASE)
_PIECE = re.compile(rf"([+-]?)\s*([0-9.]+)\s*({_UNIT})", re.IGNORECASE)
_NUMBER_AND_UNIT = re.compile(rf"\s*([+-]?[0-9.]+)\s*((?:{_UNIT})s?)\s*", re.IGNORECASE)
_SPAN = re.compile(r"\s*([+-]?)([0-9.:\s-]+)")
_MOMENTS = (
    *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ),
    exp.DType.DATE,
)
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_PARTS = ("year", "month", "week", "day", "hour", "minute", "second")
_COUNTED_PARTS = {
    "MAKE_DT_INTERVAL": ("day", "hour", "minute", "second"),
    "MAKE_YM_INTERVAL": ("year", "month"),
}


@dataclass(frozen=True)
class Length:
    """A length of time.  Days and months are those of the calendar: some days have 23 or 25 hours.

    ``keeps_dates``: a DATE plus this length is a DATE, not a TIMESTAMP.
    """

    months: int = 0
    days: int = 0
    micros: int = 0
    keeps_dates: bool = False

    @property
    def fixed(self) -> int | None:
        """The length in microseconds where all days are equally long; None if it has months or is longer than
        any two timestamps are apart."""
        total = self.days * DAY + self.micros
        return None if self.months or abs(total) > LONGEST_LENGTH else total

    def is_exact(self, slack: int) -> bool:
        """Whether all stretches of this length are equally long; ``slack`` as in ``find_slack``.

        Spark takes full days out of a number of hours, and adds them by the calendar.
        """
        return self.fixed is not None and (not slack or (not self.days and abs(self.micros) < DAY))

    def add(self, other: Length, sign: int = 1) -> Length:
        """The sum with another length, or the difference."""
        return Length(
            self.months + sign * other.months,
            self.days + sign * other.days,
            self.micros + sign * other.micros,
            self.keeps_dates and other.keeps_dates,
        )

    def scale(self, factor: Fraction) -> Length | None:
        """A multiple; None if it would have to be rounded."""
        parts = [each * factor for each in (self.months, self.days, self.micros)]
        if any(each.denominator != 1 for each in parts):
            return None
        months, days, micros = map(int, parts)
        return Length(months, days, micros, self.keeps_dates)


_LENGTHS = {
    "year": Length(months=12, keeps_dates=True),
    "quarter": Length(months=3, keeps_dates=True),
    "month": Length(months=1, keeps_dates=True),
    "week": Length(days=7, keeps_dates=True),
    "day": Length(days=1, keeps_dates=True),
    "hour": Length(micros=HOUR),
    "minute": Length(micros=MINUTE),
    "second": Length(micros=SECOND),
    "millisecond": Length(micros=1_000),
    "microsecond": Length(micros=1),
}


def split_intervals(text: str, tokens: list[Token]) -> list[Token]:
    """The tokens of a statement, with ``INTERVAL '5 minutes'`` as ``INTERVAL '5' minutes``."""
    split: list[Token] = []
    for index, token in enumerate(tokens):
        is_length = (
            token.token_type is TokenType.STRING and tokens[index - 1].token_type is TokenType.INTERVAL
        )
        written = _NUMBER_AND_UNIT.fullmatch(token.text) if is_length and index else None
        between = text.rfind(written[2], token.start, token.end + 1) if written is not None else -1
        if written is None or between < 0:
            split.append(token)
            continue
        start, end, column = token.start, token.end, token.col - (token.end + 1 - between)
        split.append(Token(TokenType.STRING, written[1], token.line, column, start, between - 1))
        split.append(Token(TokenType.VAR, written[2], token.line, token.col, between, end))
    return split


def read_interval(node: exp.Expr) -> Length | None:
    """The length that an expression without columns stands for; None if it is not a length of time."""
    match node:
        case exp.Paren():
            return read_interval(node.this)
        case exp.Interval():
            return _read_literal(node)
        case exp.Neg():
            inner = read_interval(node.this)
            return None if inner is None else inner.scale(Fraction(-1))
        case exp.Add() | exp.Sub():
            left, right = read_interval(node.this), read_interval(node.expression)
            if left is None or right is None:
                return None
            return left.add(right, 1 if isinstance(node, exp.Add) else -1)
        case exp.Mul() | exp.Div():
            return _read_multiple(node)
        case exp.MakeInterval():
            made = _add_parts(_PARTS, [node.args.get(part) for part in _PARTS])
            return None if made is None else Length(made.months, made.days, made.micros, keeps_dates=True)
        case exp.Anonymous() if node.name.upper() in _COUNTED_PARTS:
            parts = _COUNTED_PARTS[node.name.upper()]
            made = _add_parts(parts, node.expressions)
            return None if made is None else Length(made.months, made.days, made.micros, "month" in parts)
    return None


def keeps_dates(node: exp.Expr) -> bool | None:
    """Whether a DATE plus a length of time is a DATE; None if the expression is not a length of time."""
    length = read_interval(node)
    if length is not None:
        return length.keeps_dates
    match node:
        case exp.Paren() | exp.Neg() | exp.Div():
            return keeps_dates(node.this)
        case exp.Mul() | exp.Add() | exp.Sub():
            found = [k for each in (node.this, node.expression) if (k := keeps_dates(each)) is not None]
            return all(found) if len(found) == (1 if isinstance(node, exp.Mul) else 2) else None
        case exp.Interval():
            unit = node.args.get("unit")
            length = _LENGTHS.get(unit.name.lower().removesuffix("s")) if unit is not None else None
            return length.keeps_dates if length is not None else None
        case exp.MakeInterval():
            return True
        case exp.Anonymous() if node.name.upper() in _COUNTED_PARTS:
            return "month" in _COUNTED_PARTS[node.name.upper()]
    return None


def find_moment_type(node: exp.Expr) -> exp.DataType | None:
    """Spark's type of a date or timestamp to which a length of time or a number of days is added, and of the
    time between two of them, given the types of the operands; None for any other expression."""
    if isinstance(node, exp.TimestampAdd | exp.TimestampTrunc):
        return exp.DataType.build("TIMESTAMP", dialect="spark")
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    pairs = [(node.this, node.expression)]
    if isinstance(node, exp.Add):
        pairs.append((node.expression, node.this))
    elif all(each.type is not None and each.type.this in _MOMENTS for each in pairs[0]):
        return exp.DataType.build("INTERVAL")
    for moment, by in pairs:
        if moment.type is None or moment.type.this not in _MOMENTS:
            continue
        is_date, whole = moment.type.this is exp.DType.DATE, keeps_dates(by)
        if is_date and by.type is not None and by.type.this in exp.DataType.INTEGER_TYPES:
            whole = True
        if whole is not None:
            return exp.DataType.build("DATE" if is_date and whole else "TIMESTAMP", dialect="spark")
    return None


def read_count_of_units(count: exp.Expr, unit: str) -> Length | None:
    """So many units, as the arguments of ``timestampadd`` say."""
    number, length = read_number(count), _LENGTHS.get(unit.lower().removesuffix("s"))
    return None if number is None or length is None else length.scale(number)


def read_shift(node: exp.Expr) -> tuple[exp.Expr, Length] | None:
    """An expression, and the length that is added to it; None if nothing is."""
    node = node.unnest()
    if isinstance(node, exp.TimestampAdd):
        length, inner = read_count_of_units(node.expression, node.text("unit")), node.this.unnest()
    elif isinstance(node, exp.Add | exp.Sub):
        inner, length = node.this.unnest(), read_interval(node.expression)
        if length is None and isinstance(node, exp.Add):
            inner, length = node.expression.unnest(), read_interval(node.this)
        if length is not None and isinstance(node, exp.Sub):
            length = length.scale(Fraction(-1))
    else:
        return None
    if length is None:
        return None
    before = read_shift(inner)
    return (inner, length) if before is None else (before[0], before[1].add(length))


def _read_literal(node: exp.Interval) -> Length | None:
    """``INTERVAL 1 HOUR``, ``INTERVAL '1 day 2 hours'``, ``INTERVAL '1 02:00' DAY TO MINUTE``."""
    unit, value = node.args.get("unit"), node.this
    sign = 1
    while isinstance(value, exp.Neg | exp.Paren):
        sign *= -1 if isinstance(value, exp.Neg) else 1
        value = value.this
    if not isinstance(value, exp.Literal):
        return None
    if isinstance(unit, exp.IntervalSpan):
        found = _read_span(value.name, unit.this.name.upper(), unit.expression.name.upper())
    else:
        found = _read_text(f"{value.name} {unit.name if unit is not None else ''}")
    return None if found is None else found.scale(Fraction(sign))


def _read_text(text: str) -> Length | None:
    if not _WHOLE.fullmatch(text):
        return None
    total = Length(keeps_dates=True)
    for sign, digits, unit in _PIECE.findall(text):
        if digits.count(".") > (unit.lower() == "second"):  # only seconds have fractions
            return None
        piece = _LENGTHS[unit.lower()].scale(Fraction(sign + digits))
        if piece is None:
            return None
        total = total.add(piece)
    return total


def _read_span(text: str, first: str, last: str) -> Length | None:
    """``'1-6' YEAR TO MONTH``, or ``'1 02:03:04.5' DAY TO SECOND`` with any two of its fields."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    sign, written = Fraction(f"{match[1]}1"), match[2].strip()
    if (first, last) == ("YEAR", "MONTH"):
        units, numbers = ["year", "month"], written.split("-")
    elif first in _FIELDS and last in _FIELDS:
        units = [unit.lower() for unit in _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]]
        numbers = re.split(r"[\s:]+", written)
    else:
        return None
    if len(numbers) != len(units) or not all(re.fullmatch(r"\d+(\.\d+)?", each) for each in numbers):
        return None
    total = Length(keeps_dates=units[0] == "year")
    for number, unit in zip(numbers, units, strict=True):
        piece = _LENGTHS[unit].scale(Fraction(number) * sign)
        if piece is None:
            return None
        total = total.add(piece)
    return total


def _read_multiple(node: exp.Expr) -> Length | None:
    left, right = node.this, node.expression
    if isinstance(node, exp.Mul) and read_interval(left) is None:
        left, right = right, left
    length, factor = read_interval(left), read_number(right)
    if length is None or factor is None or (isinstance(node, exp.Div) and factor == 0):
        return None
    return length.scale(factor if isinstance(node, exp.Mul) else 1 / factor)


def _add_parts(parts: Sequence[str], counts: Sequence[exp.Expr | None]) -> Length | None:
    total = Length(keeps_dates=True)
    for part, count in zip(parts, counts, strict=False):
        if count is None:
            continue
        piece = read_count_of_units(count, part)
        if piece is None:
            return None
        total = total.add(piece)
    return total


def read_number(node: exp.Expr) -> Fraction | None:
    """The value of a constant: numbers, connected by + - * and with signs."""
    node = node.unnest()
    if isinstance(node, exp.Literal) and not node.is_string:
        return Fraction(node.this) if node.this.replace(".", "", 1).isdecimal() else None
    if isinstance(node, exp.Neg):
        inner = read_number(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return None
    left, right = read_number(node.this), read_number(node.expression)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Mul):
        return left * right
    return left + right if isinstance(node, exp.Add) else left - right
