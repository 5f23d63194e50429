"""Compares values of different types as Spark does in ANSI mode: texts with numbers, dates with timestamps.

A text is cast to the type of the other side: to BIGINT beside a whole number, to DOUBLE beside any other.  A
date beside a timestamp is its midnight.  Constants are cast when the query is read; what Spark would fail on
is refused.  The cast of a column, or of an expression over one row, is a derived column, as if it were
written.  Everything else cannot be compared in Spark, either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from math import isfinite

from sqlglot import exp

from millpond.errors import SqlError, SqlTypeError, one_line
from millpond.frontend.row_expressions import read_row_expression
from millpond.frontend.scope import Scope
from millpond.frontend.sides import Side
from millpond.query.expressions import Literal
from millpond.query.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGERS,
    TIMESTAMP,
    Family,
    SqlType,
)

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def cast_sides(scope: Scope, left: Side, right: Side, is_of_rows: bool) -> tuple[Side, Side] | None:
    """Two sides of different kinds, with the casts that Spark inserts; None if it does not compare them.

    ``is_of_rows``: they are values of a row, of which columns can be derived.
    """
    type_ = _find_common_type(left.type, right.type)
    if type_ is None:
        return None
    sides = (left, right)
    if not is_of_rows and any(not isinstance(s.expression, Literal) and _needs_cast(s, type_) for s in sides):
        return None
    return _cast(scope, left, type_), _cast(scope, right, type_)


def is_comparable_list(operand: Side, values: Sequence[Side]) -> bool:
    """Whether Spark casts the operand of IN, and each of the values, as if it were compared with it alone."""
    types = [each.type for each in (operand, *values) if each.type is not None]
    families = {each.family for each in types}
    is_mixed = len({each.type.family for each in values if each.type is not None}) > 1
    if len(families) == 1 or not families & {Family.STRING, Family.TIME}:
        return True
    numbers = [each for each in types if each.family is Family.NUMBER]
    return not is_mixed and all(each in INTEGERS for each in numbers)


def _find_common_type(left: SqlType | None, right: SqlType | None) -> SqlType | None:
    """The type in which Spark compares values of two kinds; None if it refuses to."""
    types = [each for each in (left, right) if each is not None]
    families = {each.family for each in types}
    if families == {Family.DATE, Family.TIME}:
        return TIMESTAMP
    if Family.STRING not in families or len(families) != 2:
        return None
    (other,) = (each for each in types if each.family is not Family.STRING)
    if other.family is Family.NUMBER:
        return BIGINT if other in INTEGERS else DOUBLE
    by_family = {Family.BOOLEAN: BOOLEAN, Family.DATE: DATE, Family.TIME: TIMESTAMP}
    return by_family.get(other.family)


def _needs_cast(side: Side, type_: SqlType) -> bool:
    """Whether a value compared in a type differs from itself; whole numbers and FLOAT keep their order."""
    assert side.type is not None
    if side.type.family is not type_.family:
        return True
    return type_ is DOUBLE and side.type not in (DOUBLE, FLOAT)


def _cast(scope: Scope, side: Side, type_: SqlType) -> Side:
    if not _needs_cast(side, type_):
        return side
    literal = side.expression
    if isinstance(literal, Literal):
        return replace(side, expression=_cast_constant(scope, side, literal, type_), type=type_)
    statement = scope.statement
    written = exp.Cast(this=statement.copy(side.node), to=exp.DataType.build(type_.name, dialect="spark"))
    statement.place(written, side.node)
    written.parent = side.node.parent
    found = read_row_expression(scope, written)
    if found is None:
        shown = statement.excerpt(side.node)
        message = f"{shown} is {side.type}, which is compared as {type_}: that is not supported here"
        remedy = f"compute CAST({shown} AS {type_}) in a subquery in FROM"
        raise SqlError(message, statement.at(side.node), remedy)
    return replace(side, expression=found.expression, type=found.type)


def _cast_constant(scope: Scope, side: Side, literal: Literal, type_: SqlType) -> Literal:
    """A constant in another type; what has no value in it, an error in Spark, is refused."""
    value = literal.value
    if isinstance(value, date) and not isinstance(value, datetime):
        return Literal(datetime(value.year, value.month, value.day), TIMESTAMP)
    if not isinstance(value, str):
        return Literal(float(value), DOUBLE)  # type: ignore[arg-type]
    found = _READERS[type_.family if type_ is not DOUBLE else None](value.strip())
    if found is None:
        shown = f"'{one_line(value, 40)}' (STRING) cannot be compared as {type_}"
        remedy = "write a constant of the type of the other side"
        raise SqlTypeError(shown, scope.statement.at(side.node), remedy)
    return Literal(found, type_)


def _read_integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _read_double(text: str) -> float | None:
    value = float(text) if _NUMBER.fullmatch(text) else None
    return value if value is not None and isfinite(value) else None


def _read_boolean(text: str) -> bool | None:
    return _TRUTHS.get(text.lower())


_READERS: dict[Family | None, Callable[[str], int | float | bool | None]] = {
    Family.NUMBER: _read_integer,
    Family.BOOLEAN: _read_boolean,
    None: _read_double,
}
