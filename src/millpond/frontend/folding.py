"""Computes expressions without columns when a query is read: ``upper('new')``, ``to_date('2024-01-31')``."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import SqlTypeError
from millpond.frontend.intervals import read_interval
from millpond.frontend.row_expressions import find_expression_type, is_row_function
from millpond.frontend.spark_functions import to_duckdb
from millpond.frontend.statement import Statement
from millpond.query.expressions import Literal, Scalar
from millpond.query.types import TIMESTAMP, Family

_OPERATIONS = (exp.Func, exp.DPipe, exp.Bracket)
# Their values depend on the time zone of the session.
_OF_ZONE = (
    *(exp.StrToUnix, exp.TimeToUnix, exp.UnixToStr, exp.UnixToTime, exp.UnixSeconds, exp.UnixMillis),
    *(exp.TimestampTrunc, exp.DateTrunc, exp.StrToTime, exp.TimeToStr, exp.Anonymous),
)


def fold_constant(statement: Statement, node: exp.Expr) -> Literal | None:
    """The value of a function of constants, which DuckDB computes; None for any other expression.

    None also if it is NULL, or DuckDB cannot compute it in the time zone of the session.
    """
    if not _is_of_constants(statement, node) or read_interval(node) is not None:
        return None
    if statement.time_zone != "UTC" and node.find(*_OF_ZONE) is not None:
        return None
    from millpond.runtime.row_queries import UncomputableError, query_rows  # here, as it imports DuckDB

    try:
        type_ = find_expression_type(statement, node, node, {})
        is_time = type_.family is Family.TIME
        name = "TIMESTAMP" if is_time else type_.names.duckdb
        _, [(value,)] = query_rows(f"SELECT CAST({to_duckdb(node)} AS {name})", {})
    except (SqlTypeError, UncomputableError):
        return None
    if value is None or type_.family is Family.NESTED or not isinstance(value, Scalar):
        return None
    return Literal(value, TIMESTAMP if is_time else type_)


def _is_of_constants(statement: Statement, node: exp.Expr) -> bool:
    """Whether an expression applies functions to constants only."""
    every = list(node.walk())
    if any(isinstance(each, exp.Column | exp.Query | exp.Subquery) for each in every):
        return False
    is_computed = any(isinstance(each, _OPERATIONS) and not isinstance(each, exp.Connector) for each in every)
    return is_computed and not _is_literal(statement, node) and all(map(is_row_function, every))


def _is_literal(statement: Statement, node: exp.Expr) -> bool:
    """A constant that is read as such: ``DATE '2024-01-31'``, or a number with a suffix, such as ``10L``."""
    if isinstance(node, exp.Neg):
        return _is_literal(statement, node.this)
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal):
        return False
    is_suffixed = statement.slice(node.this) == statement.slice(node)
    return is_suffixed or node.is_type(exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ)
