"""Numbers that count time, and timestamps made of them: ``floor(unix_timestamp(ts) / 300)``.

The value of such an expression grows with the time column and never returns, so groups of it close.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import TokenType, exp

from millpond.frontend.constants import Bound
from millpond.frontend.intervals import read_number
from millpond.frontend.row_expressions import is_row_expression, mark_as_read
from millpond.frontend.row_facts import is_positive_remainder
from millpond.frontend.scope import Scope
from millpond.frontend.spark_names import name_expression
from millpond.frontend.time_calls import (
    find_argument,
    find_time_function,
    read_shifted_time,
    read_time_call,
    split_at_commas,
)
from millpond.frontend.time_columns import UnknownFormError, quote_name
from millpond.frontend.time_functions import count_as_time, find_maker, make_count
from millpond.query.calendar import SECOND, Count
from millpond.query.expressions import Ref
from millpond.query.types import BIGINT, DOUBLE, INT, SqlType

# Up to here, the quotient of a count and a small number is rounded to the same side as without rounding.
_EXACT = 2**53
_LATEST = 253_402_300_800 * SECOND  # the year 10000
_LONGEST = 1_000 * 366 * 86_400 * SECOND
_INTEGERS = {exp.DType.BIGINT: BIGINT, exp.DType.INT: INT}
# Functions that round: their names, and whether the time can be before or after that of the rounded count.
_ROUNDING: dict[type[exp.Expr], tuple[str, bool, bool]] = {
    exp.Floor: ("floor", False, True),
    exp.Ceil: ("ceil", True, False),
    exp.Round: ("round", True, True),
}
_MAKES_TIME = {"TIMESTAMP_SECONDS": SECOND, "TIMESTAMP_MILLIS": 1_000, "TIMESTAMP_MICROS": 1}
_DEFAULT_FORMAT = "yyyy-MM-dd HH:mm:ss"


def read_function_of_time(scope: Scope, node: exp.Expr, grouped: bool = False) -> Bound | None:
    """The derived column of a function of a timestamp, under Spark's name for it; None for any other node.

    ``grouped`` as in ``read_time_call``.
    """
    return (
        read_time_call(scope, node, grouped) or read_shifted_time(scope, node) or _read_counting(scope, node)
    )


@dataclass(frozen=True)
class _Counting:
    """A count of time: its name, its type, and how Spark and DuckDB compute it from other columns."""

    ref: Ref
    name: str
    type: SqlType
    spark: str
    duckdb: str
    count: Count

    def change(self, spark: str, duckdb: str, count: Count, type_: SqlType | None = None) -> _Counting:
        """Another count, written with ``{}`` for this one; its name is Spark's text."""
        return _Counting(
            self.ref,
            spark.format(self.name),
            type_ or self.type,
            spark.format(self.spark),
            duckdb.format(self.duckdb),
            count,
        )


def _read_counting(scope: Scope, node: exp.Expr) -> Bound | None:
    """A number that is computed from a count of time, or a timestamp or text that is made of one."""
    if not isinstance(node, exp.Binary | exp.Func) or not is_row_expression(node):
        return None
    name = name_expression(scope.statement, node)
    made = _read_time(scope, node)
    if made is not None:
        mark_as_read(scope.statement, node)
        return Bound(made, scope.column(made).type, name)
    counting = _read(scope, node)
    if counting is None:
        return None
    mark_as_read(scope.statement, node)
    argument = find_argument(scope, counting.ref)
    texts = counting.spark, counting.duckdb
    column = make_count(argument, counting.name, counting.type, texts, counting.count)
    return Bound(scope.derive(counting.ref.occurrence, column), counting.type, name)


def _read_time(scope: Scope, node: exp.Expr) -> Ref | None:
    """The timestamp that is as many seconds after 1970 as a count says, or its text."""
    unit = SECOND
    if isinstance(node, exp.Anonymous) and node.name.upper() in _MAKES_TIME and len(node.expressions) == 1:
        counted, unit = node.expressions[0], _MAKES_TIME[node.name.upper()]
    elif isinstance(node, exp.UnixToStr) or (
        isinstance(node, exp.Cast) and node.to.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ)
    ):
        counted = node.this
    else:
        return None
    found = read_function_of_time(scope, counted.unnest())
    if found is None or not isinstance(found.expression, Ref):
        return None
    ref = found.expression
    function = find_time_function(scope.column(ref))
    if function is None or function.count is None or function.count.unit != unit or found.type is DOUBLE:
        return None
    time = scope.derive(ref.occurrence, count_as_time(find_argument(scope, ref), scope.column(ref)))
    if not isinstance(node, exp.UnixToStr):
        return time
    maker, argument = find_maker("DATE_FORMAT"), find_argument(scope, ref)
    assert maker is not None
    try:
        shown = maker(argument.of(scope.column(time)), "DATE_FORMAT", [_read_format(scope, node)])
    except UnknownFormError:
        return None
    return scope.derive(ref.occurrence, shown)


def _read_format(scope: Scope, node: exp.UnixToStr) -> str:
    """The pattern of ``from_unixtime`` as written; sqlglot translates it."""
    first, last = scope.statement.span(node)
    arguments = split_at_commas(scope.statement, range(first + 2, last))
    if len(arguments) < 2:
        return _DEFAULT_FORMAT
    token = scope.statement.tokens[arguments[1][0]]
    if token.token_type is not TokenType.STRING or len(arguments[1]) > 1:
        raise UnknownFormError("has a pattern that is not a constant")
    return token.text


def _read(scope: Scope, node: exp.Expr) -> _Counting | None:
    """The count of time that an expression is."""
    node = node.unnest()
    called = read_time_call(scope, node) if isinstance(node, exp.Func) else None
    if called is not None and isinstance(called.expression, Ref):
        ref = called.expression
        function, texts = find_time_function(scope.column(ref)), quote_name(ref.column)
        if function is None or function.count is None:
            return None
        return _Counting(ref, ref.column, BIGINT, *texts, function.count)
    match node:
        case exp.Floor() | exp.Ceil() | exp.Round() | exp.Cast():
            return _read_rounded(scope, node)
        case exp.IntDiv():
            inner, by = _read(scope, node.this), _read_integer(node.expression)
            if inner is None or by is None or inner.type is DOUBLE:
                return None
            return _divide(inner, by, exp.IntDiv, BIGINT)
        case exp.Add() | exp.Sub():
            return _read_rest(scope, node) or _read_sum(scope, node)
        case exp.Mul():
            inner, by = _read(scope, node.this), _read_integer(node.expression)
            if inner is None:
                inner, by = _read(scope, node.expression), _read_integer(node.this)
            if inner is None or by is None or inner.count.unit % by:
                return None
            text, count = f"{{}} * {by}", replace(inner.count, unit=inner.count.unit // by)
            return inner.change(text, text, count, BIGINT if inner.type is INT else None)
    return None


def _read_rounded(scope: Scope, node: exp.Expr) -> _Counting | None:
    """A quotient that is rounded, or a count that is an integer anyway."""
    type_: SqlType | None = DOUBLE if isinstance(node, exp.Round) else BIGINT
    if isinstance(node, exp.Cast):
        type_ = _INTEGERS.get(node.to.this)
    if type_ is None or node.args.get("decimals") or node.args.get("format"):
        return None
    inner = node.this.unnest()
    if not isinstance(inner, exp.Div):
        counted = _read(scope, inner)
        if counted is None or (isinstance(node, exp.Round) and counted.type is not DOUBLE):
            return counted
        return counted.change(f"CAST({{}} AS {type_})", f"CAST({{}} AS {type_})", counted.count, type_)
    counted, by = _read(scope, inner.this), _read_integer(inner.expression)
    if counted is None or by is None or _LATEST // counted.count.unit >= _EXACT:
        return None
    return _divide(counted, by, exp.Cast if isinstance(node, exp.Cast) else type(node), type_)


def _divide(inner: _Counting, by: int, kind: type[exp.Expr], type_: SqlType) -> _Counting | None:
    """A count divided by a number and rounded: down, up, to the nearest, or towards 1970."""
    unit, rest = inner.count.unit, inner.count.unit * (by - 1)
    if unit * by > _LONGEST:
        return None
    below, above = rest, rest
    spark, duckdb = f"CAST({{}} / {by} AS {type_})", f"CAST(trunc({{}} / {by}) AS {type_})"
    if kind is exp.IntDiv:
        spark = f"({{}} DIV {by})"
    elif kind in _ROUNDING:
        name, down, up = _ROUNDING[kind]
        furthest = -(-unit * by // 2) if kind is exp.Round else rest
        below, above = furthest * down, furthest * up
        spark, duckdb = f"{name}({{}} / {by})", f"CAST({name}({{}} / {by}) AS {type_})"
    low, high = inner.count.low - below, inner.count.high + above
    count = Count(unit * by, low, high, max(inner.count.period, unit * by))
    return inner.change(spark, duckdb, count, type_)


def _read_sum(scope: Scope, node: exp.Expr) -> _Counting | None:
    """A count plus or minus a number."""
    inner, by = _read(scope, node.this), _read_integer(node.expression, signed=True)
    if inner is None and isinstance(node, exp.Add):
        inner, by = _read(scope, node.expression), _read_integer(node.this, signed=True)
    if inner is None or by is None:
        return None
    by = -by if isinstance(node, exp.Sub) else by
    moved = inner.count.unit * by
    count = replace(inner.count, low=inner.count.low - moved, high=inner.count.high - moved)
    text = f"({{}} {'+' if by >= 0 else '-'} {abs(by)})"
    return inner.change(text, text, count, BIGINT if inner.type is INT else None)


def _read_rest(scope: Scope, node: exp.Expr) -> _Counting | None:
    """``x - x % 60``: a count without its remainder, which is rounded towards 1970, or down with pmod."""
    rest = node.expression.unnest() if isinstance(node, exp.Sub) else None
    if rest is None:
        return None
    is_positive = is_positive_remainder(rest)
    if not is_positive and not isinstance(rest, exp.Mod):
        return None
    value, modulus = rest.expressions if is_positive else (rest.this, rest.expression)
    inner, same, by = _read(scope, node.this), _read(scope, value), _read_integer(modulus)
    if inner is None or same is None or inner.spark != same.spark or by is None or inner.type is DOUBLE:
        return None
    # It counts the same unit, but only the multiples of ``by`` occur.
    unit, above = inner.count.unit, inner.count.unit * (by - 1)
    low = inner.count.low - (0 if is_positive else above)
    count = Count(unit, low, inner.count.high + above, max(inner.count.period, unit * by))
    spark = f"({inner.name} - {'pmod' if is_positive else 'mod'}({inner.name}, {by}))"
    own = inner.spark, inner.duckdb
    texts = [f"({each} - {each} % {by})" for each in own]
    if is_positive:
        texts = [f"({own[0]} - pmod({own[0]}, {by}))", f"({own[1]} - ({own[1]} % {by} + {by}) % {by})"]
    return _Counting(inner.ref, spark, inner.type, texts[0], texts[1], count)


def _read_integer(node: exp.Expr, signed: bool = False) -> int | None:
    """A whole number that is greater than 0, or any if it is ``signed``."""
    number = read_number(node)
    if number is None or number.denominator != 1 or not node.unnest().sql().lstrip("-").isdecimal():
        return None
    return int(number) if signed or number > 0 else None
