"""Constants: parsing them, computing with them, and the names that Spark gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from operator import add, mul, sub, truediv
from typing import Any

from millpond.query.expressions import Literal
from millpond.query.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    Family,
    SqlType,
    decimal,
)

_WIDE = Context(prec=4 * MAX_PRECISION, rounding=ROUND_HALF_UP)
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?(L|S|Y|D|F|BD)?", re.IGNORECASE)
_INTEGERS = {"L": BIGINT, "S": SMALLINT, "Y": TINYINT}
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6}))?)?")
NULL = Literal(None, None)


def to_boolean(value: bool) -> Literal:
    """The value as BOOLEAN."""
    return Literal(value, BOOLEAN)


def parse_number(spelling: str) -> Literal:
    """A numeric literal with the type that Spark gives it; ValueError says what is wrong.

    >>> [parse_number(text).type.name for text in ("10", "0.50", "1e3", "7L")]
    ['INT', 'DECIMAL(2,2)', 'DOUBLE', 'BIGINT']
    """
    match = _NUMBER.fullmatch(spelling)
    if not match:
        raise ValueError("is not a number")
    digits, exponent, suffix = match[1], match[2] or "", (match[3] or "").upper()
    if suffix in ("D", "F") or (exponent and not suffix):
        return _check_finite(float(digits + exponent), FLOAT if suffix == "F" else DOUBLE)
    if suffix in _INTEGERS:
        if not digits.isdigit() or exponent:
            raise ValueError("is not a whole number")
        return _check_range(int(digits), _INTEGERS[suffix])
    if digits.isdigit() and not suffix and len(digits) <= MAX_PRECISION:
        return to_integer(int(digits))
    if len(exponent) > 4:
        raise ValueError(f"has more than {MAX_PRECISION} digits")
    return to_decimal(Decimal(digits + exponent))


def to_integer(value: int) -> Literal:
    """The value as INT if it fits, else as BIGINT, else as DECIMAL."""
    for kind in (INT, BIGINT):
        if kind.low is not None and kind.high is not None and kind.low <= value <= kind.high:
            return Literal(value, kind)
    return to_decimal(Decimal(value))


def to_decimal(value: Decimal) -> Literal:
    """The value as DECIMAL, with as many digits as it has."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # never NaN or infinite here
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    if precision > MAX_PRECISION:
        raise ValueError(f"has more than {MAX_PRECISION} digits")
    return Literal(value.quantize(Decimal(1).scaleb(-scale), context=_WIDE), decimal(precision, scale))


def _check_finite(value: float, kind: SqlType) -> Literal:
    if not math.isfinite(value):
        raise ValueError(f"is out of the range of {kind}")
    return Literal(value, kind)


def _check_range(value: int, kind: SqlType) -> Literal:
    assert kind.low is not None and kind.high is not None
    if not kind.low <= value <= kind.high:
        raise ValueError(f"is out of the range of {kind}")
    return Literal(value, kind)


def parse_date(value: str) -> Literal:
    """A DATE from its text; ValueError says what is wrong.

    >>> parse_date("2024-2-29").value
    datetime.date(2024, 2, 29)
    """
    match = _DATE.fullmatch(value.strip())
    if not match:
        raise ValueError("is not a date; write yyyy-mm-dd")
    try:
        return Literal(date(int(match[1]), int(match[2] or 1), int(match[3] or 1)), DATE)
    except ValueError:
        raise ValueError("is not a valid date") from None


def parse_timestamp(value: str) -> Literal:
    """A TIMESTAMP from its text, without a time zone; ValueError says what is wrong.

    >>> parse_timestamp("2024-02-29 12:30").value
    datetime.datetime(2024, 2, 29, 12, 30)
    """
    wrong = ValueError("is not a timestamp; write yyyy-mm-dd hh:mm:ss without a time zone")
    head, _, tail = value.strip().replace("T", " ", 1).partition(" ")
    time_of_day = _TIME_OF_DAY.fullmatch(tail.strip())
    if not _DATE.fullmatch(head) or (tail and not time_of_day):
        raise wrong
    start = parse_date(head).value
    assert isinstance(start, date)
    if not time_of_day:
        return Literal(datetime(start.year, start.month, start.day), TIMESTAMP)
    hour, minute, second = int(time_of_day[1]), int(time_of_day[2]), int(time_of_day[3] or 0)
    micro = int((time_of_day[4] or "").ljust(6, "0"))
    try:
        return Literal(datetime(start.year, start.month, start.day, hour, minute, second, micro), TIMESTAMP)
    except ValueError:
        raise ValueError("is not a valid time of day") from None


def is_floating(kind: SqlType | None) -> bool:
    """The type is FLOAT or DOUBLE."""
    return kind in (FLOAT, DOUBLE)


def to_double(literal: Literal) -> Literal:
    """A DECIMAL constant as DOUBLE, as Spark compares it with a FLOAT or DOUBLE column."""
    if isinstance(literal.value, Decimal):
        return Literal(float(literal.value), DOUBLE)
    return literal


# --- arithmetic ---------------------------------------------------------------------------------------


def negate(literal: Literal) -> Literal:
    """``-x`` of a number, a duration or NULL; as in Spark, the least INT and BIGINT keep their type."""
    value = literal.value
    if value is None:
        return literal
    if isinstance(value, timedelta):
        return Literal(-value, literal.type)
    assert isinstance(value, int | float | Decimal)
    if (value == 2**31 and literal.type is BIGINT) or (value == 2**63 and isinstance(value, Decimal)):
        return to_integer(-int(value))
    if isinstance(value, int) and literal.type is not None:
        return _check_range(-value, literal.type)
    return Literal(-value, literal.type)


def compute(operator: str, left: Literal, right: Literal) -> Literal:
    """A constant computed as Spark does in ANSI mode; ValueError where Spark would fail."""
    if left.value is None or right.value is None:
        return NULL
    if isinstance(left.value, timedelta) and isinstance(right.value, timedelta) and operator in "+-":
        return Literal(_OPERATIONS[operator](left.value, right.value), left.type)
    if isinstance(left.value, date) or isinstance(right.value, date):
        return _shift_day(operator, left, right)
    for side in (left, right):
        if side.type is None or side.type.family is not Family.NUMBER:
            raise ValueError(f"needs numbers, not {side.type}")
    if operator in "/%" and right.value == 0:
        raise ValueError("divides by zero")
    values: tuple[Any, Any] = (left.value, right.value)
    is_exact = any(isinstance(value, Decimal) for value in values)
    if is_floating(left.type) or is_floating(right.type) or (operator == "/" and not is_exact):
        return _check_finite(_OPERATIONS[operator](*map(float, values)), DOUBLE)
    if not is_exact:
        return _check_range(
            _OPERATIONS[operator](*values), BIGINT if BIGINT in (left.type, right.type) else INT
        )
    a, b = map(Decimal, values)
    with localcontext(_WIDE):
        result = _OPERATIONS[operator](a, b)
        if operator == "/":
            scale = min(max(6, _scale(a) + len(b.as_tuple().digits) + 1), MAX_PRECISION - 6)
            result = result.quantize(Decimal(1).scaleb(-scale))
    return to_decimal(result)


def _remainder(a: Any, b: Any) -> Any:
    """The remainder has the sign of the dividend."""
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": truediv,
    "%": _remainder,
}


def _shift_day(operator: str, left: Literal, right: Literal) -> Literal:
    if isinstance(right.value, date) and operator == "+":
        left, right = right, left
    day_, days = left.value, right.value
    is_whole = isinstance(days, timedelta) and not days % timedelta(days=1)
    if isinstance(days, timedelta) and operator in "+-" and (isinstance(day_, datetime) or is_whole):
        assert isinstance(day_, date)
        try:
            return Literal(_OPERATIONS[operator](day_, days), left.type)
        except OverflowError:
            raise ValueError("is out of the range of timestamps") from None
    if isinstance(day_, datetime) or isinstance(days, datetime):
        raise ValueError("computes with a TIMESTAMP constant; write the result as TIMESTAMP '…'")
    is_shift = isinstance(day_, date) and isinstance(days, int) and not isinstance(days, bool)
    if operator not in "+-" or not is_shift:
        raise ValueError("needs a DATE and a number of days")
    assert isinstance(day_, date) and isinstance(days, int)
    try:
        return Literal(day_ + timedelta(days=days if operator == "+" else -days), DATE)
    except OverflowError:
        raise ValueError("is out of the range of DATE") from None


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


# --- naming ------------------------------------------------------------------------------------------


def spark_name(literal: Literal) -> str:
    """The name that Spark gives to an output column with this constant.

    >>> spark_name(parse_number("1e10")), spark_name(NULL), spark_name(parse_date("2024-01-02"))
    ('1.0E10', 'NULL', "DATE '2024-01-02'")
    """
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}{fraction}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        return _java_double(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _java_double(value: float) -> str:
    """A double as Java prints it: plain from 0.001 up to 10,000,000, else with one digit before the point."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{Decimal(repr(value)):f}"
        return plain if "." in plain else plain + ".0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    rest = figures[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{figures[0]}.{rest}E{exponent + len(figures) - 1}"
