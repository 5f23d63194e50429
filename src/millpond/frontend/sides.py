"""Reads the sides of comparisons from sqlglot's nodes, and folds constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from millpond.errors import SqlError, SqlTypeError, one_line
from millpond.frontend import literals
from millpond.frontend.constants import read_constant
from millpond.frontend.expressions import (
    CONDITIONS,
    OPERATORS,
    Reader,
    arithmetic_type,
    bind,
    has_aggregate,
    require_number,
    strip_parentheses,
)
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.row_expressions import find_obstacle, mark_as_read, read_row_expression
from millpond.frontend.statement import AGGREGATES
from millpond.frontend.time_calls import read_time_call
from millpond.query.durations import parse_duration
from millpond.query.model import Arithmetic, Expr, Literal, Ref
from millpond.query.types import INT, INTERVAL, SMALLINT, TIMESTAMP, TINYINT, Family, SqlType

_DAYS = (INT, SMALLINT, TINYINT)
_FIXED_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR")
_SHAPE = "compare columns with each other or with constants, as in A < B, A + 1 <= B, A = 10"


@dataclass(frozen=True)
class Side:
    """One side of a comparison, its type (None: the untyped NULL) and sqlglot's node."""

    expression: Expr
    type: SqlType | None
    node: exp.Expr


def read_group_side(reader: Reader, node: exp.Expr) -> Side:
    """A side of a comparison in HAVING: any expression over aggregates and group columns."""
    if not any(isinstance(each, exp.Column | exp.Func) for each in node.walk()):
        return read_row_side(reader, node)  # without columns it is a constant
    bound = bind(reader, node)
    return Side(bound.expression, bound.type, node)


def read_row_side(reader: Reader, node: exp.Expr) -> Side:
    """A side of a comparison on rows: a constant, a column, or a column shifted by a constant."""
    statement = reader.statement
    inner = strip_parentheses(statement, node)
    if isinstance(inner, exp.Subquery):
        raise unsupported_error(statement, inner)
    if isinstance(inner, exp.TimestampAdd):
        shifted = _read_timestamp_add(reader, inner)
        if shifted is not None:
            return shifted
    found = read_time_call(reader.scope, inner) or read_constant(statement, inner)
    if found:
        return Side(found.expression, found.type, node)
    if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
        ref, kind = reader.scope.find_column(inner)
        if statement.pluses(inner):
            require_number(statement, "+", inner, kind)
        return Side(ref, kind, node)
    if isinstance(inner, exp.Neg):
        return _negate(reader, inner)
    if isinstance(inner, exp.Interval):
        return _read_interval(reader, inner)
    if type(inner) in OPERATORS:
        accept_only(statement, inner, "this", "expression", "typed", "safe")
        return _compute(reader, inner, OPERATORS[type(inner)])
    derived = _derive(reader, inner)
    if derived is not None:
        return derived
    if isinstance(inner, AGGREGATES):
        message = f"the aggregate {statement.excerpt(inner)} is not supported in WHERE, ON or CHECK"
        raise SqlError(message, statement.at(inner), "put it in HAVING")
    if type(inner) in CONDITIONS:
        raise SqlError(
            f"{statement.excerpt(inner)} is a condition, but a value is expected",
            statement.at(inner),
            _SHAPE,
        )
    raise unsupported_error(statement, inner if has_aggregate(inner) else find_obstacle(inner))


def _read_interval(reader: Reader, node: exp.Interval) -> Side:
    """A duration: ``INTERVAL 10 SECONDS``, ``INTERVAL '1' HOUR``, ``INTERVAL '-5' MINUTES``."""
    written = f"{node.this.name} {node.text('unit')}"
    micros = parse_duration(written.removeprefix("-"))
    if micros is not None and (written.startswith("-") or isinstance(node.this, exp.Neg)):
        micros = -micros
    if micros is None:
        message = f"INTERVAL {one_line(written, 40)} is not a duration"
        raise SqlError(
            message,
            reader.statement.at(node),
            "write INTERVAL 10 SECONDS; the units are microseconds up to weeks",
        )
    return Side(Literal(timedelta(microseconds=micros), INTERVAL), INTERVAL, node)


def _read_timestamp_add(reader: Reader, node: exp.TimestampAdd) -> Side | None:
    """``timestampadd(MINUTE, 5, ts)``: a timestamp plus a duration; None if its length depends on the day."""
    count = read_constant(reader.statement, node.expression)
    column, unit = strip_parentheses(reader.statement, node.this), node.text("unit").upper()
    if count is None or unit not in _FIXED_UNITS or not isinstance(column, exp.Column):
        return None
    number = count.expression.value if isinstance(count.expression, Literal) else None
    side = read_row_side(reader, column)
    if side.type is not TIMESTAMP or not isinstance(number, int):
        return None
    mark_as_read(reader.statement, node)
    by = timedelta(microseconds=number * (parse_duration(f"1 {unit.lower()}") or 0))
    return shift_column(reader, node, "+", side, Literal(by, INTERVAL))


def _negate(reader: Reader, node: exp.Neg) -> Side:
    side = read_row_side(reader, node.this)
    require_number(reader.statement, "-", node.this, side.type)
    literal = side.expression
    if not isinstance(literal, Literal):
        return _derive_or_refuse(reader, node, "write -A < 3 as A > -3")
    return _fold(reader, node, lambda: literals.negate(literal))


def _compute(reader: Reader, node: exp.Expr, operator_: str) -> Side:
    if all(each.find(exp.Column) for each in (node.this, node.expression)) or operator_ in "*/%":
        derived = _derive(reader, node)
        if derived is not None:
            return derived
    left, right = read_row_side(reader, node.this), read_row_side(reader, node.expression)
    a, b = left.expression, right.expression
    if isinstance(a, Literal) and isinstance(b, Literal):
        return _fold(reader, node, lambda: literals.compute(operator_, a, b))
    if operator_ in "+-" and isinstance(b, Literal):
        return shift_column(reader, node, operator_, left, b)
    if operator_ == "+" and isinstance(a, Literal):
        return shift_column(reader, node, operator_, right, a)
    if operator_ == "-" and isinstance(a, Literal):
        return _derive_or_refuse(reader, node, "write 10 - A < 3 as A > 7")
    return _derive_or_refuse(reader, node, _SHAPE)


def _derive(reader: Reader, node: exp.Expr) -> Side | None:
    """The derived column that an expression over one occurrence stands for."""
    bound = read_row_expression(reader.scope, node)
    return Side(bound.expression, bound.type, node) if bound is not None else None


def _derive_or_refuse(reader: Reader, node: exp.Expr, remedy: str) -> Side:
    derived = _derive(reader, node)
    if derived is None:
        raise _refusal(reader, node, remedy)
    return derived


def _fold(reader: Reader, node: exp.Expr, fold: Callable[[], Literal]) -> Side:
    try:
        literal = fold()
    except ValueError as error:
        raise SqlTypeError(f"{reader.statement.excerpt(node)} {error}", reader.statement.at(node)) from None
    return Side(literal, literal.type, node)


def shift_column(reader: Reader, node: exp.Expr, operator_: str, column: Side, by: Literal) -> Side:
    """A column plus or minus a constant."""
    if by.value is None:
        return Side(literals.NULL, None, node)
    assert column.type is not None
    kind: SqlType | None = column.type
    if column.type.family is Family.DATE:
        if by.type not in _DAYS:
            message = f"{reader.statement.excerpt(node)} needs a whole number of days"
            raise SqlTypeError(message, reader.statement.at(node), "add or subtract an INT")
    elif column.type.family is Family.TIME and by.type is INTERVAL:
        kind = TIMESTAMP
    else:
        require_number(reader.statement, operator_, column.node, column.type)
        require_number(reader.statement, operator_, node, by.type)
        by = literals.to_double(by) if literals.is_floating(column.type) else by
        kind = arithmetic_type(operator_, column.type, by.type)
    return Side(_add_shift(reader, node, operator_, column.expression, by), kind, node)


def _add_shift(reader: Reader, node: exp.Expr, operator_: str, column: Expr, by: Literal) -> Expr:
    if isinstance(column, Ref):
        return Arithmetic(operator_, column, by)
    assert isinstance(column, Arithmetic) and isinstance(column.right, Literal)
    before = column.right
    if isinstance(before.value, float) or isinstance(by.value, float):
        # (x + 0.1) + 0.2 is not x + (0.1 + 0.2)
        raise _refusal(reader, node, "write the two constants as one")
    first = literals.negate(before) if column.operator == "-" else before
    total = _fold(reader, node, lambda: literals.compute(operator_, first, by)).expression
    return Arithmetic("+", column.left, total)


def _refusal(reader: Reader, node: exp.Expr, remedy: str) -> SqlError:
    message = f"{reader.statement.excerpt(node)} is not supported in WHERE, ON or CHECK"
    return SqlError(message, reader.statement.at(node), remedy)
